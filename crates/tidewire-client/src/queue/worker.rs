//! The thread of a store, and how the others talk to it.

use super::{Durable, Numbered, QueueDepth, Store, StoreError};
use crate::Error;
use crate::config::{Queue, Uncertain};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// Says what became of a message: it was acknowledged, or why not.
pub(crate) type Receipt = oneshot::Sender<Result<(), Error>>;

/// Waits for a [`Receipt`].
pub(crate) type WhenReceived = oneshot::Receiver<Result<(), Error>>;

/// A message on its way into the store, and who waits for what.
type Push = (Durable, Receipt, Receipt);

/// Talks to the thread of a store. The thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct StoreHandle {
    jobs: mpsc::Sender<Job>,
    producer: String,
    depth: Arc<SharedDepth>,
    /// Messages on their way to the store.
    pushing: Arc<AtomicUsize>,
    pushing_max: usize,
}

/// What the store has for the connection.
#[derive(Debug)]
pub(crate) enum StoreEvent {
    /// There is something to send that was not there before.
    Stored,
    /// Send these.
    Taken(Vec<Numbered>),
    /// The store knows what the server has; it can be asked for messages.
    Resumed,
    /// The store could not take note of it.
    NotResumed,
    /// So many messages were larger than the server takes.
    TooLarge(usize),
    /// It is not known whether the server took so many messages.
    Uncertain(usize),
    /// So many messages were too old to be sent.
    Expired(usize),
    /// The file or the disk.
    Failed(String),
}

#[derive(Debug)]
enum Job {
    Push {
        message: Durable,
        stored: Receipt,
        receipt: Receipt,
    },
    Resume {
        epoch: u32,
        last: u64,
        message_bytes_max: usize,
    },
    Take {
        count_max: usize,
        bytes_max: usize,
    },
    Acknowledge {
        last: u64,
    },
    Rewind {
        last: u64,
    },
    /// The store is let go of, and then it is told.
    Close(oneshot::Sender<()>),
    /// The server has taken the message with this row and refused it.
    Refused {
        row: u64,
        error: Error,
    },
}

#[derive(Debug, Default)]
struct SharedDepth {
    messages: AtomicUsize,
    bytes: AtomicU64,
}

impl StoreHandle {
    /// Opens the store that `config` asks for and starts its thread.
    pub(crate) fn start(
        config: &Queue,
        fresh_id: &str,
        events: UnboundedSender<StoreEvent>,
    ) -> Result<Self, Error> {
        let store = super::open(config, fresh_id).map_err(error)?;
        let (jobs, received) = mpsc::channel();
        let depth = Arc::new(SharedDepth::default());
        let pushing = Arc::new(AtomicUsize::new(0));
        let producer = store.producer().to_owned();
        let mut worker = Worker {
            store,
            events,
            uncertain: config.uncertain,
            receipts: HashMap::new(),
            depth: depth.clone(),
            pushing: pushing.clone(),
        };
        worker.publish_depth();
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
        QueueDepth {
            messages: self.depth.messages.load(Ordering::Relaxed),
            bytes: self.depth.bytes.load(Ordering::Relaxed),
        }
    }

    /// Stores a message. The first of both is told when it is stored, the second when it is acknowledged.
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

    /// `message_bytes_max` is what the server takes; 0 if it does not say.
    pub(crate) fn resume(&self, epoch: u32, last: u64, message_bytes_max: usize) {
        self.send(Job::Resume {
            epoch,
            last,
            message_bytes_max,
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

    /// Lets go of the store and its file; what is asked of it from now on is not done.
    pub(crate) async fn close(&self) {
        let (closed, when_closed) = oneshot::channel();
        self.send(Job::Close(closed));
        let _ = when_closed.await;
    }

    /// The thread is there as long as this is, unless it panicked; then receipts are closed, which tells it.
    fn send(&self, job: Job) {
        let _ = self.jobs.send(job);
    }
}

struct Worker {
    store: Box<dyn Store>,
    events: UnboundedSender<StoreEvent>,
    uncertain: Uncertain,
    /// By row, those who wait for an acknowledgement.
    receipts: HashMap<u64, Receipt>,
    depth: Arc<SharedDepth>,
    pushing: Arc<AtomicUsize>,
}

impl Worker {
    /// Works until the store is to be let go of; who waits for that.
    fn run(&mut self, jobs: &mpsc::Receiver<Job>) -> Option<oneshot::Sender<()>> {
        while let Ok(mut job) = jobs.recv() {
            let mut pushes = Vec::new();
            let next = loop {
                match job {
                    Job::Push {
                        message,
                        stored,
                        receipt,
                    } => pushes.push((message, stored, receipt)),
                    other => break Some(other),
                }
                if pushes.len() >= PUSHES_MAX {
                    break None;
                }
                match jobs.try_recv() {
                    Ok(next) => job = next,
                    Err(_) => break None,
                }
            };
            if !pushes.is_empty() {
                self.push(pushes);
            }
            if let Some(Job::Close(closed)) = next {
                return Some(closed);
            }
            if let Some(job) = next
                && let Err(StoreError::Failed(words)) = self.work(job)
            {
                tracing::error!(%words, "the queue of unacknowledged messages failed");
                self.tell(StoreEvent::Failed(words));
            }
            self.publish_depth();
        }
        None
    }

    /// Stores what waits in one commit or, if not all of it fits, one by one.
    fn push(&mut self, pushes: Vec<Push>) {
        let now_unix_ms = unix_ms();
        self.pushing.fetch_sub(pushes.len(), Ordering::Relaxed);
        let (mut messages, mut waiters) = (Vec::new(), Vec::new());
        for (message, stored, receipt) in pushes {
            messages.push(message);
            waiters.push((stored, receipt));
        }
        let mut results: Vec<Result<u64, StoreError>> =
            match self.store.push(&messages, now_unix_ms) {
                Ok(rows) => rows.into_iter().map(Ok).collect(),
                Err(failed) if messages.len() == 1 => vec![Err(failed)],
                Err(_) => messages
                    .chunks(1)
                    .map(|message| {
                        let rows = self.store.push(message, now_unix_ms)?;
                        Ok(rows.first().copied().unwrap_or_default())
                    })
                    .collect(),
            };
        let is_any = results.iter().any(Result::is_ok);
        self.publish_depth();
        for ((stored, receipt), result) in waiters.into_iter().zip(results.drain(..)) {
            let told = match result {
                Ok(row) => {
                    if !receipt.is_closed() {
                        self.receipts.insert(row, receipt);
                    }
                    Ok(())
                }
                Err(failed) => Err(error(failed)),
            };
            let _ = stored.send(told);
        }
        if is_any {
            self.tell(StoreEvent::Stored);
        }
    }

    fn work(&mut self, job: Job) -> Result<(), StoreError> {
        match job {
            Job::Push { .. } | Job::Close(_) => {}
            Job::Resume {
                epoch,
                last,
                message_bytes_max,
            } => {
                self.store.limit_messages(message_bytes_max);
                let resumed = self.store.resume(epoch, last, self.uncertain);
                let resumed = resumed.inspect_err(|_| self.tell(StoreEvent::NotResumed))?;
                self.settle(&resumed.acknowledged, &Ok(()));
                if !resumed.uncertain.is_empty() {
                    if self.uncertain == Uncertain::Drop {
                        self.settle(&resumed.uncertain, &Err(Error::ConnectionLost));
                    }
                    self.tell(StoreEvent::Uncertain(resumed.uncertain.len()));
                }
                self.tell(StoreEvent::Resumed);
            }
            Job::Take {
                count_max,
                bytes_max,
            } => {
                let taken = self.store.take(count_max, bytes_max, unix_ms())?;
                if !taken.expired.is_empty() {
                    self.settle(&taken.expired, &Err(Error::Expired));
                    self.tell(StoreEvent::Expired(taken.expired.len()));
                }
                self.tell(StoreEvent::Taken(taken.messages));
                if !taken.too_large.is_empty() {
                    self.settle(&taken.too_large, &Err(Error::too_large()));
                    self.tell(StoreEvent::TooLarge(taken.too_large.len()));
                }
            }
            Job::Acknowledge { last } => {
                let rows = self.store.acknowledge(last)?;
                self.settle(&rows, &Ok(()));
            }
            Job::Rewind { last } => {
                self.store.rewind(last);
                self.tell(StoreEvent::Resumed);
            }
            Job::Refused { row, error } => self.settle(&[row], &Err(error)),
        }
        Ok(())
    }

    fn settle(&mut self, rows: &[u64], result: &Result<(), Error>) {
        self.publish_depth();
        for row in rows {
            if let Some(receipt) = self.receipts.remove(row) {
                let _ = receipt.send(result.clone());
            }
        }
    }

    /// A client that is gone needs to know nothing.
    fn tell(&self, event: StoreEvent) {
        let _ = self.events.send(event);
    }

    fn publish_depth(&self) {
        let depth = self.store.depth();
        self.depth.messages.store(depth.messages, Ordering::Relaxed);
        self.depth.bytes.store(depth.bytes, Ordering::Relaxed);
    }
}

fn error(failed: StoreError) -> Error {
    match failed {
        StoreError::Full => Error::Full,
        StoreError::Failed(words) => Error::Queue(words),
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Messages that are committed together.
const PUSHES_MAX: usize = 1_024;
