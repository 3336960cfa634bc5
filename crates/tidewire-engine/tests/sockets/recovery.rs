//! History: what a subscriber gets that was away.

use crate::common;
use crate::common::wait_until;

use common::topics::{next, open_topics, publish, subscribe};
use common::{Client, connect_v1, start};
use serde_json::{Value, json};
use tidewire_engine::apps::Sink;
use tidewire_engine::{Config, HistoryLimits, HistoryQuery, TopicRule};

fn with_history(publications_max: usize, last_value: bool) -> Config {
    let mut config = open_topics();
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits {
            publications_max,
            bytes_max: 1 << 20,
            age_max_ms: 0,
        }),
        last_value,
        ..TopicRule::new("a.>")
    }];
    config
}

/// Subscribes to `a.x` from a position on; what the answer says of it.
fn recover(client: &mut Client, position: Option<&Value>) -> Value {
    let mut payload = json!({"action": "subscribe", "topics": ["a.x"], "recover": true});
    if let Some(position) = position {
        payload["recovery"] =
            json!({ "a.x": {"epoch": position["epoch"], "offset": position["offset"]} });
    }
    let answer = client.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(answer["p"]["success_topics"], json!(["a.x"]), "{answer}");
    answer["p"]["recovery"]["a.x"].clone()
}

#[test]
fn who_saw_nothing_yet_can_recover_too() {
    let server = start(with_history(100, false), Sink);
    let (mut publisher, mut client) = (connect_v1(&server), connect_v1(&server));
    let stands = recover(&mut client, None);
    assert_eq!(
        (&stands["offset"], &stands["recovered"]),
        (&json!(0), &json!(false))
    );
    drop(client);
    for number in 1..=3 {
        publish(&mut publisher, "a.x", number);
    }
    subscribe(&mut publisher, json!(["a.y"]));
    let mut client = connect_v1(&server);
    let recovered = recover(&mut client, Some(&stands));
    assert_eq!(
        (&recovered["recovered"], &recovered["count"]),
        (&json!(true), &json!(3))
    );
    assert_eq!(recovered["offset"], 3);
    for number in 1..=3 {
        let message = client.next_json();
        assert_eq!(
            (&message["o"], &message["p"]["n"]),
            (&json!(number), &json!(number))
        );
        assert_eq!(message["e"], stands["epoch"]);
    }
    publish(&mut publisher, "a.x", 4);
    assert_eq!(client.next_json()["o"], 4);
}

#[test]
fn a_recovery_is_complete_or_says_that_it_is_not() {
    let server = start(with_history(2, false), Sink);
    let mut publisher = connect_v1(&server);
    let stands = recover(&mut connect_v1(&server), None);
    for number in 1..=3 {
        publish(&mut publisher, "a.x", number);
    }
    subscribe(&mut publisher, json!(["a.y"]));
    for (offset, epoch, count) in [
        (0, &stands["epoch"], None),
        (1, &stands["epoch"], Some(2)),
        (3, &stands["epoch"], Some(0)),
        (4, &stands["epoch"], None),
        (2, &json!("00000000"), None),
        (2, &json!("nonsense"), None),
    ] {
        let mut client = connect_v1(&server);
        let answer = recover(
            &mut client,
            Some(&json!({"epoch": epoch, "offset": offset})),
        );
        assert_eq!(
            answer["recovered"],
            json!(count.is_some()),
            "{offset} {epoch}"
        );
        assert_eq!(
            answer["count"],
            json!(count.unwrap_or(0)),
            "{offset} {epoch}"
        );
        for number in 0..count.unwrap_or(0) {
            assert_eq!(client.next_json()["o"], offset + 1 + number);
        }
        publish(&mut client, "a.y", 1);
        publish(&mut publisher, "elsewhere", 1);
        assert_eq!(client.ask(&json!({"t": "ping"}))["t"], "PONG");
    }
}

#[test]
fn the_newest_value_comes_at_once() {
    let server = start(with_history(10, true), Sink);
    let mut client = connect_v1(&server);
    for number in 1..=3 {
        publish(&mut client, "a.x", number);
    }
    let stands = recover(&mut client, None);
    assert_eq!(
        (&stands["recovered"], &stands["count"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(next(&mut client).1, 3);
    publish(&mut client, "a.x", 4);
    assert_eq!(next(&mut client).1, 4);
}

#[test]
fn what_is_too_old_is_not_sent() {
    let server = start(with_history(10, false), Sink);
    let (mut publisher, mut client) = (connect_v1(&server), connect_v1(&server));
    let stands = recover(&mut client, None);
    drop(client);
    let payload = json!({"topic": "a.x", "type": "count", "payload": {"n": 1}, "ttl_ms": 1});
    publisher.send_text(&json!({"t": "publish_request", "p": payload}).to_string());
    publish(&mut publisher, "a.x", 2);
    subscribe(&mut publisher, json!(["a.y"]));
    std::thread::sleep(std::time::Duration::from_millis(20));
    let mut client = connect_v1(&server);
    recover(&mut client, Some(&stands));
    let gap = client.next_json();
    assert_eq!(
        (&gap["t"], &gap["p"]["reason"]),
        (&json!("publication_gap"), &json!("expired"))
    );
    assert_eq!((&gap["p"]["from"], &gap["p"]["to"]), (&json!(1), &json!(1)));
    assert_eq!(client.next_json()["o"], 2);
}

#[test]
fn the_application_looks_into_history_and_ends_it() {
    let server = start(with_history(10, false), Sink);
    let mut client = connect_v1(&server);
    let stands = recover(&mut client, None);
    for number in 1..=3 {
        publish(&mut client, "a.x", number);
        next(&mut client);
    }
    let handle = server.handle();
    let query = HistoryQuery {
        since: None,
        limit: 2,
        newest_first: true,
    };
    let page = handle.history("a.x", query).expect("no broker to wait for");
    let page = page.expect("a topic with history");
    let offsets: Vec<_> = page
        .publications
        .iter()
        .map(|kept| kept.position.offset)
        .collect();
    assert_eq!((offsets, page.more), (vec![3, 2], true));
    assert!(page.publications[0].json.contains(r#""p":{"n":3}"#));
    assert_eq!(handle.history("elsewhere", query), Ok(None));
    // What has expired is left out, also where it fills pages.
    for number in 4..=6 {
        let brief = json!({"topic": "a.x", "type": "count", "payload": {"n": number}, "ttl_ms": 1});
        client.send_text(&json!({"t": "publish_request", "p": brief}).to_string());
    }
    wait_until("the last three have expired", || {
        let page = handle.history("a.x", query).expect("no broker to wait for");
        let page = page.expect("a topic with history");
        let kept = page.publications.iter().map(|kept| kept.position.offset);
        let stands = page.position.map(|position| position.offset);
        stands == Some(6) && kept.collect::<Vec<_>>() == [3]
    });
    assert_eq!(handle.forget_history("a.x"), Ok(true));
    let mut late = connect_v1(&server);
    let answer = recover(&mut late, Some(&stands));
    assert_eq!(
        (&answer["recovered"], &answer["offset"]),
        (&json!(false), &json!(0))
    );
    assert_ne!(answer["epoch"], stands["epoch"]);
}
