//! Records that no server can read: a hole for whoever receives or recovers them, and never silence.

use crate::common;

use common::cluster::{is_connected, shared_history, start_connected};
use common::topics::{publish, subscribe};
use common::{connect_v1, wait_until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use tidewire_engine::{Config, Server};
use tidewire_redis::{Category, Mark, NodeId, Priority, Record};
use tidewire_testkit::redis::RedisServer;

fn config(redis: &RedisServer) -> Config {
    shared_history(&redis.url(), 100)
}

/// The number of records that a server could not read, and whether it says so.
fn unreadable(server: &Server) -> (u64, bool) {
    let health = server.handle().broker_health().expect("a broker");
    let count = health.counts.iter().find(|(name, _)| *name == "unreadable");
    let is_told = health.problems.iter().any(|it| it.kind == "unreadable");
    (count.expect("a counter").1, is_told)
}

/// What a client receives that recovers from an offset: whether it has all, and the payloads.
pub(crate) fn recover(server: &Server, (epoch, offset): (&Value, u64)) -> (Value, Vec<u64>) {
    let mut client = connect_v1(server);
    let since = json!({"h.a": {"epoch": epoch, "offset": offset}});
    let p = json!({"action": "subscribe", "topics": ["h.a"], "recover": true, "recovery": since});
    client.send_text(&json!({"t": "subscription_update", "cid": "1", "p": p}).to_string());
    client.send_text(&json!({"t": "ping"}).to_string());
    let (mut recovered, mut payloads) = (Value::Null, Vec::new());
    loop {
        let message = client.next_json();
        match message["t"].as_str() {
            Some("subscription_update") => {
                recovered = message["p"]["recovery"]["h.a"]["recovered"].clone();
            }
            Some("count") => payloads.push(message["p"]["n"].as_u64().expect("a number")),
            Some("PONG") if !recovered.is_null() => return (recovered, payloads),
            // The answer waits for the broker, and pings do not.
            Some("PONG") => client.send_text(&json!({"t": "ping"}).to_string()),
            other => panic!("{other:?}: {message}"),
        }
    }
}

#[test]
fn whoever_recovers_over_a_record_that_cannot_be_read_is_told_of_a_gap() {
    let redis = RedisServer::start("");
    let writer = start_connected(config(&redis));
    let mut publisher = connect_v1(&writer);
    let place = |publisher: &mut common::Client, n: u64| {
        let payload = json!({"topic": "h.a", "type": "count", "payload": {"n": n}});
        let answer = publisher.ask(&json!({"t": "publish_request", "cid": "1", "p": payload}));
        assert_eq!(answer["t"], "publish_response", "{answer}");
        answer["p"].clone()
    };
    let first = place(&mut publisher, 1);
    let epoch = u32::from_str_radix(first["epoch"].as_str().expect("text"), 16).expect("a number");
    place(&mut publisher, 2);
    // As a newer server might write it.
    let id = redis.ask(&format!("XADD tw:{{0}}:t:h.a {epoch}-* d ~unknown~"));
    assert!(id.starts_with('$'), "{id}");
    place(&mut publisher, 4);

    // Two servers that have nothing of this topic yet.
    let (before, behind) = (
        start_connected(config(&redis)),
        start_connected(config(&redis)),
    );
    let epoch = &first["epoch"];
    let (recovered, _) = recover(&before, (epoch, 1));
    assert_eq!(recovered, false, "the third is missing");
    wait_until("the metric", || unreadable(&before) == (1, true));
    // Behind it everything is as always.
    assert_eq!(recover(&behind, (epoch, 3)), (json!(true), vec![4]));
}

#[test]
fn a_subscriber_of_a_record_that_cannot_be_read_receives_a_gap() {
    let redis = RedisServer::start("");
    let server = start_connected(config(&redis));
    let (mut reader, mut publisher) = (connect_v1(&server), connect_v1(&server));
    subscribe(&mut reader, json!(["h.a"]));
    publish(&mut publisher, "h.a", 1);
    let one = reader.next_json();
    let epoch = one["e"].as_str().expect("an epoch");
    let epoch = u32::from_str_radix(epoch, 16).expect("a number");
    redis.ask(&format!("XADD tw:{{0}}:t:h.a {epoch}-* d ~unknown~"));
    publish(&mut publisher, "h.a", 3);
    let gap = reader.next_json();
    assert_eq!(
        (&gap["t"], &gap["p"]["reason"]),
        (&json!("publication_gap"), &json!("broker")),
        "{gap}"
    );
    assert_eq!(reader.next_json()["o"], 3);
    wait_until("the metric", || unreadable(&server).0 >= 1);
    assert!(is_connected(&server));
}

/// Adds a record to the history of `h.a`.
fn add(redis: &RedisServer, epoch: u32, record: &[u8]) {
    let (key, id) = ("tw:{0}:t:h.a", format!("{epoch}-*"));
    let words = [b"XADD", key.as_bytes(), id.as_bytes(), b"d", record];
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        command.extend_from_slice(word);
        command.extend_from_slice(b"\r\n");
    }
    let mut socket = UnixStream::connect(redis.socket()).expect("a connection");
    socket.write_all(&command).expect("sent");
    let mut answer = [0; 256];
    let read = socket.read(&mut answer).expect("an answer");
    assert!(answer[..read].starts_with(b"$"), "an id");
}

/// The record of an earlier version, with a payload of this number of levels.
fn nested(levels: usize) -> Vec<u8> {
    let payload = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let record = Record {
        mark: Mark {
            node: NodeId(1),
            batch: 0,
            index: 0,
        },
        category: Category::Update,
        priority: Priority::Normal,
        published_redis_ms: None,
        expires_redis_ms: None,
        excluded: None,
        also_excluded: &[],
        t: "count",
        id: None,
        key: None,
        volatile: false,
        binary: false,
        payload: payload.as_bytes(),
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes).expect("it is short");
    bytes
}

#[test]
fn a_kept_payload_that_is_nested_too_deep_is_a_gap_and_no_answer() {
    let redis = RedisServer::start("");
    let writer = start_connected(config(&redis));
    let mut publisher = connect_v1(&writer);
    subscribe(&mut publisher, json!(["h.a"]));
    publish(&mut publisher, "h.a", 1);
    let first = publisher.next_json();
    let epoch = first["e"].as_str().expect("an epoch");
    add(
        &redis,
        u32::from_str_radix(epoch, 16).expect("a number"),
        &nested(62),
    );
    publish(&mut publisher, "h.a", 3);

    let reader = start_connected(config(&redis));
    let mut client = connect_v1(&reader);
    client
        .send_text(&json!({"t": "history_request", "cid": "1", "p": {"topic": "h.a"}}).to_string());
    let answer = client.next_text();
    let depth = answer.bytes().fold((0_i32, 0_i32), |(now, most), byte| {
        let now = now + i32::from(b"[{".contains(&byte)) - i32::from(b"]}".contains(&byte));
        (now, most.max(now))
    });
    assert!(
        answer.contains("history_response") && depth.1 <= 64,
        "{answer}"
    );
    let (recovered, _) = recover(&reader, (&first["e"], 1));
    assert_eq!(recovered, false);
    wait_until("the metric", || unreadable(&reader).0 >= 1);
}
