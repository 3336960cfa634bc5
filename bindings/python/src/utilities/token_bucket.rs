//! The token bucket of the server's rate limit.

use crate::arguments::{Number, Whole, now_ms};
use crate::errors::{Failure, argument};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tidewire_engine::rate::{RateLimit, RateVerdict as BucketVerdict, TokenBucket as Bucket};

/// A limit and what is left of it. Safe to use from several threads.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct TokenBucket {
    limit: RateLimit,
    capacity: u32,
    refill_per_s: f64,
    /// The engine counts whole tokens a second; a slower refill is counted in thousandths of tokens.
    parts: u32,
    started: Instant,
    bucket: Mutex<Bucket>,
}

/// What became of one try.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct RateVerdict {
    #[pyo3(get)]
    allowed: bool,
    #[pyo3(get)]
    low: bool,
    #[pyo3(get)]
    remaining: f64,
    #[pyo3(get)]
    retry_after: Option<f64>,
}

#[pymethods]
impl TokenBucket {
    #[new]
    fn new(capacity: Whole, refill_per_s: Number) -> PyResult<Self> {
        Ok(Self::made(capacity, refill_per_s)?)
    }

    /// Takes `n` tokens, or none.
    #[pyo3(signature = (n = Whole(1), now = None), text_signature = "($self, n=1, now=None)")]
    fn take(&self, n: Whole, now: Option<Number>) -> PyResult<RateVerdict> {
        Ok(self.taken(n, now)?)
    }

    /// Tokens that a full bucket holds.
    #[getter]
    fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Tokens that come in a second.
    #[getter]
    fn refill_per_s(&self) -> f64 {
        self.refill_per_s
    }

    fn __repr__(&self) -> String {
        let remaining = self.bucket().remaining() / u64::from(self.parts);
        format!(
            "TokenBucket(capacity={}, refill_per_s={}): {remaining} left at the last try",
            self.capacity, self.refill_per_s
        )
    }
}

impl TokenBucket {
    fn made(Whole(capacity): Whole, Number(refill_per_s): Number) -> Result<Self, Failure> {
        let whole = refill_per_s.fract() == 0.0;
        let parts = if whole { 1 } else { PARTS };
        let capacity_max = u32::MAX / parts;
        let capacity = u32::try_from(capacity)
            .ok()
            .filter(|capacity| (1..=capacity_max).contains(capacity));
        let capacity = capacity
            .ok_or_else(|| argument(format!("capacity has to be 1 to {capacity_max} tokens")))?;
        let refill = (refill_per_s * f64::from(parts)).round();
        if !(1.0..=f64::from(u32::MAX)).contains(&refill) {
            let message = format!(
                "refill_per_s has to be 0.001 to {} tokens a second",
                u32::MAX / parts
            );
            return Err(argument(message));
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

    fn taken(&self, Whole(n): Whole, now: Option<Number>) -> Result<RateVerdict, Failure> {
        let n = u32::try_from(n)
            .ok()
            .filter(|n| (1..=self.capacity).contains(n));
        let n =
            n.ok_or_else(|| argument(format!("n has to be 1 to the capacity, {}", self.capacity)))?;
        let now_ms = now_ms(now, self.started)?;
        let mut bucket = self.bucket();
        let outcome = bucket.take_many(&self.limit, n * self.parts, now_ms);
        Ok(RateVerdict {
            allowed: !matches!(outcome, BucketVerdict::Refused { .. }),
            low: outcome == BucketVerdict::AllowedLow,
            remaining: bucket.remaining() as f64 / f64::from(self.parts),
            retry_after: match outcome {
                BucketVerdict::Refused { retry_after_ms } => Some(retry_after_ms as f64 / 1000.0),
                BucketVerdict::Allowed | BucketVerdict::AllowedLow => None,
            },
        })
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl RateVerdict {
    fn __bool__(&self) -> bool {
        self.allowed
    }

    fn __repr__(&self) -> String {
        match self.retry_after {
            Some(retry_after) => format!("RateVerdict(refused, retry_after={retry_after})"),
            None => format!("RateVerdict(allowed, remaining={})", self.remaining),
        }
    }
}

/// Of a token, where the refill is no whole number.
const PARTS: u32 = 1000;
