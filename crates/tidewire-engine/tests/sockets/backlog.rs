//! A shard that does not get on with its deliveries holds back those who publish, on whatever shard.

use crate::common;

use common::held::{connect_to, start_held};
use common::topics::{open_topics, subscribe};
use common::wait_until;
use serde_json::json;
use tidewire_engine::{NewPublication, PublishError};

const BACKLOG_BYTES: usize = 64 * 1024;
const PAYLOAD_BYTES: usize = 10_000;

#[test]
fn publishers_wait_for_a_shard_that_is_behind_and_nothing_is_lost() {
    let mut config = open_topics();
    config.shards = 2;
    config.topics.limits.backlog_bytes_max = BACKLOG_BYTES;
    // However slow the machine is.
    config.limits.shard_stall_ms = 600_000;
    let (server, newest, gate) = start_held(config);
    let mut subscriber = connect_to(&server, 1, &newest);
    subscribe(&mut subscriber, json!(["a"]));
    let mut publisher = connect_to(&server, 0, &newest);
    subscriber.send_text(r#"{"t":"hold"}"#);
    gate.wait_until_shut();

    // More than the backlog and the sockets hold, so that it ends only when the publisher is read again.
    let count = (common::PAST_SOCKETS_BYTES / PAYLOAD_BYTES) as u64;
    let filling = "x".repeat(PAYLOAD_BYTES);
    let publishing = std::thread::spawn(move || {
        for number in 1..=count {
            let payload = json!({"n": number, "x": filling});
            let payload = json!({"topic": "a", "type": "count", "payload": payload});
            let request = json!({"t": "publish_request", "p": payload});
            publisher.send_text(&request.to_string());
        }
        publisher
    });
    let handle = server.handle();
    wait_until("the publisher is held", || {
        handle.counters().backlog_pauses > 0
    });
    let elsewhere = NewPublication::new("count", "{}");
    assert_eq!(handle.publish("a", &elsewhere), Err(PublishError::Busy));
    let taken = handle.counters().publications_received;
    assert!(taken < count, "{taken} of {count}");

    gate.open();
    for number in 1..=count {
        assert_eq!(subscriber.next_json()["p"]["n"], number);
    }
    publishing.join().expect("everything was taken");
}
