//! What a client can ask of the engine.

use crate::codes::ErrorCode;
use crate::envelope::SystemType;
use serde_json::{Map, Value};

/// A request, which the engine answers with a reply that carries the same `correlation_id`.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What is asked for.
    pub kind: RequestKind,
    /// `cid`.
    pub correlation_id: Option<String>,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestKind {
    /// `config_update` with its payload.
    ConfigUpdate(Value),
    /// `health_check`.
    HealthCheck,
    /// `metrics_request`.
    MetricsRequest,
    /// `subscription_update`.
    Subscription(Subscription),
    /// `sync_request`.
    Sync(Sync),
}

/// Topics to have or to have no longer.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    /// Which of the two.
    pub action: Action,
    /// The topics: 1 to [`TOPICS_PER_REQUEST_MAX`], none of them empty.
    pub topics: Vec<String>,
    /// What other subscribers are told about this one.
    pub presence: Option<Value>,
    /// Whether missed messages are wanted.
    pub recover: bool,
    /// From where on.
    pub recovery: Vec<RecoveryPosition>,
    /// The group of which each message goes to one member only.
    pub queue_group: Option<String>,
}

/// What to do with topics.
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

/// The state of topics, asked for once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The topics; none means all that are subscribed.
    pub topics: Vec<String>,
    /// Whether snapshots are wanted.
    pub include_snapshots: bool,
    /// The last `seq` that the client has seen.
    pub last_sequence: Option<u64>,
}

/// An error code, and words for it.
pub(super) type Refusal = (ErrorCode, &'static str);

/// Reads a request's payload. Fields that may be missing may also be null.
pub(super) fn parse(system: SystemType, payload: Value) -> Result<RequestKind, Refusal> {
    let fields = match payload {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        _ => return Err((ErrorCode::InvalidMessage, "the payload is not an object")),
    };
    match system {
        SystemType::ConfigUpdate => Ok(RequestKind::ConfigUpdate(Value::Object(fields))),
        SystemType::HealthCheck => Ok(RequestKind::HealthCheck),
        SystemType::MetricsRequest => Ok(RequestKind::MetricsRequest),
        SystemType::SubscriptionUpdate => parse_subscription(fields).map(RequestKind::Subscription),
        SystemType::SyncRequest => parse_sync(&fields).map(RequestKind::Sync),
        _ => Err((
            ErrorCode::InvalidMessage,
            "this type is not a client's to send",
        )),
    }
}

fn parse_subscription(mut fields: Map<String, Value>) -> Result<Subscription, Refusal> {
    let action = match fields.get("action").and_then(Value::as_str) {
        Some("subscribe") => Action::Subscribe,
        Some("unsubscribe") => Action::Unsubscribe,
        _ => {
            return Err((
                ErrorCode::InvalidAction,
                "action is subscribe or unsubscribe",
            ));
        }
    };
    let topics = parse_topics(fields.get("topics"))?;
    if topics.is_empty() {
        return Err((ErrorCode::InvalidSubscription, "topics is empty"));
    }
    let presence = match fields.remove("presence") {
        None | Some(Value::Null) => None,
        Some(presence @ Value::Object(_)) => Some(presence),
        Some(_) => return Err((ErrorCode::InvalidSubscription, "presence is not an object")),
    };
    let queue_group = match fields.remove("queue_group") {
        None | Some(Value::Null) => None,
        Some(Value::String(group)) if !group.is_empty() => Some(group),
        Some(_) => return Err((ErrorCode::InvalidSubscription, "queue_group is not a name")),
    };
    let recover = parse_flag(fields.get("recover"), "recover is neither true nor false")?;
    let recovery = parse_recovery(fields.remove("recovery"))?;
    Ok(Subscription {
        action,
        topics,
        presence,
        recover,
        recovery,
        queue_group,
    })
}

fn parse_sync(fields: &Map<String, Value>) -> Result<Sync, Refusal> {
    let last_sequence = match fields.get("last_sequence") {
        None | Some(Value::Null) => None,
        Some(number) => Some(number.as_u64().ok_or((
            ErrorCode::InvalidSubscription,
            "last_sequence is not a number",
        ))?),
    };
    let words = "include_snapshots is neither true nor false";
    Ok(Sync {
        topics: parse_topics(fields.get("topics"))?,
        include_snapshots: parse_flag(fields.get("include_snapshots"), words)?,
        last_sequence,
    })
}

fn parse_flag(value: Option<&Value>, words: &'static str) -> Result<bool, Refusal> {
    match value {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err((ErrorCode::InvalidSubscription, words)),
    }
}

fn parse_topics(value: Option<&Value>) -> Result<Vec<String>, Refusal> {
    let values = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(values)) => values,
        Some(_) => return Err((ErrorCode::InvalidSubscription, "topics is not an array")),
    };
    if values.len() > TOPICS_PER_REQUEST_MAX {
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

fn parse_recovery(value: Option<Value>) -> Result<Vec<RecoveryPosition>, Refusal> {
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

/// Topics that one `subscription_update` or `sync_request` may name.
pub const TOPICS_PER_REQUEST_MAX: usize = 1000;
