//! The client's side of a session.

mod event;
mod request;

pub use event::{ClientEvent, PresenceChange};
pub use request::SubscriptionRequest;

use super::liveness::{Liveness, TimeoutAction};
use super::numbers::payload_numbers;
use super::payload::write_key_update;
use super::{
    Features, HelloEncryption, HelloProducer, KeyOffer, Now, Object, PROTOCOL_VERSION, batch, call,
    history, write_message,
};
use crate::envelope::{
    Category, Envelope, EnvelopeError, EnvelopeHeader, Kind, SystemType, classify_json,
    classify_msgpack, parse_json, parse_msgpack,
};
use crate::format::{Format, FormatError};
use crate::frame::OpCode;
use crate::uuid::Uuid;
use serde_json::Value;

/// The session of one connection, on the side of the client.
#[derive(Clone, Debug)]
pub struct ClientSession {
    seq: u64,
    liveness: Liveness,
    ping_interval_ms: u64,
    idle_timeout_ms: u64,
    format: Format,
    ready: bool,
    established: bool,
    key_offered: bool,
    takes_binary: bool,
}

/// The content of a `client_hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// Name and version.
    pub client_version: &'a str,
    /// The features of the client.
    ///
    /// `encryption` is ignored: the hello announces encryption if it has a key.
    pub features: Features,
    /// A public key, which requests encryption.
    pub encryption: Option<KeyOffer>,
    /// A producer, whose numbered messages the server acknowledges.
    pub producer: Option<&'a HelloProducer>,
}

impl ClientSession {
    /// The session of a connection after its upgrade, which requests messages in `format`.
    pub fn new(format: Format, now: Now) -> Self {
        Self {
            seq: 0,
            liveness: Liveness::new(now.monotonic_ms),
            ping_interval_ms: PING_INTERVAL_MS,
            idle_timeout_ms: IDLE_TIMEOUT_MS,
            format,
            ready: false,
            established: false,
            key_offered: false,
            takes_binary: false,
        }
    }

    /// Sets the idle timeout in milliseconds; 60,000 by default, 0 for none.
    #[must_use]
    pub fn with_idle_timeout_ms(mut self, idle_timeout_ms: u64) -> Self {
        self.idle_timeout_ms = idle_timeout_ms;
        self
    }

    /// The encoding of the messages of this client.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether `server_ready` was received.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether `server_hello` was received.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Whether the server offers binary payloads; only then may a client send one.
    pub fn server_takes_binary(&self) -> bool {
        self.takes_binary
    }

    /// Time between two pings of this side: the server's interval once `server_hello` has named one,
    /// but at least a second; 25,000 before, and with a server that does not ping. At most half the
    /// idle timeout in any case, so that a server is asked before its silence counts.
    pub fn ping_interval_ms(&self) -> u64 {
        match self.idle_timeout_ms {
            0 => self.ping_interval_ms,
            idle_timeout_ms => self.ping_interval_ms.min((idle_timeout_ms / 2).max(1)),
        }
    }

    /// Records that bytes of the server were received.
    #[inline]
    pub fn handle_heard(&mut self, now_ms: u64) {
        self.liveness.handle_heard(now_ms);
    }

    /// The time of the next call of [`Self::handle_timeout`], on the monotonic clock. It changes when bytes or
    /// `server_hello` are received.
    pub fn poll_deadline_ms(&self) -> u64 {
        self.liveness
            .poll_deadline_ms(self.ping_interval_ms(), self.idle_timeout_ms)
    }

    /// The action that is due now. [`Self::write_ping`] writes a ping. A requested ping counts as sent.
    pub fn handle_timeout(&mut self, now: Now) -> TimeoutAction {
        let ping_interval_ms = self.ping_interval_ms();
        self.liveness
            .handle_timeout(ping_interval_ms, self.idle_timeout_ms, now.monotonic_ms)
    }

    /// Receives a message of the server: JSON text, or MessagePack without the prefix `M:`.
    ///
    /// # Errors
    /// It is not an envelope, or an invalid system message: the server's fault.
    pub fn handle_message(
        &mut self,
        encoding: Format,
        bytes: &[u8],
        now: Now,
    ) -> Result<ClientEvent, EnvelopeError> {
        let kind = match encoding {
            Format::Json => classify_json(bytes)?,
            Format::MessagePack => classify_msgpack(bytes)?,
        };
        let Kind::System(system) = kind else {
            return Ok(ClientEvent::Application);
        };
        match system {
            SystemType::Pong => {
                let names = ["client_timestamp", "server_timestamp"];
                let [sent_ms, answered_ms] = payload_numbers(encoding, bytes, names)?;
                Ok(ClientEvent::Pong {
                    client_timestamp_ms: sent_ms,
                    server_timestamp_ms: answered_ms,
                    latency_ms: sent_ms.map(|sent_ms| now.unix_ms.saturating_sub(sent_ms)),
                })
            }
            SystemType::Ping => {
                let [timestamp_ms] = payload_numbers(encoding, bytes, ["timestamp"])?;
                Ok(ClientEvent::ServerPing { timestamp_ms })
            }
            SystemType::Batch => batch::unpack(encoding, bytes).map(ClientEvent::Batch),
            SystemType::CallRequest | SystemType::CallResponse => {
                let (either, correlation_id) = call::parse(system, encoding, bytes)?;
                Ok(ClientEvent::of_call(either, correlation_id))
            }
            SystemType::HistoryResponse => {
                let (page, correlation_id) = history::read_page(encoding, bytes)?;
                let page = Box::new(page);
                Ok(ClientEvent::HistoryResponse {
                    page,
                    correlation_id,
                })
            }
            _ => {
                let envelope = match encoding {
                    Format::Json => parse_json(bytes)?,
                    Format::MessagePack => parse_msgpack(bytes)?,
                };
                self.handle_envelope(system, envelope)
            }
        }
    }

    /// Appends `client_hello`, and returns the opcode of its frame.
    pub fn write_hello(
        &mut self,
        hello: &ClientHello<'_>,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        self.key_offered = hello.encryption.is_some();
        let features = Features {
            encryption: hello.encryption.is_some(),
            ..hello.features
        };
        self.write(SystemType::ClientHello, id, now, out, |out| {
            let mut object = Object::open(out);
            object.text("client_version", hello.client_version);
            object.number("protocol_version", PROTOCOL_VERSION.into());
            object.with("features", |out| features.write(out));
            object.texts("capabilities", &[""; 0]);
            if let Some(offer) = &hello.encryption {
                offer.write(&mut object);
            }
            if let Some(producer) = hello.producer {
                object.with("producer", |out| {
                    let mut object = Object::open(out);
                    object.text("id", &producer.id);
                    if let Some(attempt) = &producer.attempt {
                        object.text("instance", &format!("{:016x}", attempt.instance));
                        object.number("attempt", attempt.number);
                    }
                    object.close();
                });
            }
            object.close();
        })
    }

    /// Appends `key_update`, and returns the opcode of its frame. The caller encrypts later messages with its next
    /// key. With `request` the server changes its key, too.
    pub fn write_key_update(
        &mut self,
        request: bool,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        self.write(SystemType::KeyUpdate, id, now, out, |out| {
            write_key_update(request, out);
        })
    }

    /// Appends one `batch` with `messages`, each a JSON envelope that is not checked and none of them a
    /// batch, at most [`BATCH_MESSAGES_MAX`](super::BATCH_MESSAGES_MAX); returns the opcode of its
    /// frame. `id` is the id of the batch.
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

    /// Appends `ping` with the time `now`, and returns the opcode of its frame.
    pub fn write_ping(&mut self, id: Uuid, now: Now, out: &mut Vec<u8>) -> OpCode {
        self.write(SystemType::Ping, id, now, out, |out| {
            let mut object = Object::open(out);
            object.number("timestamp", now.unix_ms);
            object.close();
        })
    }

    /// Appends the answer to a `ping` of the server, and returns the opcode of its frame.
    pub fn write_pong(
        &mut self,
        server_timestamp_ms: Option<u64>,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        let latency_ms = server_timestamp_ms.map_or(0, |sent| now.unix_ms.saturating_sub(sent));
        self.write(SystemType::Pong, id, now, out, |out| {
            let mut object = Object::open(out);
            object.number("client_timestamp", now.unix_ms);
            object.optional_number("server_timestamp", server_timestamp_ms);
            object.number("latency", latency_ms);
            object.close();
        })
    }

    fn write(
        &mut self,
        system: SystemType,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
        write_payload: impl FnOnce(&mut Vec<u8>),
    ) -> OpCode {
        let header = self.header(system, None, id, now);
        write_message(&header, self.format, out, write_payload)
    }

    /// The header of the next message, which counts as written.
    fn header<'a>(
        &mut self,
        system: SystemType,
        correlation_id: Option<&'a str>,
        id: Uuid,
        now: Now,
    ) -> EnvelopeHeader<'a> {
        self.seq += 1;
        EnvelopeHeader {
            category: Category::System,
            t: system.as_str(),
            id,
            unix_ms: now.unix_ms,
            seq: self.seq,
            correlation_id,
            signature: None,
            number: None,
            binary: false,
        }
    }

    fn handle_envelope(
        &mut self,
        system: SystemType,
        envelope: Envelope,
    ) -> Result<ClientEvent, EnvelopeError> {
        match system {
            SystemType::ServerReady => {
                self.ready = true;
                self.takes_binary = offers_binary(&envelope.payload["details"]);
            }
            SystemType::ServerHello => return self.handle_hello(&envelope.payload),
            _ => {}
        }
        ClientEvent::read(system, envelope)
    }

    /// Only the first answer to our hello has a valid key: a second hello never replaces it.
    fn handle_hello(&mut self, payload: &Value) -> Result<ClientEvent, EnvelopeError> {
        let encryption = if self.key_offered {
            HelloEncryption::read(payload)?.map(Box::new)
        } else {
            None
        };
        self.key_offered = false;
        self.established = true;
        self.takes_binary |= offers_binary(payload);
        let limits = &payload["limits"];
        let number = |value: &Value| value.as_f64().unwrap_or_default() as u64;
        let ping_interval_ms = number(&payload["ping_interval"]);
        if ping_interval_ms > 0 {
            self.ping_interval_ms = ping_interval_ms.max(PING_INTERVAL_MS_MIN);
        }
        Ok(ClientEvent::Established {
            server_version: event::text(&payload["server_version"]),
            protocol_version: number(&payload["protocol_version"]),
            connection_id: event::text(&payload["connection_id"]),
            message_bytes_max: number(&limits["max_message_size"]),
            rate_limit_capacity: number(&limits["rate_limit_capacity"]),
            rate_limit_refill_per_s: number(&limits["rate_limit_refill"]),
            ping_interval_ms,
            encryption,
            producer: event::producer(&payload["producer"])?,
            server_subscriptions: payload["features"]["server_subscriptions"] == true,
        })
    }
}

/// Whether `server_ready`'s details or `server_hello` offer binary payloads.
fn offers_binary(payload: &Value) -> bool {
    payload["features"]["binary"] == Value::Bool(true)
}

/// The interval of pings before the server sets one.
const PING_INTERVAL_MS: u64 = 25_000;

/// The minimum interval of pings that a server can set.
const PING_INTERVAL_MS_MIN: u64 = 1_000;

/// The default idle timeout.
const IDLE_TIMEOUT_MS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic_ms: u64) -> Now {
        Now {
            monotonic_ms,
            unix_ms: 0,
        }
    }

    fn after_hello(session: ClientSession, ping_interval: &str) -> ClientSession {
        let mut session = session;
        let hello = format!(
            r#"{{"c":"WSE","t":"server_hello","p":{{"protocol_version":1{ping_interval}}}}}"#
        );
        let event = session.handle_message(Format::Json, hello.as_bytes(), at(0));
        assert!(matches!(event, Ok(ClientEvent::Established { .. })));
        session
    }

    #[test]
    fn pings_and_idleness_by_the_clock() {
        let mut session = ClientSession::new(Format::Json, at(1000));
        assert_eq!(session.poll_deadline_ms(), 26_000);
        assert_eq!(session.handle_timeout(at(25_999)), TimeoutAction::None);
        assert_eq!(session.handle_timeout(at(26_000)), TimeoutAction::SendPing);
        assert_eq!(session.handle_timeout(at(26_000)), TimeoutAction::None);
        assert_eq!(session.poll_deadline_ms(), 51_000);
        session.handle_heard(27_000);
        assert_eq!(session.handle_timeout(at(61_000)), TimeoutAction::SendPing);
        assert_eq!(session.poll_deadline_ms(), 86_000);
        assert_eq!(session.handle_timeout(at(86_999)), TimeoutAction::SendPing);
        assert_eq!(session.poll_deadline_ms(), 87_000);
        assert_eq!(session.handle_timeout(at(87_000)), TimeoutAction::CloseIdle);
    }

    #[test]
    fn the_server_sets_the_ping_interval() {
        let new = || ClientSession::new(Format::Json, at(0));
        for (named, interval_ms) in [
            (r#","ping_interval":15000"#, 15_000),
            (r#","ping_interval":1"#, 1_000),
            (r#","ping_interval":0"#, 25_000),
            (r#","ping_interval":-5"#, 25_000),
            (r#","ping_interval":"soon""#, 25_000),
            ("", 25_000),
            // Silence must not count before the server was asked.
            (r#","ping_interval":90000"#, 30_000),
            (r#","ping_interval":1e300"#, 30_000),
        ] {
            let session = after_hello(new(), named);
            assert_eq!(session.ping_interval_ms(), interval_ms, "{named}");
            assert_eq!(session.poll_deadline_ms(), interval_ms, "{named}");
        }
        let mut session = after_hello(new(), r#","ping_interval":2000"#);
        assert_eq!(session.handle_timeout(at(1_999)), TimeoutAction::None);
        assert_eq!(session.handle_timeout(at(2_000)), TimeoutAction::SendPing);
        assert_eq!(session.poll_deadline_ms(), 4_000);
    }

    #[test]
    fn the_caller_sets_the_idle_timeout() {
        let new = |idle_timeout_ms| {
            ClientSession::new(Format::Json, at(0)).with_idle_timeout_ms(idle_timeout_ms)
        };
        let mut short = new(10_000);
        assert_eq!(short.handle_timeout(at(5_000)), TimeoutAction::SendPing);
        short.handle_heard(5_001);
        assert_eq!(short.handle_timeout(at(10_000)), TimeoutAction::SendPing);
        assert_eq!(short.handle_timeout(at(15_000)), TimeoutAction::SendPing);
        assert_eq!(short.poll_deadline_ms(), 15_001);
        assert_eq!(short.handle_timeout(at(15_001)), TimeoutAction::CloseIdle);

        let mut never = after_hello(new(0), r#","ping_interval":90000"#);
        assert_eq!(never.poll_deadline_ms(), 90_000);
        let late = at(u64::MAX - 1);
        assert_eq!(never.handle_timeout(late), TimeoutAction::SendPing);
        assert_eq!(never.handle_timeout(late), TimeoutAction::None);
    }
}
