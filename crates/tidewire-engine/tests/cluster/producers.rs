//! Producers of several servers over one Redis: their numbers count on all of them.

use crate::common;

use common::cluster::{is_connected, shared_history};
use common::topics::{next, subscribe};
use common::{Client, connect_v1, start, wait_until};
use serde_json::{Value, json};
use tidewire_engine::apps::Echo;
use tidewire_engine::{Config, Server};
use tidewire_testkit::redis::RedisServer;
use tidewire_wire::close::CloseCode;

fn config(redis: &RedisServer) -> Config {
    shared_history(&redis.url(), 100)
}

/// Two servers that send back what the application accepts.
fn servers(config: &Config) -> [Server; 2] {
    [(); 2].map(|()| {
        let server = start(config.clone(), Echo);
        wait_until("a broker", || is_connected(&server));
        server
    })
}

fn hello() -> Value {
    json!({"t": "client_hello", "p": {"producer": {"id": "p"}}})
}

/// A session as the producer `p`, and its place: the epoch and the last number.
fn producer(server: &Server) -> (Client, Value, Value) {
    let mut client = connect_v1(server);
    let hello = client.ask(&hello());
    let place = hello["p"]["producer"].clone();
    assert_eq!(place["id"], "p", "{hello}");
    (client, place["epoch"].clone(), place["last"].clone())
}

fn send(client: &mut Client, number: u64) {
    client.send_text(&json!({"t": "count", "n": number, "p": {"n": number}}).to_string());
}

fn publication(number: u64) -> Value {
    let payload = json!({"topic": "h.a", "type": "count", "payload": {"n": number}});
    json!({"t": "publish_request", "n": number, "cid": number.to_string(), "p": payload})
}

/// Whether the application accepted a message before the number is acknowledged.
fn is_accepted(client: &mut Client, number: u64) -> bool {
    let mut came_back = false;
    loop {
        let message = client.next_json();
        match message["t"].as_str() {
            Some("count") => came_back = true,
            Some("message_ack") if message["p"]["last"] == number => return came_back,
            _ => panic!("{message}"),
        }
    }
}

#[test]
fn a_producer_goes_on_at_another_server() {
    let redis = RedisServer::start("");
    let [near, far] = servers(&config(&redis));
    let (mut older, epoch, last) = producer(&near);
    assert_eq!(last, 0);
    for number in 1..=2 {
        send(&mut older, number);
        assert!(is_accepted(&mut older, number));
    }
    let (mut newer, same, last) = producer(&far);
    assert_eq!((&same, last), (&epoch, json!(2)));
    send(&mut newer, 2);
    assert!(!is_accepted(&mut newer, 2), "it was accepted before");
    send(&mut newer, 4);
    assert!(!is_accepted(&mut newer, 2), "3 is missing");
    assert_eq!(newer.next_json()["p"]["code"], "MESSAGE_GAP");
    // The older connection learns it when it wants its next number acknowledged.
    send(&mut older, 3);
    let told = std::iter::repeat_with(|| older.next_json()).find(|told| told["t"] == "error");
    assert_eq!(told.expect("an error")["p"]["code"], "PRODUCER_SUPERSEDED");
    older.assert_closed(CloseCode::PRODUCER_SUPERSEDED);
    send(&mut newer, 3);
    assert!(is_accepted(&mut newer, 3));
    drop(newer);
    let (_, same, last) = producer(&near);
    assert_eq!((same, last), (epoch, json!(3)));
}

/// A hello acknowledges the number that it names, so Redis has to have it before.
#[test]
fn a_delayed_hello_does_not_replace_a_newer_connection_to_another_server() {
    let redis = RedisServer::start("");
    let [near, far] = servers(&config(&redis));
    let [mut delayed, mut newer] = [&near, &far].map(connect_v1);
    let hello = |instance: &str, attempt: u64| {
        let producer = json!({"id": "p", "instance": instance, "attempt": attempt});
        json!({"t": "client_hello", "p": {"producer": producer}})
    };
    let (this, restarted) = ("00c0ffee00c0ffee", "0badcafe0badcafe");
    assert_eq!(newer.ask(&hello(this, 2))["p"]["producer"]["last"], 0);
    let told = delayed.ask(&hello(this, 1));
    assert_eq!(told["p"]["code"], "PRODUCER_SUPERSEDED", "{told}");
    delayed.assert_closed(CloseCode::PRODUCER_SUPERSEDED);
    send(&mut newer, 1);
    assert!(is_accepted(&mut newer, 1));
    // A client that was started anew counts from the beginning.
    let mut next = connect_v1(&near);
    let hello = next.ask(&hello(restarted, 1));
    assert_eq!(hello["p"]["producer"]["last"], 1, "{hello}");
}

#[test]
fn a_hello_names_no_number_that_redis_does_not_have() {
    let redis = RedisServer::start("");
    let [near, far] = servers(&config(&redis));
    let (mut first, epoch, _) = producer(&near);
    send(&mut first, 1);
    assert!(is_accepted(&mut first, 1));
    redis.pause();
    // Redis is told of 2 at once; 3 has to wait for its answer.
    for number in [2, 3] {
        send(&mut first, number);
        assert_eq!(first.next_json()["n"], number);
    }
    drop(first);
    wait_until("the connection is gone", || {
        near.handle().connections() == 0
    });
    let mut second = connect_v1(&near);
    second.send_text(&hello().to_string());
    wait_until("the broker is asked", || {
        near.handle().counters().broker_pauses > 0
    });
    redis.go_on();
    let place = second.next_json()["p"]["producer"].clone();
    assert_eq!((&place["epoch"], &place["last"]), (&epoch, &json!(3)));
    let (_, same, last) = producer(&far);
    assert_eq!((same, last), (epoch, json!(3)));
}

#[test]
fn a_publication_without_an_answer_is_placed_once_by_two_servers() {
    let redis = RedisServer::start("");
    let [near, far] = servers(&config(&redis));
    let mut subscriber = connect_v1(&far);
    subscribe(&mut subscriber, json!(["h.a"]));
    let (mut first, _, _) = producer(&near);
    redis.pause();
    let pauses = near.handle().counters().broker_pauses;
    first.send_text(&publication(1).to_string());
    wait_until("the broker is asked", || {
        near.handle().counters().broker_pauses > pauses
    });
    drop(first);
    wait_until("the connection is gone", || {
        near.handle().connections() == 0
    });
    let mut second = connect_v1(&far);
    second.send_text(&hello().to_string());
    for number in [1, 2] {
        second.send_text(&publication(number).to_string());
    }
    redis.go_on();
    let answers = [(); 5].map(|()| second.next_json());
    let mut duplicates = answers.iter().filter(|it| it["t"] == "publish_response");
    assert_eq!(
        duplicates.next().expect("an answer")["p"]["duplicate"],
        true
    );
    assert_eq!(
        duplicates.next().expect("an answer")["p"]["duplicate"],
        false
    );
    for number in [1, 2] {
        assert_eq!(next(&mut subscriber), ("h.a".to_owned(), number));
    }
}

#[test]
fn without_redis_nothing_is_acknowledged_and_no_producer_is_opened() {
    let mut redis = RedisServer::start("");
    let mut short = config(&redis);
    if let Some(broker) = &mut short.broker {
        broker.wait_ms = 300;
    }
    let [near, far] = servers(&short);
    let (mut client, epoch, _) = producer(&near);
    send(&mut client, 1);
    assert!(is_accepted(&mut client, 1));
    redis.kill();
    wait_until("no broker", || !is_connected(&near) && !is_connected(&far));
    let mut refused = connect_v1(&far);
    let told = refused.ask(&hello());
    assert_eq!(told["p"]["code"], "BROKER_UNAVAILABLE", "{told}");
    refused.assert_closed(CloseCode::TRY_AGAIN_LATER);
    // The application gets it, and the answer to the next question comes without an acknowledgement.
    send(&mut client, 2);
    assert_eq!(client.next_json()["n"], 2);
    client.send_text(&json!({"t": "count", "p": {}}).to_string());
    assert_eq!(client.next_json()["t"], "count");
    // Redis has lost its memory. The connection knows where the producer stands, and tells it.
    redis.run();
    assert_eq!(client.next_json()["p"]["last"], 2);
    let (newer, same, last) = producer(&far);
    assert_eq!((&same, last), (&epoch, json!(2)));
    drop((client, newer));
    near.stop();
    far.stop();
    // Now nobody knows.
    redis.kill();
    redis.run();
    let [near, _far] = servers(&short);
    let (_, other, last) = producer(&near);
    assert_ne!(other, epoch);
    assert_eq!(last, 0);
}
