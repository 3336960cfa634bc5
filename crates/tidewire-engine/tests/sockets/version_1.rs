//! Messages of protocol version 1 against a real server.

use crate::common;

use common::{
    Client, Opening, Said, assert_messages_add_up, assert_settled, config, connect, connect_v1,
    raw_config, start, text_frame, wait_until,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tidewire_engine::apps::Echo;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{Application, Config, Context, Encoding, Message};
use tidewire_wire::close::CloseCode;
use tidewire_wire::format::{Deflater, deflate, json_to_msgpack, msgpack_to_json};

/// Keeps what it is given.
#[derive(Clone, Default)]
struct Keep(Arc<Mutex<Vec<Kept>>>);

type Kept = (Encoding, Vec<u8>);

impl Application for Keep {
    fn on_message(&mut self, _context: &mut Context<'_>, message: Message<'_>) {
        self.0
            .lock()
            .expect("no panic")
            .push((message.encoding, message.bytes.to_vec()));
    }
}

fn zlib(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    deflate(plain, 6, &mut out);
    out
}

fn msgpack(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    json_to_msgpack(value.to_string().as_bytes(), &mut out).expect("JSON");
    out
}

/// The next answer is an error with this code.
#[track_caller]
fn assert_error(client: &mut Client, code: &str) -> Value {
    let error = client.next_json();
    assert_eq!(
        (&error["t"], &error["p"]["code"]),
        (&json!("error"), &json!(code)),
        "{error}"
    );
    error
}

/// The session works still.
#[track_caller]
fn assert_alive(client: &mut Client) {
    assert_eq!(client.ask(&json!({"t": "ping"}))["t"], "PONG");
}

#[test]
fn every_inbound_form_reaches_the_application() {
    let keep = Keep::default();
    let server = start(config(), keep.clone());
    let mut client = connect_v1(&server);
    let message = json!({"t": "trade", "p": {"x": 1}});
    let text = message.to_string();
    let packed = msgpack(&message);
    let with = |prefix: &[u8], rest: &[u8]| [prefix, rest].concat();
    client.send_text(&text);
    client.send_text(&format!("U{text}"));
    client.send_binary(text.as_bytes());
    client.send_binary(&with(b"M:", &packed));
    client.send_binary(&with(b"C:", &zlib(text.as_bytes())));
    client.send_binary(&zlib(text.as_bytes()));
    client.send_binary(&with(b"C:", &zlib(&with(b"M:", &packed))));
    client.send_text(r#"{"type":"trade","payload":{"x":1}}"#);
    assert_alive(&mut client);
    let seen = keep.0.lock().unwrap();
    let json = (Encoding::Text, text.clone().into_bytes());
    let packed = (Encoding::MessagePack, packed);
    let older = (Encoding::Text, format!("U{text}").into_bytes());
    let expected = [&json, &older, &json, &packed, &json, &json, &packed]
        .map(Clone::clone)
        .to_vec();
    assert_eq!(seen[..7], expected);
    assert_eq!(seen.len(), 8);
}

#[test]
fn what_is_no_message_is_answered_and_the_session_goes_on() {
    let server = start(config(), Echo);
    let mut client = connect_v1(&server);
    let deep = format!("{{\"p\":{}{},\"t\":\"x\"}}", "[".repeat(65), "]".repeat(65));
    let texts = [
        "not JSON",
        "",
        "[]",
        "{}",
        r#"{"t":5}"#,
        r#"{"t":""}"#,
        r#"{"p":{}}"#,
        &deep,
    ];
    for text in texts {
        client.send_text(text);
        assert_eq!(
            assert_error(&mut client, "INVALID_MESSAGE")["p"]["recoverable"],
            true
        );
    }
    let twice = zlib(&zlib(br#"{"t":"x"}"#));
    let deep_packed = [&b"M:\x82\xa1p"[..], &[0x91; 65], b"\xc0\xa1t\xa1x"].concat();
    let binaries: [&[u8]; 8] = [
        b"",
        b"\xff\xfe",
        b"M:",
        b"M:\x81\xa1t",
        b"C:not zlib",
        &twice,
        b"E:0123456789abcdef0123456789abcdef",
        &deep_packed,
    ];
    for bytes in binaries {
        client.send_binary(bytes);
        assert_error(&mut client, "INVALID_MESSAGE");
    }
    // A message of the system that is broken behind its type.
    let too_deep = format!(
        "{{\"t\":\"health_check\",\"p\":{}{}}}",
        "[".repeat(65),
        "]".repeat(65)
    );
    client.send_text(&too_deep);
    assert_error(&mut client, "INVALID_MESSAGE");
    client.send_text(r#"{"t":"server_ready"}"#);
    assert_error(&mut client, "INVALID_MESSAGE");
    assert_alive(&mut client);
    drop(client);
    let counters = assert_settled(&server.handle());
    let invalid = (texts.len() + binaries.len()) as u64;
    assert_eq!(
        (
            counters.messages_refused_invalid,
            counters.system_messages_received
        ),
        (invalid, 3)
    );
}

#[test]
fn what_inflates_past_the_limit_is_refused() {
    let mut config = config();
    config.limits.message_bytes_max = 100_000;
    let server = start(config, Echo);
    let mut client = connect_v1(&server);
    let mut bomb = b"C:".to_vec();
    Deflater::new(9).deflate(&vec![b' '; 64 * 1024 * 1024], &mut bomb);
    assert!(bomb.len() < 100_000);
    for _ in 0..20 {
        client.send_binary(&bomb);
        assert_error(&mut client, "MESSAGE_TOO_LARGE");
    }
    assert_alive(&mut client);
    let counters = server.handle().counters();
    assert_eq!(
        (counters.messages_refused_size, counters.messages_delivered),
        (20, 0)
    );
    let fitting = format!("{{\"t\":\"x\",\"p\":\"{}\"}}", "y".repeat(90_000));
    client.send_binary(&zlib(fitting.as_bytes()));
    assert_eq!(client.next_text(), fitting);
}

#[test]
fn a_batch_is_its_messages() {
    let server = start(config(), Echo);
    let mut client = connect_v1(&server);
    let messages = json!([{"t": "a"}, {"t": "ping", "p": {"timestamp": 1}}, {"t": "b"}]);
    let batch = json!({"c": "WSE", "t": "batch", "p": {"messages": messages, "count": 3}});
    client.send_text(&batch.to_string());
    assert_eq!(client.next_text(), r#"{"t":"a"}"#);
    assert_eq!(client.next_json()["t"], "PONG");
    assert_eq!(client.next_text(), r#"{"t":"b"}"#);
    // Each message keeps the encoding of its batch.
    client.send_binary(&[b"M:".to_vec(), msgpack(&batch)].concat());
    let packed = |t: &str| Said::Binary([b"M:".to_vec(), msgpack(&json!({ "t": t }))].concat());
    assert_eq!(client.next(), packed("a"));
    assert_eq!(client.next_json()["t"], "PONG");
    assert_eq!(client.next(), packed("b"));
    client.send_text(r#"{"t":"batch","p":{"messages":[{"t":"batch","p":{"messages":[]}}]}}"#);
    assert_error(&mut client, "INVALID_MESSAGE");
    client.send_text(r#"{"t":"batch"}"#);
    assert_error(&mut client, "INVALID_MESSAGE");
    drop(client);
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.messages_received, counters.messages_delivered),
        (10, 4)
    );
    assert_eq!(counters.system_messages_received, 6);
}

#[test]
fn the_server_answers_what_it_is_asked() {
    let server = start(config(), Echo);
    let mut client = connect_v1(&server);
    let health = client.ask(&json!({"c": "WSE", "t": "health_check", "cid": "1"}));
    assert_eq!(
        (&health["t"], &health["cid"]),
        (&json!("health_check_response"), &json!("1"))
    );
    assert_eq!(
        (&health["p"]["status"], &health["p"]["connections"]),
        (&json!("healthy"), &json!(1))
    );
    let metrics = client.ask(&json!({"t": "metrics_request", "cid": "2"}));
    assert_eq!(
        (&metrics["t"], &metrics["cid"]),
        (&json!("metrics_response"), &json!("2"))
    );
    assert_eq!(metrics["p"]["connections"], 1);
    let settings =
        client.ask(&json!({"t": "config_update", "cid": "3", "p": {"compression": true}}));
    assert_eq!(
        (&settings["t"], &settings["cid"]),
        (&json!("config_response"), &json!("3"))
    );
    assert_eq!(settings["p"]["max_message_size"], 1024 * 1024);
    for t in ["subscription_update", "subscription"] {
        let p = json!({"action": "subscribe", "topics": ["a", "b"]});
        let update = client.ask(&json!({"t": t, "cid": "4", "p": p}));
        assert_eq!(
            (&update["t"], &update["cid"]),
            (&json!("subscription_update"), &json!("4"))
        );
        assert_eq!(update["p"]["failed_topics"], json!(["a", "b"]));
        assert_eq!(update["p"]["success_topics"], json!([]));
        assert_error(&mut client, "TOPIC_FORBIDDEN");
    }
    let cases = [
        (
            "subscription_update",
            json!({"action": "dance", "topics": ["a"]}),
            "INVALID_ACTION",
        ),
        (
            "subscription_update",
            json!({"action": "subscribe"}),
            "INVALID_SUBSCRIPTION",
        ),
        ("sync_request", json!({"topics": ["a"]}), "INVALID_ACTION"),
        ("health_check", json!(5), "INVALID_MESSAGE"),
    ];
    for (t, p, code) in cases {
        client.send_text(&json!({"c": "WSE", "t": t, "cid": "5", "p": p}).to_string());
        assert_eq!(assert_error(&mut client, code)["cid"], "5");
    }
    drop(client);
    assert_settled(&server.handle());
}

#[test]
fn a_peer_that_sends_too_fast_is_warned_and_then_refused() {
    let mut config = config();
    config.limits.rate_limit_capacity = 10;
    config.limits.rate_limit_refill_per_s = 1;
    let server = start(config, Echo);
    let mut client = connect_v1(&server);
    client.send_bytes(&text_frame(r#"{"t":"x"}"#).repeat(50));
    let handle = server.handle();
    wait_until("all received", || handle.counters().messages_received == 50);
    client.send_close(CloseCode::NORMAL);
    let (mut echoes, mut warnings, mut errors) = (0, 0, 0);
    while let Said::Text(text) = client.next() {
        let said: Value = serde_json::from_str(&text).unwrap();
        let p = &said["p"];
        match said["t"].as_str().unwrap() {
            "x" => echoes += 1,
            "rate_limit_warning" => {
                warnings += 1;
                assert_eq!((&p["limit"], &p["remaining"]), (&json!(10), &json!(1)));
                assert!(p["current_rate"].is_u64() && p["retry_after"].is_u64());
                // The message that brought the warning is taken, and then one more.
                assert_eq!(echoes, 8);
            }
            "error" => {
                errors += 1;
                assert_eq!(
                    (&p["code"], &p["recoverable"]),
                    (&json!("RATE_LIMITED"), &json!(true))
                );
                assert_eq!(p["retry_after"], 1);
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!((echoes, warnings, errors), (10, 1, 1));
    let counters = assert_settled(&handle);
    assert_eq!(counters.messages_delivered, echoes);
    assert_eq!(counters.messages_refused_rate, 50 - echoes);
}

/// Answers every message with three, together.
#[derive(Clone)]
struct Threefold;

impl Application for Threefold {
    fn on_message(&mut self, context: &mut Context<'_>, _message: Message<'_>) {
        context.send_batch(&[r#"{"t":"a"}"#, r#"{"t":"b"}"#, r#"{"t":"c"}"#]);
    }
}

#[test]
fn answers_come_in_a_batch_to_who_takes_one() {
    let server = start(config(), Threefold);
    let mut client = connect_v1(&server);
    for t in ["a", "b", "c"] {
        if t == "a" {
            client.send_text(r#"{"t":"x"}"#);
        }
        assert_eq!(client.next_json()["t"], t);
    }
    let hello = json!({ "t": "client_hello", "p": { "features": { "batching": true } } });
    assert_eq!(client.ask(&hello)["t"], "server_hello");
    let batch = client.ask(&json!({ "t": "x" }));
    assert_eq!(
        (&batch["t"], &batch["p"]["count"]),
        (&json!("batch"), &json!(3))
    );
    assert_eq!(
        batch["p"]["messages"],
        json!([{ "t": "a" }, { "t": "b" }, { "t": "c" }])
    );

    // The same in MessagePack.
    let mut packed = common::Opening::new(server.address())
        .target("/ws?format=msgpack")
        .open();
    assert_eq!(packed.next_json()["t"], "server_ready");
    packed.send_text(&hello.to_string());
    assert!(matches!(packed.next(), Said::Binary(_)));
    packed.send_text(r#"{"t":"x"}"#);
    let Said::Binary(bytes) = packed.next() else {
        panic!("not MessagePack")
    };
    let mut text = Vec::new();
    let packed = bytes.strip_prefix(b"M:").expect("the prefix");
    tidewire_wire::format::msgpack_to_json(packed, &mut text).expect("MessagePack");
    let batch: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(batch["p"]["messages"][2]["t"], "c");
}

#[test]
fn a_batch_does_not_get_around_the_rate_limit() {
    let mut config = config();
    config.limits.rate_limit_capacity = 10;
    config.limits.rate_limit_refill_per_s = 1;
    let server = start(config, Echo);
    let mut client = connect_v1(&server);
    let messages: Vec<_> = (0..100).map(|_| json!({"t": "x"})).collect();
    client.send_text(&json!({"t": "batch", "p": {"messages": messages}}).to_string());
    wait_until("all received", || {
        server.handle().counters().messages_received == 101
    });
    let counters = server.handle().counters();
    assert_eq!(
        (counters.messages_delivered, counters.messages_refused_rate),
        (10, 90)
    );
    assert_messages_add_up(&counters);
}

#[test]
fn the_last_refusals_are_told_though_nothing_follows_them() {
    let mut config = config();
    config.limits.rate_limit_capacity = 10;
    config.limits.rate_limit_refill_per_s = 1;
    let server = start(config, Echo);
    let mut client = connect_v1(&server);
    let burst: Vec<u8> = (0..30)
        .flat_map(|_| text_frame(r#"{"t":"trade","p":{}}"#))
        .collect();
    client.send_bytes(&burst);
    let mut told = 0;
    while told < 20 {
        let said = client.next_json();
        if said["t"] == "error" {
            assert_eq!(said["p"]["code"], "RATE_LIMITED");
            let message = said["p"]["message"].as_str().expect("a message");
            let number = message.split_once(' ').expect("a number first").0;
            told += number.parse::<u64>().expect("a number first");
        }
    }
    assert_eq!(told, 20);
    assert_eq!(server.handle().counters().messages_refused_rate, 20);
}

#[test]
fn without_the_protocol_a_refusal_is_told_by_the_close() {
    let mut config = raw_config();
    config.limits.rate_limit_capacity = 10;
    config.limits.rate_limit_refill_per_s = 1;
    let server = start(config, Echo);
    let mut client = connect(&server);
    let burst: Vec<u8> = (0..11).flat_map(|_| text_frame("hello")).collect();
    client.send_bytes(&burst);
    for _ in 0..10 {
        assert_eq!(client.next_text(), "hello");
    }
    client.assert_closed(CloseCode::RATE_LIMITED);
    assert_eq!(server.handle().counters().messages_refused_rate, 1);
}

#[test]
fn compression_is_no_way_around_the_rate_limit() {
    let mut config = config();
    config.limits.rate_limit_capacity = 600;
    config.limits.rate_limit_refill_per_s = 1;
    let server = start(config, Keep::default());
    let mut client = connect_v1(&server);
    let plain = format!(r#"{{"t":"x","p":"{}"}}"#, "a".repeat((1 << 20) - 100));
    let mut compressed = b"C:".to_vec();
    compressed.extend(zlib(plain.as_bytes()));
    assert!(compressed.len() < 4096);
    for _ in 0..4 {
        client.send_binary(&compressed);
    }
    let handle = server.handle();
    wait_until("all received", || handle.counters().messages_received == 4);
    // Each is worth 256 messages: two find room, and the third takes what is left of it.
    let counters = handle.counters();
    assert_eq!(
        (counters.messages_delivered, counters.messages_refused_rate),
        (3, 1)
    );
}

/// Clients of version 1 read the greeting before they send anything, and do not expect MessagePack there.
#[test]
fn the_greeting_is_json_whatever_format_was_asked_for() {
    let server = start(config(), Echo);
    let mut client = Opening::new(server.address())
        .target("/ws?format=msgpack")
        .open();
    let Said::Text(ready) = client.next() else {
        panic!("the greeting is no text");
    };
    let ready: Value = serde_json::from_str(&ready).expect("JSON");
    assert_eq!(
        (&ready["t"], &ready["seq"]),
        (&json!("server_ready"), &json!(1))
    );
    client.send_text(r#"{"t":"ping"}"#);
    let Said::Binary(pong) = client.next() else {
        panic!("the answer is no MessagePack");
    };
    assert!(pong.starts_with(b"M:"));

    let config = Config {
        auth_failure_after_upgrade: true,
        auth: Some(AuthConfig::new(KeyMaterial::Hs256(vec![7; 32]))),
        ..config()
    };
    let server = start(config, Echo);
    let mut client = Opening::new(server.address())
        .target("/ws?format=msgpack")
        .open();
    let Said::Text(error) = client.next() else {
        panic!("the refusal is no text");
    };
    assert!(error.contains("AUTH_FAILED"), "{error}");
}

#[test]
fn messages_without_a_type_have_the_one_of_the_server() {
    let keep = Keep::default();
    let typed = Config {
        default_type: Some("message".to_owned()),
        ..config()
    };
    let server = start(typed.clone(), keep.clone());
    let mut client = connect_v1(&server);
    let untyped = json!({"c": "U", "p": {"x": 1}, "v": 1});
    client.send_text(&untyped.to_string());
    client.send_text("{}");
    client.send_binary(&[&b"M:"[..], &msgpack(&untyped)].concat());
    client.send_binary(&zlib(untyped.to_string().as_bytes()));
    client.send_text(&json!({"t": "batch", "p": {"messages": [untyped, {"t": "b"}]}}).to_string());
    assert_alive(&mut client);
    let seen: Vec<Value> = keep.0.lock().unwrap().iter().map(as_json).collect();
    let expected = json!({"t": "message", "c": "U", "p": {"x": 1}, "v": 1});
    assert_eq!(seen.len(), 6, "{seen:?}");
    for at in [0, 2, 3, 4] {
        assert_eq!(seen[at], expected);
    }
    assert_eq!(
        (&seen[1], &seen[5]),
        (&json!({"t": "message"}), &json!({"t": "b"}))
    );
    // A type that is there and is none stays a mistake.
    for text in [r#"{"t":""}"#, r#"{"t":null}"#, r#"{"type":5}"#, "[]", "1"] {
        client.send_text(text);
        assert_error(&mut client, "INVALID_MESSAGE");
    }
    assert_alive(&mut client);
    for wrong in ["", "ping", "subscription_update"] {
        let wrong = Config {
            default_type: Some(wrong.to_owned()),
            ..typed.clone()
        };
        let refused = tidewire_engine::Server::start(wrong, |_| Echo).unwrap_err();
        assert!(refused.to_string().contains("default_type"), "{refused}");
    }
}

fn as_json((encoding, bytes): &Kept) -> Value {
    let mut json = bytes.clone();
    if *encoding == Encoding::MessagePack {
        json.clear();
        msgpack_to_json(bytes, &mut json).expect("MessagePack");
    }
    serde_json::from_slice(&json).expect("JSON")
}
