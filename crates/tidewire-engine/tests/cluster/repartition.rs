//! Moves of topics between partitions and brokers, as `tidewire partition` makes them. Each test starts its own
//! `redis-server`.

use super::partitions::{config, publish_and_wait, refusal, tags};
use super::places::free_port;
use crate::common;

use common::cluster::start_connected;
use common::{Client, connect_v1};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tidewire_engine::{Config, RepartitionError, Repartitioned};
use tidewire_testkit::redis::RedisServer;

/// What a cluster has, in topics of all partitions, before its topics are moved.
struct Before {
    epochs: BTreeMap<String, Value>,
}

/// More topics than partitions.
fn many() -> impl Iterator<Item = String> {
    (0..20).map(|number| format!("h.{number}"))
}

/// A message with an id; the answer.
fn publish_once(client: &mut Client, topic: &str, number: u64) -> Value {
    let payload = json!({
        "topic": topic, "type": "count", "payload": {"n": number}, "id": format!("id-{number}"),
    });
    client.ask(&json!({"t": "publish_request", "cid": "1", "p": payload}))["p"].clone()
}

const JOBS: [&str; 3] = ["jobs.0", "jobs.1", "jobs.2"];

/// Sends the request to be a member of the queue group of all jobs. Work may arrive before the answer.
fn ask_for_work(client: &mut Client) {
    let payload = json!({
        "action": "subscribe", "topics": JOBS, "queue_group": "workers", "acknowledge": true,
    });
    client.send_text(&json!({"t": "subscription_update", "p": payload}).to_string());
}

/// Joins the queue group of all jobs, which have no work yet.
fn join_group(client: &mut Client) {
    ask_for_work(client);
    let answer = client.next_json();
    assert_eq!(answer["p"]["success_topics"], json!(JOBS), "{answer}");
}

/// The producer of a connection: its epoch, and the number of its last message.
fn producer(client: &mut Client) -> Value {
    let hello = json!({"t": "client_hello", "p": {"producer": {"id": "p"}}});
    client.ask(&hello)["p"]["producer"].clone()
}

/// Fills the topics, and leaves work of a queue group open.
fn fill(config: Config) -> Before {
    let server = start_connected(config);
    let mut worker = connect_v1(&server);
    join_group(&mut worker);
    let mut numbered = connect_v1(&server);
    producer(&mut numbered);
    let answer = numbered.ask(&json!({"t": "note", "n": 1, "p": {}}));
    assert_eq!(answer["p"]["last"], 1, "{answer}");
    let mut client = connect_v1(&server);
    let mut epochs = BTreeMap::new();
    for topic in many() {
        for number in 1..=3 {
            let answer = publish_once(&mut client, &topic, number);
            assert_eq!(answer["offset"], number, "{answer}");
            epochs.insert(topic.clone(), answer["epoch"].clone());
        }
    }
    for number in 0..3 {
        publish_and_wait(&mut client, &format!("jobs.{number}"), number);
    }
    Before { epochs }
}

/// The topics go on where they were, and somebody does the work.
fn check(config: Config, before: &Before) {
    let server = start_connected(config);
    assert_eq!(producer(&mut connect_v1(&server))["last"], 1);
    let mut client = connect_v1(&server);
    for topic in many() {
        let request = json!({"t": "history_request", "cid": "1", "p": {"topic": topic}});
        let page = client.ask(&request)["p"].clone();
        assert_eq!(page["epoch"], before.epochs[&topic], "{topic}: {page}");
        let kept = page["publications"].as_array().expect("publications");
        assert!(kept.len() >= 3, "{topic}: {page}");
        // Its ids are known, and its numbers go on.
        let again = publish_once(&mut client, &topic, 3);
        assert_eq!(
            (&again["duplicate"], &again["offset"]),
            (&json!(true), &json!(3)),
            "{again}"
        );
        let next = publish_and_wait(&mut client, &topic, 4)["p"].clone();
        assert_eq!(next["offset"], kept.len() + 1, "{next}");
        assert_eq!(next["epoch"], before.epochs[&topic], "{next}");
    }
    let mut worker = connect_v1(&server);
    ask_for_work(&mut worker);
    let mut open = BTreeSet::new();
    while open.len() < 3 {
        let message = worker.next_json();
        open.extend(message["tp"].as_str().map(str::to_owned));
    }
    // New work, too, although what was moved may be of a later epoch than the fence.
    for number in 0..3 {
        publish_and_wait(&mut client, &format!("jobs.{number}"), 10 + number);
    }
    let mut new = BTreeSet::new();
    while new.len() < 3 {
        let message = worker.next_json();
        if message["p"]["n"].as_u64() >= Some(10) {
            new.extend(message["tp"].as_str().map(str::to_owned));
        }
    }
}

fn repartition(from: &Config, to: &Config) -> Result<Repartitioned, RepartitionError> {
    let [from, to] = [from, to].map(|config| config.broker.as_ref().expect("a broker"));
    tidewire_engine::repartition(from, to, &mut |_| ())
}

/// Interrupts a move when some topics are at a Redis: it is full then. Gives one of these topics.
fn interrupt(full: &RedisServer, from: &Config, to: &Config) -> String {
    let used = full.ask("INFO memory");
    let used = used
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used: u64 = used.expect("a number").parse().expect("a number");
    for room in (0..).map(|step| step * 10_000) {
        full.ask(&format!("CONFIG SET maxmemory {}", used + room));
        let failed = repartition(from, to);
        assert!(
            matches!(failed, Err(RepartitionError::Broker { .. })),
            "{failed:?}"
        );
        let copied = full.ask("KEYS tw:*:t:h.*");
        let copied = copied.lines().find(|line| line.starts_with("tw:"));
        if let Some((_, topic)) = copied.and_then(|key| key.split_once(":t:")) {
            full.ask("CONFIG SET maxmemory 0");
            return topic.to_owned();
        }
    }
    unreachable!("there is room in the end")
}

#[test]
fn topics_move_between_partitions_and_servers_with_all_that_they_have() {
    let [one, two] = [(); 2].map(|()| RedisServer::start(""));
    let [a, b] = [one.url(), two.url()];
    let layouts = [
        config(&[&a], 1),
        config(&[&a], 4),
        config(&[&a, &b], 4),
        config(&[&b, &a], 3),
        config(&[&b], 2),
        config(&[&b], 1),
    ];
    let before = fill(layouts[0].clone());
    for pair in layouts.windows(2) {
        let done = repartition(&pair[0], &pair[1]).expect("moved");
        assert_eq!(done.topics, 21, "with that of the commands: {done:?}");
        assert!(done.topics_moved > 0);
        check(pair[1].clone(), &before);
    }
    // Each partition that was there says where the topics are, and so no server begins a cluster there.
    for redis in [&one, &two] {
        let keys = redis.ask("KEYS tw:*");
        let mut others = keys
            .lines()
            .filter(|line| line.starts_with("tw:{") && !line.starts_with("tw:{0}"));
        assert!(others.all(|key| key.ends_with(":agreed")), "{keys}");
    }
    assert_eq!(tags(&one, "*"), tags(&one, "agreed"));
    for old in &layouts[..5] {
        let text = refusal(old.clone());
        let expected = format!("the topics of this broker were moved to {}/0", two.url());
        assert!(
            text.contains(&expected) || text.contains("broker_partitions is"),
            "{text}"
        );
    }
}

#[test]
fn topics_are_not_moved_while_a_server_runs() {
    let redis = RedisServer::start("");
    let [from, to] = [1, 4].map(|partitions| config(&[redis.url()], partitions));
    assert!(matches!(
        repartition(&from, &to),
        Err(RepartitionError::NoCluster)
    ));
    let server = start_connected(from.clone());
    let refused = repartition(&from, &to);
    assert!(
        matches!(refused, Err(RepartitionError::Running(1))),
        "{refused:?}"
    );
    let mut client = connect_v1(&server);
    assert_eq!(publish_and_wait(&mut client, "h.a", 1)["p"]["offset"], 1);
    server.stop();
    let other = RedisServer::start("");
    let wrong = config(&[redis.url(), other.url()], 2);
    let refused = repartition(&wrong, &to);
    assert!(
        matches!(refused, Err(RepartitionError::OtherServers { .. })),
        "{refused:?}"
    );
    assert_eq!(repartition(&from, &to).expect("moved").partitions_before, 1);
}

#[test]
fn a_move_that_was_interrupted_goes_on() {
    let [one, two] = [(); 2].map(|()| RedisServer::start(""));
    let [a, b] = [one.url(), two.url()];
    let [from, to] = [config(&[&a], 2), config(&[&a, &b], 4)];
    let before = fill(from.clone());
    interrupt(&two, &from, &to);
    for config in [&from, &to] {
        let text = refusal(config.clone());
        assert!(
            text.contains("being changed by `tidewire partition` in the cluster"),
            "{text}"
        );
    }
    repartition(&from, &to).expect("moved");
    check(to, &before);
}

#[test]
fn a_move_that_was_interrupted_can_be_taken_back() {
    let [one, two] = [(); 2].map(|()| RedisServer::start(""));
    let [a, b] = [one.url(), two.url()];
    let [from, to] = [config(&[&a], 2), config(&[&a, &b], 4)];
    let before = fill(from.clone());
    interrupt(&two, &from, &to);
    let done = repartition(&from, &from).expect("taken back");
    assert_eq!(done.topics_moved, 0);
    check(from, &before);
}

#[test]
fn partitions_of_brokers_that_began_at_different_times_become_one() {
    let durable = "--appendonly yes --appendfsync always";
    let [one, mut two] = [(); 2].map(|()| RedisServer::start(durable));
    let [a, b] = [one.url(), two.url()];
    let [from, to] = [config(&[&a, &b], 2), config(&[&a], 1)];
    fill(from.clone());
    // No server says that it is durable: its topics begin another epoch, and so does their work.
    two.kill();
    two.run();
    let mut ends = BTreeMap::new();
    {
        let server = start_connected(from.clone());
        let mut worker = connect_v1(&server);
        join_group(&mut worker);
        let mut client = connect_v1(&server);
        for topic in many().chain(JOBS.map(str::to_owned)) {
            let answer = publish_and_wait(&mut client, &topic, 5)["p"].clone();
            ends.insert(topic, (answer["epoch"].clone(), answer["offset"].clone()));
        }
    }
    let offsets: BTreeSet<_> = many().map(|topic| ends[&topic].1.as_u64()).collect();
    assert_eq!(offsets, [Some(1), Some(4)].into(), "both kinds of topics");
    repartition(&from, &to).expect("moved");
    let server = start_connected(to);
    let mut client = connect_v1(&server);
    assert_eq!(producer(&mut connect_v1(&server))["last"], 1);
    let mut worker = connect_v1(&server);
    ask_for_work(&mut worker);
    for topic in many() {
        let answer = publish_and_wait(&mut client, &topic, 6)["p"].clone();
        let (epoch, offset) = &ends[&topic];
        assert_eq!(&answer["epoch"], epoch, "{topic}");
        assert_eq!(
            answer["offset"].as_u64(),
            offset.as_u64().map(|offset| offset + 1)
        );
    }
    for number in 0..3 {
        publish_and_wait(&mut client, &format!("jobs.{number}"), 7);
    }
    let mut done: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    while done
        .values()
        .filter(|numbers| numbers.is_superset(&[5, 7].into()))
        .count()
        < 3
    {
        let message = worker.next_json();
        if let (Some(topic), Some(number)) = (message["tp"].as_str(), message["p"]["n"].as_u64()) {
            done.entry(topic.to_owned()).or_default().insert(number);
        }
    }
}

#[test]
fn what_an_interrupted_move_has_copied_does_not_come_back() {
    let [one, two] = [(); 2].map(|()| RedisServer::start(""));
    let [a, b] = [one.url(), two.url()];
    let [from, to] = [config(&[&a], 2), config(&[&a, &b], 4)];
    fill(from.clone());
    let topic = interrupt(&two, &from, &to);
    // Its end comes while nobody looks.
    for key in one
        .ask(&format!("KEYS tw:*:t:{topic}"))
        .lines()
        .filter(|line| line.starts_with("tw:"))
    {
        one.ask(&format!("UNLINK {key}"));
    }
    let done = repartition(&from, &to).expect("moved");
    assert_eq!(done.topics, 20, "{done:?}");
    for redis in [&one, &two] {
        assert_eq!(redis.ask(&format!("KEYS tw:*:t:{topic}")), "*0\r\n");
    }
}

#[test]
fn a_move_that_has_not_removed_all_is_ended_before_another() {
    let redis = RedisServer::start("");
    let url = [redis.url()];
    let before = fill(config(&url, 1));
    let layouts = [1, 4, 8].map(|partitions| config(&url, partitions));
    repartition(&layouts[0], &layouts[1]).expect("moved");
    // As the call left it before its end.
    let place = format!("{}/0", redis.url());
    redis.ask(&format!(
        "HSET tw:{{0}}:agreed move \"cleaning 1 {place} 4 {place}\""
    ));
    let refused = repartition(&layouts[0], &layouts[2]);
    let expected = matches!(refused, Err(RepartitionError::Unfinished { .. }));
    assert!(expected, "{refused:?}");
    repartition(&layouts[0], &layouts[1]).expect("ended");
    check(layouts[1].clone(), &before);
    repartition(&layouts[1], &layouts[2]).expect("moved");
    check(layouts[2].clone(), &before);
}

#[test]
fn a_broker_that_is_named_in_two_ways_is_one() {
    let port = free_port();
    let redis = RedisServer::start(&format!("--port {port}"));
    let by_name = format!("redis://localhost:{port}");
    let [from, to] = [config(&[redis.url()], 2), config(&[by_name], 2)];
    let before = fill(from.clone());
    let done = repartition(&from, &to).expect("nothing to move");
    assert_eq!((done.topics, done.topics_moved), (21, 0));
    check(to, &before);
}

#[test]
fn topics_are_not_moved_into_another_cluster() {
    let [one, two] = [(); 2].map(|()| RedisServer::start(""));
    let [from, other] = [&one, &two].map(|redis| config(&[redis.url()], 1));
    let before = [&from, &other].map(|config| fill(config.clone()));
    for partitions in [1, 3] {
        let to = config(&[two.url()], partitions);
        let refused = repartition(&from, &to);
        assert!(
            matches!(refused, Err(RepartitionError::Occupied(_))),
            "{refused:?}"
        );
    }
    check(from, &before[0]);
    check(other, &before[1]);
}

#[test]
fn an_interrupted_move_is_not_taken_for_one_in_the_other_direction() {
    let [one, two] = [(); 2].map(|()| RedisServer::start(""));
    let [from, to] = [&one, &two].map(|redis| config(&[redis.url()], 1));
    let before = fill(from.clone());
    interrupt(&two, &from, &to);
    let refused = repartition(&to, &from);
    let is_unfinished = matches!(refused, Err(RepartitionError::Unfinished { .. }));
    assert!(is_unfinished, "{refused:?}");
    repartition(&from, &to).expect("moved");
    check(to, &before);
}

#[test]
fn what_was_published_at_the_new_place_stays_when_a_move_goes_on() {
    let [one, two] = [(); 2].map(|()| RedisServer::start(""));
    let [from, to] = [&one, &two].map(|redis| config(&[redis.url()], 1));
    let before = fill(from.clone());
    repartition(&from, &to).expect("moved");
    // As the call left both before it removed anything.
    let record = format!("move \"cleaning 1 {}/0 1 {}/0\"", one.url(), two.url());
    for redis in [&one, &two] {
        redis.ask(&format!("HSET tw:{{0}}:agreed {record}"));
    }
    check(to.clone(), &before);
    repartition(&from, &to).expect("ended");
    let server = start_connected(to);
    let mut client = connect_v1(&server);
    for topic in many() {
        let answer = publish_and_wait(&mut client, &topic, 5)["p"].clone();
        assert_eq!(
            (&answer["offset"], &answer["epoch"]),
            (&json!(5), &before.epochs[&topic])
        );
    }
}
