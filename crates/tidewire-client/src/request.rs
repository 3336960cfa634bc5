//! What a client can ask for, and what it gets.

use crate::event::Message;
use crate::sequencer::Position;
pub use serde_json::Value;
pub use tidewire_wire::envelope::Priority;
use tidewire_wire::envelope::epoch_text;
use tidewire_wire::session::{self as wire, HISTORY_LIMIT};
pub use tidewire_wire::session::{
    CallError, Overload, PresenceMember, TopicFailure, TopicPresence,
};

/// How topics are subscribed. [`SubscribeOptions::default`] gives the defaults that each field states.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscribeOptions {
    /// After a lost connection, ask for the publications that were missed. Default true.
    pub recover: bool,
    /// Positions to go on from, by topic: what came after them is sent first. Default: none.
    pub from: Vec<(String, Position)>,
    /// How many of the newest publications of each topic's history come first. After a lost connection they come only
    /// if [`recover`](Self::recover) is on and the server cannot say what was missed. Default 0.
    pub replay: u64,
    /// What other subscribers are told about this one: an object of up to 4 KiB. Default: nothing.
    pub presence: Option<Value>,
    /// Share the publications with other members of this group: each goes to one of them. Default: none.
    pub queue_group: Option<String>,
    /// As a member of a group, acknowledge what is done
    /// ([`Client::acknowledge`](crate::Client::acknowledge)); what is not goes to another member. Default false.
    pub acknowledge: bool,
    /// Publications that may be unacknowledged at once. Default: the server's choice.
    pub window: Option<u64>,
    /// Which publications are wanted: a filter document (section 19.8 of the protocol). Default: all.
    pub filter: Option<Value>,
    /// What becomes of publications that are not read in time. Default: the server's choice.
    pub overload: Option<Overload>,
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
        }
    }
}

impl SubscribeOptions {
    /// The position from which the application wants to recover a topic.
    pub(crate) fn position_from(&self, topic: &str) -> Option<Position> {
        let from = self.from.iter().find(|(from, _)| from == topic);
        from.map(|(_, position)| *position)
    }

    /// Whether offsets of a topic subscribed so follow one another.
    pub(crate) fn is_gapless(&self) -> bool {
        self.filter.is_none() && self.overload.is_none() && self.queue_group.is_none()
    }
}

/// What became of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscribed {
    /// Topics that are subscribed now.
    pub topics: Vec<String>,
    /// Topics that are not.
    pub failed: Vec<String>,
    /// Why, for each of `failed`. Servers that do not tell it here send an [`Event::Error`](crate::Event::Error) with the
    /// reason of the first one.
    pub failures: Vec<TopicFailure>,
    /// Where the topics with history stand.
    pub positions: Vec<TopicPosition>,
}

/// Where a topic stood when it was subscribed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPosition {
    /// The topic.
    pub topic: String,
    /// Its newest publication.
    pub position: Position,
    /// Whether all publications after the position that was asked for follow.
    pub recovered: bool,
    /// Publications that are sent again.
    pub count: u64,
}

/// A publication. [`Publication::new`] gives one with nothing special.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// Where to; no pattern.
    pub topic: String,
    /// The type: 1 to 128 bytes, none of the protocol's.
    pub t: String,
    /// The payload: JSON text.
    pub payload: String,
    /// The idempotency key, 1 to 128 bytes: of publications with the same one the server takes the first. Default: a
    /// new one for each, so that it can be sent again after a lost connection.
    pub id: Option<String>,
    /// The conflation key, 1 to 128 bytes: a slow reader that conflates gets only the newest with the same one.
    pub key: Option<String>,
    /// For how long it is of use, in milliseconds, from 1 on. Default: for ever.
    pub ttl_ms: Option<u64>,
    /// What goes first when not everything can. Default: the topic's.
    pub priority: Option<Priority>,
    /// Leave this client's own subscriptions out. Default false.
    pub exclude_self: bool,
    /// The state of something as a whole, not a change of it. Default false.
    pub is_snapshot: bool,
}

impl Publication {
    /// A publication with nothing but a topic, a type and a payload, which is JSON text.
    pub fn new(topic: impl Into<String>, t: impl Into<String>, payload: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            t: t.into(),
            payload: payload.into(),
            id: None,
            key: None,
            ttl_ms: None,
            priority: None,
            exclude_self: false,
            is_snapshot: false,
        }
    }
}

/// What became of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Whether one with the same id had been taken before, so that this one was not.
    pub is_duplicate: bool,
    /// Its place in the topic's history, if there is one.
    pub position: Option<Position>,
}

/// Which part of a topic's history is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The topic; no pattern.
    pub topic: String,
    /// Only publications after this position or, with the newest first, before it. Default: none, which means that the
    /// answer starts at the oldest or the newest publication that is kept.
    pub since: Option<Position>,
    /// Publications at most, 1 to 1000; the answer has 512 KiB of them. Default 100.
    pub limit: u64,
    /// From the newest backwards, instead of from the oldest on. Default false.
    pub newest_first: bool,
}

impl HistoryQuery {
    /// The oldest publications that are kept of `topic`.
    #[must_use]
    pub fn new(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            since: None,
            limit: HISTORY_LIMIT,
            newest_first: false,
        }
    }

    /// The same from the newest backwards.
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
    /// The offset of the oldest publication that is kept; that of the next one if none is.
    pub oldest: u64,
    /// The publications, in the order that was asked for. One whose payload is nested more than 60 levels deep has none.
    pub publications: Vec<Message>,
    /// Whether there are more publications in this direction.
    pub more: bool,
    /// Whether no publication is missing between the requested position and the returned publications.
    pub complete: bool,
}

/// Who is on which topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PresenceAnswer {
    /// The topics of which this client may know.
    pub topics: Vec<TopicPresence>,
    /// The others.
    pub failed: Vec<String>,
}
