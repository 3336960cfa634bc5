//! Requests of a client to the engine, as the engine reads them.

use super::call::{Call, CallResult, Either};
use super::history::{HistoryQuery, parse_query};
use super::objection::{Objection, parse_flag, parse_number};
use super::subscription::{Subscription, TOPICS_PER_REQUEST_MAX, parse_subscription, parse_topics};
use super::token::{TOKEN_BYTES_MAX, Token};
use crate::codes::ErrorCode;
use crate::envelope::SystemType;
use crate::envelope::raw::Raw;

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
    /// `config_update`. Its payload has no meaning to this server and is not kept.
    ConfigUpdate,
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

/// Reads a request's payload where it stands. Fields that may be missing may also be null.
pub(super) fn parse(system: SystemType, payload: Raw<'_>) -> Result<RequestKind, Objection> {
    if !(payload.is_object() || payload.is_null()) {
        return Err((ErrorCode::InvalidMessage, "the payload is not an object"));
    }
    match system {
        SystemType::ConfigUpdate => Ok(RequestKind::ConfigUpdate),
        SystemType::HealthCheck => Ok(RequestKind::HealthCheck),
        SystemType::MetricsRequest => Ok(RequestKind::MetricsRequest),
        SystemType::SubscriptionUpdate => {
            parse_subscription(payload).map(RequestKind::Subscription)
        }
        SystemType::SyncRequest => parse_sync(payload).map(RequestKind::Sync),
        SystemType::PresenceRequest => parse_presence(payload).map(RequestKind::Presence),
        SystemType::HistoryRequest => parse_query(payload).map(RequestKind::History),
        SystemType::PublicationAck => parse_deliveries(payload).map(RequestKind::Acknowledge),
        SystemType::AuthRefresh => parse_token(payload).map(RequestKind::AuthRefresh),
        _ => Err((
            ErrorCode::InvalidMessage,
            "this type is not a client's to send",
        )),
    }
}

fn parse_sync(payload: Raw<'_>) -> Result<Sync, Objection> {
    let names = ["topics", "include_snapshots", "last_sequence"];
    let [topics, include_snapshots, last_sequence] = payload.pick(names);
    let words = "include_snapshots is neither true nor false";
    Ok(Sync {
        last_sequence: parse_number(last_sequence, "last_sequence is not a number")?,
        topics: parse_topics(topics, TOPICS_PER_REQUEST_MAX)?,
        include_snapshots: parse_flag(include_snapshots, words)?,
    })
}

fn parse_presence(payload: Raw<'_>) -> Result<PresenceQuery, Objection> {
    let [topics, counts_only, limit] = payload.pick(["topics", "counts_only", "limit"]);
    let topics = parse_topics(topics, TOPICS_PER_PRESENCE_REQUEST_MAX)?;
    if topics.is_empty() {
        return Err((ErrorCode::InvalidSubscription, "topics is empty"));
    }
    let words = "counts_only is neither true nor false";
    Ok(PresenceQuery {
        topics,
        counts_only: parse_flag(counts_only, words)?,
        limit: parse_number(limit, "limit is not a number")?,
    })
}

fn parse_deliveries(payload: Raw<'_>) -> Result<Vec<u64>, Objection> {
    let wrong = (
        ErrorCode::InvalidMessage,
        "deliveries is not an array of 1 to 1000 numbers",
    );
    let [deliveries] = payload.pick(["deliveries"]);
    let mut numbers = Vec::new();
    for number in deliveries.elements().ok_or(wrong)? {
        if numbers.len() == DELIVERIES_PER_ACK_MAX {
            return Err(wrong);
        }
        numbers.push(number.unsigned().ok_or(wrong)?);
    }
    if numbers.is_empty() {
        return Err(wrong);
    }
    Ok(numbers)
}

fn parse_token(payload: Raw<'_>) -> Result<Token, Objection> {
    let [token] = payload.pick(["token"]);
    let token = token.text();
    let token = token.filter(|token| (1..=TOKEN_BYTES_MAX).contains(&token.len()));
    token.map(|token| Token(token.into_owned())).ok_or((
        ErrorCode::InvalidMessage,
        "token is not a text of 1 to 8192 bytes",
    ))
}

/// Topics that one `presence_request` may name.
pub const TOPICS_PER_PRESENCE_REQUEST_MAX: usize = 100;

/// Deliveries that one `publication_ack` may acknowledge.
pub const DELIVERIES_PER_ACK_MAX: usize = 1000;
