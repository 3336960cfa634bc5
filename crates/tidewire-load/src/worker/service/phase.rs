//! A phase of a service load: from its start to the last answer.

use tidewire_net::{Io, SPIN};

use super::Core;
use super::order::{ServicePhase, ServiceReport, Tempo};
use super::user::{User, UserState};
use crate::accounting::live::UsersLive;
use crate::worker::meter::Meter;
use crate::worker::pace::parts;

/// The current phase.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) order: ServicePhase,
    /// The end of sending, in nanoseconds since the epoch.
    pub(super) end_ns: u64,
    /// Requests begun.
    pub(super) sent: u64,
    /// With requests at given times: the time at which the next is due, in nanoseconds since the
    /// epoch; `u64::MAX` after the last.
    pub(super) due_ns: u64,
    /// Sending has ended.
    pub(super) is_stopped: bool,
    stopped_ns: u64,
    /// With requests at given times of each connection: those that were due and not begun, once
    /// they are counted.
    unsent: Option<u64>,
    /// In the phase of the teardown: users that have not sent all of theirs.
    pub(super) tearing_down: usize,
    meter: Meter,
}

impl Phase {
    #[inline]
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        self.is_stopped || now_ns >= self.end_ns
    }

    /// Removes a request from the budget and sets the due time of the next one; false if none is left.
    #[inline]
    pub(super) fn take(&mut self) -> bool {
        if let Some(budget) = &self.order.budget
            && !budget.take()
        {
            return false;
        }
        self.sent += 1;
        self.due_ns = self.order.due_ns(self.sent);
        true
    }
}

impl Core {
    pub(super) fn begin_phase<S: Default>(&mut self, order: ServicePhase, users: &mut [User<S>]) {
        self.is_connecting_all = false;
        let start_ns = order.start_ns;
        // A connection that ended between two phases ended before the plan ended it.
        let between = self.restart_tally(start_ns);
        self.tally.keep_connections(&between);
        self.queues.free.clear();
        self.queues.wakes.clear();
        if self.setup.growth.is_constant() {
            self.counts.begun = users.len();
        }
        for user in users.iter_mut() {
            user.is_listed = false;
            user.rests_until_ns = 0;
            user.end_pauses();
            user.script.end_round();
            if order.is_teardown {
                user.script.begin_teardown();
            }
            if let Tempo::Each { per_s } = &order.tempo {
                let part = user.number as f64 / self.setup.users.max(1) as f64;
                // Without a rate, never.
                user.next_ns = start_ns.saturating_add((part * 1e9 / per_s) as u64);
                if *per_s <= 0.0 {
                    user.next_ns = u64::MAX;
                }
            }
            if order.revives && user.link.state == UserState::Gone {
                user.link.state = UserState::Absent;
                self.counts.gone -= 1;
            }
        }
        let longest = order.longest.map(|longest| longest.as_nanos() as u64);
        self.phase = Some(Phase {
            end_ns: longest.map_or(u64::MAX, |longest| start_ns.saturating_add(longest)),
            due_ns: order.due_ns(0),
            order,
            sent: 0,
            is_stopped: false,
            stopped_ns: 0,
            unsent: None,
            tearing_down: users[..self.counts.begun]
                .iter()
                .filter(|user| user.is_there())
                .count(),
            meter: Meter::start(self.spin.spun(), self.now_ns()),
        });
    }

    /// Whether requests are being sent.
    pub(super) fn is_running(&self) -> bool {
        self.phase.as_ref().is_some_and(|phase| !phase.is_stopped)
    }

    /// Ends sending.
    pub(super) fn stop_phase(&mut self) {
        let now_ns = self.now_ns();
        self.finish_connecting();
        if let Some(phase) = self.phase.as_mut().filter(|phase| !phase.is_stopped) {
            phase.is_stopped = true;
            phase.stopped_ns = now_ns.min(phase.end_ns);
        }
    }

    /// Ends a phase when its time is over and everything is answered, or the time for answers is
    /// over, too.
    pub(super) fn end_phase<S: Default>(&mut self, io: &mut Io, users: &mut [User<S>]) {
        let Some(phase) = &self.phase else { return };
        let now_ns = self.now_ns();
        let is_spent = phase
            .order
            .budget
            .as_ref()
            .is_some_and(|budget| budget.is_spent());
        if now_ns >= phase.end_ns || is_spent || self.has_sent_all() {
            self.stop_phase();
        }
        if !self.phase.as_ref().is_some_and(|phase| phase.is_stopped) {
            return;
        }
        self.count_unsent(users, is_spent);
        let Some(phase) = &self.phase else { return };
        let drain_ns = self.setup.timeouts.drain_ms * 1_000_000;
        if self.counts.outstanding > 0 && now_ns >= phase.stopped_ns.saturating_add(drain_ns) {
            self.abandon(io, users);
        }
        if self.counts.outstanding == 0 {
            self.finish_phase();
        }
    }

    /// Whether the given times are over.
    fn has_sent_all(&self) -> bool {
        let Some(phase) = &self.phase else {
            return false;
        };
        match &phase.order.tempo {
            Tempo::Open(share) => phase.due_ns == u64::MAX && !share.is_none(),
            Tempo::Closed => phase.order.is_teardown && phase.tearing_down == 0,
            Tempo::Each { .. } => false,
        }
    }

    /// Counts, once, the requests at given times of each connection that were due before the end
    /// and were not begun. A connection that is not open has nothing due; one that waits for a
    /// response could not send. A spent budget is the end of the plan.
    fn count_unsent<S>(&mut self, users: &[User<S>], is_spent: bool) {
        let Some(phase) = self.phase.as_ref().filter(|phase| phase.unsent.is_none()) else {
            return;
        };
        let stopped_ns = phase.stopped_ns;
        let (mut unsent, mut starved) = (0, 0);
        self.tally.stopped_ns = stopped_ns;
        if let Tempo::Each { per_s } = &phase.order.tempo
            && !is_spent
        {
            let gap_ns = interval_ns(*per_s);
            let begun = users.get(..self.counts.begun).unwrap_or(users);
            for user in begun {
                let is_open = user.link.state == UserState::Open;
                let is_there = is_open || !self.setup.keeps_alive;
                let rests = user.rests_until_ns.max(user.link.pause_ns) > stopped_ns
                    || self.is_leaving(user);
                if !is_there || rests || user.next_ns >= stopped_ns {
                    continue;
                }
                let due = (stopped_ns - user.next_ns).div_ceil(gap_ns);
                for (number, count) in parts(due) {
                    let intended_ns = user.next_ns.saturating_add(number.saturating_mul(gap_ns));
                    self.tally.leave_unsent(intended_ns, stopped_ns, count);
                }
                unsent += due;
                // What was due before the last response arrived was waiting for that response.
                let waited_until_ns = match is_open && self.has_room(user) {
                    true => user.free_ns.min(stopped_ns),
                    false => stopped_ns,
                };
                starved += waited_until_ns
                    .saturating_sub(user.next_ns)
                    .div_ceil(gap_ns);
            }
        }
        self.tally.starved += starved;
        if let Some(phase) = &mut self.phase {
            phase.unsent = Some(unsent);
        }
    }

    fn finish_phase(&mut self) {
        let Some(mut phase) = self.phase.take() else {
            return;
        };
        self.tally.stopped_ns = phase.stopped_ns;
        let now_ns = self.now_ns();
        match &phase.order.tempo {
            Tempo::Closed => {}
            Tempo::Each { .. } => self.tally.due = phase.sent + phase.unsent.unwrap_or(0),
            Tempo::Open(share) => {
                let window_ns = phase.stopped_ns.saturating_sub(phase.order.start_ns);
                let is_spent = phase
                    .order
                    .budget
                    .as_ref()
                    .is_some_and(|all| all.is_spent());
                self.tally.due = match is_spent {
                    // The plan has ended with its last request.
                    true => phase.sent,
                    false => share.due_in(window_ns),
                };
                for (number, count) in parts(self.tally.due.saturating_sub(phase.sent)) {
                    let intended_ns = phase.order.due_ns(phase.sent + number);
                    self.tally.leave_unsent(intended_ns, now_ns, count);
                }
                // The service is not responsible for a request that was due while a user was free.
                if self.queues.free.is_empty() {
                    self.tally.starved += self.tally.due.saturating_sub(phase.sent);
                }
            }
        }
        self.tally.waits = phase.meter.waits(now_ns);
        self.tally.cpu = phase.meter.stop(self.spin.spun());
        self.publish_now();
        let tally = self.restart_tally(self.now_ns());
        self.report(ServiceReport::Done(tally));
    }

    /// Reports the end of the order to close, after every connection has begun to close.
    pub(super) fn end_closing(&mut self) {
        let tally = self.restart_tally(self.now_ns());
        self.report(ServiceReport::Closed(tally));
    }

    /// Abandons unanswered requests.
    pub(super) fn abandon<S: Default>(&mut self, io: &mut Io, users: &mut [User<S>]) {
        let now_ns = self.now_ns();
        if let Some(phase) = &self.phase {
            self.tally.stopped_ns = phase.stopped_ns;
        }
        for user in users {
            let any = !user.link.pending.is_empty();
            for pending in user.link.pending.drain(..) {
                self.counts.outstanding -= 1;
                self.tally.leave_unfinished(&pending.exchange, now_ns);
            }
            for pending in user.owed.drain(..) {
                self.counts.outstanding -= 1;
                if pending.is_again {
                    self.tally.requests.sent += 1;
                    self.tally.leave_unfinished(&pending.exchange, now_ns);
                } else {
                    self.tally.starved += 1;
                    let intended_ns = pending.exchange.intended_ns;
                    self.tally.leave_unsent(intended_ns, now_ns, 1);
                }
            }
            if any || user.link.state != UserState::Open {
                self.drop_connection(io, user);
            }
        }
        self.queues.waiting.clear();
    }

    pub(super) fn report(&self, outcome: ServiceReport) {
        // A dropped fleet waits for nothing.
        let _ = self.outcomes.send((self.index, outcome));
    }

    /// The next time at which something must be done without an event, in nanoseconds since the
    /// epoch.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let wake_ns = self.queues.wakes.peek().map(|wake| wake.0.0);
        let phase = self.phase.as_ref();
        let drain_ns = self.setup.timeouts.drain_ms * 1_000_000;
        let end_ns = phase.map(|phase| match phase.is_stopped {
            true => phase.stopped_ns.saturating_add(drain_ns),
            false => phase.end_ns,
        });
        let due_ns = phase
            .filter(|phase| !phase.is_stopped && !self.queues.free.is_empty())
            .map(|phase| phase.due_ns);
        // Observers of a load see that no answers arrive.
        let publish_ns = phase.map(|_| self.published_ns + PUBLISH_NS);
        let times = [wake_ns, end_ns, due_ns, publish_ns, self.next_growth_ns()];
        times
            .into_iter()
            .flatten()
            .min()
            .filter(|at| *at < u64::MAX)
    }

    /// Whether the worker polls until the next request is due.
    pub(super) fn note_spin(&mut self) {
        let is_paced = self
            .phase
            .as_ref()
            .is_some_and(|phase| !phase.is_stopped && !matches!(phase.order.tempo, Tempo::Closed));
        if !is_paced {
            return;
        }
        let now_ns = self.now_ns();
        let wait_ns = self
            .next_ns()
            .map_or(0, |next_ns| next_ns.saturating_sub(now_ns));
        if (1..=SPIN.as_nanos() as u64).contains(&wait_ns) {
            self.spin.begin(now_ns);
        }
    }

    #[inline]
    pub(super) fn end_spin(&mut self) {
        if self.spin.is_on() {
            let now_ns = self.now_ns();
            self.spin.end(now_ns);
        }
    }

    /// Publishes the current figures at intervals.
    #[inline]
    pub(super) fn publish(&mut self) {
        let now_ns = self.now_ns();
        if now_ns.saturating_sub(self.published_ns) >= PUBLISH_NS {
            self.published_ns = now_ns;
            if let Some(phase) = &mut self.phase {
                phase.meter.look(now_ns);
            }
            self.publish_now();
        }
    }

    fn publish_now(&self) {
        let start_ns = self.tally.start_ns;
        let since_ns = self.now_ns().saturating_sub(start_ns);
        let users = UsersLive {
            connected: self.counts.connected,
            gone: self.counts.gone,
            outstanding: self.counts.outstanding,
        };
        self.live.publish(&self.tally, &users, since_ns);
    }
}

/// The time between two requests of a connection, in nanoseconds.
pub(super) fn interval_ns(per_s: f64) -> u64 {
    ((1e9 / per_s) as u64).max(1)
}

const PUBLISH_NS: u64 = 50_000_000;
