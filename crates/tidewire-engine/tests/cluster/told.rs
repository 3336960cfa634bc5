//! Answers of the HTTP API to publications: 200 only for what is published, whatever happens to Redis meanwhile.

use crate::common;

use common::api::{config_with_api, with_key};
use common::cluster::{is_connected, shared_topics, start_connected};
use common::wait_until;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::mpsc::sync_channel;
use tidewire_engine::{Config, Server};
use tidewire_testkit::redis::RedisServer;

/// The API and `kept.*`, with a broker that is given up after a moment.
fn config(redis: &RedisServer) -> Config {
    let mut broker = shared_topics(&redis.url()).broker;
    broker.as_mut().expect("a broker").wait_ms = 300;
    Config {
        broker,
        ..config_with_api()
    }
}

fn publication(number: u64) -> Value {
    json!({"topic": "kept.a", "type": "count", "payload": number, "id": format!("id-{number}")})
}

/// The status and the code of the answer, which is empty for a success.
fn publish(server: &Server, number: u64) -> (u16, String) {
    let body = publication(number).to_string();
    let answer = with_key(server, "POST", "/api/v1/publish", &body);
    let error = match answer.status {
        200 => String::new(),
        _ => answer.code(),
    };
    (answer.status, error)
}

/// The payloads in the history.
fn kept(server: &Server) -> Vec<u64> {
    let answer = with_key(
        server,
        "GET",
        "/api/v1/topics/kept.a/history?limit=1000",
        "",
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let publications = answer["publications"].as_array().expect("a list");
    let number = |one: &Value| one["p"].as_u64().or(one["payload"].as_u64());
    publications
        .iter()
        .map(|one| number(one).expect("a number"))
        .collect()
}

#[test]
fn a_publication_without_redis_is_refused_and_not_published_later() {
    let mut redis = RedisServer::start("");
    let server = start_connected(config(&redis));
    assert_eq!(publish(&server, 1), (200, String::new()));
    redis.kill();
    wait_until("no broker", || !is_connected(&server));
    let refused = (503, "broker_unavailable".to_owned());
    assert_eq!(publish(&server, 2), refused);
    // Each of a batch has an answer of its own.
    let invalid = json!({"topic": "kept..", "type": "count"});
    let batch = json!([publication(3), invalid, publication(5)]);
    let path = "/api/v1/publish/batch";
    let answer = with_key(&server, "POST", path, &batch.to_string()).json();
    let codes: Vec<&Value> = (0..3)
        .map(|index| &answer["results"][index]["error"]["code"])
        .collect();
    assert_eq!(
        codes,
        ["broker_unavailable", "invalid_topic", "broker_unavailable"],
        "{answer}"
    );
    redis.run();
    wait_until("a broker again", || is_connected(&server));
    assert_eq!(publish(&server, 6), (200, String::new()));
    // Redis has lost what it had, and gets nothing that was refused.
    assert_eq!(kept(&server), [6]);
}

#[test]
fn who_is_not_told_that_it_is_published_can_ask_again_with_the_same_id() {
    let redis = RedisServer::start("");
    let server = start_connected(config(&redis));
    // The publisher waits until each answer was looked at, so that Redis stops between two of its publications.
    let (told, tells) = sync_channel(0);
    let mut answered = BTreeSet::new();
    std::thread::scope(|scope| {
        let server = &server;
        let publisher = scope.spawn(move || {
            for number in 0..200 {
                let result = publish(server, number);
                told.send((number, result)).expect("somebody listens");
            }
        });
        // Redis stops and goes on while publications are on their way.
        for round in 0.. {
            let Ok((number, (status, code))) = tells.recv() else {
                break;
            };
            match (status, code.as_str()) {
                (200, _) => drop(answered.insert(number)),
                (503, "broker_unavailable") | (504, "publish_unknown") => {}
                other => panic!("{number}: {other:?}"),
            }
            match round % 40 {
                10 => redis.pause(),
                12 => redis.go_on(),
                _ => {}
            }
        }
        redis.go_on();
        publisher.join().expect("no panic");
    });
    wait_until("a broker", || is_connected(&server));
    assert!(
        !answered.is_empty() && answered.len() < 200,
        "Redis was away at times"
    );
    let before: BTreeSet<u64> = kept(&server).into_iter().collect();
    assert!(
        answered.is_subset(&before),
        "all that was said to be published is"
    );
    // With the same id it is published if it was not, and never twice.
    for number in 0..200 {
        assert_eq!(publish(&server, number), (200, String::new()), "{number}");
    }
    let mut all = kept(&server);
    all.sort_unstable();
    assert_eq!(all, (0..200).collect::<Vec<u64>>());
}
