//! What a client hears.

pub use crate::message::Message;
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

/// One thing that happened to a client, in the order in which it happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message of the server's application, or a publication.
    Message(Message),
    /// A server has let the client in, for the first or another time.
    Connected(Box<Connected>),
    /// The connection is gone.
    Disconnected(Box<Disconnected>),
    /// Publications that will not come.
    Gap(Box<TopicGap>),
    /// After a lost connection the server cannot say what was missed of a topic: get its state in another way.
    Unrecovered(Box<Unrecovered>),
    /// Topics that the server does not give again on a new connection, or has taken away.
    SubscriptionLost(Vec<String>),
    /// Somebody came to a topic, left it, or is told to be something else.
    Presence(Box<Presence>),
    /// The server asks something.
    Call(Box<Call>),
    /// The server will soon refuse messages; the client slows down by itself.
    RateLimitWarning(Box<RateLimitWarning>),
    /// The server refused something that nobody waits for, or names the reason of a failure.
    Error(Box<ServerError>),
    /// Of these queued messages it is not known whether the server took them, because it has forgotten this client.
    Uncertain(Box<Uncertain>),
    /// So many queued messages were too old to be sent.
    Expired(usize),
    /// The queue of unacknowledged messages does not work.
    QueueFailed(String),
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    /// The address of the endpoint.
    pub url: String,
    /// The connection's id.
    pub connection_id: String,
    /// The user that the token named.
    pub user: Option<String>,
    /// What the server calls itself.
    pub server_version: String,
    /// Which session of this client it is, from 1.
    pub session: u32,
    /// Whether messages are encrypted inside the WebSocket.
    pub is_encrypted: bool,
}

/// An end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disconnected {
    /// The close code, if there was one.
    pub code: Option<u16>,
    /// Why, in words.
    pub reason: String,
    /// After how long the next connection is tried; `None` if there will be none.
    pub retry_in: Option<Duration>,
}

/// Publications of a topic that will not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicGap {
    /// The topic, or the pattern of the subscription.
    pub topic: String,
    /// Why; `None` if the client noticed by itself that they are missing.
    pub reason: Option<GapReason>,
    /// How many.
    pub count: u64,
    /// The epoch, the first and the last offset, where they are known. Not all between need be missing.
    pub range: Option<(u32, u64, u64)>,
}

/// A topic whose missed publications cannot be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrecovered {
    /// The topic.
    pub topic: String,
    /// The last publication that was received.
    pub last: Position,
    /// Where the topic stands now.
    pub now: Position,
}

/// A change of a topic's presence.
#[derive(Debug, Clone, PartialEq)]
pub struct Presence {
    /// What happened.
    pub change: PresenceChange,
    /// The topic.
    pub topic: String,
    /// Who.
    pub user: String,
    /// What the user tells, as JSON text.
    pub data: Option<String>,
}

/// A question of the server's, to be answered by its [`Responder`].
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub t: String,
    /// With what, as JSON text.
    pub payload: String,
    /// How long the server waits.
    pub timeout: Option<Duration>,
    /// Answers it.
    pub responder: Responder,
}

/// How near the server's rate limit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitWarning {
    /// Messages that may be sent at once.
    pub limit: u64,
    /// Messages left of them.
    pub remaining: u64,
    /// When there are more.
    pub retry_after: Duration,
}

/// An error that the server told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// One of the protocol's error codes.
    pub code: String,
    /// The same in words.
    pub message: String,
    /// Whether the session goes on.
    pub recoverable: bool,
    /// After how long another try makes sense.
    pub retry_after: Option<Duration>,
    /// How many messages were refused.
    pub refused: u64,
}

/// Queued messages of which it is not known whether the server took them.
///
/// With [`config::Uncertain::Drop`](crate::config::Uncertain::Drop) they are in the queue until the application has taken
/// this, which is when it drops what an iterator has given it. So one that dies before is told again when it starts
/// anew. There may be further ones, which are told after that.
pub struct Uncertain {
    /// Which, in the order in which they were stored.
    pub messages: Vec<QueuedMessage>,
    /// Whether they are sent again; otherwise it is for the application to decide.
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
    /// The payload, JSON text.
    pub payload: String,
    /// What was to go first.
    pub priority: Priority,
    /// The conflation key of a publication.
    pub key: Option<String>,
}

impl Uncertain {
    /// `when_taken` is called when the application has taken it.
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

    /// Says whether the application gets this now. For bindings, which take events out of a [`Batch`] before the
    /// application looks at them.
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
    /// What happened, in one word, as bindings name it.
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
            Self::Error(_) => "error",
            Self::Uncertain(_) => "uncertain",
            Self::Expired(_) => "expired",
            Self::QueueFailed(_) => "queue_failed",
        }
    }

    /// The bytes of its texts, which the server chose.
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

/// Events that came together. Iterate over it.
#[derive(Debug)]
pub struct Batch {
    data: Bytes,
    entries: std::vec::IntoIter<Entry>,
    session: u32,
}

/// A batch that is being put together.
#[derive(Debug, Default)]
pub(crate) struct BatchBuilder {
    data: Vec<u8>,
    entries: Vec<Entry>,
    /// What the events hold beside the entries.
    event_bytes: usize,
    session: u32,
}

#[derive(Debug)]
enum Entry {
    Message {
        start: usize,
        end: usize,
        payload: Range<u32>,
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

    /// Adds a message; `payload` is the part of it that the payload takes, or nothing if that is not known.
    pub(crate) fn push_message(&mut self, encoding: Format, bytes: &[u8], payload: &[u8]) {
        let start = self.data.len();
        self.data.extend_from_slice(bytes);
        self.entries.push(Entry::Message {
            start,
            end: self.data.len(),
            payload: range_in(bytes, payload).unwrap_or_default(),
            encoding,
        });
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.event_bytes += event.text_bytes();
        self.entries.push(Entry::Event(event));
    }

    /// A session has begun: what is in the batch belongs to it, as there were no messages before.
    pub(crate) fn set_session(&mut self, session: u32) {
        self.session = session;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What it counts for in the inbox.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len() + self.event_bytes + self.entries.len() * ENTRY_BYTES
    }

    /// Takes in a later batch of the same session, if both are small; otherwise gives it back.
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

/// Where a part of a message is in it; `None` if it is none.
fn range_in(whole: &[u8], part: &[u8]) -> Option<Range<u32>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    let is_in = end <= whole.len();
    is_in.then_some(u32::try_from(start).ok()?..u32::try_from(end).ok()?)
}

/// A message that waits for others, apart from its batch.
#[derive(Debug, Clone)]
pub(crate) struct HeldMessage {
    pub(crate) encoding: Format,
    pub(crate) bytes: Arc<[u8]>,
}

/// Batches below this are joined while the application is busy, so that trickling messages cost little memory.
const MERGED_BYTES_MAX: usize = 16 * 1024;

/// What an entry counts for, besides its bytes.
const ENTRY_BYTES: usize = 64;
