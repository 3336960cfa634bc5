//! The time of a turn, on the clocks that the exchange needs.

use std::time::Instant;

/// The time of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// On the monotonic clock.
    pub(crate) ms: u64,
    pub(crate) unix_ms: u64,
    /// For durations that are measured.
    pub(crate) precise: Instant,
}
