//! I/O: the operations of a handler on the connections of its shard.

mod adopting;
mod securing;
mod writing;

pub use adopting::ADOPTED_BYTES_MAX;
pub use writing::{OUTBOX_SHARE_BYTES, When};

use crate::closed::Closed;
use crate::config::ShardConfig;
use crate::id::ConnectionId;
use crate::ledger::Ledger;
use crate::outbox::Spares;
use crate::places::Places;
use crate::receiving::ReceiveBuffers;
use crate::socket::{NEVER, Phase, Socket};
use crate::stream::{HeldSide, HeldStream, Stream, TlsStream};
use crate::timer::{Entry, TimerWheel};
use crate::tls;
use mio::Token;
use mio::net::TcpStream;
use rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, Type};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time of this loop turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Milliseconds since the shard was created.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970, UTC.
    pub unix_ms: u64,
    /// The same without its steps, such as a correction by an operator: see [`steady_unix_ms`].
    pub steady_unix_ms: u64,
}

/// Milliseconds since 1970 by the clock of this machine at its first reading, plus the monotonic time since
/// then. So a step of the clock changes no difference of two such times.
#[must_use]
pub fn steady_unix_ms() -> u64 {
    static START: OnceLock<(Instant, u64)> = OnceLock::new();
    let (began, unix_ms) = START.get_or_init(|| {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        (Instant::now(), unix.unwrap_or_default().as_millis() as u64)
    });
    unix_ms + began.elapsed().as_millis() as u64
}

/// A connection to be opened.
#[derive(Debug)]
pub struct Connect {
    /// The address of the server.
    pub address: Address,
    /// The source address on this machine; `None` for the choice of the system. Each address allows about as
    /// many connections to one target as the ephemeral range has ports.
    pub source: Option<IpAddr>,
    /// TLS, and the name that the server's certificate must have.
    pub tls: Option<(Arc<tls::ClientConfig>, ServerName<'static>)>,
    /// The use of the connection.
    pub usage: Usage,
}

/// The use of a connection; the more is known of it, the fewer packets and system calls it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Usage {
    /// Both sides write at any time.
    #[default]
    Any,
    /// This side writes as soon as the connection is ready. The last packet of TCP's handshake then leaves
    /// with its first bytes; if it does not write, after 200 ms.
    WritesFirst,
    /// The same, and all that it ever writes is one slice that fits into a segment. TCP delays only bytes
    /// that are written while others are in flight, so `TCP_NODELAY` is not needed.
    WritesOnce,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket; only on systems that have them.
    Unix(PathBuf),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// The connections of a shard, and the operations on them.
#[derive(Debug)]
pub struct Io {
    pub(crate) registry: mio::Registry,
    pub(crate) sockets: Places<Socket>,
    /// The output to the connection for which the handler is called.
    pub(crate) cork: Vec<u8>,
    pub(crate) current: Option<ConnectionId>,
    pub(crate) dirty: Vec<ConnectionId>,
    pub(crate) ready: VecDeque<ConnectionId>,
    pub(crate) closed: Vec<(ConnectionId, Closed)>,
    pub(crate) drained: Vec<ConnectionId>,
    pub(crate) timers: TimerWheel,
    pub(crate) stopping: bool,
    /// The listeners are to be closed.
    pub(crate) listens_no_more: bool,
    /// The last accepted connection and its address, which saves a system call.
    pub(crate) accepted: Option<(ConnectionId, SocketAddr)>,
    /// Whether the shard is simulated: the time is set from outside, and there are no real connections.
    #[cfg(feature = "simulation")]
    is_simulated: bool,
    receive_buffers: ReceiveBuffers,
    spares: Spares,
    next_generation: u32,
    outbox_bytes_max: usize,
    /// The memory of all outboxes.
    pub(crate) ledger: Ledger,
    started: Instant,
    turn_started: Instant,
    now: Now,
}

impl Io {
    pub(crate) fn new(registry: mio::Registry, config: &ShardConfig) -> Self {
        let now = Instant::now();
        let mut io = Self {
            registry,
            sockets: Places::new(),
            cork: Vec::new(),
            current: None,
            dirty: Vec::new(),
            ready: VecDeque::new(),
            closed: Vec::new(),
            drained: Vec::new(),
            timers: TimerWheel::new(0),
            stopping: false,
            listens_no_more: false,
            accepted: None,
            #[cfg(feature = "simulation")]
            is_simulated: false,
            receive_buffers: ReceiveBuffers::new(
                config.receive_buffer_bytes_max,
                config.receive_buffers_bytes_max,
            ),
            spares: Spares::default(),
            next_generation: 0,
            outbox_bytes_max: config.outbox_bytes_max,
            ledger: Ledger::new(config.outboxes_bytes_max),
            started: now,
            turn_started: now,
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

    /// The precise start of this loop turn. In a simulation, the creation of the shard.
    #[must_use]
    pub fn turn_started(&self) -> Instant {
        self.turn_started
    }

    /// The instant of a monotonic time of this shard.
    #[must_use]
    pub fn instant_at(&self, monotonic_ms: u64) -> Instant {
        self.started + Duration::from_millis(monotonic_ms)
    }

    /// All connections, including those that are being opened or closed.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.sockets.len()
    }

    /// Whether the connection was closed and lingers until its peer has read the rest, or has ended.
    #[must_use]
    pub fn is_closing(&self, id: ConnectionId) -> bool {
        let socket = self.socket(id);
        socket.is_some_and(|socket| socket.phase == Phase::Lingering)
    }

    /// The peer's address, if the connection is open.
    #[must_use]
    pub fn peer_address(&self, id: ConnectionId) -> Option<SocketAddr> {
        let socket = self.live(id)?;
        match self.accepted {
            Some((accepted, address)) if accepted == id => Some(address),
            _ => socket.stream.peer_addr().ok(),
        }
    }

    /// The same in [`Handler::handle_close`](crate::Handler::handle_close), where the connection is open no more. `None`
    /// if the operating system has forgotten it, as after a reset.
    #[must_use]
    pub fn last_peer_address(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.socket(id)?.stream.peer_addr().ok()
    }

    /// Stops reading from the connection, so that TCP slows its sender down.
    pub fn pause_reading(&mut self, id: ConnectionId) {
        if let Some(socket) = self.live_mut(id) {
            socket.flags.paused = true;
        }
    }

    /// Ends [`pause_reading`](Self::pause_reading). The handler receives its unused bytes again, also if no bytes
    /// follow.
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

    /// Calls [`handle_timer`](crate::Handler::handle_timer) when the monotonic time is `due_ms`, at most
    /// some milliseconds late. A connection has one timer: a new one replaces it.
    pub fn set_timer(&mut self, id: ConnectionId, due_ms: u64) {
        if self.live(id).is_some() {
            self.put_timer(id, due_ms);
        }
    }

    /// Sets the timer of an open or lingering connection.
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

    /// Removes the connection's timer.
    pub fn clear_timer(&mut self, id: ConnectionId) {
        if let Some(socket) = self.live_mut(id) {
            socket.timer.due_ms = NEVER;
        }
    }

    /// Sends the queue, ends the stream, and releases the connection when the peer has ended its side, or has read
    /// nothing for [`LINGER_MS`], and at the latest after [`LINGER_MS_MAX`]. The handler is notified at once.
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
            // The kernel does not report unread bytes, or an end behind them, a second time.
            self.read_later(id);
        }
    }

    /// Sends the queue before the connection is released.
    fn linger(&mut self, id: ConnectionId, closed: Closed) {
        let now_ms = self.now.monotonic_ms;
        let Some(socket) = self.live_mut(id) else {
            return;
        };
        socket.phase = Phase::Lingering;
        socket.linger_until_ms = now_ms + LINGER_MS_MAX;
        socket.tail = Vec::new();
        socket.flags.retry = false;
        if socket.mark_dirty() {
            self.dirty.push(id);
        }
        self.closed.push((id, closed));
        self.put_timer(id, self.now.monotonic_ms + LINGER_MS);
    }

    /// Handles the end of the peer's side. Its earlier requests are still answered.
    pub(crate) fn end_by_peer(&mut self, id: ConnectionId) {
        let Some(socket) = self.socket_mut(id) else {
            return;
        };
        socket.flags.read_ended = true;
        let has_more_to_send = !socket.outbox.is_empty() || socket.flags.blocked;
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

    /// Releases the connection at once, and discards its queue.
    pub fn abort(&mut self, id: ConnectionId) {
        self.kill(id, Closed::ByUs);
    }

    /// Ends the shard's loop at the end of this turn.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Closes the listeners of the shard: it accepts nothing more, from this call on. What waits in the queue of a
    /// listener is reset by the kernel, unless another process or another shard has the same socket.
    pub fn stop_listening(&mut self) {
        self.listens_no_more = true;
    }

    /// Starts a connection. The handler is notified of its success or failure later.
    ///
    /// # Errors
    /// No socket or port is free, the source address does not belong to this machine, the target is known to be
    /// unreachable, or the shard is stopping or simulated.
    pub fn connect(&mut self, connect: Connect) -> io::Result<ConnectionId> {
        self.connect_with(connect, |tcp, config, name| {
            let client = rustls::ClientConnection::new(config, name).map_err(io::Error::other)?;
            Ok(Stream::Tls(Box::new(TlsStream::new(tcp, client.into()))))
        })
    }

    /// The same with TLS held back: the connection is ready as soon as TCP is, and transfers plaintext, such as a
    /// request to a proxy, until [`start_tls`](Self::start_tls). Without TLS it is [`connect`](Self::connect).
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub fn connect_before_tls(&mut self, connect: Connect) -> io::Result<ConnectionId> {
        self.connect_with(connect, |tcp, config, name| {
            let held = HeldStream::new(tcp, HeldSide::Client(config, name));
            Ok(Stream::Held(Box::new(held)))
        })
    }

    fn connect_with(
        &mut self,
        connect: Connect,
        under_tls: impl FnOnce(
            TcpStream,
            Arc<tls::ClientConfig>,
            ServerName<'static>,
        ) -> io::Result<Stream>,
    ) -> io::Result<ConnectionId> {
        self.check_running()?;
        let socket = match &connect.address {
            Address::Tcp(address) => tcp_socket(*address, connect.source, connect.usage)?,
            Address::Unix(path) => unix_socket(path)?,
        };
        let tcp = TcpStream::from_std(socket.into());
        let stream = match connect.tls {
            None => Stream::Plain(tcp),
            Some((config, name)) => under_tls(tcp, config, name)?,
        };
        self.add(stream, Phase::Connecting)
    }

    /// No connection begins while the shard is stopping, or simulated.
    fn check_running(&self) -> io::Result<()> {
        if self.stopping {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the shard is stopping",
            ));
        }
        #[cfg(feature = "simulation")]
        if self.is_simulated {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, stream: Stream, phase: Phase) -> io::Result<ConnectionId> {
        let entry = self.sockets.vacant_entry();
        let id = ConnectionId::new(entry.key(), self.next_generation);
        // The highest generation marks listeners.
        self.next_generation = (self.next_generation + 1) % u32::MAX;
        let socket = entry.insert(Socket::new(stream, id, phase));
        let token = Token(id.to_u64() as usize);
        if let Err(error) = socket.stream.register(&self.registry, token) {
            self.sockets.remove(id.index());
            return Err(error);
        }
        Ok(id)
    }

    /// The socket of this connection, if its slot was not reused.
    #[inline]
    pub(crate) fn socket(&self, id: ConnectionId) -> Option<&Socket> {
        self.sockets
            .get(id.index())
            .filter(|socket| socket.id == id)
    }

    pub(crate) fn socket_mut(&mut self, id: ConnectionId) -> Option<&mut Socket> {
        let socket = self.sockets.get_mut(id.index());
        socket.filter(|socket| socket.id == id)
    }

    /// The socket if the handler may still use it.
    #[inline]
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

    /// Records the number of bytes read, and changes the size of the receive buffer if needed.
    #[inline]
    pub(crate) fn account_received(&mut self, id: ConnectionId, bytes: usize) {
        if !self.receive_buffers.is_managed() {
            return;
        }
        let (connections, now_ms) = (self.sockets.len(), self.now.monotonic_ms);
        let Some(socket) = self.sockets.get_mut(id.index()) else {
            return;
        };
        let buffer = &mut socket.receive_buffer;
        let size = self
            .receive_buffers
            .account(buffer, bytes, connections, now_ms);
        if let Some(size) = size {
            socket.stream.set_receive_buffer(size);
        }
    }

    /// Ends a connection at once. A lingering one causes no notification, because its end was already reported.
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
        // Closing the descriptor does it on Linux; on other systems this keeps mio's own books.
        if cfg!(not(target_os = "linux")) {
            let _ = socket.stream.deregister(&self.registry);
        }
        self.ledger.change_own(socket.own_bytes, 0);
        self.receive_buffers.release(&socket.receive_buffer);
        socket.outbox.recycle(&mut self.spares);
    }

    /// Sets the time of this turn in place of a clock.
    #[cfg(feature = "simulation")]
    pub(crate) fn set_now(&mut self, now: Now) {
        self.is_simulated = true;
        self.now = now;
    }

    /// The first monotonic millisecond that is not before this instant.
    #[cfg(feature = "simulation")]
    pub(crate) fn monotonic_ms_of(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.started);
        since.as_nanos().div_ceil(1_000_000) as u64
    }

    pub(crate) fn read_clocks(&mut self) {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.turn_started = Instant::now();
        self.now = Now {
            monotonic_ms: (self.turn_started - self.started).as_millis() as u64,
            unix_ms: unix.as_millis() as u64,
            steady_unix_ms: steady_unix_ms(),
        };
    }
}

/// A socket that is being connected.
fn tcp_socket(
    address: SocketAddr,
    source: Option<IpAddr>,
    usage: Usage,
) -> io::Result<socket2::Socket> {
    let domain = Domain::for_address(address);
    let socket = nonblocking(domain, Some(Protocol::TCP))?;
    if usage != Usage::WritesOnce {
        socket.set_tcp_nodelay(true)?;
    }
    // The kernel sends no separate acknowledgement for data that is answered at once (tcp(7), TCP_QUICKACK).
    #[cfg(target_os = "linux")]
    if usage != Usage::Any {
        socket.set_tcp_quickack(false)?;
    }
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&address.into()) {
        Err(error) if !is_in_progress(&error) => Err(error),
        _ => Ok(socket),
    }
}

/// A non-blocking socket, created with one system call where possible.
fn nonblocking(domain: Domain, protocol: Option<Protocol>) -> io::Result<socket2::Socket> {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    return socket2::Socket::new(domain, Type::STREAM.nonblocking(), protocol);
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    {
        let socket = socket2::Socket::new(domain, Type::STREAM, protocol)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

/// The same for a Unix socket, which connects at once, or fails if the queue of its listener is full.
#[cfg(unix)]
fn unix_socket(path: &Path) -> io::Result<socket2::Socket> {
    let socket = nonblocking(Domain::UNIX, None)?;
    socket.connect(&socket2::SockAddr::unix(path)?)?;
    Ok(socket)
}

#[cfg(not(unix))]
fn unix_socket(_path: &Path) -> io::Result<socket2::Socket> {
    Err(io::ErrorKind::Unsupported.into())
}

fn is_in_progress(error: &io::Error) -> bool {
    #[cfg(unix)]
    if rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::INPROGRESS) {
        return true;
    }
    error.kind() == io::ErrorKind::WouldBlock
}

/// The time for which a closed connection waits until its peer reads the rest or ends, in milliseconds.
pub const LINGER_MS: u64 = 2_000;

/// The maximum time for which a closed connection sends its queue while its peer reads it, in milliseconds. It limits
/// the resources of a peer that reads slowly.
pub const LINGER_MS_MAX: u64 = 10_000;
