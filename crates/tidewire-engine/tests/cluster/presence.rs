//! Presence on topics that several servers share over one Redis. Each test starts a `redis-server`
//! of its own.

use crate::{common, proxy};

use common::cluster::{partitions, shared_topics, start_connected};
use common::topics::{publish, subscribe};
use common::{Client, Opening, SECRET, token, wait_until};
use proxy::Proxy;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{ClusterNode, HistoryLimits, Server, TopicRule};
use tidewire_testkit::redis::RedisServer;

/// `room.>` has presence, `room.h.>` also history.
fn server_at(url: &str) -> Server {
    let mut config = shared_topics(url);
    config.auth = Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec())));
    config.topics.rules = vec![
        TopicRule {
            history: Some(HistoryLimits::of(100)),
            presence: true,
            ..TopicRule::new("room.h.>")
        },
        TopicRule {
            presence: true,
            ..TopicRule::new("room.>")
        },
    ];
    start_connected(config)
}

fn cluster(redis: &RedisServer) -> [Server; 2] {
    [server_at(&redis.url()), server_at(&redis.url())]
}

fn count(server: &Server, name: &str) -> u64 {
    let health = server.handle().broker_health().expect("a broker");
    BTreeMap::from_iter(health.counts)[name]
}

fn open(server: &Server, user: &str) -> Client {
    let claims = json!({"sub": user, "exp": common::unix_s() + 600});
    let mut client = Opening::new(server.address())
        .header("Authorization", format!("Bearer {}", token(claims)))
        .open();
    assert_eq!(client.next_json()["t"], "server_ready");
    client
}

fn enter(client: &mut Client, topic: &str, presence: Value) {
    let payload = json!({"action": "subscribe", "topics": [topic], "presence": presence});
    client.send_text(&json!({"t": "subscription_update", "cid": "e", "p": payload}).to_string());
    let answer = loop {
        let message = client.next_json();
        if message["t"] == "subscription_update" {
            break message;
        }
    };
    assert_eq!(answer["p"]["success_topics"], json!([topic]), "{answer}");
}

fn leave(client: &mut Client, topic: &str) {
    let payload = json!({"action": "unsubscribe", "topics": [topic]});
    client.send_text(&json!({"t": "subscription_update", "p": payload}).to_string());
}

#[track_caller]
fn expect_event(client: &mut Client, event: &str, user: &str, data: Value) {
    let message = client.next_json();
    assert_eq!(message["t"], event, "{message}");
    assert_eq!(
        (&message["p"]["user_id"], &message["p"]["data"]),
        (&json!(user), &data),
        "{message}"
    );
}

/// The members of a topic, as a client sees them.
fn ask(client: &mut Client, topic: &str) -> Value {
    let answer = client.ask(&json!({"t": "presence_request", "p": {"topics": [topic]}}));
    answer["p"]["topics"][topic].clone()
}

/// The names of those on a topic, as a server knows them.
fn names(server: &Server, topic: &str) -> Vec<String> {
    let presence = server.handle().presence(topic, 10).expect("a broker");
    let mut names: Vec<String> = presence.members.into_iter().map(|it| it.user).collect();
    assert_eq!(names.len(), presence.users);
    names.sort();
    names
}

#[test]
fn a_join_and_a_leave_are_told_on_every_server() {
    let redis = RedisServer::start("");
    let servers = cluster(&redis);
    for topic in ["room.a", "room.h.a"] {
        let (mut ada, mut bob) = (open(&servers[0], "ada"), open(&servers[1], "bob"));
        enter(&mut ada, topic, json!({"name": "Ada"}));
        expect_event(&mut ada, "presence_join", "ada", json!({"name": "Ada"}));
        enter(&mut bob, topic, json!({"name": "Bob"}));
        // Ada was there before.
        expect_event(&mut bob, "presence_join", "bob", json!({"name": "Bob"}));
        expect_event(&mut ada, "presence_join", "bob", json!({"name": "Bob"}));
        // Another connection on the other server is the same member.
        let mut ada2 = open(&servers[1], "ada");
        enter(&mut ada2, topic, json!({"name": "Ada"}));
        let expected = json!({
            "users": 2, "connections": 3, "truncated": false,
            "members": {
                "ada": {"connections": 2, "data": {"name": "Ada"}},
                "bob": {"connections": 1, "data": {"name": "Bob"}},
            },
        });
        for client in [&mut ada, &mut bob, &mut ada2] {
            let mut shown = ask(client, topic);
            for _ in 0..1_000 {
                if shown["connections"] == 3 {
                    break;
                }
                shown = ask(client, topic);
            }
            assert_eq!(shown, expected);
        }
        enter(&mut ada2, topic, json!({"name": "Countess"}));
        for client in [&mut bob, &mut ada, &mut ada2] {
            expect_event(
                client,
                "presence_update",
                "ada",
                json!({"name": "Countess"}),
            );
        }
        // One of two connections, and what it said.
        drop(ada2);
        for client in [&mut bob, &mut ada] {
            expect_event(client, "presence_update", "ada", json!({"name": "Ada"}));
        }
        leave(&mut ada, topic);
        expect_event(&mut bob, "presence_leave", "ada", Value::Null);
        assert_eq!(names(&servers[1], topic), ["bob"]);
        drop(bob);
        wait_until("nobody", || names(&servers[0], topic).is_empty());
    }
}

#[test]
fn a_server_without_subscribers_knows_who_is_there() {
    let redis = RedisServer::start("");
    let servers = cluster(&redis);
    let mut ada = open(&servers[0], "ada");
    enter(&mut ada, "room.a", json!({}));
    expect_event(&mut ada, "presence_join", "ada", json!({}));
    assert_eq!(names(&servers[1], "room.a"), ["ada"]);
    let mut bob = open(&servers[1], "bob");
    assert_eq!(ask(&mut bob, "room.a")["users"], 1);
    assert_eq!(ask(&mut bob, "room.empty")["users"], 0);
    assert_eq!(ask(&mut bob, "elsewhere")["users"], 0);
    // A pattern sees changes of a topic that nobody here subscribes to by name.
    let mut watcher = open(&servers[1], "watcher");
    subscribe(&mut watcher, json!(["*.b"]));
    enter(&mut ada, "room.b", json!({"n": 1}));
    expect_event(&mut watcher, "presence_join", "ada", json!({"n": 1}));
    leave(&mut ada, "room.b");
    expect_event(&mut watcher, "presence_leave", "ada", Value::Null);
}

#[test]
fn publications_and_presence_have_one_order() {
    let redis = RedisServer::start("");
    let servers = cluster(&redis);
    let mut bob = open(&servers[1], "bob");
    enter(&mut bob, "room.h.a", json!({}));
    expect_event(&mut bob, "presence_join", "bob", json!({}));
    let mut ada = open(&servers[0], "ada");
    for round in 0..50 {
        enter(&mut ada, "room.h.a", json!({}));
        let joined = bob.next_json();
        assert_eq!(joined["t"], "presence_join", "{joined}");
        publish(&mut ada, "room.h.a", round);
        let published = bob.next_json();
        assert_eq!(published["p"]["n"], round, "{published}");
        leave(&mut ada, "room.h.a");
        expect_event(&mut bob, "presence_leave", "ada", Value::Null);
    }
}

#[test]
fn a_server_that_is_cut_off_is_gone_with_its_lease_and_comes_back() {
    let redis = RedisServer::start("");
    let proxy = Proxy::start(&redis.socket());
    let near = server_at(&redis.url());
    let far = server_at(&format!("unix://{}", proxy.path().display()));
    let (mut ada, mut bob) = (open(&near, "ada"), open(&far, "bob"));
    enter(&mut ada, "room.a", json!({}));
    expect_event(&mut ada, "presence_join", "ada", json!({}));
    enter(&mut bob, "room.a", json!({"n": 1}));
    expect_event(&mut bob, "presence_join", "bob", json!({"n": 1}));
    expect_event(&mut ada, "presence_join", "bob", json!({"n": 1}));
    proxy.refuse();
    proxy.cut();
    expect_event(&mut ada, "presence_leave", "bob", Value::Null);
    wait_until("counted", || count(&near, "nodes_lost") == 1);
    // It still knows what it knew.
    assert_eq!(ask(&mut bob, "room.a")["users"], 2);
    leave(&mut ada, "room.a");
    wait_until("nobody", || names(&near, "room.a").is_empty());
    proxy.accept();
    // The topic has no history.
    let gap = bob.next_json();
    assert_eq!(gap["t"], "publication_gap", "{gap}");
    expect_event(&mut bob, "presence_leave", "ada", Value::Null);
    wait_until("registered", || names(&near, "room.a") == ["bob"]);
    assert_eq!(count(&far, "leases_lost"), partitions());
}

#[test]
fn redis_may_lose_its_memory() {
    let mut redis = RedisServer::start("");
    let servers = cluster(&redis);
    let (mut ada, mut bob) = (open(&servers[0], "ada"), open(&servers[1], "bob"));
    enter(&mut ada, "room.h.a", json!({}));
    expect_event(&mut ada, "presence_join", "ada", json!({}));
    enter(&mut bob, "room.h.a", json!({}));
    expect_event(&mut bob, "presence_join", "bob", json!({}));
    expect_event(&mut ada, "presence_join", "bob", json!({}));
    redis.kill();
    // Meanwhile one of them goes.
    let mut eve = open(&servers[1], "eve");
    assert_eq!(ask(&mut eve, "room.h.a")["users"], 2);
    leave(&mut ada, "room.h.a");
    redis.run();
    for server in &servers {
        wait_until("registered", || {
            count(server, "leases_lost") == partitions()
        });
    }
    // A gap, and then nothing but the one leave: bob was there all the time.
    let gap = bob.next_json();
    assert_eq!(gap["t"], "publication_gap", "{gap}");
    expect_event(&mut bob, "presence_leave", "ada", Value::Null);
    wait_until("read again", || names(&servers[0], "room.h.a") == ["bob"]);
    enter(&mut eve, "room.h.a", json!({}));
    expect_event(&mut bob, "presence_join", "eve", json!({}));
}

#[test]
fn a_server_that_stops_leaves_at_once() {
    let redis = RedisServer::start("");
    let [near, far] = cluster(&redis);
    let (mut ada, mut bob) = (open(&near, "ada"), open(&far, "bob"));
    enter(&mut ada, "room.a", json!({}));
    expect_event(&mut ada, "presence_join", "ada", json!({}));
    enter(&mut bob, "room.a", json!({}));
    expect_event(&mut ada, "presence_join", "bob", json!({}));
    let nodes = |server: &Server| server.handle().broker_health().expect("a broker").nodes;
    wait_until("a list of both", || {
        let nodes = nodes(&near);
        let is_far = |it: &&ClusterNode| it.address == far.address().to_string();
        let found = nodes.iter().find(is_far);
        nodes.len() == 2 && found.is_some_and(|it| it.connections == 1 && it.topics >= 1)
    });
    far.stop();
    expect_event(&mut ada, "presence_leave", "bob", Value::Null);
    wait_until("a list of one", || nodes(&near).len() == 1);
    assert_eq!(count(&near, "nodes_lost"), 0, "nobody had to take it out");
}
