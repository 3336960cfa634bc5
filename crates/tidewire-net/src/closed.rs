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
            Self::NotConnected(error) => format!("cannot connect: {error}"),
            Self::Tls(error) => format!("TLS: {error}"),
            Self::Failed(error) => error.to_string(),
        }
    }
}
