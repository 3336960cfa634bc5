//! Events in batches, for applications that live on other threads.
//!
//! [`queue`] gives two ends: a factory of [`Application`]s, one for each shard, and a [`Receiver`].
//! The events of a shard in one turn of its loop form one [`Batch`]. The queue is bounded in bytes:
//! when it is full, the shards stop reading their connections and TCP holds the senders back.
//! Nothing is dropped; the data in a shard's read buffer at that moment (one read buffer at most)
//! still enters the queue.

mod batch;

pub use batch::{Batch, Event};

use crate::model::call_types::Call;
use crate::model::queries::SyncRequest;
use crate::model::{CloseReason, ConnectionKey, Message, Peer, ShardWaker};
use crate::session::application::Application;
use crate::session::context::Context;
use crate::state::connect_request::{ConnectRequest, ConnectRequests};
use crate::state::open_calls::Responder;
use crate::topics::decided::{DecidedTopics, PublicationRequest};
use batch::{QueuedEvent, StoredCall, StoredEvent, StoredSync};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
        waker: BatchWaker::default(),
    });
    (
        QueueSender {
            sender,
            gate: Arc::clone(&gate),
            takes_syncs: false,
            decided: Arc::default(),
            connect_requests: Arc::default(),
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
    decided: Arc<DecidedTopics>,
    connect_requests: Arc<ConnectRequests>,
}

/// The end that the application empties.
#[derive(Debug)]
pub struct Receiver {
    batches: mpsc::Receiver<Batch>,
    gate: Arc<Gate>,
}

/// The fill of the queue, which both ends see.
#[derive(Debug)]
struct Gate {
    bytes_max: usize,
    bytes: AtomicUsize,
    is_abandoned: AtomicBool,
    /// Shards that stopped reading because the queue was full, each once.
    waiting: Mutex<Vec<WaitingShard>>,
    waker: BatchWaker,
}

/// Wakes a receiver that waits elsewhere, such as in another event loop.
#[derive(Default)]
struct BatchWaker {
    is_armed: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug)]
struct WaitingShard {
    shard: ShardWaker,
    is_listed: Arc<AtomicBool>,
}

impl QueueSender {
    /// Requests for the state of topics (`sync_request`) become events as well, and each wants an
    /// answer. Without this they are answered with what the topics keep.
    #[must_use]
    pub fn with_syncs(mut self) -> Self {
        self.takes_syncs = true;
        self
    }

    /// Publications of clients to these topics become events as well, and wait for an answer each.
    #[must_use]
    pub fn with_decided(mut self, topics: Arc<DecidedTopics>) -> Self {
        self.decided = topics;
        self
    }

    /// Clients that want to connect wait for a decision there, as soon as it wants them.
    #[must_use]
    pub fn with_connect_requests(mut self, requests: Arc<ConnectRequests>) -> Self {
        self.connect_requests = requests;
        self
    }

    /// The application of one shard: it puts everything into the queue.
    #[must_use]
    pub fn application(&self) -> QueueApplication {
        QueueApplication {
            sender: Some(self.sender.clone()),
            gate: Arc::clone(&self.gate),
            takes_syncs: self.takes_syncs,
            decided: Arc::clone(&self.decided),
            connect_requests: Arc::clone(&self.connect_requests),
            batch: Batch::default(),
            batches: 0,
            sessions: Vec::new(),
            entered: Cell::new(0),
            waker: None,
            is_listed: Arc::default(),
        }
    }
}

impl Receiver {
    /// The next batch. Waits for it at most `timeout`; `None` if none arrived.
    ///
    /// # Errors
    /// [`Finished`] when the server has stopped and every batch has been received.
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

    /// Sets the function to call, on a shard's thread, when there is something to receive or the
    /// server has stopped: once after each [`arm`](Self::arm). It must not block. Only the first
    /// function counts.
    pub fn on_batch(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.gate.waker.wake.set(Box::new(wake));
    }

    /// Requests a call of the function of [`on_batch`](Self::on_batch) for the next batch. Earlier
    /// batches may have caused no call, so call [`receive`](Self::receive) once more with a timeout
    /// of zero before you wait.
    pub fn arm(&self) {
        self.gate.waker.is_armed.store(true, Ordering::SeqCst);
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
        // Half empty before the senders may send again, so that they send in larger batches.
        let half = self.bytes_max.div_ceil(2);
        if before >= half && before - cost < half {
            self.wake();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<WaitingShard>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        for WaitingShard { shard, is_listed } in self.waiting().drain(..) {
            is_listed.store(false, Ordering::Release);
            shard.wake();
        }
    }
}

impl BatchWaker {
    fn wake(&self) {
        if self.is_armed.swap(false, Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }
}

impl fmt::Debug for BatchWaker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BatchWaker(..)")
    }
}

/// The [`Application`] of one shard that fills a queue.
#[derive(Debug)]
pub struct QueueApplication {
    /// `None` once the shard has ended.
    sender: Option<mpsc::Sender<Batch>>,
    gate: Arc<Gate>,
    takes_syncs: bool,
    decided: Arc<DecidedTopics>,
    connect_requests: Arc<ConnectRequests>,
    batch: Batch,
    /// The number of `batch`.
    batches: u64,
    /// By the index of the connection on its shard.
    sessions: Vec<Option<QueuedSession>>,
    /// The part of the batch's cost that the gate has counted.
    entered: Cell<usize>,
    waker: Option<ShardWaker>,
    /// This shard stands in the gate's list.
    is_listed: Arc<AtomicBool>,
}

/// A session of the shard.
#[derive(Debug)]
struct QueuedSession {
    peer: Arc<Peer>,
    /// The batch in which it was last, and its place among the peers of that.
    batch: u64,
    place: u32,
}

impl QueueApplication {
    fn push(&mut self, connection: ConnectionKey, what: QueuedEvent) {
        let slot = self.sessions.get_mut(connection.id.index());
        // The engine announces each session before anything else of it.
        let Some(session) = slot.and_then(Option::as_mut) else {
            return;
        };
        if session.batch != self.batches {
            session.batch = self.batches;
            session.place = self.batch.peers.len() as u32;
            self.batch.peers.push(Arc::clone(&session.peer));
        }
        let peer = session.place;
        self.batch.events.push(StoredEvent { peer, what });
    }

    fn send_batch(&mut self) {
        self.settle();
        self.entered.set(0);
        self.batches += 1;
        let next = Batch::with_room_of(&self.batch);
        let batch = std::mem::replace(&mut self.batch, next);
        if let Some(sender) = &self.sender {
            // If the reader has gone, the engine continues to serve its protocol.
            let _ = sender.send(batch);
            self.gate.waker.wake();
        }
    }

    /// Reports the bytes gathered since the last call to the gate, so that the shards together
    /// cannot outgrow the limit within a turn.
    fn settle(&self) {
        let cost = self.batch.cost();
        self.gate.enter(cost - self.entered.replace(cost));
    }
}

impl Application for QueueApplication {
    fn on_start(&mut self, shard: ShardWaker) {
        self.waker = Some(shard);
    }

    fn decides_connections(&self) -> bool {
        self.connect_requests.is_wanted()
    }

    fn on_connect_request(&mut self, request: ConnectRequest) {
        self.connect_requests.push(request);
    }

    fn on_connect(&mut self, _context: &mut Context<'_>, peer: &Peer) {
        let index = peer.connection.id.index();
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        self.sessions[index] = Some(QueuedSession {
            peer: Arc::new(peer.clone()),
            batch: u64::MAX,
            place: 0,
        });
        self.push(peer.connection, QueuedEvent::Connect);
    }

    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        let start = self.batch.bytes.len();
        self.batch.bytes.extend_from_slice(message.bytes);
        let range = start..self.batch.bytes.len();
        self.push(
            context.connection(),
            QueuedEvent::Message(message.encoding, range),
        );
        if self.batch.bytes.len() >= BATCH_BYTES {
            self.send_batch();
        }
    }

    fn on_call(&mut self, _context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
        let connection = responder.connection();
        let stored = StoredCall::new(call, responder);
        self.batch.text_bytes += stored.cost();
        self.push(connection, QueuedEvent::Call(Box::new(stored)));
    }

    fn decided_topics(&self) -> Option<&DecidedTopics> {
        Some(&self.decided)
    }

    fn on_publication(
        &mut self,
        _context: &mut Context<'_>,
        publication: PublicationRequest<'_>,
        responder: Responder,
    ) {
        let connection = responder.connection();
        let stored = StoredCall::new(publication.as_call(), responder);
        self.batch.text_bytes += stored.cost() + publication.topic.len();
        let what = QueuedEvent::Publication(
            Box::new(stored),
            publication.topic.into(),
            publication.place,
        );
        self.push(connection, what);
    }

    fn on_sync(&mut self, context: &mut Context<'_>, request: &SyncRequest<'_>) -> bool {
        if !self.takes_syncs {
            return context.send_newest(request);
        }
        let stored = StoredSync::new(request);
        self.batch.text_bytes += stored.cost();
        self.push(context.connection(), QueuedEvent::Sync(Box::new(stored)));
        true
    }

    fn on_close(&mut self, connection: ConnectionKey, reason: CloseReason) {
        self.push(connection, QueuedEvent::Close(reason));
        if let Some(slot) = self.sessions.get_mut(connection.id.index()) {
            *slot = None;
        }
    }

    fn is_ready(&self) -> bool {
        self.settle();
        if self.gate.is_open() {
            return true;
        }
        if let Some(shard) = self.waker.clone()
            && !self.is_listed.swap(true, Ordering::AcqRel)
        {
            let is_listed = Arc::clone(&self.is_listed);
            self.gate.waiting().push(WaitingShard { shard, is_listed });
        }
        // The reader may have made room between the look and the entry.
        self.gate.is_open()
    }

    fn on_turn(&mut self) {
        if !self.batch.is_empty() {
            self.send_batch();
        }
    }
}

impl Drop for QueueApplication {
    fn drop(&mut self) {
        // Before the wake-up, so that a receiver that is woken finds the queue finished.
        self.sender = None;
        self.gate.waker.wake();
    }
}

/// A batch with this many bytes of messages goes off before the turn's end: it is still in the
/// processor's cache when it is read.
const BATCH_BYTES: usize = 64 * 1024;
