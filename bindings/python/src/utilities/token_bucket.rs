//! The token bucket of the server's rate limit.

use crate::arguments::{Number, Whole, ms_of};
use crate::errors::Failure;
use pyo3::prelude::*;
use tidewire_bindings::utilities::token_bucket::TokenBucket as Bucket;

/// A limit and the tokens that are left. Safe to use from several threads.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct TokenBucket {
    bucket: Bucket,
}

/// The result of one request.
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
        let bucket = Bucket::new(capacity.0, refill_per_s.0);
        Ok(Self {
            bucket: bucket.map_err(Failure::from)?,
        })
    }

    /// Takes `n` tokens, or none.
    #[pyo3(signature = (n = Whole(1), now = None), text_signature = "($self, n=1, now=None)")]
    fn take(&self, n: Whole, now: Option<Number>) -> PyResult<RateVerdict> {
        let now_ms = now.map(ms_of).transpose()?;
        let verdict = self.bucket.take(n.0, now_ms).map_err(Failure::from)?;
        Ok(RateVerdict {
            allowed: verdict.is_allowed,
            low: verdict.is_low,
            remaining: verdict.remaining,
            retry_after: verdict.retry_after_ms.map(|ms| ms as f64 / 1000.0),
        })
    }

    /// Tokens that a full bucket holds.
    #[getter]
    fn capacity(&self) -> u32 {
        self.bucket.capacity()
    }

    /// Tokens that are added per second.
    #[getter]
    fn refill_per_s(&self) -> f64 {
        self.bucket.refill_per_s()
    }

    fn __repr__(&self) -> String {
        format!(
            "TokenBucket(capacity={}, refill_per_s={}): {} left at the last try",
            self.capacity(),
            self.refill_per_s(),
            self.bucket.remaining()
        )
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
