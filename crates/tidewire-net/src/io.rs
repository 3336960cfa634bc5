//! What a handler can do with the shard's connections.

use crate::handler::Closed;
use crate::outbox::Outbox;
use crate::socket::{NEVER, Phase, Socket};
use crate::stream::{Stream, TlsStream};
use crate::timer::{Entry, TimerWheel};
use crate::{ConnectionId, tls};
use mio::net::TcpStream;
use mio::{Interest, Token};
use rustls::pki_types::ServerName;
use slab::Slab;
use socket2::{Domain, Protocol, Type};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The time of this loop turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Milliseconds since the shard was made.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970, UTC.
    pub unix_ms: u64,
}

/// A connection to be made.
#[derive(Debug)]
pub struct Connect {
    /// Where to.
    pub address: SocketAddr,
    /// From which address of this machine, or `None` for the system's choice. Each gives about as many
    /// more connections to one target as there are ports in the ephemeral range.
    pub source: Option<IpAddr>,
    /// TLS, and the name that the server's certificate has to be for.
    pub tls: Option<(Arc<tls::ClientConfig>, ServerName<'static>)>,
}

/// The connections of a shard and everything that can be asked of them.
#[derive(Debug)]
pub struct Io {
    pub(crate) registry: mio::Registry,
    pub(crate) sockets: Slab<Socket>,
    /// What the handler says to the connection it is called for.
    pub(crate) cork: Vec<u8>,
    pub(crate) current: Option<ConnectionId>,
    pub(crate) dirty: Vec<ConnectionId>,
    pub(crate) ready: VecDeque<ConnectionId>,
    pub(crate) closed: Vec<(ConnectionId, Closed)>,
    pub(crate) drained: Vec<ConnectionId>,
    pub(crate) timers: TimerWheel,
    pub(crate) stopping: bool,
    spare_buffers: Vec<Vec<u8>>,
    next_generation: u32,
    outbox_bytes_max: usize,
    started: Instant,
    now: Now,
}

impl Io {
    pub(crate) fn new(registry: mio::Registry, outbox_bytes_max: usize) -> Self {
        let mut io = Self {
            registry,
            sockets: Slab::new(),
            cork: Vec::new(),
            current: None,
            dirty: Vec::new(),
            ready: VecDeque::new(),
            closed: Vec::new(),
            drained: Vec::new(),
            timers: TimerWheel::new(0),
            stopping: false,
            spare_buffers: Vec::new(),
            next_generation: 0,
            outbox_bytes_max,
            started: Instant::now(),
            now: Now::default(),
        };
        io.read_clocks();
        io
    }

    /// The time at the start of this loop turn.
    #[must_use]
    pub fn now(&self) -> Now {
        self.now
    }

    /// Connections of every kind, also those that are being made or closed.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.sockets.len()
    }

    /// The other end's address, if the connection lives.
    #[must_use]
    pub fn peer_address(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.live(id)?.stream.tcp().peer_addr().ok()
    }

    /// The buffer whose content leaves to the connection next, to append whole frames to; `None` if
    /// the connection is gone. It leaves when the handler returns or, for a connection other than the
    /// one the handler was called for, at the end of the loop turn.
    #[inline]
    pub fn buffer(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>> {
        if self.current == Some(id) && self.cork.len() >= CORK_BYTES {
            self.write_cork(id);
        }
        let socket = self.sockets.get_mut(id.index())?;
        if socket.id != id || socket.phase != Phase::Open {
            return None;
        }
        if self.current == Some(id) && socket.outbox.len() == 0 {
            return Some(&mut self.cork);
        }
        if !socket.flags.dirty {
            socket.flags.dirty = true;
            self.dirty.push(id);
        }
        if socket.outbox.len() == 0
            && let Some(spare) = self.spare_buffers.pop()
        {
            socket.outbox = Outbox::with_buffer(spare);
        }
        if socket.outbox.len() > self.outbox_bytes_max {
            return self.buffer_after_writing(id);
        }
        Some(self.sockets[id.index()].outbox.buffer())
    }

    /// Sends bytes; whether the connection was there to take them.
    #[inline]
    pub fn send(&mut self, id: ConnectionId, bytes: &[u8]) -> bool {
        match self.buffer(id) {
            Some(buffer) => {
                buffer.extend_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    /// Writes from the front of `bytes` straight to the socket, without a copy, and returns how many it
    /// took: none while something is queued or the connection is gone. After fewer than all,
    /// [`handle_drained`](crate::Handler::handle_drained) tells when to go on.
    pub fn write_now(&mut self, id: ConnectionId, bytes: &[u8]) -> usize {
        if self.current == Some(id) {
            self.write_cork(id);
        }
        if self
            .live(id)
            .is_some_and(|socket| !socket.flags.blocked && socket.outbox.len() > 0)
        {
            // Queued for the end of the turn, which would not be reported as drained.
            self.write_socket(id);
        }
        let Some(socket) = self.live_mut(id) else {
            return 0;
        };
        if socket.phase != Phase::Open || socket.flags.blocked || bytes.is_empty() {
            return 0;
        }
        match socket.stream.write(bytes) {
            Ok(taken) => {
                socket.flags.blocked = taken < bytes.len() || socket.stream.wants_write();
                taken
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                socket.flags.blocked = true;
                0
            }
            Err(error) => {
                self.kill(id, Closed::Failed(error));
                0
            }
        }
    }

    /// Bytes that wait for the socket to take them, without what this call to the handler has added.
    #[must_use]
    pub fn queued_bytes(&self, id: ConnectionId) -> usize {
        self.live(id).map_or(0, |socket| socket.outbox.len())
    }

    /// Reads nothing more from the connection, so that TCP holds its sender back.
    pub fn pause_reading(&mut self, id: ConnectionId) {
        if let Some(socket) = self.live_mut(id) {
            socket.flags.paused = true;
        }
    }

    /// Takes [`pause_reading`](Self::pause_reading) back. What the handler had left unused comes again
    /// also when nothing follows it.
    pub fn resume_reading(&mut self, id: ConnectionId) {
        let Some(socket) = self.live_mut(id) else {
            return;
        };
        let was_paused = std::mem::take(&mut socket.flags.paused);
        socket.flags.retry |= was_paused && !socket.tail.is_empty();
        if socket.flags.readable || socket.flags.retry {
            self.read_later(id);
        }
    }

    /// Calls [`handle_timer`](crate::Handler::handle_timer) when the monotonic time is `due_ms`, some
    /// milliseconds late at most. A connection has one timer: this replaces the one before.
    pub fn set_timer(&mut self, id: ConnectionId, due_ms: u64) {
        if self.live(id).is_some() {
            self.put_timer(id, due_ms);
        }
    }

    /// Sets the timer of a connection that lives or lingers.
    pub(crate) fn put_timer(&mut self, id: ConnectionId, due_ms: u64) {
        let Some(socket) = self.socket_mut(id) else {
            return;
        };
        socket.timer.due_ms = due_ms;
        if due_ms < socket.timer.queued_ms {
            socket.timer.queued_ms = due_ms;
            self.timers.insert(Entry {
                index: id.index() as u32,
                generation: id.generation(),
                due_ms,
            });
        }
    }

    /// Forgets the connection's timer.
    pub fn clear_timer(&mut self, id: ConnectionId) {
        if let Some(socket) = self.live_mut(id) {
            socket.timer.due_ms = NEVER;
        }
    }

    /// Sends what is queued, ends the stream and lets the connection go when the peer has ended its
    /// side, or has taken nothing and said nothing of its end for [`LINGER_MS`], and after
    /// [`LINGER_MS_MAX`] in any case. The handler is told at once.
    pub fn close(&mut self, id: ConnectionId) {
        let Some(socket) = self.live_mut(id) else {
            return;
        };
        if socket.phase == Phase::Connecting {
            return self.abort(id);
        }
        socket.flags.paused = false;
        let is_readable = socket.flags.readable;
        self.linger(id, Closed::ByUs);
        if is_readable {
            // The report of what was left unread, and of an end behind it, does not come again.
            self.read_later(id);
        }
    }

    /// Lets what is queued leave before the connection goes.
    fn linger(&mut self, id: ConnectionId, closed: Closed) {
        let now_ms = self.now.monotonic_ms;
        let Some(socket) = self.live_mut(id) else {
            return;
        };
        socket.phase = Phase::Lingering;
        socket.linger_until_ms = now_ms + LINGER_MS_MAX;
        socket.tail = Vec::new();
        socket.flags.retry = false;
        if !socket.flags.dirty {
            socket.flags.dirty = true;
            self.dirty.push(id);
        }
        self.closed.push((id, closed));
        self.put_timer(id, self.now.monotonic_ms + LINGER_MS);
    }

    /// The peer has ended its side. What it asked for before still goes to it.
    pub(crate) fn end_by_peer(&mut self, id: ConnectionId) {
        let Some(socket) = self.socket_mut(id) else {
            return;
        };
        socket.flags.read_ended = true;
        let has_more_to_send = socket.outbox.len() > 0 || socket.flags.blocked;
        match socket.phase {
            Phase::Connecting => {
                let error = io::ErrorKind::UnexpectedEof.into();
                self.kill(id, Closed::NotConnected(error));
            }
            Phase::Open if has_more_to_send => self.linger(id, Closed::ByPeer),
            Phase::Lingering if !socket.flags.write_ended => {}
            _ => self.kill(id, Closed::ByPeer),
        }
    }

    /// Lets the connection go at once, with whatever is queued.
    pub fn abort(&mut self, id: ConnectionId) {
        self.kill(id, Closed::ByUs);
    }

    /// Ends the shard's loop at the end of this turn.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Starts a connection. The handler hears of its success or failure later.
    ///
    /// # Errors
    /// No socket or port was to be had, the source address is not of this machine, the system knows
    /// at once that the target cannot be reached, or the shard is stopping.
    pub fn connect(&mut self, connect: Connect) -> io::Result<ConnectionId> {
        if self.stopping {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the shard is stopping",
            ));
        }
        let domain = Domain::for_address(connect.address);
        let socket = socket2::Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(source) = connect.source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        match socket.connect(&connect.address.into()) {
            Err(error) if !is_in_progress(&error) => return Err(error),
            _ => {}
        }
        let tcp = TcpStream::from_std(socket.into());
        let stream = match connect.tls {
            None => Stream::Plain(tcp),
            Some((config, name)) => {
                let client =
                    rustls::ClientConnection::new(config, name).map_err(io::Error::other)?;
                Stream::Tls(Box::new(TlsStream::new(tcp, client.into())))
            }
        };
        self.add(stream, Phase::Connecting)
    }

    pub(crate) fn add(&mut self, stream: Stream, phase: Phase) -> io::Result<ConnectionId> {
        let entry = self.sockets.vacant_entry();
        let id = ConnectionId::new(entry.key(), self.next_generation);
        // The highest generation marks listeners.
        self.next_generation = (self.next_generation + 1) % u32::MAX;
        let socket = entry.insert(Socket::new(stream, id, phase));
        let token = Token(id.to_u64() as usize);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self
            .registry
            .register(socket.stream.tcp_mut(), token, interest)
        {
            self.sockets.remove(id.index());
            return Err(error);
        }
        Ok(id)
    }

    /// The socket of this connection, as long as its place has not been given to another.
    pub(crate) fn socket(&self, id: ConnectionId) -> Option<&Socket> {
        self.sockets
            .get(id.index())
            .filter(|socket| socket.id == id)
    }

    pub(crate) fn socket_mut(&mut self, id: ConnectionId) -> Option<&mut Socket> {
        self.sockets
            .get_mut(id.index())
            .filter(|socket| socket.id == id)
    }

    /// The socket if the handler may still use it.
    pub(crate) fn live(&self, id: ConnectionId) -> Option<&Socket> {
        self.socket(id).filter(|socket| socket.is_live())
    }

    pub(crate) fn live_mut(&mut self, id: ConnectionId) -> Option<&mut Socket> {
        self.socket_mut(id).filter(|socket| socket.is_live())
    }

    pub(crate) fn read_later(&mut self, id: ConnectionId) {
        if let Some(socket) = self.sockets.get_mut(id.index())
            && !socket.flags.queued
        {
            socket.flags.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Ends a connection without waiting. A lingering one goes in silence: its end was told.
    pub(crate) fn kill(&mut self, id: ConnectionId, closed: Closed) {
        let Some(socket) = self.socket_mut(id) else {
            return;
        };
        match socket.phase {
            Phase::Dead => {}
            Phase::Lingering => {
                socket.phase = Phase::Dead;
                let will_be_told = self.closed.iter().any(|(other, _)| *other == id);
                if !will_be_told {
                    self.remove(id);
                }
            }
            Phase::Open | Phase::Connecting => {
                socket.phase = Phase::Dead;
                self.closed.push((id, closed));
            }
        }
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        let mut socket = self.sockets.remove(id.index());
        // Closing the descriptor would do it as well; this keeps mio's own books on other systems.
        let _ = self.registry.deregister(socket.stream.tcp_mut());
        self.recycle(socket.outbox);
    }

    /// Writes what the handler has said to the connection it was called for.
    #[inline]
    pub(crate) fn write_cork(&mut self, id: ConnectionId) {
        if self.cork.is_empty() {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(id.index())
            && socket.id == id
            && socket.phase != Phase::Dead
        {
            let result = match socket.stream.write(&self.cork) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                result => result,
            };
            match result {
                Ok(bytes) if bytes == self.cork.len() => {
                    socket.flags.blocked |= socket.stream.wants_write();
                }
                Ok(bytes) => self.keep_rest(id, bytes),
                Err(error) => self.kill(id, Closed::Failed(error)),
            }
        }
        self.cork.clear();
    }

    /// The socket took only the first `sent` bytes of the cork.
    #[cold]
    fn keep_rest(&mut self, id: ConnectionId, sent: usize) {
        let spare = self.spare_buffers.pop().unwrap_or_default();
        let Some(socket) = self.sockets.get_mut(id.index()) else {
            return;
        };
        if socket.outbox.len() == 0 {
            socket.outbox = Outbox::with_buffer(spare);
        }
        socket.outbox.buffer().extend_from_slice(&self.cork[sent..]);
        self.write_socket(id);
    }

    /// Writes what is queued for a connection and, when all is out, ends a closed one.
    pub(crate) fn write_socket(&mut self, id: ConnectionId) {
        let outbox_bytes_max = self.outbox_bytes_max;
        let linger_ms = self.now.monotonic_ms + LINGER_MS;
        let Some(socket) = self.socket_mut(id) else {
            return;
        };
        if matches!(socket.phase, Phase::Dead | Phase::Connecting) {
            return;
        }
        let was_blocked = socket.flags.blocked;
        let waiting_bytes = socket.outbox.len();
        match socket.write_outbox() {
            Ok(true) => {
                let outbox = std::mem::take(&mut socket.outbox);
                if socket.phase == Phase::Lingering && !socket.flags.write_ended {
                    socket.flags.write_ended = true;
                    socket.stream.shutdown_write();
                    if socket.flags.read_ended {
                        self.kill(id, Closed::ByPeer);
                    }
                } else if was_blocked && socket.phase == Phase::Open {
                    self.drained.push(id);
                }
                self.recycle(outbox);
            }
            Ok(false) if socket.outbox.len() > outbox_bytes_max => {
                self.kill(id, Closed::OutboxOverflow);
            }
            Ok(false) => {
                if socket.phase == Phase::Lingering && socket.outbox.len() < waiting_bytes {
                    let due_ms = linger_ms.min(socket.linger_until_ms);
                    self.put_timer(id, due_ms);
                }
            }
            Err(error) => self.kill(id, Closed::Failed(error)),
        }
    }

    /// TLS may have answered what it has just read, or be able to send what waited for its handshake.
    pub(crate) fn write_after_tls_read(&mut self, id: ConnectionId) {
        let Some(socket) = self.socket_mut(id) else {
            return;
        };
        if socket.stream.wants_write() {
            socket.flags.blocked = true;
        } else if socket.flags.blocked {
            self.write_socket(id);
        }
    }

    /// The outbox is past its limit before the turn has ended: it leaves now or the connection does.
    #[cold]
    fn buffer_after_writing(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>> {
        self.write_socket(id);
        let socket = self.live_mut(id)?;
        Some(socket.outbox.buffer())
    }

    fn recycle(&mut self, outbox: Outbox) {
        let mut buffer = outbox.into_buffer();
        let is_worth_it = (1..=SPARE_BUFFER_BYTES).contains(&buffer.capacity());
        if is_worth_it && self.spare_buffers.len() < SPARE_BUFFERS {
            buffer.clear();
            self.spare_buffers.push(buffer);
        }
    }

    pub(crate) fn read_clocks(&mut self) {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.now = Now {
            monotonic_ms: self.started.elapsed().as_millis() as u64,
            unix_ms: unix.as_millis() as u64,
        };
    }
}

fn is_in_progress(error: &io::Error) -> bool {
    #[cfg(unix)]
    if rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::INPROGRESS) {
        return true;
    }
    error.kind() == io::ErrorKind::WouldBlock
}

/// How long a closed connection waits for its peer to take what is left or to end, in milliseconds.
pub const LINGER_MS: u64 = 2_000;

/// How long a closed connection may take for what it has queued though its peer goes on taking it, in
/// milliseconds. It bounds what a peer that reads a little now and then can keep here.
pub const LINGER_MS_MAX: u64 = 10_000;

/// What is corked before it is written although the handler goes on.
const CORK_BYTES: usize = 256 * 1024;

/// Buffers kept for outboxes, and the largest that is kept.
const SPARE_BUFFERS: usize = 64;
const SPARE_BUFFER_BYTES: usize = 64 * 1024;
