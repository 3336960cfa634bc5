//! Handle of a store: requests to its thread.

use super::job::{Job, SharedDepth, StoreEvent};
use super::receipts::WhenReceived;
use super::worker::Worker;
use super::{Durable, MessageLimits, QueueDepth, Store};
use crate::config::Queue;
use crate::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// Talks to the thread of a store, which ends when this is closed or dropped.
#[derive(Debug)]
pub(crate) struct StoreHandle {
    jobs: mpsc::Sender<Job>,
    producer: String,
    depth: Arc<SharedDepth>,
    /// Messages on their way to the store.
    pushing: Arc<AtomicUsize>,
    pushing_max: usize,
}

impl StoreHandle {
    /// Opens the store that `config` asks for and starts its thread.
    pub(crate) fn start(
        config: &Queue,
        fresh_id: &str,
        events: UnboundedSender<StoreEvent>,
    ) -> Result<Self, Error> {
        let store = super::open(config, fresh_id)?;
        Self::start_with(store, config, events)
    }

    /// Starts the thread of this store.
    pub(super) fn start_with(
        store: Box<dyn Store>,
        config: &Queue,
        events: UnboundedSender<StoreEvent>,
    ) -> Result<Self, Error> {
        let (jobs, received) = mpsc::channel();
        let producer = store.producer().to_owned();
        let mut worker = Worker::new(store, config.uncertain, events, jobs.clone());
        let (depth, pushing) = (worker.depth(), worker.pushing());
        std::thread::Builder::new()
            .name("tidewire-queue".to_owned())
            .spawn(move || {
                let closed = worker.run(&received);
                drop(worker);
                let _ = closed.map(|closed| closed.send(()));
            })
            .map_err(|error| Error::Queue(error.to_string()))?;
        Ok(Self {
            jobs,
            producer,
            depth,
            pushing,
            pushing_max: config.messages_max,
        })
    }

    pub(crate) fn producer(&self) -> &str {
        &self.producer
    }

    pub(crate) fn depth(&self) -> QueueDepth {
        self.depth.get()
    }

    /// Stores a message. The first ticket is settled when it is stored, the second when it is acknowledged.
    pub(crate) fn push(&self, message: Durable) -> Result<(WhenReceived, WhenReceived), Error> {
        if self.pushing.fetch_add(1, Ordering::Relaxed) >= self.pushing_max {
            self.pushing.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::Full);
        }
        let (stored, when_stored) = oneshot::channel();
        let (receipt, when_acknowledged) = oneshot::channel();
        self.send(Job::Push {
            message,
            stored,
            receipt,
        });
        Ok((when_stored, when_acknowledged))
    }

    /// `limits` are those of the server.
    pub(crate) fn resume(&self, epoch: u32, last: u64, limits: MessageLimits) {
        self.send(Job::Resume {
            epoch,
            last,
            limits,
        });
    }

    pub(crate) fn take(&self, count_max: usize, bytes_max: usize) {
        self.send(Job::Take {
            count_max,
            bytes_max,
        });
    }

    pub(crate) fn acknowledge(&self, last: u64) {
        self.send(Job::Acknowledge { last });
    }

    pub(crate) fn rewind(&self, last: u64) {
        self.send(Job::Rewind { last });
    }

    pub(crate) fn refused(&self, row: u64, error: Error) {
        self.send(Job::Refused { row, error });
    }

    /// Closes the store and its file; later requests are not executed.
    pub(crate) async fn close(&self) {
        let (closed, when_closed) = oneshot::channel();
        self.send(Job::Close(closed));
        let _ = when_closed.await;
    }

    /// [`Self::close`] without waiting for it.
    pub(crate) fn abandon(&self) {
        let (closed, _) = oneshot::channel();
        self.send(Job::Close(closed));
    }

    /// The thread lives as long as this handle, unless it panics. A panic closes the receipts, and their
    /// holders see that.
    fn send(&self, job: Job) {
        let _ = self.jobs.send(job);
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        self.abandon();
    }
}
