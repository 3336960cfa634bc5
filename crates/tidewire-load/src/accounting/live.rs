//! Running figures that the workers publish while they work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One worker's figures; written by it once per loop turn, read by the thread that shows them.
#[derive(Debug, Default)]
pub(crate) struct LiveCell {
    pub(crate) connected: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) offered: AtomicU64,
    pub(crate) confirmed: AtomicU64,
    pub(crate) latency_p99_ns: AtomicU64,
}

impl LiveCell {
    /// Connections that are open now.
    pub(crate) fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }
}

/// The figures of all workers at one moment of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Live {
    /// Since the phase began.
    pub elapsed: Duration,
    /// Connections that are open now.
    pub connected: u64,
    /// Connections that failed since the fleet was started.
    pub failed: u64,
    /// Messages written in this phase, about.
    pub offered: u64,
    /// Messages, round trips or connections that have been confirmed in this phase.
    pub confirmed: u64,
    /// Confirmed in the last second.
    pub rate_per_s: f64,
    /// The 99th percentile of the latency so far, in microseconds; `None` while nothing is known.
    pub latency_p99_us: Option<f64>,
}

/// The sum of the workers' figures. Only the slowest worker's percentile is known without a merge.
pub(crate) fn sum(cells: &[Arc<LiveCell>]) -> Live {
    let total = |figure: fn(&LiveCell) -> &AtomicU64| -> u64 {
        cells
            .iter()
            .map(|cell| figure(cell).load(Ordering::Relaxed))
            .sum()
    };
    let p99_ns = cells
        .iter()
        .map(|cell| cell.latency_p99_ns.load(Ordering::Relaxed))
        .max();
    Live {
        connected: total(|cell| &cell.connected),
        failed: total(|cell| &cell.failed),
        offered: total(|cell| &cell.offered),
        confirmed: total(|cell| &cell.confirmed),
        latency_p99_us: p99_ns.filter(|ns| *ns > 0).map(|ns| ns as f64 / 1000.0),
        ..Live::default()
    }
}
