//! Commands: what the shards ask of the link.

use crate::cluster::convert::{self, UNIQUE};
use crate::model::ConnectionKey;
use crate::model::call_types::{CallOutcome, NewCall};
use crate::topics::broker::{Order, ProducerName, ProducerOpening, ProducerPlace, Ticket};
use crate::topics::config::TopicRule;
use crate::topics::excluded::Excluded;
use crate::topics::groups::EndedWork;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tidewire_net::Waker;
use tidewire_redis::{NodeId, Present};
use tidewire_wire::envelope::{Category, Priority};

/// One thing for the link to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Publishes; the ticket is settled with the place.
    Publish(Box<OwnedOrder>, Ticket),
    /// Makes a topic live. Whoever waits for it waits at its mirror.
    Prepare(Arc<str>),
    /// The first session of this server has subscribed to a topic.
    AddInterest(Arc<str>),
    /// The last one has gone.
    RemoveInterest(Arc<str>),
    /// The first session of a user has begun on this server.
    AddUser(Arc<str>),
    /// The last one has ended.
    RemoveUser(Arc<str>),
    /// The connections and the data of a user on a topic, at this server.
    Presence(Arc<str>, Arc<str>, Option<Present>),
    /// Adds this server to a queue group of a topic; the ticket is settled when it is a member.
    JoinGroup(GroupKey, Ticket),
    /// The members of a queue group on this server are others, or have done something.
    ChangeGroup(GroupKey, EndedWork),
    /// Sends to others on the other servers.
    Send(Receiver, Box<[u8]>),
    /// Asks a client of another server.
    Call(ConnectionKey, NewCall, CallOutcome),
    /// Sends a command to the other servers, in JSON.
    Tell(Box<[u8]>, Ticket),
    /// Opens a producer for a connection.
    OpenProducer(ProducerOpening, Ticket),
    /// Remembers the number of a producer's last accepted message.
    KeepProducer(ProducerName, ProducerPlace, Option<Ticket>),
    /// Forgets the stored history of a topic.
    Forget(Arc<str>, Ticket),
}

/// A topic and the name of a queue group.
pub(crate) type GroupKey = (Arc<str>, Arc<str>);

/// The receivers of a parcel.
#[derive(Debug)]
pub(crate) enum Receiver {
    User(Arc<str>),
    Everyone,
    Node(NodeId),
}

/// A publication that outlives the call that asks for it.
#[derive(Debug)]
pub(crate) struct OwnedOrder {
    pub(crate) topic: Arc<str>,
    pub(crate) keeps_history: bool,
    pub(crate) publications_max: usize,
    pub(crate) category: Category,
    pub(crate) priority: Priority,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) exclude: Excluded,
    pub(crate) t: Box<str>,
    pub(crate) id: Option<Box<str>>,
    pub(crate) key: Option<Box<str>>,
    pub(crate) payload: Box<[u8]>,
    pub(crate) is_binary: bool,
    pub(crate) is_volatile: bool,
}

/// The way of commands from any thread to the link. It is bounded by those who put in: publishers
/// look at [`bytes`](Self::bytes) first, and the other commands are bounded by subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    queue: Mutex<Vec<Command>>,
    /// The link has ended: a new command is dropped, and the drop notifies its caller. Changed under the
    /// queue's lock.
    is_stopped: AtomicBool,
    /// The size of publications and commands to all servers until the broker answers them, and of messages
    /// and calls until the link has them.
    bytes: AtomicUsize,
    /// Messages to the other servers that were dropped because too much waited.
    lost: AtomicU64,
    /// Set when the link has been made.
    waker: OnceLock<Waker>,
}

impl OwnedOrder {
    pub(crate) fn new(order: &Order<'_>) -> Self {
        let (rule, draft): (&TopicRule, _) = (order.rule, order.draft);
        let history = rule.history.as_ref();
        let priority = match history {
            Some(_) => rule.priority,
            None => draft.priority.unwrap_or(rule.priority),
        };
        Self {
            topic: Arc::clone(order.topic),
            keeps_history: history.is_some(),
            publications_max: history.map_or(0, |limits| limits.publications_max),
            category: draft.category,
            priority,
            ttl_ms: draft.ttl_ms,
            exclude: draft.exclude.clone(),
            t: draft.t.into(),
            id: match (draft.id, draft.unique) {
                (Some(id), _) => Some(id.into()),
                (None, unique) => unique.map(|unique| format!("{UNIQUE}{unique}").into()),
            },
            key: draft.key.map(Box::from),
            payload: draft.payload.into(),
            is_binary: draft.is_binary,
            is_volatile: draft.is_volatile,
        }
    }

    /// The same in the form of the link, as the node that publishes it. The excluded connections after the first are
    /// written to `also`.
    pub(crate) fn link_draft<'a>(
        &'a self,
        node: NodeId,
        also: &'a mut Vec<u8>,
    ) -> tidewire_redis::Draft<'a> {
        let excluded = convert::excluded_in_record(node, &self.exclude, also);
        tidewire_redis::Draft {
            category: convert::link_category(self.category),
            priority: convert::link_priority(self.priority),
            ttl_ms: self.ttl_ms,
            excluded,
            also_excluded: also,
            t: &self.t,
            id: self.id.as_deref(),
            key: self.key.as_deref(),
            volatile: self.is_volatile,
            binary: self.is_binary,
            payload: &self.payload,
        }
    }

    /// Its size while it waits, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let excluded = size_of_val(self.exclude.connections());
        size_of::<Self>() + self.payload.len() + self.topic.len() + excluded
    }
}

impl Command {
    /// The charge until it is done, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Publish(order, _) => order.bytes(),
            Self::Send(_, bytes) | Self::Tell(bytes, _) => bytes.len() + COMMAND_BYTES,
            Self::Call(_, call, _) => call_bytes(call),
            _ => 0,
        }
    }
}

/// The size of a call until the link has it, in bytes.
pub(crate) fn call_bytes(call: &NewCall) -> usize {
    call.t.len() + call.payload.as_json().len() + COMMAND_BYTES
}

/// The size of a command besides its text, in bytes.
pub(crate) const COMMAND_BYTES: usize = 128;

impl Commands {
    pub(crate) fn connect(&self, waker: Waker) {
        // There is one link.
        let _ = self.waker.set(waker);
    }

    /// Puts a command in, and wakes the link if there was none.
    pub(crate) fn push(&self, command: Command) {
        let was_empty = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if self.is_stopped() {
                return;
            }
            self.bytes.fetch_add(command.bytes(), Ordering::AcqRel);
            queue.push(command);
            queue.len() == 1
        };
        if was_empty && let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Removes all commands from the queue and returns them.
    pub(crate) fn take(&self) -> Vec<Command> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *queue)
    }

    /// The link ends with its next turn. Waiting callers receive an error.
    pub(crate) fn stop(&self) {
        let left = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_stopped.store(true, Ordering::Release);
            std::mem::take(&mut *queue)
        };
        drop(left);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// The size of the commands that wait for the broker, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// A message to the other servers is dropped. The link warns of it.
    pub(crate) fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// The messages that were dropped.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// A command does not wait any more: its size is subtracted.
    pub(crate) fn settle(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}
