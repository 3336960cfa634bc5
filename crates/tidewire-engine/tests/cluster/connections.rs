//! Calls of a server for a connection of another server, over one Redis. Each test starts a
//! `redis-server` of its own.

use crate::common;

use common::cluster::{is_connected, shared_topics, start_connected};
use common::topics::{next, publish, subscribe};
use common::{Client, connect, wait_until};
use serde_json::{Value, json};
use std::time::Duration;
use tidewire_engine::{
    AccessRules, CallFailure, ConnectionKey, NewCall, NewPublication, Outgoing, Rules, SendError,
    Server,
};
use tidewire_testkit::redis::RedisServer;
use tidewire_wire::close::CloseCode;

fn server(redis: &RedisServer) -> Server {
    let mut config = shared_topics(&redis.url());
    config.broker.as_mut().expect("a broker").wait_ms = 300;
    start_connected(config)
}

/// A client that takes calls, and its key as another server reads it.
fn client_of(server: &Server) -> (Client, ConnectionKey) {
    let mut client = connect(server);
    let ready = client.next_json();
    let id = ready["p"]["details"]["connection_id"]
        .as_str()
        .expect("an id");
    let key = server.handle().find_connection(id).expect("a server");
    let hello = json!({"t": "client_hello", "p": {"features": {"calls": true}}});
    client.ask(&hello);
    let text = key.expect("the client is there").to_string();
    assert!(text.starts_with('n'), "it names its server: {text}");
    (client, text.parse().expect("a key"))
}

#[test]
fn a_connection_is_reached_from_another_server() {
    let redis = RedisServer::start("");
    let [here, there] = [server(&redis), server(&redis)];
    let (mut client, key) = client_of(&there);
    // The same shard and number on this server are somebody else.
    let (mut neighbour, _) = client_of(&here);
    let handle = here.handle();
    handle
        .send(key, Outgoing::Text(r#"{"t":"one","p":1}"#.into()))
        .expect("sent");
    let publication = NewPublication::new("two", "2");
    handle
        .publish_to_connection(key, &publication)
        .expect("sent");
    handle
        .send_snapshot(key, "a", "state", r#"{"n":3}"#, Some("c1"))
        .expect("sent");
    assert_eq!(client.next_json(), json!({"t": "one", "p": 1}));
    assert_eq!(client.next_json()["t"], "two");
    let snapshot = client.next_json();
    assert_eq!(
        (&snapshot["tp"], &snapshot["p"]),
        (&json!("a"), &json!({"n": 3}))
    );
    handle.subscribe(key, "a").expect("a broker");
    assert_eq!(client.next_json()["p"]["success_topics"], json!(["a"]));
    handle.unsubscribe(key, "a").expect("a broker");
    assert_eq!(client.next_json()["p"]["action"], "unsubscribe");
    let rules = AccessRules {
        subscribe: Rules {
            allow: vec!["b".to_owned()],
            deny: Vec::new(),
        },
        ..AccessRules::default()
    };
    handle.set_access(key, rules).expect("a broker");
    // It goes another way than the client's own messages.
    wait_until("other rights", || {
        let update = json!({"action": "subscribe", "topics": ["c"]});
        let answer = client.ask(&json!({"t": "subscription_update", "p": update}));
        answer["p"]["failed_topics"] == json!(["c"]) && client.next_json()["t"] == "error"
    });
    subscribe(&mut neighbour, json!(["mine"]));
    handle
        .close_with(key, CloseCode::POLICY_VIOLATION, "away with you")
        .expect("a broker");
    client.assert_closed(CloseCode::POLICY_VIOLATION);
    publish(&mut neighbour, "mine", 4);
    assert_eq!(next(&mut neighbour).1, 4, "nothing of it came here");
}

fn next_call(client: &mut Client) -> (Value, Value) {
    let message = client.next_json();
    assert_eq!(message["t"], "call_request", "{message}");
    (message["cid"].clone(), message["p"].clone())
}

fn respond(client: &mut Client, cid: &Value, payload: &Value) {
    let response = json!({"c": "WSE", "t": "call_response", "cid": cid, "p": payload});
    client.send_text(&response.to_string());
}

#[test]
fn a_client_of_another_server_is_called() {
    let redis = RedisServer::start("");
    let [here, there] = [server(&redis), server(&redis)];
    let (mut client, key) = client_of(&there);
    let handle = here.handle();
    let call = || NewCall::new("sum", "[1,2]").with_timeout(Duration::from_secs(20));
    let start = |call: NewCall| {
        let (told, outcomes) = std::sync::mpsc::channel();
        handle.call(key, call, move |outcome| {
            told.send(outcome).expect("the test listens");
        });
        outcomes
    };
    let asked = start(call());
    let (cid, question) = next_call(&mut client);
    assert_eq!(
        (&question["type"], &question["payload"]),
        (&json!("sum"), &json!([1, 2]))
    );
    respond(&mut client, &cid, &json!({"payload": {"is": 3}}));
    let answer = asked.recv().expect("an outcome");
    let answer: Value = serde_json::from_str(answer.expect("an answer").as_json()).expect("JSON");
    assert_eq!(answer, json!({"is": 3}));
    // A panic of the application stops nothing.
    handle.call(key, call(), |_| panic!("on purpose"));
    let (cid, _) = next_call(&mut client);
    respond(&mut client, &cid, &json!({"payload": null}));
    let refused = start(call());
    let (cid, _) = next_call(&mut client);
    let error = json!({"error": {"code": "NOPE", "message": "not now"}});
    respond(&mut client, &cid, &error);
    let Err(CallFailure::Refused(error)) = refused.recv().expect("an outcome") else {
        panic!("the client refused");
    };
    assert_eq!((&*error.code, &*error.message), ("NOPE", "not now"));
    let short = call().with_timeout(Duration::from_millis(20));
    assert_eq!(handle.call_wait(key, short), Err(CallFailure::TimedOut));
    next_call(&mut client);
    // A connection that ends, one that is gone, and a server that is gone.
    let open = start(call());
    next_call(&mut client);
    drop(client);
    assert_eq!(open.recv().expect("an outcome"), Err(CallFailure::Closed));
    assert_eq!(handle.call_wait(key, call()), Err(CallFailure::Closed));
    wait_until("two servers", || handle.has_connection(key) == Ok(true));
    let (_last, key) = client_of(&there);
    drop(there);
    assert_eq!(handle.call_wait(key, call()), Err(CallFailure::Closed));
    wait_until("one server", || handle.has_connection(key) == Ok(false));
}

#[test]
fn without_redis_a_call_fails_and_a_close_is_refused() {
    let mut redis = RedisServer::start("");
    let [here, there] = [server(&redis), server(&redis)];
    let (mut client, key) = client_of(&there);
    redis.kill();
    wait_until("no broker", || {
        !is_connected(&here) && !is_connected(&there)
    });
    let handle = here.handle();
    let call = NewCall::new("sum", "1");
    assert_eq!(handle.call_wait(key, call.clone()), Err(CallFailure::Busy));
    let closed = handle.close(key, CloseCode::NORMAL, "");
    assert_eq!(closed, Err(SendError::Unavailable), "nobody was told");
    redis.run();
    wait_until("a broker", || is_connected(&here) && is_connected(&there));
    let text = Outgoing::Text(r#"{"t":"back","p":1}"#.into());
    handle.send(key, text).expect("sent");
    assert_eq!(client.next_json()["t"], "back", "its session went on");
}
