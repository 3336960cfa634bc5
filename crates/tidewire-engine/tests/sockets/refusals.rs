//! Each refusal names the message that it refuses by its `cid`, wherever that stands and whatever else is wrong with it.

use crate::common;

use common::topics::open_topics;
use common::{CheckedEcho, Client, SECRET, config, connect_v1, start, wait_until};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tidewire_engine::{
    Application, Config, Context, Encoding, Encryption, Limits, Message, ProducerConfig,
    SignatureKey, Signing,
};
use tidewire_wire::format::{deflate, json_to_msgpack, msgpack_to_json};

/// Keeps the payloads of the messages that it gets, as JSON.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<String>>>);

impl Application for Keeper {
    fn on_message(&mut self, _: &mut Context<'_>, message: Message<'_>) {
        let mut text = Vec::new();
        match message.encoding {
            Encoding::MessagePack => msgpack_to_json(message.bytes, &mut text).expect("checked"),
            _ => text.extend_from_slice(message.bytes),
        }
        let text = String::from_utf8(text).expect("checked");
        let envelope: Value = serde_json::from_str(&text).expect("checked");
        let payload = envelope
            .get("p")
            .map_or("none".to_owned(), Value::to_string);
        self.0
            .lock()
            .expect("no test panicked with it")
            .push(payload);
    }
}

impl Keeper {
    fn payloads(&self) -> Vec<String> {
        self.0.lock().expect("no test panicked with it").clone()
    }
}

/// Errors without end, so that a connection lasts for all of a test.
fn patient(config: Config) -> Config {
    Config {
        limits: Limits {
            errors_max: 0,
            ..config.limits
        },
        ..config
    }
}

#[track_caller]
fn assert_refused(client: &mut Client, code: &str, shown: &str) {
    let answer = client.next_json();
    let shown: String = shown.chars().take(120).collect();
    assert_eq!(answer["t"], "error", "{shown}: {answer}");
    assert_eq!(answer["p"]["code"], code, "{shown}: {answer}");
    assert_eq!(answer["cid"], "the one", "{shown}: {answer}");
}

/// Payloads that some reader could not read, as JSON text.
fn unreadable() -> Vec<String> {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let mut payloads: Vec<String> = [
        r#""half \ud83d""#,
        r#"{"\ude00":1}"#,
        r#"["\ud83d\u0041"]"#,
        "NaN",
        "[Infinity]",
        "1e999",
        "01",
        "+1",
        "1.",
        "[1,]",
        r#"{"a":1,}"#,
        r#"{"a" 1}"#,
        "[}",
        "tru",
        "\"\n\"",
        r#""\x""#,
    ]
    .map(str::to_owned)
    .into();
    payloads.push(nested(61));
    payloads.push(nested(100_000));
    payloads
}

/// Each place of an application's payload in a message of a client, before and after the `cid`.
fn messages(payload: &str) -> Vec<String> {
    let inside = |t: &str, fields: &str| {
        format!(r#"{{"t":"{t}","p":{{{fields},"payload":{payload}}},"cid":"the one"}}"#)
    };
    vec![
        format!(r#"{{"t":"note","p":{payload},"cid":"the one"}}"#),
        format!(r#"{{"cid":"the one","p":{payload},"type":"note"}}"#),
        format!(r#"U{{ "cid" : "the one" , "t":"note","payload":{payload}}}"#),
        inside("publish_request", r#""topic":"a","type":"note""#),
        inside("call_request", r#""type":"note""#),
        inside("call_response", r#""x":1"#),
        format!(
            r#"{{"t":"subscription_update","p":{{"action":"subscribe","topics":["a"],"presence":{{"a":{payload}}}}},"cid":"the one"}}"#
        ),
    ]
}

#[test]
fn what_some_reader_cannot_read_is_refused_by_its_name() {
    let keeper = Keeper::default();
    let server = start(patient(open_topics()), keeper.clone());
    let mut client = connect_v1(&server);
    for payload in unreadable() {
        for message in messages(&payload) {
            client.send_text(&message);
            assert_refused(&mut client, "INVALID_MESSAGE", &message);
            let mut compressed = b"C:".to_vec();
            deflate(message.as_bytes(), 1, &mut compressed);
            client.send_binary(&compressed);
            assert_refused(&mut client, "INVALID_MESSAGE", &message);
        }
    }
    client.send_binary(b"{\"t\":\"note\",\"p\":\"\xff\",\"cid\":\"the one\"}");
    assert_refused(&mut client, "INVALID_MESSAGE", "a text that is not UTF-8");
    assert!(keeper.payloads().is_empty());
    // The session goes on, and what is right arrives as it was sent.
    for payload in ["null", "{}", "1.10", r#""\ud83d\ude00""#] {
        client.send_text(&format!(r#"{{"t":"note","p":{payload}}}"#));
    }
    client.send_text(r#"{"t":"note"}"#);
    wait_until("all have arrived", || keeper.payloads().len() == 5);
    assert_eq!(keeper.payloads()[0], "null");
    assert_eq!(keeper.payloads()[4], "none");
}

#[test]
fn what_some_reader_cannot_read_in_messagepack_is_refused_by_its_name() {
    let keeper = Keeper::default();
    let server = start(patient(open_topics()), keeper.clone());
    let mut client = connect_v1(&server);
    let mut deep = vec![0x91; 64];
    deep.push(0);
    let infinite = [&b"\xcb"[..], &f64::INFINITY.to_be_bytes()].concat();
    let nan = [&b"\x91\xca"[..], &f32::NAN.to_be_bytes()].concat();
    for payload in [
        &b"\xa1\xff"[..],
        b"\xa3\xed\xa0\xbd",
        b"\x81\xc0\xc0",
        b"\xd4\x05\x00",
        b"\xc1",
        &deep,
        &infinite,
        &nan,
    ] {
        let note = [b"M:\x83\xa1t\xa4note\xa1p", payload, b"\xa3cid\xa7the one"].concat();
        let publish = [
            b"M:\x83\xa1t\xafpublish_request\xa1p\x83\xa5topic\xa1a\xa4type\xa1b\xa7payload",
            payload,
            b"\xa3cid\xa7the one",
        ]
        .concat();
        for message in [note, publish] {
            client.send_binary(&message);
            assert_refused(&mut client, "INVALID_MESSAGE", &format!("{message:x?}"));
        }
    }
    assert!(keeper.payloads().is_empty());
}

/// Messages that a server refuses for what they say, each with its code.
fn refused_messages() -> Vec<(Value, &'static str)> {
    let large = "x".repeat(2048);
    let publish = "publish_request";
    [
        ("INVALID_MESSAGE", "server_hello", json!({})),
        ("INVALID_MESSAGE", "message_ack", json!({})),
        ("INVALID_MESSAGE", "", json!({})),
        ("INVALID_MESSAGE", "batch", json!(1)),
        ("INVALID_MESSAGE", "batch", json!({"messages": [1]})),
        ("INVALID_MESSAGE", "key_update", json!({})),
        ("INVALID_MESSAGE", "client_hello", json!(1)),
        ("INVALID_MESSAGE", "auth_refresh", json!({})),
        ("INVALID_ACTION", "auth_refresh", json!({"token": "x"})),
        ("INVALID_ACTION", "sync_request", json!({})),
        ("INVALID_MESSAGE", "publication_ack", json!({})),
        ("NOT_FOUND", "history_request", json!({"topic": "a"})),
        (
            "INVALID_SUBSCRIPTION",
            "presence_request",
            json!({"topics": []}),
        ),
        (
            "INVALID_ACTION",
            "subscription_update",
            json!({"action": "x"}),
        ),
        (
            "INVALID_MESSAGE",
            publish,
            json!({"topic": "a", "type": "server_hello"}),
        ),
        (
            "INVALID_MESSAGE",
            publish,
            json!({"topic": "a..b", "type": "b"}),
        ),
        (
            "MESSAGE_TOO_LARGE",
            publish,
            json!({"topic": "a", "type": "b", "payload": large}),
        ),
        ("INVALID_MESSAGE", publish, json!({"type": "b"})),
    ]
    .into_iter()
    .map(|(code, t, p)| (json!({"t": t, "p": p, "cid": "the one"}), code))
    .chain([
        (json!({"t": 1, "cid": "the one"}), "INVALID_MESSAGE"),
        (json!({"p": 1, "cid": "the one"}), "INVALID_MESSAGE"),
        (
            json!({"t": "health_check", "seq": -1, "cid": "the one"}),
            "INVALID_MESSAGE",
        ),
    ])
    .collect()
}

#[test]
fn whatever_the_server_refuses_has_its_name() {
    let mut config = open_topics();
    config.topics.limits.payload_bytes_max = 1024;
    let server = start(patient(config), CheckedEcho);
    let mut client = connect_v1(&server);
    for (message, code) in refused_messages() {
        for packs in [false, true] {
            if packs {
                let mut packed = b"M:".to_vec();
                json_to_msgpack(message.to_string().as_bytes(), &mut packed).expect("JSON");
                client.send_binary(&packed);
            } else {
                client.send_text(&message.to_string());
            }
            assert_refused(&mut client, code, &message.to_string());
        }
    }
    // A message of a batch is refused alone.
    let good = json!({"t": "note", "p": 1});
    let bad = json!({"t": "note", "p": 0, "cid": "the one"}).to_string();
    let bad = bad.replace("\"p\":0", r#""p":"\ud83d""#);
    client.send_text(&format!(
        r#"{{"t":"batch","p":{{"messages":[{good},{bad},{{"x":1,"cid":"the one"}},{good}]}}}}"#
    ));
    assert_eq!(client.next_json()["t"], "note");
    assert_refused(&mut client, "INVALID_MESSAGE", &bad);
    assert_refused(&mut client, "INVALID_MESSAGE", "no type");
    assert_eq!(client.next_json()["t"], "note");
}

#[test]
fn a_plain_message_where_encryption_is_required_is_refused_by_its_name() {
    let server = start(
        Config {
            encryption: Encryption::Required,
            ..config()
        },
        CheckedEcho,
    );
    let mut client = connect_v1(&server);
    client.send_text(r#"{"t":"note","p":1,"cid":"the one"}"#);
    assert_refused(&mut client, "ENCRYPTION_REQUIRED", "a plain message");
}

#[test]
fn a_message_without_its_signature_is_refused_by_its_name() {
    let server = start(
        Config {
            signing: Some(Signing::new(SignatureKey::Hmac(SECRET.to_vec()), true)),
            ..config()
        },
        CheckedEcho,
    );
    let mut client = connect_v1(&server);
    client.send_text(r#"{"t":"note","p":1,"cid":"the one"}"#);
    assert_refused(&mut client, "INVALID_MESSAGE", "no signature");
}

#[test]
fn gaps_and_other_producers_are_told_by_name() {
    let server = start(patient(open_topics()), CheckedEcho);
    let hello = json!({"t": "client_hello", "p": {"producer": {"id": "p"}}});
    let mut client = connect_v1(&server);
    assert_eq!(client.ask(&hello)["t"], "server_hello");
    let numbered = |n: u64, cid: &str| {
        let p = json!({"topic": "a", "type": "b"});
        json!({"t": "publish_request", "n": n, "p": p, "cid": cid})
    };
    let next_error = |client: &mut Client| loop {
        let answer = client.next_json();
        if answer["t"] == "error" {
            return answer;
        }
        assert_eq!(answer["t"], "message_ack", "{answer}");
    };
    client.send_text(&numbered(5, "the one").to_string());
    let gap = next_error(&mut client);
    assert_eq!(gap["p"]["code"], "MESSAGE_GAP");
    assert_eq!(
        (&gap["cid"], &gap["p"]["refused"], &gap["p"]["cids"]),
        (&json!("the one"), &json!(1), &json!(["the one"]))
    );
    let several = json!({"t": "batch", "p": {"messages": [
        numbered(5, "a"), {"t": "note", "n": 6}, numbered(7, "b"),
    ]}});
    client.send_text(&several.to_string());
    let gap = next_error(&mut client);
    assert_eq!(
        (&gap["cid"], &gap["p"]["refused"], &gap["p"]["cids"]),
        (&Value::Null, &json!(3), &json!(["a", "b"]))
    );
    // What is wrong with a number is told, and so is what was wrong with a message that comes again.
    client.send_text(&numbered(0, "the one").to_string());
    assert_eq!(next_error(&mut client)["cid"], "the one");
    for _ in 0..2 {
        client.send_text(
            r#"{"t":"publish_request","n":1,"p":{"topic":"a","type":"b","payload":NaN},"cid":"the one"}"#,
        );
        let refused = next_error(&mut client);
        assert_eq!(
            (&refused["cid"], &refused["p"]["code"]),
            (&json!("the one"), &json!("INVALID_MESSAGE"))
        );
    }
    let mut other = connect_v1(&server);
    assert_eq!(other.ask(&hello)["t"], "server_hello");
    client.send_text(&numbered(2, "the one").to_string());
    let ended = next_error(&mut client);
    assert_eq!(
        (&ended["cid"], &ended["p"]["code"]),
        (&json!("the one"), &json!("PRODUCER_SUPERSEDED"))
    );
}

#[test]
fn the_rate_limit_names_what_it_has_refused() {
    let limited = Config {
        limits: Limits {
            rate_limit_capacity: 3,
            rate_limit_refill_per_s: 1,
            ..Limits::default()
        },
        producers: ProducerConfig::default(),
        ..open_topics()
    };
    let server = start(limited, Keeper::default());
    let mut client = connect_v1(&server);
    let calls = |from: u32| -> String {
        let call =
            |number| json!({"t": "call_request", "cid": format!("c{number}"), "p": {"type": "x"}});
        (from..from + 60)
            .map(|number| call(number).to_string())
            .collect::<Vec<_>>()
            .join("\n")
    };
    for call in calls(0).lines() {
        client.send_text(call);
    }
    let (mut refused, mut named) = (0, Vec::new());
    while refused < 50 {
        let answer = client.next_json();
        if answer["p"]["code"] != "RATE_LIMITED" {
            continue;
        }
        refused += answer["p"]["refused"].as_u64().expect("a number");
        assert_eq!(
            answer["cid"],
            Value::Null,
            "older clients would take it for all that was refused"
        );
        let ids = answer["p"]["cids"].as_array().expect("names");
        assert!((1..=32).contains(&ids.len()), "{answer}");
        named.extend(ids.iter().cloned());
    }
    assert!(
        named.len() > 1
            && named
                .iter()
                .all(|id| id.as_str().is_some_and(|id| id.starts_with('c')))
    );
}
