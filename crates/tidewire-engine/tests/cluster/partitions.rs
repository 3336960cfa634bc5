//! Topics in several partitions: in one Redis, and in several independent ones. Each test starts its own `redis-server`.

use crate::common;

use common::cluster::{is_connected, is_whole, shared_history, start_connected};
use common::topics::subscribe;
use common::{Client, answer, connect_v1, start, wait_until};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tidewire_engine::apps::Sink;
use tidewire_engine::{BrokerHealth, Config, Server};
use tidewire_testkit::redis::RedisServer;

/// Topics of the partitions 0, 1, 2 and 3 of 4, and so of 0, 1, 0 and 1 of 2.
const TOPICS: [&str; 4] = ["h.a", "h.d", "h.c", "h.b"];

pub(crate) fn config(urls: &[impl AsRef<str>], partitions: u16) -> Config {
    let urls: Vec<&str> = urls.iter().map(AsRef::as_ref).collect();
    let mut config = shared_history(&urls.join(","), 1_000);
    let broker = config.broker.as_mut().expect("a broker");
    (broker.partitions, broker.wait_ms) = (partitions, 300);
    config
}

pub(crate) fn publish_and_wait(client: &mut Client, topic: &str, number: u64) -> Value {
    let payload = json!({"topic": topic, "type": "count", "payload": {"n": number}});
    client.ask(&json!({"t": "publish_request", "cid": "1", "p": payload}))
}

/// Publications until there are as many: the numbers of each topic.
fn receive(client: &mut Client, count: usize) -> BTreeMap<String, Vec<u64>> {
    let mut received: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for _ in 0..count {
        let message = client.next_json();
        let topic = message["tp"]
            .as_str()
            .unwrap_or_else(|| panic!("{message}"));
        let number = message["p"]["n"].as_u64().expect("a number");
        received.entry(topic.to_owned()).or_default().push(number);
    }
    received
}

/// The tags of the keys in a Redis: `0` of `tw:{0}:t:a`.
pub(crate) fn tags(redis: &RedisServer, of: &str) -> BTreeSet<String> {
    let keys = redis.ask(&format!("KEYS tw:*:{of}"));
    let tag = |key: &str| Some(key.split_once('{')?.1.split_once('}')?.0.to_owned());
    keys.lines().filter_map(tag).collect()
}

#[test]
fn the_topics_of_all_partitions_are_those_of_one_cluster() {
    let redis = RedisServer::start("");
    let urls = [redis.url()];
    let servers = [(); 2].map(|()| start_connected(config(&urls, 4)));
    wait_until("a list of both", || {
        let health = servers[0].handle().broker_health().expect("a broker");
        health.nodes.len() == 2
    });
    let [mut by_name, mut by_pattern] = [(); 2].map(|()| connect_v1(&servers[0]));
    subscribe(&mut by_name, json!(TOPICS));
    subscribe(&mut by_pattern, json!(["h.*"]));
    let mut publishers = [0, 1, 1, 0].map(|server| connect_v1(&servers[server]));
    for number in 1..=20 {
        for (publisher, topic) in publishers.iter_mut().zip(TOPICS) {
            let answer = publish_and_wait(publisher, topic, number);
            assert_eq!(answer["p"]["offset"], number, "{answer}");
        }
    }
    let expected = TOPICS.map(|topic| (topic.to_owned(), (1..=20).collect()));
    let expected = BTreeMap::from(expected);
    assert_eq!(receive(&mut by_name, 80), expected);
    assert_eq!(receive(&mut by_pattern, 80), expected);
    assert_eq!(tags(&redis, "t:h.*").len(), 4, "keys of all partitions");
    // A client that knows the first ones goes on at the other server.
    let mut returning = connect_v1(&servers[1]);
    let epochs = TOPICS.map(|topic| {
        let page =
            returning.ask(&json!({"t": "history_request", "cid": "1", "p": {"topic": topic}}));
        page["p"]["epoch"].clone()
    });
    let recovery = TOPICS.into_iter().zip(epochs);
    let recovery =
        recovery.map(|(topic, epoch)| (topic.to_owned(), json!({"epoch": epoch, "offset": 15})));
    let recovery: serde_json::Map<_, _> = recovery.collect();
    let payload = json!({
        "action": "subscribe", "topics": TOPICS, "recover": true, "recovery": recovery,
    });
    returning.send_text(&json!({"t": "subscription_update", "p": payload}).to_string());
    let mut missed = BTreeMap::new();
    while missed.values().map(Vec::len).sum::<usize>() < 20 {
        let message = returning.next_json();
        if let (Some(topic), Some(number)) = (message["tp"].as_str(), message["p"]["n"].as_u64()) {
            missed
                .entry(topic.to_owned())
                .or_insert_with(Vec::new)
                .push(number);
        }
    }
    assert_eq!(
        missed,
        TOPICS
            .map(|topic| (topic.to_owned(), (16..=20).collect()))
            .into()
    );
}

/// A server of two brokers with a partition each.
struct Halves {
    home: RedisServer,
    other: RedisServer,
    server: Server,
}

impl Halves {
    fn start() -> Self {
        let [home, other] = [(); 2].map(|()| RedisServer::start(""));
        let mut config = config(&[home.url(), other.url()], 2);
        config.ops_listen = Some("127.0.0.1:0".parse().expect("an address"));
        let server = start_connected(config);
        Self {
            home,
            other,
            server,
        }
    }

    /// What the operations listener answers.
    fn ask(&self, path: &str) -> String {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        answer(self.server.ops_address().expect("an address"), request)
    }

    fn health(&self) -> BrokerHealth {
        self.server.handle().broker_health().expect("a broker")
    }
}

#[test]
fn a_partition_that_fails_stops_its_topics_and_nothing_else() {
    let mut halves = Halves::start();
    assert_eq!(tags(&halves.home, "agreed"), ["0".to_owned()].into());
    let [mut subscriber, mut publisher] = [(); 2].map(|()| connect_v1(&halves.server));
    subscribe(&mut subscriber, json!(TOPICS));
    for topic in TOPICS {
        assert_eq!(publish_and_wait(&mut publisher, topic, 1)["p"]["offset"], 1);
    }
    receive(&mut subscriber, 4);
    halves.other.kill();
    wait_until("one is away", || !is_whole(&halves.server));
    for (topic, number) in TOPICS.into_iter().zip([2, 0, 2, 0]) {
        let answer = publish_and_wait(&mut publisher, topic, 2);
        match number {
            0 => assert_eq!(answer["p"]["code"], "BROKER_UNAVAILABLE", "{answer}"),
            offset => assert_eq!(answer["p"]["offset"], offset, "{answer}"),
        }
    }
    let received = receive(&mut subscriber, 2);
    assert_eq!(received.into_keys().collect::<Vec<_>>(), ["h.a", "h.c"]);
    halves.other.run();
    wait_until("all partitions", || is_whole(&halves.server));
    // Redis has lost its memory, and only topics of this partition have another epoch.
    for topic in [TOPICS[1], TOPICS[3]] {
        assert_eq!(publish_and_wait(&mut publisher, topic, 3)["p"]["offset"], 1);
    }
    let answer = publish_and_wait(&mut publisher, TOPICS[0], 3);
    assert_eq!(answer["p"]["offset"], 3);
    let mut gaps = BTreeSet::new();
    while gaps.len() < 2 {
        let message = subscriber.next_json();
        if message["t"] == "publication_gap" {
            gaps.insert(message["p"]["topic"].as_str().expect("a topic").to_owned());
        }
    }
    assert_eq!(gaps, [TOPICS[1], TOPICS[3]].map(str::to_owned).into());
}

#[test]
fn a_server_says_which_partition_fails_and_stays_in_service() {
    let mut halves = Halves::start();
    assert!(halves.ask("/ready").ends_with("{\"status\":\"ready\"}\n"));
    halves.other.kill();
    wait_until("one is away", || !is_whole(&halves.server));
    let health = halves.health();
    assert!(health.is_connected, "the first one is there: {health:?}");
    let mut problems = health.problems.iter();
    let problem = problems.find(|it| it.kind == "partition_away");
    let problem = problem.map_or("", |problem| problem.text.as_str());
    let address = halves.other.url();
    let expected = format!("partition 1 of 2 at {address}: ");
    assert!(problem.starts_with(&expected), "{problem}");
    let away = &health.partitions[1];
    assert_eq!((away.partition, &away.address), (1, &address));
    assert!(away.reason.is_some(), "{away:?}");
    let ready = halves.ask("/ready");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    let away = format!("\"partitions_failing\":[{{\"address\":\"{address}\",");
    assert!(ready.contains(&away), "{ready}");
    let metrics = halves.ask("/metrics");
    for line in [
        "tidewire_broker_problem{kind=\"partition_away\"} 1\n",
        "tidewire_broker_partition_connected{partition=\"0\"} 1\n",
        "tidewire_broker_partition_connected{partition=\"1\"} 0\n",
    ] {
        assert!(metrics.contains(line), "no {line}");
    }
}

#[test]
fn a_partition_whose_broker_is_full_fails_alone() {
    let halves = Halves::start();
    let mut publisher = connect_v1(&halves.server);
    halves.other.ask("CONFIG SET maxmemory 1");
    let refused = publish_and_wait(&mut publisher, TOPICS[1], 1);
    assert_eq!(refused["p"]["code"], "BROKER_UNAVAILABLE", "{refused}");
    let taken = publish_and_wait(&mut publisher, TOPICS[0], 1);
    assert_eq!(taken["p"]["offset"], 1, "{taken}");
    wait_until("the problem is reported", || {
        let problem = halves.health().partitions[1].problem.clone();
        problem.is_some_and(|it| it.contains("OOM"))
    });
    let ready = halves.ask("/ready");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    assert!(
        ready.contains("\"problem\":\"the broker refused: OOM"),
        "{ready}"
    );
    halves.other.ask("CONFIG SET maxmemory 0");
    wait_until("it takes publications", || {
        publish_and_wait(&mut publisher, TOPICS[1], 2)["p"]["offset"] == 1
    });
}

/// What keeps a server from its cluster.
pub(crate) fn refusal(config: Config) -> String {
    let server = start(config, Sink);
    let text = || {
        let health = server.handle().broker_health().expect("a broker");
        let problem = health
            .problems
            .into_iter()
            .find(|it| it.kind == "does_not_agree");
        assert!(!health.is_connected);
        problem.map(|problem| problem.text)
    };
    wait_until("a refusal", || text().is_some());
    // None of its partitions is of any use.
    let mut client = connect_v1(&server);
    for topic in TOPICS {
        let answer = publish_and_wait(&mut client, topic, 1);
        assert_eq!(answer["p"]["code"], "BROKER_UNAVAILABLE", "{answer}");
    }
    text().unwrap_or_default()
}

#[test]
fn another_number_of_partitions_is_refused() {
    let redis = RedisServer::start("");
    let urls = [redis.url()];
    for (first, second) in [(4, 2), (1, 4)] {
        redis.ask("FLUSHALL");
        let running = start_connected(config(&urls, first));
        let text = refusal(config(&urls, second));
        let expected = format!("broker_partitions is {second} here and {first} in the cluster;");
        assert!(text.contains(&expected), "{text}");
        let mut client = connect_v1(&running);
        assert_eq!(publish_and_wait(&mut client, "h.a", 1)["p"]["offset"], 1);
    }
}

#[test]
fn a_cluster_of_an_earlier_version_has_one_partition() {
    let redis = RedisServer::start("");
    let urls = [redis.url()];
    let running = start_connected(config(&urls, 1));
    for term in ["broker_partitions", "the list of brokers"] {
        redis.ask(&format!("HDEL tw:{{0}}:agreed \"s:{term}\""));
    }
    let text = refusal(config(&urls, 4));
    let expected = "broker_partitions is 4 here and 1 in the cluster;";
    assert!(text.contains(expected), "{text}");
    assert!(is_whole(&running));
    start_connected(config(&urls, 1));
}

#[test]
fn another_list_of_servers_is_refused() {
    let three = [(); 3].map(|()| RedisServer::start(""));
    let [a, b, c] = [0, 1, 2].map(|number: usize| three[number].url());
    let right = [a.clone(), b.clone()];
    let running = start_connected(config(&right, 2));
    let known = format!("{a}/0 {b}/0 in the cluster");
    for (wrong, expected) in [
        (vec![a.clone(), c.clone()], known.as_str()),
        (vec![b.clone(), a.clone()], &known),
        (
            vec![c, a.clone()],
            "this broker has the first partition of a cluster already",
        ),
        (vec![a], &known),
        (vec![b], &known),
    ] {
        let text = refusal(config(&wrong, 2));
        assert!(text.contains(expected), "{wrong:?}: {text}");
    }
    let mut client = connect_v1(&running);
    for topic in TOPICS {
        assert_eq!(publish_and_wait(&mut client, topic, 1)["p"]["offset"], 1);
    }
    // The right list is taken.
    start_connected(config(&right, 2));
}

#[test]
fn a_cluster_begins_when_all_partitions_are_there() {
    let [home, mut other] = [(); 2].map(|()| RedisServer::start(""));
    let urls = [home.url(), other.url()];
    other.kill();
    let server = start(config(&urls, 2), Sink);
    let reason = || server.handle().broker_health().expect("a broker").reason;
    wait_until("it waits", || {
        reason()
            .is_some_and(|reason| reason.contains("when this server has reached all partitions"))
    });
    assert!(!is_connected(&server));
    other.run();
    wait_until("all partitions", || is_whole(&server));
    // Another server joins although one partition is away.
    other.kill();
    let second = start(config(&urls, 2), Sink);
    wait_until("the first partition", || is_connected(&second));
    let mut client = connect_v1(&second);
    assert_eq!(publish_and_wait(&mut client, "h.a", 1)["p"]["offset"], 1);
}
