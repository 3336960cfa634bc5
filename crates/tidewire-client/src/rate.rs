//! Rate limit of the client: a token bucket that keeps within the limit of the server.

/// A token bucket: `capacity` messages at once, and `refill_per_s` in the long run. Time is an argument.
///
/// A warning of the server halves the rate for some seconds, and a refusal stops it for as long as the server
/// requests. It recovers by itself.
#[derive(Debug, Clone)]
pub struct RateLimit {
    capacity: f64,
    refill_per_ms: f64,
    tokens: f64,
    at_ms: u64,
    /// The end of the time in which the refill is halved.
    slow_until_ms: u64,
    /// The end of the time in which nothing is sent.
    stopped_until_ms: u64,
}

impl RateLimit {
    /// A full bucket. A `capacity` or `refill_per_s` of 0 means no limit.
    #[must_use]
    pub fn new(capacity: u64, refill_per_s: u64, now_ms: u64) -> Self {
        let unlimited = capacity == 0 || refill_per_s == 0;
        let capacity = if unlimited {
            f64::INFINITY
        } else {
            capacity as f64
        };
        Self {
            capacity,
            refill_per_ms: refill_per_s as f64 / 1_000.0,
            tokens: capacity,
            at_ms: now_ms,
            slow_until_ms: 0,
            stopped_until_ms: 0,
        }
    }

    /// A bucket without a limit until the server announces one.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(0, 0, 0)
    }

    /// Spends tokens for at most `wanted` messages, and returns how many messages may be sent now.
    pub fn take(&mut self, wanted: u64, now_ms: u64) -> u64 {
        if now_ms < self.stopped_until_ms {
            return 0;
        }
        if self.capacity.is_infinite() {
            return wanted;
        }
        self.refill(now_ms);
        let taken = wanted.min(self.tokens as u64);
        self.tokens -= taken as f64;
        taken
    }

    /// Returns the tokens of messages that were not sent.
    pub fn give_back(&mut self, messages: u64) {
        self.tokens = (self.tokens + messages as f64).min(self.capacity);
    }

    /// The time at which the next message may be sent; `now_ms` if at once.
    #[must_use]
    pub fn next_at_ms(&self, now_ms: u64) -> u64 {
        if now_ms < self.stopped_until_ms {
            return self.stopped_until_ms;
        }
        if self.capacity.is_infinite() {
            return now_ms;
        }
        let mut then = self.clone();
        then.refill(now_ms);
        if then.tokens >= 1.0 {
            return now_ms;
        }
        let rate = then.rate(now_ms);
        now_ms.saturating_add(((1.0 - then.tokens) / rate).ceil() as u64)
    }

    /// Applies a `rate_limit_warning`: sets the remaining tokens, and halves the rate for some time.
    pub fn handle_warning(&mut self, remaining: u64, now_ms: u64) {
        self.refill(now_ms);
        self.tokens = self.tokens.min(remaining as f64);
        self.slow_until_ms = now_ms.saturating_add(SLOW_MS);
    }

    /// Applies a `RATE_LIMITED`: stops for this time, and then halves the rate for some time.
    pub fn handle_refusal(&mut self, retry_after_ms: u64, now_ms: u64) {
        self.refill(now_ms);
        let wait_ms = retry_after_ms.clamp(REFUSAL_MS_MIN, REFUSAL_MS_MAX);
        self.stopped_until_ms = now_ms.saturating_add(wait_ms);
        self.slow_until_ms = self.stopped_until_ms.saturating_add(SLOW_MS);
        if self.capacity.is_finite() {
            self.tokens = 0.0;
        }
    }

    fn refill(&mut self, now_ms: u64) {
        if self.capacity.is_infinite() || now_ms <= self.at_ms {
            return;
        }
        let slow_ms = self.slow_until_ms.clamp(self.at_ms, now_ms) - self.at_ms;
        let fast_ms = now_ms - self.at_ms - slow_ms;
        let refilled = self.refill_per_ms * (slow_ms as f64 / 2.0 + fast_ms as f64);
        self.tokens = (self.tokens + refilled).min(self.capacity);
        self.at_ms = now_ms;
    }

    fn rate(&self, now_ms: u64) -> f64 {
        let slow = now_ms < self.slow_until_ms;
        self.refill_per_ms * if slow { 0.5 } else { 1.0 }
    }
}

/// The time for which the rate is halved.
const SLOW_MS: u64 = 5_000;
/// The minimum pause: `retry_after` has whole seconds and may be 0.
const REFUSAL_MS_MIN: u64 = 100;
/// The maximum pause that a server can cause.
const REFUSAL_MS_MAX: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_and_refill() {
        let mut limit = RateLimit::new(10, 100, 0);
        assert_eq!(limit.take(25, 0), 10);
        assert_eq!((limit.take(1, 5), limit.next_at_ms(5)), (0, 10));
        assert_eq!(limit.take(25, 10), 1);
        assert_eq!(limit.take(25, 60), 5);
        assert_eq!(limit.take(25, 10_000), 10);
        limit.give_back(4);
        assert_eq!(limit.take(25, 10_000), 4);
    }

    #[test]
    fn a_warning_halves_the_rate_for_a_while() {
        let mut limit = RateLimit::new(1_000, 100, 0);
        limit.handle_warning(2, 0);
        assert_eq!(limit.take(10, 0), 2);
        assert_eq!(limit.take(1_000, 1_000), 50);
        assert_eq!(limit.take(1_000, 6_000), 200 + 100);
    }

    #[test]
    fn a_refusal_stops_and_then_slows() {
        for mut limit in [RateLimit::new(1_000, 100, 0), RateLimit::unlimited()] {
            limit.handle_refusal(2_000, 0);
            assert_eq!((limit.take(1, 1_999), limit.next_at_ms(1_999)), (0, 2_000));
            assert_eq!(limit.take(1, 2_100), 1);
        }
        let mut limit = RateLimit::new(1_000, 100, 0);
        limit.handle_refusal(0, 0);
        assert_eq!(limit.take(1, 0), 0);
        limit.handle_refusal(u64::MAX, 0);
        assert_eq!(limit.next_at_ms(5), 60_000);
    }

    #[test]
    fn a_clock_that_stands_still_or_errs_refills_nothing() {
        let mut limit = RateLimit::new(10, 100, 1_000);
        assert_eq!(limit.take(10, 1_000), 10);
        assert_eq!(limit.take(10, 500), 0);
        assert_eq!(limit.take(10, 1_000), 0);
    }
}
