//! History for those who were not there: replays of subscriptions, and `history_request`.

use crate::common;

use common::topics::{next, open_topics, publish, subscribe};
use common::{Client, Opening, Said, connect_v1, start, wait_until};
use serde_json::{Value, json};
use tidewire_engine::apps::Sink;
use tidewire_engine::{AccessRules, Config, HistoryLimits, NewPublication, Rules, TopicRule};

fn with_history(publications_max: usize, last_value: bool) -> Config {
    let mut config = open_topics();
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits {
            publications_max,
            bytes_max: 64 << 20,
            age_max_ms: 0,
        }),
        last_value,
        ..TopicRule::new("a.>")
    }];
    config
}

/// Publishes numbers from 1 on, and returns when all have their place.
fn publish_all(client: &mut Client, topic: &str, count: u64) {
    for number in 1..=count {
        publish(client, topic, number);
    }
    assert_eq!(client.ask(&json!({"t": "ping"}))["t"], "PONG");
}

/// Subscribes to topics with these fields; the answer's payload.
fn subscribe_with(client: &mut Client, topics: Value, fields: Value) -> Value {
    let mut payload = json!({"action": "subscribe", "topics": topics});
    for (name, value) in fields.as_object().expect("fields") {
        payload[name] = value.clone();
    }
    let answer = client.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(answer["t"], "subscription_update", "{answer}");
    answer["p"].clone()
}

fn read(client: &mut Client, payload: Value) -> Value {
    client.ask(&json!({"t": "history_request", "cid": "h", "p": payload}))
}

/// Reads a history that there is; the answer's payload.
fn page(client: &mut Client, payload: Value) -> Value {
    let answer = read(client, payload);
    assert_eq!(
        (&answer["t"], &answer["cid"]),
        (&json!("history_response"), &json!("h")),
        "{answer}"
    );
    answer["p"].clone()
}

fn offsets(page: &Value) -> Vec<u64> {
    let publications = page["publications"].as_array().expect("publications");
    let offset = |publication: &Value| publication["o"].as_u64().expect("an offset");
    publications.iter().map(offset).collect()
}

fn next_offset(client: &mut Client) -> u64 {
    client.next_json()["o"].as_u64().expect("an offset")
}

#[test]
fn a_newcomer_gets_the_newest_publications_and_then_live_ones() {
    for last_value in [false, true] {
        let server = start(with_history(500, last_value), Sink);
        let mut publisher = connect_v1(&server);
        publish_all(&mut publisher, "a.x", 300);
        for (replay, count) in [(1, 1), (70, 70), (300, 300), (u64::MAX, 300)] {
            let mut client = connect_v1(&server);
            let answer = subscribe_with(&mut client, json!(["a.x"]), json!({"replay": replay}));
            let stands = &answer["recovery"]["a.x"];
            assert_eq!(
                (&stands["offset"], &stands["recovered"], &stands["count"]),
                (&json!(300), &json!(false), &json!(count))
            );
            for number in 301 - count..=300 {
                assert_eq!(next(&mut client), ("a.x".to_owned(), number));
            }
            // A second subscription changes nothing and replays nothing.
            subscribe_with(&mut client, json!(["a.x"]), json!({"replay": 5}));
            assert_eq!(client.ask(&json!({"t": "ping"}))["t"], "PONG");
        }
        let mut client = connect_v1(&server);
        subscribe_with(&mut client, json!(["a.x"]), json!({"replay": 2}));
        publish(&mut publisher, "a.x", 301);
        for number in 299..=301 {
            assert_eq!(next(&mut client).1, number);
        }
    }
}

#[test]
fn a_recovered_position_counts_more_than_a_replay() {
    let server = start(with_history(10, false), Sink);
    let mut publisher = connect_v1(&server);
    let stands = subscribe_with(&mut publisher, json!(["a.y"]), json!({"replay": 3}));
    assert_eq!(stands["recovery"]["a.y"]["count"], 0);
    publish_all(&mut publisher, "a.x", 30);
    let mut probe = connect_v1(&server);
    let answer = subscribe_with(&mut probe, json!(["a.x"]), json!({}));
    let epoch = answer["recovery"]["a.x"]["epoch"].clone();
    for (epoch, offset, recovered, first) in [
        (&epoch, 28, true, 29),
        (&epoch, 30, true, 31),
        (&epoch, 5, false, 28),
        (&json!("00000000"), 28, false, 28),
    ] {
        let mut client = connect_v1(&server);
        let fields = json!({
            "replay": 3, "recover": true, "recovery": {"a.x": {"epoch": epoch, "offset": offset}}
        });
        let answer = subscribe_with(&mut client, json!(["a.x"]), fields);
        let stands = &answer["recovery"]["a.x"];
        assert_eq!(
            (&stands["recovered"], &stands["count"]),
            (&json!(recovered), &json!(31 - first)),
            "{epoch} {offset}"
        );
        for offset in first..=30 {
            assert_eq!(next_offset(&mut client), offset);
        }
        assert_eq!(client.ask(&json!({"t": "ping"}))["t"], "PONG");
    }
}

#[test]
fn a_replay_is_filtered_and_passes_over_what_keeps_no_history() {
    let server = start(with_history(100, false), Sink);
    let mut client = connect_v1(&server);
    publish_all(&mut client, "a.x", 10);
    publish_all(&mut client, "plain", 10);
    let fields = json!({"replay": 4, "filter": {"n": {"$gte": 9}}});
    let topics = json!(["a.x", "plain", "a.*"]);
    let answer = subscribe_with(&mut client, topics.clone(), fields);
    assert_eq!(answer["success_topics"], topics);
    assert_eq!(answer["recovery"]["a.x"]["count"], 4);
    assert_eq!(answer["recovery"].as_object().expect("topics").len(), 1);
    assert_eq!(
        (next_offset(&mut client), next_offset(&mut client)),
        (9, 10)
    );
    assert_eq!(client.ask(&json!({"t": "ping"}))["t"], "PONG");

    let mut worker = connect_v1(&server);
    let fields = json!({"replay": 4, "queue_group": "g"});
    subscribe_with(&mut worker, json!(["a.x"]), fields);
    assert_eq!(worker.ask(&json!({"t": "ping"}))["t"], "PONG");
}

#[test]
fn a_history_is_read_in_both_directions_and_in_parts() {
    let server = start(with_history(250, false), Sink);
    let mut client = connect_v1(&server);
    publish_all(&mut client, "a.x", 300);
    let newest = page(
        &mut client,
        json!({"topic": "a.x", "limit": 3, "order": "newest"}),
    );
    assert_eq!(offsets(&newest), [300, 299, 298]);
    assert_eq!(
        (
            &newest["offset"],
            &newest["oldest"],
            &newest["more"],
            &newest["complete"]
        ),
        (&json!(300), &json!(51), &json!(true), &json!(true))
    );
    let publication = &newest["publications"][0];
    assert_eq!(
        (
            &publication["t"],
            &publication["tp"],
            &publication["p"],
            &publication["e"]
        ),
        (
            &json!("count"),
            &json!("a.x"),
            &json!({"n": 300}),
            &newest["epoch"]
        )
    );
    assert_eq!(newest["topic"], "a.x");
    for (order, first, parts) in [("oldest", 51, 3), ("newest", 300, 3)] {
        let mut seen = Vec::new();
        let mut since = Value::Null;
        for part in 1..=parts {
            let request = json!({"topic": "a.x", "order": order, "since": since});
            let answer = page(&mut client, request);
            assert_eq!(answer["more"], json!(part < parts), "{order} {part}");
            assert_eq!(answer["complete"], true);
            seen.extend(offsets(&answer));
            since = json!({"epoch": answer["epoch"], "offset": seen.last()});
        }
        assert_eq!((seen.len(), seen[0]), (250, first));
        seen.sort_unstable();
        assert!(seen.into_iter().eq(51..=300));
        let answer = page(
            &mut client,
            json!({"topic": "a.x", "order": order, "since": since}),
        );
        assert_eq!(
            (offsets(&answer), &answer["more"]),
            (Vec::new(), &json!(false))
        );
    }
    assert_eq!(server.handle().counters().subscriptions, 0);
}

#[test]
fn what_is_missing_before_an_answer_is_told() {
    let server = start(with_history(10, false), Sink);
    let mut client = connect_v1(&server);
    publish_all(&mut client, "a.x", 30);
    let epoch = page(&mut client, json!({"topic": "a.x"}))["epoch"].clone();
    for (order, epoch, offset, complete, first) in [
        ("oldest", &epoch, 20, true, Some(21)),
        ("oldest", &epoch, 19, false, Some(21)),
        ("oldest", &epoch, 30, true, None),
        ("oldest", &epoch, 31, false, None),
        ("oldest", &json!("00000000"), 20, false, None),
        ("newest", &epoch, 25, true, Some(24)),
        ("newest", &epoch, 21, true, None),
        ("newest", &epoch, 20, false, None),
        ("newest", &epoch, 1, true, None),
        ("newest", &epoch, 31, false, None),
        ("newest", &json!("nonsense"), 25, false, None),
    ] {
        let since = json!({"epoch": epoch, "offset": offset});
        let request = json!({"topic": "a.x", "order": order, "since": since});
        let answer = page(&mut client, request.clone());
        assert_eq!(answer["complete"], json!(complete), "{request}");
        assert_eq!(offsets(&answer).first().copied(), first, "{request}");
        assert_eq!(answer["more"], false, "{request}");
    }
    // A topic of which nothing is known has a position from then on.
    let empty = page(&mut client, json!({"topic": "a.empty"}));
    assert_eq!((&empty["offset"], &empty["oldest"]), (&json!(0), &json!(1)));
    assert_eq!(
        (offsets(&empty), &empty["more"]),
        (Vec::new(), &json!(false))
    );
    let again = page(&mut client, json!({"topic": "a.empty"}));
    assert_eq!(again["epoch"], empty["epoch"]);
}

#[test]
fn who_may_not_subscribe_may_not_read() {
    let mut config = with_history(10, false);
    config.topics.access = AccessRules {
        subscribe: Rules {
            allow: vec!["a.x".to_owned(), "plain".to_owned()],
            deny: Vec::new(),
        },
        ..AccessRules::open()
    };
    let server = start(config, Sink);
    let mut client = connect_v1(&server);
    for (payload, code) in [
        (json!({"topic": "a.y"}), "TOPIC_FORBIDDEN"),
        (json!({"topic": "a.*"}), "INVALID_SUBSCRIPTION"),
        (json!({"topic": "a..x"}), "INVALID_SUBSCRIPTION"),
        (json!({"topic": "plain"}), "NOT_FOUND"),
        (
            json!({"topic": "a.x", "limit": 1001}),
            "INVALID_SUBSCRIPTION",
        ),
        (
            json!({"topic": "a.x", "order": "up"}),
            "INVALID_SUBSCRIPTION",
        ),
    ] {
        let answer = read(&mut client, payload.clone());
        assert_eq!(
            (&answer["t"], &answer["cid"], &answer["p"]["code"]),
            (&json!("error"), &json!("h"), &json!(code)),
            "{payload}: {answer}"
        );
        assert_eq!(answer["p"]["recoverable"], true);
    }
    assert!(offsets(&page(&mut client, json!({"topic": "a.x"}))).is_empty());
    assert_eq!(server.handle().counters().history_requests, 5);
}

#[test]
fn an_answer_is_bounded_in_bytes_but_never_stuck() {
    let server = start(with_history(1_000, false), Sink);
    let handle = server.handle();
    let large = format!("\"{}\"", "x".repeat(100_000));
    for _ in 0..12 {
        let publication = NewPublication::new("large", large.clone());
        handle.publish("a.x", &publication).expect("room");
    }
    let huge = format!("\"{}\"", "y".repeat(700_000));
    handle
        .publish("a.x", &NewPublication::new("huge", huge))
        .expect("room");
    let mut client = connect_v1(&server);
    let (mut since, mut sizes) = (Value::Null, Vec::new());
    loop {
        let request = json!({"topic": "a.x", "since": since, "limit": 1000});
        let answer = page(&mut client, request);
        let found = offsets(&answer);
        sizes.push(found.len());
        if answer["more"] == false {
            break;
        }
        since = json!({"epoch": answer["epoch"], "offset": found.last()});
    }
    assert_eq!(sizes, [5, 5, 2, 1]);
}

#[test]
fn what_expired_is_left_out_and_the_deepest_payload_arrives() {
    let server = start(with_history(100, false), Sink);
    let handle = server.handle();
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let publish = |t: &str, payload: String, ttl_ms: Option<u64>| {
        let mut publication = NewPublication::new(t, payload);
        if let Some(ttl_ms) = ttl_ms {
            publication = publication.with_ttl_ms(ttl_ms);
        }
        handle.publish("a.x", &publication).expect("room");
    };
    publish("old", "1".to_owned(), Some(1));
    publish("deep", nested(60), None);
    let deeper = NewPublication::new("deeper", nested(61));
    assert!(handle.publish("a.x", &deeper).is_err());
    for format in ["json", "msgpack"] {
        let target = format!("/ws?format={format}");
        let mut client = Opening::new(server.address()).target(&target).open();
        let mut answer = Value::Null;
        // The first one expires in a moment.
        wait_until("the first one has expired", || {
            let request = json!({"t": "history_request", "cid": "h", "p": {"topic": "a.x"}});
            client.send_text(&request.to_string());
            answer = loop {
                let said = match client.next() {
                    Said::Text(text) => serde_json::from_str(&text).expect("JSON"),
                    Said::Binary(bytes) => unpacked(&bytes),
                    other => panic!("{other:?}"),
                };
                if said["t"] == "history_response" {
                    break said["p"].clone();
                }
            };
            offsets(&answer) == [2]
        });
        assert_eq!(answer["complete"], true);
        let deep = &answer["publications"][0];
        assert_eq!((&deep["t"], deep["p"].is_array()), (&json!("deep"), true));
    }
}

/// A message in MessagePack, as JSON.
fn unpacked(bytes: &[u8]) -> Value {
    let mut json = Vec::new();
    let packed = bytes.strip_prefix(b"M:").expect("MessagePack");
    tidewire_wire::format::msgpack_to_json(packed, &mut json).expect("a message");
    serde_json::from_slice(&json).expect("JSON")
}

#[test]
fn readers_and_a_busy_topic_leave_nothing_out() {
    let server = start(with_history(100_000, false), Sink);
    let handle = server.handle();
    let publisher = std::thread::spawn({
        let handle = handle.clone();
        move || {
            for number in 1..=20_000 {
                let payload = json!({ "n": number }).to_string();
                while handle
                    .publish("a.x", &NewPublication::new("count", payload.clone()))
                    .is_err()
                {
                    std::thread::yield_now();
                }
            }
        }
    });
    let readers: Vec<_> = (0..4)
        .map(|reader| {
            let mut client = connect_v1(&server);
            std::thread::spawn(move || {
                let replay = 700 * (reader + 1);
                let answer = subscribe_with(&mut client, json!(["a.x"]), json!({"replay": replay}));
                let stands = &answer["recovery"]["a.x"];
                let (offset, count) = (
                    stands["offset"].as_u64().expect("a position"),
                    stands["count"].as_u64().expect("a number"),
                );
                assert_eq!(count, offset.min(replay));
                for expected in offset - count + 1..=20_000 {
                    assert_eq!(next(&mut client).1, expected);
                }
            })
        })
        .collect();
    for reader in readers {
        reader.join().expect("nothing is left out");
    }
    publisher.join().expect("everything is published");
    let mut late = connect_v1(&server);
    subscribe(&mut late, json!(["a.x"]));
}
