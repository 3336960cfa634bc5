//! Error budget: a connection whose messages have to be refused too often is closed.

use tidewire_wire::codes::{ErrorCode, Fault};

/// How often a connection may err; the same for all connections of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorLimit {
    errors_max: u64,
    window_ms: u64,
}

/// The errors of one connection, which leak away evenly: `errors_max` in each window.
///
/// So up to `errors_max` errors within any window never open it, and more than twice as many always
/// do. An error counts as many parts as the window has milliseconds, and `errors_max` parts leak
/// away each millisecond, so that nothing is rounded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ErrorBudget {
    parts: u64,
    leaked_ms: u64,
    is_exhausted: bool,
}

/// The reaction to an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorVerdict {
    /// Report it to the peer.
    Report,
    /// It is one too many: report it and close the connection.
    Exhausted,
    /// The connection is about to be closed: send nothing more.
    Silence,
}

impl ErrorLimit {
    /// `None` if either is 0: then there is no limit.
    pub(crate) fn new(errors_max: u64, errors_window_ms: u64) -> Option<Self> {
        // Products of the two have to fit.
        let cap = |value: u64| value.min(u64::from(u32::MAX));
        let limit = Self {
            errors_max: cap(errors_max),
            window_ms: cap(errors_window_ms),
        };
        (limit.errors_max > 0 && limit.window_ms > 0).then_some(limit)
    }

    pub(crate) fn retry_after_s(self) -> u64 {
        self.window_ms.div_ceil(1000)
    }
}

impl ErrorBudget {
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Counts one error. If `now_ms` goes backwards, no time has passed.
    pub(crate) fn count(&mut self, limit: ErrorLimit, now_ms: u64) -> ErrorVerdict {
        if self.is_exhausted {
            return ErrorVerdict::Silence;
        }
        let elapsed_ms = now_ms.saturating_sub(self.leaked_ms);
        self.leaked_ms += elapsed_ms;
        let leaked = elapsed_ms.saturating_mul(limit.errors_max);
        self.parts = self.parts.saturating_sub(leaked) + limit.window_ms;
        self.is_exhausted = self.parts > limit.errors_max * limit.window_ms;
        if self.is_exhausted {
            ErrorVerdict::Exhausted
        } else {
            ErrorVerdict::Report
        }
    }
}

/// Whether an error counts against the connection. The rate limit has its own way to handle connections that
/// send too fast, and the refusal of messages after a gap is part of it. The shape of a payload is between the client and the
/// application.
pub(crate) fn counts(code: ErrorCode) -> bool {
    let is_others = matches!(
        code,
        ErrorCode::RateLimited | ErrorCode::MessageGap | ErrorCode::InvalidPayload
    );
    code.fault() == Fault::Peer && !is_others
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The number of errors at these times that are reported before it opens, that one included.
    fn told(limit: ErrorLimit, times_ms: impl IntoIterator<Item = u64>) -> Option<usize> {
        let mut budget = ErrorBudget::default();
        let opens = |time_ms| budget.count(limit, time_ms) == ErrorVerdict::Exhausted;
        times_ms.into_iter().position(opens)
    }

    #[test]
    fn a_burst_of_the_maximum_is_forgiven_and_one_more_is_not() {
        let limit = ErrorLimit::new(50, 10_000).unwrap();
        assert_eq!(told(limit, std::iter::repeat_n(7, 50)), None);
        assert_eq!(told(limit, std::iter::repeat_n(7, 60)), Some(50));
        // One leaks away each 200 ms.
        assert_eq!(told(limit, (0..10_000).map(|error| error * 200)), None);
        assert_eq!(told(limit, (0..51).map(|error| error * 4)), None);
        assert_eq!(told(limit, (0..52).map(|error| error * 4)), Some(51));
    }

    #[test]
    fn an_exhausted_budget_allows_no_further_reply() {
        let limit = ErrorLimit::new(1, 1_000).unwrap();
        let mut budget = ErrorBudget::default();
        let verdicts = [0, 0, 0, 1_000_000].map(|now_ms| budget.count(limit, now_ms));
        assert_eq!(
            verdicts,
            [
                ErrorVerdict::Report,
                ErrorVerdict::Exhausted,
                ErrorVerdict::Silence,
                ErrorVerdict::Silence
            ]
        );
    }

    #[test]
    fn zero_is_no_limit_and_the_largest_numbers_are_harmless() {
        assert_eq!(ErrorLimit::new(0, 10_000), None);
        assert_eq!(ErrorLimit::new(50, 0), None);
        let limit = ErrorLimit::new(u64::MAX, u64::MAX).unwrap();
        let mut budget = ErrorBudget::default();
        assert_eq!(budget.count(limit, u64::MAX), ErrorVerdict::Report);
        assert_eq!(budget.count(limit, 0), ErrorVerdict::Report);
    }

    #[test]
    fn only_what_the_peer_could_have_known_counts() {
        for code in [
            ErrorCode::InvalidMessage,
            ErrorCode::TopicForbidden,
            ErrorCode::MessageTooLarge,
            ErrorCode::InvalidSubscription,
            ErrorCode::InvalidAction,
            ErrorCode::LimitExceeded,
        ] {
            assert!(counts(code), "{code:?}");
        }
        for code in [
            ErrorCode::RateLimited,
            ErrorCode::MessageGap,
            ErrorCode::QueueFull,
            ErrorCode::HandlerError,
            ErrorCode::InvalidPayload,
            ErrorCode::Timeout,
            ErrorCode::ServerError,
        ] {
            assert!(!counts(code), "{code:?}");
        }
    }

    proptest! {
        /// The allowed number in each window never opens it, more than twice this number in one always
        /// do.
        #[test]
        fn the_bounds_hold(
            errors_max in 1u64..20,
            window_ms in 1u64..500,
            waits_ms in proptest::collection::vec(0u64..60, 1..200),
        ) {
            let limit = ErrorLimit::new(errors_max, window_ms).unwrap();
            let times_ms: Vec<u64> = waits_ms
                .iter()
                .scan(0, |now_ms, wait_ms| { *now_ms += wait_ms; Some(*now_ms) })
                .collect();
            // Errors in the window that ends with each.
            let most = (0..times_ms.len())
                .map(|last| {
                    let inside = |time_ms: &&u64| **time_ms + window_ms > times_ms[last];
                    times_ms[..=last].iter().filter(inside).count() as u64
                })
                .max()
                .unwrap_or(0);
            let opened = told(limit, times_ms.iter().copied()).is_some();
            if most <= errors_max {
                prop_assert!(!opened);
            }
            if most > 2 * errors_max {
                prop_assert!(opened);
            }
        }
    }
}
