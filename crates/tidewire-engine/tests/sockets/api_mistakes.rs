//! The HTTP API over real sockets: what it refuses, and what clients of it do to one another.

#![allow(clippy::unwrap_used, reason = "a test may end in a panic")]

use crate::common;

use common::api::{config_with_api, http, server, with_key};
use common::start;
use serde_json::json;
use tidewire_engine::Server;
use tidewire_engine::apps::Sink;

#[test]
fn only_those_with_the_key_are_served() {
    let server = server();
    let mut peer = http(&server);
    for (lines, code) in [
        ("", "no_key"),
        ("Authorization: Basic 0123456789abcdef\r\n", "no_key"),
        ("Authorization: Bearer 0123456789abcdeF\r\n", "wrong_key"),
        ("X-API-Key: 0123456789abcde\r\n", "wrong_key"),
        ("X-API-Key: \r\n", "wrong_key"),
    ] {
        let refused = peer.ask("GET", "/api/v1/connections", lines, "");
        assert_eq!((refused.status, refused.code().as_str()), (401, code));
        assert_eq!(refused.headers["www-authenticate"], "Bearer");
    }
    let right = "X-API-Key: 0123456789abcdef\r\n";
    assert_eq!(
        peer.ask("GET", "/api/v1/connections", right, "").status,
        200
    );
    // A body without the key is not even read.
    let refused = peer.ask("POST", "/api/v1/publish", "", "{}");
    assert_eq!(
        (refused.status, refused.headers["connection"].as_str()),
        (401, "close")
    );
    peer.expect_end();

    let mut config = config_with_api();
    config.ops_api_keys.clear();
    let without = start(config, Sink);
    let refused = with_key(&without, "GET", "/api/v1/connections", "");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "api_disabled")
    );
    let described = http(&without).ask("GET", "/api/v1/openapi.json", "", "");
    assert_eq!(
        (described.status, &described.json()["info"]["version"]),
        (200, &json!("1"))
    );
}

/// A request's method, path and body, and the status and code of its refusal.
type Mistake<'a> = (&'a str, &'a str, &'a str, u16, &'a str);

fn expect_refused(server: &Server, mistakes: &[Mistake<'_>]) {
    for &(method, path, body, status, code) in mistakes {
        let refused = with_key(server, method, path, body);
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (status, code),
            "{path} {body:.80}"
        );
        assert!(
            !refused.json()["error"]["message"]
                .as_str()
                .unwrap()
                .is_empty()
        );
    }
}

/// Bodies of publications that are refused, with status and code.
fn expect_publications_refused(mistakes: &[(&str, u16, &str)]) {
    let server = server();
    let to_publish = |&(body, status, code)| ("POST", "/api/v1/publish", body, status, code);
    let mistakes: Vec<_> = mistakes.iter().map(to_publish).collect();
    expect_refused(&server, &mistakes);
}

#[test]
fn a_publication_without_its_fields_is_refused() {
    expect_publications_refused(&[
        ("", 400, "invalid_json"),
        ("{", 400, "invalid_json"),
        (
            r#"{"topic":"a","type":"x","payload":tru}"#,
            400,
            "invalid_json",
        ),
        (r#"{"topic":"a","payload":1}"#, 400, "invalid_request"),
        (r#"{"type":"x","payload":1}"#, 400, "invalid_request"),
        (
            r#"{"topic":"a","user":"b","type":"x","payload":1}"#,
            400,
            "invalid_request",
        ),
        (
            r#"{"topic":"a","type":"x","payload":1,"prio":1}"#,
            400,
            "invalid_request",
        ),
    ]);
}

#[test]
fn what_cannot_be_published_is_refused() {
    let huge = json!({"topic": "a", "type": "x", "payload": "x".repeat(1024 * 1024)}).to_string();
    let nested = format!(
        r#"{{"topic":"a","type":"x","payload":{}1{}}}"#,
        "[".repeat(100),
        "]".repeat(100)
    );
    expect_publications_refused(&[
        (
            r#"{"topic":"a","type":"x","payload":1,"exclude":"0-x"}"#,
            404,
            "unknown_connection",
        ),
        (
            r#"{"topic":"a.*","type":"x","payload":1}"#,
            400,
            "invalid_topic",
        ),
        (
            r#"{"topic":"a","type":"","payload":1}"#,
            400,
            "invalid_type",
        ),
        (&nested, 400, "invalid_payload"),
        (&huge, 413, "too_large"),
    ]);
}

#[test]
fn other_requests_with_mistakes_are_refused() {
    expect_refused(
        &server(),
        &[
            (
                "POST",
                "/api/v1/subscribe",
                r#"{"user":"a","topics":[]}"#,
                400,
                "invalid_request",
            ),
            (
                "POST",
                "/api/v1/subscribe",
                r#"{"connection":"0-77","topics":["a"]}"#,
                404,
                "unknown_connection",
            ),
            ("GET", "/api/v1/publish", "", 405, "method_not_allowed"),
            ("GET", "/api/v2/topics", "", 404, "not_found"),
            (
                "GET",
                "/api/v1/connections?after=x",
                "",
                400,
                "invalid_request",
            ),
        ],
    );
}

#[test]
fn bodies_have_limits_and_lengths() {
    let server = server();
    let key = "X-API-Key: 0123456789abcdef\r\n";
    let mut peer = http(&server);
    peer.send(&format!(
        "POST /api/v1/publish HTTP/1.1\r\nHost: localhost\r\n{key}Content-Length: 2097153\r\n\r\n"
    ));
    let refused = peer.receive();
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (413, "too_large")
    );
    peer.expect_end();

    // Chunks have no sum beforehand: what is beyond the limit ends the request.
    let mut peer = http(&server);
    let chunked = format!(
        "POST /api/v1/publish HTTP/1.1\r\nHost: localhost\r\n{key}Transfer-Encoding: chunked\r\n\r\n"
    );
    let mut body = chunked.clone();
    for _ in 0..=32 {
        body.extend(["10000\r\n", &"x".repeat(65_536), "\r\n"]);
    }
    peer.send(&body);
    let refused = peer.receive();
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (413, "too_large")
    );
    peer.expect_end();

    let mut peer = http(&server);
    peer.send(&chunked);
    let publication = json!({"topic": "a", "type": "x", "payload": [1]}).to_string();
    let (first, second) = publication.split_at(7);
    for piece in [first, second] {
        peer.send(&format!("{:x};a=b\r\n{piece}\r\n", piece.len()));
    }
    peer.send("0\r\nA: b\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(
        peer.receive().json(),
        json!({"topic": "a", "duplicate": false})
    );
    assert_eq!(peer.receive().json()["status"], "ok");

    // A batch that fills the limit is read, whatever waits behind it.
    let one = json!({"topic": "a", "type": "x", "payload": "x".repeat(900_000)});
    let body = json!([one, one]).to_string();
    let mut peer = http(&server);
    let length = body.len();
    peer.send(&format!(
        "POST /api/v1/publish/batch HTTP/1.1\r\nHost: localhost\r\n{key}Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    ));
    assert_eq!(peer.receive().status, 100);
    peer.send(&format!(
        "{body}GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    assert_eq!(
        peer.receive().json()["results"],
        json!([{"topic": "a", "duplicate": false}, {"topic": "a", "duplicate": false}])
    );
    assert_eq!(peer.receive().json()["status"], "ok");
}

#[test]
fn a_body_that_does_not_come_ends_after_a_time() {
    let server = server();
    let mut slow = http(&server);
    slow.send("POST /api/v1/publish HTTP/1.1\r\nHost: localhost\r\nX-API-Key: 0123456789abcdef\r\nContent-Length: 100\r\n\r\n{");
    assert_eq!(slow.receive().status, 408);
    slow.expect_end();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = server();
    let key = "X-API-Key: 0123456789abcdef\r\n";
    let body = r#"{"topic":"kept.a","type":"x","payload":1}"#;
    let length = body.len();
    let publish = format!(
        "POST /api/v1/publish HTTP/1.1\r\nHost: localhost\r\n{key}Content-Length: {length}\r\n\r\n{body}"
    );
    let health = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut peer = http(&server);
    peer.send(&[publish.as_str(), health].concat().repeat(50));
    for offset in 1..=50 {
        assert_eq!(peer.receive().json()["offset"], offset);
        assert_eq!(peer.receive().json()["status"], "ok");
    }
}
