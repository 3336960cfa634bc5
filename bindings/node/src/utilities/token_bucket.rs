//! The rate limit of the server.

use crate::errors::Failure;
use napi_derive::napi;
use tidewire_bindings::utilities::token_bucket::TokenBucket;

/// A limit and the tokens that are left.
#[napi]
pub struct NativeTokenBucket {
    bucket: TokenBucket,
}

#[napi]
impl NativeTokenBucket {
    #[napi(constructor)]
    pub fn new(capacity: f64, refill_per_s: f64) -> napi::Result<Self> {
        let bucket = TokenBucket::new(capacity as u64, refill_per_s);
        Ok(Self {
            bucket: bucket.map_err(Failure::from)?,
        })
    }

    /// Takes tokens, or none: whether they were taken, whether few are left, how many are left, and the milliseconds after
    /// which they would be taken.
    #[napi]
    pub fn take(
        &self,
        n: f64,
        now_ms: Option<f64>,
    ) -> napi::Result<(bool, bool, f64, Option<f64>)> {
        let verdict = self.bucket.take(n as u64, now_ms.map(|ms| ms as u64));
        let verdict = verdict.map_err(Failure::from)?;
        let retry_after_ms = verdict.retry_after_ms.map(|ms| ms as f64);
        Ok((
            verdict.is_allowed,
            verdict.is_low,
            verdict.remaining,
            retry_after_ms,
        ))
    }
}
