//! `server-dialogues.json`, `client-dialogues.json`, `history.json`, `recovery.json` and `topics.json`.

use super::Hex;
use super::frames::Side;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The messages that a session receives and sends, step by step.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The title of the case.
    pub name: String,
    /// The side of the session.
    pub side: Side,
    /// The features that a server offers.
    pub features: Option<Features>,
    /// The steps.
    pub steps: Vec<Step>,
}

/// The features of either side. Those of later versions are off if they are not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the protocol")]
pub struct Features {
    pub compression: bool,
    pub encryption: bool,
    pub batching: bool,
    pub priority_queue: bool,
    pub circuit_breaker: bool,
    pub recovery: bool,
    #[serde(default)]
    pub topics: bool,
    #[serde(default)]
    pub presence: bool,
    #[serde(default)]
    pub calls: bool,
    #[serde(default)]
    pub history: bool,
    #[serde(default)]
    pub server_subscriptions: bool,
    #[serde(default)]
    pub binary: bool,
    #[serde(default)]
    pub broker_updates: bool,
}

/// A message that is received or to be sent, and its result: exactly one of the others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The received message.
    pub receive: Option<Received>,
    /// The message to send.
    pub say: Option<Say>,
    /// The message that is sent.
    pub reply: Option<Reply>,
    /// The error that is sent.
    pub error: Option<Error>,
    /// The message has no effect.
    #[serde(default)]
    pub ignored: bool,
    /// The request to the engine; by `kind`.
    pub request: Option<Value>,
    /// Messages to be treated as if each had arrived alone.
    pub batch: Option<Vec<Value>>,
    /// Keys are to be exchanged.
    pub key_exchange: Option<KeyExchange>,
    /// The peer switches to its next key.
    pub key_update: Option<KeyUpdate>,
    /// The event of the client; by its name.
    pub event: Option<Value>,
    /// Why a client cannot read it.
    pub refused: Option<String>,
}

/// A message in both formats.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Received {
    /// JSON.
    pub json: String,
    /// MessagePack, without the prefix.
    pub msgpack: Hex,
}

/// A message to be written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub enum Say {
    Ready {
        user_id: Option<String>,
    },
    Ping(bool),
    Pong {
        server_timestamp: Option<u64>,
    },
    Hello {
        client_version: String,
        features: Features,
        encryption: Option<Key>,
        producer: Option<NamedProducer>,
    },
    KeyUpdate(KeyUpdate),
    Error {
        code: String,
        retry_after: Option<u64>,
        refused: Option<u64>,
        #[serde(default)]
        cids: Vec<String>,
        cid: Option<String>,
    },
    RateLimitWarning {
        current_rate: u64,
        limit: u64,
        remaining: u64,
        retry_after: u64,
    },
    ConfigResponse(EngineAnswer),
    HealthCheckResponse(EngineAnswer),
    MetricsResponse(EngineAnswer),
    SubscriptionUpdate {
        action: String,
        success_topics: Vec<String>,
        failed_topics: Vec<String>,
        #[serde(default)]
        failures: Vec<TopicFailure>,
        recovery: Vec<TopicRecovery>,
        cid: Option<String>,
    },
    PublishResponse {
        topic: String,
        duplicate: bool,
        position: Option<Position>,
        cid: Option<String>,
    },
    PresenceResponse {
        topics: Vec<TopicPresence>,
        failed_topics: Vec<String>,
        cid: Option<String>,
    },
    HistoryResponse(HistoryPage),
    PublicationGap {
        topic: String,
        reason: String,
        count: u64,
        range: Option<GapRange>,
    },
    MessageAck {
        last: u64,
    },
    Reconnect {
        after_ms: u64,
        reason: String,
    },
    AuthExpiryWarning {
        expires_in_ms: u64,
        ends_in_ms: u64,
    },
    AuthRefresh {
        token: String,
        cid: Option<String>,
    },
    AuthRefreshResponse {
        expires_in_ms: u64,
        ends_in_ms: Option<u64>,
        cid: Option<String>,
    },
    CallRequest(Call),
    CallResponse(CallResponse),
    Subscribe(Subscribe),
    Publish(Publish),
    PublicationAck {
        deliveries: Vec<u64>,
    },
    PresenceRequest {
        topics: Vec<String>,
        counts_only: bool,
        limit: Option<u64>,
        cid: Option<String>,
    },
    HistoryRequest(HistoryQuery),
}

/// A place in a topic's history.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// 8 hexadecimal digits.
    pub epoch: String,
    /// The offset.
    pub offset: u64,
}

/// The publications of a gap.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GapRange {
    /// 8 hexadecimal digits.
    pub epoch: String,
    /// The first offset.
    pub from: u64,
    /// The last offset.
    pub to: u64,
}

/// The users on a topic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub struct TopicPresence {
    pub topic: String,
    pub users: u64,
    pub connections: u64,
    pub truncated: bool,
    pub members: Option<Vec<Member>>,
}

/// A member of a topic's presence.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub struct Member {
    pub user: String,
    pub connections: u64,
    pub data: Option<Value>,
}

/// A `call_request` of either side.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Its type.
    #[serde(rename = "type")]
    pub t: String,
    /// Its payload.
    pub payload: Value,
    /// How long the caller waits.
    pub timeout_ms: Option<u64>,
    /// `cid`.
    pub cid: String,
}

/// A `call_response` of either side: exactly one of payload and error.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallResponse {
    /// The answer.
    pub payload: Option<Value>,
    /// The error.
    pub error: Option<CallError>,
    /// `cid`.
    pub cid: String,
}

/// Why a call has no answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallError {
    /// A code.
    pub code: String,
    /// Words.
    pub message: String,
}

/// A client's `subscription_update`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub struct Subscribe {
    pub action: String,
    pub topics: Vec<String>,
    pub presence: Option<Value>,
    #[serde(default)]
    pub recover: bool,
    #[serde(default)]
    pub recovery: Vec<RecoveryPosition>,
    #[serde(default)]
    pub replay: u64,
    pub queue_group: Option<String>,
    pub filter: Option<Value>,
    pub overload: Option<String>,
    #[serde(default)]
    pub acknowledge: bool,
    pub window: Option<u64>,
    #[serde(default)]
    pub tokens: BTreeMap<String, String>,
    #[serde(default)]
    pub renew: bool,
    pub cid: Option<String>,
}

/// A client's `history_request`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub struct HistoryQuery {
    pub topic: String,
    pub since: Option<Position>,
    pub limit: Option<u64>,
    pub order: Option<String>,
    pub cid: Option<String>,
}

/// A server's `history_response`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub struct HistoryPage {
    pub topic: String,
    pub epoch: String,
    pub offset: u64,
    pub oldest: u64,
    pub publications: Vec<Value>,
    pub more: bool,
    pub complete: bool,
    pub cid: Option<String>,
}

/// The last publication of a topic that a client has seen.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub struct RecoveryPosition {
    pub topic: String,
    pub epoch: String,
    pub offset: u64,
}

/// A client's `publish_request`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub struct Publish {
    pub topic: String,
    #[serde(rename = "type")]
    pub t: String,
    pub payload: Value,
    pub category: Option<String>,
    pub priority: Option<u64>,
    pub id: Option<String>,
    pub key: Option<String>,
    pub ttl_ms: Option<u64>,
    #[serde(default)]
    pub exclude_self: bool,
    pub cid: Option<String>,
    /// `n`, which the reply is checked for.
    pub n: Option<u64>,
}

/// Why a topic failed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub struct TopicFailure {
    pub topic: String,
    pub code: String,
    pub message: String,
}

/// The result of a topic's recovery.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub struct TopicRecovery {
    pub topic: String,
    pub epoch: String,
    pub offset: u64,
    pub recovered: bool,
    pub count: u64,
}

/// An answer of the engine's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineAnswer {
    /// `p`.
    pub payload: Value,
    /// `cid`.
    pub cid: Option<String>,
}

/// A message that was written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// `t`.
    pub t: String,
    /// `p`.
    pub p: Value,
    /// `cid`.
    pub cid: Option<String>,
    /// `seq`, if it matters.
    pub seq: Option<u64>,
    /// `n`.
    pub n: Option<u64>,
}

/// An `error` that was written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Error {
    /// The code.
    pub code: String,
    /// Whether the session goes on.
    pub recoverable: bool,
    /// Seconds.
    pub retry_after: Option<u64>,
    /// `cid`.
    pub cid: Option<String>,
    /// How many messages it answers, if not one.
    pub refused: Option<u64>,
}

/// One side of a key exchange.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The 65 bytes of the point.
    pub public_key: Hex,
    /// 1 or 2.
    pub version: u8,
}

/// The producer in a `client_hello`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedProducer {
    /// The client's name for it.
    pub id: String,
    /// 16 hex digits.
    pub instance: Option<String>,
    /// Number of the connection.
    pub attempt: Option<u64>,
}

/// A client's key and the request that contained it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyExchange {
    /// The 65 bytes of the point.
    pub public_key: Hex,
    /// 1 or 2.
    pub version: u8,
    /// `cid`.
    pub cid: Option<String>,
    /// The producer that the client names as itself.
    pub producer: Option<String>,
}

/// A `key_update`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyUpdate {
    /// Whether the other side is asked for one too.
    pub request: bool,
}
