//! The token bucket of the server's rate limit.

use crate::failure::Failure;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tidewire_engine::rate::{RateLimit, RateVerdict as EngineVerdict, TokenBucket as Bucket};

/// A limit and the tokens that are left. It begins full.
pub struct TokenBucket {
    limit: RateLimit,
    capacity: u32,
    refill_per_s: f64,
    /// The engine counts whole tokens per second; a slower refill is counted in thousandths of tokens.
    parts: u32,
    started: Instant,
    bucket: Mutex<Bucket>,
}

/// The result of one attempt to take tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateVerdict {
    /// Whether the tokens were taken.
    pub is_allowed: bool,
    /// Less than a fifth is left. Reported once, and again only after the bucket was half full in between.
    pub is_low: bool,
    /// Tokens that are left.
    pub remaining: f64,
    /// The milliseconds after which the tokens would be taken; `None` if they were.
    pub retry_after_ms: Option<u64>,
}

impl TokenBucket {
    /// A bucket with `capacity` tokens, which gets `refill_per_s` per second.
    ///
    /// # Errors
    /// The capacity is 0 or too large, or the refill is below 0.001 per second or too large.
    pub fn new(capacity: u64, refill_per_s: f64) -> Result<Self, Failure> {
        let is_whole = refill_per_s.fract() == 0.0;
        let parts = if is_whole { 1 } else { PARTS };
        let capacity_max = u32::MAX / parts;
        let capacity = u32::try_from(capacity)
            .ok()
            .filter(|capacity| (1..=capacity_max).contains(capacity));
        let capacity = capacity.ok_or_else(|| {
            Failure::argument(format!("capacity has to be 1 to {capacity_max} tokens"))
        })?;
        let refill = (refill_per_s * f64::from(parts)).round();
        if !(1.0..=f64::from(u32::MAX)).contains(&refill) {
            return Err(Failure::argument(format!(
                "the refill has to be 0.001 to {capacity_max} tokens a second"
            )));
        }
        let limit = RateLimit::new(u64::from(capacity) * u64::from(parts), refill as u64);
        Ok(Self {
            limit,
            capacity,
            refill_per_s,
            parts,
            started: Instant::now(),
            bucket: Mutex::new(Bucket::new(&limit, 0)),
        })
    }

    /// Takes `n` tokens, or none. `now_ms` is on a clock of the caller's choice that does not go back; `None` is the
    /// bucket's own.
    ///
    /// # Errors
    /// `n` is 0 or more than the capacity.
    pub fn take(&self, n: u64, now_ms: Option<u64>) -> Result<RateVerdict, Failure> {
        let n = u32::try_from(n)
            .ok()
            .filter(|n| (1..=self.capacity).contains(n));
        let n = n.ok_or_else(|| {
            Failure::argument(format!("n has to be 1 to the capacity, {}", self.capacity))
        })?;
        let now_ms = now_ms.unwrap_or_else(|| self.started.elapsed().as_millis() as u64);
        let mut bucket = self.bucket();
        let verdict = bucket.take_many(&self.limit, n * self.parts, now_ms);
        Ok(RateVerdict {
            is_allowed: !matches!(verdict, EngineVerdict::Refused { .. }),
            is_low: verdict == EngineVerdict::AllowedLow,
            remaining: bucket.remaining() as f64 / f64::from(self.parts),
            retry_after_ms: match verdict {
                EngineVerdict::Refused { retry_after_ms } => Some(retry_after_ms),
                EngineVerdict::Allowed | EngineVerdict::AllowedLow => None,
            },
        })
    }

    /// Tokens that a full bucket holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Tokens that are added per second.
    #[must_use]
    pub fn refill_per_s(&self) -> f64 {
        self.refill_per_s
    }

    /// Whole tokens that were left after the last attempt.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.bucket().remaining() / u64::from(self.parts)
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parts of a token, where the refill is no whole number.
const PARTS: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_refill_is_counted_in_fractions() {
        let bucket = TokenBucket::new(3, 0.5).expect("a bucket");
        assert!(bucket.take(3, Some(0)).expect("3 tokens").is_allowed);
        let refused = bucket.take(1, Some(0)).expect("1 token");
        assert_eq!(
            (refused.is_allowed, refused.retry_after_ms),
            (false, Some(2000))
        );
        assert!(bucket.take(1, Some(2000)).expect("1 token").is_allowed);
        assert!(TokenBucket::new(5_000_000, 0.5).is_err());
        assert!(TokenBucket::new(1, f64::NAN).is_err());
    }
}
