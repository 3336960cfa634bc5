//! Connections of a service load: begun as the load grows, a bounded number at a time.

use rand::Rng;
use std::time::Duration;
use tidewire_net::{Connect, Io, Usage, tls};

use super::Core;
use super::order::{DialogueKind, ServiceReport};
use super::user::{User, UserState};
use crate::accounting::ended::Ended;
use crate::accounting::failure::Failure;
use crate::accounting::tally::Tally;
use crate::worker::script::Encoded;

impl Core {
    /// All users get a connection, before a phase.
    pub(super) fn begin_connecting(&mut self) {
        self.is_connecting_all = true;
        self.restart_tally(self.now_ns());
    }

    /// The user's connection has ended before the plan ended it, or could not be opened.
    pub(super) fn lose<S: Default>(&mut self, user: &mut User<S>) {
        if !self.setup.reconnects {
            user.link.state = UserState::Gone;
            self.counts.gone += 1;
        }
    }

    /// The load shrinks below the user, which leaves.
    pub(super) fn retire<S: Default>(&mut self, user: &mut User<S>) {
        if user.link.state == UserState::Gone {
            self.counts.gone -= 1;
        }
        user.link.state = UserState::Retired;
    }

    /// A server that ends connections on which nothing was sent is not asked for the next one at once.
    pub(crate) fn rest_unused<S: Default>(&mut self, user: &mut User<S>) {
        let now_ns = self.now_ns();
        if user.link.state != UserState::Absent || user.link.pause_ns > now_ns {
            return;
        }
        if now_ns.saturating_sub(user.link.ready_ns) < LASTING_NS {
            user.link.is_replacing = true;
            user.link.failures = user.link.failures.saturating_add(1);
            user.link.pause_ns = now_ns + self.rest_ns(user.link.failures, RECONNECT_DOUBLINGS_MAX);
            self.wake_at(user.link.pause_ns, user.index);
        }
    }

    /// Counts a connection of messages that ended before the plan ended it. The next one waits, so
    /// that a server that accepts and closes at once is not flooded; a connection that lasted resets
    /// this wait.
    pub(crate) fn note_ended<S: Default>(&mut self, user: &mut User<S>, ended: Ended) {
        self.tally.ended.add(ended);
        let now_ns = self.now_ns();
        user.link.failures = match now_ns.saturating_sub(user.link.ready_ns) >= LASTING_NS {
            true => 0,
            false => user.link.failures.saturating_add(1),
        };
        user.link.is_replacing = true;
        user.link.pause_ns = now_ns + self.rest_ns(user.link.failures, RECONNECT_DOUBLINGS_MAX);
        self.wake_at(user.link.pause_ns, user.index);
        self.lose(user);
    }

    /// Answers when each user has a connection or its attempt has failed.
    pub(super) fn end_connecting<S>(&mut self, users: &[User<S>]) {
        let is_done = self.counts.begun >= users.len()
            && self.counts.handshakes == 0
            && self.queues.waiting.is_empty();
        if is_done {
            self.finish_connecting();
        }
    }

    /// Answers with the connections so far.
    pub(super) fn finish_connecting(&mut self) {
        if std::mem::take(&mut self.is_connecting_all) {
            let now_ns = self.now_ns();
            let tally = self.restart_tally(now_ns);
            self.report(ServiceReport::Connected(tally));
        }
    }

    pub(super) fn restart_tally(&mut self, start_ns: u64) -> Box<Tally> {
        let mut fresh = Tally::new(start_ns, self.setup.script.steps.len());
        fresh.peak = self.counts.connected;
        std::mem::replace(&mut self.tally, Box::new(fresh))
    }

    /// The next user that begins now, if any.
    pub(super) fn next_to_begin<S: Default>(&mut self, users: &mut [User<S>]) -> Option<usize> {
        let target = self.users_now()?;
        let next = self.counts.begun;
        let user = users.get_mut(next)?;
        if user.number >= target || self.counts.handshakes >= self.handshakes_max() {
            return None;
        }
        self.counts.begun += 1;
        // One that was never there, has left, or is gone: then another user has its number.
        if user.link.state == UserState::Gone {
            self.counts.gone -= 1;
        }
        if user.link.state == UserState::Retired {
            user.begin_again(self.setup.script.state(user.number));
        }
        user.link.state = UserState::Absent;
        user.next_ns = user.next_ns.max(self.now_ns());
        Some(next)
    }

    /// The last user, if the load has shrunk below it and it has nothing in flight.
    pub(super) fn next_to_retire<S: Default>(&mut self, users: &mut [User<S>]) -> Option<usize> {
        let target = self.users_now()?;
        let last = self.counts.begun.checked_sub(1)?;
        let user = &users[last];
        if user.number < target || !user.link.pending.is_empty() || !user.owed.is_empty() {
            return None;
        }
        self.counts.begun = last;
        Some(last)
    }

    /// Whether the user must leave, because the load shrinks.
    pub(super) fn is_leaving<S>(&self, user: &User<S>) -> bool {
        match self.is_teardown() {
            // Nobody else begins.
            true => user.index as usize >= self.counts.begun,
            false => self.users_now().is_some_and(|target| user.number >= target),
        }
    }

    /// Whether users send only the steps of their teardown.
    pub(super) fn is_teardown(&self) -> bool {
        self.phase
            .as_ref()
            .is_some_and(|phase| phase.order.is_teardown)
    }

    /// The current number of users over all workers; `None` while nothing runs, and during the teardown.
    fn users_now(&self) -> Option<usize> {
        if self.is_connecting_all {
            return Some(self.setup.users);
        }
        let phase = self
            .phase
            .as_ref()
            .filter(|phase| !phase.order.is_teardown)?;
        let elapsed = self.now_ns().saturating_sub(phase.order.start_ns);
        let elapsed = Duration::from_nanos(elapsed);
        Some(self.setup.growth.users_at(elapsed, self.setup.users))
    }

    /// The next time to check the number of users, in nanoseconds since the epoch.
    pub(super) fn next_growth_ns(&self) -> Option<u64> {
        let phase = self.phase.as_ref().filter(|phase| !phase.is_stopped)?;
        let elapsed_ns = self.now_ns().saturating_sub(phase.order.start_ns);
        let growth = &self.setup.growth;
        let next = growth.next_look(Duration::from_nanos(elapsed_ns), self.setup.users)?;
        Some(phase.order.start_ns + next.as_nanos() as u64)
    }

    fn handshakes_max(&self) -> usize {
        (self.setup.handshakes_in_flight_max / self.setup.workers.max(1)).max(1)
    }

    /// Opens a connection for a user without one, now or when fewer are being opened.
    pub(super) fn want_connection<S: Default>(&mut self, io: &mut Io, user: &mut User<S>) {
        if self.counts.handshakes < self.handshakes_max() {
            self.connect(io, user);
        } else {
            self.queues.waiting.push_back(user.index);
        }
    }

    /// Connects users that were waiting for a connection.
    pub(super) fn connect_waiting<S: Default>(&mut self, io: &mut Io, users: &mut [User<S>]) {
        while self.counts.handshakes < self.handshakes_max() {
            let Some(place) = self.queues.waiting.pop_front() else {
                return;
            };
            let user = &mut users[place as usize];
            if user.link.state == UserState::Absent && user.link.socket.is_none() {
                self.connect(io, user);
            }
        }
    }

    fn connect<S: Default>(&mut self, io: &mut Io, user: &mut User<S>) {
        // A turn may open many connections: each has a start of its own.
        self.look_at_clock();
        user.link.connect_ns = self.now_ns();
        user.link.part_ns = user.link.connect_ns;
        user.link.state = UserState::Connecting;
        user.has_tried = true;
        self.counts.handshakes += 1;
        self.tally.attempted += 1;
        let destination = self.destination(user);
        // TLS begins when TCP has been established, so that each has a time of its own.
        match io.connect_before_tls(destination) {
            Ok(id) => {
                user.link.socket = Some(id);
                if id.index() >= self.by_socket.len() {
                    self.by_socket.resize(id.index() + 1, u32::MAX);
                }
                self.by_socket[id.index()] = user.index;
                let timeout_ms = self.setup.timeouts.connect_ms;
                io.set_timer(id, io.now().monotonic_ms + timeout_ms);
            }
            Err(error) => self.fail_to_connect(user, Failure::of_io(&error).name()),
        }
    }

    fn destination<S>(&self, user: &User<S>) -> Connect {
        let (setup, endpoint) = (&self.setup, &self.target(user).endpoint);
        let tls = endpoint.tls.as_ref().and_then(|tls| {
            // Checked when the target was parsed.
            let name = tls::server_name(&tls.host).ok()?;
            Some((std::sync::Arc::clone(&tls.config), name))
        });
        let source = match setup.sources.len() {
            0 => None,
            count => Some(setup.sources[user.number % count]),
        };
        Connect {
            address: endpoint.address.clone(),
            source,
            tls,
            usage: self.usage(user),
        }
    }

    /// The use of a connection that is opened now.
    fn usage<S>(&self, user: &User<S>) -> Usage {
        let (setup, target) = (&self.setup, self.target(user));
        let greets = target.endpoint.tls.is_some()
            || target.endpoint.tunnel.is_some()
            || !matches!(target.dialogue, DialogueKind::Http);
        match user.owed.front() {
            _ if greets => Usage::WritesFirst,
            None => Usage::Any,
            Some(pending) => {
                // Cookies make it longer.
                let is_plain = pending.redirects == 0 && user.jar.is_empty();
                let is_only = !setup.keeps_alive && is_plain;
                let request = &setup.script.steps[pending.exchange.step as usize].request;
                match request {
                    Encoded::Fixed { bytes, .. } if is_only && bytes.len() <= SEGMENT_BYTES_MIN => {
                        Usage::WritesOnce
                    }
                    _ => Usage::WritesFirst,
                }
            }
        }
    }

    /// The connection of a user could not be opened. The request that waited for it has failed with
    /// it.
    pub(crate) fn fail_to_connect<S: Default>(&mut self, user: &mut User<S>, name: &'static str) {
        self.counts.handshakes -= 1;
        self.tally.not_opened += 1;
        user.forget_connection();
        let now_ns = self.now_ns();
        match user.owed.pop_front() {
            Some(pending) => {
                self.tally.send(&pending.exchange, Default::default());
                self.fail(user, &pending, name, 0);
            }
            None => self.tally.add_error(name),
        }
        user.link.pause_ns = now_ns + self.rest_ns(user.link.failures, CONNECT_DOUBLINGS_MAX);
        user.link.failures += 1;
        self.lose(user);
        self.wake_at(user.link.pause_ns, user.index);
    }

    /// Handles a user without a connection: it gets a connection if there is a use for it. It may go on with one to
    /// another server instead.
    pub(super) fn serve_absent<S: Default>(&mut self, io: &mut Io, user: &mut User<S>) {
        let now_ns = self.now_ns();
        let has_others = self.setup.targets.len() > 1;
        let is_paused = user.link.pause_ns > now_ns && !has_others;
        if user.rests_until_ns > now_ns || is_paused || user.link.socket.is_some() {
            return;
        }
        if self.is_connecting_all {
            return if !user.has_tried {
                user.link.target = self.setup.script.first_target(&user.script);
                self.want_connection(io, user);
            };
        }
        if user.owed.is_empty()
            && let Some(pending) = self.next(user)
        {
            user.owed.push_back(pending);
        }
        if let Some(pending) = user.owed.front().copied() {
            self.turns_for(user, &pending);
        }
        if user.link.state == UserState::Open {
            return;
        }
        let needs_it = self.is_running() && !self.is_teardown() && !self.is_leaving(user);
        // With several servers the next request says which one is needed.
        let is_kept = self.setup.keeps_alive && needs_it && !has_others;
        match user.owed.is_empty() && !is_kept {
            true => self.wait(user),
            // It is called again after the pause.
            false if user.link.pause_ns > now_ns => {}
            false => self.want_connection(io, user),
        }
    }

    /// A number from the worker's generator, such as for masks.
    pub(crate) fn draw(&mut self) -> [u8; 4] {
        self.random.random()
    }
}

/// A connection that lives this long is no failed attempt.
const LASTING_NS: u64 = 1_000_000_000;

/// 128 ms at most between two attempts to connect.
const CONNECT_DOUBLINGS_MAX: u32 = 7;

/// About a second at most between the ends of two connections of a user that did not last.
const RECONNECT_DOUBLINGS_MAX: u32 = 10;

/// Every segment holds this much: the smallest packet of IPv6, without headers and the options of TCP.
const SEGMENT_BYTES_MIN: usize = 1_200;
