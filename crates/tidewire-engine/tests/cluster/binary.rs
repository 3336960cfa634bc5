//! Binary payloads over Redis.

use crate::common;

use common::cluster::{shared_history, start_connected};
use common::connect_v1;
use common::topics::subscribe;
use serde_json::{Value, json};
use tidewire_engine::{Config, Content, NewPublication};
use tidewire_testkit::redis::RedisServer;

/// `h.>` keeps history.
fn config(redis: &RedisServer) -> Config {
    shared_history(&redis.url(), 1_000)
}

#[test]
fn bytes_reach_the_other_servers_live_and_from_history() {
    let redis = RedisServer::start("");
    let servers = [(); 2].map(|()| start_connected(config(&redis)));
    let mut near = connect_v1(&servers[0]);
    let mut far = connect_v1(&servers[1]);
    for client in [&mut near, &mut far] {
        subscribe(client, json!(["h.a", "plain"]));
    }
    let payloads = [("AAH/", true), ("", true), ("AAH/", false)];
    for topic in ["h.a", "plain"] {
        for (payload, binary) in payloads {
            let mut body = json!({"topic": topic, "type": "data", "payload": payload});
            if binary {
                body["binary"] = true.into();
            }
            near.send_text(&json!({"t": "publish_request", "p": body}).to_string());
            let expected = if binary { json!(true) } else { Value::Null };
            for client in [&mut near, &mut far] {
                let message = client.next_json();
                assert_eq!((&message["b"], &message["p"]), (&expected, &json!(payload)));
            }
            // Its own publisher does not get it.
            body["exclude_self"] = true.into();
            near.send_text(&json!({"t": "publish_request", "p": body}).to_string());
            let message = far.next_json();
            assert_eq!((&message["b"], &message["p"]), (&expected, &json!(payload)));
        }
    }
    let everyone = NewPublication::new("data", Content::binary([0, 1, 255]));
    servers[0]
        .handle()
        .publish_to_everyone(&everyone)
        .expect("a broker");
    for client in [&mut near, &mut far] {
        let message = client.next_json();
        assert_eq!(
            (&message["b"], &message["p"]),
            (&json!(true), &json!("AAH/"))
        );
    }
    // A server that was not there reads what Redis has kept.
    let third = start_connected(config(&redis));
    let mut late = connect_v1(&third);
    let replay = json!({"action": "subscribe", "topics": ["h.a"], "replay": 10});
    let answer = late.ask(&json!({"t": "subscription_update", "p": replay}));
    assert_eq!(answer["p"]["recovery"]["h.a"]["count"], 6, "{answer}");
    for (payload, binary) in payloads {
        for _ in 0..2 {
            let message = late.next_json();
            let expected = if binary { json!(true) } else { Value::Null };
            assert_eq!((&message["b"], &message["p"]), (&expected, &json!(payload)));
        }
    }
}
