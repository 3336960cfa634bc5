//! Presence: who is on a topic.

use crate::common;

use common::topics::open_topics;
use common::{Client, Opening, SECRET, start, token};
use serde_json::{Value, json};
use tidewire_engine::apps::Sink;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{Server, TopicRule};

fn server() -> Server {
    let mut config = open_topics();
    config.auth = Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec())));
    config.topics.limits.presence_data_bytes_max = 64;
    config.topics.rules = vec![TopicRule {
        presence: true,
        ..TopicRule::new("room.*")
    }];
    start(config, Sink)
}

fn open(server: &Server, user: &str) -> Client {
    let claims = json!({"sub": user, "exp": common::unix_s() + 60});
    let mut client = Opening::new(server.address())
        .header("Authorization", format!("Bearer {}", token(claims)))
        .open();
    assert_eq!(client.next_json()["t"], "server_ready");
    client
}

fn enter(client: &mut Client, presence: Value) {
    let payload = json!({"action": "subscribe", "topics": ["room.a"], "presence": presence});
    let answer = client.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(answer["p"]["success_topics"], json!(["room.a"]), "{answer}");
}

#[track_caller]
fn expect_event(client: &mut Client, event: &str, user: &str, data: Value) {
    let message = client.next_json();
    assert_eq!(message["t"], event, "{message}");
    assert_eq!(message["p"]["topic"], "room.a");
    assert_eq!(
        (&message["p"]["user_id"], &message["p"]["data"]),
        (&json!(user), &data)
    );
}

#[test]
fn joins_updates_and_leaves_are_told_once_per_user() {
    let server = server();
    let (mut ada, mut bob, mut bob2) = (
        open(&server, "ada"),
        open(&server, "bob"),
        open(&server, "bob"),
    );
    enter(&mut ada, json!({"name": "Ada"}));
    expect_event(&mut ada, "presence_join", "ada", json!({"name": "Ada"}));
    enter(&mut bob, json!({"name": "Bob"}));
    expect_event(&mut ada, "presence_join", "bob", json!({"name": "Bob"}));
    expect_event(&mut bob, "presence_join", "bob", json!({"name": "Bob"}));
    enter(&mut bob2, Value::Null);
    enter(&mut bob2, json!({"name": "Robert"}));
    for client in [&mut ada, &mut bob, &mut bob2] {
        expect_event(client, "presence_update", "bob", json!({"name": "Robert"}));
    }
    let ask = json!({"t": "presence_request", "cid": "q", "p": {"topics": ["room.a", "room.b"]}});
    let answer = ada.ask(&ask);
    assert_eq!(
        (&answer["t"], &answer["cid"]),
        (&json!("presence_response"), &json!("q"))
    );
    let room = &answer["p"]["topics"]["room.a"];
    assert_eq!(
        (&room["users"], &room["connections"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(
        room["members"]["bob"],
        json!({"connections": 2, "data": {"name": "Robert"}})
    );
    assert_eq!(answer["p"]["topics"]["room.b"]["users"], 0);
    let ask = json!({"t": "presence_request", "p": {"topics": ["room.a"], "counts_only": true}});
    let answer = ada.ask(&ask);
    assert!(answer["p"]["topics"]["room.a"].get("members").is_none());
    drop(bob);
    let leave = json!({"action": "unsubscribe", "topics": ["room.a"]});
    assert_eq!(
        bob2.ask(&json!({"t": "subscription_update", "p": leave}))["p"]["action"],
        "unsubscribe"
    );
    expect_event(&mut ada, "presence_leave", "bob", Value::Null);
    assert_eq!(server.handle().presence("room.a", 10).unwrap().users, 1);
    drop(ada);
    common::wait_until("nobody is there", || {
        server.handle().presence("room.a", 10).unwrap().users == 0
    });
}

#[test]
fn data_past_the_limit_is_refused() {
    let server = server();
    let mut ada = open(&server, "ada");
    let payload =
        json!({"action": "subscribe", "topics": ["room.a"], "presence": {"name": "a".repeat(64)}});
    let answer = ada.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(answer["p"]["code"], "INVALID_SUBSCRIPTION");
    assert_eq!(server.handle().presence("room.a", 10).unwrap().users, 0);
}

/// The subscribers of 200 topics get what a member says about itself as far as it may say it, and nobody who reads
/// late is cut off.
#[test]
fn presence_data_beyond_the_budget_of_a_member_is_refused() {
    let topics: Vec<String> = (0..200).map(|number| format!("room.{number}")).collect();
    let mut config = open_topics();
    config.auth = Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec())));
    config.limits.outbox_bytes_max = 1024 * 1024;
    config.topics.limits.presence_bytes_per_s = 64 * 1024;
    config.topics.rules = vec![TopicRule {
        presence: true,
        ..TopicRule::new("room.*")
    }];
    let server = start(config, Sink);
    let subscribe = |client: &mut Client, presence: Value| {
        let payload = json!({"action": "subscribe", "topics": topics, "presence": presence});
        client.send_text(&json!({"t": "subscription_update", "p": payload}).to_string());
        loop {
            let message = client.next_json();
            if message["t"] == "subscription_update" {
                return;
            }
        }
    };
    let mut reader = open(&server, "ada");
    subscribe(&mut reader, Value::Null);
    let mut member = open(&server, "bob");
    let data = |round: usize| json!({"round": round, "text": "x".repeat(4_000)});
    for round in 0..40 {
        subscribe(&mut member, data(round));
    }
    // 40 rounds are 32 MB for each of them, far more than any buffer on the way.
    let mut refusals = 0;
    while refusals == 0 {
        let message = member.next_json();
        refusals += u32::from(message["p"]["code"] == "RATE_LIMITED");
    }
    let handle = server.handle();
    common::wait_until("all is told", || handle.counters().presence_refused > 0);
    // The reader is there, with all that it was sent before the answer.
    reader.send_text(&json!({"t": "ping", "p": {"timestamp": 1}}).to_string());
    let mut bytes = 0;
    loop {
        let message = reader.next_json();
        bytes += message.to_string().len();
        if message["t"] == "PONG" {
            break;
        }
    }
    assert!(bytes < 16 * 1024 * 1024, "{bytes}");
    assert_eq!(handle.counters().outbox_overflows, 0);
}

#[test]
fn a_member_whose_data_is_refused_keeps_what_it_said() {
    let mut config = open_topics();
    config.topics.limits.presence_bytes_per_s = 1;
    config.topics.rules = vec![TopicRule {
        presence: true,
        ..TopicRule::new("room.*")
    }];
    let server = start(config, Sink);
    let mut client = common::connect_v1(&server);
    let enter = |client: &mut Client, presence: Value| {
        let payload = json!({"action": "subscribe", "topics": ["room.a"], "presence": presence});
        let answer = client.ask(&json!({"t": "subscription_update", "p": payload}));
        assert_eq!(answer["p"]["success_topics"], json!(["room.a"]), "{answer}");
    };
    enter(&mut client, json!({"n": 1}));
    assert_eq!(client.next_json()["t"], "presence_join");
    enter(&mut client, json!({"n": 2}));
    let refused = client.next_json();
    assert_eq!(refused["p"]["code"], "RATE_LIMITED", "{refused}");
    assert!(refused["p"]["retry_after"].as_u64() > Some(1), "{refused}");
    let members = server.handle().presence("room.a", 10).unwrap().members;
    assert_eq!(members[0].data.as_deref(), Some(r#"{"n":1}"#));
}
