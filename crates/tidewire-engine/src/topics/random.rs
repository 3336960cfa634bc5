//! Random numbers for callers that have no generator of their own.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that nobody outside the process can predict: a keyed hash of a counter.
#[derive(Debug, Default)]
pub(crate) struct RandomNumbers {
    hasher: RandomState,
    count: AtomicU64,
}

impl RandomNumbers {
    pub(crate) fn next(&self) -> u32 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        self.hasher.hash_one(count) as u32
    }
}
