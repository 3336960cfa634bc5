//! Connections that the application has accepted itself, and hands over to the server.

use crate::backend::events::ConnectAnswer;
use crate::model::adoption::AdoptionTicket;
use std::net::{SocketAddr, TcpStream};

/// A connection whose opening handshake another HTTP server of this process has read. It becomes a connection of a shard, which
/// reads the same request again: whatever holds for connections of the server's own port holds for it.
#[derive(Debug)]
pub struct Adoption {
    /// The TCP connection; or the end of a pair of Unix sockets, whose other end the application relays to the client.
    pub stream: TcpStream,
    /// The request, and the bytes that have come after it. At most [`ADOPTED_BYTES_MAX`](crate::ADOPTED_BYTES_MAX) bytes, 32 KiB.
    pub received: Vec<u8>,
    /// The client's address. None: the stream has it.
    pub address: Option<SocketAddr>,
    /// The HTTP server listens on this machine alone. Pages of other hosts are then refused as on
    /// [a loopback address](crate::Config::listen).
    pub is_local: bool,
    /// The application's decision about the client. None: its token decides, or the backend.
    pub decision: Option<ConnectDecision>,
    /// The application finds the connection again by it: [`Peer::adoption`](crate::Peer::adoption).
    pub ticket: Option<AdoptionTicket>,
}

/// The decision of an application about a client that wants to connect.
#[derive(Debug)]
pub struct ConnectDecision(pub(crate) Option<Box<ConnectAnswer>>);

/// A decision that cannot be used. The application's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidDecision(String);

impl ConnectDecision {
    /// Reads a decision in JSON: the answer of a backend to the event `connect`, an object with any of `user`, `access`,
    /// `subscriptions`, `expires_at`, or with `refused`.
    ///
    /// # Errors
    /// [`InvalidDecision`] names what is wrong.
    pub fn from_json(json: &[u8]) -> Result<Self, InvalidDecision> {
        match ConnectAnswer::read(json) {
            Ok(answer) => Ok(Self(Some(Box::new(answer)))),
            Err(failure) => Err(InvalidDecision(failure.detail())),
        }
    }

    /// No decision in time: the client receives HTTP 503 with `Retry-After`.
    #[must_use]
    pub fn unavailable() -> Self {
        Self(None)
    }
}

/// A client whose connection a proxy forwards, or the application has handed over.
#[derive(Debug, Default)]
pub(crate) struct Forwarded {
    /// Its address, if that is not the one of the TCP connection.
    pub(crate) address: Option<SocketAddr>,
    /// A trusted proxy forwards it.
    pub(crate) by_proxy: bool,
    pub(crate) adopted: Option<Adopted>,
}

#[derive(Debug)]
pub(crate) struct Adopted {
    pub(crate) ticket: Option<AdoptionTicket>,
    pub(crate) is_local: bool,
    /// Until the handshake is answered.
    pub(crate) decision: Option<ConnectDecision>,
}
