//! Subscribers that do not keep up.

use crate::common;

use common::topics::open_topics;
use common::{Client, Said, connect_v1, start, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidewire_engine::apps::Sink;
use tidewire_engine::{Config, HistoryLimits, NewPublication, Overload, Server, TopicRule};

/// More than the sockets of a connection hold.
const PUBLICATIONS: u64 = 1_000;
const PAYLOAD_BYTES: usize = 60_000;

fn with_history() -> Config {
    let mut config = open_topics();
    config.topics.limits.lag_publications_max = 20;
    config.topics.limits.lag_bytes_max = 64 << 20;
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits {
            publications_max: 1,
            bytes_max: 1 << 20,
            age_max_ms: 0,
        }),
        ..TopicRule::new(">")
    }];
    config
}

fn subscribe_with(client: &mut Client, overload: &str) {
    let payload = json!({"action": "subscribe", "topics": ["a"], "overload": overload});
    let answer = client.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(answer["p"]["success_topics"], json!(["a"]));
}

/// Publishes more than waits anywhere; the key of each is its number modulo 3.
fn flood(server: &Server) {
    let handle = server.handle();
    let filling = "x".repeat(PAYLOAD_BYTES);
    for number in 1..=PUBLICATIONS {
        let payload = format!(r#"{{"n":{number},"x":"{filling}"}}"#);
        let news = NewPublication::new("count", payload).with_key((number % 3).to_string());
        wait_until("there is room", || handle.publish("a", &news).is_ok());
    }
    let delivered = || handle.counters().deliveries + handle.counters().publications_dropped;
    wait_until("all are sent, wait or are dropped", || {
        delivered() > PUBLICATIONS - 60
    });
}

/// The offsets of the publications and of the gaps in between, until the last publication.
fn read_all(client: &mut Client) -> (Vec<u64>, Vec<Value>) {
    let (mut offsets, mut gaps) = (Vec::new(), Vec::new());
    while offsets.last() != Some(&PUBLICATIONS) {
        let message = client.next_json();
        if message["t"] == "publication_gap" {
            gaps.push(message["p"].clone());
        } else if message["t"] == "count" {
            offsets.push(message["o"].as_u64().expect("an offset"));
        }
    }
    (offsets, gaps)
}

#[test]
fn the_oldest_are_dropped_and_the_gap_names_them() {
    let server = start(with_history(), Sink);
    let mut client = connect_v1(&server);
    subscribe_with(&mut client, "drop_oldest");
    flood(&server);
    let (offsets, gaps) = read_all(&mut client);
    assert!(offsets.is_sorted());
    assert!(!gaps.is_empty());
    let mut known: BTreeSet<u64> = offsets.iter().copied().collect();
    let mut count = 0;
    for gap in &gaps {
        assert_eq!(gap["reason"], "dropped");
        let (from, to) = (gap["from"].as_u64().unwrap(), gap["to"].as_u64().unwrap());
        assert_eq!(gap["count"], to - from + 1);
        count += to - from + 1;
        known.extend(from..=to);
    }
    assert_eq!(
        known.len() as u64,
        PUBLICATIONS,
        "nothing is missing in silence"
    );
    assert_eq!(
        count + offsets.len() as u64,
        PUBLICATIONS,
        "nothing comes that was dropped"
    );
    let counters = server.handle().counters();
    assert_eq!(counters.publications_dropped, count);
    assert_eq!(counters.gaps_reported as usize, gaps.len());
}

#[test]
fn of_each_key_the_newest_comes() {
    let server = start(with_history(), Sink);
    let mut client = connect_v1(&server);
    subscribe_with(&mut client, "conflate");
    flood(&server);
    let (offsets, gaps) = read_all(&mut client);
    assert!(gaps.iter().any(|gap| gap["reason"] == "conflated"));
    let newest = &offsets[offsets.len() - 3..];
    let last: Vec<u64> = (PUBLICATIONS - 2..=PUBLICATIONS).collect();
    assert_eq!(newest, last);
    let missing: u64 = gaps.iter().map(|gap| gap["count"].as_u64().unwrap()).sum();
    assert_eq!(missing + offsets.len() as u64, PUBLICATIONS);
}

#[test]
fn without_a_policy_the_connection_ends() {
    let mut config = open_topics();
    config.limits.outbox_bytes_max = 1 << 20;
    let server = start(config, Sink);
    let mut slow = connect_v1(&server);
    let mut quick = connect_v1(&server);
    for client in [&mut slow, &mut quick] {
        common::topics::subscribe(client, json!(["a"]));
    }
    let handle = server.handle();
    let read = Arc::new(AtomicU64::new(0));
    let reading = Arc::clone(&read);
    let reader = std::thread::spawn(move || {
        for number in 1..=PUBLICATIONS {
            assert_eq!(quick.next_json()["p"]["n"], number);
            reading.store(number, Ordering::Relaxed);
        }
    });
    let filling = "x".repeat(PAYLOAD_BYTES);
    for number in 1..=PUBLICATIONS {
        let news = NewPublication::new("count", format!(r#"{{"n":{number},"x":"{filling}"}}"#));
        wait_until("there is room", || handle.publish("a", &news).is_ok());
        if number % 8 == 0 {
            wait_until("the quick one has read it", || {
                read.load(Ordering::Relaxed) >= number
            });
        }
    }
    reader.join().expect("the quick one gets everything");
    wait_until("the slow one is gone", || {
        handle.counters().outbox_overflows == 1
    });
    let mut last = 0;
    loop {
        match slow.next() {
            Said::Text(text) => {
                let message: Value = serde_json::from_str(&text).expect("JSON");
                let number = message["p"]["n"].as_u64().expect("a number");
                assert_eq!(number, last + 1);
                last = number;
            }
            end => break assert!(matches!(end, Said::End | Said::Reset), "{end:?}"),
        }
    }
}

#[test]
fn a_topic_has_a_policy_for_those_who_name_none() {
    let mut config = with_history();
    config.topics.rules[0].overload = Overload::DropOldest;
    let server = start(config, Sink);
    let mut client = connect_v1(&server);
    common::topics::subscribe(&mut client, json!(["a"]));
    flood(&server);
    let (_, gaps) = read_all(&mut client);
    assert!(!gaps.is_empty());
}

/// The number in the next publication that has one.
fn number_of(client: &mut Client) -> u64 {
    loop {
        let message = client.next_json();
        if message["t"] == "count" {
            return message["p"]["n"].as_u64().expect("a number");
        }
    }
}

#[test]
fn what_is_volatile_is_for_connections_that_keep_up() {
    let mut config = open_topics();
    config.limits.outbox_bytes_max = 256 << 20;
    config.topics.limits.lag_bytes_max = 64 << 20;
    let server = start(config, Sink);
    let mut quick = connect_v1(&server);
    common::topics::subscribe(&mut quick, json!(["a"]));
    let mut slow = [connect_v1(&server), connect_v1(&server)];
    common::topics::subscribe(&mut slow[0], json!(["a", "b"]));
    common::topics::subscribe(&mut slow[1], json!(["b"]));
    subscribe_with(&mut slow[1], "conflate");
    let handle = server.handle();
    let skipped = || handle.counters().deliveries_skipped;
    let news = |number: u64| NewPublication::new("count", format!(r#"{{"n":{number}}}"#));
    // As long as all keep up, all get it.
    handle.publish("a", &news(1).as_volatile()).expect("a room");
    for client in [&mut quick].into_iter().chain(&mut slow) {
        assert_eq!(number_of(client), 1);
    }
    // More than sockets hold, of which the quick one gets nothing.
    let filling = NewPublication::new("filling", format!(r#""{}""#, "x".repeat(PAYLOAD_BYTES)));
    for _ in 0..PUBLICATIONS / 4 {
        wait_until("there is room", || handle.publish("b", &filling).is_ok());
    }
    let delivered = || handle.counters().deliveries;
    wait_until("the first one lags", || delivered() > PUBLICATIONS / 4);
    let mut sent = 0;
    wait_until("both lag", || {
        sent += 1;
        let volatile = news(1 + sent).as_volatile();
        handle.publish("a", &volatile).is_ok() && skipped() >= 2
    });
    let everyone = news(2 + sent).as_volatile();
    handle.publish_to_everyone(&everyone).expect("a room");
    handle.publish("a", &news(3 + sent)).expect("a room");
    let mut numbers = Vec::new();
    let all: Vec<u64> = (2..=3 + sent).collect();
    while numbers.len() < all.len() {
        numbers.push(number_of(&mut quick));
    }
    // A message to everybody has no order among those of a topic.
    numbers.sort_unstable();
    assert_eq!(numbers, all, "who keeps up gets everything");
    for client in &mut slow {
        let mut last = 0;
        while last != 3 + sent {
            last = number_of(client);
            assert_ne!(last, 2 + sent, "nobody who lags gets it, however late");
        }
    }
    assert!(skipped() >= 4);
}

#[test]
fn a_topic_with_history_has_nothing_volatile() {
    let server = start(with_history(), Sink);
    let handle = server.handle();
    let volatile = NewPublication::new("count", "1").as_volatile();
    let refused = handle.publish("a", &volatile);
    assert_eq!(refused, Err(tidewire_engine::PublishError::Volatile));
}
