//! A broker that answers late, out of turn, or not at all: sessions wait for it where they must,
//! and nobody else does.

use crate::common;

use common::simulated::{SimulatedClient, serve_late};
use common::topics::open_topics;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use tidewire_engine::apps::Sink;
use tidewire_engine::simulation::LateAnswers;
use tidewire_engine::{Config, Handle, HistoryLimits, Scope, TopicRule};
use tidewire_net::Handler;
use tidewire_testkit::simulation::Driver;

/// `h.>` keeps history, `node.>` is this server's own.
fn config() -> Config {
    let mut config = open_topics();
    config.shards = 2;
    config.limits.rate_limit_capacity = 0;
    config.topics.rules = vec![
        TopicRule {
            history: Some(HistoryLimits::of(10_000)),
            ..TopicRule::new("h.>")
        },
        TopicRule {
            scope: Scope::Node,
            ..TopicRule::new("node.>")
        },
    ];
    config
}

struct World<H: Handler> {
    driver: Driver<H>,
    handle: Handle,
    answers: LateAnswers,
}

fn world(seed: u64) -> World<impl Handler> {
    world_of(config(), seed)
}

fn world_of(config: Config, seed: u64) -> World<impl Handler> {
    let (driver, handle, answers) = serve_late(config, |_| Sink, seed);
    World {
        driver,
        handle,
        answers,
    }
}

impl<H: Handler> World<H> {
    fn open(&mut self, shard: usize) -> SimulatedClient {
        SimulatedClient::open(self.driver.network().connect(shard), &[])
    }

    /// Lets some virtual time pass, in which the broker does nothing.
    fn run(&mut self) {
        let now_ms = self.driver.now_ms();
        self.driver.run_until(now_ms + 50);
    }

    /// Lets the broker do all that it was asked, however often that makes it be asked again.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.run();
            self.answers.settle();
        }
        self.run();
    }
}

fn subscribe(client: &SimulatedClient, topic: &str, since: Option<(&Value, u64)>) {
    let mut payload = json!({"action": "subscribe", "topics": [topic]});
    if let Some((epoch, offset)) = since {
        payload["recover"] = true.into();
        payload["recovery"] = json!({topic: {"epoch": epoch, "offset": offset}});
    }
    client.send(&json!({"t": "subscription_update", "p": payload}));
}

fn publish(client: &SimulatedClient, topic: &str, number: u64, cid: &str) {
    let payload = json!({"topic": topic, "type": "x", "payload": {"n": number}});
    client.send(&json!({"t": "publish_request", "cid": cid, "p": payload}));
}

/// The messages of one type among some.
fn of_type<'a>(messages: &'a [Value], t: &str) -> Vec<&'a Value> {
    messages
        .iter()
        .filter(|message| message["t"] == t)
        .collect()
}

fn numbers(messages: &[Value]) -> Vec<u64> {
    let number = |message: &&Value| message["p"]["n"].as_u64().expect("a number");
    of_type(messages, "x").iter().map(number).collect()
}

#[test]
fn a_subscription_is_answered_when_the_broker_has_made_its_topic_ready() {
    let mut world = world(1);
    let mut client = world.open(0);
    subscribe(&client, "h.a", None);
    client.send(&json!({"t": "client_hello", "p": {}}));
    world.run();
    // What comes behind the request waits with it, so that it keeps its order.
    assert_eq!(
        of_type(&client.receive_json(), "subscription_update").len(),
        0
    );
    world.settle();
    let said = client.receive_json();
    let answer = of_type(&said, "subscription_update")[0];
    assert_eq!(answer["p"]["success_topics"], json!(["h.a"]), "{answer}");
    assert_eq!(answer["p"]["recovery"]["h.a"]["offset"], 0, "{answer}");
    assert_eq!(world.handle.counters().broker_pauses, 1);
}

#[test]
fn publications_are_answered_one_by_one_and_too_many_of_them_wait() {
    let mut world = world(2);
    let (mut publisher, mut subscriber) = (world.open(0), world.open(1));
    subscribe(&subscriber, "h.a", None);
    world.settle();
    subscriber.receive_json();
    for number in 0..600 {
        publish(&publisher, "h.a", number, &number.to_string());
    }
    world.run();
    assert_eq!(
        of_type(&publisher.receive_json(), "publish_response").len(),
        0
    );
    let counters = world.handle.counters();
    assert_eq!(
        (counters.broker_pauses, counters.publications_received),
        (2, 0)
    );
    world.settle();
    let said = publisher.receive_json();
    let offsets: BTreeMap<u64, u64> = of_type(&said, "publish_response")
        .iter()
        .map(|answer| {
            let cid = answer["cid"].as_str().and_then(|cid| cid.parse().ok());
            let offset = answer["p"]["offset"].as_u64();
            (cid.expect("a number"), offset.expect("a position"))
        })
        .collect();
    // Whatever the order of the answers: each has the place in which it was published.
    let places: Vec<(u64, u64)> = offsets.into_iter().collect();
    let expected: Vec<(u64, u64)> = (0..600).map(|number| (number, number + 1)).collect();
    assert_eq!(places, expected);
    assert_eq!(
        numbers(&subscriber.receive_json()),
        (0..600).collect::<Vec<_>>()
    );
    assert_eq!(world.handle.counters().publications_received, 600);
}

#[test]
fn topics_of_this_server_do_not_wait_for_the_broker() {
    let mut world = world(3);
    let (publisher, mut subscriber) = (world.open(0), world.open(1));
    publish(&publisher, "h.a", 1, "late");
    subscribe(&subscriber, "node.a", None);
    world.run();
    publish(&publisher, "node.a", 7, "now");
    world.run();
    assert_eq!(numbers(&subscriber.receive_json()), [7]);
}

#[test]
fn what_the_broker_refuses_or_does_not_answer_is_told_with_its_code() {
    let mut world = world(4);
    let (mut client, mut witness) = (world.open(0), world.open(1));
    subscribe(&witness, "h.a", None);
    world.settle();
    witness.receive_json();
    let mut codes: HashMap<u64, String> = HashMap::new();
    for number in 0..200 {
        publish(&client, "h.a", number, &number.to_string());
    }
    world.run();
    while world.answers.step(3) {}
    world.run();
    for message in client.receive_json() {
        let cid = message["cid"].as_str().and_then(|cid| cid.parse().ok());
        let number: u64 = match cid {
            Some(number) => number,
            None => continue,
        };
        let code = message["p"]["code"].as_str().unwrap_or("published");
        assert!(codes.insert(number, code.to_owned()).is_none(), "{message}");
    }
    assert_eq!(codes.len(), 200, "every publication is answered once");
    let arrived = numbers(&witness.receive_json());
    assert!(arrived.is_sorted());
    for (number, code) in &codes {
        match code.as_str() {
            "published" => assert!(arrived.contains(number), "{number}"),
            "BROKER_UNAVAILABLE" => assert!(!arrived.contains(number), "{number}"),
            // It is one or the other.
            "PUBLISH_UNKNOWN" => {}
            other => panic!("{other}"),
        }
    }
    let kinds: std::collections::HashSet<&String> = codes.values().collect();
    assert_eq!(kinds.len(), 3, "{kinds:?}");
}

#[test]
fn a_subscription_that_the_broker_refuses_fails_and_the_connection_goes_on() {
    let mut world = world(5);
    let mut client = world.open(0);
    for round in 0..40 {
        subscribe(&client, &format!("h.{round}"), None);
        world.run();
        while world.answers.step(3) {}
        world.run();
    }
    world.settle();
    let said = client.receive_json();
    let answers = of_type(&said, "subscription_update");
    assert_eq!(answers.len(), 40);
    let failed: Vec<_> = answers
        .iter()
        .filter(|answer| answer["p"]["success_topics"] == json!([]))
        .collect();
    assert!(!failed.is_empty() && failed.len() < 40, "{}", failed.len());
    let errors = of_type(&said, "error");
    assert_eq!(errors.len(), failed.len());
    for error in errors {
        let code = error["p"]["code"].as_str().expect("a code");
        assert!(
            ["BROKER_UNAVAILABLE", "PUBLISH_UNKNOWN"].contains(&code),
            "{error}"
        );
    }
}

#[test]
fn answers_to_connections_that_are_gone_are_dropped() {
    let mut world = world(6);
    let client = world.open(0);
    subscribe(&client, "h.a", None);
    publish(&client, "h.a", 1, "1");
    world.run();
    client.end.reset();
    world.settle();
    let mut other = world.open(0);
    subscribe(&other, "h.a", None);
    world.settle();
    let said = other.receive_json();
    assert_eq!(of_type(&said, "subscription_update").len(), 1);
}

#[test]
fn a_numbered_publication_is_acknowledged_when_the_broker_has_it() {
    let mut world = world(7);
    let mut client = world.open(0);
    client.send(&json!({"t": "client_hello", "p": {"producer": {"id": "p"}}}));
    world.run();
    client.receive_json();
    for number in 1..=5 {
        let payload = json!({"topic": "h.a", "type": "x", "payload": {"n": number}});
        client.send(
            &json!({"t": "publish_request", "n": number, "cid": number.to_string(), "p": payload}),
        );
    }
    world.run();
    assert!(
        client.receive_json().is_empty(),
        "nothing is acknowledged yet"
    );
    for _ in 0..10 {
        world.settle();
    }
    let said = client.receive_json();
    let last = of_type(&said, "message_ack");
    let last = last.last().map(|ack| ack["p"]["last"].clone());
    assert_eq!(last, Some(json!(5)), "{said:?}");
    assert_eq!(of_type(&said, "publish_response").len(), 5, "{said:?}");
}

#[test]
fn history_is_read_when_the_broker_has_made_the_topic_ready() {
    let mut world = world(8);
    let mut client = world.open(0);
    for number in 0..3 {
        publish(&client, "h.a", number, "");
    }
    client.send(&json!({"t": "history_request", "cid": "h", "p": {"topic": "h.a", "limit": 10}}));
    world.run();
    assert_eq!(of_type(&client.receive_json(), "history_response").len(), 0);
    world.settle();
    let said = client.receive_json();
    let answer = of_type(&said, "history_response");
    let publications = answer[0]["p"]["publications"].as_array().expect("a list");
    assert_eq!(publications.len(), 3, "{answer:?}");
}

/// Whoever comes and goes while the broker answers when it likes, loses readiness and refuses: each
/// subscriber has a contiguous part of one log, and what was acknowledged is in it.
#[test]
fn nothing_is_lost_or_doubled_however_late_the_answers_are() {
    for seed in 0..40 {
        run_seed(seed);
    }
}

struct Follower {
    client: SimulatedClient,
    position: Option<(Value, u64)>,
    seen: Vec<(u64, u64)>,
    is_in: bool,
}

impl Follower {
    fn read(&mut self, topic: &str) {
        for message in self.client.receive_json() {
            match message["t"].as_str() {
                Some("x") => {
                    let offset = message["o"].as_u64().expect("an offset");
                    self.position = Some((message["e"].clone(), offset));
                    let number = message["p"]["n"].as_u64().expect("a number");
                    self.seen.push((offset, number));
                }
                Some("subscription_update") => {
                    self.is_in = message["p"]["success_topics"] == json!([topic]);
                    let recovery = &message["p"]["recovery"][topic];
                    if self.is_in && self.position.is_none() {
                        let offset = recovery["offset"].as_u64().expect("an offset");
                        self.position = Some((recovery["epoch"].clone(), offset));
                    } else if self.is_in && !recovery.is_null() {
                        assert_eq!(recovery["recovered"], true, "{message}");
                    }
                }
                _ => {}
            }
        }
    }
}

const TOPIC: &str = "h.a";

fn run_seed(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = world(seed);
    let mut publisher = world.open(0);
    let mut followers: Vec<Follower> = (0..4)
        .map(|number| Follower {
            client: world.open(number % 2),
            position: None,
            seen: Vec::new(),
            is_in: false,
        })
        .collect();
    let mut published = 0;
    for _ in 0..200 {
        match random.random_range(0..10) {
            0..4 => {
                publish(&publisher, TOPIC, published, &published.to_string());
                published += 1;
            }
            4 => world.answers.cool_down(),
            5 => {
                let number = random.random_range(0..followers.len());
                let client = world.open(number % 2);
                let follower = &mut followers[number];
                follower.read(TOPIC);
                follower.client.end.reset();
                follower.client = client;
                follower.is_in = false;
            }
            6 => {
                let number = random.random_range(0..followers.len());
                let follower = &followers[number];
                let since = follower.position.as_ref();
                let since = since.map(|(epoch, offset)| (epoch, *offset));
                subscribe(&follower.client, TOPIC, since);
            }
            _ => {
                for _ in 0..random.random_range(0..6) {
                    world.answers.step(12);
                }
                world.run();
                followers
                    .iter_mut()
                    .for_each(|follower| follower.read(TOPIC));
            }
        }
    }
    world.settle();
    for follower in &mut followers {
        follower.read(TOPIC);
        let since = follower.position.clone();
        let since = since.as_ref().map(|(epoch, offset)| (epoch, *offset));
        subscribe(&follower.client, TOPIC, since);
    }
    world.settle();
    check_seed(seed, &mut publisher, &mut followers);
}

/// Each follower has a contiguous part of one log, and what was acknowledged is in it.
fn check_seed(seed: u64, publisher: &mut SimulatedClient, followers: &mut [Follower]) {
    let said = publisher.receive_json();
    let acknowledged: HashMap<u64, u64> = of_type(&said, "publish_response")
        .iter()
        .map(|answer| {
            let number = answer["cid"].as_str().and_then(|cid| cid.parse().ok());
            let offset = answer["p"]["offset"].as_u64().expect("a position");
            (offset, number.expect("a number"))
        })
        .collect();
    let head = acknowledged.keys().max().copied().unwrap_or_default();
    for follower in followers {
        follower.read(TOPIC);
        assert!(follower.is_in, "seed {seed}");
        let offsets: Vec<u64> = follower.seen.iter().map(|(offset, _)| *offset).collect();
        let contiguous = offsets.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        assert!(contiguous, "seed {seed}: {offsets:?}");
        for (offset, number) in &follower.seen {
            let acknowledged = acknowledged.get(offset).unwrap_or(number);
            assert_eq!(acknowledged, number, "seed {seed}, offset {offset}");
        }
        if let Some(last) = offsets.last() {
            assert!(*last >= head, "seed {seed}: {last} of {head}");
        }
    }
}

#[test]
fn a_connection_that_waits_for_the_broker_stops_nobody_else() {
    let mut world = world(9);
    let mut producer = world.open(0);
    producer.send(&json!({"t": "client_hello", "p": {"producer": {"id": "p"}}}));
    world.run();
    producer.receive_json();
    let messages: Vec<Value> = (1..=2)
        .map(|number| {
            let payload = json!({"topic": "h.a", "type": "x", "payload": {"n": number}});
            json!({"t": "publish_request", "n": number, "cid": number.to_string(), "p": payload})
        })
        .collect();
    producer.send(&json!({"t": "batch", "p": {"messages": messages}}));
    for _ in 0..4 {
        world.settle();
    }
    let said = producer.receive_json();
    assert_eq!(of_type(&said, "publish_response").len(), 2, "{said:?}");
    // Both of the shard's other connections are read, and so is this one.
    let mut others = [world.open(0), world.open(0)];
    for client in &others {
        subscribe(client, "node.a", None);
    }
    world.run();
    publish(&producer, "node.a", 7, "");
    world.run();
    for client in &mut others {
        assert_eq!(numbers(&client.receive_json()), [7]);
    }
    assert_eq!(world.handle.counters().broker_pauses, 2);
}

#[test]
fn topics_that_the_broker_has_put_away_meanwhile_are_asked_for_again() {
    const TOPICS: usize = 40;
    let mut config = config();
    config.limits.outbox_pause_bytes = 100_000;
    config.topics.rules.push(TopicRule {
        history: Some(HistoryLimits::of(1)),
        last_value: true,
        ..TopicRule::new("state.>")
    });
    let mut world = world_of(config, 9);
    let publisher = world.open(0);
    let topics: Vec<_> = (0..TOPICS).map(|n| format!("state.{n}")).collect();
    let text = "x".repeat(40_000);
    for topic in &topics {
        let payload = json!({"topic": topic, "type": "x", "payload": text});
        publisher.send(&json!({"t": "publish_request", "p": payload}));
        world.settle();
    }
    let mut client = world.open(0);
    let payload = json!({"topics": topics, "include_snapshots": true});
    client.send(&json!({"c": "S", "t": "sync_request", "cid": "s", "p": payload}));
    // The client does not read, so that the rest waits while the broker puts the topics away.
    client.end.stall(true);
    world.settle();
    let sent = world.handle.counters().snapshots_sent;
    assert!((1..TOPICS as u64).contains(&sent), "{sent}");
    world.answers.cool_down();
    client.end.stall(false);
    let mut said = Vec::new();
    for _ in 0..TOPICS {
        said.extend(client.receive_json());
        world.settle();
    }
    let snapshots = said.iter().filter(|message| message["c"] == "S");
    let named: Vec<_> = snapshots.filter_map(|it| it["tp"].as_str()).collect();
    assert_eq!(named, topics);
}
