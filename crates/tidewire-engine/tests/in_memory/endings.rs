//! Sessions with many subscriptions that end: they leave in slices, and whoever comes next is not mixed up with them.

use crate::common;

use common::Said;
use common::simulated::{SimulatedClient, serve};
use common::topics::open_topics;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tidewire_engine::Handle;
use tidewire_engine::apps::Sink;
use tidewire_net::Handler;
use tidewire_testkit::simulation::Driver;

const TOPICS: usize = 9_000;
/// The work of one connection in a turn, and one request for a thousand topics more.
const WORK_US_MAX: u64 = 4_000 + 3_000;

fn simulated() -> (Driver<impl Handler>, Handle) {
    let mut config = open_topics();
    config.shards = 1;
    serve(config, |_| Sink)
}

fn open(driver: &mut Driver<impl Handler>) -> SimulatedClient {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 40_000);
    let end = driver.network().connect_from(0, address);
    SimulatedClient::open(end, &[])
}

fn subscribe(client: &SimulatedClient, numbers: std::ops::Range<usize>) {
    for start in numbers.clone().step_by(1_000) {
        let end = numbers.end.min(start + 1_000);
        let topics: Vec<String> = (start..end).map(|number| format!("t.{number}")).collect();
        let payload = json!({"action": "subscribe", "topics": topics});
        client.send(&json!({"t": "subscription_update", "p": payload}));
    }
}

fn publish(client: &SimulatedClient, number: usize) {
    let payload = json!({"topic": format!("t.{number}"), "type": "x", "payload": {"n": number}});
    client.send(&json!({"t": "publish_request", "p": payload}));
}

/// The numbers of the publications among what has arrived.
fn numbers(client: &mut SimulatedClient) -> Vec<u64> {
    let publication = |said| match said {
        Said::Text(text) => {
            let message: Value = serde_json::from_str(&text).expect("JSON");
            (message["t"] == "x").then(|| message["p"]["n"].as_u64().expect("a number"))
        }
        _ => None,
    };
    client
        .receive()
        .into_iter()
        .filter_map(publication)
        .collect()
}

#[test]
fn a_session_with_many_subscriptions_leaves_in_slices() {
    let (mut driver, handle) = simulated();
    let mut ended = open(&mut driver);
    let mut other = open(&mut driver);
    subscribe(&ended, 0..TOPICS);
    subscribe(&other, 0..1);
    driver.run_until(1_000);
    assert_eq!(handle.counters().subscriptions, TOPICS as u64 + 1);
    assert_eq!(numbers(&mut ended).len() + numbers(&mut other).len(), 0);
    ended.end.close();
    driver.run_until(1_001);
    publish(&other, 0);
    driver.run_until(2_000);
    let counters = handle.counters();
    assert_eq!((counters.subscriptions, counters.topics), (1, 1));
    assert_eq!(numbers(&mut other), [0]);
    assert!(counters.work_peak_us <= WORK_US_MAX, "{counters:?}");
}

/// The place of its connection in the tables, and the part of its number that they keep, are given to another that wants
/// the same topics, before it has left them all.
#[test]
fn who_comes_next_is_another_session() {
    let (mut driver, handle) = simulated();
    let ended = open(&mut driver);
    let other = open(&mut driver);
    let fillers: Vec<_> = (0..254).map(|_| open(&mut driver)).collect();
    subscribe(&ended, 0..TOPICS);
    driver.run_until(5_000);
    let all = handle.counters().subscriptions;
    assert_eq!(all, TOPICS as u64);
    ended.end.close();
    while handle.counters().subscriptions == all {
        assert!(driver.step());
    }
    assert!(handle.counters().subscriptions > all / 2, "too late");
    let mut next = open(&mut driver);
    // It leaves the newest first, and is still in these.
    subscribe(&next, 0..1_000);
    driver.run_until(6_000);
    let ids = [&ended, &next].map(|client| client.end.connection().expect("an id"));
    assert_eq!(ids[0].index(), ids[1].index());
    assert_eq!(ids[0].generation() % 256, ids[1].generation() % 256);
    for number in [0, 999, TOPICS - 1] {
        publish(&other, number);
    }
    driver.run_until(7_000);
    assert_eq!(numbers(&mut next), [0, 999]);
    assert_eq!(handle.counters().subscriptions, 1_000);
    next.end.close();
    driver.run_until(8_000);
    let counters = handle.counters();
    assert_eq!((counters.subscriptions, counters.topics), (0, 0));
    drop(fillers);
}

/// A close that the server has begun: nothing is sent behind it, though the session is still in some topics.
#[test]
fn nothing_follows_the_close_of_a_session_that_leaves() {
    let (mut driver, handle) = simulated();
    let mut ended = open(&mut driver);
    let other = open(&mut driver);
    subscribe(&ended, 0..TOPICS);
    driver.run_until(1_000);
    ended.receive();
    // The end of an idle session: it has said nothing for longer than it may.
    let mut said = Vec::new();
    for now_ms in (1_000..100_000).step_by(1_000) {
        publish(&other, 0);
        publish(&other, TOPICS - 1);
        driver.run_until(now_ms);
        said.extend(ended.receive());
    }
    let close = said.iter().position(|said| matches!(said, Said::Close(..)));
    let close = close.expect("a close");
    assert!(close > 0);
    assert_eq!(close, said.len() - 1, "{:?}", &said[close..]);
    assert_eq!(handle.counters().subscriptions, 0);
}
