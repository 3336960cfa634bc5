//! The phases: pings, blasts, windows, paces and holds.

use std::sync::Arc;

use tidewire_net::{ConnectionId, Io};

use super::allowance::{self, Allowance};
use super::fan_out::session::{FanRun, TAIL_NS};
use super::{Core, Worker};
use crate::accounting::outcome::{Ran, WINDOW};
use crate::worker::meter::Meter;
use crate::worker::order::{Activity, PhaseOrder, WorkerReport};
use crate::worker::websocket::ring::FrameRing;
use crate::worker::websocket::session::{
    Batch, Connection, ConnectionState, PhaseProgress, Pump, Task,
};

/// The progress of a phase.
#[derive(Debug)]
pub(super) struct PhaseRun {
    pub(super) activity: Activity,
    pub(super) ring: Option<Arc<FrameRing>>,
    pub(super) expects_replies: bool,
    /// Whether messages leave at given times.
    pub(super) is_paced: bool,
    /// This worker's part of a fan-out.
    pub(super) fan: Option<FanRun>,
    pub(super) members: Vec<ConnectionId>,
    /// The number of members that have begun.
    pub(super) begun: usize,
    /// The number of members that have not ended their part.
    remaining: usize,
    pub(super) start_ns: u64,
    pub(super) deadline_ns: Option<u64>,
    stopping: bool,
    unconfirmed_bytes_max: u64,
    /// Confirming pings sent so far, in turn over the members.
    checkpoints: u64,
    /// Paced messages released so far, in turn over the members.
    pub(super) released: u64,
    /// When the last of them was, and when the last was written whole.
    pub(super) released_ns: u64,
    pub(super) offered_ns: u64,
    /// The end of the wait for late reports of rejections.
    tail_end_ns: Option<u64>,
    pub(super) meter: Meter,
    pub(super) result: Ran,
}

impl PhaseRun {
    pub(super) fn ring(&self) -> Option<&FrameRing> {
        self.ring.as_deref()
    }

    /// Writes the frames that the connection may write, and counts the completely written messages.
    #[inline]
    pub(super) fn pump(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        write_bytes_max: usize,
    ) -> Pump {
        // One that has not begun stands somewhere in the ring of the phase before.
        let ring = self
            .ring
            .as_ref()
            .filter(|_| connection.progress.task != Task::Idle);
        let Some(ring) = ring else {
            return connection
                .out
                .pump(io, connection.id, None, write_bytes_max);
        };
        let before = ring.frames_before(connection.out.place);
        let pump = connection
            .out
            .pump(io, connection.id, Some(ring), write_bytes_max);
        self.result.offered += ring.frames_before(connection.out.place) - before;
        pump
    }

    /// Adapts the allowance of a connection to the time that a confirmation took.
    pub(super) fn adapt(&mut self, allowance: &mut Allowance, took_ns: u64) {
        allowance.adapt(took_ns, self.unconfirmed_bytes_max);
        let most = &mut self.result.unconfirmed_bytes_max;
        *most = allowance.bytes().max(*most);
    }

    /// The time of the next action of the phase without received data.
    pub(super) fn next_ns(&self) -> Option<u64> {
        if self.begun < self.members.len() {
            return Some(0);
        }
        if self.remaining == 0 {
            return Some(self.tail_end_ns.unwrap_or(0));
        }
        if let Some(fan) = &self.fan {
            return fan.next_ns(self.stopping, self.deadline_ns);
        }
        if self.stopping {
            return None;
        }
        let paced_ns = match &self.activity {
            Activity::Paced { pace, .. } => Some(
                self.start_ns
                    .saturating_add(pace.intended_ns(self.released)),
            ),
            _ => None,
        };
        match (paced_ns, self.deadline_ns) {
            (Some(paced), Some(deadline)) => Some(paced.min(deadline)),
            (paced, deadline) => paced.or(deadline),
        }
    }

    /// Each member sends ten checkpoints per second, but all of them together so few that they hardly load the
    /// server.
    fn checkpoint_every_ns(&self) -> u64 {
        let per_s = (self.members.len() as u64 * CHECKPOINTS_PER_S).clamp(1, CHECKPOINTS_PER_S_MAX);
        1_000_000_000 / per_s
    }

    /// Counts messages that were confirmed now in the current window.
    #[inline]
    pub(super) fn count_confirmed(&mut self, count: u64, now_ns: u64) {
        self.result.span_ns = Some((self.start_ns, now_ns));
        self.result.first_confirmed_ns.get_or_insert(now_ns);
        if self.stopping {
            return;
        }
        let window = ((now_ns - self.start_ns) / WINDOW_NS) as usize;
        let windows = &mut self.result.windows;
        if window >= windows.len() {
            windows.resize(window + 1, 0);
        }
        windows[window] += count;
    }

    /// Stores the windows that were complete at `end_ns`.
    fn end_windows(&mut self, end_ns: u64) {
        let whole = end_ns.saturating_sub(self.start_ns) / WINDOW_NS;
        self.result.windows.resize(whole as usize, 0);
    }

    /// Whether the phase is complete. A server may report rejections together once per second, so the last report
    /// may arrive after all confirmations.
    fn is_done(&mut self, now_ns: u64) -> bool {
        if self.remaining > 0 {
            return false;
        }
        let is_told_late = self.result.rate_limited > 0;
        let is_answered = self.fan.is_some() || self.expects_replies;
        let tail_ns = match is_answered {
            _ if is_told_late => REFUSALS_TOLD_NS,
            true => TAIL_NS,
            false => 0,
        };
        now_ns >= *self.tail_end_ns.get_or_insert(now_ns + tail_ns)
    }

    /// Whether every member has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.begun == self.members.len()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Starts the time of the phase. The wait before does not count.
    pub(super) fn count_time_from(&mut self, now_ns: u64) {
        let waited_ns = now_ns.saturating_sub(self.start_ns);
        self.deadline_ns = self
            .deadline_ns
            .map(|deadline_ns| deadline_ns.saturating_add(waited_ns));
        self.start_ns = now_ns;
        self.result.span_ns = Some((now_ns, now_ns));
    }

    /// Adds the counts of a connection that has ended its part in the phase. What has no answer counts among the latencies
    /// at its age so far, as in a load.
    pub(super) fn fold(&mut self, connection: &mut Connection, now_ns: u64) {
        let progress = &mut connection.progress;
        self.pass(progress, progress.refused_waiting(), None);
        self.pass(progress, progress.waiting, Some(now_ns));
        if let Some(ping) = progress.ping.filter(|ping| !ping.is_farewell) {
            self.result
                .latency
                .record_ns(now_ns.saturating_sub(ping.sent_ns));
        }
        if progress.ping.is_some() || (progress.barrier_sent && !progress.marks.is_empty()) {
            self.result.pongs_lost += 1;
        }
        self.result.replies.missing += progress.missing();
        self.remaining -= 1;
    }
}

impl Worker {
    pub(super) fn begin_phase(&mut self, io: &mut Io, order: PhaseOrder) {
        let core = &mut self.core;
        let members: Vec<ConnectionId> = self
            .sessions
            .iter()
            .flatten()
            .filter(|session| session.connection.state == ConnectionState::Open)
            .map(|session| session.connection.id)
            .collect();
        let start_ns = core.now_ns();
        let result = Ran {
            members: members.len() as u64,
            unconfirmed_bytes_max: Allowance::default().bytes(),
            answered: order.activity.expects_replies(),
            broken_before: std::mem::take(&mut core.broken),
            pongs_strange: std::mem::take(&mut core.pongs_strange),
            span_ns: Some((start_ns, start_ns)),
            ..Ran::default()
        };
        core.contents.forget();
        let fan = match &order.activity {
            Activity::FanOut(plan) => {
                let is_publisher = |connection: &&Connection| connection.number == plan.publisher;
                let mut talks = self
                    .sessions
                    .iter()
                    .flatten()
                    .map(|session| &session.connection);
                let publisher = talks.find(is_publisher).map(|connection| connection.id);
                let publisher = publisher.filter(|id| members.contains(id));
                let plan = Arc::clone(plan);
                Some(FanRun::new(plan, core.index, members.len(), publisher))
            }
            _ => None,
        };
        core.phase = Some(Box::new(PhaseRun {
            fan,
            ring: order.activity.ring().cloned(),
            expects_replies: order.activity.expects_replies(),
            is_paced: order.activity.is_paced(),
            activity: order.activity,
            begun: 0,
            remaining: members.len(),
            members,
            start_ns,
            deadline_ns: order
                .longest
                .map(|longest| start_ns.saturating_add(longest.as_nanos() as u64)),
            stopping: false,
            unconfirmed_bytes_max: order.unconfirmed_bytes_max,
            checkpoints: 0,
            released: 0,
            released_ns: start_ns,
            offered_ns: start_ns,
            tail_end_ns: None,
            meter: Meter::start(core.spin.spun(), core.now_ns()),
            result,
        }));
        self.begin_members(io);
    }

    /// Starts some more members each turn, so that the first answers are read in time.
    fn begin_members(&mut self, io: &mut Io) {
        for _ in 0..BEGINS_PER_TURN {
            let Some(phase) = &mut self.core.phase else {
                return;
            };
            let Some(&id) = phase.members.get(phase.begun) else {
                return;
            };
            phase.begun += 1;
            if let Some((session, core)) = self.with(id) {
                core.begin_member(io, &mut session.connection);
            } else if let Some(phase) = &mut self.core.phase {
                // It broke between the order and its turn.
                phase.remaining -= 1;
            }
        }
    }

    /// Does the work of a phase once per turn.
    pub(super) fn phase_turn(&mut self, io: &mut Io, now_ns: u64) {
        self.begin_members(io);
        if matches!(&self.core.phase, Some(phase) if phase.fan.is_some()) {
            self.fan_out_turn(io, now_ns);
        }
        let Some(phase) = &self.core.phase else {
            return;
        };
        if phase.stopping {
            return;
        }
        let is_over = phase
            .deadline_ns
            .is_some_and(|deadline_ns| now_ns >= deadline_ns);
        let mut is_behind = false;
        match phase.activity {
            Activity::Blast { .. } if !is_over => self.send_checkpoints(io, now_ns),
            // Also at the end: late messages that were due before it must not be left out, as far as a short
            // time suffices to send them.
            Activity::Paced { replies, .. } => {
                is_behind = self.release_due(io, now_ns);
                if !replies && !is_over {
                    self.send_checkpoints(io, now_ns);
                }
            }
            _ => {}
        }
        let Some(phase) = &self.core.phase else {
            return;
        };
        let late_end_ns = phase
            .deadline_ns
            .map(|deadline_ns| deadline_ns.saturating_add(CATCH_UP_NS));
        if is_over && (!is_behind || late_end_ns.is_some_and(|end_ns| now_ns >= end_ns)) {
            self.stop_phase(io);
        }
    }

    /// Ends the sending, and waits for the messages in flight.
    pub(super) fn stop_phase(&mut self, io: &mut Io) {
        let now_ns = self.core.now_ns();
        let Some(phase) = &mut self.core.phase else {
            return;
        };
        if std::mem::replace(&mut phase.stopping, true) {
            return;
        }
        phase.end_windows(now_ns);
        phase.end_sending(now_ns);
        let late = phase.members.split_off(phase.begun);
        phase.remaining -= late.len();
        let fan = phase.fan.as_ref().filter(|_| self.core.index == 0);
        if let Some(fan) = fan.filter(|fan| !fan.plan.is_published_elsewhere()) {
            // The publisher is, or was, one of this worker's.
            fan.plan.set_total(fan.counts.published);
        }
        for index in 0..phase.begun {
            let Some(phase) = &self.core.phase else {
                return;
            };
            let id = phase.members[index];
            if let Some((session, core)) = self.with(id)
                && session.connection.progress.task == Task::Active
            {
                core.settle(io, &mut session.connection);
            }
        }
    }

    /// Ends the phase without waiting for answers, because the run was interrupted.
    pub(super) fn abandon_phase(&mut self, io: &mut Io) {
        let Some(phase) = &self.core.phase else {
            return;
        };
        for index in 0..phase.begun {
            let Some(phase) = &self.core.phase else {
                return;
            };
            let id = phase.members[index];
            if let Some((session, core)) = self.with(id) {
                core.end_member(io, &mut session.connection);
            }
        }
    }

    /// Sends a ping between the frames of the next connections.
    fn send_checkpoints(&mut self, io: &mut Io, now_ns: u64) {
        loop {
            let Some(phase) = &mut self.core.phase else {
                return;
            };
            let due = (now_ns - phase.start_ns) / phase.checkpoint_every_ns();
            if phase.checkpoints >= due || phase.begun == 0 {
                return;
            }
            // After a stall one round is enough.
            phase.checkpoints = (phase.checkpoints + 1).max(due.saturating_sub(phase.begun as u64));
            let id = phase.members[(phase.checkpoints % phase.begun as u64) as usize];
            if let Some((session, core)) = self.with(id)
                && session.connection.progress.task == Task::Active
                && session.connection.out.controls.is_empty()
            {
                core.queue_mark(&mut session.connection);
                core.pump(io, &mut session.connection);
            }
        }
    }
}

impl Core {
    fn begin_member(&mut self, io: &mut Io, connection: &mut Connection) {
        self.send_hello(connection);
        let now_ns = self.now_ns();
        let Some(phase) = &mut self.phase else { return };
        connection.progress = PhaseProgress {
            task: Task::Active,
            ..PhaseProgress::default()
        };
        if let Some(ring) = &phase.ring {
            // Connections start at different frames, so that the server never sees the same in step.
            connection.progress.first_frame =
                connection.id.index() as u64 * FRAMES_APART % ring.frames();
            connection.out.place = ring.start_of(connection.progress.first_frame);
            connection.out.goal = connection.out.place;
            connection.out.sealed = match &mut connection.channel {
                Some(channel) => {
                    ring.sealed(|message, out| channel.seal(message, out), &mut self.random)
                }
                None => Vec::new(),
            };
        }
        match phase.activity {
            Activity::Hold { ping_every_ms } => {
                let spread = (phase.begun as u64 - 1) * ping_every_ms / phase.result.members.max(1);
                connection.progress.pings_left = u64::MAX;
                connection.progress.ping_due_ms = io.now().monotonic_ms + spread;
                io.set_timer(connection.id, connection.progress.ping_due_ms);
            }
            Activity::Pings { per_connection } => {
                connection.progress.pings_left = per_connection;
                self.next_ping(io, connection);
            }
            Activity::Blast { .. } => self.extend_blast(io, connection),
            Activity::Paced { .. } => {}
            Activity::Subscribe { publisher } => self.subscribe(io, connection, publisher),
            Activity::FanOut(_) => connection.out.flush_controls(io, connection.id),
            Activity::Window { in_flight, .. } => {
                self.release(connection, now_ns, in_flight);
                self.pump(io, connection);
            }
        }
    }

    /// Allows `count` more frames to be written, or as many as are left of those of the connection.
    #[inline]
    pub(super) fn release(&mut self, connection: &mut Connection, intended_ns: u64, count: u32) {
        let Some(phase) = &self.phase else { return };
        let Some(ring) = phase.ring() else { return };
        let before = ring.frames_before(connection.out.goal);
        let sent = before - connection.progress.first_frame;
        let count = phase.activity.frames_left(sent).min(count.into()) as u32;
        if count == 0 {
            return;
        }
        let frames = before + u64::from(count);
        connection.out.goal = ring.start_of(frames);
        if phase.expects_replies {
            connection.progress.waiting += u64::from(count);
            connection.progress.batches.push_back(Batch {
                intended_ns,
                sent_ns: None,
                end_frame: frames,
                left: count,
            });
            if matches!(phase.activity, Activity::Paced { .. }) {
                connection.progress.unwritten += 1;
            }
        }
    }

    /// Allows a connection at full speed to write more, within its limit of unconfirmed frames. A ping between two
    /// strides requests the next confirmation while the next stride is sent. If one stride is the limit, the ping
    /// follows it.
    pub(super) fn extend_blast(&mut self, io: &mut Io, connection: &mut Connection) {
        let Some(phase) = &self.phase else { return };
        let is_blast = matches!(phase.activity, Activity::Blast { .. });
        let Some(ring) = phase.ring() else { return };
        if !is_blast
            || connection.progress.task != Task::Active
            || connection.out.place < connection.out.goal
        {
            return;
        }
        let allowed_bytes = connection.progress.allowance.bytes();
        let limit = ring.frames_in(allowed_bytes);
        let written = ring.frames_before(connection.out.place);
        let sent = written - connection.progress.first_frame;
        let left = phase.activity.frames_left(sent);
        if left == 0 {
            return self.settle(io, connection);
        }
        let unconfirmed = sent - connection.progress.confirmed;
        let stride = allowance::stride_frames(limit, allowed_bytes).min(left);
        if unconfirmed + stride > limit {
            if connection.progress.marks.is_empty() {
                self.queue_mark(connection);
                connection.out.flush_controls(io, connection.id);
            }
            return;
        }
        connection.out.goal = ring.start_of(written + stride);
        if unconfirmed > 0 && connection.out.controls.is_empty() {
            self.queue_mark(connection);
        }
        self.pump(io, connection);
    }

    /// The connection sends nothing new in this phase.
    pub(super) fn settle(&mut self, io: &mut Io, connection: &mut Connection) {
        let Some(phase) = &self.phase else { return };
        connection.progress.task = Task::Settling;
        if let Some(ring) = phase.ring() {
            if matches!(phase.activity, Activity::Blast { .. }) {
                connection.out.goal = ring.boundary(connection.out.place);
            }
            io.set_timer(
                connection.id,
                io.now().monotonic_ms + self.setup.timeouts.barrier_ms,
            );
            self.pump(io, connection);
        } else if phase.fan.is_some() {
            self.settle_fan_out(io, connection);
        } else if connection.progress.ping.is_none() {
            let is_hold = matches!(phase.activity, Activity::Hold { .. });
            if is_hold {
                // Only a ping shows whether it still lives.
                self.send_ping(io, connection);
            } else {
                self.end_member(io, connection);
            }
        }
    }

    /// Handles a connection that has written everything up to its goal: at the end it waits for confirmation.
    pub(super) fn handle_all_written(&mut self, io: &mut Io, connection: &mut Connection) {
        if connection.progress.task != Task::Settling {
            return self.extend_blast(io, connection);
        }
        let Some(phase) = &self.phase else { return };
        if phase.expects_replies {
            if connection.progress.is_answered() {
                self.end_member(io, connection);
            }
        } else if phase.ring.is_some() && !connection.progress.barrier_sent {
            connection.progress.barrier_sent = true;
            self.queue_mark(connection);
            connection.out.flush_controls(io, connection.id);
        }
    }

    /// Ends the part of a connection whose messages are confirmed.
    pub(super) fn end_member(&mut self, io: &mut Io, connection: &mut Connection) {
        let now_ns = self.now_ns();
        let Some(phase) = &mut self.phase else { return };
        if connection.progress.task == Task::Idle {
            return;
        }
        phase.fold(connection, now_ns);
        connection.progress.task = Task::Idle;
        io.clear_timer(connection.id);
    }

    /// Reports the phase when its last connection has ended its part.
    pub(super) fn end_phase(&mut self, now_ns: u64) {
        let Some(mut phase) = self.phase.take_if(|phase| phase.is_done(now_ns)) else {
            return;
        };
        if !phase.stopping {
            let end_ns = phase.result.span_ns.map_or(0, |(_, end_ns)| end_ns);
            phase.end_windows(end_ns);
            phase.end_sending(end_ns);
            let members = phase.result.members;
            if members > 0 && phase.result.broken.total() == members {
                phase.leave_rest_unsent();
            }
        }
        phase.end_pace();
        phase.result.waits = phase.meter.waits(self.now_ns());
        phase.result.cpu = phase.meter.stop(self.spin.spun());
        phase.result.facts = self.facts.clone();
        phase.result.fan_out = phase.fan.take().map(|fan| Box::new(fan.finish()));
        let result = std::mem::take(&mut phase.result);
        drop(phase);
        self.report(WorkerReport::Ran(Box::new(result)));
    }
}

const WINDOW_NS: u64 = WINDOW.as_nanos() as u64;

/// The time after its end in which a phase sends messages that were due before.
const CATCH_UP_NS: u64 = 1_000_000_000;

/// The wait for late reports of rejections: a little more than the second between two reports.
const REFUSALS_TOLD_NS: u64 = 1_200_000_000;

/// The number of members that begin a phase before received data is read.
const BEGINS_PER_TURN: usize = 64;

/// Frames between the starts of two connections; a prime, so that all frames are used.
const FRAMES_APART: u64 = 37;

const CHECKPOINTS_PER_S: u64 = 10;
const CHECKPOINTS_PER_S_MAX: u64 = 2_000;
