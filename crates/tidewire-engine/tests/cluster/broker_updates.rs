//! News for clients of a broker that goes away and comes back.

use crate::common;

use common::cluster::{is_connected, shared_topics, start_connected};
use common::{Client, connect_v1, start, wait_until};
use serde_json::{Value, json};
use tidewire_engine::{Config, Server};
use tidewire_testkit::redis::RedisServer;

fn greet(client: &mut Client, features: Value) -> Value {
    client.ask(&json!({"t": "client_hello", "p": {"features": features}}))["p"]["features"].take()
}

/// A client that wants to know.
fn knowing(server: &Server) -> Client {
    let mut client = connect_v1(server);
    let features = greet(&mut client, json!({"broker_updates": true}));
    assert_eq!(features["broker_updates"], true, "{features}");
    client
}

fn assert_told(client: &mut Client, is_away: bool) {
    let told = client.next_json();
    assert_eq!(told["t"], "health_check_response", "{told}");
    assert_eq!(told["p"]["broker_away"], is_away, "{told}");
    assert_eq!(told["p"]["status"], "healthy", "{told}");
    assert!(told["cid"].is_null(), "{told}");
}

#[test]
fn clients_that_ask_for_it_are_told_that_the_broker_is_away_and_is_back() {
    let mut redis = RedisServer::start("");
    let server = start_connected(shared_topics(&redis.url()));
    let mut told = knowing(&server);
    // Clients of an earlier version, with a hello and without.
    let mut silent = [connect_v1(&server), connect_v1(&server)];
    let features = greet(&mut silent[0], json!({"calls": true}));
    assert_eq!(features["calls"], true);
    redis.kill();
    assert_told(&mut told, true);
    // Who comes in the meantime is told at once, and a request says the same.
    let mut late = knowing(&server);
    assert_told(&mut late, true);
    let health = late.ask(&json!({"t": "health_check", "cid": "1"}));
    assert_eq!(
        (&health["cid"], &health["p"]["broker_away"]),
        (&json!("1"), &json!(true))
    );
    // A second hello repeats nothing.
    greet(&mut late, json!({"broker_updates": true}));
    redis.run();
    wait_until("a broker", || is_connected(&server));
    assert_told(&mut told, false);
    assert_told(&mut late, false);
    let mut new = knowing(&server);
    for client in silent.iter_mut().chain([&mut told, &mut late, &mut new]) {
        let next = client.ask(&json!({"t": "ping"}));
        assert_eq!(next["t"], "PONG", "nothing else was told: {next}");
    }
}

#[test]
fn clients_of_a_server_that_begins_without_its_broker_are_told() {
    let mut redis = RedisServer::start("");
    redis.kill();
    let server = start(shared_topics(&redis.url()), tidewire_engine::apps::Sink);
    let mut client = knowing(&server);
    assert_told(&mut client, true);
    redis.run();
    assert_told(&mut client, false);
}

#[test]
fn a_server_without_a_broker_offers_no_news_of_it() {
    let server = start(Config::default(), tidewire_engine::apps::Sink);
    let mut client = connect_v1(&server);
    let features = greet(&mut client, json!({"broker_updates": true}));
    assert!(features.get("broker_updates").is_none(), "{features}");
    let health = client.ask(&json!({"t": "health_check", "cid": "1"}));
    assert!(health["p"].get("broker_away").is_none(), "{health}");
}
