//! The state of topics for clients that ask for it.

use crate::common;

use common::{
    Client, Opening, PAST_SOCKETS_BYTES, Said, assert_settled, config, connect_v1, start,
    wait_until,
};
use serde_json::{Value, json};
use tidewire_engine::apps::Sink;
use tidewire_engine::queue::{Event, queue};
use tidewire_engine::{
    AccessRules, Application, Config, Context, HistoryLimits, Message, NewPublication,
    PublishError, Rules, Server, SyncRequest, TopicRule, Topics,
};
use tidewire_wire::format::msgpack_to_json;

/// `state.` topics keep their last value, `log.` topics only history; nobody may have `secret.`.
fn keeping() -> Config {
    let history = Some(HistoryLimits {
        publications_max: 10,
        bytes_max: 10 << 20,
        age_max_ms: 60_000,
    });
    let rule = |pattern: &str, last_value| TopicRule {
        history,
        last_value,
        ..TopicRule::new(pattern)
    };
    let subscribe = Rules {
        allow: vec![">".into()],
        deny: vec!["secret.>".into()],
    };
    Config {
        topics: Topics {
            access: AccessRules {
                subscribe,
                ..AccessRules::open()
            },
            rules: vec![
                rule("state.>", true),
                rule("secret.>", true),
                rule("log.>", false),
            ],
            ..Topics::default()
        },
        ..config()
    }
}

fn publish(server: &Server, topic: &str, payload: &str) {
    let publication = NewPublication::new("state", payload);
    server
        .handle()
        .publish(topic, &publication)
        .expect("a publication");
}

fn request(cid: &str, topics: &Value) -> Value {
    let payload = json!({"topics": topics, "include_snapshots": true});
    json!({"c": "S", "t": "sync_request", "cid": cid, "p": payload})
}

fn sync(client: &mut Client, topics: &Value) -> Value {
    client.ask(&request("s", topics))
}

#[track_caller]
fn assert_error(answer: &Value, code: &str) {
    assert_eq!(
        (&answer["t"], &answer["p"]["code"]),
        (&json!("error"), &json!(code)),
        "{answer}"
    );
    assert_eq!(answer["cid"], "s", "{answer}");
}

fn subscribe(client: &mut Client, topic: &str) {
    let payload = json!({"action": "subscribe", "topics": [topic]});
    let answer = client.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(answer["p"]["success_topics"], json!([topic]), "{answer}");
}

#[test]
fn topics_that_keep_their_last_value_answer_with_it() {
    let server = start(keeping(), Sink);
    publish(&server, "state.a", r#"{"v":1}"#);
    publish(&server, "state.a", r#"{"v":2}"#);
    publish(&server, "state.b", "[]");
    publish(&server, "log.a", "3");
    publish(&server, "secret.a", "4");
    let mut client = connect_v1(&server);
    let asked = json!([
        "log.a",
        "secret.a",
        "state.a",
        "state.none",
        "state.a",
        "state.*",
        "a..b",
        "state.b"
    ]);
    let first = sync(&mut client, &asked);
    let epoch = first["e"].as_str().expect("an epoch").to_owned();
    let expected = json!({
        "c": "S", "t": "state", "tp": "state.a", "e": epoch, "o": 2, "cid": "s", "p": {"v": 2}
    });
    assert_eq!(first, expected);
    let second = client.next_json();
    assert_eq!(
        (&second["tp"], &second["o"], &second["p"]),
        (&json!("state.b"), &json!(1), &json!([]))
    );
    // Nothing else came.
    assert_eq!(
        client.ask(&json!({"t": "ping", "p": {"timestamp": 1}}))["t"],
        "PONG"
    );
    drop(client);
    let counters = assert_settled(&server.handle());
    assert_eq!((counters.sync_requests, counters.snapshots_sent), (1, 2));
}

#[test]
fn without_topics_those_that_are_subscribed_are_meant() {
    let server = start(keeping(), Sink);
    publish(&server, "state.a", "1");
    publish(&server, "state.b", "2");
    let mut client = connect_v1(&server);
    assert_error(&sync(&mut client, &json!([])), "INVALID_ACTION");
    subscribe(&mut client, "log.a");
    assert_error(&sync(&mut client, &json!([])), "INVALID_ACTION");
    subscribe(&mut client, "state.b");
    // Subscribing brought it already.
    assert_eq!(client.next_json()["c"], "U");
    let snapshot = sync(&mut client, &json!([]));
    assert_eq!(
        (&snapshot["c"], &snapshot["tp"]),
        (&json!("S"), &json!("state.b"))
    );
    assert_eq!(
        client.ask(&json!({"t": "ping", "p": {"timestamp": 1}}))["t"],
        "PONG"
    );
}

#[test]
fn what_is_not_there_not_wanted_or_not_allowed_is_refused() {
    let server = start(keeping(), Sink);
    publish(&server, "state.a", "1");
    publish(&server, "secret.a", "1");
    let mut client = connect_v1(&server);
    for topics in [
        json!(["state.none"]),
        json!(["log.a"]),
        json!(["secret.a"]),
        json!(["x y", "a..b"]),
    ] {
        assert_error(&sync(&mut client, &topics), "INVALID_ACTION");
    }
    let payload = json!({"topics": ["state.a"]});
    let bare = json!({"t": "sync_request", "cid": "s", "p": payload});
    assert_error(&client.ask(&bare), "INVALID_ACTION");
    let many: Vec<_> = (0..1001).map(|n| n.to_string()).collect();
    let wrong = [
        json!({"topics": "state.a"}),
        json!({"topics": [5]}),
        json!({"topics": many}),
        json!({"include_snapshots": 1}),
        json!({"last_sequence": -1}),
    ];
    for payload in wrong {
        let answer = client.ask(&json!({"t": "sync_request", "cid": "s", "p": payload}));
        assert_error(&answer, "INVALID_SUBSCRIPTION");
    }
    assert_eq!(sync(&mut client, &json!(["state.a"]))["p"], 1);
}

#[test]
fn more_than_may_wait_follows_when_the_client_reads() {
    let mut config = keeping();
    config.limits.outbox_pause_bytes = 100_000;
    let server = start(config, Sink);
    let long = json!("x".repeat(PAST_SOCKETS_BYTES / 70)).to_string();
    let topics: Vec<_> = (0..80).map(|n| format!("state.{n}")).collect();
    for topic in &topics {
        publish(&server, topic, &long);
    }
    let mut client = connect_v1(&server);
    let mut other = connect_v1(&server);
    client.send_text(&request("s", &json!(topics)).to_string());
    let handle = server.handle();
    // The client does not read, and the server does not write more than may wait.
    wait_until("the answer waits", || handle.counters().reading_pauses > 0);
    other.ask(&json!({"t": "ping", "p": {"timestamp": 1}}));
    let sent = handle.counters().snapshots_sent;
    assert!((2..80).contains(&sent), "{sent}");
    for topic in &topics {
        let message = client.next_json();
        assert_eq!(
            (&message["c"], &message["tp"]),
            (&json!("S"), &json!(topic))
        );
    }
    // Nothing else came, and the client is read again.
    assert_eq!(
        client.ask(&json!({"t": "ping", "p": {"timestamp": 1}}))["t"],
        "PONG"
    );
}

#[test]
fn messagepack_clients_get_snapshots_as_such() {
    let server = start(keeping(), Sink);
    publish(&server, "state.a", r#"{"v":[1.5,null]}"#);
    let mut client = Opening::new(server.address())
        .target("/ws?format=msgpack")
        .open();
    client.next();
    client.send_text(&request("s", &json!(["state.a"])).to_string());
    let Said::Binary(bytes) = client.next() else {
        panic!("not binary")
    };
    let mut text = Vec::new();
    msgpack_to_json(bytes.strip_prefix(b"M:").expect("MessagePack"), &mut text).unwrap();
    let snapshot: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        (&snapshot["c"], &snapshot["cid"]),
        (&json!("S"), &json!("s"))
    );
    assert_eq!(snapshot["p"], json!({"v": [1.5, null]}));
}

/// Answers for some topics by itself, and tries what it must not send.
#[derive(Clone)]
struct Painter;

impl Application for Painter {
    fn on_message(&mut self, context: &mut Context<'_>, _: Message<'_>) {
        context
            .send_snapshot("own.a", "picture", "0")
            .expect("a snapshot");
    }

    fn on_sync(&mut self, context: &mut Context<'_>, request: &SyncRequest<'_>) -> bool {
        assert_eq!(request.last_sequence, Some(41));
        let wrong = [("", "t", "1"), ("a..b", "t", "1"), ("a.*", "t", "1")];
        for (topic, t, payload) in wrong {
            let result = context.send_snapshot(topic, t, payload);
            assert!(matches!(result, Err(PublishError::Topic(_))), "{topic}");
        }
        assert_eq!(context.send_snapshot("a", "", "1"), Err(PublishError::Type));
        assert_eq!(
            context.send_snapshot("a", "ping", "1"),
            Err(PublishError::Type)
        );
        assert_eq!(
            context.send_snapshot("a", "t", "{"),
            Err(PublishError::Payload)
        );
        let mut is_answered = false;
        for topic in request
            .topics
            .iter()
            .filter(|topic| topic.starts_with("own."))
        {
            context
                .send_snapshot(topic, "picture", r#"{"of":"all"}"#)
                .expect("a snapshot");
            is_answered = true;
        }
        is_answered
    }
}

#[test]
fn the_application_answers() {
    let server = start(keeping(), Painter);
    let mut client = connect_v1(&server);
    let ask = |client: &mut Client, topics: Value| {
        let payload = json!({"topics": topics, "last_sequence": 41});
        client.ask(&json!({"t": "sync_request", "cid": "s", "p": payload}))
    };
    let snapshot = ask(&mut client, json!(["own.a", "secret.a", "own.b"]));
    let picture = json!({"c": "S", "t": "picture", "tp": "own.a", "cid": "s", "p": {"of": "all"}});
    assert_eq!(snapshot, picture);
    assert_eq!(client.next_json()["tp"], "own.b");
    assert_error(&ask(&mut client, json!(["else"])), "INVALID_ACTION");
    // The cid was the request's, not the connection's.
    let unasked = client.ask(&json!({"t": "hello"}));
    assert_eq!((&unasked["p"], &unasked["cid"]), (&json!(0), &Value::Null));
}

#[test]
fn an_application_on_another_thread_answers_later() {
    let (sender, receiver) = queue(1 << 20);
    let sender = sender.with_syncs();
    let server = Server::start(keeping(), move |_| sender.application()).unwrap();
    publish(&server, "state.a", "1");
    let mut client = connect_v1(&server);
    client.send_text(&request("s", &json!(["secret.a", "state.a"])).to_string());
    let handle = server.handle();
    let mut is_answered = false;
    while !is_answered {
        let batch = receiver
            .receive(common::DEADLINE)
            .unwrap()
            .expect("a batch");
        for event in batch.events() {
            let Event::Sync(peer, request) = event else {
                continue;
            };
            assert_eq!(request.topics, ["state.a"]);
            assert!(request.include_snapshots && request.last_sequence.is_none());
            let cid = request.correlation_id;
            handle
                .send_snapshot(peer.connection, "state.a", "mine", "[2]", cid)
                .expect("a snapshot");
            let wrong = handle.send_snapshot(peer.connection, "state.a", "mine", "[", cid);
            assert_eq!(wrong, Err(PublishError::Payload));
            is_answered = true;
        }
    }
    let snapshot = client.next_json();
    let expected = json!({"c": "S", "t": "mine", "tp": "state.a", "cid": "s", "p": [2]});
    assert_eq!(snapshot, expected);
}

#[test]
fn a_queue_leaves_requests_to_the_topics_unless_told_otherwise() {
    let (sender, receiver) = queue(1 << 20);
    let server = Server::start(keeping(), move |_| sender.application()).unwrap();
    publish(&server, "state.a", "1");
    let mut client = connect_v1(&server);
    assert_eq!(sync(&mut client, &json!(["state.a"]))["p"], 1);
    assert_error(&sync(&mut client, &json!(["log.a"])), "INVALID_ACTION");
    drop(client);
    let handle = server.handle();
    wait_until("the client is gone", || handle.connections() == 0);
    server.stop();
    while let Ok(batch) = receiver.receive(common::DEADLINE) {
        let batch = batch.expect("a batch");
        assert!(
            batch
                .events()
                .all(|event| !matches!(event, Event::Sync(..)))
        );
    }
}
