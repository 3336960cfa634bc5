//! Queue groups: members that share the publications of a topic.

use crate::common;

use common::topics::{next, open_topics, publish, subscribe};
use common::{Client, connect_v1, start};
use serde_json::{Value, json};
use tidewire_engine::apps::Sink;
use tidewire_engine::{GroupOverload, Rules};

fn join(client: &mut Client, acknowledge: bool, window: u64) {
    let payload = json!({
        "action": "subscribe", "topics": ["jobs"], "queue_group": "workers",
        "acknowledge": acknowledge, "window": window,
    });
    let answer = client.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(answer["p"]["success_topics"], json!(["jobs"]), "{answer}");
}

fn acknowledge(client: &mut Client, deliveries: &[&Value]) {
    let payload = json!({ "deliveries": deliveries });
    client.send_text(&json!({"t": "publication_ack", "p": payload}).to_string());
}

#[test]
fn each_message_goes_to_one_member_in_turn_and_to_every_other_subscriber() {
    let server = start(open_topics(), Sink);
    let mut members = [connect_v1(&server), connect_v1(&server)];
    let mut other = connect_v1(&server);
    for member in &mut members {
        join(member, false, 1);
    }
    subscribe(&mut other, json!(["jobs"]));
    for number in 0..6 {
        publish(&mut other, "jobs", number);
    }
    let all: Vec<_> = (0..6).map(|_| next(&mut other).1).collect();
    assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    let mut got: Vec<_> = members
        .iter_mut()
        .flat_map(|member| [0; 3].map(|_| next(member).1))
        .collect();
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn who_goes_away_gives_its_work_back() {
    let server = start(open_topics(), Sink);
    let (mut first, mut second) = (connect_v1(&server), connect_v1(&server));
    join(&mut first, true, 2);
    for number in 0..3 {
        publish(&mut second, "jobs", number);
    }
    let taken = [first.next_json(), first.next_json()];
    assert_eq!(
        (&taken[0]["p"]["n"], &taken[1]["p"]["n"]),
        (&json!(0), &json!(1))
    );
    assert!(taken[0].get("rd").is_none());
    acknowledge(&mut first, &[&taken[0]["d"]]);
    let third = first.next_json();
    assert_eq!(third["p"]["n"], 2);
    drop(first);
    join(&mut second, true, 10);
    for number in [1, 2] {
        let again = second.next_json();
        assert_eq!(
            (&again["p"]["n"], &again["rd"]),
            (&json!(number), &json!(true))
        );
        acknowledge(&mut second, &[&again["d"], &json!(999_999_999)]);
    }
    publish(&mut second, "jobs", 3);
    assert_eq!(second.next_json()["p"]["n"], 3);
}

#[test]
fn the_least_busy_member_is_served_first() {
    let server = start(open_topics(), Sink);
    let (mut busy, mut free) = (connect_v1(&server), connect_v1(&server));
    join(&mut busy, true, 10);
    publish(&mut busy, "jobs", 0);
    publish(&mut busy, "jobs", 1);
    assert_eq!(next(&mut busy).1 + next(&mut busy).1, 1);
    join(&mut free, true, 10);
    publish(&mut busy, "jobs", 2);
    publish(&mut busy, "jobs", 3);
    assert_eq!((next(&mut free).1, next(&mut free).1), (2, 3));
}

/// A publisher never waits for a group: a message without room is dropped by the policy, and a member is notified.
#[test]
fn a_full_group_drops_and_says_so() {
    for (policy, kept, newest) in [
        (GroupOverload::DropOldest, [3, 4], 4),
        (GroupOverload::DropNewest, [1, 2], 2),
    ] {
        let mut config = open_topics();
        config.topics.limits.group_waiting_max = 2;
        config.topics.limits.group_overload = policy;
        let server = start(config, Sink);
        let (mut worker, mut backend) = (connect_v1(&server), connect_v1(&server));
        join(&mut worker, true, 1);
        for number in 0..5 {
            publish(&mut backend, "jobs", number);
        }
        let request = json!({"topic": "elsewhere", "type": "count"});
        let answer = backend.ask(&json!({"t": "publish_request", "cid": "f", "p": request}));
        assert_eq!(answer["t"], "publish_response", "{answer}");
        let first = worker.next_json();
        assert_eq!(first["p"]["n"], 0);
        acknowledge(&mut worker, &[&first["d"]]);
        let gap = worker.next_json();
        assert_eq!(gap["t"], "publication_gap", "{gap}");
        assert_eq!(
            (&gap["p"]["topic"], &gap["p"]["reason"], &gap["p"]["count"]),
            (&json!("jobs"), &json!("dropped"), &json!(2))
        );
        let second = worker.next_json();
        assert_eq!(second["p"]["n"], kept[0]);
        acknowledge(&mut worker, &[&second["d"]]);
        assert_eq!(worker.next_json()["p"]["n"], newest);
        assert_eq!(kept[1], newest);
    }
}

#[test]
fn groups_need_a_right_of_their_own_and_are_bounded() {
    let mut config = open_topics();
    config.topics.limits.groups_per_topic_max = 2;
    let server = start(config, Sink);
    let mut client = connect_v1(&server);
    let ask = |client: &mut Client, group: &str| {
        let request = json!({"action": "subscribe", "topics": ["jobs"], "queue_group": group});
        client.ask(&json!({"t": "subscription_update", "p": request}))["p"].clone()
    };
    for group in ["a", "b"] {
        assert_eq!(ask(&mut client, group)["success_topics"], json!(["jobs"]));
    }
    assert_eq!(ask(&mut client, "c")["failed_topics"], json!(["jobs"]));
    assert_eq!(client.next_json()["p"]["code"], "LIMIT_EXCEEDED");
    let refused = ask(&mut client, &"x".repeat(256));
    assert_eq!(refused["code"], "INVALID_SUBSCRIPTION", "{refused}");

    let mut config = open_topics();
    config.topics.access.queue_group = Rules::default();
    let server = start(config, Sink);
    let mut client = connect_v1(&server);
    assert_eq!(ask(&mut client, "a")["failed_topics"], json!(["jobs"]));
    assert_eq!(client.next_json()["p"]["code"], "TOPIC_FORBIDDEN");
}
