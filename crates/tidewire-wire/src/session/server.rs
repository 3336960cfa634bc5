//! The server's side of a session.

use super::liveness::{Liveness, TimeoutAction};
use super::numbers::payload_numbers;
use super::objection::Objection;
use super::payload::{Context, pack_pong};
use super::repair::repair_topics;
use super::reply::Reply;
use super::request::{self, Request, RequestKind};
use super::subscription::parse_subscription;
use super::walk::Head;
use super::{Features, HelloProducer, KeyOffer, Now, PROTOCOL_VERSION, ProducerAttempt, Refusal};
use super::{batch, call};
use super::{op_code, write_message};
use crate::codes::ErrorCode;
use crate::envelope::raw::Raw;
use crate::envelope::{Category, EnvelopeError, EnvelopeHeader, SystemType};
use crate::format::{Format, FormatError};
use crate::frame::OpCode;
use crate::uuid::Uuid;

/// The profile that all sessions of one server share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProfile {
    /// The server's version, sent to clients.
    pub server_version: String,
    /// The features that the server offers.
    pub features: Features,
    /// The largest message a client may send; 1 MiB by default.
    pub message_bytes_max: usize,
    /// Messages a client may send at once; 100,000 by default.
    pub rate_limit_capacity: u64,
    /// Messages a second that a client may send on end; 10,000 by default.
    pub rate_limit_refill_per_s: u64,
    /// Time between two pings; 25,000 by default, 0 for none.
    pub ping_interval_ms: u64,
    /// Silence after which a connection is closed; 60,000 by default, 0 for never.
    pub idle_timeout_ms: u64,
}

impl Default for ServerProfile {
    fn default() -> Self {
        Self {
            server_version: concat!("tidewire/", env!("CARGO_PKG_VERSION")).to_owned(),
            features: Features {
                batching: true,
                ..Features::default()
            },
            message_bytes_max: 1024 * 1024,
            rate_limit_capacity: 100_000,
            rate_limit_refill_per_s: 10_000,
            ping_interval_ms: 25_000,
            idle_timeout_ms: 60_000,
        }
    }
}

/// One connection's session, at most 64 bytes.
#[derive(Clone, Debug)]
pub struct ServerSession {
    connection_id: Uuid,
    seq: u64,
    liveness: Liveness,
    features: Features,
    protocol_version: u8,
    format: Format,
    compression: bool,
    established: bool,
    takes_batches: bool,
    takes_calls: bool,
}

/// The reaction to a system message.
#[derive(Clone, Debug, PartialEq)]
pub enum SystemEvent {
    /// Encode this and send it.
    Reply(Reply),
    /// Nothing.
    Ignore,
    /// The engine's to answer.
    Request(Request),
    /// Messages in the encoding of the batch, to be treated as if each had arrived alone.
    Batch(Vec<Vec<u8>>),
    /// `publish_request`, the engine's to read with [`PublishRequest::parse`](super::PublishRequest::parse):
    /// nothing has been looked at but its type.
    Publish,
    /// A `client_hello` without a public key, or one after the first: answer with a [`Reply::Hello`] that
    /// has this `correlation_id`.
    Hello {
        /// `cid`.
        correlation_id: Option<String>,
        /// The producer, if this is the first and the client wants its messages acknowledged.
        producer: Option<HelloProducer>,
    },
    /// The first `client_hello`, with a public key: agree on a key, answer with a [`Reply::Hello`] that
    /// has this `correlation_id` and ours, and encrypt everything after it. If the key proves
    /// unusable, the answer is `KEY_EXCHANGE_FAILED` and the end.
    KeyExchange {
        /// The client's public key and the version to speak.
        offer: Box<KeyOffer>,
        /// `cid`.
        correlation_id: Option<String>,
        /// The producer, if the client wants its messages acknowledged.
        producer: Option<HelloProducer>,
    },
    /// `key_update`: the client's next message is encrypted with its next key. To be refused without
    /// encryption of version 2.
    KeyUpdate {
        /// Whether to answer with a [`Reply::KeyUpdate`] and change our key too.
        request: bool,
    },
}

impl ServerSession {
    /// The session of a connection that has just been upgraded; `format` and `compression` are those of
    /// its query.
    pub fn new(format: Format, compression: bool, now: Now) -> Self {
        Self {
            connection_id: Uuid::default(),
            seq: 0,
            liveness: Liveness::new(now.monotonic_ms),
            features: Features::default(),
            protocol_version: PROTOCOL_VERSION,
            format,
            compression,
            established: false,
            takes_batches: false,
            takes_calls: false,
        }
    }

    /// The same with the version that the client named in its query (`protocol_version=N`), or ours
    /// if that is smaller; 0 counts as 1. Without it the version is ours until `client_hello`, which
    /// has the last word if it names one.
    #[must_use]
    pub fn with_protocol_version(mut self, version: u8) -> Self {
        self.protocol_version = version.clamp(1, PROTOCOL_VERSION);
        self
    }

    /// How the client wants its messages encoded.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the client asked for `C:` frames.
    pub fn compression(&self) -> bool {
        self.compression
    }

    /// Whether `client_hello` has arrived.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// The features in use; none before `client_hello`.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Whether the client's hello asked for `batch` messages by name and the server has them: only then
    /// may [`Self::encode_batch`] be used.
    pub fn client_takes_batches(&self) -> bool {
        self.takes_batches
    }

    /// Whether the client's hello asked for calls by name and the server has them: only then may
    /// [`Reply::CallRequest`] be sent.
    pub fn client_takes_calls(&self) -> bool {
        self.takes_calls
    }

    /// Whether the client's hello asked for news of the broker by name and the server has one: only then may
    /// [`Reply::HealthCheckResponse`] be sent without a request.
    pub fn client_takes_broker_updates(&self) -> bool {
        self.features.broker_updates
    }

    /// The smaller of both sides' versions of the protocol.
    pub fn protocol_version(&self) -> u8 {
        self.protocol_version
    }

    /// The id that [`Reply::Ready`] gave; all zeros before.
    pub fn connection_id(&self) -> Uuid {
        self.connection_id
    }

    /// Records that anything has arrived from the peer.
    #[inline]
    pub fn handle_heard(&mut self, now_ms: u64) {
        self.liveness.handle_heard(now_ms);
    }

    /// Handles a message that classification found to be of type `system`: JSON text, or MessagePack without
    /// the prefix `M:`. A message that is malformed, or that a client may not send, is answered with
    /// `INVALID_MESSAGE`.
    pub fn handle_system(
        &mut self,
        profile: &ServerProfile,
        system: SystemType,
        encoding: Format,
        bytes: &[u8],
    ) -> SystemEvent {
        match system {
            SystemType::Ping => match payload_numbers(encoding, bytes, ["timestamp"]) {
                Ok([client_timestamp_ms]) => SystemEvent::Reply(Reply::Pong {
                    client_timestamp_ms,
                }),
                Err(error) => invalid(&error, encoding, bytes),
            },
            SystemType::Pong => SystemEvent::Ignore,
            SystemType::Batch => batch::unpack(encoding, bytes)
                .map_or_else(|error| invalid(&error, encoding, bytes), SystemEvent::Batch),
            SystemType::PublishRequest => SystemEvent::Publish,
            SystemType::CallRequest | SystemType::CallResponse => {
                match call::parse(system, encoding, bytes) {
                    Ok((either, correlation_id)) => SystemEvent::Request(Request {
                        kind: either.into(),
                        correlation_id: Some(correlation_id),
                    }),
                    Err(unusable) => SystemEvent::Reply(unusable.refusal(encoding, bytes).into()),
                }
            }
            _ => match Head::read(encoding, bytes) {
                Ok(head) => self.handle_head(profile, system, head),
                Err(error) => match system {
                    SystemType::SubscriptionUpdate => subscribe_repaired(encoding, bytes),
                    _ => None,
                }
                .unwrap_or_else(|| invalid(&error, encoding, bytes)),
            },
        }
    }

    /// When [`Self::handle_timeout`] wants to be called, on the monotonic clock; `u64::MAX` for never.
    pub fn poll_deadline_ms(&self, profile: &ServerProfile) -> u64 {
        self.liveness
            .poll_deadline_ms(profile.ping_interval_ms, profile.idle_timeout_ms)
    }

    /// Returns the action that is due; a due ping is [`Reply::Ping`] and counts as sent.
    pub fn handle_timeout(&mut self, profile: &ServerProfile, now: Now) -> TimeoutAction {
        self.liveness.handle_timeout(
            profile.ping_interval_ms,
            profile.idle_timeout_ms,
            now.monotonic_ms,
        )
    }

    /// Appends the message to `out`, without a WebSocket frame around it, and returns the kind of its frame.
    /// `id` becomes the message's id.
    pub fn encode(
        &mut self,
        profile: &ServerProfile,
        reply: &Reply,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        if let Reply::Ready { connection_id, .. } = reply {
            self.connection_id = *connection_id;
        }
        self.seq += 1;
        let header = EnvelopeHeader {
            category: Category::System,
            t: reply.system_type().as_str(),
            id,
            unix_ms: now.unix_ms,
            seq: self.seq,
            correlation_id: reply.correlation_id(),
            signature: None,
            number: None,
            binary: false,
        };
        if let (
            Reply::Pong {
                client_timestamp_ms,
            },
            Format::MessagePack,
        ) = (reply, self.format)
        {
            header.write_msgpack_with(out, |out| pack_pong(*client_timestamp_ms, now.unix_ms, out));
            return op_code(self.format);
        }
        // Clients of version 1 read it before they have said anything.
        let format = match reply {
            Reply::Ready { .. } => Format::Json,
            _ => self.format,
        };
        let context = Context {
            profile,
            features: self.features,
            protocol_version: self.protocol_version,
            connection_id: self.connection_id,
            unix_ms: now.unix_ms,
        };
        write_message(&header, format, out, |out| {
            reply.write_payload(&context, out);
        })
    }

    /// Appends one `batch` with `messages`, each a JSON envelope that is not checked and none of them a batch,
    /// at most [`BATCH_MESSAGES_MAX`](super::BATCH_MESSAGES_MAX); returns the kind of its frame. `id` becomes
    /// the batch's id.
    ///
    /// # Errors
    /// Only in MessagePack: a message that is not JSON or, with the two levels that the batch adds, is
    /// nested too deep; `out` and the session are as they were before.
    pub fn encode_batch(
        &mut self,
        messages: &[&[u8]],
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> Result<OpCode, FormatError> {
        let op_code = batch::write(messages, self.format, id, now, self.seq + 1, out)?;
        self.seq += 1;
        Ok(op_code)
    }

    fn handle_head(
        &mut self,
        profile: &ServerProfile,
        system: SystemType,
        head: Head<'_>,
    ) -> SystemEvent {
        let Head {
            correlation_id,
            payload,
        } = head;
        let refused = if system == SystemType::ClientHello {
            match self.handle_hello(profile, payload) {
                Ok((Some(offer), producer)) => {
                    return SystemEvent::KeyExchange {
                        offer: Box::new(offer),
                        correlation_id,
                        producer,
                    };
                }
                Ok((None, producer)) => {
                    return SystemEvent::Hello {
                        correlation_id,
                        producer,
                    };
                }
                Err(refusal) => refusal,
            }
        } else if system == SystemType::KeyUpdate {
            match key_update_request(payload) {
                Some(request) => return SystemEvent::KeyUpdate { request },
                None => (
                    ErrorCode::InvalidMessage,
                    "request is neither true nor false",
                ),
            }
        } else {
            match request::parse(system, payload) {
                Ok(kind) => {
                    return SystemEvent::Request(Request {
                        kind,
                        correlation_id,
                    });
                }
                Err(refusal) => refusal,
            }
        };
        let (code, message) = refused;
        let message = message.into();
        SystemEvent::Reply(Reply::Error {
            code,
            message,
            retry_after_s: None,
            refused: None,
            correlation_id,
        })
    }

    /// A second hello changes nothing; it is answered with what the first one settled. Gives the key
    /// to answer, if the first has one and the server encrypts, and the producer that the first names.
    fn handle_hello(
        &mut self,
        profile: &ServerProfile,
        payload: Raw<'_>,
    ) -> Result<(Option<KeyOffer>, Option<HelloProducer>), Objection> {
        if self.established {
            return Ok((None, None));
        }
        if !(payload.is_object() || payload.is_null()) {
            return Err((ErrorCode::InvalidMessage, "the payload is not an object"));
        }
        let [version, asked, producer] = payload.pick(["protocol_version", "features", "producer"]);
        let version = if version.is_null() {
            u64::from(self.protocol_version)
        } else {
            version.unsigned().filter(|version| *version > 0).ok_or((
                ErrorCode::InvalidMessage,
                "protocol_version is not a number from 1 on",
            ))?
        };
        let mut features = profile.features.negotiate(asked);
        let producer = hello_producer(producer)?;
        let offer = if features.encryption {
            KeyOffer::read(payload)?
        } else {
            None
        };
        features.encryption = offer.is_some();
        let [batching, calls, broker_updates] = asked.pick(["batching", "calls", "broker_updates"]);
        features.broker_updates &= broker_updates.flag() == Some(true);
        self.features = features;
        self.takes_batches = features.batching && batching.flag() == Some(true);
        self.takes_calls = features.calls && calls.flag() == Some(true);
        self.protocol_version =
            u8::try_from(version).map_or(PROTOCOL_VERSION, |v| v.min(PROTOCOL_VERSION));
        self.established = true;
        Ok((offer, producer))
    }
}

/// The `producer` of a `client_hello`.
fn hello_producer(producer: Raw<'_>) -> Result<Option<HelloProducer>, Objection> {
    if producer.is_null() {
        return Ok(None);
    }
    let [id, instance, attempt] = producer.pick(["id", "instance", "attempt"]);
    let id = id.text();
    let id = id.filter(|id| (1..=PRODUCER_ID_BYTES_MAX).contains(&id.len()));
    let id = id.ok_or((
        ErrorCode::InvalidMessage,
        "producer has no id of 1 to 64 bytes of text",
    ))?;
    Ok(Some(HelloProducer {
        id: id.into_owned(),
        attempt: producer_attempt(instance, attempt)?,
    }))
}

fn producer_attempt(
    instance: Raw<'_>,
    attempt: Raw<'_>,
) -> Result<Option<ProducerAttempt>, Objection> {
    if instance.is_null() && attempt.is_null() {
        return Ok(None);
    }
    let instance = instance.text().filter(|text| {
        text.len() == 16
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    });
    let instance = instance.and_then(|text| u64::from_str_radix(&text, 16).ok());
    let number = attempt.unsigned().filter(|number| *number < 1 << 53);
    match (instance, number) {
        (Some(instance), Some(number)) => Ok(Some(ProducerAttempt { instance, number })),
        _ => Err((
            ErrorCode::InvalidMessage,
            "producer has an instance that is not 16 hex digits, or an attempt that is not a number below 2^53",
        )),
    }
}

/// Whether a `key_update` asks for another; `None` if its form is unknown.
fn key_update_request(payload: Raw<'_>) -> Option<bool> {
    let [request] = payload.pick(["request"]);
    if request.is_null() {
        return Some(false);
    }
    request.flag()
}

/// A subscription with names of topics that are no text, if nothing else of the message is wrong.
fn subscribe_repaired(encoding: Format, bytes: &[u8]) -> Option<SystemEvent> {
    let repaired = repair_topics(encoding, bytes)?;
    let head = Head::read(encoding, &repaired.bytes).ok()?;
    let correlation_id = head.correlation_id;
    Some(match parse_subscription(head.payload) {
        Ok(mut subscription) => {
            subscription.take_unreadable(&repaired.places);
            SystemEvent::Request(Request {
                kind: RequestKind::Subscription(subscription),
                correlation_id,
            })
        }
        Err((code, message)) => SystemEvent::Reply(
            Refusal {
                code,
                message: message.into(),
                correlation_id,
            }
            .into(),
        ),
    })
}

fn invalid(error: &EnvelopeError, encoding: Format, bytes: &[u8]) -> SystemEvent {
    SystemEvent::Reply(Refusal::of(error, encoding, bytes).into())
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Error {
            code: refusal.code,
            message: refusal.message,
            retry_after_s: None,
            refused: None,
            correlation_id: refusal.correlation_id,
        }
    }
}

/// Bytes that a producer's id may have.
pub const PRODUCER_ID_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_names_a_version() {
        let session = ServerSession::new(Format::Json, false, Now::default());
        assert_eq!(session.protocol_version(), PROTOCOL_VERSION);
        for (named, agreed) in [
            (0, 1),
            (1, 1),
            (PROTOCOL_VERSION, PROTOCOL_VERSION),
            (PROTOCOL_VERSION + 1, PROTOCOL_VERSION),
            (u8::MAX, PROTOCOL_VERSION),
        ] {
            let session = session.clone().with_protocol_version(named);
            assert_eq!(session.protocol_version(), agreed, "{named}");
        }
    }

    #[test]
    fn pings_and_idleness_by_the_clock() {
        let at = |monotonic_ms| Now {
            monotonic_ms,
            unix_ms: 0,
        };
        let profile = ServerProfile::default();
        let mut session = ServerSession::new(Format::Json, false, at(1000));
        assert_eq!(session.poll_deadline_ms(&profile), 26_000);
        assert_eq!(
            session.handle_timeout(&profile, at(25_999)),
            TimeoutAction::None
        );
        assert_eq!(
            session.handle_timeout(&profile, at(26_000)),
            TimeoutAction::SendPing
        );
        assert_eq!(
            session.handle_timeout(&profile, at(26_000)),
            TimeoutAction::None
        );
        assert_eq!(session.poll_deadline_ms(&profile), 51_000);
        session.handle_heard(27_000);
        assert_eq!(
            session.handle_timeout(&profile, at(61_000)),
            TimeoutAction::SendPing
        );
        assert_eq!(session.poll_deadline_ms(&profile), 86_000);
        assert_eq!(
            session.handle_timeout(&profile, at(87_000)),
            TimeoutAction::CloseIdle
        );

        let off = ServerProfile {
            ping_interval_ms: 0,
            idle_timeout_ms: 0,
            ..profile
        };
        assert_eq!(session.poll_deadline_ms(&off), u64::MAX);
        assert_eq!(
            session.handle_timeout(&off, at(u64::MAX - 1)),
            TimeoutAction::None
        );
    }
}
