//! The end of a connection.

use std::io;

/// The reason for the end of a connection.
#[derive(Debug)]
pub enum Closed {
    /// The peer ended its side.
    ByPeer,
    /// The handler called [`Io::close`](crate::Io::close) or [`Io::abort`](crate::Io::abort), or the shard stopped.
    ByUs,
    /// Its outbox exceeded its limit.
    OutboxOverflow,
    /// It was not established: refused, unreachable, or no free port.
    NotConnected(io::Error),
    /// The peer violated TLS, or was rejected.
    Tls(rustls::Error),
    /// The operating system reported an error, such as a reset.
    Failed(io::Error),
}

impl Closed {
    /// The reason in words, for a log; `peer` names the other end, such as "the backend".
    #[must_use]
    pub fn reason(&self, peer: &str) -> String {
        match self {
            Self::ByPeer => format!("{peer} closed the connection"),
            Self::ByUs => "the connection was given up".to_owned(),
            Self::OutboxOverflow => format!("{peer} does not read"),
            Self::NotConnected(error) => format!("cannot connect: {}", io_words(error)),
            Self::Tls(error) => format!("TLS: {error}"),
            Self::Failed(error) => io_words(error),
        }
    }
}

/// An error in words, without the number that the standard library appends: `Connection refused (os error 111)`.
#[must_use]
pub fn io_words(error: &io::Error) -> String {
    let mut words = error.to_string();
    if let Some(number) = error.raw_os_error()
        && let Some(short) = words.strip_suffix(&format!(" (os error {number})"))
    {
        words.truncate(short.len());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_no_number_of_the_system() {
        let refused = io::Error::from_raw_os_error(111);
        assert!(refused.to_string().ends_with("(os error 111)"));
        let reason = Closed::NotConnected(refused).reason("the broker");
        assert_eq!(reason, "cannot connect: Connection refused");
        let own = io::Error::other("no name (os error 7)");
        assert_eq!(
            Closed::Failed(own).reason("the broker"),
            "no name (os error 7)"
        );
    }
}
