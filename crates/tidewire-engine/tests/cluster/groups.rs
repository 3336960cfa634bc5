//! Queue groups of topics that several servers share over one Redis. Each test starts a
//! `redis-server` of its own.

use crate::{common, proxy};

use common::cluster::{shared_topics, start_connected};
use common::topics::{publish, subscribe};
use common::{Client, connect_v1};
use proxy::Proxy;
use serde_json::{Value, json};
use std::sync::mpsc;
use tidewire_engine::{Config, HistoryLimits, Scope, Server, TopicRule};
use tidewire_testkit::redis::RedisServer;

fn configured(url: &str) -> Config {
    let mut config = shared_topics(url);
    config.topics.rules = vec![
        TopicRule {
            history: Some(HistoryLimits::of(100)),
            ..TopicRule::new("kept.>")
        },
        TopicRule {
            scope: Scope::Node,
            ..TopicRule::new("own.>")
        },
    ];
    config
}

fn server_at(url: &str) -> Server {
    start_connected(configured(url))
}

fn ask_to_join(client: &mut Client, topic: &str, acknowledge: bool, window: u64) -> Value {
    let payload = json!({
        "action": "subscribe", "topics": [topic], "queue_group": "workers",
        "acknowledge": acknowledge, "window": window,
    });
    client.ask(&json!({"t": "subscription_update", "p": payload}))["p"].clone()
}

fn join(client: &mut Client, topic: &str, window: u64) {
    let answer = ask_to_join(client, topic, true, window);
    assert_eq!(answer["success_topics"], json!([topic]), "{answer}");
}

fn acknowledge(client: &mut Client, message: &Value) {
    let payload = json!({ "deliveries": [message["d"]] });
    client.send_text(&json!({"t": "publication_ack", "p": payload}).to_string());
}

/// Receives a delivery, and acknowledges it; its number, and whether it was delivered before.
fn work(client: &mut Client) -> (u64, bool) {
    let message = client.next_json();
    assert_eq!(message["t"], "count", "{message}");
    acknowledge(client, &message);
    let number = message["p"]["n"].as_u64().expect("a number");
    (number, message.get("rd").is_some())
}

#[test]
fn members_of_two_servers_share_the_work() {
    let redis = RedisServer::start("");
    let servers = [server_at(&redis.url()), server_at(&redis.url())];
    for topic in ["kept.jobs", "jobs"] {
        let (mut one, mut two) = (connect_v1(&servers[0]), connect_v1(&servers[1]));
        let mut backend = connect_v1(&servers[0]);
        join(&mut one, topic, 3);
        // The first server has room for three, the second gets the rest.
        for number in 0..5 {
            publish(&mut backend, topic, number);
        }
        let first: Vec<Value> = (0..3).map(|_| one.next_json()).collect();
        join(&mut two, topic, 2);
        let second = [work(&mut two), work(&mut two)];
        assert_eq!(second, [(3, false), (4, false)]);
        for message in &first {
            assert!(message.get("rd").is_none(), "{message}");
            acknowledge(&mut one, message);
        }
        let (sender, numbers) = mpsc::channel();
        let workers = [one, two].map(|mut client| {
            let sender = sender.clone();
            subscribe(&mut client, json!(["end"]));
            std::thread::spawn(move || {
                loop {
                    let message = client.next_json();
                    if message["tp"] == "end" {
                        return;
                    }
                    acknowledge(&mut client, &message);
                    assert!(message.get("rd").is_none(), "{message}");
                    sender
                        .send(message["p"]["n"].as_u64())
                        .expect("the test waits");
                }
            })
        });
        for number in 5..25 {
            publish(&mut backend, topic, number);
        }
        let mut all: Vec<_> = numbers.iter().take(20).flatten().collect();
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(5..25));
        publish(&mut backend, "end", 0);
        for worker in workers {
            worker.join().expect("each comes once");
        }
        assert_eq!(numbers.try_iter().count(), 0, "each comes once");
    }
}

#[test]
fn work_of_a_lost_connection_goes_to_the_other_server() {
    let redis = RedisServer::start("");
    let servers = [server_at(&redis.url()), server_at(&redis.url())];
    let (mut one, mut two) = (connect_v1(&servers[0]), connect_v1(&servers[1]));
    join(&mut one, "jobs", 2);
    for number in 0..2 {
        publish(&mut two, "jobs", number);
    }
    assert_eq!(work(&mut one), (0, false));
    assert_eq!(one.next_json()["p"]["n"], 1);
    drop(one);
    join(&mut two, "jobs", 10);
    assert_eq!(work(&mut two), (1, true));
    publish(&mut two, "jobs", 2);
    assert_eq!(work(&mut two), (2, false));
}

#[test]
fn a_server_that_is_cut_off_loses_its_work_to_another() {
    let redis = RedisServer::start("");
    let proxy = Proxy::start(&redis.socket());
    let cut_off = server_at(&format!("unix://{}", proxy.path().display()));
    let other = server_at(&redis.url());
    let (mut one, mut two) = (connect_v1(&cut_off), connect_v1(&other));
    join(&mut one, "jobs", 5);
    publish(&mut two, "jobs", 0);
    assert_eq!(one.next_json()["p"]["n"], 0);
    join(&mut two, "jobs", 5);
    proxy.refuse();
    proxy.cut();
    assert_eq!(work(&mut two), (0, true));
}

#[test]
fn a_member_that_never_acknowledges_holds_nobody_back() {
    let redis = RedisServer::start("");
    let mut config = configured(&redis.url());
    config.topics.limits.group_waiting_max = 4;
    let server = start_connected(config);
    let (mut worker, mut backend) = (connect_v1(&server), connect_v1(&server));
    join(&mut worker, "jobs", 1);
    publish(&mut backend, "jobs", 0);
    let first = worker.next_json();
    assert_eq!(first["p"]["n"], 0);
    for number in 1..10 {
        let request = json!({"topic": "jobs", "type": "count", "payload": {"n": number}});
        let answer = backend.ask(&json!({"t": "publish_request", "cid": "f", "p": request}));
        assert_eq!(answer["t"], "publish_response", "{answer}");
    }
    acknowledge(&mut worker, &first);
    let gap = worker.next_json();
    assert_eq!(
        (&gap["t"], &gap["p"]["reason"], &gap["p"]["count"]),
        (&json!("publication_gap"), &json!("dropped"), &json!(5)),
        "{gap}"
    );
    assert_eq!(worker.next_json()["p"]["n"], 6);
}

#[test]
fn what_is_refused_and_what_stays_on_a_server() {
    let redis = RedisServer::start("");
    let servers = [server_at(&redis.url()), server_at(&redis.url())];
    let (mut one, mut two) = (connect_v1(&servers[0]), connect_v1(&servers[1]));
    let answer = ask_to_join(&mut one, "jobs.*", true, 1);
    assert_eq!(answer["failed_topics"], json!(["jobs.*"]), "{answer}");
    assert_eq!(one.next_json()["p"]["code"], "INVALID_SUBSCRIPTION");
    join(&mut one, "own.jobs", 10);
    join(&mut two, "own.jobs", 10);
    publish(&mut one, "own.jobs", 1);
    publish(&mut two, "own.jobs", 2);
    assert_eq!(work(&mut one), (1, false));
    assert_eq!(work(&mut two), (2, false));
}
