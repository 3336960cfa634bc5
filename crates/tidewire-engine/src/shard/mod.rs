//! One shard of the server: the connections of one event loop.

mod adopting;
mod backend_answers;
mod broker_answers;
mod call_ends;
mod connect_request;
pub(crate) mod containment;
mod delivery_budget;
pub(crate) mod drain;
mod fan_out;
mod filtering;
mod forwarding;
mod handshake;
mod handshake_span;
pub(crate) mod mailbox;
mod pending_handshakes;
pub(crate) mod recovery;
mod refusal;
mod session_changes;
mod turn;
mod unfinished;
pub(crate) mod view;
mod waiting_jobs;

use crate::clock::wire_now;
use crate::config::backend::BackendEvent;
use crate::limits::lines::LineKind;
use crate::limits::owner::OwnerId;
use crate::limits::pace::DrainProgress;
use crate::limits::pending_handshakes::{PendingHandshakes, PendingLimits};
use crate::limits::rate::TokenBucket;
use crate::limits::undecided::Undecided;
use crate::limits::unfinished::UNCHARGED_BYTES;
use crate::model::{CloseReason, ConnectionKey};
use crate::session::Session;
use crate::session::application::{Application, Marked};
use crate::session::inbound::{Inbound, Tally};
use crate::shard::mailbox::Mail;
use crate::shard::session_changes::Changes;
use crate::shard::view::View;
use crate::state::adoption::Forwarded;
use crate::state::connection::{
    ClientIdentity, Connection, ConnectionLimits, ConnectionState, Ending, OpenWork, Pauses, Phase,
};
use crate::state::core::Core;
use crate::state::unfinished_jobs::{JobProgress, Jobs};
use crate::topics::access::Access;
use crate::topics::local::Slot;
use crate::topics::member::MEMBER_INDEX_MAX;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tidewire_net::{Closed, ConnectionId, Handler, Io, ListenerId};
use tidewire_wire::format::Format;
use tidewire_wire::frame::{ProtocolError, Role};
use tidewire_wire::message::{Input, MessageReader};
use tidewire_wire::session::ServerSession;

/// A smaller table of connections keeps its memory.
const PLACES_MIN: usize = 1024;

pub(crate) struct EngineShard<A> {
    pub(crate) core: Core,
    pub(crate) app: Marked<A>,
    pub(crate) connections: Vec<Option<Connection>>,
    pub(crate) pending: PendingHandshakes,
    pub(crate) undecided: Undecided,
    /// Connections whose reading waits for the application.
    pub(crate) waiting: Vec<ConnectionId>,
    /// Connections that have had enough of this turn.
    yielding: Vec<ConnectionId>,
    /// Connections whose jobs go on in the next turn.
    pub(crate) working: Vec<ConnectionId>,
    /// Some of those need not wait for the clock.
    pub(crate) has_work: bool,
    /// Connections that have published more than the shards deliver.
    pub(crate) backlogged: Vec<ConnectionId>,
    /// For the topics of one publication; empty in between.
    pub(crate) slots: Vec<Slot>,
    /// When the hub is looked through next.
    sweep_ms: u64,
    /// The time of the last turn.
    turned: Option<Instant>,
    /// The sessions still to be closed, while the server drains.
    pub(crate) drain: Option<DrainProgress>,
    /// What other threads have asked of sessions.
    pub(crate) changes: Changes,
    /// The application has panicked in a call for no connection in particular.
    pub(crate) has_failed: bool,
    /// The server has stopped; this is the last turn but one.
    is_stopping: bool,
}

impl<A: Application> EngineShard<A> {
    pub(crate) fn new(core: Core, app: A) -> Self {
        let config = &core.setup.config;
        let limits = PendingLimits::of_shard(&config.limits, config.shards);
        Self {
            core,
            app: Marked::new(app),
            connections: Vec::new(),
            pending: PendingHandshakes::new(limits),
            undecided: Undecided::new(limits),
            waiting: Vec::new(),
            yielding: Vec::new(),
            working: Vec::new(),
            has_work: false,
            backlogged: Vec::new(),
            slots: Vec::new(),
            sweep_ms: SWEEP_INTERVAL_MS,
            turned: None,
            drain: None,
            changes: Changes::default(),
            has_failed: false,
            is_stopping: false,
        }
    }

    /// Removes the empty places behind the last connection, and gives their memory back when most of it is not used. Nothing
    /// that counts through the places may run meanwhile.
    fn drop_empty_places(&mut self) {
        while self.connections.pop_if(|place| place.is_none()).is_some() {}
        let (len, capacity) = (self.connections.len(), self.connections.capacity());
        if capacity > PLACES_MIN && len < capacity / 4 {
            self.connections.shrink_to(2 * len);
        }
    }

    pub(crate) fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(id.index())?.as_mut()?;
        (connection.state.key.id == id).then_some(connection)
    }

    /// Receives the messages in `data`.
    fn receive(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        let Some(Some(Connection { reader, state })) = self.connections.get_mut(id.index()) else {
            return data.len();
        };
        state.session.handle_heard(wire_now(io).monotonic_ms);
        let mut inbound = Inbound {
            session: Session {
                io,
                core: &mut self.core,
                state,
            },
            app: &mut self.app,
            tally: Tally::default(),
        };
        let mut input = Input::new(data);
        let mut progress = JobProgress::Done;
        inbound.session.core.turn.meter.start();
        while inbound.session.state.phase() != Phase::Over {
            match reader.read(&mut input) {
                Ok(Some(event)) => inbound.receive(event),
                Ok(None) => break,
                Err(error) => {
                    inbound.tally.received += u64::from(error == ProtocolError::MessageTooLarge);
                    inbound.session.end_for(error, true);
                }
            }
            inbound.session.close_if_asked();
            if !inbound.session.state.work.jobs.is_empty() {
                progress = inbound.work();
                if progress != JobProgress::Done {
                    break;
                }
            }
            let Session { io, core, state } = &mut inbound.session;
            if state.awaits_broker() {
                progress = JobProgress::Broker;
                break;
            }
            if core.turn.meter.is_spent() || core.turn.published.is_spent() {
                state.limits.pauses.turn = true;
                io.pause_reading(id);
                self.yielding.push(id);
                break;
            }
            if std::mem::take(&mut core.turn.backlog_is_full) {
                state.limits.pauses.backlog = true;
                core.counters.backlog_pauses.add(1);
                io.pause_reading(id);
                self.backlogged.push(id);
                break;
            }
        }
        inbound.settle();
        let consumed = if inbound.session.state.phase() == Phase::Over {
            data.len()
        } else {
            input.consumed()
        };
        let is_unfinished = reader.unfinished_bytes() >= UNCHARGED_BYTES
            || inbound.session.state.limits.unfinished.is_some();
        drop(inbound);
        if is_unfinished {
            self.charge_unfinished(id);
        }
        self.suspend(io, id, progress);
        consumed
    }

    /// Begins the opening handshake of a connection.
    fn begin(&mut self, io: &mut Io, id: ConnectionId, forwarded: Option<Box<Forwarded>>) {
        if id.index() > MEMBER_INDEX_MAX {
            return io.abort(id);
        }
        self.core.refresh();
        self.core.make_way(id);
        let limits = &self.core.setup.config.limits;
        let now = wire_now(io);
        let state = ConnectionState {
            key: ConnectionKey::new(self.core.shared.hub.server, self.core.index, id),
            control: None,
            ending: Ending {
                close_code: None,
                close: None,
                ended: None,
            },
            session: ServerSession::new(Format::Json, false, now),
            limits: ConnectionLimits {
                bucket: TokenBucket::new(&self.core.setup.rate_limit, now.monotonic_ms),
                pauses: Pauses::default(),
                refusals: None,
                owner: OwnerId::SERVER,
                error_budget: None,
                unfinished: None,
            },
            work: OpenWork {
                jobs: Jobs::default(),
                calls: None,
                operations: None,
                question: None,
            },
            client: ClientIdentity {
                user: None,
                expiry: None,
                forwarded,
                access: Access::bind(&self.core.setup.access, None),
                access_is_set: false,
            },
            awaits_proxy_header: false,
            accepted_us: micros_of(io),
            is_told_away: false,
            topics: None,
            trace: None,
            producer: self.core.shared.producers.new_session(),
            layers: None,
            unannounced: None,
        };
        let reader = MessageReader::new(Role::Server, limits.message_bytes_max);
        io.set_timer(
            id,
            now.monotonic_ms.saturating_add(limits.handshake_timeout_ms),
        );
        if self.connections.len() <= id.index() {
            self.connections.resize_with(id.index() + 1, || None);
        }
        self.connections[id.index()] = Some(Connection { reader, state });
        self.core.counters.connections_accepted.add(1);
        self.start_opening(io, id);
    }

    /// Reads the received bytes, before or after the session has opened.
    #[inline(always)]
    fn handle_bytes(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        match self.connections.get(id.index()) {
            Some(Some(connection)) if connection.state.phase() == Phase::Opening => {}
            _ => return self.receive(io, id, data),
        }
        let head_bytes = self.receive_opening(io, id, data);
        let is_session = self.connection(id).is_some_and(|connection| {
            !matches!(connection.state.phase(), Phase::Opening | Phase::Over)
        });
        if is_session && head_bytes < data.len() {
            return head_bytes + self.receive(io, id, &mut data[head_bytes..]);
        }
        head_bytes
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        // An application that panics here is not waited for.
        self.contained_all(|app| app.is_ready()).unwrap_or(true)
    }

    /// Ends the loop in the turn after the one that sees that the server has stopped, so that what
    /// was sent to this shard before is there.
    fn stop_if_told(&mut self, io: &mut Io) {
        if self.is_stopping {
            io.stop();
        }
        self.is_stopping = self.core.shared.is_stopped();
    }

    /// The session of a connection for one call; `None` if it is gone.
    #[inline]
    pub(crate) fn session<'a>(
        &'a mut self,
        io: &'a mut Io,
        id: ConnectionId,
    ) -> Option<Session<'a>> {
        let connection = self.connections.get_mut(id.index())?.as_mut()?;
        (connection.state.key.id == id).then_some(Session {
            io,
            core: &mut self.core,
            state: &mut connection.state,
        })
    }

    /// Calls `act` for a connection outside of its messages.
    pub(crate) fn with_session(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        act: impl FnOnce(&mut Session<'_>),
    ) {
        self.with_inbound(io, id, |inbound| act(&mut inbound.session));
    }

    /// [`Self::with_session`] for calls that may reach the application.
    pub(crate) fn with_inbound(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        act: impl FnOnce(&mut Inbound<'_, A>),
    ) {
        let Some(Some(connection)) = self.connections.get_mut(id.index()) else {
            return;
        };
        if connection.state.key.id != id {
            return;
        }
        let mut inbound = Inbound {
            session: Session {
                io,
                core: &mut self.core,
                state: &mut connection.state,
            },
            app: &mut self.app,
            tally: Tally::default(),
        };
        inbound.session.core.turn.meter.start();
        act(&mut inbound);
        let session = &mut inbound.session;
        session.close_if_asked();
        session.core.turn.meter.settle(session.state.limits.owner);
        drop(inbound);
        if !connection.state.work.jobs.is_empty() && connection.state.limits.pauses.are_over() {
            self.suspend(io, id, JobProgress::Yield);
        }
    }

    /// Removes a reason not to read from some connections; those that have no other go on.
    fn resume(&mut self, io: &mut Io, ids: Vec<ConnectionId>, end: impl Fn(&mut Pauses)) {
        for id in ids {
            let Some(connection) = self.connection(id) else {
                continue;
            };
            end(&mut connection.state.limits.pauses);
            self.go_on(io, id);
        }
    }
}

impl<A: Application> Handler for EngineShard<A> {
    type Mail = Mail;

    fn handle_accept(&mut self, io: &mut Io, id: ConnectionId, _listener: ListenerId) {
        self.begin(io, id, None);
    }

    #[inline]
    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        self.core.refresh();
        let bytes = data.len();
        // Of a connection that has ended nothing is read any more.
        self.contained(io, id, |shard, io| shard.handle_bytes(io, id, data))
            .unwrap_or(bytes)
    }

    fn handle_close(&mut self, io: &mut Io, id: ConnectionId, closed: Closed) {
        let Some(mut connection) = self.connections.get_mut(id.index()).and_then(Option::take)
        else {
            return;
        };
        self.drop_empty_places();
        let mut session = Session {
            io,
            core: &mut self.core,
            state: &mut connection.state,
        };
        session.leave_topics();
        session.end_calls();
        session.end_question();
        session.close_producer();
        session.release_unfinished();
        if let Some(user) = &connection.state.client.user {
            self.core.users.remove(user, id);
            self.core.shared.hub.remove_user(user);
        }
        let counters = &self.core.counters;
        match closed {
            Closed::OutboxOverflow => {
                counters.outbox_overflows.add(1);
                self.core.log_overflow(io, &connection.state);
            }
            Closed::Tls(_) => counters.tls_failures.add(1),
            _ => {}
        }
        if !connection.is_session() {
            if connection.state.ending.ended.is_none() {
                counters.handshakes_failed.add(1);
            }
            return self.end_pending(io, id);
        }
        match connection.state.ending.ended {
            Some(CloseReason::ByUs(_)) => counters.sessions_closed_by_server.add(1),
            Some(CloseReason::ByPeer(_)) => counters.sessions_closed_by_peer.add(1),
            Some(CloseReason::Lost) | None => counters.sessions_lost.add(1),
        }
        counters.connections_open.sub(1);
        self.core.shared.sessions.fetch_sub(1, Ordering::AcqRel);
        let reason = connection.state.ending.ended.unwrap_or(CloseReason::Lost);
        let mut session = Session {
            io,
            core: &mut self.core,
            state: &mut connection.state,
        };
        if let Some(backend) = session.backend(BackendEvent::Disconnect) {
            session.report_disconnect(&backend, reason);
        }
        tracing::debug!(
            connection = %connection.state.key,
            address = connection.state.last_address(io).map(tracing::field::display),
            user = connection.state.client.user.as_deref(),
            ?reason,
            "a session ends",
        );
        if connection.state.unannounced.is_none() {
            let key = connection.state.key;
            self.contained_last(|app| app.on_close(key, reason));
        }
    }

    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        self.core.refresh();
        self.with_session(io, id, |session| session.handle_timer());
        let connection = self.connection(id);
        if connection.is_some_and(|connection| !connection.state.work.jobs.is_empty()) {
            // The time of subscriptions is over, if nothing else waits.
            self.go_on(io, id);
        }
    }

    fn handle_drained(&mut self, io: &mut Io, id: ConnectionId) {
        self.core.refresh();
        let now_ms = io.now().monotonic_ms;
        let Some(connection) = self.connection(id) else {
            return;
        };
        // A peer that accepts the bytes that waited for it is alive, though it could not be read.
        connection.state.session.handle_heard(now_ms);
        connection.state.limits.pauses.outbox_bytes_seen = 0;
        if std::mem::take(&mut connection.state.limits.pauses.outbox) {
            self.go_on(io, id);
        }
        self.send_waiting(io, id);
    }

    fn handle_mail(&mut self, io: &mut Io, mail: Mail) {
        self.core.refresh();
        match mail {
            Mail::Adopt(adoption) => self.adopt(io, *adoption),
            Mail::Send(id, outgoing) => {
                self.with_session(io, id, |session| session.send(outgoing.payload()));
            }
            Mail::Close(id, code, reason) => {
                self.with_session(io, id, |session| session.start_close(code, reason));
            }
            Mail::Change(change) => self.change(io, change),
            Mail::Question(question) => question.ask(&mut View {
                core: &mut self.core,
                connections: &self.connections,
                io,
            }),
            Mail::Call(id, posted) => self.post_call(io, id, *posted),
            Mail::StopListening => io.stop_listening(),
        }
    }

    fn handle_turn(&mut self, io: &mut Io) {
        self.core.refresh();
        self.turned = Some(io.instant_at(io.now().monotonic_ms));
        self.take_steps(io);
    }

    #[inline]
    fn handle_turn_end(&mut self, io: &Io) {
        let now = Instant::now();
        let timings = &self.core.counters.timings;
        let turn = now.saturating_duration_since(io.turn_started());
        timings.turn_duration.record(turn);
        let topics = &self.core.topics;
        if topics.pending.is_empty() {
            let times = &mut self.core.delivery_times;
            times.settle(topics.queue.len(), |since, publications| {
                let age = now.saturating_duration_since(since);
                let delivery = &timings.publication_delivery_duration;
                delivery.record_many(age, publications as u64);
            });
        }
    }

    #[inline]
    fn may_read(&mut self, id: ConnectionId) -> bool {
        if self.is_ready() {
            return true;
        }
        if let Some(connection) = self.connection(id) {
            // The opening handshake does not reach the application.
            if connection.state.phase() == Phase::Opening {
                return true;
            }
            connection.state.limits.pauses.application = true;
            self.waiting.push(id);
            self.core.counters.queue_full_pauses.add(1);
        }
        false
    }

    fn holds_tls(&self) -> bool {
        true
    }

    fn may_accept(&self) -> bool {
        self.pending.may_accept()
    }

    fn make_room(&mut self, io: &mut Io) -> bool {
        self.drop_parked(io)
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.wake_at()
    }
}

impl Core {
    /// Runs once a second: reports log lines that were left out and, on the first shard, removes expired
    /// entries.
    fn sweep(&self, now: tidewire_net::Now) {
        if self.shared.lines.has_left_out() {
            self.shared.lines.summarize(now.unix_ms);
        }
        if self.index == 0 {
            self.shared.hub.sweep(now.steady_unix_ms);
            self.shared.producers.sweep(now.steady_unix_ms);
        }
    }

    /// Reports a connection whose peer did not read what waited for it.
    fn log_overflow(&self, io: &Io, state: &ConnectionState) {
        let (address, unix_ms) = (state.last_address(io), io.now().unix_ms);
        let lines = &self.shared.lines;
        if lines.permit(LineKind::OutboxOverflow, address, unix_ms) {
            tracing::info!(
                connection = %state.key,
                address = address.map(tracing::field::display),
                user = state.client.user.as_deref(),
                queued_bytes_over = self.setup.config.limits.outbox_bytes_max,
                "a connection ends because its peer does not read what waits for it",
            );
        }
    }
}

/// The time of the shard now, in microseconds modulo 2^32.
pub(crate) fn micros_of(io: &Io) -> u32 {
    let time = Instant::now().saturating_duration_since(io.instant_at(0));
    time.as_micros() as u32
}

/// The interval of what a shard does once a second, in milliseconds.
const SWEEP_INTERVAL_MS: u64 = 1_000;
