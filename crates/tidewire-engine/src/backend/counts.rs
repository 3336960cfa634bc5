//! Counters of the backend's events.

use crate::backend::failure::{Failure, KINDS};
use crate::backend::kind::RequestKind;
use crate::config::backend::BackendEvent;
use crate::counters::{Histogram, HistogramSnapshot};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts since the start. Those of failures count events and not attempts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// With a usable answer, by event.
    answered: [AtomicU64; 6],
    /// By event and kind.
    failed: [[AtomicU64; KINDS.len()]; 6],
    /// The durations of requests, by kind: from the sending to the answer, or to the timeout. The thread of
    /// the link records them.
    request_durations: [Histogram; RequestKind::ALL.len()],
    /// Requests that were sent again.
    pub(crate) retries: AtomicU64,
    /// Requests of several events.
    pub(crate) batches: AtomicU64,
    /// The time from an event to its answer, of all answered events, in microseconds.
    pub(crate) latency_us: AtomicU64,
    /// Times that the circuit breaker of a kind opened.
    pub(crate) breaker_openings: [AtomicU64; RequestKind::ALL.len()],
    /// Now: whether it is open.
    pub(crate) is_breaker_open: [AtomicU64; RequestKind::ALL.len()],
    /// Now: requests of each kind that are under way.
    pub(crate) under_way: [AtomicU64; RequestKind::ALL.len()],
    /// Now: connections.
    pub(crate) connections: AtomicU64,
    /// Connections that could not be opened.
    pub(crate) connections_failed: AtomicU64,
}

impl Counts {
    pub(crate) fn answer(&self, event: BackendEvent) {
        self.answered[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fail(&self, event: BackendEvent, failure: &Failure) {
        self.failed[event as usize][failure.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// A request has its answer, or its time is over.
    pub(crate) fn record_request(&self, kind: RequestKind, duration: Duration) {
        self.request_durations[kind as usize].record(duration);
    }

    /// The durations of requests, by the kind of their content.
    pub(crate) fn request_durations(
        &self,
    ) -> impl Iterator<Item = (&'static str, HistogramSnapshot)> {
        let snapshots = self.request_durations.iter().map(Histogram::snapshot);
        RequestKind::ALL
            .into_iter()
            .map(RequestKind::name)
            .zip(snapshots)
    }

    /// How many events of a kind were answered.
    pub(crate) fn answered(&self, event: BackendEvent) -> u64 {
        self.answered[event as usize].load(Ordering::Relaxed)
    }

    /// How many events of a kind have failed, by [`KINDS`].
    pub(crate) fn failed(&self, event: BackendEvent) -> [u64; KINDS.len()] {
        let failed = &self.failed[event as usize];
        std::array::from_fn(|kind| failed[kind].load(Ordering::Relaxed))
    }
}
