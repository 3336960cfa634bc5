//! Connections that an HTTP server of the language has accepted, and hands over to the engine.

use crate::failure::{Failure, Fault};
use std::fmt::Display;
#[cfg(not(unix))]
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use tidewire_engine::{Adoption, AdoptionTicket, ConnectDecision, Handle};

/// What the HTTP server knows of a client.
pub struct Newcomer {
    /// The request, and what has come after it.
    pub received: Vec<u8>,
    /// Its address, if the socket does not have it.
    pub address: Option<SocketAddr>,
    /// The HTTP server listens on this machine alone.
    pub is_local: bool,
    /// The application's decision, in JSON; null if there was none in time. None: the token decides.
    pub decision: Option<String>,
    /// The number of the hand-over.
    pub number: u64,
}

/// The hand-overs that have ended: what the language keeps for them can be dropped.
#[derive(Clone, Default)]
pub struct EndedAdoptions(Arc<Mutex<Vec<u64>>>);

impl EndedAdoptions {
    /// Their numbers since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ticket(&self, number: u64) -> AdoptionTicket {
        let ended = Arc::clone(&self.0);
        AdoptionTicket::new(number, move |number| {
            ended
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(number);
        })
    }
}

/// Hands a connection over.
///
/// # Errors
/// The decision cannot be used, the server has not caught up, or it has stopped. The stream is closed.
pub fn adopt(
    handle: &Handle,
    stream: TcpStream,
    newcomer: Newcomer,
    ended: &EndedAdoptions,
) -> Result<(), Failure> {
    // Whatever becomes of it, its ticket ends.
    let ticket = ended.ticket(newcomer.number);
    let read = newcomer.decision.as_deref().map(|json| match json {
        "null" => Ok(ConnectDecision::unavailable()),
        json => ConnectDecision::from_json(json.as_bytes()),
    });
    let decision = read.transpose().map_err(|error| {
        Failure::argument(format!("the answer of authorize cannot be used: {error}"))
    })?;
    handle.adopt(Adoption {
        stream,
        received: newcomer.received,
        address: newcomer.address,
        is_local: newcomer.is_local,
        decision,
        ticket: Some(ticket),
    })?;
    Ok(())
}

/// A second descriptor of a connected socket of this process: whoever has the first one closes it.
///
/// # Errors
/// There is no such descriptor, or no room for another one.
#[cfg(unix)]
pub fn copy_of(descriptor: i32) -> Result<TcpStream, Failure> {
    use filedescriptor::FileDescriptor;
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};

    struct Descriptor(RawFd);
    impl AsRawFd for Descriptor {
        fn as_raw_fd(&self) -> RawFd {
            self.0
        }
    }
    let copy = FileDescriptor::dup(&Descriptor(descriptor)).map_err(system)?;
    let file = copy.as_file().map_err(system)?;
    Ok(TcpStream::from(OwnedFd::from(file)))
}

/// Two connected sockets: one for the engine, and the descriptor of the other, which the caller owns.
///
/// # Errors
/// The process has no free descriptor.
#[cfg(unix)]
pub fn pair() -> Result<(TcpStream, i32), Failure> {
    use std::os::fd::{IntoRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    let (engine, other) = UnixStream::pair().map_err(system)?;
    other.set_nonblocking(true).map_err(system)?;
    Ok((TcpStream::from(OwnedFd::from(engine)), other.into_raw_fd()))
}

/// The same where sockets have no descriptors.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn copy_of(_descriptor: i32) -> Result<TcpStream, Failure> {
    Err(system(io::Error::from(io::ErrorKind::Unsupported)))
}

/// The same where there are no pairs of sockets.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn pair() -> Result<(TcpStream, i32), Failure> {
    Err(system(io::Error::from(io::ErrorKind::Unsupported)))
}

/// The system has no descriptor left, or no sockets of this kind.
fn system(error: impl Display) -> Failure {
    let words = format!("the system cannot hand a connection over: {error}");
    Failure::new("TidewireError", "SYSTEM", Fault::Nobody, words)
}
