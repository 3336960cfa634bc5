//! Events of a client's session.

use super::super::call::Either;
use super::super::{
    Action, Call, CallResult, GapRange, GapReason, HelloEncryption, HistoryPage, PresenceMember,
    ProducerState, PublicationGap, TopicFailure, TopicPresence, TopicRecovery,
};
use crate::codes::ErrorCode;
use crate::envelope::{Envelope, EnvelopeError, SystemType, parse_epoch};
use serde_json::Value;

/// The meaning of a message from the server. Values that the server leaves out are empty, 0 or `None`.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    /// `server_ready`: time to send [`ClientSession::write_hello`](super::ClientSession::write_hello).
    Ready {
        /// The connection's id.
        connection_id: String,
        /// The name and version of the server.
        server_version: String,
        /// The user that the token named.
        user_id: Option<String>,
    },
    /// `server_hello`.
    Established {
        /// The name and version of the server.
        server_version: String,
        /// The version of the protocol to speak.
        protocol_version: u64,
        /// The connection's id.
        connection_id: String,
        /// The largest message the server accepts.
        message_bytes_max: u64,
        /// Messages that may be sent at once.
        rate_limit_capacity: u64,
        /// Messages a second that may be sent on end.
        rate_limit_refill_per_s: u64,
        /// Time between two pings of the server; 0 if it sends none.
        ping_interval_ms: u64,
        /// The server's key, if this is its first answer to ours; later messages are encrypted. `None`
        /// if the server does not encrypt.
        encryption: Option<Box<HelloEncryption>>,
        /// Where the producer stands that the hello named, if the server keeps it.
        producer: Option<ProducerState>,
        /// Whether the server makes subscriptions that this client may ask for again (`renew`).
        server_subscriptions: bool,
    },
    /// `key_update`: the server's next message is encrypted with its next key.
    KeyUpdate {
        /// Whether to answer with [`ClientSession::write_key_update`](super::ClientSession::write_key_update) and change our key too.
        request: bool,
    },
    /// `PONG`.
    Pong {
        /// The timestamp of the ping it answers.
        client_timestamp_ms: Option<u64>,
        /// The server's time when it answered.
        server_timestamp_ms: Option<u64>,
        /// The round trip, by this side's clock.
        latency_ms: Option<u64>,
    },
    /// `ping`: to be answered with [`ClientSession::write_pong`](super::ClientSession::write_pong).
    ServerPing {
        /// To be given back.
        timestamp_ms: Option<u64>,
    },
    /// `error`.
    Error {
        /// The code as it was spelled.
        code: String,
        /// The code, if this version knows it.
        known: Option<ErrorCode>,
        /// The error in words.
        message: String,
        /// Whether the session goes on.
        recoverable: bool,
        /// Seconds after which another try makes sense.
        retry_after_s: Option<u64>,
        /// How many messages it answers: usually one.
        refused: u64,
        /// The correlation ids of those that it answers besides its own; not all, if they are many.
        refused_ids: Vec<String>,
    },
    /// Messages in the encoding of the batch, to be treated as if each had arrived alone.
    Batch(Vec<Vec<u8>>),
    /// `subscription_update`, the answer to one.
    SubscriptionUpdate {
        /// The requested action; `None` for one that this version does not know.
        action: Option<Action>,
        /// Topics for which it was done.
        success_topics: Vec<String>,
        /// Topics for which it was not.
        failed_topics: Vec<String>,
        /// The reasons, for those of `failed_topics` for which the server states one.
        failures: Vec<TopicFailure>,
        /// Where topics with history stand.
        recovery: Vec<TopicRecovery>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `publish_response`.
    PublishResponse {
        /// The topic.
        topic: String,
        /// Whether it had been published before, under the same idempotency key.
        duplicate: bool,
        /// The epoch and the offset; only with history.
        position: Option<(u32, u64)>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `presence_response`.
    PresenceResponse {
        /// The users on each topic.
        topics: Vec<TopicPresence>,
        /// Topics without an answer.
        failed_topics: Vec<String>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `history_response`.
    HistoryResponse {
        /// The kept publications.
        page: Box<HistoryPage>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `presence_join`, `presence_leave` or `presence_update`.
    Presence {
        /// Which of them.
        change: PresenceChange,
        /// The topic.
        topic: String,
        /// Who.
        user_id: String,
        /// The subscriber's `presence`.
        data: Option<Value>,
    },
    /// `publication_gap`: publications that the server will not send.
    PublicationGap(PublicationGap),
    /// `message_ack`: the server has accepted all numbered messages up to this one.
    MessageAck {
        /// The number.
        last: u64,
    },
    /// `call_request`: to be answered with [`ClientSession::write_call_response`](super::ClientSession::write_call_response).
    Call {
        /// The request.
        call: Call,
        /// `cid`, to be given back.
        correlation_id: String,
    },
    /// `call_response`.
    CallResponse {
        /// The answer.
        result: CallResult,
        /// `cid` of the call.
        correlation_id: String,
    },
    /// `reconnect`: a close follows.
    Reconnect {
        /// How long to wait before a new connection is opened, in milliseconds.
        after_ms: u64,
        /// Why, in words.
        reason: String,
    },
    /// `auth_expiry_warning`: time to send another token with
    /// [`ClientSession::write_auth_refresh`](super::ClientSession::write_auth_refresh).
    AuthExpiryWarning {
        /// Milliseconds until the token expires.
        expires_in_ms: u64,
        /// Milliseconds until the session ends.
        ends_in_ms: u64,
    },
    /// `auth_refresh_response`: the server has accepted another token.
    AuthRefreshed {
        /// Milliseconds until it expires.
        expires_in_ms: u64,
        /// Milliseconds until the session ends; `None` if it does not end with its token.
        ends_in_ms: Option<u64>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// Any other message of the protocol's.
    System(SystemType, Box<Envelope>),
    /// The application's message; the bytes are the caller's to look at.
    Application,
}

/// The change of a member of a topic's presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceChange {
    /// The user's first connection has joined.
    Join,
    /// The user's last connection has gone.
    Leave,
    /// The user's data is another.
    Update,
}

impl ClientEvent {
    /// Reads a message that changes nothing of the session.
    pub(super) fn read(system: SystemType, envelope: Envelope) -> Result<Self, EnvelopeError> {
        let payload = &envelope.payload;
        Ok(match system {
            SystemType::ServerReady => {
                let details = &payload["details"];
                Self::Ready {
                    connection_id: text(&details["connection_id"]),
                    server_version: text(&details["version"]),
                    user_id: details["user_id"].as_str().map(str::to_owned),
                }
            }
            SystemType::KeyUpdate => {
                let request = key_update_request(payload);
                let request = request.ok_or(EnvelopeError::InvalidField("request"))?;
                Self::KeyUpdate { request }
            }
            SystemType::Error => read_error(payload),
            SystemType::SubscriptionUpdate => Self::SubscriptionUpdate {
                action: payload["action"].as_str().and_then(Action::parse),
                success_topics: texts(&payload["success_topics"]),
                failed_topics: texts(&payload["failed_topics"]),
                failures: failures(&payload["failures"]),
                recovery: entries(&payload["recovery"], read_recovery)?,
                correlation_id: envelope.correlation_id,
            },
            SystemType::PublishResponse => Self::PublishResponse {
                topic: text(&payload["topic"]),
                duplicate: payload["duplicate"] == Value::Bool(true),
                position: position(payload, "offset")?,
                correlation_id: envelope.correlation_id,
            },
            SystemType::PresenceResponse => Self::PresenceResponse {
                topics: entries(&payload["topics"], read_presence)?,
                failed_topics: texts(&payload["failed_topics"]),
                correlation_id: envelope.correlation_id,
            },
            SystemType::PresenceJoin => read_change(PresenceChange::Join, envelope.payload),
            SystemType::PresenceLeave => read_change(PresenceChange::Leave, envelope.payload),
            SystemType::PresenceUpdate => read_change(PresenceChange::Update, envelope.payload),
            SystemType::PublicationGap => Self::PublicationGap(read_gap(payload)?),
            SystemType::MessageAck => Self::MessageAck {
                last: needed(&payload["last"], "last")?,
            },
            SystemType::Reconnect => Self::Reconnect {
                after_ms: needed(&payload["after_ms"], "after_ms")?,
                reason: text(&payload["reason"]),
            },
            SystemType::AuthExpiryWarning => Self::AuthExpiryWarning {
                expires_in_ms: needed(&payload["expires_in_ms"], "expires_in_ms")?,
                ends_in_ms: needed(&payload["ends_in_ms"], "ends_in_ms")?,
            },
            SystemType::AuthRefreshResponse => Self::AuthRefreshed {
                expires_in_ms: needed(&payload["expires_in_ms"], "expires_in_ms")?,
                ends_in_ms: payload["ends_in_ms"].as_u64(),
                correlation_id: envelope.correlation_id,
            },
            _ => Self::System(system, Box::new(envelope)),
        })
    }

    pub(super) fn of_call(either: Either, correlation_id: String) -> Self {
        match either {
            Either::Request(call) => Self::Call {
                call,
                correlation_id,
            },
            Either::Response(result) => Self::CallResponse {
                result,
                correlation_id,
            },
        }
    }
}

fn read_error(payload: &Value) -> ClientEvent {
    let code = text(&payload["code"]);
    let known = ErrorCode::parse(&code);
    // An unknown code, from a later version, ends nothing unless the error states otherwise.
    let by_code = known.is_none_or(ErrorCode::recoverable);
    let retry_after_s = payload["retry_after"].as_f64();
    ClientEvent::Error {
        code,
        known,
        message: text(&payload["message"]),
        recoverable: payload["recoverable"].as_bool().unwrap_or(by_code),
        retry_after_s: retry_after_s.map(|seconds| seconds.ceil() as u64),
        refused: payload["refused"].as_u64().unwrap_or(1),
        refused_ids: texts(&payload["cids"]),
    }
}

fn read_change(change: PresenceChange, mut payload: Value) -> ClientEvent {
    let data = payload.get_mut("data").map(Value::take);
    ClientEvent::Presence {
        change,
        topic: text(&payload["topic"]),
        user_id: text(&payload["user_id"]),
        data: data.filter(|data| !data.is_null()),
    }
}

fn read_recovery(topic: &str, fields: &Value) -> Result<TopicRecovery, EnvelopeError> {
    Ok(TopicRecovery {
        topic: topic.to_owned(),
        epoch: text(&fields["epoch"]),
        offset: needed(&fields["offset"], "recovery")?,
        recovered: fields["recovered"] == Value::Bool(true),
        count: fields["count"].as_u64().unwrap_or_default(),
    })
}

/// Reasons that name their topic and code.
fn failures(value: &Value) -> Vec<TopicFailure> {
    let failures = value.as_array().into_iter().flatten();
    let failures = failures.filter_map(|fields| {
        Some(TopicFailure {
            topic: fields["topic"].as_str()?.to_owned(),
            code: fields["code"].as_str()?.to_owned(),
            message: text(&fields["message"]),
        })
    });
    failures.collect()
}

fn read_presence(topic: &str, fields: &Value) -> Result<TopicPresence, EnvelopeError> {
    let member = |user: &str, fields: &Value| {
        Ok(PresenceMember {
            user: user.to_owned(),
            connections: fields["connections"].as_u64().unwrap_or(1),
            data: fields.get("data").map(Value::to_string),
        })
    };
    let members = match &fields["members"] {
        Value::Null => None,
        members => Some(entries(members, member)?),
    };
    Ok(TopicPresence {
        topic: topic.to_owned(),
        users: needed(&fields["users"], "users")?,
        connections: needed(&fields["connections"], "connections")?,
        truncated: fields["truncated"] == Value::Bool(true),
        members,
    })
}

/// Whether a `key_update` asks for another; `None` if its form is unknown.
fn key_update_request(payload: &Value) -> Option<bool> {
    match payload.get("request") {
        None | Some(Value::Null) => Some(false),
        Some(request) => request.as_bool(),
    }
}

fn read_gap(payload: &Value) -> Result<PublicationGap, EnvelopeError> {
    let reason = payload["reason"].as_str().and_then(GapReason::parse);
    let range = match position(payload, "from")? {
        None => None,
        Some((epoch, from)) => Some(GapRange {
            epoch,
            from,
            to: needed(&payload["to"], "to")?,
        }),
    };
    Ok(PublicationGap {
        topic: text(&payload["topic"]),
        // The publications are lost, even if the reason is one of a later version.
        reason: reason.unwrap_or(GapReason::Dropped),
        count: payload["count"].as_u64().unwrap_or(1),
        range,
    })
}

/// The producer in a `server_hello`.
pub(super) fn producer(producer: &Value) -> Result<Option<ProducerState>, EnvelopeError> {
    if producer.is_null() {
        return Ok(None);
    }
    let (epoch, last) = position(producer, "last")?.ok_or(EnvelopeError::InvalidField("epoch"))?;
    Ok(Some(ProducerState {
        id: text(&producer["id"]),
        epoch,
        last,
    }))
}

/// The epoch and the offset called `name`, if there is an epoch.
fn position(payload: &Value, name: &'static str) -> Result<Option<(u32, u64)>, EnvelopeError> {
    match &payload["epoch"] {
        Value::Null => Ok(None),
        epoch => {
            let epoch = epoch.as_str().and_then(parse_epoch);
            let epoch = epoch.ok_or(EnvelopeError::InvalidField("epoch"))?;
            Ok(Some((epoch, needed(&payload[name], name)?)))
        }
    }
}

/// The result of `read` for each field of an object; nothing if it is missing.
fn entries<T>(
    object: &Value,
    read: impl Fn(&str, &Value) -> Result<T, EnvelopeError>,
) -> Result<Vec<T>, EnvelopeError> {
    let fields = object.as_object().into_iter().flatten();
    fields.map(|(name, value)| read(name, value)).collect()
}

/// A number that a message means nothing without.
fn needed(value: &Value, name: &'static str) -> Result<u64, EnvelopeError> {
    value.as_u64().ok_or(EnvelopeError::InvalidField(name))
}

fn texts(value: &Value) -> Vec<String> {
    let texts = value.as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A text, or nothing of it.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
