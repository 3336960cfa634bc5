//! Stalls: times in which the whole server does nothing, as in a long garbage collection.

use std::time::{Duration, Instant};

/// The times of a server's stalls, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// From the start of a stall to the start of the next, in milliseconds; at most one hour.
    pub every_ms: u64,
    /// The length of a stall, in milliseconds; less than `every_ms`.
    pub stall_ms: u64,
}

impl Stalls {
    pub(super) fn are_possible(self) -> bool {
        self.every_ms <= EVERY_MS_MAX && (1..self.every_ms).contains(&self.stall_ms)
    }
}

/// The stalls of a running server.
#[derive(Clone, Copy, Debug)]
pub(super) struct StallClock {
    every: Duration,
    stall: Duration,
    next: Instant,
}

impl StallClock {
    pub(super) fn new(stalls: Stalls, started: Instant) -> Self {
        let every = Duration::from_millis(stalls.every_ms);
        Self {
            every,
            stall: Duration::from_millis(stalls.stall_ms),
            next: started + every,
        }
    }

    /// The start of the next stall.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// The time to do nothing from `now` on, if a stall has begun. A missed stall is left out.
    pub(super) fn due(&mut self, now: Instant) -> Option<Duration> {
        if now < self.next {
            return None;
        }
        let end = self.next + self.stall;
        while self.next <= now {
            self.next += self.every;
        }
        end.checked_duration_since(now)
            .filter(|left| !left.is_zero())
    }
}

const EVERY_MS_MAX: u64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_shorter_than_the_time_between_two() {
        for (every_ms, stall_ms, are_possible) in [
            (1000, 100, true),
            (2, 1, true),
            (1000, 1000, false),
            (1000, 0, false),
            (0, 0, false),
            (u64::MAX, 1, false),
        ] {
            let stalls = Stalls { every_ms, stall_ms };
            assert_eq!(stalls.are_possible(), are_possible, "{stalls:?}");
        }
    }

    #[test]
    fn stalls_begin_at_their_times_however_late_the_loop_is() {
        let started = Instant::now();
        let at = |ms| started + Duration::from_millis(ms);
        let stalls = Stalls {
            every_ms: 1000,
            stall_ms: 100,
        };
        let mut clock = StallClock::new(stalls, started);
        assert_eq!(clock.due(at(999)), None);
        assert_eq!(clock.due(at(1030)), Some(Duration::from_millis(70)));
        assert_eq!(clock.next(), at(2000));
        assert_eq!(clock.due(at(1100)), None);
        // Far too late: that stall has ended.
        assert_eq!(clock.due(at(4500)), None);
        assert_eq!(clock.next(), at(5000));
        assert_eq!(clock.due(at(5000)), Some(Duration::from_millis(100)));
    }
}
