//! Back-off: growing and random delays before the next connection, at least as long as the server requests.

use std::time::Duration;

/// The policy for reconnecting after a lost connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconnect {
    /// The growth of the delay between two attempts. Default: exponential.
    pub delay: Delay,
    /// The delay before the first attempt, and the unit of growth. Default 500 ms.
    pub base: Duration,
    /// The maximum delay between two attempts; the server may request a longer one. Default 30 s.
    pub max: Duration,
    /// The number of consecutive failed attempts after which the client ends; 0 for no limit. Default 0.
    pub attempts_max: u32,
    /// The time without a session after which the client ends; `None` for no limit. Default `None`.
    pub time_max: Option<Duration>,
    /// The maximum delay that a server can request, so that no server can stop a client forever. Default 10 minutes.
    pub hint_max: Duration,
}

/// The growth of the delay with each failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Delay {
    /// base, 2 base, 4 base, 8 base, …
    #[default]
    Exponential,
    /// base, 2 base, 3 base, 4 base, …
    Linear,
    /// base, base, 2 base, 3 base, 5 base, …
    Fibonacci,
    /// By the results of the last attempts: the delay triples if nearly all of them failed, and grows by a third if
    /// nearly all succeeded.
    Adaptive,
}

/// The attempts of one client.
#[derive(Debug, Clone)]
pub struct Backoff {
    policy: Reconnect,
    /// The number of consecutive failed attempts.
    failures: u32,
    /// When the connection was lost, on the monotonic clock.
    since_ms: Option<u64>,
    /// The current delay, for growth that depends on the previous delay.
    adaptive_ms: f64,
    /// The smoothed share of successful attempts, from 0 to 1.
    success: f64,
}

/// The next step after a lost connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Connect again after this number of milliseconds.
    After(u64),
    /// The policy allows no further attempt.
    GiveUp,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self {
            delay: Delay::Exponential,
            base: Duration::from_millis(500),
            max: Duration::from_secs(30),
            attempts_max: 0,
            time_max: None,
            hint_max: Duration::from_secs(600),
        }
    }
}

impl Backoff {
    /// A back-off before its first attempt.
    #[must_use]
    pub fn new(policy: Reconnect) -> Self {
        let adaptive_ms = policy.base.as_millis() as f64;
        Self {
            policy,
            failures: 0,
            since_ms: None,
            adaptive_ms,
            success: 1.0,
        }
    }

    /// Records that a session was established, and starts to count again.
    pub fn handle_success(&mut self) {
        self.failures = 0;
        self.since_ms = None;
        self.success += (1.0 - self.success) * SMOOTHING;
        self.adaptive_ms = self.policy.base.as_millis() as f64;
    }

    /// The time of the next attempt after a failed attempt or a lost connection. `random` is any number. The delay is
    /// uniform between zero and the full delay (full jitter), so that clients that lost their connections together
    /// reconnect at different times. `hint_ms` is the delay that the server requested; the random part is added to
    /// it.
    pub fn next(&mut self, hint_ms: Option<u64>, now_ms: u64, random: u64) -> Attempt {
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        let attempts_max = self.policy.attempts_max;
        if attempts_max > 0 && self.failures >= attempts_max {
            return Attempt::GiveUp;
        }
        let full_ms = self.full_delay_ms();
        self.failures = self.failures.saturating_add(1);
        self.success -= self.success * SMOOTHING;
        let random_ms = spread(full_ms, random);
        let hint_max_ms = millis(self.policy.hint_max);
        let wait_ms = hint_ms.map_or(0, |hint_ms| hint_ms.min(hint_max_ms)) + random_ms;
        let waited_ms = now_ms.saturating_sub(since_ms);
        match self.policy.time_max {
            Some(time_max) if waited_ms.saturating_add(wait_ms) > millis(time_max) => {
                Attempt::GiveUp
            }
            _ => Attempt::After(wait_ms),
        }
    }

    /// The next attempt after a `reconnect` message, in which the server gives each client a different delay: exactly
    /// that delay. It counts as an attempt.
    pub fn next_at(&mut self, after_ms: u64, now_ms: u64) -> Attempt {
        match self.next(None, now_ms, 0) {
            Attempt::After(_) => Attempt::After(after_ms.min(millis(self.policy.hint_max))),
            Attempt::GiveUp => Attempt::GiveUp,
        }
    }

    /// The number of consecutive failed attempts.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The maximum of the next delay without a request of the server.
    fn full_delay_ms(&mut self) -> u64 {
        let (base_ms, max_ms) = (millis(self.policy.base), millis(self.policy.max));
        let factor = match self.policy.delay {
            Delay::Exponential => 1u64.checked_shl(self.failures).unwrap_or(u64::MAX),
            Delay::Linear => u64::from(self.failures) + 1,
            Delay::Fibonacci => fibonacci(self.failures),
            Delay::Adaptive => {
                let full_ms = self.adaptive_ms.min(max_ms as f64);
                self.adaptive_ms =
                    full_ms * (GROWTH_MAX - (GROWTH_MAX - GROWTH_MIN) * self.success);
                return full_ms as u64;
            }
        };
        base_ms.saturating_mul(factor).min(max_ms)
    }
}

/// A time from 0 to `full_ms`, both included, for a random number.
fn spread(full_ms: u64, random: u64) -> u64 {
    ((u128::from(random) * (u128::from(full_ms) + 1)) >> 64) as u64
}

fn fibonacci(index: u32) -> u64 {
    let (mut current, mut next) = (1u64, 1u64);
    for _ in 0..index.min(90) {
        (current, next) = (next, current.saturating_add(next));
    }
    current
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The weight of the newest attempt in the share of successful ones.
const SMOOTHING: f64 = 0.3;
const GROWTH_MAX: f64 = 3.0;
const GROWTH_MIN: f64 = 4.0 / 3.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn backoff(delay: Delay) -> Backoff {
        Backoff::new(Reconnect {
            delay,
            ..Reconnect::default()
        })
    }

    /// The longest waits one after another.
    fn longest(delay: Delay, count: usize) -> Vec<u64> {
        let mut backoff = backoff(delay);
        let mut wait = || match backoff.next(None, 0, u64::MAX) {
            Attempt::After(wait_ms) => wait_ms,
            Attempt::GiveUp => panic!("it has no limit"),
        };
        (0..count).map(|_| wait()).collect()
    }

    #[test]
    fn growth() {
        assert_eq!(
            longest(Delay::Exponential, 8)[..7],
            [500, 1000, 2000, 4000, 8000, 16000, 30000]
        );
        assert_eq!(longest(Delay::Linear, 4), [500, 1000, 1500, 2000]);
        assert_eq!(
            longest(Delay::Fibonacci, 6),
            [500, 500, 1000, 1500, 2500, 4000]
        );
        let adaptive = longest(Delay::Adaptive, 40);
        assert_eq!(adaptive[0], 500);
        assert!(adaptive.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(
            adaptive[1] < 1_000 && adaptive[39] == 30_000,
            "{adaptive:?}"
        );
    }

    #[test]
    fn adaptive_grows_faster_where_little_succeeds() {
        let mut unlucky = backoff(Delay::Adaptive);
        for _ in 0..10 {
            unlucky.next(None, 0, 0);
        }
        unlucky.handle_success();
        let second = |backoff: &mut Backoff| {
            backoff.next(None, 0, u64::MAX);
            backoff.next(None, 0, u64::MAX)
        };
        let (Attempt::After(unlucky_ms), Attempt::After(fresh_ms)) =
            (second(&mut unlucky), second(&mut backoff(Delay::Adaptive)))
        else {
            panic!("neither has a limit");
        };
        assert!(unlucky_ms > fresh_ms, "{unlucky_ms} {fresh_ms}");
    }

    #[test]
    fn success_begins_anew() {
        let mut backoff = backoff(Delay::Exponential);
        for _ in 0..100 {
            backoff.next(None, 0, 0);
        }
        backoff.handle_success();
        assert_eq!(backoff.next(None, 9, u64::MAX), Attempt::After(500));
    }

    #[test]
    fn hints_are_heeded_up_to_a_limit() {
        let mut backoff = backoff(Delay::Exponential);
        assert_eq!(backoff.next(Some(7_000), 0, 0), Attempt::After(7_000));
        assert_eq!(
            backoff.next(Some(7_000), 0, u64::MAX),
            Attempt::After(8_000)
        );
        assert_eq!(backoff.next(Some(u64::MAX), 0, 0), Attempt::After(600_000));
        assert_eq!(backoff.next_at(1_234, 0), Attempt::After(1_234));
    }

    #[test]
    fn limits_of_attempts_and_time() {
        let policy = Reconnect {
            attempts_max: 2,
            ..Reconnect::default()
        };
        let mut by_attempts = Backoff::new(policy);
        assert!(matches!(by_attempts.next(None, 0, 0), Attempt::After(_)));
        assert!(matches!(by_attempts.next_at(5, 0), Attempt::After(5)));
        assert_eq!(by_attempts.next(None, 0, 0), Attempt::GiveUp);
        let time_max = Some(Duration::from_secs(10));
        let mut by_time = Backoff::new(Reconnect {
            time_max,
            ..Reconnect::default()
        });
        assert!(matches!(by_time.next(None, 1_000, 0), Attempt::After(_)));
        assert_eq!(by_time.next(Some(10_001), 1_000, 0), Attempt::GiveUp);
        assert!(matches!(by_time.next(None, 10_000, 0), Attempt::After(_)));
        assert_eq!(by_time.next(None, 11_001, 0), Attempt::GiveUp);
    }

    #[test]
    fn a_thousand_clients_spread_evenly() {
        use rand::{RngCore as _, SeedableRng as _};
        let mut rng = rand::rngs::StdRng::seed_from_u64(1);
        let mut buckets = [0u32; 10];
        for _ in 0..1_000 {
            let Attempt::After(wait_ms) = backoff(Delay::Exponential).next(None, 0, rng.next_u64())
            else {
                panic!("it has no limit");
            };
            buckets[(wait_ms / 51) as usize] += 1;
        }
        assert!(
            buckets.iter().all(|count| (60..140).contains(count)),
            "{buckets:?}"
        );
    }

    proptest! {
        #[test]
        fn never_longer_than_allowed(failures in 0u32..500, random: u64, hint: Option<u64>) {
            for delay in [Delay::Exponential, Delay::Linear, Delay::Fibonacci, Delay::Adaptive] {
                let mut backoff = backoff(delay);
                for _ in 0..failures {
                    backoff.next(None, 0, random);
                }
                let Attempt::After(wait_ms) = backoff.next(hint, 0, random) else {
                    return Err(TestCaseError::fail("it has no limit"));
                };
                let hint_ms = hint.unwrap_or_default().min(600_000);
                prop_assert!((hint_ms..=hint_ms + 30_000).contains(&wait_ms));
            }
        }
    }
}
