//! The WebSocket of the dashboard.

use super::common::api::{config_with_api, http, server};
use super::common::http::{Answer, Http};
use super::common::{Client, Opening, Said, answer, frame, start, status, text_frame, wait_until};
use super::{KEY, ask, log_in, refusal};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use tidewire_engine::apps::Sink;
use tidewire_engine::ops::{FEED_SOCKETS_MAX, NamedApiKey};
use tidewire_engine::{ReloadFunction, Reloaded, Server};
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::OpCode;

/// The handshake of the dashboard's own page.
fn opening(server: &Server, cookie: &str) -> Opening {
    let address = server.ops_address().unwrap();
    Opening::new(address)
        .target("/dashboard/ws")
        .header("Origin", format!("http://{address}"))
        .header("Cookie", cookie)
}

/// The answer to a handshake that is refused. The connection may go on.
fn refused(opening: &Opening) -> Answer {
    let mut http = Http::connect(opening.address);
    http.send(&String::from_utf8(opening.request()).unwrap());
    http.receive()
}

/// The next snapshot, whose ping stays unanswered.
fn snapshot(client: &mut Client) -> (Value, Vec<u8>) {
    let snapshot = client.next().json();
    match client.next() {
        Said::Ping(payload) => (snapshot, payload),
        other => panic!("{other:?}"),
    }
}

fn answer_ping(client: &mut Client, payload: &[u8]) {
    client.send_bytes(&frame(OpCode::Pong, payload));
}

#[track_caller]
fn assert_ended(client: &mut Client, code: CloseCode, reason: &str) {
    let close = client.close_after_all();
    assert_eq!(close, (Some(code.value()), reason.to_owned()));
    client.send_close(code);
    assert_eq!(client.next(), Said::End);
}

#[test]
fn a_page_receives_the_statistics_again_and_again() {
    let server = server();
    let cookie = log_in(&server, KEY);
    let mut client = opening(&server, &cookie).open();
    let (first, ping) = snapshot(&mut client);
    assert_eq!(first["server"], "tidewire");
    assert!(first["topics"].is_array() && first["timings"].is_object());
    answer_ping(&mut client, &ping);
    let (second, next_ping) = snapshot(&mut client);
    assert!(second["uptime_s"].as_f64() > first["uptime_s"].as_f64());
    assert!(next_ping > ping);

    client.send_bytes(&frame(OpCode::Ping, b"here"));
    assert_eq!(client.next(), Said::Pong(b"here".to_vec()));
    client.send_close(CloseCode::NORMAL);
    let closed = client.next();
    assert_eq!(closed, Said::Close(Some(1000), String::new()));
    assert_eq!(client.next(), Said::End);
}

#[test]
fn only_the_page_of_a_login_that_may_read_opens_a_socket() {
    let mut config = config_with_api();
    let keys = [
        "viewer read 0123456789abcdef",
        "shop publish fedcba9876543210",
    ];
    config.ops_api_keys = keys.map(|key| NamedApiKey::parse(key).unwrap()).to_vec();
    let server = start(config, Sink);
    let cookie = log_in(&server, KEY);
    let address = server.ops_address().unwrap();
    let bare = || Opening::new(address).target("/dashboard/ws");

    assert_eq!(
        refused(&opening(&server, "tidewire_dashboard=0")).status,
        401
    );
    let foreign = bare().header("Cookie", &*cookie);
    assert_eq!(refused(&foreign).status, 403, "no origin");
    let foreign = foreign.header("Origin", "http://evil.example");
    assert_eq!(refused(&foreign).status, 403, "another origin");
    let publisher = log_in(&server, r#"{"key":"fedcba9876543210"}"#);
    let publisher = refused(&opening(&server, &publisher));
    assert_eq!(refusal(&publisher), (403, "not_permitted".to_owned()));
    // What is no handshake: the status says what is wrong with it.
    let request = format!(
        "GET /dashboard/ws HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nCookie: {cookie}\r\n\r\n"
    );
    assert_eq!(status(&answer(address, request)), 426);
    let posted = ask(&server, "POST", "/dashboard/ws", &cookie, "{}");
    assert_eq!(posted.status, 405);
    let mut host = opening(&server, &cookie);
    host.host = "evil.example".to_owned();
    assert_eq!(refused(&host).status, 421);
    opening(&server, &cookie).open();
}

#[test]
fn what_a_session_permits_is_told() {
    let mut config = config_with_api();
    config.ops_api_keys = vec![NamedApiKey::parse("viewer read 0123456789abcdef").unwrap()];
    let server = start(config, Sink);
    let none = ask(&server, "GET", "/dashboard/session", "", "");
    assert_eq!(refusal(&none), (401, "not_logged_in".to_owned()));
    let cookie = log_in(&server, KEY);
    let session = ask(&server, "GET", "/dashboard/session", &cookie, "");
    assert_eq!(
        session.json(),
        json!({"name": "viewer", "rights": ["read"]})
    );
    let posted = ask(&server, "POST", "/dashboard/session", &cookie, "");
    assert_eq!(refusal(&posted), (405, "method_not_allowed".to_owned()));
}

#[test]
fn a_socket_ends_with_its_login() {
    let server = server();
    let cookie = log_in(&server, KEY);
    let mut client = opening(&server, &cookie).open();
    snapshot(&mut client);
    let other = log_in(&server, KEY);
    let mut stays = opening(&server, &other).open();
    let left = ask(&server, "POST", "/dashboard/logout", &cookie, "{}");
    assert_eq!(left.status, 200);
    assert_ended(
        &mut client,
        CloseCode::POLICY_VIOLATION,
        "the login has ended",
    );
    assert_eq!(refused(&opening(&server, &cookie)).status, 401);

    // Who logs in again with the old cookie ends the old login.
    snapshot(&mut stays);
    let again = ask(&server, "POST", "/dashboard/login", &other, KEY);
    assert_eq!(again.status, 200);
    assert_ended(
        &mut stays,
        CloseCode::POLICY_VIOLATION,
        "the login has ended",
    );
}

#[test]
fn a_socket_ends_when_a_reload_revokes_its_key() {
    let config = config_with_api();
    let server = start(config.clone(), Sink);
    let reloader = server.reloader();
    server.on_reload(ReloadFunction(Box::new(move || {
        let mut without = config.clone();
        without.ops_api_keys = vec![NamedApiKey::parse("new all fedcba9876543210").unwrap()];
        let reloaded: Result<Reloaded, _> = reloader.reload(&without);
        reloaded.map_err(|error| error.to_string())
    })));
    let cookie = log_in(&server, KEY);
    let mut client = opening(&server, &cookie).open();
    snapshot(&mut client);
    let reloaded = ask(&server, "POST", "/dashboard/api/v1/reload", &cookie, "");
    assert_eq!(reloaded.status, 200, "{reloaded:?}");
    assert_ended(
        &mut client,
        CloseCode::POLICY_VIOLATION,
        "the login has ended",
    );
}

#[test]
fn a_socket_ends_with_the_server() {
    let server = server();
    let cookie = log_in(&server, KEY);
    let mut client = opening(&server, &cookie).open();
    snapshot(&mut client);
    let stopping = std::thread::spawn(move || drop(server));
    let close = client.close_after_all();
    assert_eq!(close, (Some(1001), "the server stops".to_owned()));
    client.send_close(CloseCode::GOING_AWAY);
    drop(client);
    stopping.join().unwrap();
}

#[test]
fn the_number_of_sockets_is_bounded() {
    let server = server();
    let cookie = log_in(&server, KEY);
    let mut open: Vec<_> = (0..FEED_SOCKETS_MAX)
        .map(|_| opening(&server, &cookie).open())
        .collect();
    let full = refused(&opening(&server, &cookie));
    assert_eq!((full.status, &*full.headers["retry-after"]), (503, "5"));
    assert_eq!(http(&server).ask("GET", "/health", "", "").status, 200);
    open.pop();
    wait_until("room for another", || {
        let mut stream = std::net::TcpStream::connect(server.ops_address().unwrap()).unwrap();
        stream
            .write_all(&opening(&server, &cookie).request())
            .unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        start == *b"HTTP/1.1 101"
    });
}

#[test]
fn a_reader_that_answers_no_ping_has_one_snapshot_on_its_way() {
    let server = server();
    let cookie = log_in(&server, KEY);
    let mut slow = opening(&server, &cookie).open();
    let (_, ping) = snapshot(&mut slow);
    let mut quick = opening(&server, &cookie).open();
    for _ in 0..3 {
        let (_, ping) = snapshot(&mut quick);
        answer_ping(&mut quick, &ping);
    }
    // A pong that answers nothing is allowed, and changes nothing.
    answer_ping(&mut slow, b"what");
    slow.send_bytes(&frame(OpCode::Ping, b"?"));
    assert_eq!(
        slow.next(),
        Said::Pong(b"?".to_vec()),
        "nothing came before it"
    );
    answer_ping(&mut slow, &ping);
    let (_, next) = snapshot(&mut slow);
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    assert!(number(&next) > number(&ping) + 1, "it missed some");
}

#[test]
fn whatever_a_page_sends_ends_its_own_socket_only() {
    let server = server();
    let cookie = log_in(&server, KEY);
    let mut watcher = opening(&server, &cookie).open();
    let refused = [
        (text_frame("{}"), CloseCode::POLICY_VIOLATION),
        (
            frame(OpCode::Binary, &[1; 300]),
            CloseCode::POLICY_VIOLATION,
        ),
        (
            frame(OpCode::Text, &[b'x'; 1025]),
            CloseCode::MESSAGE_TOO_LARGE,
        ),
        (frame(OpCode::Text, &[0xff]), CloseCode::INVALID_PAYLOAD),
        (vec![0x82, 0x01, 0x00], CloseCode::PROTOCOL_ERROR),
        (vec![0xf0, 0x80, 0, 0, 0, 0], CloseCode::PROTOCOL_ERROR),
    ];
    for (bytes, code) in refused {
        let mut opening = opening(&server, &cookie);
        // With the handshake, and byte by byte behind it.
        opening.early.clone_from(&bytes);
        let mut together = opening.open();
        assert_eq!(together.close_after_all().0, Some(code.value()));
        opening.early.clear();
        let mut apart = opening.open();
        for byte in bytes {
            apart.send_bytes(&[byte]);
        }
        assert_eq!(apart.close_after_all().0, Some(code.value()));
    }
    let (_, ping) = snapshot(&mut watcher);
    answer_ping(&mut watcher, &ping);
    snapshot(&mut watcher);
    assert_eq!(http(&server).ask("GET", "/ready", "", "").status, 200);
}

#[test]
fn a_flood_of_pings_from_one_who_does_not_read_is_ended() {
    let server = server();
    let cookie = log_in(&server, KEY);
    let client = opening(&server, &cookie).open();
    let mut stream = client.stream;
    let pings = frame(OpCode::Ping, &[7; 125]).repeat(500);
    let mut sent = 0usize;
    while stream.write_all(&pings).is_ok() {
        sent += pings.len();
        assert!(sent < 1 << 30, "the server answers without end");
    }
    assert_eq!(http(&server).ask("GET", "/health", "", "").status, 200);
}
