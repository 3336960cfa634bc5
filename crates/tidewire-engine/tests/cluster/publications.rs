//! Several servers over one Redis: one order of each topic, recovery anywhere, and what clients see
//! when Redis goes away. Each test starts a `redis-server` of its own.

use crate::common;

use common::cluster::{is_connected, partitions, shared_topics, start_connected};
use common::topics::{next, publish, subscribe, update};
use common::{Client, Opening, SECRET, connect_v1, token, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tidewire_engine::{
    Config, HistoryLimits, HistoryQuery, NewPublication, PublishError, Scope, Server, TopicRule,
};
use tidewire_testkit::redis::RedisServer;

/// `h.>` keeps history, `last.>` the newest, `node.>` is each server's own.
fn config(redis: &RedisServer) -> Config {
    let mut config = shared_topics(&redis.url());
    config.topics.rules = vec![
        TopicRule {
            history: Some(HistoryLimits::of(1_000)),
            ..TopicRule::new("h.>")
        },
        TopicRule {
            history: Some(HistoryLimits::of(1)),
            last_value: true,
            ..TopicRule::new("last.>")
        },
        TopicRule {
            scope: Scope::Node,
            ..TopicRule::new("node.>")
        },
    ];
    config
}

fn cluster(redis: &RedisServer) -> [Server; 2] {
    [(); 2].map(|()| start_connected(config(redis)))
}

/// The count of a server's link, as of a moment after this call.
fn count(server: &Server, name: &str) -> u64 {
    let handle = server.handle();
    let counts = || {
        let health = handle.broker_health().expect("a broker");
        BTreeMap::from_iter(health.counts)
    };
    // Two probes, one each second: the first may have been counted before.
    let probes = counts()["probes"];
    wait_until("probes", || counts()["probes"] >= probes + 2 * partitions());
    counts()[name]
}

/// Publishes and waits for the answer's payload.
fn publish_and_wait(client: &mut Client, topic: &str, number: u64) -> Value {
    let payload = json!({"topic": topic, "type": "count", "payload": {"n": number}});
    client.send_text(&json!({"t": "publish_request", "cid": "1", "p": payload}).to_string());
    // A subscriber may get the publication first.
    let answer = client.next_json();
    answer["p"].clone()
}

/// Subscribes from a position on; the topic's part of the recovery.
fn recover(client: &mut Client, topic: &str, since: &Value) -> Value {
    let payload = json!({
        "action": "subscribe", "topics": [topic], "recover": true, "recovery": {topic: since},
    });
    let answer = client.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(answer["p"]["success_topics"], json!([topic]), "{answer}");
    answer["p"]["recovery"][topic].clone()
}

#[test]
fn a_publication_reaches_the_subscribers_of_every_server() {
    let redis = RedisServer::start("");
    let servers = cluster(&redis);
    let mut near = connect_v1(&servers[0]);
    let mut far = connect_v1(&servers[1]);
    for client in [&mut near, &mut far] {
        subscribe(client, json!(["h.a", "plain", "node.a"]));
    }
    let mut publisher = connect_v1(&servers[0]);
    for topic in ["h.a", "plain"] {
        let answer = publish_and_wait(&mut publisher, topic, 1);
        assert_eq!(answer["duplicate"], false, "{answer}");
        assert_eq!(answer["offset"].is_null(), topic == "plain", "{answer}");
        assert_eq!(next(&mut near), (topic.to_owned(), 1));
        assert_eq!(next(&mut far), (topic.to_owned(), 1));
    }
    publish(&mut publisher, "node.a", 2);
    assert_eq!(next(&mut near), ("node.a".to_owned(), 2));
    publish_and_wait(&mut publisher, "h.a", 3);
    assert_eq!(
        next(&mut far),
        ("h.a".to_owned(), 3),
        "nothing came of node.a"
    );
}

#[test]
fn publishers_of_two_servers_have_one_order() {
    const EACH: u64 = 500;
    let redis = RedisServer::start("");
    let servers = cluster(&redis);
    let mut subscribers = [connect_v1(&servers[0]), connect_v1(&servers[1])];
    for client in &mut subscribers {
        subscribe(client, json!(["h.a"]));
    }
    std::thread::scope(|scope| {
        for (number, server) in servers.iter().enumerate() {
            scope.spawn(move || {
                let mut publisher = connect_v1(server);
                for count in 0..EACH {
                    publish(&mut publisher, "h.a", number as u64 * EACH + count);
                }
                // Answered behind all of them.
                publish_and_wait(&mut publisher, "other", 0);
            });
        }
    });
    let mut orders = subscribers.map(|mut client| {
        let all = (0..2 * EACH).map(|expected| {
            let message = client.next_json();
            assert_eq!(message["o"], expected + 1, "{message}");
            message["p"]["n"].as_u64().expect("a number")
        });
        all.collect::<Vec<_>>()
    });
    assert_eq!(orders[0], orders[1]);
    // Each publisher's own order is in it.
    let [order, _] = &mut orders;
    for publisher in 0..2 {
        let own = order.iter().filter(|number| *number / EACH == publisher);
        assert!(own.is_sorted());
    }
}

#[test]
fn a_client_recovers_at_another_server() {
    let redis = RedisServer::start("");
    let servers = cluster(&redis);
    let mut client = connect_v1(&servers[0]);
    subscribe(&mut client, json!(["h.a"]));
    let mut publisher = connect_v1(&servers[0]);
    let first = publish_and_wait(&mut publisher, "h.a", 1);
    assert_eq!(next(&mut client).1, 1);
    drop(client);
    for number in 2..=40 {
        publish_and_wait(&mut publisher, "h.a", number);
    }
    // The other server has never had a subscriber of it: it reads the broker.
    let begun = count(&servers[1], "reads");
    let since = json!({"epoch": first["epoch"], "offset": 1});
    let mut elsewhere = connect_v1(&servers[1]);
    let recovery = recover(&mut elsewhere, "h.a", &since);
    assert_eq!(
        (&recovery["recovered"], &recovery["count"]),
        (&json!(true), &json!(39))
    );
    for number in 2..=40 {
        assert_eq!(next(&mut elsewhere).1, number);
    }
    publish_and_wait(&mut publisher, "h.a", 41);
    assert_eq!(next(&mut elsewhere).1, 41);
    // Somebody else there needs no question to the broker.
    let before = count(&servers[1], "reads");
    assert_eq!(before, begun + 1);
    for _ in 0..20 {
        let mut warm = connect_v1(&servers[1]);
        assert_eq!(recover(&mut warm, "h.a", &since)["count"], 40);
    }
    assert_eq!(count(&servers[1], "reads"), before);
}

#[test]
fn a_newcomer_gets_the_last_value_and_the_history_from_any_server() {
    let redis = RedisServer::start("");
    let servers = cluster(&redis);
    let mut publisher = connect_v1(&servers[0]);
    for number in 1..=3 {
        publish_and_wait(&mut publisher, "last.a", number);
        publish_and_wait(&mut publisher, "h.a", number);
    }
    let mut client = connect_v1(&servers[1]);
    update(&mut client, "subscribe", json!(["last.a"]));
    assert_eq!(next(&mut client), ("last.a".to_owned(), 3));
    let page = servers[1].handle().history("h.a", OLDEST);
    let page = page.expect("a broker").expect("a history");
    assert_eq!(page.publications.len(), 3);
    assert_eq!(servers[1].handle().forget_history("h.a"), Ok(true));
    let page = servers[0].handle().history("h.a", OLDEST);
    assert_eq!(
        page.expect("a broker")
            .expect("a history")
            .publications
            .len(),
        0
    );
}

#[test]
fn an_id_is_published_once_by_whichever_server() {
    let redis = RedisServer::start("");
    let servers = cluster(&redis);
    let publication = NewPublication::new("count", r#"{"n":1}"#).with_id("one");
    let places = [0, 1, 0].map(|server: usize| {
        let handle = servers[server].handle();
        handle.publish("h.a", &publication).expect("a broker")
    });
    assert_eq!(places.map(|place| place.is_duplicate), [false, true, true]);
    assert!(
        places
            .iter()
            .all(|place| place.position == places[0].position)
    );
}

#[test]
fn nothing_is_lost_while_redis_is_killed_and_started_again() {
    // With several partitions it is in another than the first.
    const TOPIC: &str = "h.b";
    let mut redis = RedisServer::start("--appendonly yes --appendfsync always");
    let mut durable = config(&redis);
    // 1,000 kills take minutes, in which these clients answer no pings.
    durable.limits.ping_interval_ms = 3_600_000;
    durable.limits.idle_timeout_ms = 3_600_000;
    if let Some(broker) = &mut durable.broker {
        broker.is_durable = true;
        broker.wait_ms = 30_000;
    }
    let servers = [start_connected(durable.clone()), start_connected(durable)];
    let mut subscriber = connect_v1(&servers[1]);
    subscribe(&mut subscriber, json!([TOPIC]));
    let mut publisher = connect_v1(&servers[0]);
    let (mut number, mut seen) = (0, 0);
    // How often Redis is killed; `make kill-test` does it 1,000 times.
    let kills = std::env::var("TIDEWIRE_KILLS");
    let kills = kills.map_or(20, |kills| kills.parse().expect("a number"));
    for kill in 0..kills {
        if kill % 100 == 99 {
            println!("{kill} kills, {number} publications, none lost");
        }
        for _ in 0..20 {
            let answer = publish_and_wait(&mut publisher, TOPIC, number);
            assert_eq!(answer["offset"], number + 1, "{answer}");
            number += 1;
        }
        redis.kill();
        // On its way while nobody is there.
        for _ in 0..20 {
            publish(&mut publisher, TOPIC, number);
            number += 1;
        }
        redis.run();
        // Every one arrives once and in its order, whatever was answered before the kill.
        while seen < number {
            let message = subscriber.next_json();
            if message["t"] == "count" {
                assert_eq!(message["p"]["n"], seen, "{message}");
                assert_eq!(message["o"], seen + 1, "{message}");
                seen += 1;
            }
        }
    }
}

#[test]
fn without_redis_publications_are_refused_and_sessions_stay() {
    let mut redis = RedisServer::start("");
    let mut short = config(&redis);
    if let Some(broker) = &mut short.broker {
        broker.wait_ms = 300;
    }
    let server = start_connected(short);
    let mut client = connect_v1(&server);
    subscribe(&mut client, json!(["h.a"]));
    publish_and_wait(&mut client, "h.a", 1);
    assert_eq!(next(&mut client).1, 1);
    redis.kill();
    let handle = server.handle();
    wait_until("no broker", || !is_connected(&server));
    let refused = publish_and_wait(&mut client, "h.a", 2);
    assert_eq!(refused["code"], "BROKER_UNAVAILABLE", "{refused}");
    let publication = NewPublication::new("count", "1");
    assert_eq!(
        handle.publish("h.a", &publication),
        Err(PublishError::Unavailable)
    );
    let answer = update(&mut client, "subscribe", json!(["h.b"]));
    assert_eq!(answer["failed_topics"], json!(["h.b"]), "{answer}");
    client.next_json();
    // What is warm is answered still, and topics of the server work.
    let mut other = connect_v1(&server);
    subscribe(&mut other, json!(["h.a", "node.a"]));
    publish(&mut client, "node.a", 7);
    assert_eq!(next(&mut other), ("node.a".to_owned(), 7));
    redis.run();
    wait_until("a broker again", || is_connected(&server));
    // Redis has lost everything: that is reported, and the epoch is another.
    let told = loop {
        let message = client.next_json();
        if message["t"] == "publication_gap" {
            break message;
        }
    };
    assert_eq!(told["p"]["reason"], "broker", "{told}");
    publish_and_wait(&mut other, "h.a", 3);
}

#[test]
fn a_pattern_matches_the_publications_of_every_server() {
    let redis = RedisServer::start("");
    let servers = cluster(&redis);
    let mut watcher = connect_v1(&servers[1]);
    subscribe(&mut watcher, json!(["h.>", "plain.*"]));
    let mut publisher = connect_v1(&servers[0]);
    for (number, topic) in ["h.a", "h.b.c", "plain.x", "other", "h.a"]
        .iter()
        .enumerate()
    {
        publish_and_wait(&mut publisher, topic, number as u64);
    }
    // Topics have no order among each other: one comes from a stream, another from a channel.
    let mut got: Vec<_> = (0..4).map(|_| next(&mut watcher)).collect();
    got.sort_by(|(left, _), (right, _)| left.cmp(right));
    let expected = [("h.a", 0), ("h.a", 4), ("h.b.c", 1), ("plain.x", 2)];
    assert_eq!(
        got,
        expected.map(|(topic, number)| (topic.to_owned(), number))
    );
    // By name and by pattern it comes once.
    subscribe(&mut watcher, json!(["h.a"]));
    for number in 5..9 {
        publish_and_wait(&mut publisher, "h.a", number);
    }
    for number in 5..9 {
        assert_eq!(next(&mut watcher), ("h.a".to_owned(), number));
    }
}

#[test]
fn users_and_everybody_are_reached_on_every_server() {
    let redis = RedisServer::start("");
    let secured = || {
        let mut config = config(&redis);
        let key = tidewire_engine::auth::KeyMaterial::Hs256(SECRET.to_vec());
        config.auth = Some(tidewire_engine::auth::AuthConfig::new(key));
        start_connected(config)
    };
    let servers = [secured(), secured()];
    let ada = |server: &Server| {
        let token = token(json!({"sub": "ada"}));
        let bearer = format!("Bearer {token}");
        let mut client = Opening::new(server.address())
            .header("Authorization", bearer)
            .open();
        assert_eq!(client.next_json()["t"], "server_ready");
        client
    };
    let mut clients = [ada(&servers[0]), ada(&servers[1])];
    for client in &mut clients {
        // Answered behind the user's own subscription on the same connection to Redis.
        subscribe(client, json!(["plain"]));
    }
    let handle = servers[0].handle();
    let publication = NewPublication::new("count", r#"{"n":1000}"#);
    handle
        .publish_to_user("ada", &publication)
        .expect("a server");
    let everybody = NewPublication::new("count", r#"{"n":2000}"#);
    handle.publish_to_everyone(&everybody).expect("a server");
    for client in &mut clients {
        assert_eq!(client.next_json()["p"]["n"], 1_000);
        assert_eq!(client.next_json()["p"]["n"], 2_000);
    }
    handle.subscribe_user("ada", "h.a").expect("a broker");
    for client in &mut clients {
        let update = client.next_json();
        assert_eq!(update["p"]["success_topics"], json!(["h.a"]), "{update}");
    }
    let gone = tidewire_wire::close::CloseCode::POLICY_VIOLATION;
    handle.close_user("ada", gone, "gone").expect("a broker");
    for client in &mut clients {
        client.assert_closed(gone);
    }
}

#[test]
fn a_history_larger_than_its_mirror_is_read_once() {
    let redis = RedisServer::start("");
    let mut small = config(&redis);
    small.topics.rules.insert(
        0,
        TopicRule {
            history: Some(HistoryLimits {
                publications_max: 1_000,
                bytes_max: 20_000,
                age_max_ms: 0,
            }),
            ..TopicRule::new("h.big")
        },
    );
    let servers = [start_connected(small.clone()), start_connected(small)];
    let publication = NewPublication::new("count", format!("{:?}", "x".repeat(1_000)));
    for _ in 0..100 {
        let published = servers[0].handle().publish("h.big", &publication);
        published.expect("a broker");
    }
    let handle = servers[1].handle();
    let reads = count(&servers[1], "reads");
    for _ in 0..3 {
        let page = handle.history("h.big", NEWEST).expect("a broker");
        let kept = page.expect("a history").publications;
        assert!((5..20).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept[0].position.offset, 100);
    }
    assert_eq!(count(&servers[1], "reads"), reads + 1);
}

#[test]
fn many_histories_are_read_at_once() {
    const TOPICS: usize = 60;
    let redis = RedisServer::start("");
    // What the readings may hold together is enough for some of them only.
    let mut large = config(&redis);
    if let Some(limits) = &mut large.topics.rules[0].history {
        limits.bytes_max = 20 * 1024 * 1024;
    }
    let servers = [start_connected(large.clone()), start_connected(large)];
    let publication = NewPublication::new("count", "7");
    let topic = |number: usize| format!("h.{number}");
    for number in 0..TOPICS {
        for _ in 0..3 {
            let published = servers[0].handle().publish(&topic(number), &publication);
            published.expect("a broker");
        }
    }
    std::thread::scope(|scope| {
        for number in 0..TOPICS {
            let handle = servers[1].handle();
            scope.spawn(move || {
                let page = handle.history(&topic(number), NEWEST).expect("a broker");
                assert_eq!(page.expect("a history").publications.len(), 3);
            });
        }
    });
}

#[test]
fn the_age_of_a_history_counts_from_the_publication() {
    let redis = RedisServer::start("");
    let mut short = config(&redis);
    if let Some(limits) = &mut short.topics.rules[0].history {
        limits.age_max_ms = 1_000;
    }
    let servers = [start_connected(short.clone()), start_connected(short)];
    let publication = NewPublication::new("count", "7");
    let publish = || {
        let published = servers[0].handle().publish("h.a", &publication);
        published.expect("a broker");
    };
    publish();
    let old = std::time::Instant::now();
    wait_until("an age", || old.elapsed().as_millis() > 1_100);
    publish();
    // Redis has both still, and this server has neither.
    let reads = count(&servers[1], "reads");
    let newer = std::time::Instant::now();
    for _ in 0..3 {
        let page = servers[1].handle().history("h.a", NEWEST);
        let kept = page.expect("a broker").expect("a history").publications;
        let offsets = kept.iter().map(|kept| kept.position.offset);
        assert!(offsets.clone().all(|offset| offset == 2), "{kept:?}");
    }
    wait_until("an age", || newer.elapsed().as_millis() > 1_100);
    let page = servers[1].handle().history("h.a", NEWEST);
    let kept = page.expect("a broker").expect("a history").publications;
    assert_eq!(kept.len(), 0, "{kept:?}");
    // What has become too old here is not read again.
    assert_eq!(count(&servers[1], "reads"), reads + 1);
}

#[test]
fn who_waits_for_the_broker_is_told_when_the_server_stops() {
    let mut redis = RedisServer::start("");
    let mut patient = config(&redis);
    if let Some(broker) = &mut patient.broker {
        broker.wait_ms = 3_600_000;
    }
    let server = start_connected(patient);
    redis.kill();
    let query = HistoryQuery {
        since: None,
        limit: 1,
        newest_first: true,
    };
    let (reader, publisher) = (server.handle(), server.handle());
    let waiting = [
        std::thread::spawn(move || reader.history("h.a", query).is_err()),
        std::thread::spawn(move || {
            let publication = NewPublication::new("count", "1");
            publisher.publish("h.a", &publication).is_err()
        }),
    ];
    // They may come before the stop or after it: both end.
    let handle = server.handle();
    server.stop();
    for thread in waiting {
        assert!(thread.join().expect("no panic"));
    }
    assert!(handle.history("h.a", query).is_err());
}

#[test]
fn a_numbered_publication_is_placed_once_though_its_connection_broke() {
    let redis = RedisServer::start("");
    let server = start_connected(config(&redis));
    let mut subscriber = connect_v1(&server);
    subscribe(&mut subscriber, json!(["h.a"]));
    let hello = json!({"t": "client_hello", "p": {"producer": {"id": "p"}}});
    let payload = json!({"topic": "h.a", "type": "count", "payload": {"n": 1}});
    let publication = json!({"t": "publish_request", "n": 1, "cid": "1", "p": payload});
    let mut first = connect_v1(&server);
    let answer = first.ask(&hello);
    assert_eq!(answer["p"]["producer"]["last"], 0, "{answer}");
    redis.pause();
    let handle = server.handle();
    let pauses = handle.counters().broker_pauses;
    first.send_text(&publication.to_string());
    wait_until("the broker is asked", || {
        handle.counters().broker_pauses == pauses + 1
    });
    drop(first);
    wait_until("the connection is gone", || handle.connections() == 1);
    let mut second = connect_v1(&server);
    second.send_text(&hello.to_string());
    second.send_text(&publication.to_string());
    wait_until("the broker is asked again", || {
        handle.counters().broker_pauses == pauses + 2
    });
    redis.go_on();
    let answer = loop {
        let answer = second.next_json();
        if answer["t"] == "publish_response" {
            break answer;
        }
    };
    assert_eq!(answer["p"]["duplicate"], true, "{answer}");
    assert_eq!(next(&mut subscriber).1, 1);
    publish_and_wait(&mut second, "h.a", 2);
    let message = subscriber.next_json();
    assert_eq!(
        (&message["o"], message.get("id")),
        (&json!(2), None),
        "{message}"
    );
}

#[test]
fn a_pattern_sees_shared_topics_also_where_its_own_rule_is_of_the_node() {
    let redis = RedisServer::start("");
    let mut mixed = config(&redis);
    mixed.topics.rules.push(TopicRule {
        scope: Scope::Node,
        ..TopicRule::new(">")
    });
    let servers = [start_connected(mixed.clone()), start_connected(mixed)];
    let mut watcher = connect_v1(&servers[1]);
    subscribe(&mut watcher, json!([">"]));
    let mut publisher = connect_v1(&servers[0]);
    publish_and_wait(&mut publisher, "h.a", 1);
    assert_eq!(next(&mut watcher), ("h.a".to_owned(), 1));
}

/// Redis keeps whole blocks, so some more.
#[test]
fn a_server_gives_no_more_than_a_topic_keeps() {
    let redis = RedisServer::start("");
    let servers = cluster(&redis);
    let publication = NewPublication::new("count", "1");
    for _ in 0..1_050 {
        let published = servers[0].handle().publish("h.a", &publication);
        published.expect("a broker");
    }
    for server in &servers {
        let page = server.handle().history("h.a", OLDEST).expect("a broker");
        let kept = page.expect("a history").publications;
        assert_eq!((kept.len(), kept[0].position.offset), (1_000, 51));
    }
}

const OLDEST: HistoryQuery = HistoryQuery {
    since: None,
    limit: 1_000,
    newest_first: false,
};
const NEWEST: HistoryQuery = HistoryQuery {
    newest_first: true,
    ..OLDEST
};
