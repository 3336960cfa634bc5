//! `subscription_update` as a client sends it.

use super::objection::{Objection, parse_flag, parse_number};
use super::token::{TOKEN_BYTES_MAX, Token};
use crate::codes::ErrorCode;
use serde_json::{Map, Value};

/// Topics to have or to have no longer.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    /// Which of the two.
    pub action: Action,
    /// The topics: 1 to [`TOPICS_PER_REQUEST_MAX`], none of them empty.
    pub topics: Vec<String>,
    /// The data that other subscribers receive about this one.
    pub presence: Option<Value>,
    /// Whether missed messages are wanted.
    pub recover: bool,
    /// From where on.
    pub recovery: Vec<RecoveryPosition>,
    /// How many of the newest publications of each topic's history a new subscriber wants.
    pub replay: u64,
    /// The group of which each message goes to one member only.
    pub queue_group: Option<String>,
    /// Which publications are wanted: a filter document, an object, not looked into.
    pub filter: Option<Value>,
    /// The treatment of publications that the client does not read in time; the server's choice if it is
    /// missing.
    pub overload: Option<Overload>,
    /// Whether the client, as a member of a queue group, acknowledges what is delivered.
    pub acknowledge: bool,
    /// Deliveries that may be unacknowledged at once, from 1 on.
    pub window: Option<u64>,
    /// Tokens that allow topics, by topic: at most [`TOKENS_PER_REQUEST_MAX`].
    pub tokens: Vec<(String, Token)>,
}

/// The treatment of a subscription's publications when its client does not read them in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overload {
    /// `disconnect`: the connection is closed.
    Disconnect,
    /// `conflate`: of each key the newest is kept.
    Conflate,
    /// `drop_oldest`: the oldest that wait are dropped.
    DropOldest,
}

impl Overload {
    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disconnect => "disconnect",
            Self::Conflate => "conflate",
            Self::DropOldest => "drop_oldest",
        }
    }

    /// The policy with this spelling.
    pub fn parse(spelling: &str) -> Option<Self> {
        [Self::Disconnect, Self::Conflate, Self::DropOldest]
            .into_iter()
            .find(|overload| overload.as_str() == spelling)
    }
}

/// The action for the topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `subscribe`.
    Subscribe,
    /// `unsubscribe`.
    Unsubscribe,
}

impl Action {
    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
        }
    }

    /// The action with this spelling.
    pub fn parse(spelling: &str) -> Option<Self> {
        [Self::Subscribe, Self::Unsubscribe]
            .into_iter()
            .find(|action| action.as_str() == spelling)
    }
}

/// The last message of a topic that the client has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryPosition {
    /// The topic.
    pub topic: String,
    /// The epoch of its history.
    pub epoch: String,
    /// The offset.
    pub offset: u64,
}

pub(super) fn parse_subscription(
    mut fields: Map<String, Value>,
) -> Result<Subscription, Objection> {
    let action = fields.get("action").and_then(Value::as_str);
    let action = action.and_then(Action::parse).ok_or((
        ErrorCode::InvalidAction,
        "action is subscribe or unsubscribe",
    ))?;
    let topics = parse_topics(fields.get("topics"), TOPICS_PER_REQUEST_MAX)?;
    if topics.is_empty() {
        return Err((ErrorCode::InvalidSubscription, "topics is empty"));
    }
    let wrong = |words| (ErrorCode::InvalidSubscription, words);
    let presence = parse_object(fields.remove("presence"), "presence is not an object")?;
    let filter = parse_object(fields.remove("filter"), "filter is not an object")?;
    let queue_group = match fields.remove("queue_group") {
        None | Some(Value::Null) => None,
        Some(Value::String(group)) if (1..=QUEUE_GROUP_BYTES_MAX).contains(&group.len()) => {
            Some(group)
        }
        Some(_) => return Err(wrong("queue_group is not a name of 1 to 255 bytes")),
    };
    let overload = match fields.get("overload") {
        None | Some(Value::Null) => None,
        Some(policy) => {
            let policy = policy.as_str().and_then(Overload::parse);
            Some(policy.ok_or(wrong("overload is disconnect, conflate or drop_oldest"))?)
        }
    };
    let window = parse_number(fields.get("window"), "window is not a number")?;
    if window == Some(0) {
        return Err(wrong("window is 0"));
    }
    let words = "acknowledge is neither true nor false";
    let acknowledge = parse_flag(fields.get("acknowledge"), words)?;
    let recover = parse_flag(fields.get("recover"), "recover is neither true nor false")?;
    let recovery = parse_recovery(fields.remove("recovery"))?;
    let tokens = parse_tokens(fields.remove("tokens"))?;
    let replay = parse_number(fields.get("replay"), "replay is not a number")?;
    Ok(Subscription {
        action,
        topics,
        presence,
        recover,
        recovery,
        replay: replay.unwrap_or_default(),
        queue_group,
        filter,
        overload,
        acknowledge,
        window,
        tokens,
    })
}

fn parse_tokens(value: Option<Value>) -> Result<Vec<(String, Token)>, Objection> {
    let wrong = |words| (ErrorCode::InvalidSubscription, words);
    let fields = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err(wrong("tokens is not an object")),
    };
    if fields.len() > TOKENS_PER_REQUEST_MAX {
        return Err(wrong("too many tokens in one message"));
    }
    let tokens = fields.into_iter().map(|(topic, token)| match token {
        Value::String(token) if (1..=TOKEN_BYTES_MAX).contains(&token.len()) => {
            Ok((topic, Token(token)))
        }
        _ => Err(wrong("a token is not a text of 1 to 8192 bytes")),
    });
    tokens.collect()
}

fn parse_object(value: Option<Value>, words: &'static str) -> Result<Option<Value>, Objection> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(object @ Value::Object(_)) => Ok(Some(object)),
        Some(_) => Err((ErrorCode::InvalidSubscription, words)),
    }
}

pub(super) fn parse_topics(
    value: Option<&Value>,
    topics_max: usize,
) -> Result<Vec<String>, Objection> {
    let values = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(values)) => values,
        Some(_) => return Err((ErrorCode::InvalidSubscription, "topics is not an array")),
    };
    if values.len() > topics_max {
        return Err((
            ErrorCode::InvalidSubscription,
            "too many topics in one message",
        ));
    }
    let names = values.iter().map(|value| match value.as_str() {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err((ErrorCode::InvalidSubscription, "a topic is not a name")),
    });
    names.collect()
}

fn parse_recovery(value: Option<Value>) -> Result<Vec<RecoveryPosition>, Objection> {
    let fields = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err((ErrorCode::InvalidSubscription, "recovery is not an object")),
    };
    let positions = fields.into_iter().map(|(topic, position)| {
        let epoch = position
            .get("epoch")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let offset = position.get("offset").and_then(Value::as_u64);
        match (epoch, offset) {
            (Some(epoch), Some(offset)) => Ok(RecoveryPosition {
                topic,
                epoch,
                offset,
            }),
            _ => Err((
                ErrorCode::InvalidSubscription,
                "a recovery has no epoch and offset",
            )),
        }
    });
    positions.collect()
}

/// The longest name of a queue group, in bytes.
pub const QUEUE_GROUP_BYTES_MAX: usize = 255;

/// Subscription tokens that one request may have.
pub const TOKENS_PER_REQUEST_MAX: usize = 100;

/// Topics that one `subscription_update` or `sync_request` may name.
pub const TOPICS_PER_REQUEST_MAX: usize = 1000;
