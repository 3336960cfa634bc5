//! Requests to clients over HTTP.

use super::common::api::{config_with_api, http, open, post, server, with_key};
use super::common::{Client, start};
use super::key_of;
use serde_json::{Value, json};
use tidewire_engine::Server;
use tidewire_engine::apps::Sink;
use tidewire_engine::ops::NamedApiKey;

/// A session of `user` whose client accepts requests.
fn callee(server: &Server, user: &str) -> Client {
    let mut client = open(server, user);
    let hello = json!({"t": "client_hello", "p": {"features": {"calls": true}}});
    assert_eq!(client.ask(&hello)["p"]["features"]["calls"], true);
    client
}

/// Answers the next request with `payload`, and returns it.
#[track_caller]
fn answer(client: &mut Client, payload: &Value) -> Value {
    let request = client.next_json();
    assert_eq!(request["t"], "call_request", "{request}");
    let response = json!({"c": "WSE", "t": "call_response", "cid": request["cid"], "p": payload});
    client.send_text(&response.to_string());
    request["p"].clone()
}

/// Posts a request and returns the status and the body, once `client` has done its part.
fn asked(server: &Server, body: &Value, act: impl FnOnce()) -> (u16, Value) {
    let body = body.to_string();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| with_key(server, "POST", "/api/v1/request", &body));
        act();
        let answer = asking.join().expect("an answer");
        (answer.status, answer.json())
    })
}

fn code(answer: &(u16, Value)) -> (u16, &str) {
    (
        answer.0,
        answer.1["error"]["code"].as_str().expect("a code"),
    )
}

#[test]
fn a_client_answers_what_a_backend_asks() {
    let server = server();
    let mut ada = callee(&server, "ada");
    let key = key_of(&server, "ada");
    let body = json!({"connection": key, "type": "confirm", "payload": {"order": 17}, "timeout_ms": 20_000});
    let told = asked(&server, &body, || {
        let request = answer(&mut ada, &json!({"payload": [true, 1.50]}));
        let expected = json!({"type": "confirm", "timeout_ms": 20_000, "payload": {"order": 17}});
        assert_eq!(request, expected);
    });
    assert_eq!(
        told,
        (200, json!({"connection": key, "payload": [true, 1.5]}))
    );

    let body = json!({"user": "ada", "type": "state"});
    let told = asked(&server, &body, || {
        let request = answer(
            &mut ada,
            &json!({"error": {"code": "AWAY", "message": "at lunch"}}),
        );
        assert_eq!(
            (&request["type"], &request["timeout_ms"]),
            (&json!("state"), &json!(10_000))
        );
    });
    assert_eq!(code(&told), (502, "client_refused"));
    assert_eq!(
        told.1["error"]["message"],
        "the client refused: AWAY: at lunch"
    );
}

#[test]
fn of_several_sessions_the_newest_is_asked() {
    let server = server();
    let _first = callee(&server, "ada");
    // Times of opening are whole milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(5));
    let mut second = callee(&server, "ada");
    let told = asked(&server, &json!({"user": "ada", "type": "which"}), || {
        answer(&mut second, &json!({"payload": "second"}));
    });
    assert_eq!((told.0, &told.1["payload"]), (200, &json!("second")));
}

#[test]
fn a_request_without_an_answer_says_why() {
    let server = server();
    let mut mute = callee(&server, "mute");
    let _plain = open(&server, "plain");
    let no_act = || {};
    for (body, expected) in [
        (
            json!({"user": "plain", "type": "t"}),
            (409, "takes_no_requests"),
        ),
        (
            json!({"user": "nobody", "type": "t"}),
            (404, "unknown_user"),
        ),
        (
            json!({"connection": "0-99999", "type": "t"}),
            (404, "unknown_connection"),
        ),
        (
            json!({"connection": "?", "type": "t"}),
            (404, "unknown_connection"),
        ),
        (
            json!({"user": "mute", "type": ""}),
            (400, "invalid_request"),
        ),
        (
            json!({"user": "mute", "type": "x".repeat(129)}),
            (400, "invalid_request"),
        ),
        (json!({"user": "mute"}), (400, "invalid_request")),
        (json!({"type": "t"}), (400, "invalid_request")),
        (
            json!({"user": "mute", "connection": "0-1", "type": "t"}),
            (400, "invalid_request"),
        ),
        (
            json!({"user": "mute", "type": "t", "timeout_ms": 0}),
            (400, "invalid_request"),
        ),
        (
            json!({"user": "mute", "type": "t", "timeout_ms": 25_001}),
            (400, "invalid_request"),
        ),
        (
            json!({"user": "mute", "type": "t", "timeout_ms": 20}),
            (504, "no_answer"),
        ),
    ] {
        let told = asked(&server, &body, no_act);
        assert_eq!(code(&told), expected, "{body}");
    }
    assert_eq!(mute.next_json()["p"]["timeout_ms"], 20);
    let gone = asked(&server, &json!({"user": "mute", "type": "t"}), || {
        drop(mute);
    });
    assert_eq!(code(&gone).0, 404);
}

#[test]
fn waiting_requests_hold_up_nobody_and_are_bounded() {
    let server = server();
    let mut mute = callee(&server, "mute");
    let body = json!({"user": "mute", "type": "t"}).to_string();
    let head =
        "POST /api/v1/request HTTP/1.1\r\nHost: localhost\r\nX-API-Key: 0123456789abcdef\r\n";
    let waiting: Vec<_> = (0..32)
        .map(|_| {
            let mut http = http(&server);
            http.send(&format!(
                "{head}Content-Length: {}\r\n\r\n{body}",
                body.len()
            ));
            http
        })
        .collect();
    for _ in 0..32 {
        assert_eq!(mute.next_json()["t"], "call_request");
    }
    let further = with_key(&server, "POST", "/api/v1/request", &body);
    assert_eq!((further.status, &*further.code()), (503, "busy"));
    let publication = json!({"topic": "a", "type": "t", "payload": 1});
    post(&server, "/api/v1/publish", &publication);
    assert_eq!(http(&server).ask("GET", "/health", "", "").status, 200);
    drop(mute);
    for mut http in waiting {
        let answer = http.receive();
        assert_eq!(
            (answer.status, &*answer.code()),
            (404, "unknown_connection")
        );
    }
}

#[test]
fn a_request_needs_the_right_to_publish() {
    let mut config = config_with_api();
    config.ops_api_keys = vec![NamedApiKey::parse("viewer read 0123456789abcdef").unwrap()];
    let server = start(config, Sink);
    let body = json!({"user": "ada", "type": "t"});
    let told = asked(&server, &body, || {});
    assert_eq!(code(&told), (403, "not_permitted"));
}
