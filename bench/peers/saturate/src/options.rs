//! The command line.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

pub const USAGE: &str = "--url ws://127.0.0.1:PORT/ [--connections N] [--payload-bytes N] \
     [--mode sink|echo] [--in-flight N] [--seconds S] [--write-bytes N] [--server-pid PID]";

/// When a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whenever its socket takes something.
    Sink,
    /// While fewer than `in_flight` of its messages are unanswered.
    Echo { in_flight: usize },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub address: SocketAddr,
    /// The target of the upgrade request, such as `/`.
    pub path: String,
    pub connections: usize,
    /// Length of a message's payload.
    pub payload_bytes: usize,
    pub mode: Mode,
    /// How long messages are sent.
    pub duration: Duration,
    /// The most that one `write` is given.
    pub write_bytes: usize,
    /// The process whose CPU time is reported beside the client's own.
    pub server_pid: Option<u32>,
}

impl Options {
    /// Reads the arguments after the program's name. The error is one line for the user.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut url = None;
        let (mut connections, mut payload_bytes, mut in_flight) = (100, 175, 64);
        let (mut seconds, mut write_bytes, mut server_pid) = (3.0_f64, 256 * 1024, None);
        let mut is_echo = false;
        while let Some(flag) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| format!("{flag} needs a value"))?;
            match (flag.as_str(), value.as_str()) {
                ("--url", _) => url = Some(value),
                ("--mode", "sink") => is_echo = false,
                ("--mode", "echo") => is_echo = true,
                ("--connections", _) => connections = number(&flag, &value, 1)?,
                ("--payload-bytes", _) => payload_bytes = number(&flag, &value, 64)?,
                ("--in-flight", _) => in_flight = number(&flag, &value, 1)?,
                ("--write-bytes", _) => write_bytes = number(&flag, &value, 1)?,
                ("--seconds", _) => seconds = number(&flag, &value, 0.1)?,
                ("--server-pid", _) => server_pid = Some(number(&flag, &value, 1)?),
                _ => return Err(format!("{flag} {value}: not understood")),
            }
        }
        let (address, path) = parse_url(&url.ok_or("--url is needed")?)?;
        Ok(Self {
            address,
            path,
            connections,
            payload_bytes,
            mode: match is_echo {
                false => Mode::Sink,
                true => Mode::Echo { in_flight },
            },
            duration: Duration::try_from_secs_f64(seconds)
                .map_err(|_| format!("--seconds {seconds}: too long"))?,
            write_bytes,
            server_pid,
        })
    }
}

fn number<T: FromStr + PartialOrd + std::fmt::Display>(
    flag: &str,
    text: &str,
    least: T,
) -> Result<T, String> {
    match text.parse() {
        Ok(number) if number >= least => Ok(number),
        _ => Err(format!("{flag} {text}: not a number of at least {least}")),
    }
}

fn parse_url(url: &str) -> Result<(SocketAddr, String), String> {
    let refused = || format!("--url {url}: not like ws://127.0.0.1:9001/");
    let rest = url.strip_prefix("ws://").ok_or_else(refused)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = authority
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .filter(|address| address.ip().is_loopback())
        .ok_or_else(refused)?;
    Ok((address, format!("/{path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn flags_are_read_in_any_order() {
        let line = "--mode echo --in-flight 1 --url ws://127.0.0.1:9001/ws --connections 7";
        let options = parse(line).unwrap();
        assert_eq!(options.address, "127.0.0.1:9001".parse().unwrap());
        assert_eq!(options.path, "/ws");
        assert_eq!(options.mode, Mode::Echo { in_flight: 1 });
        assert_eq!(options.connections, 7);
    }

    #[test]
    fn anything_else_is_refused() {
        for line in [
            "",
            "--url",
            "--url http://127.0.0.1:1/",
            "--url ws://192.0.2.1:80/",
            "--url ws://127.0.0.1:1/ --connections 0",
            "--url ws://127.0.0.1:1/ --payload-bytes 10",
            "--url ws://127.0.0.1:1/ --seconds NaN",
            "--url ws://127.0.0.1:1/ --mode loud",
        ] {
            assert!(parse(line).is_err(), "{line:?} was accepted");
        }
    }
}
