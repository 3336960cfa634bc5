//! One shard of the server: the connections of one event loop.

use crate::application::{
    Application, CloseReason, ConnectionKey, Context, Encoding, Message, Outgoing,
};
use crate::config::Protocol;
use crate::connection::{Connection, Pauses, Phase, Refusals, State};
use crate::counters::Counters;
use crate::rate::TokenBucket;
use crate::server::Shared;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidewire_net::{Closed, ConnectionId, Handler, Io, ListenerId};
use tidewire_wire::close::CloseCode;
use tidewire_wire::format::{Format, Inflater};
use tidewire_wire::frame::{self, OpCode, Role};
use tidewire_wire::handshake::server::write_rejection;
use tidewire_wire::message::{Event, Input, MessageReader};
use tidewire_wire::session::{Now, Reply, ServerSession, TimeoutAction};
use tidewire_wire::uuid::{Uuid, uuid_v7};

/// What other threads ask of a shard.
#[derive(Debug)]
pub(crate) enum Mail {
    Send(ConnectionId, Outgoing),
    Close(ConnectionId, CloseCode, &'static str),
    /// Close every session with 4300 and turn newcomers away.
    Drain,
    Stop,
    /// Ask the application again whether it is ready.
    Wake,
}

pub(crate) struct EngineShard<A> {
    pub(crate) core: Core,
    pub(crate) app: A,
    pub(crate) connections: Vec<Option<Connection>>,
    opening: usize,
    /// Connections whose reading waits for the application.
    waiting: Vec<ConnectionId>,
}

/// What a shard has besides its application and its connections.
pub(crate) struct Core {
    pub(crate) index: u32,
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) rng: StdRng,
    pub(crate) inflater: Inflater,
    pub(crate) inflated: Vec<u8>,
    pub(crate) draining: bool,
}

impl<A: Application> EngineShard<A> {
    pub(crate) fn new(core: Core, app: A) -> Self {
        Self {
            core,
            app,
            connections: Vec::new(),
            opening: 0,
            waiting: Vec::new(),
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(id.index())?.as_mut()?;
        (connection.state.key.id == id).then_some(connection)
    }

    /// The opening handshake is over, well or not.
    pub(crate) fn leave_opening(&mut self) {
        self.opening -= 1;
        self.core
            .counters
            .handshakes_in_progress
            .set(self.opening as u64);
    }

    /// Reads the messages in `data`.
    fn receive(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        let Some(Some(Connection { reader, state })) = self.connections.get_mut(id.index()) else {
            return data.len();
        };
        let now = wire_now(io);
        state.session.handle_heard(now.monotonic_ms);
        let mut turn = Turn {
            io,
            app: &mut self.app,
            core: &mut self.core,
            now,
            tally: Tally::default(),
        };
        let mut input = Input::new(data);
        while state.phase != Phase::Over {
            match reader.read(&mut input) {
                Ok(Some(event)) => turn.handle_event(state, event),
                Ok(None) => break,
                Err(error) => {
                    turn.core.counters.protocol_errors.add(1);
                    if error == frame::ProtocolError::MessageTooLarge {
                        turn.tally.received += 1;
                        turn.core.counters.messages_refused_size.add(1);
                    }
                    turn.end(state, error.close_code(), &error.to_string());
                }
            }
            if let Some((code, reason)) = state.close.take() {
                turn.start_close(state, code, reason);
            }
        }
        turn.tally.count(&turn.core.counters);
        let outbox_bytes = turn.io.queued_bytes(id);
        if outbox_bytes > turn.core.shared.config.limits.outbox_pause_bytes {
            state.pauses.outbox = true;
            state.pauses.outbox_bytes_seen = outbox_bytes;
            turn.io.pause_reading(id);
            turn.core.counters.reading_pauses.add(1);
        }
        if state.phase == Phase::Over {
            data.len()
        } else {
            input.consumed()
        }
    }

    /// Calls `act` for a connection outside of its messages.
    pub(crate) fn with_turn(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        act: impl FnOnce(&mut Turn<'_, A>, &mut State),
    ) {
        let Some(Some(connection)) = self.connections.get_mut(id.index()) else {
            return;
        };
        if connection.state.key.id != id {
            return;
        }
        let now = wire_now(io);
        let mut turn = Turn {
            io,
            app: &mut self.app,
            core: &mut self.core,
            now,
            tally: Tally::default(),
        };
        act(&mut turn, &mut connection.state);
    }

    fn drain(&mut self, io: &mut Io) {
        self.core.draining = true;
        for index in 0..self.connections.len() {
            let Some(connection) = &self.connections[index] else {
                continue;
            };
            let id = connection.state.key.id;
            if connection.state.phase == Phase::Open {
                self.core.counters.drained_connections.add(1);
                self.with_turn(io, id, |turn, state| {
                    turn.start_close(state, CloseCode::DRAINING, "the server is draining");
                });
            }
        }
    }

    /// Lets the connections read again that waited for the application.
    fn resume_waiting(&mut self, io: &mut Io) {
        for id in std::mem::take(&mut self.waiting) {
            let Some(connection) = self.connection(id) else {
                continue;
            };
            connection.state.pauses.application = false;
            if !connection.state.pauses.outbox {
                io.resume_reading(id);
            }
        }
    }
}

impl<A: Application> Handler for EngineShard<A> {
    type Mail = Mail;

    fn handle_accept(&mut self, io: &mut Io, id: ConnectionId, _listener: ListenerId) {
        let limits = &self.core.shared.config.limits;
        let now = wire_now(io);
        let state = State {
            key: ConnectionKey {
                shard: self.core.index,
                id,
            },
            phase: Phase::Opening,
            session: ServerSession::new(Format::Json, false, now),
            bucket: TokenBucket::new(&self.core.shared.rate_limit, now.monotonic_ms),
            pauses: Pauses::default(),
            refusals: Refusals::default(),
            close: None,
            ended: None,
        };
        let reader = MessageReader::new(Role::Server, limits.message_bytes_max);
        io.set_timer(id, now.monotonic_ms + limits.handshake_timeout_ms);
        if self.connections.len() <= id.index() {
            self.connections.resize_with(id.index() + 1, || None);
        }
        self.connections[id.index()] = Some(Connection { reader, state });
        self.opening += 1;
        self.core.counters.connections_accepted.add(1);
        self.core
            .counters
            .handshakes_in_progress
            .set(self.opening as u64);
    }

    #[inline]
    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        match self.connections.get(id.index()) {
            Some(Some(connection)) if connection.state.phase == Phase::Opening => {}
            _ => return self.receive(io, id, data),
        }
        let head_bytes = self.open(io, id, data);
        let is_open = self
            .connection(id)
            .is_some_and(|connection| connection.state.phase == Phase::Open);
        if is_open && head_bytes < data.len() {
            return head_bytes + self.receive(io, id, &mut data[head_bytes..]);
        }
        head_bytes
    }

    fn handle_close(&mut self, _io: &mut Io, id: ConnectionId, closed: Closed) {
        let Some(connection) = self.connections.get_mut(id.index()).and_then(Option::take) else {
            return;
        };
        let counters = &self.core.counters;
        match closed {
            Closed::OutboxOverflow => counters.outbox_overflows.add(1),
            Closed::Tls(_) => counters.tls_failures.add(1),
            _ => {}
        }
        if !connection.is_session() {
            if connection.state.ended.is_none() {
                counters.handshakes_failed.add(1);
            }
            return self.leave_opening();
        }
        match connection.state.ended {
            Some(CloseReason::ByUs(_)) => counters.sessions_closed_by_us.add(1),
            Some(CloseReason::ByPeer(_)) => counters.sessions_closed_by_peer.add(1),
            Some(CloseReason::Lost) | None => counters.sessions_lost.add(1),
        }
        counters.connections_open.sub(1);
        self.core.shared.sessions.fetch_sub(1, Ordering::AcqRel);
        let reason = connection.state.ended.unwrap_or(CloseReason::Lost);
        self.app.on_close(connection.state.key, reason);
    }

    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        self.with_turn(io, id, |turn, state| turn.handle_timer(state));
    }

    fn handle_drained(&mut self, io: &mut Io, id: ConnectionId) {
        let now_ms = io.now().monotonic_ms;
        let Some(connection) = self.connection(id) else {
            return;
        };
        // A peer that takes what waited for it is alive, though it could not be read.
        connection.state.session.handle_heard(now_ms);
        connection.state.pauses.outbox_bytes_seen = 0;
        if connection.state.pauses.outbox {
            connection.state.pauses.outbox = false;
            if !connection.state.pauses.application {
                io.resume_reading(id);
            }
        }
    }

    fn handle_mail(&mut self, io: &mut Io, mail: Mail) {
        match mail {
            Mail::Send(id, outgoing) => {
                self.with_turn(io, id, |turn, state| turn.send(state, &outgoing));
            }
            Mail::Close(id, code, reason) => {
                self.with_turn(io, id, |turn, state| turn.start_close(state, code, reason));
            }
            Mail::Drain => self.drain(io),
            Mail::Stop => io.stop(),
            Mail::Wake => {}
        }
    }

    fn handle_turn(&mut self, io: &mut Io) {
        self.app.on_turn();
        if !self.waiting.is_empty() && self.app.is_ready() {
            self.resume_waiting(io);
        }
    }

    #[inline]
    fn may_read(&mut self, id: ConnectionId) -> bool {
        if self.app.is_ready() {
            return true;
        }
        if let Some(connection) = self.connection(id) {
            // The opening handshake does not reach the application.
            if connection.state.phase == Phase::Opening {
                return true;
            }
            connection.state.pauses.application = true;
            self.waiting.push(id);
            self.core.counters.queue_full_pauses.add(1);
        }
        false
    }

    fn may_accept(&self) -> bool {
        self.opening < self.core.shared.handshakes_per_shard_max
    }
}

/// One call for one connection, with all that it needs at hand.
pub(crate) struct Turn<'a, A> {
    pub(crate) io: &'a mut Io,
    pub(crate) app: &'a mut A,
    pub(crate) core: &'a mut Core,
    pub(crate) now: Now,
    pub(crate) tally: Tally,
}

/// Counts of one call, added to the shard's counters at its end.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) delivered: u64,
}

impl Tally {
    fn count(&self, counters: &Counters) {
        counters.messages_received.add(self.received);
        counters.bytes_received.add(self.received_bytes);
        counters.messages_delivered.add(self.delivered);
    }
}

impl<A: Application> Turn<'_, A> {
    #[inline]
    fn handle_event(&mut self, state: &mut State, event: Event<'_>) {
        let (encoding, bytes) = match event {
            Event::Text(text) => (Encoding::Text, text.as_bytes()),
            Event::Binary(bytes) => (Encoding::Binary, bytes),
            control => return self.handle_control(state, &control),
        };
        self.tally.received += 1;
        self.tally.received_bytes += bytes.len() as u64;
        if !self.admit(state) {
            return;
        }
        match self.core.shared.config.protocol {
            Protocol::Raw => self.deliver(state, Message { encoding, bytes }),
            Protocol::V1 => self.handle_v1(state, encoding, bytes),
        }
    }

    fn handle_control(&mut self, state: &mut State, event: &Event<'_>) {
        let id = state.key.id;
        match event {
            Event::Ping(payload) => {
                self.core.counters.pings_received.add(1);
                if state.phase == Phase::Open
                    && let Some(buffer) = self.io.buffer(id)
                {
                    frame::write_frame(buffer, OpCode::Pong, payload, None);
                }
            }
            Event::Pong(_) => self.core.counters.pongs_received.add(1),
            Event::Close(code, _) => {
                let reason = match state.phase {
                    Phase::Closing(ours) => CloseReason::ByUs(ours),
                    _ => {
                        if let Some(buffer) = self.io.buffer(id) {
                            frame::write_close(buffer, *code, "", None);
                        }
                        CloseReason::ByPeer(*code)
                    }
                };
                self.finish(state, reason);
            }
            Event::Text(_) | Event::Binary(_) => {}
        }
    }

    /// Hands a message to the application.
    #[inline]
    pub(crate) fn deliver(&mut self, state: &mut State, message: Message<'_>) {
        self.tally.delivered += 1;
        let mut context = Context {
            io: self.io,
            counters: &self.core.counters,
            state,
        };
        self.app.on_message(&mut context, message);
    }

    /// Sends a close and waits for the answer; messages are still taken until it comes.
    pub(crate) fn start_close(&mut self, state: &mut State, code: CloseCode, reason: &str) {
        if state.phase != Phase::Open {
            return;
        }
        state.phase = Phase::Closing(code);
        let id = state.key.id;
        if let Some(buffer) = self.io.buffer(id) {
            frame::write_close(buffer, Some(code), reason, None);
        }
        // The answer must get through to end the session in time.
        self.io.resume_reading(id);
        self.await_close(id);
    }

    /// Gives the peer time to answer a close.
    fn await_close(&mut self, id: ConnectionId) {
        let timeout_ms = self.core.shared.config.limits.close_timeout_ms;
        self.io.set_timer(id, self.now.monotonic_ms + timeout_ms);
    }

    /// Sends a close after which nothing that comes can matter.
    pub(crate) fn end(&mut self, state: &mut State, code: CloseCode, reason: &str) {
        if !matches!(state.phase, Phase::Closing(_))
            && let Some(buffer) = self.io.buffer(state.key.id)
        {
            frame::write_close(buffer, Some(code), reason, None);
        }
        self.finish(state, CloseReason::ByUs(code));
    }

    fn finish(&mut self, state: &mut State, reason: CloseReason) {
        state.phase = Phase::Over;
        state.ended = Some(reason);
        self.io.close(state.key.id);
    }

    fn handle_timer(&mut self, state: &mut State) {
        let id = state.key.id;
        match state.phase {
            Phase::Opening => {
                self.core.counters.handshake_timeouts.add(1);
                if let Some(buffer) = self.io.buffer(id) {
                    write_rejection(408, &[], "the request took too long\n", buffer);
                }
                self.io.close(id);
            }
            // Not the peer's silence: its answer may wait behind messages that are not being read.
            Phase::Closing(_) if state.pauses.application => self.await_close(id),
            Phase::Closing(code) => {
                state.ended = Some(CloseReason::ByUs(code));
                self.io.abort(id);
            }
            Phase::Open => {
                self.tell_refusals(state);
                self.check_idle(state);
            }
            Phase::Over => {}
        }
    }

    /// Pings a silent peer, and ends its session if it stays silent.
    fn check_idle(&mut self, state: &mut State) {
        let outbox_bytes = self.io.queued_bytes(state.key.id);
        let takes_some = outbox_bytes < state.pauses.outbox_bytes_seen;
        state.pauses.outbox_bytes_seen = outbox_bytes;
        if state.pauses.application || takes_some {
            // Not the peer's silence: it is not being read, or has yet to come to our ping.
            state.session.handle_heard(self.now.monotonic_ms);
        }
        let profile = &self.core.shared.profile;
        match state.session.handle_timeout(profile, self.now) {
            TimeoutAction::CloseIdle => {
                self.core.counters.idle_timeouts.add(1);
                self.end(
                    state,
                    CloseCode::IDLE_TIMEOUT,
                    "nothing was heard for too long",
                );
                return;
            }
            TimeoutAction::SendPing if self.core.shared.config.protocol == Protocol::Raw => {
                if let Some(buffer) = self.io.buffer(state.key.id) {
                    frame::write_frame(buffer, OpCode::Ping, b"", None);
                }
            }
            TimeoutAction::SendPing => self.reply(state, &Reply::Ping),
            TimeoutAction::None => {}
        }
        let deadline_ms = state.session.poll_deadline_ms(&self.core.shared.profile);
        self.io.set_timer(state.key.id, deadline_ms);
    }

    fn send(&mut self, state: &mut State, outgoing: &Outgoing) {
        if state.phase != Phase::Open {
            return;
        }
        let (opcode, payload) = match outgoing {
            Outgoing::Text(text) => (OpCode::Text, text.as_bytes()),
            Outgoing::Binary(bytes) => (OpCode::Binary, &bytes[..]),
        };
        if let Some(buffer) = self.io.buffer(state.key.id) {
            frame::write_frame(buffer, opcode, payload, None);
            self.core.counters.messages_sent.add(1);
            self.core.counters.bytes_sent.add(payload.len() as u64);
        }
    }
}

impl Core {
    /// A new message or connection id.
    pub(crate) fn new_id(&mut self, unix_ms: u64) -> Uuid {
        uuid_v7(unix_ms, rand::Rng::random(&mut self.rng))
    }
}

fn wire_now(io: &Io) -> Now {
    let now = io.now();
    Now {
        monotonic_ms: now.monotonic_ms,
        unix_ms: now.unix_ms,
    }
}
