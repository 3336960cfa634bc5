//! Queries of an operations listener over HTTP.

use std::fmt;
use std::time::Duration;
use tidewire_load::accounting::operations::{self, OperationsError};

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
        let body =
            operations::get(&self.authority, path, TIMEOUT).map_err(|error| match error {
                OperationsError::Io(error) => format!("{self} does not answer: {error}"),
                OperationsError::NotHttp(error) => format!("{self} does not speak HTTP: {error}"),
                OperationsError::Status(status) => {
                    format!("{self}{path} answered with status {status}")
                }
                error @ OperationsError::TooLong => format!("{self}{path}: {error}"),
            })?;
        String::from_utf8(body).map_err(|_| format!("{self}{path} is not UTF-8"))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}", self.authority)
    }
}

/// The time limit for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

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
