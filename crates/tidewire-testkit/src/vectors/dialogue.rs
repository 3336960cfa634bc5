//! `server-dialogues.json`, `client-dialogues.json` and `recovery.json`.

use super::Hex;
use super::frames::Side;
use serde::Deserialize;
use serde_json::Value;

/// What a session hears and says, step by step.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What the case is about.
    pub name: String,
    /// Whose session it is.
    pub side: Side,
    /// What a server offers.
    pub features: Option<Features>,
    /// The steps.
    pub steps: Vec<Step>,
}

/// The features of either side.
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
}

/// Something that is received or to be said, and what comes of it: exactly one of the others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What comes.
    pub receive: Option<Received>,
    /// What to say.
    pub say: Option<Say>,
    /// What is said.
    pub reply: Option<Reply>,
    /// The error that is said.
    pub error: Option<Error>,
    /// Nothing comes of it.
    #[serde(default)]
    pub ignored: bool,
    /// What the engine is asked; by `kind`.
    pub request: Option<Value>,
    /// Messages to be treated as if each had come alone.
    pub batch: Option<Vec<Value>>,
    /// Keys are to be exchanged.
    pub key_exchange: Option<KeyExchange>,
    /// The peer takes its next key.
    pub key_update: Option<KeyUpdate>,
    /// What a client makes of it; by its name.
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
    },
    KeyUpdate(KeyUpdate),
    Error {
        code: String,
        retry_after: Option<u64>,
        refused: Option<u64>,
        cid: Option<String>,
    },
    RateLimitWarning {
        current_rate: u64,
        limit: u64,
        remaining: u64,
        retry_after: u64,
    },
    ConfigResponse(Answer),
    HealthCheckResponse(Answer),
    MetricsResponse(Answer),
    SubscriptionUpdate {
        action: String,
        success_topics: Vec<String>,
        failed_topics: Vec<String>,
        recovery: Vec<TopicRecovery>,
        cid: Option<String>,
    },
}

/// What became of a topic's recovery.
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
pub struct Answer {
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

/// A client's key and the request that it came with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyExchange {
    /// The 65 bytes of the point.
    pub public_key: Hex,
    /// 1 or 2.
    pub version: u8,
    /// `cid`.
    pub cid: Option<String>,
}

/// A `key_update`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyUpdate {
    /// Whether the other side is asked for one too.
    pub request: bool,
}
