//! The bounded queue between the shards and the exporter, and the decision which traces are sampled.

use crate::config::ExporterConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tidewire_engine::{Span, TraceCounts, TraceSink};

/// The state that the queue and the exporter's thread share.
#[derive(Debug, Default)]
pub(crate) struct Control {
    is_stopped: AtomicBool,
    pub(crate) exported: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// The shards' end of the queue.
#[derive(Debug)]
pub(crate) struct Queue {
    spans: SyncSender<Span>,
    control: Arc<Control>,
    /// Traces below it are sampled: see [`TraceSink::samples`].
    threshold: u64,
}

impl Control {
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }
}

impl Queue {
    pub(crate) fn new(config: &ExporterConfig, control: Arc<Control>) -> (Self, Receiver<Span>) {
        let (sender, receiver) = sync_channel(config.queue_spans_max.max(1));
        let queue = Self {
            spans: sender,
            control,
            threshold: (config.sampling * RANGE) as u64,
        };
        (queue, receiver)
    }
}

impl TraceSink for Queue {
    /// As `TraceIdRatioBased` of OpenTelemetry's own libraries, so that servers with the same ratio decide alike.
    fn samples(&self, trace_id: [u8; 16]) -> bool {
        let number = u128::from_be_bytes(trace_id) as u64;
        number >> 1 < self.threshold
    }

    /// The exporter's thread never waits in the queue, so that nobody has to be woken here.
    fn record(&self, span: Span) {
        if self.spans.try_send(span).is_err() {
            self.control.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> TraceCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TraceCounts {
            exported: load(&self.control.exported),
            dropped: load(&self.control.dropped),
            failed: load(&self.control.failed),
        }
    }
}

/// Half of the numbers of 64 bits.
const RANGE: f64 = (1_u64 << 63) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(sampling: f64, spans_max: usize) -> (Queue, Receiver<Span>) {
        let mut config = ExporterConfig::new("http://a.example");
        config.sampling = sampling;
        config.queue_spans_max = spans_max;
        Queue::new(&config, Arc::default())
    }

    #[test]
    fn the_ratio_decides_by_the_low_half_of_the_identifier() {
        let id = |low: u64| u128::from(low).to_be_bytes();
        for (sampling, low, expected) in [
            (0.0, 0, false),
            (1.0, u64::MAX, true),
            (0.5, u64::MAX / 2 - 1, true),
            (0.5, u64::MAX / 2 + 1, false),
            (0.25, u64::MAX / 2 - 1, false),
        ] {
            assert_eq!(
                queue(sampling, 1).0.samples(id(low)),
                expected,
                "{sampling} {low}"
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let (queue, spans) = queue(1.0, 3);
        for _ in 0..10 {
            queue.record(Span::default());
        }
        assert_eq!(queue.counts().dropped, 7);
        assert_eq!(spans.try_iter().count(), 3);
        queue.record(Span::default());
        assert_eq!(queue.counts().dropped, 7, "there is room again");
    }
}
