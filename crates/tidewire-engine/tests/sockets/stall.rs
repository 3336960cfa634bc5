//! A shard that is stuck in its application: who notices, who goes on, and what becomes of its sessions.

use crate::common;

use common::held::{connect_to, start_held};
use common::http::Http;
use common::topics::{open_topics, publish, subscribe};
use common::{Said, wait_until};
use serde_json::json;
use std::net::SocketAddr;
use tidewire_engine::{NewPublication, PublishError, ShardHealth};

const BACKLOG_BYTES: usize = 64 * 1024;
const STALL_MS: u64 = 1_000;

#[test]
fn nobody_waits_for_a_shard_that_is_stuck_and_its_sessions_end_when_it_goes_on() {
    let mut config = open_topics();
    config.shards = 2;
    config.topics.limits.backlog_bytes_max = BACKLOG_BYTES;
    config.limits.shard_stall_ms = STALL_MS;
    config.ops_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let (server, newest, gate) = start_held(config);
    let handle = server.handle();
    let mut stuck = connect_to(&server, 1, &newest);
    let mut bystander = connect_to(&server, 1, &newest);
    let mut other = connect_to(&server, 0, &newest);
    subscribe(&mut stuck, json!(["a"]));
    subscribe(&mut other, json!(["a"]));
    stuck.send_text(r#"{"t":"hold"}"#);
    gate.wait_until_shut();

    // Past the backlog publishing is refused, but only until the shard counts as stuck.
    let payload = json!({"n": 0, "x": "x".repeat(10_000)}).to_string();
    let publication = NewPublication::new("filling", &payload);
    let (mut published, mut was_busy) = (0, false);
    wait_until("publishing past the backlog", || {
        match handle.publish("a", &publication) {
            Ok(_) => published += 1,
            Err(PublishError::Busy) => was_busy = true,
            Err(error) => panic!("{error}"),
        }
        was_busy && published > 10 * BACKLOG_BYTES / payload.len()
    });
    // Clients on other shards publish and receive.
    publish(&mut other, "a", 7);
    let mut received = 0;
    loop {
        let message = other.next_json();
        if message["t"] == "count" {
            break;
        }
        received += usize::from(message["t"] == "filling");
    }
    assert_eq!(received, published);

    let ops = server.ops_address().expect("an operations listener");
    assert_told(ops);
    let health = handle.shard_health();
    assert_eq!(health[0], ShardHealth::Healthy);
    assert!(matches!(health[1], ShardHealth::Stuck { .. }), "{health:?}");

    // It continues. The missed publications are lost for its sessions, which are closed for that.
    gate.open();
    for client in [&mut stuck, &mut bystander] {
        let (code, reason) = client.close_after_all();
        assert_eq!(code, Some(1011), "{reason}");
    }
    wait_until("the shard is healthy", || {
        handle.shard_health() == [ShardHealth::Healthy; 2]
    });
    assert_eq!(handle.counters().shard_stalls, 1);
    let answer = Http::connect(ops).ask("GET", "/health", "", "");
    assert_eq!(answer.status, 200);

    // Whoever comes back takes part again.
    let mut back = connect_to(&server, 1, &newest);
    subscribe(&mut back, json!(["a"]));
    publish(&mut other, "a", 8);
    assert_eq!(common::topics::next(&mut back), ("a".to_owned(), 8));
}

/// The operations listener says that the second shard is stuck.
fn assert_told(ops: SocketAddr) {
    for path in ["/health", "/ready"] {
        let answer = Http::connect(ops).ask("GET", path, "", "");
        let body: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!((answer.status, &body["status"]), (503, &json!("failing")));
        let shard = &body["shards"][0];
        assert_eq!(
            (&shard["shard"], &shard["state"]),
            (&json!(1), &json!("stuck"))
        );
        assert!(shard["turn_ms"].as_u64().expect("a time") > STALL_MS);
    }
}

#[test]
fn a_long_turn_that_nobody_waits_for_costs_nobody_its_session() {
    let mut config = open_topics();
    config.limits.shard_stall_ms = 1;
    let (server, newest, gate) = start_held(config);
    let mut client = connect_to(&server, 0, &newest);
    subscribe(&mut client, json!(["a"]));
    client.send_text(r#"{"t":"hold"}"#);
    gate.wait_until_shut();
    wait_until("it counts as stuck", || {
        matches!(server.handle().shard_health()[0], ShardHealth::Stuck { .. })
    });
    let publication = NewPublication::new("count", r#"{"n":1}"#);
    server
        .handle()
        .publish("a", &publication)
        .expect("there is room");
    gate.open();
    assert_eq!(common::topics::next(&mut client), ("a".to_owned(), 1));
    assert_eq!(server.handle().counters().shard_stalls, 0);
}

#[test]
fn a_server_with_a_stuck_shard_can_be_stopped() {
    let mut config = open_topics();
    config.limits.shard_stall_ms = 100;
    let (server, newest, gate) = start_held(config);
    let mut client = connect_to(&server, 0, &newest);
    client.send_text(r#"{"t":"hold"}"#);
    gate.wait_until_shut();
    let handle = server.handle();
    server.stop();
    assert!(handle.is_stopped());
    gate.open();
    // The thread that was left behind ends as well, and its connections with it.
    let end = client.next();
    assert!(matches!(end, Said::End | Said::Reset), "{end:?}");
}
