//! The events of one turn of a shard.

use crate::model::call_types::Call;
use crate::model::queries::SyncRequest;
use crate::model::{CloseReason, Encoding, Message, Peer};
use crate::state::open_calls::Responder;
use crate::topics::decided::PublicationRequest;
use std::ops::Range;
use std::sync::Arc;

/// The events of one shard in one turn of its loop, or in a part of it, in order.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) events: Vec<StoredEvent>,
    /// The connections of the events, each once.
    pub(super) peers: Vec<Arc<Peer>>,
    /// The bytes of all messages, one after another.
    pub(super) bytes: Vec<u8>,
    /// The texts of calls and requests for snapshots.
    pub(super) text_bytes: usize,
}

/// One thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A session started.
    Connect(&'a Arc<Peer>),
    /// A message arrived.
    Message(&'a Arc<Peer>, Message<'a>),
    /// A client asks something: answer by the responder, or by a clone of it after the batch is
    /// gone.
    Call(&'a Arc<Peer>, Call<'a>, &'a Responder),
    /// A client publishes to one of the topics of [`with_decided`](QueueSender::with_decided): let it go on, or
    /// refuse it, by the responder, or by a clone of it after the batch is gone.
    Publication(&'a Arc<Peer>, PublicationRequest<'a>, &'a Responder),
    /// A client asks for the state of topics: answer by
    /// [`Handle::send_snapshot`](crate::Handle::send_snapshot). Only with
    /// [`with_syncs`](QueueSender::with_syncs).
    Sync(&'a Arc<Peer>, SyncRequest<'a>),
    /// A session is over.
    Close(&'a Arc<Peer>, CloseReason),
}

#[derive(Debug)]
pub(super) struct StoredEvent {
    /// Its place among the batch's peers.
    pub(super) peer: u32,
    pub(super) what: QueuedEvent,
}

#[derive(Debug)]
pub(super) enum QueuedEvent {
    Connect,
    Message(Encoding, Range<usize>),
    Call(Box<StoredCall>),
    Publication(Box<StoredCall>, Box<str>, usize),
    Sync(Box<StoredSync>),
    Close(CloseReason),
}

/// A call, or a publication without its topic.
#[derive(Debug)]
pub(super) struct StoredCall {
    t: String,
    payload: String,
    is_binary: bool,
    timeout_ms: u64,
    responder: Responder,
}

#[derive(Debug)]
pub(super) struct StoredSync {
    topics: Vec<String>,
    include_snapshots: bool,
    last_sequence: Option<u64>,
    correlation_id: Option<String>,
}

impl Batch {
    /// An empty one that holds as much as this before it has to grow.
    pub(super) fn with_room_of(other: &Self) -> Self {
        Self {
            events: Vec::with_capacity(other.events.len()),
            peers: Vec::with_capacity(other.peers.len()),
            bytes: Vec::with_capacity(other.bytes.len()),
            text_bytes: 0,
        }
    }

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
        self.events.iter().map(|event| self.read(event))
    }

    /// One of the events by its number, from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Event<'_>> {
        self.events.get(index).map(|event| self.read(event))
    }

    /// The bytes of all its messages, one after another; the ranges of
    /// [`message_range`](Self::message_range) are of these.
    #[must_use]
    pub fn message_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The range of a message in [`message_bytes`](Self::message_bytes); `None` for an event that
    /// is no message.
    #[must_use]
    pub fn message_range(&self, index: usize) -> Option<Range<usize>> {
        match &self.events.get(index)?.what {
            QueuedEvent::Message(_, range) => Some(range.clone()),
            _ => None,
        }
    }

    fn read<'a>(&'a self, event: &'a StoredEvent) -> Event<'a> {
        let peer = &self.peers[event.peer as usize];
        match &event.what {
            QueuedEvent::Connect => Event::Connect(peer),
            QueuedEvent::Close(reason) => Event::Close(peer, *reason),
            QueuedEvent::Call(stored) => Event::Call(peer, stored.call(), &stored.responder),
            QueuedEvent::Publication(stored, topic, place) => {
                let publication = stored.publication(topic, *place);
                Event::Publication(peer, publication, &stored.responder)
            }
            QueuedEvent::Sync(stored) => Event::Sync(peer, stored.request()),
            QueuedEvent::Message(encoding, range) => {
                let message = Message {
                    encoding: *encoding,
                    bytes: &self.bytes[range.clone()],
                };
                Event::Message(peer, message)
            }
        }
    }

    /// Its cost, counted against the queue's limit.
    pub(super) fn cost(&self) -> usize {
        self.bytes.len() + self.text_bytes + self.events.len() * size_of::<StoredEvent>()
    }
}

impl StoredCall {
    pub(super) fn new(call: Call<'_>, responder: Responder) -> Self {
        Self {
            t: call.t.to_owned(),
            payload: call.payload.to_owned(),
            is_binary: call.is_binary,
            timeout_ms: call.timeout_ms,
            responder,
        }
    }

    fn call(&self) -> Call<'_> {
        Call {
            t: &self.t,
            payload: &self.payload,
            is_binary: self.is_binary,
            timeout_ms: self.timeout_ms,
        }
    }

    fn publication<'a>(&'a self, topic: &'a str, place: usize) -> PublicationRequest<'a> {
        PublicationRequest {
            topic,
            place,
            t: &self.t,
            payload: &self.payload,
            is_binary: self.is_binary,
            timeout_ms: self.timeout_ms,
        }
    }

    pub(super) fn cost(&self) -> usize {
        size_of::<Self>() + self.t.len() + self.payload.len()
    }
}

impl StoredSync {
    pub(super) fn new(request: &SyncRequest<'_>) -> Self {
        Self {
            topics: request.topics.to_vec(),
            include_snapshots: request.include_snapshots,
            last_sequence: request.last_sequence,
            correlation_id: request.correlation_id.map(str::to_owned),
        }
    }

    fn request(&self) -> SyncRequest<'_> {
        SyncRequest {
            topics: &self.topics,
            include_snapshots: self.include_snapshots,
            last_sequence: self.last_sequence,
            correlation_id: self.correlation_id.as_deref(),
        }
    }

    pub(super) fn cost(&self) -> usize {
        let topics = self.topics.iter();
        let topic_bytes: usize = topics.map(|topic| size_of::<String>() + topic.len()).sum();
        size_of::<Self>() + topic_bytes + self.correlation_id.as_ref().map_or(0, String::len)
    }
}
