//! Shard: the event loop of one thread.

mod accepting;
#[cfg(feature = "simulation")]
mod driven;

use crate::alarm::{Alarm, SPIN};
use crate::closed::Closed;
use crate::config::ShardConfig;
use crate::handler::Handler;
use crate::heartbeat::{Heartbeat, LastBeat};
use crate::id::ConnectionId;
use crate::io::{Io, LINGER_MS};
use crate::mailbox::{Inbox, Mailbox, mailbox};
use crate::readiness::{ReadOutcome, Readiness};
use crate::socket::{NEVER, Phase};
use crate::timer::Entry;
use accepting::Listener;
use mio::event::Event;
use mio::{Events, Poll, Token};
use std::io;
use std::time::{Duration, Instant};

/// An event loop with its sockets. Create it anywhere, and [`run`](Self::run) it on its own thread.
#[derive(Debug)]
pub struct Shard<H: Handler> {
    handler: H,
    io: Io,
    poll: Poll,
    inbox: Inbox<H::Mail>,
    listeners: Vec<Listener>,
    read_buffer: Vec<u8>,
    ciphertext: Vec<u8>,
    due: Vec<Entry>,
    heartbeat: Heartbeat,
    /// Mail handled before the sockets are served again.
    mails_per_turn: usize,
    /// Mail was left for the next turn, and its wake-up has been accepted.
    mail_waits: bool,
    alarm: Alarm,
    #[cfg(feature = "simulation")]
    driven: driven::Driven,
}

impl<H: Handler> Shard<H> {
    /// A shard without listeners, and its mailbox.
    ///
    /// # Errors
    /// The operating system gave no event queue.
    pub fn new(config: &ShardConfig, handler: H) -> io::Result<(Self, Mailbox<H::Mail>)> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKER)?;
        let (mailbox, inbox) = mailbox(waker, config.mailbox_capacity);
        let io = Io::new(poll.registry().try_clone()?, config);
        let heartbeat = Heartbeat::new(io.instant_at(0), mailbox.waker());
        let shard = Self {
            handler,
            io,
            poll,
            inbox,
            listeners: Vec::new(),
            read_buffer: vec![0; config.read_buffer_bytes.max(READ_BUFFER_BYTES_MIN)],
            ciphertext: Vec::new(),
            due: Vec::new(),
            heartbeat,
            mails_per_turn: config.mailbox_capacity.max(1),
            mail_waits: false,
            alarm: Alarm::default(),
            #[cfg(feature = "simulation")]
            driven: driven::Driven::default(),
        };
        Ok((shard, mailbox))
    }

    /// The handler, before the shard runs.
    pub fn handler_mut(&mut self) -> &mut H {
        &mut self.handler
    }

    /// The heartbeat, by which other threads see whether the loop is running.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.clone()
    }

    /// Runs until [`Io::stop`]. Then it closes the remaining connections, and returns the handler.
    ///
    /// # Errors
    /// The event queue failed; no peer can cause this.
    pub fn run(mut self) -> io::Result<H> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let _last_beat = LastBeat(self.heartbeat());
        while !self.io.stopping {
            let timeout = self.timeout();
            self.heartbeat.end_turn();
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.io.read_clocks();
            self.heartbeat.begin_turn(self.io.now().monotonic_ms);
            self.read_ready();
            for event in &events {
                self.handle_event(event);
            }
            self.turn();
        }
        self.heartbeat.end_turn();
        self.close_all(&mut events)?;
        Ok(self.handler)
    }

    /// Reads the sockets that, in the turn before, had more than one read returned or were allowed to be read
    /// again.
    fn read_ready(&mut self) {
        for _ in 0..self.io.ready.len() {
            let Some(id) = self.io.ready.pop_front() else {
                break;
            };
            if let Some(socket) = self.io.socket_mut(id) {
                socket.flags.queued = false;
                self.read(id);
            }
        }
    }

    /// The work of a turn besides the kernel's events.
    fn turn(&mut self) {
        if self.io.listens_no_more {
            self.close_listeners();
        }
        for index in 0..self.listeners.len() {
            self.accept(index);
        }
        #[cfg(feature = "simulation")]
        self.accept_simulated();
        self.run_timers();
        self.open_mail();
        let mut room = WRITTEN_BYTES_PER_TURN;
        self.settle(&mut room);
        self.handler.handle_turn(&mut self.io);
        self.settle(&mut room);
        self.handler.handle_turn_end(&self.io);
    }

    /// Handles the mail that is there, but not what senders put into the room that this makes, lest
    /// they keep the shard from its sockets.
    fn open_mail(&mut self) {
        self.inbox.accept_wake();
        for _ in 0..self.mails_per_turn {
            let Some(mail) = self.inbox.next() else {
                self.mail_waits = false;
                return;
            };
            self.handler.handle_mail(&mut self.io, mail);
        }
        self.mail_waits = true;
    }

    /// The maximum wait for events of the kernel.
    fn timeout(&mut self) -> Option<Duration> {
        if self.has_work_left() {
            return Some(Duration::ZERO);
        }
        let now_ms = self.io.now().monotonic_ms;
        let timer = self
            .next_timer_ms()
            .map(|next_ms| Duration::from_millis(next_ms.saturating_sub(now_ms)));
        let Some(deadline) = self.handler.poll_deadline() else {
            return timer;
        };
        let wait = deadline.saturating_duration_since(Instant::now());
        if wait <= SPIN {
            return Some(Duration::ZERO);
        }
        let registry = self.poll.registry();
        if self.alarm.set(deadline, wait, registry, ALARM) {
            return timer;
        }
        // The kernel waits whole milliseconds, rounded up; a pacer wants to be on time.
        let wait = wait.saturating_sub(Duration::from_millis(1));
        Some(timer.map_or(wait, |timer| timer.min(wait)))
    }

    /// The last turn has left something that nothing will be reported of.
    fn has_work_left(&self) -> bool {
        !self.io.ready.is_empty() || !self.io.dirty.is_empty() || self.mail_waits
    }

    /// The time of the next timer of the shard, if there is one.
    fn next_timer_ms(&self) -> Option<u64> {
        let timers = self.io.timers.next_ms();
        timers.into_iter().chain(self.next_accept_ms()).min()
    }

    fn handle_event(&mut self, event: &Event) {
        let token = event.token();
        if token == WAKER || token == ALARM {
            return;
        }
        let number = token.0 as u64;
        if number >= LISTENER_BASE {
            if let Some(listener) = self.listeners.get_mut((number - LISTENER_BASE) as usize) {
                listener.pending = true;
            }
            return;
        }
        let readiness = Readiness {
            readable: event.is_readable(),
            writable: event.is_writable(),
            ending: event.is_read_closed() || event.is_error(),
        };
        self.handle_readiness(ConnectionId::from_u64(number), readiness);
    }

    fn handle_readiness(&mut self, id: ConnectionId, readiness: Readiness) {
        let Some(socket) = self.io.socket_mut(id) else {
            return;
        };
        socket.flags.ending |= readiness.ending;
        if socket.phase == Phase::Connecting {
            let is_there = cfg!(target_os = "linux") && readiness.writable && !readiness.ending;
            self.establish(id, is_there);
        } else if readiness.writable && socket.flags.blocked {
            self.io.write_later(id);
        }
        if readiness.readable || readiness.ending {
            self.read(id);
        }
        if !self.io.closed.is_empty() {
            self.notify_closed();
        }
    }

    /// A started connection progresses: TCP first, then TLS. `is_there` means that the kernel reported the
    /// socket as writable, and nothing else: the connection exists. Else the kernel is asked.
    fn establish(&mut self, id: ConnectionId, is_there: bool) {
        let Some(socket) = self.io.live_mut(id) else {
            return;
        };
        let result = match socket.stream.take_error_unless(is_there) {
            Ok(None) if is_there => socket.stream.flush(),
            Ok(None) => match socket.stream.peer_addr() {
                Ok(_) => socket.stream.flush(),
                // A Unix socket has no TCP address.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => socket.stream.flush(),
                Err(error) => Err(error),
            },
            Ok(Some(error)) | Err(error) => Err(error),
        };
        match result {
            Ok(()) if !socket.stream.is_handshaking() => {
                socket.phase = Phase::Open;
                self.call_current(id, |handler, io| handler.handle_connect(io, id));
            }
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(error) => self.io.kill(id, Closed::NotConnected(error)),
        }
    }

    /// Reads once from a socket, and passes the bytes to the handler.
    fn read(&mut self, id: ConnectionId) {
        let Some(socket) = self.io.socket_mut(id) else {
            return;
        };
        if socket.phase == Phase::Dead {
            return;
        }
        if socket.phase == Phase::Open && (socket.flags.paused || !self.handler.may_read(id)) {
            socket.flags.paused = true;
            socket.flags.readable = true;
            return;
        }
        let kept = socket.tail.len();
        if std::mem::take(&mut socket.flags.retry) {
            if socket.flags.readable {
                self.io.read_later(id);
            }
            self.hand_over(id, kept, 0);
            return self.notify_closed();
        }
        socket.flags.readable = false;
        let was_ending = socket.flags.ending;
        let result = socket
            .stream
            .read(&mut self.read_buffer[kept..], &mut self.ciphertext);
        let phase = socket.phase;
        if phase != Phase::Connecting && socket.stream.is_tls() && result.is_ok() {
            self.io.write_after_tls_read(id);
        }
        match result {
            Ok(ReadOutcome::Data { bytes, more }) => {
                self.io.account_received(id, bytes);
                if more || was_ending {
                    // Nothing will report it again, and the turn for it may go to what the handler leaves unused.
                    if let Some(socket) = self.io.socket_mut(id) {
                        socket.flags.readable = true;
                    }
                    self.io.read_later(id);
                }
                self.take_data(id, kept, bytes);
            }
            Ok(ReadOutcome::WouldBlock) => {
                if phase == Phase::Connecting {
                    self.establish(id, false);
                }
            }
            Ok(ReadOutcome::End) => self.io.end_by_peer(id),
            Err(error) => {
                let closed = match error.downcast::<rustls::Error>() {
                    Ok(error) => Closed::Tls(error),
                    Err(error) if phase == Phase::Connecting => Closed::NotConnected(error),
                    Err(error) => Closed::Failed(error),
                };
                self.io.kill(id, closed);
            }
        }
        self.notify_closed();
    }

    fn take_data(&mut self, id: ConnectionId, kept: usize, received: usize) {
        let was_connecting = self
            .io
            .live(id)
            .is_some_and(|socket| socket.phase == Phase::Connecting);
        if was_connecting {
            self.establish(id, false);
        }
        if received == 0 {
            return;
        }
        if was_connecting
            && let Some(socket) = self.io.live_mut(id)
            && (socket.flags.paused || !self.handler.may_read(id))
        {
            // The bytes arrived with the end of the TLS handshake, which had to be read.
            socket.flags.paused = true;
            socket.tail.extend_from_slice(&self.read_buffer[..received]);
            return;
        }
        self.hand_over(id, kept, received);
    }

    /// Gives the handler the kept bytes of the connection and, behind them, those in the read buffer.
    fn hand_over(&mut self, id: ConnectionId, kept: usize, received: usize) {
        let Some(socket) = self.io.socket_mut(id) else {
            return;
        };
        if socket.phase != Phase::Open {
            return;
        }
        self.read_buffer[..kept].copy_from_slice(&socket.tail);
        let end = kept + received;
        self.io.current = Some(id);
        let used = self
            .handler
            .handle_data(&mut self.io, id, &mut self.read_buffer[..end]);
        self.io.write_cork(id);
        self.io.current = None;
        if let Some(socket) = self.io.live_mut(id) {
            socket.tail.clear();
            let rest = &self.read_buffer[used.min(end)..end];
            if rest.len() >= self.read_buffer.len() / 2 && !socket.flags.paused {
                tracing::error!("a handler leaves its data unused; the connection ends");
                self.io.abort(id);
            } else if rest.is_empty() {
                socket.tail = Vec::new();
            } else {
                socket.tail.extend_from_slice(rest);
            }
        }
    }

    /// Calls the handler for a connection, and writes its output.
    fn call_current(&mut self, id: ConnectionId, call: impl FnOnce(&mut H, &mut Io)) {
        self.io.current = Some(id);
        call(&mut self.handler, &mut self.io);
        self.io.write_cork(id);
        self.io.current = None;
    }

    fn run_timers(&mut self) {
        let now_ms = self.io.now().monotonic_ms;
        let mut due = std::mem::take(&mut self.due);
        self.io.timers.take_due(now_ms, &mut due);
        for entry in due.drain(..) {
            let id = ConnectionId::new(entry.index as usize, entry.generation);
            let Some(socket) = self.io.socket_mut(id) else {
                continue;
            };
            if socket.timer.queued_ms == entry.due_ms {
                socket.timer.queued_ms = NEVER;
            }
            let due_ms = socket.timer.due_ms;
            if due_ms == NEVER {
                continue;
            }
            if due_ms > now_ms {
                self.io.put_timer(id, due_ms);
                continue;
            }
            socket.timer.due_ms = NEVER;
            if socket.phase == Phase::Lingering {
                self.io.kill(id, Closed::ByUs);
            } else {
                self.call_current(id, |handler, io| handler.handle_timer(io, id));
            }
            self.notify_closed();
        }
        self.due = due;
    }

    /// Writes the bytes that were queued for connections other than the current one, or that waited for their
    /// socket, and reports the results, until nothing new is queued or about `room` bytes are written. The
    /// rest waits for the next turn, so that the sockets are read in between.
    fn settle(&mut self, room: &mut usize) {
        for _ in 0..SETTLE_ROUNDS {
            let mut dirty = std::mem::take(&mut self.io.dirty);
            let mut written = 0;
            while *room > 0
                && let Some(id) = dirty.get(written)
            {
                *room = room.saturating_sub(self.io.write_dirty(*id));
                written += 1;
            }
            dirty.drain(..written);
            dirty.append(&mut self.io.dirty);
            self.io.dirty = dirty;
            self.notify_drained();
            self.notify_closed();
            if self.io.dirty.is_empty() || *room == 0 {
                return;
            }
        }
    }

    fn notify_drained(&mut self) {
        while let Some(id) = self.io.drained.pop() {
            if self.io.live(id).is_some() {
                self.call_current(id, |handler, io| handler.handle_drained(io, id));
            }
        }
    }

    fn notify_closed(&mut self) {
        while let Some((id, closed)) = self.io.closed.pop() {
            self.handler.handle_close(&mut self.io, id, closed);
            let socket = self.io.socket(id);
            if socket.is_some_and(|socket| socket.phase == Phase::Dead) {
                self.io.remove(id);
            }
        }
    }

    fn close_connections(&mut self) {
        let ids: Vec<ConnectionId> = self
            .io
            .sockets
            .iter()
            .map(|(_, socket)| socket.id)
            .collect();
        for id in ids {
            self.io.close(id);
        }
        self.settle(&mut { usize::MAX });
    }

    /// Closes every connection, and sends their queues for as long as a closed connection lingers.
    fn close_all(&mut self, events: &mut Events) -> io::Result<()> {
        self.close_connections();
        let deadline = Instant::now() + Duration::from_millis(LINGER_MS);
        while !self.io.sockets.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.poll.poll(events, Some(left)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.io.read_clocks();
            self.read_ready();
            for event in &*events {
                self.handle_event(event);
            }
            self.run_timers();
            self.settle(&mut { usize::MAX });
        }
        Ok(())
    }
}

/// The waker's token; no connection and no listener has it.
const WAKER: Token = Token(usize::MAX);

/// The token of the alarm; no listener gets that far.
const ALARM: Token = Token(usize::MAX - 1);

/// Tokens of listeners start here: the generation that no connection gets.
const LISTENER_BASE: u64 = (u32::MAX as u64) << 32;

/// With less, half of it could not hold a TLS record and the bytes that arrive with it.
const READ_BUFFER_BYTES_MIN: usize = 64 * 1024;

/// Reports read from the kernel at a time.
const EVENTS_PER_TURN: usize = 1024;

/// Bytes written at the end of a turn before the rest waits for the next turn. The kernel needed some 10 ms
/// to copy four times as many into memory that is not in a cache.
const WRITTEN_BYTES_PER_TURN: usize = 2 * 1024 * 1024;

/// Rounds of writing at the end of a turn before the rest waits for the next turn.
const SETTLE_ROUNDS: usize = 8;
