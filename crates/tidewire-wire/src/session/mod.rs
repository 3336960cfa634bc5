//! The version 1 session of each side: what a system message means, what to answer, when to ping.
//!
//! The `handle_*` methods receive messages, events and the time; they and the `poll_*` methods return the next
//! actions. Encoding appends to a buffer of the caller's; ids, and so randomness, are arguments.

mod batch;
mod call;
mod client;
mod encryption;
mod history;
mod liveness;
mod numbers;
mod object;
mod objection;
mod payload;
mod publish;
mod repair;
mod reply;
mod request;
mod server;
mod subscription;
mod token;
mod walk;

pub use batch::{BATCH_MESSAGES_MAX, write_shared_batch};
pub use call::{Call, CallAnswer, CallError, CallResult};
pub use client::{ClientEvent, ClientHello, ClientSession, PresenceChange, SubscriptionRequest};
pub use encryption::{
    EncryptionVersion, HelloEncryption, HelloIdentity, KeyOffer, PUBLIC_KEY_BYTES, SIGNATURE_BYTES,
};
pub use history::{HISTORY_LIMIT, HISTORY_LIMIT_MAX, HistoryPage, HistoryPosition, HistoryQuery};
pub use liveness::TimeoutAction;
pub use payload::write_gap_event;
pub use publish::{KEY_BYTES_MAX, PublishRequest, TYPE_BYTES_MAX};
pub use reply::Reply;
pub use reply::values::{
    GapRange, GapReason, HelloProducer, PresenceMember, ProducerAttempt, ProducerState,
    PublicationGap, REFUSED_IDS_MAX, Refused, TopicFailure, TopicPresence, TopicRecovery,
};
pub use request::{
    DELIVERIES_PER_ACK_MAX, PresenceQuery, Request, RequestKind, Sync,
    TOPICS_PER_PRESENCE_REQUEST_MAX,
};
pub use server::{PRODUCER_ID_BYTES_MAX, ServerProfile, ServerSession, SystemEvent};
pub use subscription::{
    Action, FILTER_BYTES_MAX, Overload, PRESENCE_BYTES_MAX, QUEUE_GROUP_BYTES_MAX,
    RecoveryPosition, Subscription, TOKENS_PER_REQUEST_MAX, TOPICS_PER_REQUEST_MAX,
};
pub use token::{TOKEN_BYTES_MAX, Token};
pub use walk::Refusal;

use crate::envelope::EnvelopeHeader;
use crate::envelope::raw::Raw;
use crate::format::{Format, Place, pack};
use crate::frame::OpCode;
use object::Object;

/// The version of the protocol that this crate speaks.
pub const PROTOCOL_VERSION: u8 = 1;

/// A moment, on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Now {
    /// Milliseconds on a clock that never goes back, for deadlines.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970, for messages.
    pub unix_ms: u64,
}

/// The features of a side beyond sending messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Features {
    /// `C:` frames.
    pub compression: bool,
    /// `E:` frames.
    pub encryption: bool,
    /// `batch` messages.
    pub batching: bool,
    /// Priorities (`pri`).
    pub priority_queue: bool,
    /// Circuit breaker.
    pub circuit_breaker: bool,
    /// Recovery of missed publications.
    pub recovery: bool,
    /// Topics with all that the protocol defines for them: patterns, filters, overload policies, queue groups
    /// with acknowledgements and publishing by clients.
    pub topics: bool,
    /// The users on a topic.
    pub presence: bool,
    /// `call_request` and `call_response`.
    pub calls: bool,
    /// `replay` and `history_request`.
    pub history: bool,
    /// Subscriptions that the server makes, and that a client asks for again (`renew`).
    pub server_subscriptions: bool,
    /// Binary payloads.
    pub binary: bool,
    /// News of the broker that connects the server with others, to clients that ask for them by name.
    pub broker_updates: bool,
}

impl Features {
    /// These features without those that `peer`, an object of booleans, sets to false. A feature that
    /// the peer does not mention stays.
    fn negotiate(self, peer: Raw<'_>) -> Self {
        let picked = peer.pick([
            "compression",
            "encryption",
            "batching",
            "priority_queue",
            "circuit_breaker",
            "recovery",
            "topics",
            "presence",
            "calls",
            "history",
            "server_subscriptions",
            "binary",
            "broker_updates",
        ]);
        let allowed = picked.map(|value| value.flag() != Some(false));
        let [
            compression,
            encryption,
            batching,
            priority_queue,
            circuit_breaker,
            recovery,
            topics,
            presence,
            calls,
            history,
            server_subscriptions,
            binary,
            broker_updates,
        ] = allowed;
        Self {
            compression: self.compression && compression,
            encryption: self.encryption && encryption,
            batching: self.batching && batching,
            priority_queue: self.priority_queue && priority_queue,
            circuit_breaker: self.circuit_breaker && circuit_breaker,
            recovery: self.recovery && recovery,
            topics: self.topics && topics,
            presence: self.presence && presence,
            calls: self.calls && calls,
            history: self.history && history,
            server_subscriptions: self.server_subscriptions && server_subscriptions,
            binary: self.binary && binary,
            broker_updates: self.broker_updates && broker_updates,
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        let mut object = Object::open(out);
        object.boolean("compression", self.compression);
        object.boolean("encryption", self.encryption);
        object.boolean("batching", self.batching);
        object.boolean("priority_queue", self.priority_queue);
        object.boolean("circuit_breaker", self.circuit_breaker);
        object.boolean("recovery", self.recovery);
        object.boolean("topics", self.topics);
        object.boolean("presence", self.presence);
        object.boolean("calls", self.calls);
        object.boolean("history", self.history);
        if self.server_subscriptions {
            object.boolean("server_subscriptions", true);
        }
        if self.binary {
            object.boolean("binary", true);
        }
        if self.broker_updates {
            object.boolean("broker_updates", true);
        }
        object.close();
    }
}

/// Appends a message in `format` whose payload `write_payload` writes as JSON. A payload that is nested too
/// deep for MessagePack is left out.
fn write_message(
    header: &EnvelopeHeader<'_>,
    format: Format,
    out: &mut Vec<u8>,
    write_payload: impl FnOnce(&mut Vec<u8>),
) -> OpCode {
    match format {
        Format::Json => header.write_json_with(out, write_payload),
        Format::MessagePack => {
            let mut payload = Vec::new();
            write_payload(&mut payload);
            header.write_msgpack_with(out, |out| {
                let place = match Place::of_type(header.t.as_bytes()).member(b"p") {
                    Place::Payload => Place::Other,
                    place => place,
                };
                if pack(place, &payload, out).is_err() {
                    out.push(MESSAGEPACK_NIL);
                }
            });
        }
    }
    op_code(format)
}

/// The kind of frame for a message in `format`.
fn op_code(format: Format) -> OpCode {
    match format {
        Format::Json => OpCode::Text,
        Format::MessagePack => OpCode::Binary,
    }
}

const MESSAGEPACK_NIL: u8 = 0xc0;
