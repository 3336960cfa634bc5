//! Dialogues of a client's session.

use super::server::{NOW, check_reply, content, features, id};
use super::{json_of, reason, said};
use serde_json::{Value, json};
use std::fmt::Write as _;
use tidewire_testkit::vectors::dialogue::{Case, Key, NamedProducer, Say, Step};
use tidewire_wire::format::Format;
use tidewire_wire::session::{
    ClientEvent, ClientHello, ClientSession, EncryptionVersion, HelloEncryption, HelloProducer,
    KeyOffer, ProducerAttempt,
};

pub(crate) fn run(case: &Case) {
    for format in [Format::Json, Format::MessagePack] {
        let mut session = ClientSession::new(format, NOW);
        for (index, step) in case.steps.iter().enumerate() {
            let name = format!("{}, step {index}, {format:?}", case.name);
            take_step(&name, &mut session, format, step);
        }
    }
}

fn take_step(name: &str, session: &mut ClientSession, format: Format, step: &Step) {
    match (&step.receive, &step.say) {
        (Some(received), None) => {
            match session.handle_message(format, content(format, received), NOW) {
                Ok(event) => assert_eq!(Some(describe(format, event)), step.event, "{name}"),
                Err(error) => {
                    assert_eq!(Some(reason(&error)), step.refused.as_deref(), "{name}");
                }
            }
        }
        (None, Some(say)) => {
            let mut out = Vec::new();
            write(name, session, say, &mut out);
            check_reply(name, format, &out, step);
        }
        _ => panic!("{name}: either receive or say"),
    }
}

fn hello_producer(named: &NamedProducer) -> HelloProducer {
    let number = named.attempt.unwrap_or_default();
    let instance = named.instance.as_deref();
    HelloProducer {
        id: named.id.clone(),
        attempt: instance.map(|instance| ProducerAttempt {
            instance: u64::from_str_radix(instance, 16).expect("hex digits"),
            number,
        }),
    }
}

fn write(name: &str, session: &mut ClientSession, say: &Say, out: &mut Vec<u8>) {
    let id = id("0193501a-6a5e-7000-8000-0000000000f1");
    match say {
        Say::Hello {
            client_version,
            features: offered,
            encryption,
            producer,
        } => {
            let producer = producer.as_ref().map(hello_producer);
            // The feature follows the key, whatever is asked for.
            let hello = ClientHello {
                client_version,
                features: features(*offered),
                encryption: encryption.as_ref().map(key_offer),
                producer: producer.as_ref(),
            };
            session.write_hello(&hello, id, NOW, out);
        }
        Say::Ping(_) => {
            session.write_ping(id, NOW, out);
        }
        Say::Pong { server_timestamp } => {
            session.write_pong(*server_timestamp, id, NOW, out);
        }
        Say::KeyUpdate(update) => {
            session.write_key_update(update.request, id, NOW, out);
        }
        other => said::write(name, session, other, out),
    }
}

fn key_offer(key: &Key) -> KeyOffer {
    KeyOffer {
        public_key: key.public_key[..].try_into().expect("65 bytes"),
        version: match key.version {
            1 => EncryptionVersion::One,
            2 => EncryptionVersion::Two,
            other => panic!("no version: {other}"),
        },
    }
}

fn describe(encoding: Format, event: ClientEvent) -> Value {
    if let Some(described) = said::describe(&event) {
        return described;
    }
    match event {
        ClientEvent::Ready {
            connection_id,
            server_version,
            user_id,
        } => json!({"ready": {
            "connection_id": connection_id, "server_version": server_version, "user_id": user_id,
        }}),
        established @ ClientEvent::Established { .. } => describe_hello(established),
        ClientEvent::Pong {
            client_timestamp_ms,
            server_timestamp_ms,
            latency_ms,
        } => json!({"pong": {
            "client_timestamp_ms": client_timestamp_ms,
            "server_timestamp_ms": server_timestamp_ms,
            "latency_ms": latency_ms,
        }}),
        ClientEvent::ServerPing { timestamp_ms } => {
            json!({"server_ping": {"timestamp_ms": timestamp_ms}})
        }
        ClientEvent::Error {
            code,
            known,
            message,
            recoverable,
            retry_after_s,
            refused,
            refused_ids,
        } => {
            let mut described = json!({"error": {
                "code": code,
                "known": known.is_some(),
                "message": message,
                "recoverable": recoverable,
                "retry_after_s": retry_after_s,
                "refused": refused,
            }});
            if !refused_ids.is_empty() {
                described["error"]["cids"] = refused_ids.into();
            }
            described
        }
        ClientEvent::KeyUpdate { request } => json!({"key_update": {"request": request}}),
        ClientEvent::Batch(messages) => {
            let parsed = |message: Vec<u8>| json_of(encoding, &message);
            json!({"batch": messages.into_iter().map(parsed).collect::<Vec<Value>>()})
        }
        ClientEvent::System(system, envelope) => {
            let mut described = json!({"type": system.as_str(), "p": envelope.payload});
            if let Some(correlation_id) = envelope.correlation_id {
                described["cid"] = correlation_id.into();
            }
            json!({"system": described})
        }
        ClientEvent::Application => json!({"application": true}),
        other => panic!("not described: {other:?}"),
    }
}

fn describe_hello(event: ClientEvent) -> Value {
    let ClientEvent::Established {
        server_version,
        protocol_version,
        connection_id,
        message_bytes_max,
        rate_limit_capacity,
        rate_limit_refill_per_s,
        ping_interval_ms,
        encryption,
        producer,
        ..
    } = event
    else {
        panic!("no hello: {event:?}")
    };
    json!({"established": {
        "server_version": server_version,
        "protocol_version": protocol_version,
        "connection_id": connection_id,
        "message_bytes_max": message_bytes_max,
        "rate_limit_capacity": rate_limit_capacity,
        "rate_limit_refill_per_s": rate_limit_refill_per_s,
        "ping_interval_ms": ping_interval_ms,
        "encryption": encryption.as_deref().map(describe_key),
        "producer": producer.map(|producer| json!({
            "id": producer.id, "epoch": format!("{:08x}", producer.epoch), "last": producer.last,
        })),
    }})
}

fn describe_key(encryption: &HelloEncryption) -> Value {
    let identity = encryption.identity.map(|identity| {
        json!({"public_key": hex(&identity.public_key), "signature": hex(&identity.signature)})
    });
    json!({
        "public_key": hex(&encryption.public_key),
        "version": encryption.version.number(),
        "identity": identity,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes every write");
        text
    })
}
