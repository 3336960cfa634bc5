//! Requests of a client and their results.

use crate::message::Message;
use crate::payload::Payload;
use crate::sequencer::Position;
pub use serde_json::Value;
use std::fmt;
use std::sync::Arc;
pub use tidewire_wire::envelope::Priority;
use tidewire_wire::envelope::epoch_text;
use tidewire_wire::session::{
    self as wire, HISTORY_LIMIT, TOKEN_BYTES_MAX, TOKENS_PER_REQUEST_MAX, TOPICS_PER_REQUEST_MAX,
    Token,
};
pub use tidewire_wire::session::{
    CallError, Overload, PresenceMember, TopicFailure, TopicPresence,
};

/// Options of a subscription. [`SubscribeOptions::default`] has the default of each field.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscribeOptions {
    /// Whether the client recovers missed publications after a lost connection. Default true.
    pub recover: bool,
    /// Positions from which topics are recovered: the server first sends the publications after them. Default: none.
    pub from: Vec<(String, Position)>,
    /// The number of the newest publications in the history of each topic that the server sends first. After a lost
    /// connection it sends them only if [`recover`](Self::recover) is on and the recovery fails. Default 0.
    pub replay: u64,
    /// The presence data that other subscribers receive: an object of at most 4 KiB. Default: none.
    pub presence: Option<Value>,
    /// The queue group: each publication is delivered to one member of the group. Default: none.
    pub queue_group: Option<String>,
    /// Whether this member of a group acknowledges deliveries ([`Client::acknowledge`](crate::Client::acknowledge)). The
    /// server redelivers an unacknowledged one to another member. Default false.
    pub acknowledge: bool,
    /// The maximum number of unacknowledged deliveries. Default: the limit of the server.
    pub window: Option<u64>,
    /// A filter document (section 19.8 of the protocol) that selects publications. Default: all publications.
    pub filter: Option<Value>,
    /// The policy for publications that the client does not read in time. Default: the policy of the server.
    pub overload: Option<Overload>,
    /// The source of subscription tokens (section 19.10 of the protocol), which allow topics that the rights of the user
    /// do not. Default: none.
    pub tokens: Option<TopicTokens>,
}

/// A function that gives the subscription token of a topic or pattern, if there is one. The client calls it for
/// each request to subscribe: the first one, after each lost connection, and when the server has ended the
/// subscription because its token has expired. It must return at once, because the connection waits for it: a
/// token that has to be requested from a server must be fetched before.
#[derive(Clone)]
pub struct TopicTokens(Arc<TokenFunction>);

type TokenFunction = dyn Fn(&str) -> Option<String> + Send + Sync;

impl TopicTokens {
    /// The tokens that a function gives.
    pub fn new(function: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    /// The tokens of these topics, as the server wants them.
    pub(crate) fn of(&self, topics: &[String]) -> Vec<(String, Token)> {
        let is_usable = |token: &String| (1..=TOKEN_BYTES_MAX).contains(&token.len());
        let token = |topic: &String| {
            let token = (self.0)(topic).filter(is_usable)?;
            Some((topic.clone(), Token(token)))
        };
        topics.iter().filter_map(token).collect()
    }
}

/// Two of them are equal if they are the same function.
impl PartialEq for TopicTokens {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for TopicTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TopicTokens(..)")
    }
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self {
            recover: true,
            from: Vec::new(),
            replay: 0,
            presence: None,
            queue_group: None,
            acknowledge: false,
            window: None,
            filter: None,
            overload: None,
            tokens: None,
        }
    }
}

impl SubscribeOptions {
    /// The position from which the application wants to recover a topic.
    pub(crate) fn position_from(&self, topic: &str) -> Option<Position> {
        let from = self.from.iter().find(|(from, _)| from == topic);
        from.map(|(_, position)| *position)
    }

    /// The number of topics that one request may have.
    pub(crate) fn topics_per_request(&self) -> usize {
        match self.tokens {
            Some(_) => TOKENS_PER_REQUEST_MAX,
            None => TOPICS_PER_REQUEST_MAX,
        }
    }

    /// Whether the received offsets of a topic are consecutive with these options.
    pub(crate) fn is_gapless(&self) -> bool {
        self.filter.is_none() && self.overload.is_none() && self.queue_group.is_none()
    }
}

/// The result of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscribed {
    /// Topics that are subscribed now.
    pub topics: Vec<String>,
    /// Topics that failed.
    pub failed: Vec<String>,
    /// The reason for each topic in `failed`. An older server sends an [`Event::Error`](crate::Event::Error) with the
    /// reason for the first one instead.
    pub failures: Vec<TopicFailure>,
    /// The positions of the topics with history.
    pub positions: Vec<TopicPosition>,
}

/// The position of a topic at the time of its subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPosition {
    /// The topic.
    pub topic: String,
    /// The position of its newest publication.
    pub position: Position,
    /// Whether all publications after the requested position follow.
    pub recovered: bool,
    /// The number of publications that are sent again.
    pub count: u64,
}

/// A publication. [`Publication::new`] creates one with the default of each field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The topic; not a pattern.
    pub topic: String,
    /// The type: 1 to 128 bytes, and not a type of the protocol.
    pub t: String,
    /// The payload: JSON text.
    pub payload: Payload<'static>,
    /// The idempotency key, 1 to 128 bytes: the server accepts only the first publication with a key. Default: a new
    /// key for each publication, so that the client can send it again after a lost connection.
    pub id: Option<String>,
    /// The conflation key, 1 to 128 bytes: a slow subscriber that conflates receives only the newest publication with
    /// a key.
    pub key: Option<String>,
    /// The time to live in milliseconds, at least 1. Default: unlimited.
    pub ttl_ms: Option<u64>,
    /// The priority in a queue that is behind. Default: the priority of the topic.
    pub priority: Option<Priority>,
    /// Whether this client's own subscriptions do not receive it. Default false.
    pub exclude_self: bool,
    /// Whether it is a whole state and not a change. Default false.
    pub is_snapshot: bool,
}

impl Publication {
    /// A publication of `payload`, which is JSON text or [bytes](Payload::binary).
    pub fn new<'a>(
        topic: impl Into<String>,
        t: impl Into<String>,
        payload: impl Into<Payload<'a>>,
    ) -> Self {
        Self {
            topic: topic.into(),
            t: t.into(),
            payload: payload.into().into_owned(),
            id: None,
            key: None,
            ttl_ms: None,
            priority: None,
            exclude_self: false,
            is_snapshot: false,
        }
    }
}

/// The result of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Whether the server rejected it because it had accepted one with the same id before.
    pub is_duplicate: bool,
    /// Its position in the history of the topic, if the topic has one.
    pub position: Option<Position>,
}

/// The requested part of the history of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The topic; no pattern.
    pub topic: String,
    /// The server sends publications after this position or, with the newest first, before it. Default: none, which
    /// starts at the oldest or the newest stored publication.
    pub since: Option<Position>,
    /// The maximum number of publications, 1 to 1000; the answer has at most 512 KiB of them. Default 100.
    pub limit: u64,
    /// Whether the answer starts with the newest publication. Default false.
    pub newest_first: bool,
}

impl HistoryQuery {
    /// A query for the oldest stored publications of `topic`.
    #[must_use]
    pub fn new(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            since: None,
            limit: HISTORY_LIMIT,
            newest_first: false,
        }
    }

    /// The same query, starting with the newest publication.
    #[must_use]
    pub fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    pub(crate) fn into_wire(self) -> wire::HistoryQuery {
        wire::HistoryQuery {
            topic: self.topic,
            since: self.since.map(|since| wire::HistoryPosition {
                epoch: epoch_text(since.epoch),
                offset: since.offset,
            }),
            limit: self.limit,
            newest_first: self.newest_first,
        }
    }
}

/// A part of a topic's history.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryPage {
    /// The current position of the topic.
    pub position: Position,
    /// The offset of the oldest stored publication; without any, the offset of the next one.
    pub oldest: u64,
    /// The publications in the requested order. A payload that is nested deeper than 60 levels is left out.
    pub publications: Vec<Message>,
    /// Whether there are more publications in this direction.
    pub more: bool,
    /// Whether no publication is missing between the requested position and the returned publications.
    pub complete: bool,
}

/// The users on topics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PresenceAnswer {
    /// The topics whose presence this client may read.
    pub topics: Vec<TopicPresence>,
    /// The other topics.
    pub failed: Vec<String>,
}
