//! Connections that an HTTP server of the language has accepted, and hands over to the engine.

use crate::failure::{Failure, Fault};
use std::fmt::Display;
#[cfg(not(unix))]
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use tidewire_engine::{Adoption, AdoptionTicket, ConnectDecision, Handle};

/// A client of the HTTP server.
#[derive(Default)]
pub struct Newcomer {
    /// The address of the client. None: the socket has it.
    pub host: Option<String>,
    /// Its port.
    pub port: Option<u16>,
    /// The address at which the HTTP server listens.
    pub listens_at: Option<String>,
    /// The application's decision, in JSON; null if there was none in time. None: the token decides.
    pub decision: Option<String>,
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

    pub(super) fn ticket(&self, number: u64) -> AdoptionTicket {
        let ended = Arc::clone(&self.0);
        AdoptionTicket::new(number, move |number| {
            ended
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(number);
        })
    }
}

/// Hands a connection over, with the bytes that were read from it. `number` is that of the hand-over, which `ended` repeats at its end.
///
/// # Errors
/// The decision cannot be used, the server has not caught up, or it has stopped. The stream is closed.
pub fn adopt(
    handle: &Handle,
    stream: TcpStream,
    received: Vec<u8>,
    newcomer: Newcomer,
    number: u64,
    ended: &EndedAdoptions,
) -> Result<(), Failure> {
    // Whatever becomes of it, its ticket ends.
    let ticket = ended.ticket(number);
    let decision = decision_of(newcomer.decision.as_deref())?;
    let port = newcomer.port.unwrap_or(0);
    let listens_at = address_of(newcomer.listens_at.as_deref());
    handle.adopt(Adoption {
        stream,
        received,
        address: address_of(newcomer.host.as_deref()).map(|host| SocketAddr::new(host, port)),
        is_local: listens_at.is_some_and(|address| address.to_canonical().is_loopback()),
        decision,
        ticket: Some(ticket),
    })?;
    Ok(())
}

/// A decision in JSON; null if there was none in time.
///
/// # Errors
/// It cannot be used.
pub(super) fn decision_of(json: Option<&str>) -> Result<Option<ConnectDecision>, Failure> {
    let read = json.map(|json| match json {
        "null" => Ok(ConnectDecision::unavailable()),
        json => ConnectDecision::from_json(json.as_bytes()),
    });
    read.transpose().map_err(|error| {
        Failure::argument(format!("the answer of authorize cannot be used: {error}"))
    })
}

/// Makes a connection to the engine whose other end the caller relays to a client: the descriptor of that end. The caller writes the
/// request.
///
/// # Errors
/// Those of [`adopt`], and that the process has no free descriptor.
pub fn adopt_relayed(
    handle: &Handle,
    newcomer: Newcomer,
    number: u64,
    ended: &EndedAdoptions,
) -> Result<i32, Failure> {
    let (stream, other) = pair()?;
    adopt(handle, stream, Vec::new(), newcomer, number, ended)?;
    Ok(other.into_raw())
}

/// An address, if the text is one and not the path of a socket or a name.
fn address_of(text: Option<&str>) -> Option<IpAddr> {
    text?.parse().ok()
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

/// Two connected sockets: one for the engine, and one for the caller.
#[cfg(unix)]
fn pair() -> Result<(TcpStream, Other), Failure> {
    use std::os::fd::OwnedFd;

    let (engine, other) = std::os::unix::net::UnixStream::pair().map_err(system)?;
    other.set_nonblocking(true).map_err(system)?;
    Ok((TcpStream::from(OwnedFd::from(engine)), Other(other)))
}

/// The caller's end of a pair. It is closed if the engine does not accept the connection.
#[cfg(unix)]
struct Other(std::os::unix::net::UnixStream);

#[cfg(unix)]
impl Other {
    fn into_raw(self) -> i32 {
        std::os::fd::IntoRawFd::into_raw_fd(self.0)
    }
}

#[cfg(not(unix))]
enum Other {}

#[cfg(not(unix))]
impl Other {
    fn into_raw(self) -> i32 {
        match self {}
    }
}

/// The same where sockets have no descriptors.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn copy_of(_descriptor: i32) -> Result<TcpStream, Failure> {
    Err(system(io::Error::from(io::ErrorKind::Unsupported)))
}

#[cfg(not(unix))]
fn pair() -> Result<(TcpStream, Other), Failure> {
    Err(system(io::Error::from(io::ErrorKind::Unsupported)))
}

/// The system has no descriptor left, or no sockets of this kind.
fn system(error: impl Display) -> Failure {
    let words = format!("the system cannot hand a connection over: {error}");
    Failure::new("TidewireError", "SYSTEM", Fault::Nobody, words)
}
