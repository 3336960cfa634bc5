//! How long to wait before the next connection: growing, random, and never less than the server asks for.

use std::time::Duration;

/// Whether and when a lost connection is opened again.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconnect {
    /// How the time between two attempts grows. Default: exponential.
    pub delay: Delay,
    /// The time before the first attempt, and the unit of all growth. Default 500 ms.
    pub base: Duration,
    /// The longest time between two attempts, whatever the growth; what the server asks for may be longer.
    /// Default 30 s.
    pub max: Duration,
    /// Attempts in a row that may fail before the client gives up; 0 for as many as it takes. Default 0.
    pub attempts_max: u32,
    /// For how long the client tries before it gives up; `None` for ever. Default `None`.
    pub time_max: Option<Duration>,
    /// The longest time that a server's hint is heeded, so that nobody can send a client away for good.
    /// Default 10 minutes.
    pub hint_max: Duration,
}

/// How the time between attempts grows with each that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Delay {
    /// base, 2 base, 4 base, 8 base, …
    #[default]
    Exponential,
    /// base, 2 base, 3 base, 4 base, …
    Linear,
    /// base, base, 2 base, 3 base, 5 base, …
    Fibonacci,
    /// Between linear and exponential, by how the last attempts went: it grows by up to three times where
    /// nearly all of them failed, and by a third where nearly all succeeded.
    Adaptive,
}

/// The attempts of one client.
#[derive(Debug, Clone)]
pub struct Backoff {
    policy: Reconnect,
    /// Attempts that have failed in a row.
    failures: u32,
    /// When the connection was lost, on the monotonic clock.
    since_ms: Option<u64>,
    /// The current time between attempts, where it depends on the one before.
    adaptive_ms: f64,
    /// The share of attempts that succeed, from 0 to 1, smoothed.
    success: f64,
}

/// What to do about a lost connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Open the next one after so long, in milliseconds.
    After(u64),
    /// The attempts or the time that the policy allows are used up.
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
    /// Before the first attempt.
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

    /// Takes note that a session was established: counting begins anew.
    pub fn handle_success(&mut self) {
        self.failures = 0;
        self.since_ms = None;
        self.success += (1.0 - self.success) * SMOOTHING;
        self.adaptive_ms = self.policy.base.as_millis() as f64;
    }

    /// Says when to try after an attempt that failed or a connection that was lost. `random` is any number;
    /// the time is drawn evenly from nothing to the full delay (full jitter), so that clients that were cut off
    /// together come back apart. `hint_ms` is what the server asked for: the time is then no shorter than that,
    /// and the random part comes on top of it.
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

    /// After a `reconnect` message of the server, which has given each of its clients a time of its own: that
    /// time, and nothing random. It counts as an attempt like any.
    pub fn next_at(&mut self, after_ms: u64, now_ms: u64) -> Attempt {
        match self.next(None, now_ms, 0) {
            Attempt::After(_) => Attempt::After(after_ms.min(millis(self.policy.hint_max))),
            Attempt::GiveUp => Attempt::GiveUp,
        }
    }

    /// Attempts that have failed in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The longest that the next wait may be, hints aside.
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

/// `random` as a time from 0 to `full_ms`, both included.
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

/// The weight of the newest attempt in the share that succeeds.
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
