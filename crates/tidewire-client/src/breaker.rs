//! Circuit breaker: no attempts for some time after too many failures.

use std::time::Duration;

/// The limits of a circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerConfig {
    /// The number of consecutive failures that open it; 0 to never open it. Default 5.
    pub failures_max: u32,
    /// The time for which it stays open before it allows a trial. Default 30 s.
    pub open_for: Duration,
    /// The number of consecutive successful trials that close it again. Default 1.
    pub trials: u32,
}

/// Decides whether an attempt is allowed. The time on a monotonic clock is an argument.
#[derive(Debug, Clone)]
pub struct Breaker {
    config: BreakerConfig,
    state: BreakerPhase,
}

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// It allows every attempt.
    Closed,
    /// It allows no attempt.
    Open,
    /// It allows one trial at a time.
    HalfOpen,
}

#[derive(Debug, Clone, Copy)]
enum BreakerPhase {
    Closed { failures: u32 },
    Open { until_ms: u64 },
    HalfOpen { successes: u32, trial: bool },
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures_max: 5,
            open_for: Duration::from_secs(30),
            trials: 1,
        }
    }
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub fn new(config: BreakerConfig) -> Self {
        let state = BreakerPhase::Closed { failures: 0 };
        Self { config, state }
    }

    /// Requests an attempt. The caller reports its result to [`Self::handle_success`] or [`Self::handle_failure`].
    ///
    /// # Errors
    /// The milliseconds after which the caller can request again; at least 1.
    pub fn try_acquire(&mut self, now_ms: u64) -> Result<(), u64> {
        match &mut self.state {
            BreakerPhase::Closed { .. } => Ok(()),
            BreakerPhase::Open { until_ms } if now_ms < *until_ms => Err(*until_ms - now_ms),
            BreakerPhase::Open { .. } => {
                self.state = BreakerPhase::HalfOpen {
                    successes: 0,
                    trial: true,
                };
                Ok(())
            }
            BreakerPhase::HalfOpen { trial: true, .. } => Err(TRIAL_MS),
            BreakerPhase::HalfOpen { trial, .. } => {
                *trial = true;
                Ok(())
            }
        }
    }

    /// Records that an attempt succeeded.
    pub fn handle_success(&mut self) {
        match &mut self.state {
            BreakerPhase::HalfOpen { successes, trial } => {
                *successes += 1;
                *trial = false;
                if *successes >= self.config.trials {
                    self.state = BreakerPhase::Closed { failures: 0 };
                }
            }
            BreakerPhase::Closed { failures } => *failures = 0,
            BreakerPhase::Open { .. } => {}
        }
    }

    /// Records that an attempt failed.
    pub fn handle_failure(&mut self, now_ms: u64) {
        let opens = match &mut self.state {
            BreakerPhase::Closed { failures } => {
                *failures = failures.saturating_add(1);
                self.config.failures_max > 0 && *failures >= self.config.failures_max
            }
            BreakerPhase::HalfOpen { .. } => true,
            BreakerPhase::Open { .. } => false,
        };
        if opens {
            let open_ms = u64::try_from(self.config.open_for.as_millis()).unwrap_or(u64::MAX);
            let until_ms = now_ms.saturating_add(open_ms);
            self.state = BreakerPhase::Open { until_ms };
        }
    }

    /// The milliseconds until it allows an attempt; 0 if it does now.
    #[must_use]
    pub fn wait_ms(&self, now_ms: u64) -> u64 {
        match self.state {
            BreakerPhase::Open { until_ms } => until_ms.saturating_sub(now_ms),
            BreakerPhase::HalfOpen { trial: true, .. } => TRIAL_MS,
            BreakerPhase::Closed { .. } | BreakerPhase::HalfOpen { .. } => 0,
        }
    }

    /// The current state.
    #[must_use]
    pub fn state(&self, now_ms: u64) -> BreakerState {
        match self.state {
            BreakerPhase::Closed { .. } => BreakerState::Closed,
            BreakerPhase::Open { until_ms } if now_ms < until_ms => BreakerState::Open,
            BreakerPhase::Open { .. } | BreakerPhase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }
}

/// The milliseconds until the next request while a trial is in progress.
const TRIAL_MS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker(failures_max: u32, trials: u32) -> Breaker {
        Breaker::new(BreakerConfig {
            failures_max,
            open_for: Duration::from_millis(1_000),
            trials,
        })
    }

    #[test]
    fn opens_after_failures_in_a_row_only() {
        let mut breaker = breaker(3, 1);
        for now_ms in [1, 2] {
            breaker.handle_failure(now_ms);
        }
        breaker.handle_success();
        for now_ms in [3, 4] {
            breaker.handle_failure(now_ms);
        }
        assert_eq!(
            (breaker.state(4), breaker.try_acquire(4)),
            (BreakerState::Closed, Ok(()))
        );
        breaker.handle_failure(5);
        assert_eq!(
            (breaker.state(5), breaker.try_acquire(5)),
            (BreakerState::Open, Err(1_000))
        );
        assert_eq!(breaker.try_acquire(1_004), Err(1));
    }

    #[test]
    fn one_trial_at_a_time_and_as_many_as_asked_for() {
        let mut breaker = breaker(1, 2);
        breaker.handle_failure(0);
        assert_eq!(breaker.try_acquire(1_000), Ok(()));
        assert_eq!(breaker.state(1_000), BreakerState::HalfOpen);
        assert!(breaker.try_acquire(1_001).is_err());
        breaker.handle_success();
        assert_eq!(breaker.try_acquire(1_002), Ok(()));
        breaker.handle_success();
        assert_eq!(breaker.state(1_003), BreakerState::Closed);
    }

    #[test]
    fn a_failed_trial_opens_it_again() {
        let mut breaker = breaker(1, 1);
        breaker.handle_failure(0);
        assert_eq!(breaker.try_acquire(1_500), Ok(()));
        breaker.handle_failure(1_600);
        assert_eq!(breaker.try_acquire(2_599), Err(1));
        assert_eq!(breaker.try_acquire(2_600), Ok(()));
    }

    #[test]
    fn zero_means_never() {
        let mut breaker = breaker(0, 1);
        for _ in 0..100 {
            breaker.handle_failure(0);
        }
        assert_eq!(breaker.try_acquire(0), Ok(()));
    }
}
