//! `tidewire serve` with topics: what options and the file say holds, and backends use it over HTTP.

use crate::program::{Running, request};
use std::fs;
use tidewire_testkit::websocket::Client;

const KEY: &str = "0123456789abcdef";

/// A server with the API, and its operations listener.
fn serve(arguments: &[&str]) -> (Running, String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("api.key");
    fs::write(&file, format!("{KEY}\n")).unwrap();
    let api = ["--no-auth", "--ops-listen", "127.0.0.1:0", "--api-key-file"];
    let all = [&api[..], &[file.to_str().unwrap()], arguments].concat();
    let mut server = Running::serve(&all);
    let line = server.line();
    let operations = line.strip_prefix("operations on ").expect(&line).to_owned();
    (server, operations, folder)
}

fn subscribe(session: &mut Client, topic: &str) -> String {
    let message = format!(
        r#"{{"t":"subscription_update","p":{{"action":"subscribe","topics":["{topic}"]}}}}"#
    );
    session.send_text(&message);
    session.next_text()
}

fn publish(operations: &str, topic: &str) -> String {
    let body = format!(r#"{{"topic":"{topic}","type":"note","payload":"hello"}}"#);
    let (status, answer) = request(operations, "POST", "/api/v1/publish", KEY, &body);
    assert_eq!(status, 200, "{answer}");
    answer
}

#[test]
fn options_open_topics_and_keep_history() {
    let arguments = [
        "--topics-open",
        "--history",
        ">=5,rooms.>=2",
        "--presence",
        "rooms.*",
    ];
    let (server, operations, _folder) = serve(&arguments);
    let mut session = server.opening().open();
    session.next_text();
    assert!(subscribe(&mut session, "rooms.a").contains(r#""success_topics":["rooms.a"]"#));
    // The session receives the event of its own join, too.
    assert!(session.next_text().contains("presence_join"));
    for _ in 0..3 {
        publish(&operations, "rooms.a");
    }
    let received = session.next_text();
    assert!(
        received.contains(r#""t":"note""#) && received.contains(r#""o":1"#),
        "{received}"
    );
    let (_, kept) = request(
        &operations,
        "GET",
        "/api/v1/topics/rooms.a/history",
        KEY,
        "",
    );
    assert!(kept.contains(r#""oldest":2"#), "{kept}");
    let (_, present) = request(
        &operations,
        "GET",
        "/api/v1/topics/rooms.a/presence",
        KEY,
        "",
    );
    assert!(present.contains(r#""users":1"#), "{present}");
}

#[test]
fn the_file_says_what_is_allowed_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidewire.toml");
    let config = r#"
        [topics]
        client_subscribe_allow = ["open.>"]
        client_subscribe_deny = ["open.secret"]
        payload_bytes_max = 64

        [[topics.rule]]
        pattern = "open.kept"
        history_publications = 2
        last_value = true
        priority = 8
    "#;
    fs::write(&file, config).unwrap();
    let (server, operations, _folder) = serve(&["--config", file.to_str().unwrap()]);
    assert!(publish(&operations, "open.kept").contains(r#""offset":1"#));
    assert!(!publish(&operations, "open.other").contains("offset"));
    let mut session = server.opening().open();
    session.next_text();
    assert!(subscribe(&mut session, "open.kept").contains(r#""success_topics":["open.kept"]"#));
    let newest = session.next_text();
    assert!(
        newest.contains(r#""o":1"#) && newest.contains(r#""pri":8"#),
        "{newest}"
    );
    for topic in ["open.secret", "closed"] {
        let refused = subscribe(&mut session, topic);
        assert!(
            refused.contains(&format!(r#""failed_topics":["{topic}"]"#)),
            "{refused}"
        );
        assert!(session.next_text().contains("TOPIC_FORBIDDEN"));
    }
    let long = format!(
        r#"{{"topic":"a","type":"x","payload":"{}"}}"#,
        "x".repeat(64)
    );
    assert_eq!(
        request(&operations, "POST", "/api/v1/publish", KEY, &long).0,
        413
    );
}

#[test]
fn without_a_key_nothing_is_served() {
    let (_server, operations, _folder) = serve(&[]);
    let (status, answer) = request(&operations, "GET", "/api/v1/topics", "wrong", "");
    assert_eq!(status, 401, "{answer}");
    let mut server = Running::serve(&["--no-auth", "--ops-listen", "127.0.0.1:0"]);
    let line = server.line();
    let operations = line.strip_prefix("operations on ").expect(&line);
    let (status, answer) = request(operations, "GET", "/api/v1/topics", KEY, "");
    assert!(status == 403 && answer.contains("api_disabled"), "{answer}");
}
