//! Requests of a client to the engine, as the engine reads them.

use super::call::{Call, CallResult, Either};
use super::history::{HistoryQuery, parse_query};
use super::objection::{Objection, parse_flag, parse_number};
use super::subscription::{Subscription, TOPICS_PER_REQUEST_MAX, parse_subscription, parse_topics};
use super::token::{TOKEN_BYTES_MAX, Token};
use crate::codes::ErrorCode;
use crate::envelope::SystemType;
use serde_json::{Map, Value};

/// A request, which the engine answers with a reply that carries the same `correlation_id`.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The requested action.
    pub kind: RequestKind,
    /// `cid`.
    pub correlation_id: Option<String>,
}

/// A requested action.
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
    /// `presence_request`.
    Presence(PresenceQuery),
    /// `history_request`.
    History(HistoryQuery),
    /// `publication_ack`: the numbers (`d`) of 1 to [`DELIVERIES_PER_ACK_MAX`] deliveries that are done.
    /// It is not answered.
    Acknowledge(Vec<u64>),
    /// `auth_refresh`: another token for the session; 1 to [`TOKEN_BYTES_MAX`] bytes, and not checked.
    AuthRefresh(Token),
    /// `call_request`; the correlation id is there.
    Call(Call),
    /// `call_response`, to the call of the server's with this correlation id. It is not answered.
    CallResponse(CallResult),
}

impl From<Either> for RequestKind {
    fn from(either: Either) -> Self {
        match either {
            Either::Request(call) => Self::Call(call),
            Either::Response(result) => Self::CallResponse(result),
        }
    }
}

/// A query for the users on topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceQuery {
    /// The topics: 1 to [`TOPICS_PER_PRESENCE_REQUEST_MAX`], none of them empty.
    pub topics: Vec<String>,
    /// Whether the members are left out.
    pub counts_only: bool,
    /// Members to name of each topic at most, if the client has a wish.
    pub limit: Option<u64>,
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

/// Reads a request's payload. Fields that may be missing may also be null.
pub(super) fn parse(system: SystemType, payload: Value) -> Result<RequestKind, Objection> {
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
        SystemType::PresenceRequest => parse_presence(&fields).map(RequestKind::Presence),
        SystemType::HistoryRequest => parse_query(&fields).map(RequestKind::History),
        SystemType::PublicationAck => parse_deliveries(&fields).map(RequestKind::Acknowledge),
        SystemType::AuthRefresh => parse_token(fields).map(RequestKind::AuthRefresh),
        _ => Err((
            ErrorCode::InvalidMessage,
            "this type is not a client's to send",
        )),
    }
}

fn parse_sync(fields: &Map<String, Value>) -> Result<Sync, Objection> {
    let last_sequence = parse_number(fields.get("last_sequence"), "last_sequence is not a number")?;
    let words = "include_snapshots is neither true nor false";
    Ok(Sync {
        topics: parse_topics(fields.get("topics"), TOPICS_PER_REQUEST_MAX)?,
        include_snapshots: parse_flag(fields.get("include_snapshots"), words)?,
        last_sequence,
    })
}

fn parse_presence(fields: &Map<String, Value>) -> Result<PresenceQuery, Objection> {
    let topics = parse_topics(fields.get("topics"), TOPICS_PER_PRESENCE_REQUEST_MAX)?;
    if topics.is_empty() {
        return Err((ErrorCode::InvalidSubscription, "topics is empty"));
    }
    let words = "counts_only is neither true nor false";
    Ok(PresenceQuery {
        topics,
        counts_only: parse_flag(fields.get("counts_only"), words)?,
        limit: parse_number(fields.get("limit"), "limit is not a number")?,
    })
}

fn parse_deliveries(fields: &Map<String, Value>) -> Result<Vec<u64>, Objection> {
    let wrong = (
        ErrorCode::InvalidMessage,
        "deliveries is not an array of 1 to 1000 numbers",
    );
    let deliveries = fields.get("deliveries").and_then(Value::as_array);
    let deliveries = deliveries
        .filter(|deliveries| (1..=DELIVERIES_PER_ACK_MAX).contains(&deliveries.len()))
        .ok_or(wrong)?;
    let numbers = deliveries.iter().map(|number| number.as_u64().ok_or(wrong));
    numbers.collect()
}

fn parse_token(mut fields: Map<String, Value>) -> Result<Token, Objection> {
    match fields.remove("token") {
        Some(Value::String(token)) if (1..=TOKEN_BYTES_MAX).contains(&token.len()) => {
            Ok(Token(token))
        }
        _ => Err((
            ErrorCode::InvalidMessage,
            "token is not a text of 1 to 8192 bytes",
        )),
    }
}

/// Topics that one `presence_request` may name.
pub const TOPICS_PER_PRESENCE_REQUEST_MAX: usize = 100;

/// Deliveries that one `publication_ack` may acknowledge.
pub const DELIVERIES_PER_ACK_MAX: usize = 1000;
