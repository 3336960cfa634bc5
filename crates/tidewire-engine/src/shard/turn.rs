//! Turn of a shard: its steps in their order and, for each, when it has to be done though no socket has anything.
//!
//! A step that can leave work for a later turn defines here when it wakes the shard. Otherwise the shard does
//! not wake for that work.

use crate::session::application::Application;
use crate::shard::{EngineShard, SWEEP_INTERVAL_MS, wire_now};
use crate::topics::outlet::Origin;
use std::time::{Duration, Instant};
use tidewire_net::Io;

/// When a step has work of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    /// When a socket, a mail or the clock of a connection brings some.
    Idle,
    /// It has some.
    Now,
    /// It has some that waits for others: it asks again after this time.
    After(Duration),
    At(Instant),
}

impl Wake {
    fn now_if(has_work: bool) -> Self {
        if has_work { Self::Now } else { Self::Idle }
    }

    fn soon_if(waits: bool) -> Self {
        if waits {
            Self::After(RETRY)
        } else {
            Self::Idle
        }
    }

    fn at(time: Option<Instant>) -> Self {
        time.map_or(Self::Idle, Self::At)
    }

    /// The time, given that of the last turn.
    #[inline]
    fn time(self, turned: Option<Instant>) -> Option<Instant> {
        match self {
            Self::Idle => None,
            Self::Now => turned,
            Self::After(pause) => turned.map(|turned| turned + pause),
            Self::At(time) => Some(time),
        }
    }
}

/// Makes both lists from one: the steps of a turn, and when the next turn is due.
macro_rules! steps {
    ($($step:ident: $run:expr, $wake:expr;)*) => {
        impl<A: Application> EngineShard<A> {
            /// Does all steps.
            #[inline]
            pub(crate) fn take_steps(&mut self, io: &mut Io) {
                $({
                    let $step: fn(&mut Self, &mut Io) = $run;
                    $step(self, io);
                })*
            }

            /// When the shard has to have a turn though no socket has anything.
            pub(crate) fn wake_at(&self) -> Option<Instant> {
                let mut wakes = None;
                $({
                    let $step: fn(&Self) -> Wake = $wake;
                    let time = $step(self).time(self.turned);
                    wakes = earlier(wakes, time);
                })*
                wakes
            }
        }
    };
}

steps! {
    stop: |shard, io| shard.stop_if_told(io), |shard| Wake::now_if(shard.is_stopping);
    // The application wakes the shard itself.
    application: |shard, _| shard.tell_turn(), |_| Wake::Idle;
    rights: |shard, io| shard.check_rights(io), |shard| Wake::now_if(!shard.core.rights_checks.is_empty());
    changes: |shard, io| shard.make_changes(io), |shard| Wake::now_if(!shard.changes.is_empty());
    jobs: |shard, io| shard.take_up_jobs(io), |shard| match shard.has_work {
        true => Wake::Now,
        // The next second of their owner.
        false => Wake::soon_if(!shard.working.is_empty()),
    };
    yielding: |shard, io| shard.resume_yielding(io), |shard| Wake::now_if(!shard.yielding.is_empty());
    // Another shard's backlog does not wake this one.
    backlogged: |shard, io| shard.resume_backlogged(io), |shard| Wake::soon_if(!shard.backlogged.is_empty());
    handshakes: |shard, io| shard.sweep_pending(io), |shard| Wake::at(shard.next_pending(shard.turned));
    drain: |shard, io| shard.drain(io), |shard| Wake::at(shard.next_drain_close());
    // The application wakes the shard when it is ready.
    waiting: |shard, io| shard.resume_waiting(io), |_| Wake::Idle;
    failed: |shard, io| shard.end_all_failed(io), |shard| Wake::now_if(shard.has_failed);
    operations: |shard, io| shard.settle_operations(io), |shard| {
        Wake::now_if(shard.core.operations.inbox.is_filled())
    };
    backend: |shard, io| shard.settle_backend(io), |shard| {
        Wake::now_if(shard.core.questions.inbox.is_filled())
    };
    calls: |shard, io| shard.settle_calls(io), |shard| Wake::at(shard.core.calls.wake_at());
    // A publication for the shard wakes it.
    stall: |shard, io| shard.return_from_stall(io), |_| Wake::Idle;
    unfinished: |shard, io| shard.end_unfinished(io), |shard| {
        Wake::now_if(shard.core.shared.charges.unfinished.is_due(shard.core.index as usize))
    };
    leaving: |shard, _| shard.core.let_leave(), |shard| {
        Wake::now_if(!shard.core.leaving.ended_sessions.is_empty())
    };
    departures: |shard, io| shard.core.tell_departures(wire_now(io)), |shard| {
        Wake::soon_if(!shard.core.leaving.departures.is_empty())
    };
    drained: |shard, io| shard.send_waiting_on(io), |shard| {
        Wake::now_if(!shard.core.topics.drained.is_empty())
    };
    deliveries: |shard, io| shard.deliver(io), |shard| match shard.has_deliveries() {
        true => Wake::Now,
        // Gaps are reported once a second.
        false => Wake::soon_if(!shard.core.topics.skipped.is_empty()),
    };
    counts: |shard, io| shard.count_turn(io), |_| Wake::Idle;
    sweep: |shard, io| shard.sweep(io), |shard| match shard.core.shared.lines.has_left_out() {
        true => Wake::After(SUMMARY_RETRY),
        false => Wake::Idle,
    };
}

impl<A: Application> EngineShard<A> {
    fn tell_turn(&mut self) {
        self.contained_all(|app| app.on_turn());
    }

    fn take_up_jobs(&mut self, io: &mut Io) {
        self.core.turn.meter.start_jobs();
        self.work_on(io);
    }

    fn resume_yielding(&mut self, io: &mut Io) {
        let yielding = std::mem::take(&mut self.yielding);
        self.resume(io, yielding, |pauses| pauses.turn = false);
    }

    fn resume_backlogged(&mut self, io: &mut Io) {
        let origin = Origin::Shard(self.core.index);
        let hub = &self.core.shared.hub;
        if !self.backlogged.is_empty() && !hub.is_busy(origin) && !hub.is_cluster_busy() {
            let backlogged = std::mem::take(&mut self.backlogged);
            self.resume(io, backlogged, |pauses| pauses.backlog = false);
        }
    }

    fn resume_waiting(&mut self, io: &mut Io) {
        if !self.waiting.is_empty() && self.is_ready() {
            let waiting = std::mem::take(&mut self.waiting);
            self.resume(io, waiting, |pauses| pauses.application = false);
        }
    }

    /// The work of the turn that ends here.
    fn count_turn(&mut self, io: &mut Io) {
        self.core.turn.meter.start_turn(io.now().monotonic_ms);
        self.changes.start_turn();
        let counters = &self.core.counters;
        let peaks = self.core.turn.meter.peaks();
        counters.work_us.set(self.core.turn.meter.total() / 1_000);
        counters.work_peak_us.set(peaks.connection / 1_000);
        counters.owner_work_peak_us.set(peaks.owner / 1_000);
        counters.shard_work_peak_us.set(peaks.shard / 1_000);
    }

    /// Looks through what expires, once a second.
    fn sweep(&mut self, io: &mut Io) {
        if io.now().monotonic_ms >= self.sweep_ms {
            self.sweep_ms = io.now().monotonic_ms + SWEEP_INTERVAL_MS;
            self.core.sweep(io.now());
        }
    }
}

#[inline]
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// How often a shard asks whether the others have delivered what its clients published, and whether
/// the next second of an owner has begun.
const RETRY: Duration = Duration::from_millis(2);

/// How often a shard asks whether it is time to report log lines that were left out.
const SUMMARY_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_step_wakes_the_shard() {
        let turned = Instant::now();
        let later = turned + Duration::from_secs(5);
        let time = |wake: Wake| wake.time(Some(turned));
        assert_eq!(time(Wake::now_if(false)), None);
        assert_eq!(time(Wake::now_if(true)), Some(turned));
        assert_eq!(time(Wake::soon_if(true)), Some(turned + RETRY));
        assert_eq!(time(Wake::at(Some(later))), Some(later));
        assert_eq!(time(Wake::at(None)), None);
        assert_eq!(Wake::Now.time(None), None);
        assert_eq!(earlier(Some(later), None), Some(later));
        assert_eq!(earlier(None, Some(later)), Some(later));
        assert_eq!(earlier(Some(later), Some(turned)), Some(turned));
    }
}
