//! Pacing of users: at once after an answer, at given times on any free user, or each at its own
//! times.

use std::cmp::Reverse;

use super::Core;
use super::order::Tempo;
use super::phase::{Phase, interval_ns};
use super::user::{Pending, User, UserState};
use crate::accounting::tally::Exchange;
use crate::worker::walk::Walker;

impl Core {
    /// The user's next request, if it may send one now.
    #[inline]
    pub(super) fn next<S: Default>(&mut self, user: &mut User<S>) -> Option<Pending> {
        let now_ns = self.now_ns();
        let phase = self.phase.as_ref()?;
        if phase.is_over(now_ns) || user.rests_until_ns > now_ns {
            return None;
        }
        let (intended_ns, may_begin) = match &phase.order.tempo {
            // The time to open a connection for this request alone is part of its latency.
            Tempo::Closed => (now_ns, true),
            Tempo::Each { .. } if user.next_ns > now_ns => return None,
            Tempo::Each { .. } => (user.next_ns, true),
            // Only a journey that has begun continues by itself.
            Tempo::Open(_) if user.script.is_between() => return None,
            Tempo::Open(_) => (now_ns, false),
        };
        let is_between = user.script.is_between();
        if !self.setup.growth.is_constant() && self.is_leaving(user) && is_between {
            return None;
        }
        let step = self.pick(user, may_begin)?;
        let phase = self.phase.as_mut()?;
        if !phase.take() {
            return None;
        }
        if let Tempo::Each { per_s } = &phase.order.tempo {
            user.next_ns = user.next_ns.saturating_add(interval_ns(*per_s));
        }
        Some(self.pending(step, intended_ns))
    }

    /// The user's next step. A user none of whose steps is to be sent rests, and looks again.
    #[inline]
    fn pick<S>(&mut self, user: &mut User<S>, may_begin: bool) -> Option<u32> {
        let walker = Walker {
            number: user.number,
            users: self.setup.users,
            may_begin,
        };
        let script = &self.setup.script;
        let step = script.pick(&mut user.script, walker, &mut self.random);
        if step.is_none() && may_begin {
            self.rest_after_nothing(user);
        }
        step
    }

    fn rest_after_nothing<S>(&mut self, user: &mut User<S>) {
        match &mut self.phase {
            Some(phase) if phase.order.is_teardown => {
                user.rests_until_ns = u64::MAX;
                if user.script.end_teardown() {
                    phase.tearing_down = phase.tearing_down.saturating_sub(1);
                }
            }
            _ => {
                user.rests_until_ns = self.now_ns() + EMPTY_ROUND_NS;
                self.wake_at(user.rests_until_ns, user.index);
            }
        }
    }

    fn pending(&mut self, step: u32, intended_ns: u64) -> Pending {
        self.counts.outstanding += 1;
        Pending {
            target: self.setup.script.steps[step as usize].target,
            exchange: Exchange {
                intended_ns,
                step,
                ..Exchange::default()
            },
            is_again: false,
            redirects: 0,
            key: 0,
        }
    }

    /// The next request that is due at given times, and the user that sends it.
    pub(super) fn next_due<S: Default>(
        &mut self,
        users: &mut [User<S>],
        now_ns: u64,
    ) -> Option<(usize, Pending)> {
        if !self.is_due(now_ns) {
            return None;
        }
        let intended_ns = self.phase.as_ref()?.due_ns;
        loop {
            let place = self.next_free(users)?;
            let Some(step) = self.pick(&mut users[place], true) else {
                continue;
            };
            if !self.phase.as_mut()?.take() {
                return None;
            }
            return Some((place, self.pending(step, intended_ns)));
        }
    }

    /// Whether a request is due, and perhaps a user free for it.
    #[inline]
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        let is_due =
            |phase: &Phase| phase.due_ns <= now_ns.min(phase.end_ns) && !phase.is_over(now_ns);
        !self.queues.free.is_empty() && self.phase.as_ref().is_some_and(is_due)
    }

    /// The user that has been free for the longest time.
    fn next_free<S: Default>(&mut self, users: &mut [User<S>]) -> Option<usize> {
        while let Some(place) = self.queues.free.pop_front() {
            let user = &mut users[place as usize];
            user.is_listed = false;
            let is_there = matches!(user.link.state, UserState::Open | UserState::Absent);
            let is_idle = user.script.is_between() && user.owed.is_empty() && !user.link.is_spent;
            if is_there && is_idle && self.has_room(user) && !self.is_leaving(user) {
                return Some(place as usize);
            }
        }
        None
    }

    /// A user has nothing to send now: it waits for its time, or for a request that is due.
    #[inline]
    pub(super) fn wait<S: Default>(&mut self, user: &mut User<S>) {
        let now_ns = self.now_ns();
        let Some(phase) = self.phase.as_ref().filter(|phase| !phase.is_over(now_ns)) else {
            return;
        };
        match &phase.order.tempo {
            Tempo::Closed => {}
            // A request that is due and was not sent waits for something other than its time.
            Tempo::Each { .. } if self.has_room(user) && user.next_ns > now_ns => {
                let at_ns = user.next_ns;
                self.wake_at(at_ns, user.index);
            }
            Tempo::Each { .. } => {}
            Tempo::Open(_) => {
                if !user.is_listed && self.has_room(user) && user.script.is_between() {
                    user.is_listed = true;
                    self.queues.free.push_back(user.index);
                }
            }
        }
    }

    /// Lets the next requests of a user wait until the server pauses, at most for one turn more. A server sends the answers to
    /// several requests in pieces. If each piece were answered at once, the pieces would stay apart for ever. False if the
    /// user does not wait: it has nothing in flight, or its requests have given times.
    #[inline]
    pub(super) fn hold<S>(&mut self, user: &mut User<S>) -> bool {
        self.call.has_heard = true;
        let is_closed = |phase: &Phase| matches!(phase.order.tempo, Tempo::Closed);
        let is_free = self.phase.as_ref().is_some_and(is_closed);
        if !is_free || self.setup.in_flight == 1 || user.link.pending.is_empty() {
            return false;
        }
        if !std::mem::replace(&mut user.is_held, true) {
            self.queues.held.push_back(user.index);
        }
        true
    }

    /// At the end of a turn: the next user that has waited long enough.
    pub(super) fn next_held<S>(&mut self, users: &mut [User<S>]) -> Option<usize> {
        if self.call.has_heard && !self.queues.has_held {
            return None;
        }
        let place = self.queues.held.pop_front()? as usize;
        users[place].is_held = false;
        Some(place)
    }

    /// Whether users wait for the end of the next turn, which comes at once.
    pub(super) fn is_holding(&self) -> bool {
        !self.queues.held.is_empty()
    }

    /// Nothing more happens in this turn.
    pub(super) fn end_turn(&mut self) {
        self.queues.has_held = !self.queues.held.is_empty();
        self.call.has_heard = false;
    }

    /// Handles a user again at this time.
    pub(crate) fn wake_at(&mut self, at_ns: u64, place: u32) {
        self.queues.wakes.push(Reverse((at_ns, place)));
    }

    /// The next user whose wake-up time has passed.
    pub(super) fn next_awake<S: Default>(
        &mut self,
        users: &mut [User<S>],
        now_ns: u64,
    ) -> Option<usize> {
        let Reverse((at_ns, place)) = *self.queues.wakes.peek()?;
        if at_ns > now_ns {
            return None;
        }
        self.queues.wakes.pop();
        let place = place as usize;
        (place < users.len()).then_some(place)
    }

    /// A user waits before its next request.
    pub(crate) fn think<S: Default>(&mut self, user: &mut User<S>, step: u32, now_ns: u64) {
        let steps = &self.setup.script.steps;
        let think_ns = steps[step as usize].think_ns(&mut self.random);
        if think_ns > 0 {
            user.rests_until_ns = now_ns + think_ns;
            self.wake_at(user.rests_until_ns, user.index);
        }
    }

    /// The delay of the generator with a request, where the generator and not the server is
    /// responsible.
    #[inline]
    pub(super) fn note_lateness<S>(&mut self, user: &User<S>, pending: &Pending) {
        let Some(phase) = &self.phase else { return };
        if matches!(phase.order.tempo, Tempo::Closed) || pending.is_again {
            return;
        }
        let could_ns = pending.exchange.intended_ns.max(user.free_ns);
        let late_ns = pending.exchange.sent_ns.saturating_sub(could_ns);
        self.tally.late.record_ns(late_ns);
    }
}

/// The wait of a user between two rounds in which it sends nothing.
const EMPTY_ROUND_NS: u64 = 10_000_000;
