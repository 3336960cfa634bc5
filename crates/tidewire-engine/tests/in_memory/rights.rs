//! A right that is taken away ends at once, whatever its session waits for. In virtual time.

use crate::common;

use common::simulated::{SimulatedClient, serve, serve_late};
use common::topics::open_topics;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tidewire_engine::simulation::LateAnswers;
use tidewire_engine::{
    AccessRules, Application, Config, ConnectionKey, Context, Handle, HistoryLimits, Message, Peer,
    TopicRule,
};
use tidewire_net::Handler;
use tidewire_testkit::simulation::Driver;

/// Knows the connections, in the order in which they came.
#[derive(Clone, Default)]
struct Doorkeeper(Arc<Mutex<Vec<ConnectionKey>>>);

impl Application for Doorkeeper {
    fn on_connect(&mut self, _: &mut Context<'_>, peer: &Peer) {
        self.0.lock().expect("no panic").push(peer.connection);
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}
}

impl Doorkeeper {
    fn last(&self) -> ConnectionKey {
        *self.0.lock().expect("no panic").last().expect("a session")
    }
}

fn config() -> Config {
    let mut config = open_topics();
    config.limits.outbox_pause_bytes = 50_000;
    config.limits.rate_limit_capacity = 0;
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits {
            bytes_max: 16 << 20,
            ..HistoryLimits::of(200)
        }),
        ..TopicRule::new("h.>")
    }];
    config
}

fn run<H: Handler>(driver: &mut Driver<H>) {
    let now_ms = driver.now_ms();
    driver.run_until(now_ms + 100);
}

/// Lets the broker answer all that it was asked.
fn settle<H: Handler>(driver: &mut Driver<H>, answers: &mut LateAnswers) {
    for _ in 0..4 {
        answers.settle();
        run(driver);
    }
}

fn subscribe(client: &SimulatedClient, topics: &[&str], replay: u64) {
    let payload = json!({"action": "subscribe", "topics": topics, "replay": replay});
    client.send(&json!({"t": "subscription_update", "p": payload}));
}

fn publish(client: &SimulatedClient, topic: &str, text: &str) {
    let payload = json!({"topic": topic, "type": "x", "payload": text});
    client.send(&json!({"t": "publish_request", "p": payload}));
}

fn ended(said: &[Value], topic: &str) -> bool {
    said.iter().any(|message| {
        message["t"] == "subscription_update"
            && message["p"]["action"] == "unsubscribe"
            && message["p"]["success_topics"] == json!([topic])
    })
}

/// Takes all rights away from the newest session.
fn take_rights(handle: &Handle, doorkeeper: &Doorkeeper) {
    let closed = AccessRules::closed();
    handle
        .set_access(doorkeeper.last(), closed)
        .expect("good rules");
}

#[test]
fn a_client_that_does_not_read_loses_its_rights_at_once() {
    let doorkeeper = Doorkeeper::default();
    let (mut driver, handle) = serve(config(), |_| doorkeeper.clone());
    let publisher = SimulatedClient::open(driver.network().connect(0), &[]);
    run(&mut driver);
    let text = "x".repeat(20_000);
    for _ in 0..200 {
        publish(&publisher, "h.a", &text);
        run(&mut driver);
    }
    run(&mut driver);
    let mut client = SimulatedClient::open(driver.network().connect(0), &[]);
    run(&mut driver);
    subscribe(&client, &["live.a"], 0);
    run(&mut driver);
    // It has a long history to read, and reads nothing of it.
    client.end.stall(true);
    subscribe(&client, &["h.a"], 200);
    run(&mut driver);
    let replayed = handle.counters().publications_replayed;
    assert!((1..200).contains(&replayed), "{replayed}");
    take_rights(&handle, &doorkeeper);
    run(&mut driver);
    publish(&publisher, "live.a", "secret");
    run(&mut driver);
    client.end.stall(false);
    let mut said = Vec::new();
    for _ in 0..200 {
        said.extend(client.receive_json());
        run(&mut driver);
    }
    publish(&publisher, "h.a", "secret");
    run(&mut driver);
    said.extend(client.receive_json());
    let secrets: Vec<_> = said.iter().filter(|it| it["p"] == "secret").collect();
    assert!(secrets.is_empty(), "{secrets:?}");
    assert!(ended(&said, "live.a") && ended(&said, "h.a"));
    assert_eq!(handle.counters().publications_replayed, replayed);
}

#[test]
fn a_subscription_that_waits_for_the_broker_is_checked_against_the_rights_of_its_answer() {
    let doorkeeper = Doorkeeper::default();
    let (mut driver, handle, mut answers) = serve_late(config(), |_| doorkeeper.clone(), 7);
    let mut client = SimulatedClient::open(driver.network().connect(0), &[]);
    run(&mut driver);
    subscribe(&client, &["h.a"], 0);
    run(&mut driver);
    take_rights(&handle, &doorkeeper);
    run(&mut driver);
    settle(&mut driver, &mut answers);
    let said = client.receive_json();
    let answer = said.iter().find(|it| it["t"] == "subscription_update");
    let failures = &answer.expect("an answer")["p"]["failures"];
    assert_eq!(failures[0]["code"], "TOPIC_FORBIDDEN", "{said:?}");
}

#[test]
fn a_history_that_waits_for_the_broker_is_checked_against_the_rights_of_its_answer() {
    let doorkeeper = Doorkeeper::default();
    let (mut driver, handle, mut answers) = serve_late(config(), |_| doorkeeper.clone(), 7);
    let mut client = SimulatedClient::open(driver.network().connect(0), &[]);
    run(&mut driver);
    client.send(&json!({"t": "history_request", "cid": "h", "p": {"topic": "h.a"}}));
    run(&mut driver);
    take_rights(&handle, &doorkeeper);
    run(&mut driver);
    settle(&mut driver, &mut answers);
    let said = client.receive_json();
    let refusal = said.iter().find(|it| it["cid"] == "h").expect("an answer");
    let text = refusal.to_string();
    assert!(text.contains("TOPIC_FORBIDDEN"), "{text}");
}
