//! The relay of a fan-out over several processes: how far the subscribers of each worker are, and how
//! many publications there were.

use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use crate::worker::contract::orders::Order;

/// A line to write.
#[derive(Debug)]
pub(super) enum Line {
    Order(Box<Order>),
    /// The newest progress of a fan-out, which replaces those that are not written yet.
    Progress,
    /// Nothing more: the worker's standard input ends.
    End,
}

/// The state that the workers of a fleet share during a fan-out.
#[derive(Debug, Default)]
pub(super) struct Relay(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The way to each worker.
    lines: Vec<Sender<Line>>,
    /// The worker with the publisher.
    publisher: usize,
    /// The newest publication that all subscribers of each worker have; [`NOBODY`] for a worker without any.
    received: Vec<u64>,
    /// The last progress for the publisher's worker, and the progress that its writer has not fetched yet.
    told: u64,
    progress: Option<u64>,
}

/// A worker without subscribers limits nothing. The largest whole number that every language has.
pub(super) const NOBODY: u64 = (1 << 53) - 1;

impl Relay {
    /// Adds the way to the next worker.
    pub(super) fn add(&self, lines: Sender<Line>) {
        let mut state = self.lock();
        state.lines.push(lines);
        state.received.push(NOBODY);
    }

    /// Begins a fan-out, with the subscribers of each worker.
    pub(super) fn begin(&self, publisher: usize, subscribers: &[u64]) {
        let mut state = self.lock();
        state.publisher = publisher;
        state.told = 0;
        state.progress = None;
        state.received = subscribers
            .iter()
            .map(|count| if *count == 0 { NOBODY } else { 0 })
            .collect();
    }

    /// A worker is gone, with its subscribers.
    pub(super) fn leave(&self, index: usize) {
        let is_publisher = self.lock().publisher == index;
        self.progress(index, NOBODY);
        if is_publisher {
            // Nobody else knows how many publications there were.
            self.published(index, 0);
        }
    }

    /// All subscribers of a worker have everything up to this publication.
    pub(super) fn progress(&self, index: usize, received: u64) {
        let mut state = self.lock();
        if let Some(known) = state.received.get_mut(index) {
            *known = received;
        }
        let publisher = state.publisher;
        let others = state.received.iter().enumerate();
        let others = others.filter(|(index, _)| *index != publisher);
        let slowest = others.map(|(_, received)| *received).min();
        let slowest = slowest.unwrap_or(NOBODY);
        if slowest > state.told {
            state.told = slowest;
            state.progress = Some(slowest);
            if let Some(lines) = state.lines.get(publisher) {
                // The writer ends with the worker.
                let _ = lines.send(Line::Progress);
            }
        }
    }

    /// The progress that the publisher's worker has not received yet.
    pub(super) fn take_progress(&self, index: usize) -> Option<u64> {
        let mut state = self.lock();
        if index == state.publisher {
            state.progress.take()
        } else {
            None
        }
    }

    /// Sends the number of publications to the other workers.
    pub(super) fn published(&self, from: usize, publications: u64) {
        let state = self.lock();
        for (index, lines) in state.lines.iter().enumerate() {
            if index != from {
                let order = Order::Published { publications };
                let _ = lines.send(Line::Order(Box::new(order)));
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
