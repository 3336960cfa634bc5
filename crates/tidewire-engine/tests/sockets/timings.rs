//! Histograms of a running server: what clients cause is measured, and ends in `/metrics`.

use crate::common;

use common::http::Http;
use common::topics::{next, open_topics, publish, subscribe};
use common::{connect_v1, start, wait_until};
use serde_json::json;
use tidewire_engine::apps::Sink;
use tidewire_engine::{Config, HistoryLimits, Server, TopicRule};

/// How many durations of this name the server has recorded, on all shards.
fn recorded(server: &Server, name: &str) -> u64 {
    let mut http = Http::connect(server.ops_address().expect("the listener is on"));
    let page = http.ask("GET", "/metrics", "", "").body;
    let start = format!("tidewire_{name}_seconds_count{{");
    let samples = page.lines().filter(|line| line.starts_with(&start));
    let counts = samples.map(|line| {
        let (_, count) = line.rsplit_once(' ').expect("a sample");
        count.parse::<u64>().expect("a number")
    });
    counts.sum()
}

#[test]
fn what_clients_cause_is_measured() {
    let mut config = Config {
        ops_listen: Some("127.0.0.1:0".parse().expect("an address")),
        shards: 2,
        ..open_topics()
    };
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits {
            publications_max: 100,
            bytes_max: 1 << 20,
            age_max_ms: 0,
        }),
        ..TopicRule::new("a.>")
    }];
    let server = start(config, Sink);
    let (mut publisher, mut client) = (connect_v1(&server), connect_v1(&server));
    assert_eq!(recorded(&server, "handshake_duration"), 2);
    subscribe(&mut client, json!(["a.x"]));
    for number in 1..=3 {
        publish(&mut publisher, "a.x", number);
        assert_eq!(next(&mut client), ("a.x".to_owned(), number));
    }
    // The receiver is on one shard, and may have the publication before the turn ends.
    wait_until("deliveries are measured", || {
        recorded(&server, "publication_delivery_duration") == 3
    });
    assert!(recorded(&server, "turn_duration") >= 3);

    assert_eq!(recorded(&server, "history_duration"), 0);
    let request = json!({"t": "history_request", "cid": "h", "p": {"topic": "a.x"}});
    assert_eq!(client.ask(&request)["t"], "history_response");
    wait_until("the history request is measured", || {
        recorded(&server, "history_duration") == 1
    });

    assert_eq!(recorded(&server, "recovery_duration"), 0);
    let mut late = connect_v1(&server);
    let payload = json!({"action": "subscribe", "topics": ["a.x"], "replay": 2});
    let answer = late.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(answer["t"], "subscription_update", "{answer}");
    assert_eq!(next(&mut late), ("a.x".to_owned(), 2));
    wait_until("the recovery is measured", || {
        recorded(&server, "recovery_duration") == 1
    });
}
