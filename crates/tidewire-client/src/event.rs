//! Events of a client.

pub use crate::message::Message;
use crate::payload::bytes_of;
use crate::priority_queue::Priority;
use crate::responder::Responder;
use crate::sequencer::Position;
use bytes::Bytes;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidewire_wire::format::Format;
pub use tidewire_wire::session::{GapReason, PresenceChange};

/// An event of a client. A client delivers its events in the order in which they happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message of the server's application, or a publication.
    Message(Message),
    /// A session is established, the first one or a later one.
    Connected(Box<Connected>),
    /// The connection has ended.
    Disconnected(Box<Disconnected>),
    /// Publications that the client will not receive.
    Gap(Box<TopicGap>),
    /// After a lost connection the server could not recover a topic. The application has to load its state in another
    /// way.
    Unrecovered(Box<Unrecovered>),
    /// Topics that are no longer subscribed: the server refused them on a new connection, or revoked them.
    SubscriptionLost(Vec<String>),
    /// A user joined a topic, left it, or changed its presence data.
    Presence(Box<Presence>),
    /// A call of the server, which expects an answer.
    Call(Box<Call>),
    /// The rate limit of the server is almost reached. The client slows down by itself.
    RateLimitWarning(Box<RateLimitWarning>),
    /// The server has lost the broker that connects it with other servers, or has it back. While the broker is away nothing
    /// arrives from the other servers. The end of the connection ends this state.
    BrokerUpdate {
        /// Whether the broker is away.
        is_away: bool,
    },
    /// The server reports an error that belongs to no waiting request, or explains a failure.
    Error(Box<ServerError>),
    /// The server has forgotten this client, so that nobody knows whether it accepted these queued messages.
    Uncertain(Box<Uncertain>),
    /// The number of queued messages that expired before they could be sent.
    Expired(usize),
    /// The queue of unacknowledged messages cannot be read or written; the text states why.
    QueueFailed(String),
}

/// A server has accepted the client (`server_ready`). The limits of `server_hello` are not known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    /// The address of the endpoint.
    pub url: String,
    /// The connection's id.
    pub connection_id: String,
    /// The user in the token.
    pub user: Option<String>,
    /// The name and version of the server.
    pub server_version: String,
    /// The number of the session, counted from 1 for each client.
    pub session: u32,
    /// Whether messages are encrypted inside the WebSocket.
    pub is_encrypted: bool,
    /// Whether the server has agreed to permessage-deflate.
    pub has_deflate: bool,
}

/// The end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disconnected {
    /// The close code; `None` if the connection ended without a close frame.
    pub code: Option<u16>,
    /// The reason in words.
    pub reason: String,
    /// The time until the next attempt to connect; `None` if there is none.
    pub retry_in: Option<Duration>,
}

/// Publications of a topic that the client will not receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicGap {
    /// The topic, or the pattern of the subscription.
    pub topic: String,
    /// The reason; `None` if the client itself noticed the gap.
    pub reason: Option<GapReason>,
    /// The number of missing publications.
    pub count: u64,
    /// The epoch, the first and the last missing offset, if they are known. Some between them may have arrived.
    pub range: Option<(u32, u64, u64)>,
}

/// A topic that could not be recovered after a lost connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrecovered {
    /// The topic.
    pub topic: String,
    /// The position of the last received publication.
    pub last: Position,
    /// The current position of the topic.
    pub now: Position,
}

/// A change of a topic's presence.
#[derive(Debug, Clone, PartialEq)]
pub struct Presence {
    /// The kind of change.
    pub change: PresenceChange,
    /// The topic.
    pub topic: String,
    /// The user.
    pub user: String,
    /// The presence data of the user, JSON text.
    pub data: Option<String>,
}

/// A call of the server, to be answered with its [`Responder`].
#[derive(Debug)]
pub struct Call {
    /// The type.
    pub t: String,
    /// The payload, JSON text; if it is binary, the base64 of the bytes in quotes.
    pub payload: String,
    /// True if the payload is binary; [`Call::bytes`] then gives the bytes.
    pub is_binary: bool,
    /// The time for which the server waits for the answer.
    pub timeout: Option<Duration>,
    /// Sends the answer.
    pub responder: Responder,
}

/// The state of the rate limit of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitWarning {
    /// The number of messages that the limit allows at once.
    pub limit: u64,
    /// The number of messages that are left.
    pub remaining: u64,
    /// The time until more are allowed.
    pub retry_after: Duration,
}

/// An error that the server reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// One of the protocol's error codes.
    pub code: String,
    /// The explanation in words.
    pub message: String,
    /// Whether the session continues.
    pub recoverable: bool,
    /// The time after which a retry may succeed.
    pub retry_after: Option<Duration>,
    /// The number of refused messages.
    pub refused: u64,
}

/// Queued messages for which the client does not know whether the server accepted them.
///
/// With [`config::Uncertain::Drop`](crate::config::Uncertain::Drop) the messages stay in the queue until the application
/// drops this event, which it received from an iterator. An application that ends before receives the event again
/// after its next start. Further messages follow in later events.
pub struct Uncertain {
    /// The messages, in the order in which they were stored.
    pub messages: Vec<QueuedMessage>,
    /// Whether the client sends them again; otherwise the application decides.
    pub is_resent: bool,
    is_taken: AtomicBool,
    when_taken: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// A message that was in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// The topic of a publication; `None` for a message to the server's application.
    pub topic: Option<String>,
    /// The type.
    pub t: String,
    /// The payload, JSON text; if it is binary, the base64 of the bytes in quotes.
    pub payload: String,
    /// True if the payload is binary; [`QueuedMessage::bytes`] then gives the bytes.
    pub is_binary: bool,
    /// The priority.
    pub priority: Priority,
    /// The conflation key of a publication.
    pub key: Option<String>,
}

impl Call {
    /// The bytes of a payload that is binary; `None` for any other.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        bytes_of(&self.payload, self.is_binary)
    }
}

impl QueuedMessage {
    /// The bytes of a payload that is binary; `None` for any other.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        bytes_of(&self.payload, self.is_binary)
    }
}

impl Uncertain {
    /// An event that calls `when_taken` when the application drops it.
    pub(crate) fn new(
        messages: Vec<QueuedMessage>,
        when_taken: Option<Box<dyn FnOnce() + Send + Sync>>,
    ) -> Self {
        Self {
            messages,
            is_resent: when_taken.is_none(),
            is_taken: AtomicBool::new(false),
            when_taken,
        }
    }

    /// Sets whether the application receives this event now. For bindings, which remove events from a [`Batch`]
    /// before the application reads them.
    pub fn set_taken(&self, is_taken: bool) {
        self.is_taken.store(is_taken, Ordering::Relaxed);
    }

    fn bytes(&self) -> usize {
        let bytes = |message: &QueuedMessage| message.payload.len() + message.t.len() + ENTRY_BYTES;
        self.messages.iter().map(bytes).sum()
    }
}

impl Drop for Uncertain {
    fn drop(&mut self) {
        if let Some(when_taken) = self.when_taken.take()
            && *self.is_taken.get_mut()
        {
            when_taken();
        }
    }
}

impl fmt::Debug for Uncertain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uncertain")
            .field("messages", &self.messages)
            .field("is_resent", &self.is_resent)
            .finish_non_exhaustive()
    }
}

impl Event {
    /// The name of the kind of event, as bindings use it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Message(_) => "message",
            Self::Connected(_) => "connected",
            Self::Disconnected(_) => "disconnected",
            Self::Gap(_) => "gap",
            Self::Unrecovered(_) => "unrecovered",
            Self::SubscriptionLost(_) => "subscription_lost",
            Self::Presence(presence) => match presence.change {
                PresenceChange::Join => "presence_join",
                PresenceChange::Leave => "presence_leave",
                PresenceChange::Update => "presence_update",
            },
            Self::Call(_) => "request",
            Self::RateLimitWarning(_) => "rate_limit_warning",
            Self::BrokerUpdate { .. } => "broker_update",
            Self::Error(_) => "error",
            Self::Uncertain(_) => "uncertain",
            Self::Expired(_) => "expired",
            Self::QueueFailed(_) => "queue_failed",
        }
    }

    /// The size of its texts, which the server determines.
    fn text_bytes(&self) -> usize {
        match self {
            Self::Call(call) => call.t.len() + call.payload.len(),
            Self::Error(error) => error.code.len() + error.message.len(),
            Self::Presence(presence) => {
                let data_bytes = presence.data.as_ref().map_or(0, String::len);
                presence.topic.len() + presence.user.len() + data_bytes
            }
            Self::Connected(connected) => {
                connected.connection_id.len() + connected.server_version.len()
            }
            Self::SubscriptionLost(topics) => topics.iter().map(String::len).sum(),
            Self::Uncertain(uncertain) => uncertain.bytes(),
            Self::Gap(gap) => gap.topic.len(),
            _ => 0,
        }
    }
}

/// Events that were received together; an iterator over them.
#[derive(Debug)]
pub struct Batch {
    data: Bytes,
    entries: std::vec::IntoIter<Entry>,
    session: u32,
}

/// A batch under construction.
#[derive(Debug, Default)]
pub(crate) struct BatchBuilder {
    data: Vec<u8>,
    entries: Vec<Entry>,
    /// The size of the texts of the events.
    event_bytes: usize,
    session: u32,
}

#[derive(Debug)]
enum Entry {
    Message {
        start: usize,
        end: usize,
        payload: (Range<u32>, bool),
        encoding: Format,
    },
    Event(Event),
}

impl Iterator for Batch {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        Some(match self.entries.next()? {
            Entry::Event(event) => {
                if let Event::Uncertain(uncertain) = &event {
                    uncertain.set_taken(true);
                }
                event
            }
            Entry::Message {
                start,
                end,
                payload,
                encoding,
            } => {
                let data = self.data.slice(start..end);
                Event::Message(Message::new(data, payload, encoding, self.session))
            }
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Batch {}

impl BatchBuilder {
    pub(crate) fn new(session: u32) -> Self {
        Self {
            session,
            ..Self::default()
        }
    }

    /// Adds a message. `payload` is the part of `bytes` with the payload, or empty if it is not known, and whether it is
    /// binary.
    pub(crate) fn push_message(
        &mut self,
        encoding: Format,
        bytes: &[u8],
        (payload, is_binary): (&[u8], bool),
    ) {
        let start = self.data.len();
        self.data.extend_from_slice(bytes);
        self.entries.push(Entry::Message {
            start,
            end: self.data.len(),
            payload: (range_in(bytes, payload).unwrap_or_default(), is_binary),
            encoding,
        });
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.event_bytes += event.text_bytes();
        self.entries.push(Entry::Event(event));
    }

    /// Sets the session of the batch. It holds no message of an earlier session.
    pub(crate) fn set_session(&mut self, session: u32) {
        self.session = session;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The size that counts against the limit of the inbox.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len() + self.event_bytes + self.entries.len() * ENTRY_BYTES
    }

    /// Appends a later batch of the same session if both are small; otherwise returns it.
    pub(crate) fn append(&mut self, mut other: Self) -> Option<Self> {
        let total = self.data.len() + other.data.len();
        if self.session != other.session || total > MERGED_BYTES_MAX {
            return Some(other);
        }
        let offset = self.data.len();
        self.data.append(&mut other.data);
        self.event_bytes += other.event_bytes;
        self.entries
            .extend(other.entries.into_iter().map(|entry| match entry {
                Entry::Message {
                    start,
                    end,
                    payload,
                    encoding,
                } => Entry::Message {
                    start: start + offset,
                    end: end + offset,
                    payload,
                    encoding,
                },
                event @ Entry::Event(_) => event,
            }));
        None
    }

    pub(crate) fn finish(self) -> Batch {
        Batch {
            data: Bytes::from(self.data),
            entries: self.entries.into_iter(),
            session: self.session,
        }
    }
}

/// The range of `part` in `whole`; `None` if it is not a part.
fn range_in(whole: &[u8], part: &[u8]) -> Option<Range<u32>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    let is_in = end <= whole.len();
    is_in.then_some(u32::try_from(start).ok()?..u32::try_from(end).ok()?)
}

/// A message that waits for earlier ones, with a copy of its bytes.
#[derive(Debug, Clone)]
pub(crate) struct HeldMessage {
    pub(crate) encoding: Format,
    pub(crate) bytes: Arc<[u8]>,
}

/// Batches below this size are merged while the application is busy, so that single messages cost little memory.
const MERGED_BYTES_MAX: usize = 16 * 1024;

/// The size that is counted for each entry besides its bytes.
const ENTRY_BYTES: usize = 64;
