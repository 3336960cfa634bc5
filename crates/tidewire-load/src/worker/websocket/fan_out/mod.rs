//! Fan-out: one publisher, many subscribers of one topic, and the check of the received publications.
//!
//! Every publication has a number, so that each subscriber detects missing and duplicate ones. It also has
//! the planned time of sending, on the clock of this process, which is both ends.

pub(crate) mod message;
pub(crate) mod milestones;
pub(crate) mod session;
pub(crate) mod stream;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidewire_net::Waker;

use crate::worker::pace::Pace;
pub use message::MESSAGE_BYTES_MIN;
use message::Template;

/// A fan-out measurement: the publications, their pace, and the state that the workers share.
#[derive(Debug)]
pub struct FanOut {
    pub(crate) template: Template,
    pub(crate) tempo: Tempo,
    /// The number of the publisher's connection; all others are subscribers.
    pub(crate) publisher: usize,
    /// Subscribers of all workers, as planned.
    pub(crate) subscribers: u64,
    /// Publications from one milestone to the next.
    pub(crate) stride: u64,
    /// Workers whose subscribers are ready.
    ready: AtomicUsize,
    /// Of each worker, the number of the newest milestone that all of its subscribers have.
    received: Box<[AtomicU64]>,
    /// How many publications have been written, or are being written.
    published: AtomicU64,
    /// How many publications there are in all; [`UNKNOWN`] as long as there may be more.
    total: AtomicU64,
    /// Reaches the worker with the publisher.
    waker: OnceLock<Waker>,
}

/// When publications leave.
#[derive(Debug, Clone, PartialEq)]
pub enum Tempo {
    /// As fast as they are received: N may be ahead of the slowest subscriber.
    Window(u64),
    /// At given times, whatever is received.
    Paced {
        /// The times.
        pace: Pace,
        /// Publications in a second, on average.
        per_s: f64,
    },
}

impl FanOut {
    /// Publications of `message_bytes` bytes (at least [`MESSAGE_BYTES_MIN`]) by
    /// the connection number `publisher` to N subscribers, on `workers` workers.
    #[must_use]
    pub fn new(
        message_bytes: usize,
        tempo: Tempo,
        publisher: usize,
        subscribers: u64,
        workers: usize,
    ) -> Self {
        let stride = match &tempo {
            Tempo::Window(window) => window / STRIDES_PER_WINDOW,
            Tempo::Paced { per_s, .. } => (per_s / MILESTONES_PER_S_MAX) as u64,
        };
        Self {
            template: Template::new(message_bytes),
            tempo,
            publisher,
            subscribers,
            stride: stride.max(1),
            ready: AtomicUsize::new(0),
            received: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            published: AtomicU64::new(0),
            total: AtomicU64::new(UNKNOWN),
            waker: OnceLock::new(),
        }
    }

    /// The number of workers in the fan-out.
    pub(crate) fn workers(&self) -> usize {
        self.received.len()
    }

    /// Sets the waker of the worker with the publisher.
    pub(crate) fn set_waker(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    /// One more worker is ready.
    pub(crate) fn add_ready(&self) {
        self.ready.fetch_add(1, Ordering::Relaxed);
        self.wake();
    }

    /// Whether nobody who should hear the first publication would miss it.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) >= self.received.len()
    }

    /// All subscribers of a worker have everything up to this number.
    pub(crate) fn set_received(&self, worker: usize, number: u64) {
        if let Some(received) = self.received.get(worker) {
            received.store(number, Ordering::Relaxed);
        }
    }

    /// The progress of every subscriber, as far as milestones show it.
    pub(crate) fn received_by_all(&self) -> u64 {
        let received = self.received.iter();
        received
            .map(|number| number.load(Ordering::Relaxed))
            .min()
            .unwrap_or(UNKNOWN)
    }

    /// Publications up to this number are about to leave.
    pub(crate) fn set_published(&self, number: u64) {
        self.published.store(number, Ordering::Release);
    }

    /// The newest publication that there may be.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// The publisher is in another process: only that one knows how far it is, and what its last publication was.
    pub(crate) fn publish_elsewhere(&self) {
        self.set_published(UNKNOWN);
    }

    pub(crate) fn is_published_elsewhere(&self) -> bool {
        self.published() == UNKNOWN
    }

    /// Nothing will be published after this number.
    pub(crate) fn set_total(&self, number: u64) {
        self.total.store(number, Ordering::Relaxed);
    }

    /// The number of the last publication, once it is known.
    pub(crate) fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|total| *total != UNKNOWN)
    }

    /// Wakes the worker with the publisher.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Frames that a worker has to remember, so that its slowest subscriber can be compared with its fastest.
    pub(crate) fn remembered_min(&self) -> u64 {
        match self.tempo {
            Tempo::Window(window) => 2 * window,
            Tempo::Paced { .. } => 0,
        }
    }
}

/// Stands for a number that is not known, and for one that limits nothing.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The window moves in this many steps: each is one write of the publisher.
const STRIDES_PER_WINDOW: u64 = 16;

/// At a higher rate, not every publication is one whose skew is measured.
const MILESTONES_PER_S_MAX: f64 = 2_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_worker_holds_the_window() {
        let fan = FanOut::new(95, Tempo::Window(160), 2, 2, 2);
        assert_eq!((fan.stride, fan.total(), fan.is_ready()), (10, None, false));
        fan.set_received(0, 50);
        assert_eq!(fan.received_by_all(), 0);
        fan.set_received(1, UNKNOWN);
        assert_eq!(fan.received_by_all(), 50);
        fan.add_ready();
        fan.add_ready();
        fan.set_total(7);
        assert_eq!((fan.total(), fan.is_ready()), (Some(7), true));
    }
}
