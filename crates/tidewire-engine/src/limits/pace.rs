//! The pace of a drain: how many sessions a shard closes by when, and when their clients return.

use std::time::{Duration, Instant};

/// The schedule: how many of N sessions should have left at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) sessions: u64,
    pub(crate) started_ms: u64,
    /// A second; 0 to spread them over the time there is.
    pub(crate) rate_per_s: u64,
}

impl Pace {
    /// How many should have left, if they have `span_ms` for it.
    pub(crate) fn due(&self, span_ms: u64, now_ms: u64) -> u64 {
        let elapsed_ms = u128::from(now_ms.saturating_sub(self.started_ms));
        let (first, due) = match self.rate_per_s {
            0 if elapsed_ms >= u128::from(span_ms) => return self.sessions,
            0 => {
                let rest = u128::from(self.sessions.saturating_sub(AT_ONCE));
                (AT_ONCE, rest * elapsed_ms / u128::from(span_ms))
            }
            rate_per_s => (1, elapsed_ms * u128::from(rate_per_s) / 1000),
        };
        let due = u128::from(first) + due;
        due.min(u128::from(self.sessions)) as u64
    }

    /// When the session after the first `left` is due: the first millisecond in which [`Pace::due`]
    /// is more.
    pub(crate) fn next_ms(&self, span_ms: u64, left: u64) -> u64 {
        let (first, rest, rest_ms) = match self.rate_per_s {
            0 => (AT_ONCE, self.sessions.saturating_sub(AT_ONCE), span_ms),
            rate_per_s => (1, rate_per_s, 1000),
        };
        if left < first || rest == 0 {
            return self.started_ms;
        }
        let missing = u128::from(left + 1 - first) * u128::from(rest_ms);
        let elapsed_ms = missing.div_ceil(u128::from(rest)) as u64;
        self.started_ms.saturating_add(elapsed_ms)
    }
}

/// The time over which N sessions reconnect, in milliseconds; 0 if clients receive no delay.
pub(crate) fn spread_ms(reconnect_spread_ms: u64, sessions: u64) -> u64 {
    match reconnect_spread_ms {
        0 => 0,
        least_ms => least_ms.max(sessions.saturating_mul(1000) / RECONNECTIONS_PER_S),
    }
}

/// The half of a drain's time in which its sessions are sent away; the other half is theirs to
/// answer.
pub(crate) fn span_ms(timeout: Duration) -> u64 {
    (timeout.as_millis() / 2).min(u128::from(u64::MAX)) as u64
}

/// The time over which sessions leave if the drain has no timeout, in milliseconds.
pub(crate) const SPAN_MS_DEFAULT: u64 = 5_000;

/// This many sessions of a shard leave at once if no rate is configured: they are no burden to
/// anybody.
const AT_ONCE: u64 = 100;

/// The largest rate at which sessions reconnect, on average, if they keep to their delays.
const RECONNECTIONS_PER_S: u64 = 5_000;

/// The sessions of a shard that are still to leave.
#[derive(Debug)]
pub(crate) struct DrainProgress {
    pub(crate) pace: Pace,
    /// Each receives a delay of at most N milliseconds.
    pub(crate) spread_ms: u64,
    pub(crate) left: u64,
    /// Where to look for the next one.
    pub(crate) index: usize,
    /// When the next one is due.
    pub(crate) wake: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pace(sessions: u64, rate_per_s: u64) -> Pace {
        Pace {
            sessions,
            started_ms: 1_000,
            rate_per_s,
        }
    }

    #[test]
    fn few_leave_at_once_and_many_over_the_span() {
        assert_eq!(pace(AT_ONCE, 0).due(5_000, 1_000), AT_ONCE);
        let many = pace(AT_ONCE + 1_000, 0);
        for (now_ms, due) in [(1_000, 0), (3_500, 500), (5_999, 999), (6_000, 1_000)] {
            assert_eq!(many.due(5_000, now_ms), AT_ONCE + due, "{now_ms}");
        }
        assert_eq!(many.due(0, 1_000), AT_ONCE + 1_000);
    }

    #[test]
    fn a_rate_holds_whatever_the_span() {
        let slow = pace(100, 10);
        for (now_ms, due) in [
            (1_000, 1),
            (1_099, 1),
            (1_100, 2),
            (2_000, 11),
            (60_000, 100),
        ] {
            assert_eq!(slow.due(0, now_ms), due, "{now_ms}");
        }
    }

    #[test]
    fn many_are_spread_wider() {
        assert_eq!(spread_ms(2_000, 10), 2_000);
        assert_eq!(spread_ms(2_000, 1_000_000), 200_000);
        assert_eq!(spread_ms(0, 1_000_000), 0);
    }

    proptest! {
        /// The next time is the first one at which one more is due.
        #[test]
        fn the_next_time_fits(
            sessions in 1u64..5_000,
            rate_per_s in prop_oneof![Just(0), 1u64..100_000],
            span_ms in 0u64..20_000,
            left in 0u64..5_000,
        ) {
            let pace = pace(sessions, rate_per_s);
            let left = left % sessions;
            let next_ms = pace.next_ms(span_ms, left);
            prop_assert!(pace.due(span_ms, next_ms) > left);
            if next_ms > pace.started_ms {
                prop_assert!(pace.due(span_ms, next_ms - 1) <= left);
            }
        }
    }
}
