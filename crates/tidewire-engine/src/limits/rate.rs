//! Inbound rate limit: one token bucket per connection, in whole numbers.

/// How much one connection may send; the same for all connections of a server.
///
/// The refill is counted in thousandths of a message, of which `refill_per_s` fall due each
/// millisecond, so nothing is ever rounded away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    capacity: u32,
    refill_per_s: u32,
    /// With less than N left, the peer is warned.
    low: u32,
    /// With at least N left, a new warning may follow.
    recovered: u32,
}

/// The state of one connection: 16 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBucket {
    refilled_ms: u64,
    messages: u32,
    /// Thousandths of a message on top, less than 1000.
    milli: u16,
    is_low: bool,
}

/// The decision about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateVerdict {
    /// Accept the message.
    Allowed,
    /// Accept the message and warn the peer: less than 20 % is left. Returned once; again only after the
    /// bucket has been half full in between.
    AllowedLow,
    /// Refuse it.
    Refused {
        /// After N milliseconds the next one is accepted.
        retry_after_ms: u64,
    },
}

impl RateLimit {
    /// `capacity` messages may arrive at once, and `refill_per_s` a second in the long run. If either is 0
    /// there is no limit. Both are capped at 4,294,967,295.
    #[must_use]
    pub fn new(capacity: u64, refill_per_s: u64) -> Self {
        let cap = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        if capacity == 0 || refill_per_s == 0 {
            return Self {
                capacity: u32::MAX,
                refill_per_s: 0,
                low: 0,
                recovered: u32::MAX,
            };
        }
        let capacity = cap(capacity);
        Self {
            capacity,
            refill_per_s: cap(refill_per_s),
            low: capacity / 5,
            recovered: capacity.div_ceil(2),
        }
    }

    /// Whether there is no limit.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.refill_per_s == 0
    }
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(limit: &RateLimit, now_ms: u64) -> Self {
        Self {
            refilled_ms: now_ms,
            messages: limit.capacity,
            milli: 0,
            is_low: false,
        }
    }

    /// Removes one message from the bucket, if there is one. `now_ms` is on any clock that starts anywhere;
    /// if it goes backwards, no time has passed.
    #[inline]
    pub fn take(&mut self, limit: &RateLimit, now_ms: u64) -> RateVerdict {
        if now_ms <= self.refilled_ms && self.messages > limit.low {
            self.messages -= 1;
            return RateVerdict::Allowed;
        }
        self.take_slowly(limit, 1, now_ms)
    }

    /// [`Self::take`] for N messages at once: all of them or none. More messages than the capacity are always
    /// refused, and `retry_after_ms` has no meaning then.
    pub fn take_many(&mut self, limit: &RateLimit, messages: u32, now_ms: u64) -> RateVerdict {
        self.take_slowly(limit, messages, now_ms)
    }

    /// Removes N messages at once from the bucket, or all that it has.
    pub fn charge(&mut self, limit: &RateLimit, messages: usize) {
        if !limit.is_unlimited() {
            let messages = u32::try_from(messages).unwrap_or(u32::MAX);
            self.messages = self.messages.saturating_sub(messages);
        }
    }

    /// Messages that would be accepted now, as of the last [`take`](Self::take).
    #[must_use]
    pub fn remaining(&self) -> u64 {
        u64::from(self.messages)
    }

    fn take_slowly(&mut self, limit: &RateLimit, messages: u32, now_ms: u64) -> RateVerdict {
        if limit.is_unlimited() {
            self.messages = limit.capacity;
            self.refilled_ms = now_ms;
            return RateVerdict::Allowed;
        }
        self.refill(limit, now_ms);
        if self.messages < messages {
            let missing = u64::from(messages - self.messages) * MILLI - u64::from(self.milli);
            let retry_after_ms = missing.div_ceil(u64::from(limit.refill_per_s));
            return RateVerdict::Refused { retry_after_ms };
        }
        if self.messages >= limit.recovered {
            self.is_low = false;
        }
        self.messages -= messages;
        if self.messages < limit.low && !self.is_low {
            self.is_low = true;
            return RateVerdict::AllowedLow;
        }
        RateVerdict::Allowed
    }

    fn refill(&mut self, limit: &RateLimit, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.refilled_ms);
        if elapsed_ms == 0 {
            return;
        }
        self.refilled_ms = now_ms;
        let due = elapsed_ms.saturating_mul(u64::from(limit.refill_per_s));
        let held = u64::from(self.messages) * MILLI + u64::from(self.milli);
        let full = u64::from(limit.capacity) * MILLI;
        let total = held.saturating_add(due).min(full);
        // Neither is more than the capacity or a thousand.
        self.messages = (total / MILLI) as u32;
        self.milli = (total % MILLI) as u16;
    }
}

const MILLI: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(bucket: &mut TokenBucket, limit: &RateLimit, now_ms: u64, tries: usize) -> usize {
        (0..tries)
            .filter(|_| !matches!(bucket.take(limit, now_ms), RateVerdict::Refused { .. }))
            .count()
    }

    #[test]
    fn the_state_is_16_bytes() {
        assert_eq!(size_of::<TokenBucket>(), 16);
    }

    #[test]
    fn a_burst_is_taken_and_then_the_refill() {
        let limit = RateLimit::new(100, 10);
        let mut bucket = TokenBucket::new(&limit, 5_000);
        assert_eq!(taken(&mut bucket, &limit, 5_000, 200), 100);
        assert_eq!(
            bucket.take(&limit, 5_000),
            RateVerdict::Refused {
                retry_after_ms: 100
            }
        );
        assert_eq!(
            bucket.take(&limit, 5_099),
            RateVerdict::Refused { retry_after_ms: 1 }
        );
        assert_eq!(taken(&mut bucket, &limit, 5_100, 5), 1);
        assert_eq!(taken(&mut bucket, &limit, 6_100, 50), 10);
        assert_eq!(taken(&mut bucket, &limit, 1_000_000, 200), 100);
    }

    #[test]
    fn the_peer_is_warned_once_until_it_recovers() {
        let limit = RateLimit::new(100, 10);
        let mut bucket = TokenBucket::new(&limit, 0);
        let warnings = (0..100)
            .filter(|_| bucket.take(&limit, 0) == RateVerdict::AllowedLow)
            .count();
        assert_eq!(warnings, 1);
        // To 30 and back to 0: it was never half full.
        let again = (0..30)
            .filter(|_| bucket.take(&limit, 3_000) == RateVerdict::AllowedLow)
            .count();
        assert_eq!(again, 0);
        let after_recovery = (0..60)
            .filter(|_| bucket.take(&limit, 9_000) == RateVerdict::AllowedLow)
            .count();
        assert_eq!(after_recovery, 1);
    }

    #[test]
    fn the_warning_comes_when_less_than_a_fifth_is_left() {
        let limit = RateLimit::new(10, 1);
        let mut bucket = TokenBucket::new(&limit, 0);
        for _ in 0..8 {
            assert_eq!(bucket.take(&limit, 0), RateVerdict::Allowed);
        }
        assert_eq!(bucket.take(&limit, 0), RateVerdict::AllowedLow);
        assert_eq!(bucket.remaining(), 1);
        assert_eq!(bucket.take(&limit, 0), RateVerdict::Allowed);
    }

    #[test]
    fn zero_is_no_limit() {
        for limit in [
            RateLimit::new(0, 10),
            RateLimit::new(10, 0),
            RateLimit::new(0, 0),
        ] {
            let mut bucket = TokenBucket::new(&limit, 0);
            // As if four thousand million messages had arrived before.
            bucket.messages = 3;
            for _ in 0..10 {
                assert_eq!(bucket.take(&limit, 0), RateVerdict::Allowed);
            }
        }
    }

    #[test]
    fn numbers_at_the_end_of_their_range_are_harmless() {
        let limit = RateLimit::new(u64::MAX, u64::MAX);
        let mut bucket = TokenBucket::new(&limit, 0);
        assert_eq!(bucket.take(&limit, u64::MAX), RateVerdict::Allowed);
        assert_eq!(bucket.take(&limit, 0), RateVerdict::Allowed);
        assert_eq!(bucket.remaining(), u64::from(u32::MAX) - 2);
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_formula(
            capacity in 1u64..2_000,
            refill_per_s in 1u64..5_000,
            steps in proptest::collection::vec((0u64..3_000, 0usize..400), 1..60),
        ) {
            let limit = RateLimit::new(capacity, refill_per_s);
            let mut bucket = TokenBucket::new(&limit, 0);
            let (mut now_ms, mut level) = (0, capacity as f64);
            for (elapsed_ms, tries) in steps {
                now_ms += elapsed_ms;
                let refilled = level + elapsed_ms as f64 * refill_per_s as f64 / 1000.0;
                level = refilled.min(capacity as f64);
                for _ in 0..tries {
                    // The model's sums may be off by some last digits.
                    match bucket.take(&limit, now_ms) {
                        RateVerdict::Refused { retry_after_ms } => {
                            prop_assert!(level < 1.0 - 1e-6);
                            let wait_ms = (1.0 - level) * 1000.0 / refill_per_s as f64;
                            let told_ms = retry_after_ms as f64;
                            prop_assert!(told_ms > wait_ms - 1e-3 && told_ms < wait_ms + 1.001);
                        }
                        RateVerdict::Allowed | RateVerdict::AllowedLow => {
                            prop_assert!(level >= 1.0 - 1e-6);
                            level -= 1.0;
                        }
                    }
                    prop_assert_eq!(bucket.remaining(), (level + 1e-6) as u64);
                }
            }
        }

        #[test]
        fn many_at_once_are_as_many_one_by_one(
            capacity in 1u64..100,
            refill_per_s in 1u64..5_000,
            steps in proptest::collection::vec((0u64..100, 0u32..120), 1..40),
        ) {
            let limit = RateLimit::new(capacity, refill_per_s);
            let mut together = TokenBucket::new(&limit, 0);
            let mut one_by_one = TokenBucket::new(&limit, 0);
            let mut now_ms = 0;
            for (elapsed_ms, messages) in steps {
                now_ms += elapsed_ms;
                let mut trial = one_by_one.clone();
                let tried = taken(&mut trial, &limit, now_ms, messages as usize);
                let verdict = together.take_many(&limit, messages, now_ms);
                if tried == messages as usize {
                    let was_refused = matches!(verdict, RateVerdict::Refused { .. });
                    prop_assert!(!was_refused);
                    one_by_one = trial;
                } else {
                    let RateVerdict::Refused { retry_after_ms } = verdict else {
                        return Err(TestCaseError::fail("more than there were"));
                    };
                    if u64::from(messages) <= capacity {
                        let later = now_ms + retry_after_ms;
                        let early = together.clone().take_many(&limit, messages, later - 1);
                        let was_early = matches!(early, RateVerdict::Refused { .. });
                        prop_assert!(was_early);
                        let on_time = together.clone().take_many(&limit, messages, later);
                        let was_on_time = !matches!(on_time, RateVerdict::Refused { .. });
                        prop_assert!(was_on_time);
                    }
                }
            }
        }

        #[test]
        fn a_refused_peer_that_waits_as_told_is_let_in(
            capacity in 1u64..100,
            refill_per_s in 1u64..5_000,
            now_ms in 0u64..10_000,
        ) {
            let limit = RateLimit::new(capacity, refill_per_s);
            let mut bucket = TokenBucket::new(&limit, 0);
            while !matches!(bucket.take(&limit, now_ms), RateVerdict::Refused { .. }) {}
            let RateVerdict::Refused { retry_after_ms } = bucket.take(&limit, now_ms) else {
                return Err(TestCaseError::fail("it was let in without a wait"));
            };
            let early = bucket.clone().take(&limit, now_ms + retry_after_ms - 1);
            let was_early = matches!(early, RateVerdict::Refused { .. });
            prop_assert!(was_early);
            let on_time = bucket.take(&limit, now_ms + retry_after_ms);
            let was_on_time = !matches!(on_time, RateVerdict::Refused { .. });
            prop_assert!(was_on_time);
        }
    }
}
