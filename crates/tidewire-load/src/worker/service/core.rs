//! Core of a worker: counts, queues and the current phase, without the users.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidewire_http::response::ResponseHeads;
use tidewire_net::{ConnectionId, Io};

use super::order::{DialogueKind, ServiceReport, ServiceSetup, ServiceTarget};
use super::phase::Phase;
use super::user::{Pending, User, UserState};
use crate::accounting::live::ServiceCell;
use crate::accounting::tally::Tally;
use crate::report::model::ByteCounts;
use crate::verdict::expectation::ConnectPart;
use crate::worker;
use crate::worker::messages::{unix_s, unix_us};
use crate::worker::meter::Spin;
use crate::worker::script::Encoded;
use crate::worker::template::{Template, Unwritable, Values};

/// Creates the frame of a message, which has a number.
pub(crate) type Wrap<'a> = &'a mut dyn FnMut(&mut SmallRng, (u64, &[u8]), &mut Vec<u8>);

/// The state that users share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) setup: Arc<ServiceSetup>,
    pub(super) index: usize,
    pub(super) outcomes: Sender<(usize, ServiceReport)>,
    pub(super) live: Arc<ServiceCell>,
    pub(crate) random: SmallRng,
    /// The next number for `{{seq}}`.
    sequence: u64,
    /// The index of the user that has the socket with this index.
    pub(super) by_socket: Vec<u32>,
    pub(crate) tally: Box<Tally>,
    pub(super) phase: Option<Phase>,
    /// All users are being connected before a phase.
    pub(super) is_connecting_all: bool,
    /// The numbers of users.
    pub(crate) counts: UserCounts,
    /// The state that the readers of a proxy's responses share.
    pub(super) proxy_heads: ResponseHeads,
    /// The users that wait.
    pub(crate) queues: Queues,
    /// The current call of the shard.
    pub(crate) call: Call,
    pub(super) spin: Spin,
    pub(super) published_ns: u64,
    /// The number of the values that a conversation captures.
    captured: usize,
    scratch: Vec<u8>,
    message: Vec<u8>,
}

/// The numbers of users of a worker, by their state.
#[derive(Debug)]
pub(crate) struct UserCounts {
    /// Users that have started.
    pub(super) begun: usize,
    pub(super) handshakes: usize,
    pub(super) connected: u64,
    /// Users whose connection has ended and is not replaced.
    pub(super) gone: u64,
    /// Pending and waiting requests.
    pub(super) outstanding: u64,
}

/// The users of a worker that wait, by what they wait for.
#[derive(Debug)]
pub(crate) struct Queues {
    /// Users that wait until fewer connections are being opened.
    pub(super) waiting: VecDeque<u32>,
    /// Users that are free, at given times.
    pub(super) free: VecDeque<u32>,
    /// Users whose next requests wait, and whether they have waited for a turn.
    pub(super) held: VecDeque<u32>,
    pub(super) has_held: bool,
    /// The times at which users must be handled.
    pub(super) wakes: BinaryHeap<Reverse<(u64, u32)>>,
}

/// The current call from the shard to its worker.
#[derive(Debug)]
pub(crate) struct Call {
    /// Data has arrived in this turn.
    pub(super) has_heard: bool,
    /// Outside of a call for one connection: messages then leave at once.
    pub(super) is_in_turn: bool,
    /// The time at which the shard last called, in nanoseconds since the epoch.
    called_ns: u64,
}

impl Core {
    /// `number` is that of the worker among all workers of the load, `index` its place in this process.
    pub(super) fn new(
        setup: Arc<ServiceSetup>,
        (number, index): (usize, usize),
        outcomes: Sender<(usize, ServiceReport)>,
        live: Arc<ServiceCell>,
    ) -> Self {
        let random = SmallRng::seed_from_u64(worker::seed(setup.seed, number));
        let tally = Tally::new(setup.now_ns(), setup.script.steps.len());
        Self {
            index,
            outcomes,
            live,
            random,
            sequence: number as u64 + 1,
            by_socket: Vec::new(),
            tally: Box::new(tally),
            phase: None,
            is_connecting_all: false,
            counts: UserCounts {
                begun: 0,
                handshakes: 0,
                connected: 0,
                gone: 0,
                outstanding: 0,
            },
            proxy_heads: ResponseHeads::default(),
            queues: Queues {
                waiting: VecDeque::new(),
                free: VecDeque::new(),
                held: VecDeque::new(),
                has_held: false,
                wakes: BinaryHeap::new(),
            },
            call: Call {
                has_heard: false,
                is_in_turn: false,
                called_ns: 0,
            },
            spin: Spin::default(),
            published_ns: 0,
            captured: setup.messages().map_or(0, |messages| messages.captured),
            scratch: Vec::new(),
            message: Vec::new(),
            setup,
        }
    }

    /// Reads the clock: once in each call of the shard, because a call takes only a microsecond or
    /// two.
    #[inline]
    pub(super) fn look_at_clock(&mut self) {
        self.call.called_ns = self.setup.now_ns();
    }

    /// The time at which the shard last called.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.call.called_ns
    }

    /// The server to which a user speaks.
    #[inline]
    pub(crate) fn target<S>(&self, user: &User<S>) -> &ServiceTarget {
        &self.setup.targets[usize::from(user.link.target)]
    }

    /// The dialogue's own handshake is complete: the user may send.
    pub(crate) fn ready<S: Default>(&mut self, user: &mut User<S>) {
        let now_ns = self.now_ns();
        user.link.state = UserState::Open;
        if std::mem::take(&mut user.link.is_replacing) {
            self.tally.reconnected += 1;
        } else {
            user.link.failures = 0;
        }
        user.link.ready_ns = now_ns;
        user.free_ns = now_ns;
        self.counts.handshakes -= 1;
        self.counts.connected += 1;
        self.tally.opened += 1;
        self.tally.peak = self.tally.peak.max(self.counts.connected);
        let connect = &mut self.tally.connect;
        connect
            .ready
            .record_ns(now_ns.saturating_sub(user.link.connect_ns));
        if let DialogueKind::Messages(_) = self.target(user).dialogue {
            self.note_part(user, ConnectPart::Upgrade);
        }
    }

    /// A part of connecting is complete, and the next one begins.
    pub(super) fn note_part<S>(&mut self, user: &mut User<S>, part: ConnectPart) {
        let now_ns = self.now_ns();
        let time_ns = now_ns.saturating_sub(user.link.part_ns);
        self.tally.connect.record_part(part, time_ns);
        user.link.part_ns = now_ns;
    }

    /// The connection does not meet the requirements of the dialogue.
    pub(crate) fn refuse<S: Default>(
        &mut self,
        io: &mut Io,
        user: &mut User<S>,
        name: &'static str,
    ) {
        if let Some(id) = user.link.socket {
            io.abort(id);
        }
        self.fail_to_connect(user, name);
    }

    /// Whether another request may be sent on the user's connection.
    #[inline]
    pub(super) fn has_room<S>(&self, user: &User<S>) -> bool {
        user.link.pending.len() < self.setup.in_flight.min(user.link.room) as usize
    }

    /// A request leaves now.
    #[inline]
    pub(crate) fn begin_request<S>(&mut self, user: &User<S>, pending: &mut Pending) {
        if self.call.is_in_turn {
            // This call may have sent many requests before it.
            self.look_at_clock();
        }
        pending.exchange.sent_ns = self.now_ns();
        self.note_lateness(user, pending);
    }

    /// Counts a request that has left, and sets the timer for its answer.
    #[inline]
    pub(crate) fn note_request<S: Default>(
        &mut self,
        io: &mut Io,
        user: &mut User<S>,
        pending: &Pending,
        counts: ByteCounts,
    ) {
        user.link.sent_here += 1;
        self.tally.send(&pending.exchange, counts);
        if let Some(id) = user.link.socket
            && !user.link.is_timed
        {
            user.link.is_timed = true;
            let timeout_ms = self.setup.timeouts.request_ms;
            io.set_timer(id, io.now().monotonic_ms + timeout_ms);
        }
    }

    /// The bytes of a step without values, if the user has nothing to add to them.
    #[inline]
    pub(crate) fn constant_request<S>(&self, user: &User<S>, step: u32) -> Option<(&[u8], usize)> {
        match &self.setup.script.steps[step as usize].request {
            Encoded::Fixed { bytes, head_bytes }
                if user.detour.is_none() && user.jar.is_empty() =>
            {
                Some((bytes, *head_bytes))
            }
            _ => None,
        }
    }

    /// Fills `out` with the request of a step, its values and the cookies of its user, or with the one that follows a
    /// redirect. Returns the length of the head.
    pub(crate) fn render_request<S>(
        &mut self,
        user: &mut User<S>,
        step: u32,
        out: &mut Vec<u8>,
    ) -> usize {
        out.clear();
        let setup = Arc::clone(&self.setup);
        let cookies = setup.targets[usize::from(user.link.target)]
            .cookies
            .as_ref();
        let mut message = std::mem::take(&mut self.message);
        let (bytes, head_bytes) = match (&user.detour, &setup.script.steps[step as usize].request) {
            (Some(detour), _) => (&detour.bytes, detour.head_bytes),
            (None, Encoded::Fixed { bytes, head_bytes }) => (bytes, *head_bytes),
            (None, _) => {
                message.clear();
                let mut values = self.values(&setup, user);
                let counts = setup
                    .script
                    .write(step as usize, &mut values, out, &mut message)
                    // The plan refuses a body that cannot be written with all values.
                    .unwrap_or_default();
                let head_bytes = counts.head as usize;
                // A redirect needs all of it, a cookie its path.
                let kept_bytes = match setup.redirects_max {
                    0 if cookies.is_none() => 0,
                    0 => head_bytes,
                    _ => message.len(),
                };
                user.rendered.keep(&message[..kept_bytes], head_bytes);
                (&message, head_bytes)
            }
        };
        out.clear();
        let head_bytes = match cookies.filter(|_| !user.jar.is_empty()) {
            None => {
                out.extend_from_slice(bytes);
                head_bytes
            }
            Some(origin) => user.jar.write((bytes, head_bytes), origin, unix_s(), out),
        };
        self.message = message;
        head_bytes
    }

    /// Writes the frame of a message's step, which `wrap` makes of its bytes.
    pub(crate) fn write_message<S>(
        &mut self,
        io: &mut Io,
        user: &mut User<S>,
        step: u32,
        wrap: Wrap<'_>,
    ) -> Result<ByteCounts, Unwritable> {
        let Some(id) = user.link.socket else {
            return Ok(ByteCounts::default());
        };
        let mut message = std::mem::take(&mut self.message);
        let mut frame = std::mem::take(&mut self.scratch);
        message.clear();
        let setup = Arc::clone(&self.setup);
        let mut values = self.values(&setup, user);
        let (script, sequence) = (&setup.script, values.sequence);
        let written = script.write(step as usize, &mut values, &mut frame, &mut message);
        frame.clear();
        if written.is_ok() {
            wrap(&mut self.random, (sequence, &message), &mut frame);
            self.write(io, id, &frame);
        }
        let counts = ByteCounts {
            wire: frame.len() as u64,
            head: 0,
            body: message.len() as u64,
        };
        (self.message, self.scratch) = (message, frame);
        written.map(|_| counts)
    }

    /// Appends a text of the user's that is not a request.
    pub(crate) fn render_template<S>(
        &mut self,
        user: &User<S>,
        template: &Template,
        out: &mut Vec<u8>,
    ) -> Result<(), Unwritable> {
        let setup = Arc::clone(&self.setup);
        template.write(&mut self.values(&setup, user), out)
    }

    /// The values of one text.
    fn values<'a, S>(&'a mut self, setup: &'a ServiceSetup, user: &'a User<S>) -> Values<'a> {
        Values {
            sequence: self.next_sequence(),
            user: user.number as u64,
            unix_us: unix_us(),
            random: &mut self.random,
            captured: &user.script.captured,
            feeds: &setup.script.feeds,
            rows: &user.script.rows,
        }
    }

    fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += self.setup.workers as u64;
        sequence
    }

    /// Writes at once where there is one write per request anyway, so that the time of sending is
    /// known; several requests that leave together are one write, see [`Core::flush`].
    #[inline]
    pub(crate) fn write(&self, io: &mut Io, id: ConnectionId, bytes: &[u8]) {
        if self.setup.in_flight > 1 {
            io.send(id, bytes);
            return;
        }
        let taken = io.write_now(id, bytes);
        if taken < bytes.len() {
            io.send(id, &bytes[taken..]);
        }
    }

    /// Writes what the requests of a user have left, where other users follow in the same call.
    #[inline]
    pub(super) fn flush<S>(&self, io: &mut Io, user: &User<S>) {
        if self.call.is_in_turn
            && self.setup.in_flight > 1
            && let Some(id) = user.link.socket
        {
            io.flush(id);
        }
    }

    /// A request expects nothing more.
    #[inline]
    pub(crate) fn settle<S: Default>(&mut self, user: &mut User<S>, now_ns: u64) {
        self.counts.outstanding -= 1;
        user.free_ns = now_ns;
    }

    /// A request failed.
    pub(crate) fn fail<S: Default>(
        &mut self,
        user: &mut User<S>,
        pending: &Pending,
        name: &'static str,
        status: u16,
    ) {
        let now_ns = self.now_ns();
        self.tally.fail(&pending.exchange, name, status, now_ns);
        self.settle(user, now_ns);
        // A journey does not continue after a failed step.
        user.script.end_round();
    }

    /// A request is sent again on another connection, once.
    pub(crate) fn send_again<S: Default>(&mut self, user: &mut User<S>, pending: Pending) {
        self.tally.send_again(&pending.exchange);
        user.owed.push_back(Pending {
            is_again: true,
            ..pending
        });
    }

    /// Releases a connection, if there is one.
    pub(crate) fn drop_connection<S: Default>(&mut self, io: &mut Io, user: &mut User<S>) {
        if let Some(id) = user.link.socket {
            io.abort(id);
            self.note_gone(user);
        }
    }

    /// Releases a connection that accepts no more requests. The next one waits if this one was not used at all.
    pub(crate) fn replace_connection<S: Default>(&mut self, io: &mut Io, user: &mut User<S>) {
        let is_unused = user.link.sent_here == 0;
        self.drop_connection(io, user);
        if is_unused {
            self.rest_unused(user);
        }
    }

    /// Releases the connections of a user to other servers.
    pub(super) fn drop_parked<S: Default>(&mut self, io: &mut Io, user: &mut User<S>) {
        for id in user
            .parked
            .drain(..)
            .filter_map(|parked| parked.link.socket)
        {
            io.abort(id);
            self.counts.connected -= 1;
        }
    }

    /// Whether the user goes on with its connection to another server, because this request is for that one.
    #[inline]
    pub(super) fn turns_for<S: Default>(&self, user: &mut User<S>, pending: &Pending) -> bool {
        let turns = pending.target != user.link.target;
        if turns {
            user.turn_to(pending.target, self.captured);
        }
        turns
    }

    /// Ends a connection, if there is one, after the data that waits to be sent.
    pub(crate) fn close_connection<S: Default>(&mut self, io: &mut Io, user: &mut User<S>) {
        if let Some(id) = user.link.socket {
            io.close(id);
            self.note_gone(user);
        }
    }

    /// The connection of a user has ended.
    pub(super) fn note_gone<S: Default>(&mut self, user: &mut User<S>) {
        match user.link.state {
            UserState::Connecting | UserState::Securing | UserState::Greeting => {
                self.counts.handshakes -= 1;
            }
            _ => self.counts.connected -= 1,
        }
        user.forget_connection();
    }

    /// Whether the oldest request of a user has waited too long. Sets the timer again if it has
    /// not.
    pub(super) fn is_overdue<S: Default>(&self, io: &mut Io, user: &mut User<S>) -> bool {
        user.link.is_timed = false;
        let (Some(id), Some(oldest)) = (user.link.socket, user.link.pending.front()) else {
            return false;
        };
        let waited_ms = self.now_ns().saturating_sub(oldest.exchange.sent_ns) / 1_000_000;
        let left_ms = self.setup.timeouts.request_ms.saturating_sub(waited_ms);
        if left_ms > 0 {
            user.link.is_timed = true;
            io.set_timer(id, io.now().monotonic_ms + left_ms);
        }
        left_ms == 0
    }

    /// The waiting time after this number of consecutive failures, drawn so that users do not all
    /// retry at once.
    pub(super) fn rest_ns(&mut self, failures: u32, doublings_max: u32) -> u64 {
        let longest = REST_NS_MIN << failures.min(doublings_max);
        self.random.random_range(longest / 2..=longest)
    }
}

const REST_NS_MIN: u64 = 1_000_000;
