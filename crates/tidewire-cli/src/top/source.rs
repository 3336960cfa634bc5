//! Queries of an operations listener over HTTP.

use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The operations listener of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// `host:port`
    authority: String,
}

impl Source {
    /// Reads `http://host:port` or `host:port`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let expected = || {
            "expected the URL of an operations listener, such as http://127.0.0.1:5007".to_owned()
        };
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(expected()),
            None => text,
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let port = authority.rsplit_once(':').and_then(|(host, port)| {
            let port: u16 = port.parse().ok()?;
            (!host.is_empty()).then_some(port)
        });
        if port.is_none() || authority.contains('/') {
            return Err(expected());
        }
        Ok(Self {
            authority: authority.to_owned(),
        })
    }

    /// The body of the answer to a path. The text of an error is for the user.
    pub(crate) fn get(&self, path: &str) -> Result<String, String> {
        let answer = self
            .exchange(path)
            .map_err(|error| format!("{self} does not answer: {error}"))?;
        let answer = String::from_utf8_lossy(&answer);
        let whole = answer.split_once("\r\n\r\n");
        let (head, body) = whole.ok_or_else(|| format!("{self} does not speak HTTP"))?;
        match head.split(' ').nth(1) {
            Some("200") => Ok(body.to_owned()),
            status => Err(format!(
                "{self}{path} answered with status {}",
                status.unwrap_or("none")
            )),
        }
    }

    fn exchange(&self, path: &str) -> std::io::Result<Vec<u8>> {
        let mut last = std::io::ErrorKind::NotFound.into();
        for address in self.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(stream) => return ask(stream, &self.authority, path),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}", self.authority)
    }
}

fn ask(mut stream: TcpStream, host: &str, path: &str) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// The time limit for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Larger than any answer of a Tidewire server.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_addresses() {
        for good in [
            "http://127.0.0.1:5007",
            "http://[::1]:5007/",
            "ops.example.com:80",
        ] {
            let source = Source::parse(good).unwrap();
            assert!(good.contains(&source.authority), "{good}");
        }
        for bad in [
            "https://a:1",
            "http://a",
            "a",
            "",
            ":1",
            "http://a:1/stats",
            "a:x",
            "a:99999",
        ] {
            assert!(Source::parse(bad).is_err(), "{bad}");
        }
    }
}
