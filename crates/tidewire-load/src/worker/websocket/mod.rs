//! WebSocket worker: a thread with an event loop and its share of the connections.

mod allowance;
pub(crate) mod channel;
mod connect;
mod contents;
pub mod fan_out;
pub mod layer;
mod pacing;
pub mod payload;
mod phase;
mod pings;
pub mod profile;
mod receive;
mod replies;
pub mod ring;
pub(crate) mod session;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::{SmallRng, StdRng};
use tidewire_net::{Closed, ConnectionId, Handler, Io, SPIN};
use tidewire_wire::close::CloseCode;

use crate::accounting::failure::{Failure, Failures};
use crate::accounting::live::LiveCell;
use crate::accounting::outcome::ServerFacts;
use crate::worker;
use crate::worker::control::ControlFrames;
use crate::worker::meter::Spin;
use crate::worker::order::{Command, Setup, WorkerReport};
use crate::worker::websocket::session::{Connection, ConnectionState, Pump, Session, Task};
use connect::ConnectRun;
use contents::Contents;
use phase::PhaseRun;

/// The handler of a worker's shard.
#[derive(Debug)]
pub(crate) struct Worker {
    sessions: Vec<Option<Session>>,
    core: Core,
}

/// Everything of a worker except its sessions, so that a session can be changed together with it.
#[derive(Debug)]
struct Core {
    setup: Arc<Setup>,
    index: usize,
    outcomes: Sender<(usize, WorkerReport)>,
    live: Arc<LiveCell>,
    random: SmallRng,
    /// The tokens of pings. They do not depend on the run's seed, and a server cannot compute them from earlier
    /// ones: a pong without a ping must not look like an answer.
    tokens: StdRng,
    /// Pongs that answered no open ping while no phase was running.
    pongs_strange: u64,
    /// Connections whose socket accepts more data, for the next turn.
    hot: Vec<ConnectionId>,
    connect_run: Option<ConnectRun>,
    phase: Option<Box<PhaseRun>>,
    /// Connections in any state.
    sessions: usize,
    connected: u64,
    failed: u64,
    /// Connections that failed while no phase was running.
    broken: Failures,
    facts: ServerFacts,
    contents: Contents,
    closing: bool,
    write_bytes_max: usize,
    published_ns: u64,
    /// Buffers for the frames and times of a fan-out's publisher, and for paced messages that are due.
    frames: Vec<u8>,
    times_us: Vec<u64>,
    due: Vec<(ConnectionId, u64)>,
    spin: Spin,
}

impl Worker {
    pub(crate) fn new(
        setup: Arc<Setup>,
        index: usize,
        outcomes: Sender<(usize, WorkerReport)>,
        live: Arc<LiveCell>,
    ) -> Self {
        let random = SmallRng::seed_from_u64(worker::seed(setup.seed, index));
        let is_tls = setup.target.tls.is_some();
        let contents = Contents::new(setup.layer);
        let core = Core {
            setup,
            index,
            outcomes,
            live,
            random,
            tokens: StdRng::from_os_rng(),
            pongs_strange: 0,
            hot: Vec::new(),
            connect_run: None,
            phase: None,
            sessions: 0,
            connected: 0,
            failed: 0,
            broken: Failures::default(),
            facts: ServerFacts::default(),
            contents,
            closing: false,
            write_bytes_max: if is_tls {
                TLS_WRITE_BYTES_MAX
            } else {
                usize::MAX
            },
            published_ns: 0,
            frames: Vec::new(),
            times_us: Vec::new(),
            due: Vec::new(),
            spin: Spin::default(),
        };
        Self {
            sessions: Vec::new(),
            core,
        }
    }

    fn insert(&mut self, session: Session) {
        let index = session.connection.id.index();
        if index >= self.sessions.len() {
            self.sessions.resize_with(index + 1, || None);
        }
        self.sessions[index] = Some(session);
        self.core.sessions += 1;
    }

    /// The session with this id, and the core; `None` if the connection has ended.
    fn with(&mut self, id: ConnectionId) -> Option<(&mut Session, &mut Core)> {
        let session = self.sessions.get_mut(id.index())?.as_mut()?;
        (session.connection.id == id).then_some((session, &mut self.core))
    }

    /// Ends the current order at once, and counts its open messages as unanswered.
    fn abandon(&mut self, io: &mut Io) {
        for session in self.sessions.iter_mut().flatten() {
            let connection = &mut session.connection;
            if connection.state != ConnectionState::Open {
                connection.failure = Some(Failure::Interrupted);
                io.abort(connection.id);
            }
        }
        self.abandon_phase(io);
    }

    /// Records the start of a busy loop until the next message is due.
    fn note_spin(&mut self) {
        let core = &mut self.core;
        if !core.phase.as_ref().is_some_and(|phase| phase.is_paced) || !core.hot.is_empty() {
            return;
        }
        let next_ns = core.phase.as_ref().and_then(|phase| phase.next_ns());
        let now_ns = core.setup.now_ns();
        let wait_ns = next_ns.map_or(0, |next_ns| next_ns.saturating_sub(now_ns));
        if (1..=SPIN.as_nanos() as u64).contains(&wait_ns) {
            core.spin.begin(now_ns);
        }
    }

    /// Starts to close every connection, and aborts those that are not open yet.
    fn close_all(&mut self, io: &mut Io) {
        self.core.closing = true;
        for session in self.sessions.iter_mut().flatten() {
            let connection = &mut session.connection;
            if connection.state != ConnectionState::Open {
                io.abort(connection.id);
                continue;
            }
            self.core.begin_close(io, connection);
        }
        self.core.end_closing();
    }
}

impl Core {
    fn now_ns(&self) -> u64 {
        self.setup.now_ns()
    }

    /// Starts the closing handshake of an open connection.
    fn begin_close(&mut self, io: &mut Io, connection: &mut Connection) {
        connection.state = ConnectionState::Closing;
        let mut frames = ControlFrames::new(&mut self.random, &mut connection.out.controls);
        connection
            .control
            .close(Some(CloseCode::NORMAL), "", &mut frames);
        io.set_timer(
            connection.id,
            io.now().monotonic_ms + self.setup.timeouts.close_ms,
        );
        self.pump(io, connection);
    }

    fn report(&self, outcome: WorkerReport) {
        // A fleet that has ended waits for no report.
        let _ = self.outcomes.send((self.index, outcome));
    }

    /// Writes the frames that the connection may write now.
    fn pump(&mut self, io: &mut Io, connection: &mut Connection) {
        let pump = match &mut self.phase {
            Some(phase) => {
                let offered = phase.result.offered;
                let pump = phase.pump(io, connection, self.write_bytes_max);
                if phase.is_paced && phase.result.offered > offered {
                    phase.offered_ns = self.setup.now_ns();
                }
                pump
            }
            None => connection
                .out
                .pump(io, connection.id, None, self.write_bytes_max),
        };
        if connection.progress.unwritten > 0 {
            self.stamp_written(connection);
        }
        match pump {
            Pump::AtGoal => self.handle_all_written(io, connection),
            Pump::Again if !connection.out.is_hot => {
                connection.out.is_hot = true;
                self.hot.push(connection.id);
            }
            Pump::Again => {}
            Pump::Blocked => {}
        }
    }

    fn end_closing(&mut self) {
        if self.closing && self.sessions == 0 {
            self.closing = false;
            self.report(WorkerReport::Closed);
        }
    }

    /// Publishes the live figures.
    fn publish(&mut self, now_ns: u64) {
        let cell = &self.live;
        cell.connected.store(self.connected, Ordering::Relaxed);
        cell.failed.store(self.failed, Ordering::Relaxed);
        if let Some(run) = &mut self.connect_run {
            run.meter.look(now_ns);
            cell.offered.store(run.result.attempted, Ordering::Relaxed);
            cell.confirmed
                .store(run.result.connected, Ordering::Relaxed);
        }
        let Some(phase) = &mut self.phase else {
            return;
        };
        phase.meter.look(now_ns);
        cell.offered.store(phase.result.offered, Ordering::Relaxed);
        let result = &phase.result;
        let confirmed = (result.confirmed + result.pongs).saturating_sub(result.refused());
        cell.confirmed.store(confirmed, Ordering::Relaxed);
        // A percentile walks the whole histogram.
        if now_ns.saturating_sub(self.published_ns) > PUBLISH_PERCENTILE_NS {
            self.published_ns = now_ns;
            let p99_ns = phase.result.latency.percentile_ns(99.0);
            cell.latency_p99_ns.store(p99_ns, Ordering::Relaxed);
        }
    }
}

impl Handler for Worker {
    type Mail = Command;

    fn handle_connect(&mut self, io: &mut Io, id: ConnectionId) {
        if let Some((session, core)) = self.with(id) {
            core.send_upgrade(io, &mut session.connection);
        }
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        if self.core.spin.is_on() {
            self.core.spin.end(self.core.now_ns());
        }
        match self.with(id) {
            Some((session, core)) => core.handle_bytes(io, session, data),
            None => data.len(),
        }
    }

    fn handle_close(&mut self, _io: &mut Io, id: ConnectionId, closed: Closed) {
        if self.with(id).is_none() {
            return;
        }
        let Some(session) = self.sessions[id.index()].take() else {
            return;
        };
        let core = &mut self.core;
        core.sessions -= 1;
        let mut connection = session.connection;
        let failure = connection
            .failure
            .unwrap_or_else(|| Failure::of_closed(&closed));
        match connection.state {
            ConnectionState::Connecting
            | ConnectionState::Upgrading
            | ConnectionState::AwaitingReady
            | ConnectionState::AwaitingKey => {
                core.handle_connect_failure(failure);
            }
            ConnectionState::Open => core.handle_broken(&mut connection, failure),
            ConnectionState::Closing => {
                core.connected -= 1;
                if connection.is_reopened {
                    core.handle_reopened_end();
                }
            }
        }
        core.end_closing();
    }

    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        let Some((session, core)) = self.with(id) else {
            return;
        };
        let connection = &mut session.connection;
        match connection.state {
            ConnectionState::Open => core.handle_phase_timer(io, connection),
            ConnectionState::Closing => io.abort(id),
            ConnectionState::Connecting
            | ConnectionState::Upgrading
            | ConnectionState::AwaitingReady
            | ConnectionState::AwaitingKey => {
                connection.failure = Some(Failure::TimedOut);
                io.abort(id);
            }
        }
    }

    fn handle_drained(&mut self, io: &mut Io, id: ConnectionId) {
        if let Some((session, core)) = self.with(id) {
            core.pump(io, &mut session.connection);
        }
    }

    fn handle_mail(&mut self, io: &mut Io, mail: Command) {
        match mail {
            Command::Connect(order) => self.core.begin_connecting(order),
            Command::Run(order) => self.begin_phase(io, *order),
            Command::Stop => {
                self.core.stop_connecting();
                self.stop_phase(io);
            }
            Command::Abandon => self.abandon(io),
            Command::Close => self.close_all(io),
            Command::Quit => io.stop(),
        }
    }

    fn handle_turn(&mut self, io: &mut Io) {
        let now_ns = self.core.now_ns();
        self.core.spin.end(now_ns);
        self.connect_more(io, now_ns);
        if self.core.phase.is_some() {
            self.phase_turn(io, now_ns);
        }
        for id in std::mem::take(&mut self.core.hot) {
            if let Some((session, core)) = self.with(id) {
                session.connection.out.is_hot = false;
                core.pump(io, &mut session.connection);
            }
        }
        // Before the reports, so that their receiver sees the current figures.
        self.core.publish(now_ns);
        self.core.end_connecting();
        self.core.end_phase(now_ns);
        self.note_spin();
    }

    fn poll_deadline(&self) -> Option<Instant> {
        let epoch = self.core.setup.epoch;
        let may_open = self
            .core
            .connect_run
            .as_ref()
            .is_some_and(ConnectRun::may_start);
        if may_open || !self.core.hot.is_empty() {
            return Some(epoch);
        }
        let next_ns = self.core.phase.as_ref()?.next_ns()?;
        Some(epoch + Duration::from_nanos(next_ns))
    }
}

impl Core {
    /// Counts an open connection that the other side ended.
    fn handle_broken(&mut self, connection: &mut Connection, failure: Failure) {
        self.connected -= 1;
        if self.closing {
            return;
        }
        self.failed += 1;
        self.leave_fan_out(connection);
        let now_ns = self.now_ns();
        match &mut self.phase {
            Some(phase) => {
                phase.result.broken.add(failure);
                if connection.progress.task != Task::Idle {
                    phase.fold(connection, now_ns);
                }
            }
            None => self.broken.add(failure),
        }
    }
}

/// The maximum length of a write under TLS: the connection encrypts that much at a time, so that a complete
/// write means that the socket is not full.
const TLS_WRITE_BYTES_MAX: usize = 32 * 1024;

const PUBLISH_PERCENTILE_NS: u64 = 250_000_000;
