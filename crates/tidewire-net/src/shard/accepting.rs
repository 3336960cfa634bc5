//! Listeners and the connections that they accept.

use super::{LISTENER_BASE, Shard};
use crate::closed::io_words;
use crate::handler::Handler;
use crate::id::ListenerId;
use crate::socket::Phase;
use crate::stream::{HeldSide, HeldStream, Stream, TlsStream};
use crate::tls;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Token};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Listener {
    socket: TcpListener,
    tls: Option<Arc<tls::ServerConfig>>,
    /// Connections may be waiting to be accepted.
    pub(super) pending: bool,
    /// The process is out of descriptors: not before then again, on the shard's clock.
    retry_ms: u64,
    complaints: Complaints,
}

/// Limits the lines about a lack of the system, which strangers can cause and which is there for many attempts: one
/// in a minute, with a count of the others.
#[derive(Debug, Default)]
struct Complaints {
    /// The next line may be logged then, on the shard's clock.
    due_ms: u64,
    left_out: u64,
}

impl Complaints {
    /// The lines that were left out before this one, if this one may be logged.
    fn admit(&mut self, now_ms: u64) -> Option<u64> {
        if now_ms < self.due_ms {
            self.left_out += 1;
            return None;
        }
        self.due_ms = now_ms + COMPLAINT_INTERVAL_MS;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl<H: Handler> Shard<H> {
    /// Accepts connections at a listener that [`bind`](crate::bind) made, under TLS if it is given.
    ///
    /// # Errors
    /// The listener cannot be watched.
    pub fn listen(
        &mut self,
        listener: std::net::TcpListener,
        tls: Option<Arc<tls::ServerConfig>>,
    ) -> io::Result<ListenerId> {
        let id = ListenerId(self.listeners.len());
        let mut socket = TcpListener::from_std(listener);
        let token = Token((LISTENER_BASE + id.0 as u64) as usize);
        self.poll
            .registry()
            .register(&mut socket, token, Interest::READABLE)?;
        self.listeners.push(Listener {
            socket,
            tls,
            pending: true,
            retry_ms: 0,
            complaints: Complaints::default(),
        });
        Ok(id)
    }

    /// Closes the listeners. The socket may live on in another process, so closing alone would not end its events.
    pub(super) fn close_listeners(&mut self) {
        for mut listener in self.listeners.drain(..) {
            if let Err(error) = self.poll.registry().deregister(&mut listener.socket) {
                tracing::warn!(error = io_words(&error), "a listener is still watched");
            }
        }
    }

    /// When a listener has to be tried again, if one has.
    pub(super) fn next_accept_ms(&self) -> Option<u64> {
        let accepting = self.handler.may_accept();
        self.listeners
            .iter()
            .filter(|listener| listener.pending && accepting)
            .map(|listener| listener.retry_ms)
            .min()
    }

    pub(super) fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let listener = &mut self.listeners[index];
            if !listener.pending || self.io.now().monotonic_ms < listener.retry_ms {
                return;
            }
            if !self.handler.may_accept() {
                return;
            }
            match listener.socket.accept() {
                Ok((tcp, address)) => self.start_accepted(index, tcp, address),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    listener.pending = false;
                    return;
                }
                Err(error) if is_of_one_connection(&error) => {}
                // Most likely the process is out of descriptors.
                Err(_) if self.handler.make_room(&mut self.io) => self.notify_closed(),
                Err(error) => {
                    let now_ms = self.io.now().monotonic_ms;
                    listener.retry_ms = now_ms + ACCEPT_RETRY_MS;
                    if let Some(left_out) = listener.complaints.admit(now_ms) {
                        tracing::warn!(
                            error = io_words(&error),
                            left_out,
                            "no connection can be accepted; trying again"
                        );
                    }
                    return;
                }
            }
        }
    }

    fn start_accepted(&mut self, index: usize, tcp: TcpStream, address: SocketAddr) {
        #[cfg(not(target_os = "linux"))]
        let _ = tcp.set_nodelay(true);
        let stream = match &self.listeners[index].tls {
            None => Stream::Plain(tcp),
            Some(config) if self.handler.holds_tls() => Stream::Held(Box::new(HeldStream::new(
                tcp,
                HeldSide::Server(Arc::clone(config)),
            ))),
            Some(config) => match rustls::ServerConnection::new(Arc::clone(config)) {
                Ok(server) => Stream::Tls(Box::new(TlsStream::new(tcp, server.into()))),
                Err(error) => {
                    let now_ms = self.io.now().monotonic_ms;
                    if let Some(left_out) = self.listeners[index].complaints.admit(now_ms) {
                        tracing::error!(%error, left_out, "TLS cannot be started");
                    }
                    return;
                }
            },
        };
        self.start(stream, address, ListenerId(index));
    }

    pub(super) fn start(&mut self, stream: Stream, address: SocketAddr, listener: ListenerId) {
        match self.io.add(stream, Phase::Open) {
            Ok(id) => {
                self.io.accepted = Some((id, address));
                self.call_current(id, |handler, io| handler.handle_accept(io, id, listener));
                self.notify_closed();
            }
            Err(error) => {
                let now_ms = self.io.now().monotonic_ms;
                let found = self.listeners.get_mut(listener.0);
                let admitted = found.and_then(|found| found.complaints.admit(now_ms));
                if let Some(left_out) = admitted {
                    let error = io_words(&error);
                    tracing::error!(error, left_out, "a connection cannot be watched");
                }
            }
        }
    }
}

/// An error of a connection that ended before it was accepted (accept(2)), not of the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

/// Connections accepted before the others are served again.
pub(super) const ACCEPTS_PER_TURN: usize = 64;

/// The time between two lines about a lack of the system, in milliseconds.
const COMPLAINT_INTERVAL_MS: u64 = 60_000;

/// How long to wait with accepting after the process ran out of descriptors.
const ACCEPT_RETRY_MS: u64 = 100;
