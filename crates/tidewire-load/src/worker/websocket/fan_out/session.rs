//! A fan-out: one connection publishes, the others check what they get.

use std::sync::Arc;

use rand::Rng;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::frame::{Extensions, OpCode, Role, parse_extended_header};

use super::super::{Core, Worker};
use super::message::{Delivery, TOPIC};
use super::milestones::Milestones;
use super::stream::Stream;
use super::{FanOut, Tempo, UNKNOWN};
use crate::accounting::failure::Failure;
use crate::accounting::fan_out::FanOutCounts;
use crate::accounting::recorder::Recorder;
use crate::verdict::evidence::PaceKept;
use crate::worker::order::Activity;
use crate::worker::pace::Share;
use crate::worker::websocket::profile::{is_subscribed, write_subscription};
use crate::worker::websocket::ring::bytes_alike;
use crate::worker::websocket::session::{Connection, Task, send_at_once};

/// A worker's part in a fan-out.
#[derive(Debug)]
pub(in crate::worker::websocket) struct FanRun {
    pub(in crate::worker::websocket) plan: Arc<FanOut>,
    stream: Stream,
    milestones: Milestones,
    /// The publisher, if it is one of this worker's connections and lives.
    publisher: Option<ConnectionId>,
    has_reported_ready: bool,
    /// All workers are ready, from which moment the time counts.
    has_begun: bool,
    /// The same moment for the worker with the publisher: the times of a pace count from it.
    started_ns: Option<u64>,
    /// The time of the next look at the other workers' progress.
    check_ns: u64,
    /// The number of the last publication, once the members that have it have ended their part.
    total: Option<u64>,
    /// Epoch of the topic's history, and how far offsets are ahead of numbers; the same for all publications.
    position: Option<Option<(u32, u64)>>,
    /// Deliveries of the read at hand.
    fresh: u64,
    fresh_ns: u64,
    /// Whether the slowest subscriber has moved.
    has_moved: bool,
    pub(in crate::worker::websocket) counts: FanOutCounts,
}

/// The result of a look at one frame.
enum FrameContent {
    /// A publication in N bytes.
    Delivery(Delivery, usize),
    /// A frame that is not whole.
    Cut,
    /// Something else, or nothing.
    Other,
}

impl FanRun {
    /// The part of the worker `index` with these connections, one of which may be the publisher.
    pub(in crate::worker::websocket) fn new(
        plan: Arc<FanOut>,
        index: usize,
        members: usize,
        publisher: Option<ConnectionId>,
    ) -> Self {
        let subscribers = members - usize::from(publisher.is_some());
        if subscribers == 0 {
            plan.set_received(index, UNKNOWN);
        }
        Self {
            stream: Stream::new(plan.remembered_min()),
            milestones: Milestones::new(plan.stride, subscribers as u32),
            publisher,
            has_reported_ready: false,
            has_begun: false,
            started_ns: None,
            check_ns: 0,
            total: None,
            position: None,
            fresh: 0,
            fresh_ns: 0,
            has_moved: false,
            counts: FanOutCounts {
                subscribers: subscribers as u64,
                ..FanOutCounts::default()
            },
            plan,
        }
    }

    /// When there is something to do though nothing arrives.
    pub(in crate::worker::websocket) fn next_ns(
        &self,
        is_stopping: bool,
        deadline_ns: Option<u64>,
    ) -> Option<u64> {
        if is_stopping {
            return self.total.is_none().then_some(self.check_ns);
        }
        let due_ns = match (&self.plan.tempo, self.publisher, self.started_ns) {
            _ if !self.has_begun => Some(self.check_ns),
            (_, None, _) => None,
            (_, _, None) => Some(self.check_ns),
            (Tempo::Paced { pace, .. }, _, Some(started_ns)) => {
                Some(started_ns.saturating_add(pace.intended_ns(self.counts.published)))
            }
            (Tempo::Window(_), ..) => None,
        };
        match (due_ns, deadline_ns) {
            (Some(due), Some(deadline)) => Some(due.min(deadline)),
            (due, deadline) => due.or(deadline),
        }
    }

    /// The result.
    pub(in crate::worker::websocket) fn finish(self) -> FanOutCounts {
        FanOutCounts {
            spans_ns: self.milestones.into_spans_ns(),
            ..self.counts
        }
    }

    /// Reads publications from the front of a subscriber's received bytes. Returns how many bytes these are,
    /// and whether the next frame is cut off.
    fn take(
        &mut self,
        received: &mut u64,
        data: &[u8],
        now_ns: u64,
        latency: &mut Recorder,
    ) -> (usize, bool) {
        let mut at = 0;
        loop {
            at += self.match_known(received, &data[at..], now_ns, latency);
            match self.read_frame(&data[at..]) {
                FrameContent::Delivery(delivery, bytes) => {
                    let frame = &data[at..at + bytes];
                    self.note(received, delivery, Some(frame), now_ns, latency);
                    at += bytes;
                }
                FrameContent::Cut => return (at, true),
                FrameContent::Other => return (at, false),
            }
        }
    }

    /// Counts the publications at the front of `data` that equal those that another subscriber received
    /// before.
    #[inline]
    fn match_known(
        &mut self,
        received: &mut u64,
        data: &[u8],
        now_ns: u64,
        latency: &mut Recorder,
    ) -> usize {
        let Some(known) = self.stream.after(*received) else {
            return 0;
        };
        let (last, bytes) = self.stream.whole(*received, bytes_alike(known, data));
        if last == *received {
            return 0;
        }
        self.stream.times(*received, last, |at_us, count| {
            latency.record_many_ns(now_ns.saturating_sub(at_us * 1_000), count);
        });
        self.has_moved |= self.milestones.pass(*received, last, now_ns);
        self.fresh += last - *received;
        self.fresh_ns = now_ns;
        *received = last;
        bytes
    }

    fn read_frame(&self, data: &[u8]) -> FrameContent {
        let header = match parse_extended_header(data, Role::Client, Extensions::None) {
            Ok(Some(header)) => header,
            Ok(None) if !data.is_empty() => return FrameContent::Cut,
            _ => return FrameContent::Other,
        };
        let template = &self.plan.template;
        let is_long = header.payload_bytes > (template.message_bytes() + POSITION_BYTES_MAX) as u64;
        if !header.fin || header.opcode != OpCode::Text || is_long {
            return FrameContent::Other;
        }
        let end = header.header_bytes + header.payload_bytes as usize;
        let Some(message) = data.get(header.header_bytes..end) else {
            return FrameContent::Cut;
        };
        match template.read(message) {
            Some(delivery) => FrameContent::Delivery(delivery, end),
            None => FrameContent::Other,
        }
    }

    /// Counts one publication that was parsed by itself.
    fn note(
        &mut self,
        received: &mut u64,
        delivery: Delivery,
        frame: Option<&[u8]>,
        now_ns: u64,
        latency: &mut Recorder,
    ) {
        let number = delivery.number;
        let ahead = |(epoch, offset): (u32, u64)| (epoch, offset.wrapping_sub(number));
        let position = delivery.position.map(ahead);
        let is_in_place = *self.position.get_or_insert(position) == position;
        if number > self.plan.published() || !is_in_place {
            self.counts.wrong += 1;
            return;
        }
        if number <= *received {
            self.counts.duplicates += 1;
            return;
        }
        self.counts.gaps += number - *received - 1;
        latency.record_ns(now_ns.saturating_sub(delivery.at_us * 1_000));
        self.has_moved |= self.milestones.pass(*received, number, now_ns);
        self.fresh += 1;
        self.fresh_ns = now_ns;
        *received = number;
        if let Some(frame) = frame.filter(|_| number > self.stream.last()) {
            if number > self.stream.last() + 1 {
                self.stream.restart(number - 1);
            }
            self.stream.push(frame, delivery.at_us);
        }
    }

    /// A connection is gone.
    fn leave(&mut self, connection: &Connection, now_ns: u64) {
        if connection.number == self.plan.publisher {
            self.publisher = None;
        } else {
            self.has_moved |= self.milestones.leave(connection.progress.received, now_ns);
        }
    }

    /// Reports to the publisher's worker how far the slowest subscriber is.
    fn report_progress(&mut self, index: usize) {
        if std::mem::take(&mut self.has_moved) {
            self.plan.set_received(index, self.milestones.received());
            if self.publisher.is_none() {
                self.plan.wake();
            }
        }
    }

    /// How a given rate was kept, for so long since the publisher began; by its worker alone.
    pub(in crate::worker::websocket) fn pace_kept(
        &self,
        stopped_ns: u64,
        offered_ns: u64,
    ) -> Option<PaceKept> {
        let Tempo::Paced { pace, per_s } = &self.plan.tempo else {
            return None;
        };
        let started_ns = self.started_ns?;
        let window_ns = stopped_ns.saturating_sub(started_ns);
        let offered_s = offered_ns.saturating_sub(started_ns) as f64 / 1e9;
        let share = Share::whole(pace.clone(), *per_s);
        Some(PaceKept {
            planned_per_s: *per_s,
            poisson: share.is_poisson(),
            planned: share.due_in(window_ns),
            // A publication leaves as soon as it is made, or waits in the outbox of its one connection.
            released: self.counts.published,
            offered: self.counts.published,
            window_s: window_ns as f64 / 1e9,
            released_s: offered_s,
            offered_s,
        })
    }

    /// The times at which the publications that may leave now were meant to, in microseconds since the epoch.
    fn due(&mut self, now_ns: u64, deadline_ns: Option<u64>, times_us: &mut Vec<u64>) {
        let Some(started_ns) = self.started_ns else {
            return;
        };
        let published = self.counts.published;
        match &self.plan.tempo {
            Tempo::Window(window) => {
                let received = self.plan.received_by_all();
                // Nobody is there to hear it.
                if received == UNKNOWN {
                    return;
                }
                let room = (received + window).saturating_sub(published);
                if room >= self.plan.stride {
                    times_us.resize(room as usize, now_ns / 1_000);
                }
            }
            Tempo::Paced { pace, .. } => {
                let at_ns = |index| started_ns.saturating_add(pace.intended_ns(index));
                let times_ns = (published..).map(at_ns);
                let end_ns = deadline_ns.unwrap_or(UNKNOWN).min(now_ns + 1);
                let due_ns = times_ns.take_while(|at| *at < end_ns);
                times_us.extend(due_ns.take(DUE_PER_TURN).map(|at| at / 1_000));
            }
        }
    }
}

impl Worker {
    /// Runs the tasks of a fan-out for one turn.
    pub(in crate::worker::websocket) fn fan_out_turn(&mut self, io: &mut Io, now_ns: u64) {
        let Some(phase) = &mut self.core.phase else {
            return;
        };
        let is_stopping = phase.is_stopping();
        let has_begun = phase.has_begun();
        let Some(fan) = &mut phase.fan else { return };
        fan.check_ns = now_ns + CHECK_NS;
        fan.report_progress(self.core.index);
        if has_begun && !std::mem::replace(&mut fan.has_reported_ready, has_begun) {
            fan.plan.add_ready();
        }
        if is_stopping {
            return self.find_complete(io);
        }
        if !fan.has_begun && fan.plan.is_ready() {
            fan.has_begun = true;
            fan.started_ns = fan.publisher.map(|_| now_ns);
            phase.count_time_from(now_ns);
        }
        let Some(fan) = &mut phase.fan else { return };
        let Some(publisher) = fan.publisher else {
            return;
        };
        let deadline_ns = phase.deadline_ns();
        let Some(fan) = &mut phase.fan else { return };
        let mut times_us = std::mem::take(&mut self.core.times_us);
        fan.due(now_ns, deadline_ns, &mut times_us);
        if !times_us.is_empty()
            && let Some((session, core)) = self.with(publisher)
        {
            core.write_publications(io, &mut session.connection, &times_us);
        }
        times_us.clear();
        self.core.times_us = times_us;
    }

    /// Ends the part of the subscribers that have every publication, as soon as the total is known.
    fn find_complete(&mut self, io: &mut Io) {
        let Some(phase) = &mut self.core.phase else {
            return;
        };
        let Some(fan) = phase.fan.as_mut().filter(|fan| fan.total.is_none()) else {
            return;
        };
        let Some(total) = fan.plan.total() else {
            return;
        };
        fan.total = Some(total);
        for session in self.sessions.iter_mut().flatten() {
            if session.connection.progress.received >= total {
                self.core.end_member(io, &mut session.connection);
            }
        }
    }
}

impl Core {
    /// Asks for the topic of a fan-out, unless the connection is the publisher.
    pub(in crate::worker::websocket) fn subscribe(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        publisher: usize,
    ) {
        if connection.number == publisher {
            connection.out.flush_controls(io, connection.id);
            return self.end_member(io, connection);
        }
        let mask = self.random.random();
        let channel = connection.channel.as_deref_mut();
        write_subscription(&mut connection.out.controls, TOPIC, mask, channel);
        connection.out.flush_controls(io, connection.id);
        let timeout_ms = self.setup.timeouts.barrier_ms;
        io.set_timer(connection.id, io.now().monotonic_ms + timeout_ms);
    }

    /// Whether the phase is one of asking for topics.
    pub(in crate::worker::websocket) fn is_subscribing(&self) -> bool {
        let activity = self.phase.as_ref().map(|phase| &phase.activity);
        matches!(activity, Some(Activity::Subscribe { .. }))
    }

    /// The answer to that.
    pub(in crate::worker::websocket) fn handle_subscription(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        message: &[u8],
    ) {
        if !self.is_subscribing() || connection.progress.task == Task::Idle {
            return;
        }
        if is_subscribed(message, TOPIC) {
            self.end_member(io, connection);
        } else {
            connection.failure = Some(Failure::NotSubscribed);
            io.abort(connection.id);
        }
    }

    /// Writes publications that were meant to leave at these times.
    fn write_publications(&mut self, io: &mut Io, connection: &mut Connection, times_us: &[u64]) {
        let Some(phase) = &mut self.phase else { return };
        let Some(fan) = &mut phase.fan else { return };
        let mut frames = std::mem::take(&mut self.frames);
        for at_us in times_us {
            fan.counts.published += 1;
            let stamp = (fan.counts.published, *at_us);
            let mask = self.random.random();
            let channel = connection.channel.as_deref_mut();
            let template = &fan.plan.template;
            template.write(self.setup.profile, stamp, mask, channel, &mut frames);
        }
        fan.plan.set_published(fan.counts.published);
        if phase.is_paced {
            let now_ns = self.setup.now_ns();
            phase.offered_ns = now_ns;
            for at_us in times_us {
                phase
                    .result
                    .late
                    .record_ns(now_ns.saturating_sub(at_us * 1_000));
            }
        }
        phase.result.offered += times_us.len() as u64 * fan.plan.subscribers;
        connection.out.flush_controls(io, connection.id);
        send_at_once(io, connection.id, &frames);
        frames.clear();
        self.frames = frames;
    }

    /// Reads publications from the front of `data`, as [`FanRun::take`] does.
    #[inline]
    pub(in crate::worker::websocket) fn match_deliveries(
        &mut self,
        connection: &mut Connection,
        data: &[u8],
    ) -> (usize, bool) {
        let now_ns = self.setup.now_ns();
        let Some(phase) = &mut self.phase else {
            return (0, false);
        };
        let Some(fan) = &mut phase.fan else {
            return (0, false);
        };
        if connection.number == fan.plan.publisher {
            return (0, false);
        }
        let received = &mut connection.progress.received;
        fan.take(received, data, now_ns, &mut phase.result.latency)
    }

    /// A message that the reader has read: a publication that was compressed, encrypted or in pieces, or
    /// something else.
    #[cold]
    pub(in crate::worker::websocket) fn handle_publication(
        &mut self,
        connection: &mut Connection,
        message: &[u8],
    ) {
        let now_ns = self.setup.now_ns();
        let Some(phase) = &mut self.phase else { return };
        let Some(fan) = &mut phase.fan else { return };
        // A plain server may send the publisher its own words back.
        if connection.number == fan.plan.publisher {
            return;
        }
        let received = &mut connection.progress.received;
        match fan.plan.template.read(message) {
            Some(delivery) => {
                fan.note(received, delivery, None, now_ns, &mut phase.result.latency);
            }
            None => fan.counts.wrong += 1,
        }
    }

    /// Everything that arrived together has been looked at.
    pub(in crate::worker::websocket) fn end_deliveries(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
    ) {
        let Some(phase) = &mut self.phase else { return };
        let Some(fan) = &mut phase.fan else { return };
        let fresh = std::mem::take(&mut fan.fresh);
        let (fresh_ns, total) = (fan.fresh_ns, fan.total);
        if fresh == 0 {
            return;
        }
        phase.result.confirmed += fresh;
        phase.count_confirmed(fresh, fresh_ns);
        if total.is_some_and(|total| connection.progress.received >= total) {
            self.end_member(io, connection);
        }
    }

    /// A connection of a fan-out is gone.
    pub(in crate::worker::websocket) fn leave_fan_out(&mut self, connection: &Connection) {
        let now_ns = self.setup.now_ns();
        let fan = self.phase.as_mut().and_then(|phase| phase.fan.as_mut());
        if let Some(fan) = fan {
            fan.leave(connection, now_ns);
        }
    }

    /// Nothing more is published: the publisher's part is done, and the others' soon.
    pub(in crate::worker::websocket) fn settle_fan_out(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
    ) {
        let fan = self.phase.as_ref().and_then(|phase| phase.fan.as_ref());
        match fan {
            Some(fan) if connection.number != fan.plan.publisher => {
                io.set_timer(connection.id, io.now().monotonic_ms + self.quiet_ms());
            }
            _ => self.end_member(io, connection),
        }
    }

    /// Gives a subscriber up when the server has been silent for too long.
    pub(in crate::worker::websocket) fn handle_quiet(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
    ) {
        let fan = self.phase.as_ref().and_then(|phase| phase.fan.as_ref());
        let fresh_ns = fan.map_or(0, |fan| fan.fresh_ns);
        let quiet_ms = self.quiet_ms();
        let silent_ms = self.setup.now_ns().saturating_sub(fresh_ns) / 1_000_000;
        if silent_ms < quiet_ms {
            io.set_timer(connection.id, io.now().monotonic_ms + quiet_ms - silent_ms);
        } else {
            self.end_member(io, connection);
        }
    }

    /// How long a server may be silent before missing publications count as lost.
    fn quiet_ms(&self) -> u64 {
        self.setup.timeouts.barrier_ms.min(QUIET_MS_MAX)
    }
}

/// How long duplicates of the last publications are waited for.
pub(in crate::worker::websocket) const TAIL_NS: u64 = 100_000_000;

/// Publications that leave at given times before anything is read.
const DUE_PER_TURN: usize = 16 * 1024;

/// The interval at which a worker looks at the progress of the others, where nothing wakes it.
const CHECK_NS: u64 = 1_000_000;

const QUIET_MS_MAX: u64 = 5_000;

/// The largest size that epoch and offset add to a publication.
const POSITION_BYTES_MAX: usize = 64;
