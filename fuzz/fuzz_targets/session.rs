//! Both sides of a session, fed with message after message as a server and a client would be: nothing
//! breaks them, each reads what the other writes, and a message means the same in JSON and MessagePack.
//!
//! Input: one byte of flags, then messages as in binary frames, with two bytes 0xff between them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{
    Kind, PublicationHeader, SystemType, classify_json, classify_msgpack, pack_payload, parse_json,
    parse_msgpack,
};
use tidewire_wire::format::{Format, Framing, identify, inflate, json_to_msgpack};
use tidewire_wire::frame::OpCode;
use tidewire_wire::session::{
    Action, BATCH_MESSAGES_MAX, CallAnswer, ClientEvent, ClientHello, ClientSession,
    EncryptionVersion, Features, HelloEncryption, HelloProducer, HistoryPage, KeyOffer, Now,
    PUBLIC_KEY_BYTES, PresenceMember, ProducerState, PublishRequest, Reply, RequestKind,
    ServerProfile, ServerSession, Subscription, SystemEvent, TOKEN_BYTES_MAX,
    TOPICS_PER_REQUEST_MAX, TimeoutAction, Token, TopicFailure, TopicPresence, TopicRecovery,
};
use tidewire_wire::uuid::{Uuid, uuid_v7};

fuzz_target!(|input: &[u8]| {
    let [flags, bytes @ ..] = input else {
        return;
    };
    let mut pair = Pair::new(*flags);
    let mut rest = bytes;
    for _ in 0..MESSAGES_MAX {
        let end = rest.windows(2).position(|pair| pair == SEPARATOR);
        pair.handle_frame(&rest[..end.unwrap_or(rest.len())]);
        match end {
            Some(end) => rest = &rest[end + SEPARATOR.len()..],
            None => return,
        }
    }
});

/// A server's session, and a client's that receives the same messages and the server's answers.
struct Pair {
    profile: ServerProfile,
    server: ServerSession,
    client: ClientSession,
    now: Now,
}

impl Pair {
    fn new(flags: u8) -> Self {
        let format = if flags & 1 == 0 {
            Format::Json
        } else {
            Format::MessagePack
        };
        let features = Features {
            compression: flags & 2 != 0,
            batching: flags & 4 != 0,
            encryption: flags & 8 != 0,
            topics: flags & 16 != 0,
            presence: flags & 32 != 0,
            calls: flags & 64 != 0,
            ..Features::default()
        };
        let now = Now {
            monotonic_ms: 1000,
            unix_ms: 1_732_212_345_678,
        };
        let mut pair = Self {
            profile: ServerProfile {
                features,
                ..ServerProfile::default()
            },
            server: ServerSession::new(format, flags & 2 != 0, now),
            client: ClientSession::new(format, now),
            now,
        };
        let connection_id = uuid_v7(now.unix_ms, [3; 10]);
        pair.answer(&Reply::Ready {
            connection_id,
            user_id: Some("u\"\u{1F30A}".into()),
        });
        assert!(pair.client.is_ready());
        pair
    }

    /// A binary frame, as both sides take it.
    fn handle_frame(&mut self, frame: &[u8]) {
        let framing = identify(frame);
        let content = &frame[framing.prefix_bytes()..];
        match framing {
            Framing::Json if std::str::from_utf8(content).is_ok() => {
                self.handle_message(Format::Json, content, false);
            }
            Framing::MessagePack => self.handle_message(Format::MessagePack, content, false),
            Framing::Zlib { .. } => {
                let mut plain = Vec::new();
                // What is inside a stream is not inflated again.
                if inflate(content, &mut plain, 10_000).is_ok() && identify(&plain) == Framing::Json
                {
                    self.handle_frame(&plain);
                }
            }
            _ => {}
        }
        self.time_passes(u64::from(frame.first().copied().unwrap_or_default()) * 400);
    }

    fn handle_message(&mut self, encoding: Format, bytes: &[u8], in_batch: bool) {
        if let Ok(event) = self.client.handle_message(encoding, bytes, self.now) {
            self.heard(event);
        }
        let kind = match encoding {
            Format::Json => classify_json(bytes),
            Format::MessagePack => classify_msgpack(bytes),
        };
        let Ok(Kind::System(system)) = kind else {
            return;
        };
        let established = self.server.is_established();
        let before = self.server.clone();
        let event = self
            .server
            .handle_system(&self.profile, system, encoding, bytes);
        if established {
            assert_eq!(
                self.server.features(),
                before.features(),
                "a second hello changes nothing"
            );
        }
        self.twin(before, encoding, system, bytes, &event);
        match event {
            SystemEvent::Reply(reply) => self.answer(&reply),
            SystemEvent::Request(request) => {
                for reply in replies(request.kind, request.correlation_id) {
                    self.answer(&reply);
                }
            }
            SystemEvent::Batch(messages) => {
                assert!(!in_batch, "a batch in a batch");
                assert!(messages.len() <= BATCH_MESSAGES_MAX);
                for message in messages {
                    self.handle_message(Format::Json, &message, true);
                }
            }
            SystemEvent::Hello {
                correlation_id,
                producer,
            } => self.answer(&hello(correlation_id, producer, None)),
            SystemEvent::Publish => self.publish(encoding, bytes),
            SystemEvent::KeyExchange {
                offer,
                correlation_id,
                producer,
            } => {
                assert!(!established && self.profile.features.encryption);
                self.answer(&hello(correlation_id, producer, Some(*offer)));
            }
            SystemEvent::KeyUpdate { request } => self.answer(&Reply::KeyUpdate { request }),
            SystemEvent::Ignore => assert_eq!(system, SystemType::Pong),
        }
    }

    /// A publication can be handed on in either format, and the client can ask for the same.
    fn publish(&mut self, encoding: Format, bytes: &[u8]) {
        let mut scratch = Vec::new();
        let (request, correlation_id) = match PublishRequest::parse(encoding, bytes, &mut scratch) {
            Ok(parsed) => parsed,
            Err(refusal) => return self.answer(&refusal.into()),
        };
        assert!(SystemType::parse(&request.t).is_none());
        let header = PublicationHeader {
            category: request.category,
            t: &request.t,
            topic: Some(&request.topic),
            position: Some((0x0bad_cafe, 7)),
            id: request.id.as_deref(),
            priority: request.priority.unwrap_or_default(),
            delivery: None,
            correlation_id: correlation_id.as_deref(),
            binary: request.binary,
        };
        let (mut text, mut payload, mut packed) = (Vec::new(), Vec::new(), Vec::new());
        header.write_json(&request.payload, &mut text);
        pack_payload(&request.payload, request.binary, &mut payload)
            .expect("a payload that was checked");
        header.write_msgpack(&payload, &mut packed);
        let publication = parse_json(&text).expect("a publication");
        assert_eq!(publication.topic.as_deref(), Some(&*request.topic));
        assert_eq!(publication.binary, request.binary);
        let unpacked = parse_msgpack(&packed[2..]).expect("a publication");
        assert_eq!(unpacked.binary, request.binary);
        let mut out = Vec::new();
        let op_code = self
            .client
            .write_publish(
                &request,
                correlation_id.as_deref(),
                Some(1),
                ID,
                self.now,
                &mut out,
            )
            .expect("a payload that was checked");
        self.sent((SystemType::PublishRequest, op_code), &out);
        let message = content(op_code, &out);
        let mut scratch = Vec::new();
        let again = PublishRequest::parse(self.client.format(), message, &mut scratch);
        let (again, _) = again.expect("a request of our own");
        assert_eq!((again.topic, again.t), (request.topic, request.t));
        assert_eq!((again.id, again.key), (request.id, request.key));
    }

    /// The same message in the other format calls for the same.
    fn twin(
        &self,
        mut twin: ServerSession,
        encoding: Format,
        system: SystemType,
        bytes: &[u8],
        event: &SystemEvent,
    ) {
        let mut packed = Vec::new();
        if encoding == Format::MessagePack
            || matches!(event, SystemEvent::Batch(_))
            || is_call(event)
            || json_to_msgpack(bytes, &mut packed).is_err()
        {
            return;
        }
        assert_eq!(classify_msgpack(&packed), Ok(Kind::System(system)));
        let same = twin.handle_system(&self.profile, system, Format::MessagePack, &packed);
        assert_eq!(&same, event, "{}", String::from_utf8_lossy(bytes));
    }

    /// Encodes a reply and lets the client read it.
    fn answer(&mut self, reply: &Reply) {
        let mut out = Vec::new();
        let op_code = self
            .server
            .encode(&self.profile, reply, ID, self.now, &mut out);
        let format = self.server.format();
        let event = self
            .client
            .handle_message(format, content(op_code, &out), self.now);
        let event = event.unwrap_or_else(|error| panic!("{error} for {reply:?}"));
        match (reply, &event) {
            (Reply::Ready { .. }, ClientEvent::Ready { .. })
            | (Reply::Hello { .. }, ClientEvent::Established { .. })
            | (Reply::KeyUpdate { .. }, ClientEvent::KeyUpdate { .. })
            | (Reply::Ping, ClientEvent::ServerPing { .. }) => {}
            (
                Reply::Pong {
                    client_timestamp_ms: sent,
                },
                ClientEvent::Pong {
                    client_timestamp_ms,
                    ..
                },
            ) => {
                assert_eq!(sent, client_timestamp_ms);
            }
            (Reply::Error { code, .. }, ClientEvent::Error { known, .. }) => {
                assert_eq!(Some(*code), *known);
            }
            (_, ClientEvent::System(..) | ClientEvent::SubscriptionUpdate { .. })
            | (Reply::PresenceResponse { .. }, ClientEvent::PresenceResponse { .. })
            | (Reply::MessageAck { .. }, ClientEvent::MessageAck { .. })
            | (Reply::AuthExpiryWarning { .. }, ClientEvent::AuthExpiryWarning { .. })
            | (Reply::AuthRefreshResponse { .. }, ClientEvent::AuthRefreshed { .. }) => {}
            (Reply::CallRequest { call, .. }, ClientEvent::Call { call: heard, .. }) => {
                assert_eq!(call.t, heard.t)
            }
            (
                Reply::CallResponse { result, .. },
                ClientEvent::CallResponse { result: heard, .. },
            ) => assert_eq!(result.is_ok(), heard.is_ok()),
            other => panic!("{other:?}"),
        }
        self.heard(event);
    }

    fn heard(&mut self, event: ClientEvent) {
        let mut out = Vec::new();
        let expected = match event {
            ClientEvent::ServerPing { timestamp_ms } => {
                let op_code = self.client.write_pong(timestamp_ms, ID, self.now, &mut out);
                (SystemType::Pong, op_code)
            }
            ClientEvent::Ready { .. } => {
                let hello = ClientHello {
                    client_version: "fuzz/1",
                    features: self.profile.features,
                    encryption: self.profile.features.encryption.then_some(OFFER),
                    producer: None,
                };
                let op_code = self.client.write_hello(&hello, ID, self.now, &mut out);
                (SystemType::ClientHello, op_code)
            }
            ClientEvent::AuthExpiryWarning { .. } => {
                let op_code =
                    self.client
                        .write_auth_refresh("h.c.s", Some("r"), ID, self.now, &mut out);
                (SystemType::AuthRefresh, op_code)
            }
            ClientEvent::Call {
                call,
                correlation_id,
            } => {
                let result = Ok(CallAnswer {
                    payload: call.payload,
                    binary: call.binary,
                });
                let op_code = self.client.write_call_response(
                    &result,
                    &correlation_id,
                    ID,
                    self.now,
                    &mut out,
                );
                (SystemType::CallResponse, op_code)
            }
            ClientEvent::Batch(messages) => {
                assert!(messages.len() <= BATCH_MESSAGES_MAX);
                return;
            }
            _ => return,
        };
        self.sent(expected, &out);
    }

    /// The client's message has the intended type, and is no error to the server.
    fn sent(&self, (system, op_code): (SystemType, OpCode), message: &[u8]) {
        let format = self.client.format();
        let message = content(op_code, message);
        let (kind, envelope) = match format {
            Format::Json => (classify_json(message), parse_json(message)),
            Format::MessagePack => (classify_msgpack(message), parse_msgpack(message)),
        };
        assert_eq!(kind, Ok(Kind::System(system)));
        assert!(envelope.is_ok());
        let mut server = self.server.clone();
        let event = server.handle_system(&self.profile, system, format, message);
        assert!(
            !matches!(event, SystemEvent::Reply(Reply::Error { .. })),
            "{event:?}"
        );
    }

    fn time_passes(&mut self, ms: u64) {
        self.now.monotonic_ms += ms;
        self.now.unix_ms += ms;
        if ms % 800 == 0 {
            self.server.handle_heard(self.now.monotonic_ms);
            self.client.handle_heard(self.now.monotonic_ms);
        }
        if self.server.handle_timeout(&self.profile, self.now) == TimeoutAction::SendPing {
            assert!(self.server.poll_deadline_ms(&self.profile) > self.now.monotonic_ms);
            self.answer(&Reply::Ping);
        }
        if self.client.handle_timeout(self.now) == TimeoutAction::SendPing {
            assert!(self.client.poll_deadline_ms() > self.now.monotonic_ms);
            let mut out = Vec::new();
            let op_code = self.client.write_ping(ID, self.now, &mut out);
            self.sent((SystemType::Ping, op_code), &out);
        }
    }
}

fn hello(
    correlation_id: Option<String>,
    producer: Option<HelloProducer>,
    offer: Option<KeyOffer>,
) -> Reply {
    let answer = |offer: KeyOffer| {
        Box::new(HelloEncryption {
            public_key: offer.public_key,
            version: offer.version,
            identity: None,
        })
    };
    Reply::Hello {
        correlation_id,
        encryption: offer.map(answer),
        producer: producer.map(|producer| ProducerState {
            id: producer.id,
            epoch: 1,
            last: 3,
        }),
    }
}

/// Possible answers of an engine.
fn replies(kind: RequestKind, correlation_id: Option<String>) -> Vec<Reply> {
    let reply = match kind {
        RequestKind::ConfigUpdate => Reply::ConfigResponse {
            payload: serde_json::json!({"ping_interval": 25_000}),
            correlation_id,
        },
        RequestKind::HealthCheck => {
            let payload = serde_json::json!({"status": "ok"});
            Reply::HealthCheckResponse {
                payload,
                correlation_id,
            }
        }
        RequestKind::MetricsRequest => {
            let payload = serde_json::json!({"connections": 1.5});
            Reply::MetricsResponse {
                payload,
                correlation_id,
            }
        }
        RequestKind::Subscription(subscription) => subscribed(subscription, correlation_id),
        RequestKind::Sync(sync) => {
            let failed = Reply::error(ErrorCode::TopicForbidden, sync.topics.join(","));
            return vec![failed, Reply::Ping];
        }
        RequestKind::Presence(query) => Reply::PresenceResponse {
            topics: query.topics.into_iter().map(presence).collect(),
            failed_topics: Vec::new(),
            correlation_id,
        },
        RequestKind::History(query) => Reply::HistoryResponse {
            page: Box::new(HistoryPage {
                topic: query.topic,
                epoch: 7,
                offset: 9,
                oldest: 3,
                publications: vec![br#"{"c":"U","t":"a","o":9,"p":{}}"#.to_vec()],
                more: query.limit == 1,
                complete: query.since.is_none(),
            }),
            correlation_id,
        },
        RequestKind::Acknowledge(deliveries) => Reply::MessageAck {
            last: deliveries.len() as u64,
        },
        RequestKind::AuthRefresh(token) => return refreshed(&token, correlation_id),
        RequestKind::Call(call) => Reply::CallRequest {
            call,
            correlation_id: correlation_id.expect("a call has one"),
        },
        RequestKind::CallResponse(result) => Reply::CallResponse {
            result,
            correlation_id: correlation_id.expect("a call has one"),
        },
    };
    vec![reply]
}

fn subscribed(subscription: Subscription, correlation_id: Option<String>) -> Reply {
    let topics = subscription.topics;
    assert!((1..=TOPICS_PER_REQUEST_MAX).contains(&topics.len()));
    assert!(topics.iter().all(|topic| !topic.is_empty()));
    let recovery = subscription
        .recovery
        .into_iter()
        .map(|position| TopicRecovery {
            topic: position.topic,
            epoch: position.epoch,
            offset: position.offset,
            recovered: subscription.recover,
            count: 0,
        });
    let (success_topics, failed_topics) = match subscription.action {
        Action::Subscribe => (topics, Vec::new()),
        Action::Unsubscribe => (Vec::new(), topics),
    };
    let failures = failed_topics.iter().map(|topic| TopicFailure {
        topic: topic.clone(),
        code: ErrorCode::TopicForbidden.as_str().to_owned(),
        message: "no".to_owned(),
    });
    Reply::SubscriptionUpdate {
        action: subscription.action,
        success_topics,
        failures: failures.collect(),
        failed_topics,
        recovery: recovery.collect(),
        correlation_id,
    }
}

/// A server warns of what it has just taken.
fn refreshed(token: &Token, correlation_id: Option<String>) -> Vec<Reply> {
    let expires_in_ms = token.0.len() as u64;
    assert!((1..=TOKEN_BYTES_MAX as u64).contains(&expires_in_ms));
    let ends_in_ms = expires_in_ms + 1;
    let warning = Reply::AuthExpiryWarning {
        expires_in_ms,
        ends_in_ms,
    };
    let response = Reply::AuthRefreshResponse {
        expires_in_ms,
        ends_in_ms: (expires_in_ms % 2 == 0).then_some(ends_in_ms),
        correlation_id,
    };
    vec![warning, response]
}

fn presence(topic: String) -> TopicPresence {
    TopicPresence {
        topic,
        users: 1,
        connections: 1,
        truncated: false,
        members: Some(vec![PresenceMember {
            user: "u\"".to_owned(),
            connections: 1,
            data: Some("{}".to_owned()),
        }]),
    }
}

/// Messages whose payload is kept as it came, white space and all.
fn is_call(event: &SystemEvent) -> bool {
    let SystemEvent::Request(request) = event else {
        return false;
    };
    matches!(
        request.kind,
        RequestKind::Call(_) | RequestKind::CallResponse(_)
    )
}

/// A message as its receiver sees it, without the prefix of its format.
fn content(op_code: OpCode, message: &[u8]) -> &[u8] {
    match op_code {
        OpCode::Text => message,
        _ => message
            .strip_prefix(b"M:")
            .expect("the prefix of MessagePack"),
    }
}

/// More say little new and cost much time.
const MESSAGES_MAX: usize = 50;

const SEPARATOR: &[u8] = &[0xff, 0xff];

/// Whether it is a point of the curve is not for the session to know.
const OFFER: KeyOffer = KeyOffer {
    public_key: [4; PUBLIC_KEY_BYTES],
    version: EncryptionVersion::Two,
};

const ID: Uuid = Uuid([7; 16]);
