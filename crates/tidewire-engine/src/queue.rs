//! Events in batches, for applications that live on other threads.
//!
//! [`queue`] gives two ends: a factory of [`Application`]s, one for each shard, and a [`Receiver`]. What
//! happens on a shard in one turn of its loop crosses as one [`Batch`]. The queue is bounded in bytes:
//! when it is full, the shards stop reading their connections and TCP holds the senders back. Nothing is
//! dropped; what was in a shard's read buffer at that moment (one read buffer at most) still goes in.

use crate::application::{
    Application, CloseReason, ConnectionKey, Context, Encoding, Message, Peer,
};
use crate::calls::{Call, Responder};
use crate::handle::ShardWaker;
use crate::sync::SyncRequest;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Makes a queue that holds about `bytes_max` bytes of events.
#[must_use]
pub fn queue(bytes_max: usize) -> (QueueSender, Receiver) {
    let (sender, batches) = mpsc::channel();
    let gate = Arc::new(Gate {
        // Without room for anything the shards would never read.
        bytes_max: bytes_max.max(1),
        bytes: AtomicUsize::new(0),
        is_abandoned: AtomicBool::new(false),
        waiting: Mutex::new(Vec::new()),
    });
    (
        QueueSender {
            sender,
            gate: Arc::clone(&gate),
            takes_syncs: false,
        },
        Receiver { batches, gate },
    )
}

/// The end that the server fills: give [`application`](Self::application) to
/// [`Server::start`](crate::Server::start).
#[derive(Debug, Clone)]
pub struct QueueSender {
    sender: mpsc::Sender<Batch>,
    gate: Arc<Gate>,
    takes_syncs: bool,
}

/// The end that the application empties.
#[derive(Debug)]
pub struct Receiver {
    batches: mpsc::Receiver<Batch>,
    gate: Arc<Gate>,
}

/// What happened on one shard in one turn of its loop, in order.
#[derive(Debug, Default)]
pub struct Batch {
    events: Vec<StoredEvent>,
    /// The bytes of all messages, one after another.
    bytes: Vec<u8>,
    /// The texts of calls and requests for snapshots.
    text_bytes: usize,
}

/// One thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A session started.
    Connect(&'a Peer),
    /// A message arrived.
    Message(ConnectionKey, Message<'a>),
    /// A client asks something: answer by the responder, or by a clone of it after the batch is gone.
    Call(ConnectionKey, Call<'a>, &'a Responder),
    /// A client asks for the state of topics: answer by
    /// [`Handle::send_snapshot`](crate::Handle::send_snapshot). Only with
    /// [`with_syncs`](QueueSender::with_syncs).
    Sync(ConnectionKey, SyncRequest<'a>),
    /// A session is over.
    Close(ConnectionKey, CloseReason),
}

#[derive(Debug)]
enum StoredEvent {
    Connect(Box<Peer>),
    Message {
        connection: ConnectionKey,
        encoding: Encoding,
        end: usize,
    },
    Call(Box<StoredCall>),
    Sync(Box<StoredSync>),
    Close(ConnectionKey, CloseReason),
}

#[derive(Debug)]
struct StoredCall {
    t: String,
    payload: String,
    timeout_ms: u64,
    responder: Responder,
}

#[derive(Debug)]
struct StoredSync {
    connection: ConnectionKey,
    topics: Vec<String>,
    include_snapshots: bool,
    last_sequence: Option<u64>,
    correlation_id: Option<String>,
}

/// What both ends know of the queue's fill.
#[derive(Debug)]
struct Gate {
    bytes_max: usize,
    bytes: AtomicUsize,
    is_abandoned: AtomicBool,
    /// Shards that stopped reading because the queue was full, each once.
    waiting: Mutex<Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    shard: ShardWaker,
    is_listed: Arc<AtomicBool>,
}

impl QueueSender {
    /// Requests for the state of topics (`sync_request`) become events as well, and each wants an answer. Without
    /// this they are answered with what the topics keep.
    #[must_use]
    pub fn with_syncs(mut self) -> Self {
        self.takes_syncs = true;
        self
    }

    /// The application of one shard: it puts everything into the queue.
    #[must_use]
    pub fn application(&self) -> QueueApplication {
        QueueApplication {
            sender: self.sender.clone(),
            gate: Arc::clone(&self.gate),
            takes_syncs: self.takes_syncs,
            batch: Batch::default(),
            entered: Cell::new(0),
            waker: None,
            is_listed: Arc::default(),
        }
    }
}

impl Receiver {
    /// The next batch, waited for at most so long; `None` if none came.
    ///
    /// # Errors
    /// [`Finished`] when the server has stopped and everything has been taken.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Batch>, Finished> {
        match self.batches.recv_timeout(timeout) {
            Ok(batch) => {
                self.gate.leave(batch.cost());
                Ok(Some(batch))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Finished),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Without a reader the queue would stay full and no connection would ever be read again.
        self.gate.is_abandoned.store(true, Ordering::Release);
        self.gate.wake();
    }
}

/// The server has stopped and its queue is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server has stopped")]
pub struct Finished;

impl Batch {
    /// How many events it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The events, in the order in which they happened.
    pub fn events(&self) -> impl Iterator<Item = Event<'_>> {
        let mut start = 0;
        self.events.iter().map(move |event| match event {
            StoredEvent::Connect(peer) => Event::Connect(peer),
            StoredEvent::Close(connection, reason) => Event::Close(*connection, *reason),
            StoredEvent::Call(stored) => stored.event(),
            StoredEvent::Sync(stored) => stored.event(),
            StoredEvent::Message {
                connection,
                encoding,
                end,
            } => {
                let bytes = &self.bytes[start..*end];
                start = *end;
                Event::Message(
                    *connection,
                    Message {
                        encoding: *encoding,
                        bytes,
                    },
                )
            }
        })
    }

    /// What it counts for against the queue's limit.
    fn cost(&self) -> usize {
        self.bytes.len() + self.text_bytes + self.events.len() * size_of::<StoredEvent>()
    }
}

impl StoredCall {
    fn event(&self) -> Event<'_> {
        let call = Call {
            t: &self.t,
            payload: &self.payload,
            timeout_ms: self.timeout_ms,
        };
        Event::Call(self.responder.connection(), call, &self.responder)
    }

    fn cost(&self) -> usize {
        size_of::<Self>() + self.t.len() + self.payload.len()
    }
}

impl StoredSync {
    fn event(&self) -> Event<'_> {
        let request = SyncRequest {
            topics: &self.topics,
            include_snapshots: self.include_snapshots,
            last_sequence: self.last_sequence,
            correlation_id: self.correlation_id.as_deref(),
        };
        Event::Sync(self.connection, request)
    }

    fn cost(&self) -> usize {
        let topics = self.topics.iter();
        let topic_bytes: usize = topics.map(|topic| size_of::<String>() + topic.len()).sum();
        size_of::<Self>() + topic_bytes + self.correlation_id.as_ref().map_or(0, String::len)
    }
}

impl Gate {
    fn is_open(&self) -> bool {
        self.bytes.load(Ordering::Acquire) < self.bytes_max
            || self.is_abandoned.load(Ordering::Acquire)
    }

    fn enter(&self, cost: usize) {
        self.bytes.fetch_add(cost, Ordering::AcqRel);
    }

    fn leave(&self, cost: usize) {
        let before = self.bytes.fetch_sub(cost, Ordering::AcqRel);
        // Half empty before the senders are let in again, so that they come in strides.
        let half = self.bytes_max.div_ceil(2);
        if before >= half && before - cost < half {
            self.wake();
        }
    }

    fn wake(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for Waiting { shard, is_listed } in waiting.drain(..) {
            is_listed.store(false, Ordering::Release);
            shard.wake();
        }
    }
}

/// The [`Application`] of one shard that fills a queue.
#[derive(Debug)]
pub struct QueueApplication {
    sender: mpsc::Sender<Batch>,
    gate: Arc<Gate>,
    takes_syncs: bool,
    batch: Batch,
    /// What of the batch's cost the gate knows of.
    entered: Cell<usize>,
    waker: Option<ShardWaker>,
    /// This shard stands in the gate's list.
    is_listed: Arc<AtomicBool>,
}

impl QueueApplication {
    /// Tells the gate what has been gathered since the last time, so that the shards together cannot
    /// outgrow the limit within a turn.
    fn settle(&self) {
        let cost = self.batch.cost();
        self.gate.enter(cost - self.entered.replace(cost));
    }
}

impl Application for QueueApplication {
    fn on_start(&mut self, shard: ShardWaker) {
        self.waker = Some(shard);
    }

    fn on_connect(&mut self, _context: &mut Context<'_>, peer: &Peer) {
        self.batch
            .events
            .push(StoredEvent::Connect(Box::new(peer.clone())));
    }

    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        self.batch.bytes.extend_from_slice(message.bytes);
        self.batch.events.push(StoredEvent::Message {
            connection: context.connection(),
            encoding: message.encoding,
            end: self.batch.bytes.len(),
        });
    }

    fn on_call(&mut self, _context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
        let stored = StoredCall {
            t: call.t.to_owned(),
            payload: call.payload.to_owned(),
            timeout_ms: call.timeout_ms,
            responder,
        };
        self.batch.text_bytes += stored.cost();
        self.batch.events.push(StoredEvent::Call(Box::new(stored)));
    }

    fn on_sync(&mut self, context: &mut Context<'_>, request: &SyncRequest<'_>) -> bool {
        if !self.takes_syncs {
            return context.send_newest(request);
        }
        let stored = StoredSync {
            connection: context.connection(),
            topics: request.topics.to_vec(),
            include_snapshots: request.include_snapshots,
            last_sequence: request.last_sequence,
            correlation_id: request.correlation_id.map(str::to_owned),
        };
        self.batch.text_bytes += stored.cost();
        self.batch.events.push(StoredEvent::Sync(Box::new(stored)));
        true
    }

    fn on_close(&mut self, connection: ConnectionKey, reason: CloseReason) {
        self.batch
            .events
            .push(StoredEvent::Close(connection, reason));
    }

    fn is_ready(&self) -> bool {
        self.settle();
        if self.gate.is_open() {
            return true;
        }
        if let Some(shard) = &self.waker
            && !self.is_listed.swap(true, Ordering::AcqRel)
        {
            let mut waiting = self
                .gate
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let is_listed = Arc::clone(&self.is_listed);
            waiting.push(Waiting {
                shard: shard.clone(),
                is_listed,
            });
        }
        // The reader may have made room between the look and the entry.
        self.gate.is_open()
    }

    fn on_turn(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.settle();
        self.entered.set(0);
        let batch = std::mem::take(&mut self.batch);
        // Without a reader there is nobody to tell; the engine goes on serving its protocol.
        let _ = self.sender.send(batch);
    }
}
