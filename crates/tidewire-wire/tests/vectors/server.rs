//! Dialogues of a server's session.

use super::json_of;
use super::said;
use serde_json::{Value, json};
use tidewire_testkit::vectors::dialogue::{self, Case, Say, Step};
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{
    Envelope, Kind, Priority, accept_json, accept_msgpack, parse_json, parse_msgpack,
};
use tidewire_wire::format::Format;
use tidewire_wire::session::{
    Action, Features, Now, Overload, ProducerState, PublishRequest, Refused, Reply, Request,
    RequestKind, ServerProfile, ServerSession, SystemEvent, TopicFailure, TopicRecovery,
};
use tidewire_wire::uuid::Uuid;

pub(crate) const NOW: Now = Now {
    monotonic_ms: 1000,
    unix_ms: 1_732_212_345_678,
};
const TS: &str = "2024-11-21T18:05:45.678Z";

pub(crate) fn run(case: &Case) {
    let profile = ServerProfile {
        server_version: "test/1".to_owned(),
        features: features(case.features.expect("a server's features")),
        ..ServerProfile::default()
    };
    for format in [Format::Json, Format::MessagePack] {
        let mut session = ServerSession::new(format, false, NOW);
        for (index, step) in case.steps.iter().enumerate() {
            let name = format!("{}, step {index}, {format:?}", case.name);
            take_step(&name, &profile, &mut session, format, step);
        }
    }
}

fn take_step(
    name: &str,
    profile: &ServerProfile,
    session: &mut ServerSession,
    format: Format,
    step: &Step,
) {
    let event = match (&step.receive, &step.say) {
        (Some(received), None) => {
            let bytes = content(format, received);
            let kind = match format {
                Format::Json => accept_json(bytes),
                Format::MessagePack => accept_msgpack(bytes),
            };
            let Ok(Kind::System(system)) = kind else {
                panic!("{name}: {kind:?}")
            };
            session.handle_system(profile, system, format, bytes)
        }
        (None, Some(say)) => SystemEvent::Reply(reply(say)),
        _ => panic!("{name}: either receive or say"),
    };
    let Some(reply) = check_event(name, event, format, step) else {
        return;
    };
    let mut out = Vec::new();
    let message_id = id("0193501a-6a5e-7000-8000-0000000000f1");
    session.encode(profile, &reply, message_id, NOW, &mut out);
    check_reply(name, format, &out, step);
}

/// The expected answer, if the event calls for one.
fn check_event(name: &str, event: SystemEvent, format: Format, step: &Step) -> Option<Reply> {
    match event {
        SystemEvent::Reply(reply) => return Some(reply),
        SystemEvent::Hello {
            correlation_id,
            producer,
        } => {
            let producer = producer.map(|producer| ProducerState {
                id: producer.id,
                epoch: 0x0bad_cafe,
                last: 0,
            });
            return Some(Reply::Hello {
                correlation_id,
                encryption: None,
                producer,
            });
        }
        SystemEvent::Publish => {
            let bytes = content(format, step.receive.as_ref().expect("what was received"));
            match PublishRequest::parse(format, bytes, &mut Vec::new()) {
                Ok((request, correlation_id)) => {
                    let described = describe_publish(&request, correlation_id.as_deref());
                    assert_eq!(Some(described), step.request, "{name}");
                }
                Err(refusal) => return Some(refusal.into()),
            }
        }
        SystemEvent::Ignore => assert!(step.ignored, "{name}"),
        SystemEvent::Request(request) => {
            assert_eq!(Some(describe(request)), step.request, "{name}");
        }
        SystemEvent::Batch(messages) => {
            let parsed = |message: Vec<u8>| json_of(format, &message);
            let messages: Vec<Value> = messages.into_iter().map(parsed).collect();
            assert_eq!(Some(messages), step.batch, "{name}");
        }
        SystemEvent::KeyExchange {
            offer,
            correlation_id,
            producer,
        } => {
            let expected = step
                .key_exchange
                .as_ref()
                .unwrap_or_else(|| panic!("{name}"));
            assert_eq!(offer.public_key[..], expected.public_key[..], "{name}");
            assert_eq!(offer.version.number(), expected.version, "{name}");
            assert_eq!(correlation_id, expected.cid, "{name}");
            let id = producer.map(|producer| producer.id);
            assert_eq!(id, expected.producer, "{name}");
        }
        SystemEvent::KeyUpdate { request } => {
            assert_eq!(
                step.key_update.map(|update| update.request),
                Some(request),
                "{name}"
            );
        }
    }
    None
}

/// Compares a message of either side with the message or the error that the step expects.
pub(crate) fn check_reply(name: &str, format: Format, message: &[u8], step: &Step) {
    let is_greeting = matches!(&step.reply, Some(reply) if reply.t == "server_ready");
    let format = if is_greeting { Format::Json } else { format };
    let envelope = read(name, format, message);
    let category = envelope.category.map(|category| category.as_str());
    assert_eq!(category, Some("WSE"), "{name}");
    assert_eq!(envelope.version, Some(1), "{name}");
    assert_eq!(
        envelope.id.as_deref(),
        Some("0193501a-6a5e-7000-8000-0000000000f1"),
        "{name}"
    );
    assert_eq!(envelope.ts.as_deref(), Some(TS), "{name}");
    assert!(envelope.seq.is_some_and(|seq| seq > 0), "{name}");
    match (&step.reply, &step.error) {
        (Some(expected), None) => {
            assert_eq!(envelope.t, expected.t, "{name}");
            assert_eq!(envelope.payload, expected.p, "{name}");
            assert_eq!(envelope.correlation_id, expected.cid, "{name}");
            assert_eq!(envelope.number, expected.n, "{name}");
            assert!(
                expected.seq.is_none() || envelope.seq == expected.seq,
                "{name}"
            );
        }
        (None, Some(expected)) => check_error(name, &envelope, expected),
        _ => panic!("{name}: said {envelope:?}"),
    }
}

fn check_error(name: &str, envelope: &Envelope, expected: &dialogue::Error) {
    assert_eq!(envelope.t, "error", "{name}");
    let mut fields = json!({
        "code": expected.code,
        "recoverable": expected.recoverable,
        "retry_after": expected.retry_after,
    });
    if let Some(refused) = expected.refused {
        fields["refused"] = refused.into();
    }
    let mut found = envelope.payload.clone();
    let message = found
        .as_object_mut()
        .and_then(|found| found.remove("message"));
    let is_said = message
        .as_ref()
        .and_then(Value::as_str)
        .is_some_and(|text| !text.is_empty());
    assert!(is_said, "{name}: {message:?}");
    assert_eq!(found, fields, "{name}");
    assert_eq!(envelope.correlation_id, expected.cid, "{name}");
}

fn read(name: &str, format: Format, message: &[u8]) -> Envelope {
    let envelope = match format {
        Format::Json => parse_json(message),
        Format::MessagePack => parse_msgpack(message.strip_prefix(b"M:").expect("the prefix")),
    };
    envelope.unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn content(format: Format, received: &dialogue::Received) -> &[u8] {
    match format {
        Format::Json => received.json.as_bytes(),
        Format::MessagePack => &received.msgpack,
    }
}

pub(crate) fn features(features: dialogue::Features) -> Features {
    Features {
        compression: features.compression,
        encryption: features.encryption,
        batching: features.batching,
        priority_queue: features.priority_queue,
        circuit_breaker: features.circuit_breaker,
        recovery: features.recovery,
        topics: features.topics,
        presence: features.presence,
        calls: features.calls,
        history: features.history,
        server_subscriptions: features.server_subscriptions,
        binary: features.binary,
        broker_updates: features.broker_updates,
    }
}

pub(crate) fn id(text: &str) -> Uuid {
    Uuid::parse(text).expect("a UUID")
}

/// The value that a text says, if there is one.
fn tree(text: Option<&str>) -> Option<Value> {
    text.map(|text| serde_json::from_str(text).expect("JSON"))
}

fn describe(request: Request) -> Value {
    let mut described = match request.kind {
        RequestKind::HealthCheck => json!({"kind": "health_check"}),
        RequestKind::MetricsRequest => json!({"kind": "metrics_request"}),
        RequestKind::ConfigUpdate => json!({"kind": "config_update"}),
        RequestKind::Subscription(subscription) => {
            let position = |position: &tidewire_wire::session::RecoveryPosition| json!({"topic": position.topic, "epoch": position.epoch, "offset": position.offset});
            let mut described = json!({
                "kind": "subscription",
                "action": subscription.action.as_str(),
                "topics": subscription.topics,
                "presence": tree(subscription.presence.as_deref()),
                "recover": subscription.recover,
                "recovery": subscription.recovery.iter().map(position).collect::<Vec<_>>(),
                "queue_group": subscription.queue_group,
                "filter": tree(subscription.filter.as_deref()),
                "overload": subscription.overload.map(Overload::as_str),
                "acknowledge": subscription.acknowledge,
                "window": subscription.window,
            });
            if !subscription.tokens.is_empty() {
                let tokens = subscription.tokens.iter();
                let tokens = tokens.map(|(topic, token)| (topic.clone(), token.0.clone().into()));
                described["tokens"] = Value::Object(tokens.collect());
            }
            if subscription.replay > 0 {
                described["replay"] = subscription.replay.into();
            }
            described
        }
        RequestKind::Sync(sync) => json!({
            "kind": "sync",
            "topics": sync.topics,
            "include_snapshots": sync.include_snapshots,
            "last_sequence": sync.last_sequence,
        }),
        RequestKind::Presence(query) => json!({
            "kind": "presence",
            "topics": query.topics,
            "counts_only": query.counts_only,
            "limit": query.limit,
        }),
        RequestKind::History(query) => json!({
            "kind": "history",
            "topic": query.topic,
            "since": query.since.map(|since| json!({"epoch": since.epoch, "offset": since.offset})),
            "limit": query.limit,
            "order": if query.newest_first { "newest" } else { "oldest" },
        }),
        RequestKind::Acknowledge(deliveries) => {
            json!({"kind": "acknowledge", "deliveries": deliveries})
        }
        RequestKind::AuthRefresh(token) => json!({"kind": "auth_refresh", "token": token.0}),
        RequestKind::Call(call) => of_kind("call", said::describe_call(&call)),
        RequestKind::CallResponse(result) => {
            of_kind("call_response", said::describe_result(&result))
        }
    };
    if let Some(correlation_id) = request.correlation_id {
        described["cid"] = correlation_id.into();
    }
    described
}

fn of_kind(kind: &str, mut described: Value) -> Value {
    described["kind"] = kind.into();
    described
}

fn describe_publish(request: &PublishRequest<'_>, correlation_id: Option<&str>) -> Value {
    let payload: Value = serde_json::from_slice(&request.payload).expect("a payload that is JSON");
    let mut described = json!({
        "kind": "publish",
        "topic": request.topic,
        "type": request.t,
        "payload": payload,
        "category": request.category.as_str(),
        "priority": request.priority.map(Priority::number),
        "id": request.id,
        "key": request.key,
        "ttl_ms": request.ttl_ms,
        "exclude_self": request.exclude_self,
    });
    if let Some(correlation_id) = correlation_id {
        described["cid"] = correlation_id.into();
    }
    described
}

fn reply(say: &Say) -> Reply {
    match say.clone() {
        Say::Ready { user_id } => Reply::Ready {
            connection_id: id("0193501a-6a5e-7000-8000-0000000000c1"),
            user_id,
        },
        Say::Ping(_) => Reply::Ping,
        Say::KeyUpdate(update) => Reply::KeyUpdate {
            request: update.request,
        },
        Say::Error {
            code,
            retry_after,
            refused,
            cids,
            cid,
        } => Reply::Error {
            code: ErrorCode::parse(&code).expect("a code"),
            message: "in words".into(),
            retry_after_s: retry_after,
            refused: refused.map(|count| Refused {
                count,
                correlation_ids: cids,
            }),
            correlation_id: cid,
        },
        Say::RateLimitWarning {
            current_rate,
            limit,
            remaining,
            retry_after,
        } => Reply::RateLimitWarning {
            current_rate,
            limit,
            remaining,
            retry_after_s: retry_after,
        },
        Say::ConfigResponse(answer) => Reply::ConfigResponse {
            payload: answer.payload,
            correlation_id: answer.cid,
        },
        Say::HealthCheckResponse(answer) => Reply::HealthCheckResponse {
            payload: answer.payload,
            correlation_id: answer.cid,
        },
        Say::MetricsResponse(answer) => Reply::MetricsResponse {
            payload: answer.payload,
            correlation_id: answer.cid,
        },
        subscription @ Say::SubscriptionUpdate { .. } => subscription_update(subscription),
        other => said::reply(other),
    }
}

fn subscription_update(say: Say) -> Reply {
    let Say::SubscriptionUpdate {
        action,
        success_topics,
        failed_topics,
        failures,
        recovery,
        cid,
    } = say
    else {
        panic!("no subscription_update: {say:?}")
    };
    let topic = |topic: dialogue::TopicRecovery| TopicRecovery {
        topic: topic.topic,
        epoch: topic.epoch,
        offset: topic.offset,
        recovered: topic.recovered,
        count: topic.count,
    };
    let failure = |failure: dialogue::TopicFailure| TopicFailure {
        topic: failure.topic,
        code: failure.code,
        message: failure.message,
    };
    Reply::SubscriptionUpdate {
        action: match action.as_str() {
            "subscribe" => Action::Subscribe,
            "unsubscribe" => Action::Unsubscribe,
            other => panic!("no action: {other}"),
        },
        success_topics,
        failed_topics,
        failures: failures.into_iter().map(failure).collect(),
        recovery: recovery.into_iter().map(topic).collect(),
        correlation_id: cid,
    }
}
