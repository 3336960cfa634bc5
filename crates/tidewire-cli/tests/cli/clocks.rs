//! Servers over one Redis, with clocks that are wrong and are corrected.

use crate::program::{Running, SECRET, request, run, tidewire};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tidewire_testkit::redis::RedisServer;
use tidewire_testkit::stepped_clock::SteppedClock;
use tidewire_testkit::websocket::Client;
use tidewire_wire::close::CloseCode;

/// A key of the API.
pub(crate) const KEY: &str = "0123456789abcdef0123456789abcdeX";

const HOUR: i64 = 3_600;

/// A server, and its operations listener.
pub(crate) fn serve(
    redis: &RedisServer,
    folder: &Path,
    clock: Option<&SteppedClock>,
) -> (Running, String) {
    let key = folder.join("api.key");
    fs::write(&key, KEY).expect("written");
    let url = redis.url();
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--shards",
        "1",
        "--ops-listen",
        "127.0.0.1:0",
        "--jwt-secret",
        SECRET,
        "--topics-open",
        "--history",
        "h.>=100",
        "--broker",
        &url,
        "--api-key-file",
        key.to_str().expect("a path"),
    ];
    let mut command = tidewire(&arguments);
    command.envs(clock.into_iter().flat_map(SteppedClock::environment));
    let mut server = Running::start(command);
    let line = server.line();
    let operations = line.strip_prefix("operations on ").expect(&line).to_owned();
    until("ready", || {
        request(&operations, "GET", "/ready", "", "").0 == 200
    });
    (server, operations)
}

pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn connect(server: &Running, user: &str) -> Client {
    let said = run(&[
        "token",
        "--jwt-secret",
        SECRET,
        "--subject",
        user,
        "--expires-in-s",
        "360000",
    ]);
    assert_eq!(said.code, 0, "{said:?}");
    let bearer = format!("Bearer {}", said.stdout.trim());
    let mut client = server.opening().header("Authorization", bearer).open();
    assert!(client.next_text().contains("server_ready"));
    client
}

fn publish(operations: &str, payload: u32, ttl_ms: u64) {
    let body = format!(r#"{{"topic":"h.a","type":"count","payload":{payload},"ttl_ms":{ttl_ms}}}"#);
    let (status, answer) = request(operations, "POST", "/api/v1/publish", KEY, &body);
    assert_eq!(status, 200, "{answer}");
}

/// The history of the topic, as a server returns it.
fn history(operations: &str) -> String {
    let path = "/api/v1/topics/h.a/history";
    let (status, answer) = request(operations, "GET", path, KEY, "");
    assert_eq!(status, 200, "{answer}");
    answer
}

#[test]
fn a_step_of_a_servers_clock_changes_no_session_no_command_and_no_ttl() {
    let folder = tempfile::tempdir().expect("a folder");
    let redis = RedisServer::start("");
    for wrong in [HOUR, -HOUR, 30] {
        let clock = SteppedClock::new();
        clock.set(wrong);
        let (far, far_operations) = serve(&redis, folder.path(), Some(&clock));
        let (_near, operations) = serve(&redis, folder.path(), None);
        // The clock is wrong while users connect, and is corrected; for one of them it becomes wrong later.
        let mut early = connect(&far, "ada");
        clock.set(0);
        let mut late = connect(&far, "ada");
        let mut other = connect(&far, "bob");
        let subscribe =
            r#"{"t":"subscription_update","cid":"1","p":{"action":"subscribe","topics":["h.a"]}}"#;
        other.send_text(subscribe);
        assert!(other.next_text().contains("subscription_update"));
        // Publications expire when their time is over, and not before.
        for (number, step) in [(1, 0), (2, wrong), (3, -wrong), (4, 0)] {
            clock.set(step);
            publish(&operations, number, 600_000);
            let text = other.next_text();
            assert!(text.contains(&format!(r#""p":{number}"#)), "{text}");
            let kept = history(&far_operations);
            assert!(kept.contains(&format!(r#""p":{number}"#)), "{kept}");
        }
        publish(&operations, 5, 300);
        let is_gone = |operations: &str| !history(operations).contains(r#""p":5"#);
        until("it has expired", || is_gone(&operations));
        clock.set(-wrong);
        until("it has expired there", || is_gone(&far_operations));
        clock.set(0);
        // Commands are for all sessions that were there.
        let body = r#"{"user":"ada","code":4403,"reason":"gone"}"#;
        let (status, answer) = request(&operations, "POST", "/api/v1/disconnect", KEY, body);
        assert_eq!(status, 200, "{answer}");
        let gone = CloseCode::from_wire(4403).expect("a code");
        for client in [&mut early, &mut late] {
            assert_eq!(client.close_after_all().0, Some(gone.value()));
        }
        // And for no other.
        other.send_text(r#"{"t":"ping"}"#);
        until("the other stays", || other.next_text().contains("PONG"));
        let (status, answer) =
            request(&operations, "DELETE", "/api/v1/topics/h.a/history", KEY, "");
        assert_eq!(status, 200, "{answer}");
    }
}

#[test]
fn a_step_of_redis_clock_is_logged_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = SteppedClock::new();
    let redis = RedisServer::start_in("", clock.environment().into());
    let (server, operations) = serve(&redis, folder.path(), None);
    let mut client = connect(&server, "ada");
    client.send_text(
        r#"{"t":"subscription_update","cid":"1","p":{"action":"subscribe","topics":["h.a"]}}"#,
    );
    assert!(client.next_text().contains("subscription_update"));
    // Redis forgets a topic without publications sooner, and such a topic can lose nothing.
    publish(&operations, 0, 100 * 3_600_000);
    assert!(client.next_text().contains(r#""p":0"#));
    for (number, hours) in [(1, 1), (2, -1)] {
        clock.set(hours * HOUR);
        publish(&operations, number, 100 * 3_600_000);
        let text = client.next_text();
        assert!(text.contains(&format!(r#""p":{number}"#)), "{text}");
        let metric = format!("tidewire_broker_clock_steps_total {number}");
        until("it is counted", || {
            request(&operations, "GET", "/metrics", "", "")
                .1
                .contains(&metric)
        });
    }
    let log = server.end();
    assert!(log.contains("clock of the broker"), "{log}");
}
