//! Topics as clients see them: subscriptions, publications, patterns, access.

use crate::common;

use common::topics::{next, open_topics, publish, subscribe, update};
use common::{Opening, SECRET, config, connect_v1, start, token};
use serde_json::{Value, json};
use std::sync::mpsc;
use tidewire_engine::apps::Sink;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{
    AccessRules, Application, Config, ConnectionKey, ConnectionQuery, Context, ManageError,
    Message, NewPublication, Outgoing, Peer, PublishError, Rules,
};
use tidewire_wire::close::CloseCode;

/// By such a name one topic could look like another.
#[test]
fn names_that_change_the_direction_of_writing_need_an_option() {
    let name = "users.\u{202e}nimda";
    for is_allowed in [false, true] {
        let mut config = open_topics();
        config.topics.limits.bidi_controls = is_allowed;
        let server = start(config, Sink);
        let mut client = connect_v1(&server);
        let subscription = json!({"t": "subscription_update", "cid": "1", "p": {"action": "subscribe", "topics": [name, "plain"]}});
        let answer = client.ask(&subscription);
        let expected = if is_allowed {
            json!([name, "plain"])
        } else {
            json!(["plain"])
        };
        assert_eq!(answer["p"]["success_topics"], expected);
        if !is_allowed {
            assert_eq!(answer["p"]["failures"][0]["code"], "INVALID_SUBSCRIPTION");
            assert_eq!(client.next_json()["t"], "error");
        }
        let publication = json!({"t": "publish_request", "cid": "2", "p": {"topic": name, "type": "x", "payload": 1}});
        let answer = client.ask(&publication);
        assert_eq!(answer["t"] == "error", !is_allowed, "{answer}");
        let published = server
            .handle()
            .publish(name, &NewPublication::new("x", "1"));
        assert_eq!(published.is_ok(), is_allowed);
        let query = ConnectionQuery {
            limit: 1,
            ..ConnectionQuery::default()
        };
        let listed = server.handle().list_connections(&query).unwrap();
        let key = listed.items[0].connection;
        assert_eq!(server.handle().subscribe(key, name).is_ok(), is_allowed);
    }
}

#[test]
fn what_is_published_reaches_every_subscriber_in_one_order() {
    let server = start(open_topics(), Sink);
    let mut subscribers: Vec<_> = (0..5).map(|_| connect_v1(&server)).collect();
    for subscriber in &mut subscribers {
        subscribe(subscriber, json!(["news"]));
    }
    let mut publishers = [connect_v1(&server), connect_v1(&server)];
    for number in 0..200 {
        publish(&mut publishers[number as usize % 2], "news", number);
    }
    let first: Vec<_> = (0..200).map(|_| next(&mut subscribers[0])).collect();
    let mut numbers: Vec<_> = first.iter().map(|(_, number)| *number).collect();
    for parity in 0..2 {
        let own: Vec<_> = numbers
            .iter()
            .filter(|number| **number % 2 == parity)
            .collect();
        assert!(own.is_sorted(), "a publisher's own order: {own:?}");
    }
    for subscriber in &mut subscribers[1..] {
        let same: Vec<_> = (0..200).map(|_| next(subscriber)).collect();
        assert_eq!(same, first);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
}

#[test]
fn the_handle_publishes_from_another_thread() {
    let server = start(open_topics(), Sink);
    let mut client = connect_v1(&server);
    subscribe(&mut client, json!(["news"]));
    let handle = server.handle();
    std::thread::spawn(move || {
        let news = NewPublication::new("count", r#"{"n":7}"#);
        handle.publish("news", &news).expect("a publication");
        let deep = "[".repeat(62) + &"]".repeat(62);
        // Malformed, two values, no number, no text in UTF-8, nested too deep.
        for broken in ["{", "1 2", "1e999", r#""\ud800""#, &deep] {
            let broken = NewPublication::new("count", broken);
            assert_eq!(handle.publish("news", &broken), Err(PublishError::Payload));
        }
        let system = NewPublication::new("ping", "{}");
        assert_eq!(handle.publish("news", &system), Err(PublishError::Type));
        assert!(matches!(
            handle.publish("a..b", &news),
            Err(PublishError::Topic(_))
        ));
    })
    .join()
    .expect("no panic");
    assert_eq!(next(&mut client), ("news".to_owned(), 7));
}

#[test]
fn after_the_answer_to_an_unsubscription_nothing_comes() {
    let server = start(open_topics(), Sink);
    let mut client = connect_v1(&server);
    subscribe(&mut client, json!(["a", "b"]));
    let answer = update(&mut client, "unsubscribe", json!(["a", "never"]));
    assert_eq!(answer["success_topics"], json!(["a", "never"]));
    publish(&mut client, "a", 1);
    publish(&mut client, "b", 2);
    assert_eq!(next(&mut client), ("b".to_owned(), 2));
}

#[test]
fn a_pattern_brings_every_topic_it_matches_once() {
    let server = start(open_topics(), Sink);
    let mut client = connect_v1(&server);
    subscribe(
        &mut client,
        json!(["orders.*", "orders.eu", "orders.>", "*.eu"]),
    );
    for (number, topic) in [
        "orders.eu",
        "orders.us",
        "orders.eu.fr",
        "users.eu",
        "users.us",
    ]
    .into_iter()
    .enumerate()
    {
        publish(&mut client, topic, number as u64);
    }
    publish(&mut client, "orders.eu", 9);
    let mut got: Vec<_> = (0..5).map(|_| next(&mut client)).collect();
    got.sort_by_key(|(_, number)| *number);
    let topics: Vec<_> = got.iter().map(|(topic, _)| topic.as_str()).collect();
    let expected = [
        "orders.eu",
        "orders.us",
        "orders.eu.fr",
        "users.eu",
        "orders.eu",
    ];
    assert_eq!(topics, expected);
}

#[test]
fn the_publisher_can_leave_itself_out() {
    let server = start(open_topics(), Sink);
    let (mut publisher, mut other) = (connect_v1(&server), connect_v1(&server));
    subscribe(&mut publisher, json!(["a"]));
    subscribe(&mut other, json!(["a"]));
    let payload = json!({"topic": "a", "type": "count", "payload": {"n": 1}, "exclude_self": true});
    publisher.send_text(&json!({"t": "publish_request", "p": payload}).to_string());
    publish(&mut publisher, "a", 2);
    assert_eq!(next(&mut publisher).1, 2);
    assert_eq!((next(&mut other).1, next(&mut other).1), (1, 2));
}

#[test]
fn an_answer_says_what_became_of_a_publication() {
    let server = start(open_topics(), Sink);
    let mut client = connect_v1(&server);
    let request = |id: &str| {
        let payload = json!({"topic": "a", "type": "count", "id": id});
        json!({"t": "publish_request", "cid": "c1", "p": payload})
    };
    for (id, duplicate) in [("x", false), ("y", false), ("x", true)] {
        let answer = client.ask(&request(id));
        assert_eq!(answer["t"], "publish_response", "{answer}");
        assert_eq!(answer["cid"], "c1");
        assert_eq!(answer["p"]["duplicate"], duplicate, "{id}");
    }
    let bad = json!({"t": "publish_request", "cid": "c2", "p": {"topic": "a.*", "type": "count"}});
    let answer = client.ask(&bad);
    assert_eq!(
        (&answer["t"], &answer["cid"]),
        (&json!("error"), &json!("c2"))
    );
    assert_eq!(answer["p"]["code"], "INVALID_MESSAGE");
}

#[test]
fn clients_may_nothing_unless_they_are_allowed_to() {
    let server = start(config(), Sink);
    let mut client = connect_v1(&server);
    let answer = update(&mut client, "subscribe", json!(["a"]));
    assert_eq!(answer["failed_topics"], json!(["a"]));
    assert_eq!(client.next_json()["p"]["code"], "TOPIC_FORBIDDEN");
    let request = json!({"t": "publish_request", "p": {"topic": "a", "type": "count"}});
    assert_eq!(client.ask(&request)["p"]["code"], "TOPIC_FORBIDDEN");
}

#[test]
fn a_token_says_what_its_user_may() {
    let auth = Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec())));
    let server = start(Config { auth, ..config() }, Sink);
    let claims = json!({
        "sub": "ada",
        "exp": common::unix_s() + 60,
        "topics": {
            "subscribe": {"allow": ["orders.>", "users.{sub}"], "deny": ["orders.secret"]},
            "publish": {"allow": ["orders.eu"]},
        },
    });
    let mut client = Opening::new(server.address())
        .header("Authorization", format!("Bearer {}", token(claims)))
        .open();
    assert_eq!(client.next_json()["t"], "server_ready");
    let wanted = [
        "orders.eu",
        "users.ada",
        "users.bob",
        "orders.secret",
        "orders.*",
    ];
    let answer = update(&mut client, "subscribe", json!(wanted));
    assert_eq!(answer["success_topics"], json!(["orders.eu", "users.ada"]));
    assert_eq!(
        answer["failed_topics"],
        json!(["users.bob", "orders.secret", "orders.*"])
    );
    for (failure, topic) in ["users.bob", "orders.secret", "orders.*"]
        .iter()
        .enumerate()
    {
        let reason = json!({
            "topic": topic,
            "code": "TOPIC_FORBIDDEN",
            "message": "this topic is not allowed",
        });
        assert_eq!(answer["failures"][failure], reason);
    }
    assert_eq!(client.next_json()["p"]["code"], "TOPIC_FORBIDDEN");
    publish(&mut client, "orders.us", 1);
    assert_eq!(client.next_json()["p"]["code"], "TOPIC_FORBIDDEN");
    publish(&mut client, "orders.eu", 2);
    assert_eq!(next(&mut client).1, 2);
}

#[test]
fn a_filter_lets_through_what_it_matches() {
    let server = start(open_topics(), Sink);
    let mut clients: Vec<_> = (0..3).map(|_| connect_v1(&server)).collect();
    for (client, filter) in clients.iter_mut().zip([
        json!({"n": {"$gte": 3}}),
        json!({"$not": {"n": {"$in": [1, 2]}}}),
        json!({"n": 1}),
    ]) {
        let payload = json!({"action": "subscribe", "topics": ["a"], "filter": filter});
        client.ask(&json!({"t": "subscription_update", "p": payload}));
    }
    for number in 0..5 {
        publish(&mut clients[0], "a", number);
    }
    publish(&mut clients[0], "a", 1);
    assert_eq!([next(&mut clients[0]).1, next(&mut clients[0]).1], [3, 4]);
    let second = [0, 3, 4].map(|_| next(&mut clients[1]).1);
    assert_eq!(second, [0, 3, 4]);
    assert_eq!([next(&mut clients[2]).1, next(&mut clients[2]).1], [1, 1]);
    let bad = json!({"action": "subscribe", "topics": ["a"], "filter": {"n": {"$near": 1}}});
    let answer = clients[0].ask(&json!({"t": "subscription_update", "cid": "f", "p": bad}));
    assert_eq!(answer["p"]["code"], "INVALID_SUBSCRIPTION");
    assert_eq!(answer["cid"], "f");
}

#[test]
fn limits_of_subscriptions_are_told() {
    let mut config = open_topics();
    config.topics.limits.subscriptions_per_connection_max = 2;
    let server = start(config, Sink);
    let mut client = connect_v1(&server);
    let answer = update(&mut client, "subscribe", json!(["a", "b", "c", "a"]));
    assert_eq!(answer["success_topics"], json!(["a", "b", "a"]));
    assert_eq!(answer["failed_topics"], json!(["c"]));
    assert_eq!(answer["failures"][0]["code"], "LIMIT_EXCEEDED");
    assert_eq!(client.next_json()["p"]["code"], "LIMIT_EXCEEDED");
    drop(client);
    let counters = || server.handle().counters();
    common::wait_until("all topics are gone", || counters().topics == 0);
    assert_eq!(counters().subscriptions, 0);
}

#[test]
fn users_and_everyone_are_reached() {
    let auth = Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec())));
    let server = start(Config { auth, ..config() }, Sink);
    let open = |user: &str| {
        let claims = json!({"sub": user, "exp": common::unix_s() + 60});
        let mut client = Opening::new(server.address())
            .header("Authorization", format!("Bearer {}", token(claims)))
            .open();
        assert_eq!(client.next_json()["t"], "server_ready");
        client
    };
    let mut ada = [open("ada"), open("ada")];
    let mut bob = open("bob");
    let handle = server.handle();
    let message = |number: u64| NewPublication::new("note", format!(r#"{{"n":{number}}}"#));
    handle.publish_to_user("ada", &message(1)).expect("sent");
    handle.publish_to_user("nobody", &message(2)).expect("sent");
    handle.publish_to_everyone(&message(3)).expect("sent");
    for client in &mut ada {
        assert_eq!(client.next_json()["p"]["n"], 1);
        assert_eq!(client.next_json()["p"]["n"], 3);
    }
    assert_eq!(bob.next_json()["p"]["n"], 3);
}

/// Does with topics what messages ask for.
#[derive(Clone)]
struct Obedient;

impl Application for Obedient {
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        let wish: Value = serde_json::from_slice(message.bytes).expect("JSON");
        let topic = wish["p"]["topic"].as_str().expect("a topic");
        match wish["t"].as_str() {
            Some("in") => context.subscribe(topic).expect("a free topic"),
            Some("out") => assert!(context.unsubscribe(topic)),
            _ => {
                let news = NewPublication::new("count", r#"{"n":1}"#);
                context.publish(topic, &news).expect("a publication");
            }
        }
    }
}

#[test]
fn the_application_subscribes_its_sessions_and_publishes() {
    let server = start(config(), Obedient);
    let mut client = connect_v1(&server);
    let wish = |t: &str| json!({"t": t, "p": {"topic": "own.a"}});
    let told = client.ask(&wish("in"));
    assert_eq!(told["p"]["action"], "subscribe");
    assert_eq!(told["p"]["success_topics"], json!(["own.a"]));
    client.send_text(&wish("say").to_string());
    assert_eq!(next(&mut client), ("own.a".to_owned(), 1));
    assert_eq!(client.ask(&wish("out"))["p"]["action"], "unsubscribe");
    client.send_text(&wish("say").to_string());
    assert_eq!(client.ask(&wish("in"))["p"]["action"], "subscribe");
}

#[test]
fn other_threads_subscribe_sessions_and_end_those_of_a_user() {
    let auth = Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec())));
    let server = start(Config { auth, ..config() }, Sink);
    let claims = json!({"sub": "ada", "exp": common::unix_s() + 60});
    let mut client = Opening::new(server.address())
        .header("Authorization", format!("Bearer {}", token(claims)))
        .open();
    assert_eq!(client.next_json()["t"], "server_ready");
    let handle = server.handle();
    handle.subscribe_user("ada", "a").expect("room");
    assert_eq!(client.next_json()["p"]["success_topics"], json!(["a"]));
    let news = NewPublication::new("count", r#"{"n":3}"#);
    handle.publish("a", &news).expect("a publication");
    assert_eq!(next(&mut client).1, 3);
    handle.unsubscribe_user("ada", "a").expect("room");
    assert_eq!(client.next_json()["p"]["action"], "unsubscribe");
    let code = CloseCode::from_wire(4200).expect("a code of the application");
    handle.close_user("ada", code, "enough").expect("room");
    client.assert_closed(code);
}

/// More sessions than a shard changes in a turn, and more changes than it keeps waiting.
#[test]
fn many_sessions_of_a_user_are_changed_in_the_order_of_the_changes() {
    let auth = Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec())));
    let server = start(Config { auth, ..config() }, Sink);
    let claims = json!({"sub": "ada", "exp": common::unix_s() + 60});
    let bearer = format!("Bearer {}", token(claims));
    let open = || {
        Opening::new(server.address())
            .header("Authorization", &bearer)
            .open()
    };
    let mut clients: Vec<_> = (0..700).map(|_| open()).collect();
    for client in &mut clients {
        assert_eq!(client.next_json()["t"], "server_ready");
    }
    let handle = server.handle();
    for _ in 0..20 {
        handle.subscribe_user("ada", "a").expect("room");
        handle.unsubscribe_user("ada", "a").expect("room");
    }
    let code = CloseCode::from_wire(4200).expect("a code of the application");
    handle.close_user("ada", code, "enough").expect("room");
    for client in &mut clients {
        for _ in 0..20 {
            for action in ["subscribe", "unsubscribe"] {
                let update = client.next_json();
                assert_eq!(update["p"]["action"], action);
                assert_eq!(update["p"]["success_topics"], json!(["a"]));
            }
        }
        client.assert_closed(code);
    }
}

/// Gives every session rules of its own, and tells its key.
#[derive(Clone)]
struct Usher(mpsc::Sender<ConnectionKey>);

impl Application for Usher {
    fn on_connect(&mut self, context: &mut Context<'_>, peer: &Peer) {
        let rules = |allow: &str, deny: &str| Rules {
            allow: vec![allow.to_owned()],
            deny: vec![deny.to_owned()],
        };
        let broken = AccessRules {
            subscribe: rules("a..b", "c"),
            ..AccessRules::closed()
        };
        assert!(matches!(
            context.set_access(broken),
            Err(ManageError::Access(_))
        ));
        let news = AccessRules {
            subscribe: rules("news.>", "news.secret"),
            ..AccessRules::closed()
        };
        context.set_access(news).expect("rules that can be used");
        self.0.send(peer.connection).expect("the test listens");
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}
}

#[test]
fn the_application_says_what_a_connection_may() {
    let (keys, connected) = mpsc::channel();
    let server = start(config(), Usher(keys));
    let mut client = connect_v1(&server);
    let key = connected.recv().expect("a connection");
    let wanted = json!(["news.eu", "news.secret", "orders.eu"]);
    let answer = update(&mut client, "subscribe", wanted.clone());
    assert_eq!(answer["success_topics"], json!(["news.eu"]));
    assert_eq!(client.next_json()["p"]["code"], "TOPIC_FORBIDDEN");
    publish(&mut client, "news.eu", 1);
    assert_eq!(client.next_json()["p"]["code"], "TOPIC_FORBIDDEN");

    server
        .handle()
        .set_access(key, AccessRules::open())
        .expect("rules that can be used");
    // In the order of the shard's mail: later messages obey the new rules.
    let told = Outgoing::Text(r#"{"t":"told"}"#.into());
    server.handle().send(key, told).expect("a message");
    assert_eq!(client.next_json()["t"], "told");
    let answer = update(&mut client, "subscribe", wanted.clone());
    assert_eq!(answer["success_topics"], wanted);
    publish(&mut client, "news.eu", 2);
    assert_eq!(next(&mut client).1, 2);
}
