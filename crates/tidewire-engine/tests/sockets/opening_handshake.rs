//! The opening handshake over real sockets: accepted requests, and the answers to the others.

use crate::common;

use common::{
    Opening, PAST_SOCKETS_BYTES, Said, answer, assert_settled, config, connect, connect_v1,
    raw_config, read_to_end, start, status, tcp, text_frame, wait_until,
};
use serde_json::json;
use std::io::{Read, Write};
use tidewire_engine::apps::{Echo, Sink};
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::token::{SigningKey, sign};
use tidewire_engine::{Config, OriginPolicy};
use tidewire_testkit::vectors::http::RequestCase;
use tidewire_testkit::vectors::{latin_1, load};
use tidewire_wire::close::CloseCode;

#[test]
fn a_version_1_session_opens() {
    let server = start(config(), Echo);
    let mut client = connect(&server);
    let ready = client.next_json();
    assert_eq!(
        (&ready["c"], &ready["t"], &ready["v"]),
        (&json!("WSE"), &json!("server_ready"), &json!(1))
    );
    assert_eq!(ready["seq"], 1);
    let details = &ready["p"]["details"];
    assert!(
        ready["p"]["message"].is_string() && ready["id"].is_string() && ready["ts"].is_string()
    );
    assert_eq!(details["user_id"], json!(null));
    assert!(details["version"].is_string() && details["server_time"].is_string());
    let features = [
        "compression",
        "encryption",
        "batching",
        "priority_queue",
        "circuit_breaker",
        "recovery",
    ];
    for feature in features {
        assert!(details["features"][feature].is_boolean(), "{feature}");
    }

    let hello = client.ask(&json!({
        "c": "WSE", "t": "client_hello", "v": 1, "cid": "h1",
        "p": {"client_version": "x", "protocol_version": 7, "features": {"batching": false}, "capabilities": []}
    }));
    assert_eq!(
        (&hello["t"], &hello["cid"]),
        (&json!("server_hello"), &json!("h1"))
    );
    let p = &hello["p"];
    assert_eq!(
        (&p["protocol_version"], &p["ping_interval"]),
        (&json!(1), &json!(25_000))
    );
    assert_eq!(p["connection_id"], details["connection_id"]);
    assert_eq!(p["features"]["batching"], false);
    let limits = json!({
        "max_message_size": 1024 * 1024, "rate_limit_capacity": 100_000, "rate_limit_refill": 10_000
    });
    assert_eq!(p["limits"], limits);
    assert!(p["server_version"].is_string() && p["server_time"].is_string());

    for spelling in ["ping", "PING"] {
        let pong = client.ask(&json!({"t": spelling, "p": {"timestamp": 5}}));
        assert_eq!(
            (&pong["t"], &pong["p"]["client_timestamp"]),
            (&json!("PONG"), &json!(5))
        );
        let server_ms = pong["p"]["server_timestamp"].as_u64().unwrap();
        assert_eq!(pong["p"]["latency"], server_ms - 5);
    }
    drop(client);
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.system_messages_received, counters.messages_sent),
        (3, 4)
    );
}

#[test]
fn a_client_may_speak_before_it_is_spoken_to() {
    let server = start(config(), Echo);
    let mut opening = Opening::new(server.address());
    opening.early = text_frame(r#"{"t":"first"}"#);
    let mut client = opening.open();
    assert_eq!(client.next_json()["t"], "server_ready");
    assert_eq!(client.next_text(), r#"{"t":"first"}"#);
}

#[test]
fn the_query_chooses_the_format_and_may_say_more() {
    let server = start(config(), Echo);
    let target = "/wse?format=msgpack&compression=true&protocol_version=1&unknown=%zz";
    let mut client = Opening::new(server.address()).target(target).open();
    assert_eq!(client.next_json()["t"], "server_ready");
    client.send_text(r#"{"t":"ping","p":{"timestamp":5}}"#);
    let Said::Binary(pong) = client.next() else {
        panic!("not MessagePack")
    };
    assert!(
        pong.starts_with(b"M:") && pong.windows(17).any(|part| part == b"\xb0client_timestamp")
    );

    let mut plain = Opening::new(server.address())
        .target("/wse?compression=false&x")
        .open();
    assert_eq!(plain.next_json()["t"], "server_ready");
}

#[test]
fn what_is_no_upgrade_gets_the_status_that_says_why() {
    let server = start(config(), Sink);
    let good = String::from_utf8(Opening::new(server.address()).request()).unwrap();
    let line = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replace(from, to)
    };
    let cases = [
        (400, "\u{1}\u{2} garbage\r\n\r\n".to_owned()),
        (400, "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".to_owned()),
        (400, line("Sec-WebSocket-Key: ", "Sec-WebSocket-Key: !")),
        (404, line("GET /ws ", "GET /other ")),
        (404, line("GET /ws ", "GET /wsx ")),
        (405, line("GET ", "POST ")),
        (426, line("Upgrade: websocket\r\n", "")),
        (
            426,
            line("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8"),
        ),
        (505, line("HTTP/1.1", "HTTP/1.0")),
    ];
    let count = cases.len() as u64;
    for (expected, request) in cases {
        let said = answer(server.address(), &request);
        assert_eq!(status(&said), expected, "{request:?}: {said}");
        match expected {
            405 => assert!(said.contains("\r\nAllow: GET\r\n"), "{said}"),
            426 => assert!(said.contains("\r\nUpgrade: websocket\r\n"), "{said}"),
            _ => {}
        }
    }
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.handshakes_failed, counters.handshakes_completed),
        (count, 0)
    );
}

#[test]
fn a_head_without_end_is_cut_off_at_its_limit() {
    let server = start(config(), Sink);
    let mut stream = tcp(server.address());
    stream
        .write_all(b"GET /ws HTTP/1.1\r\nHost: x\r\nX: ")
        .unwrap();
    // The server answers somewhere on the way, and takes in what is still coming.
    while stream.write_all(&[b'a'; 4096]).is_ok() {
        let counters = server.handle().counters();
        if counters.handshakes_failed == 1 {
            break;
        }
    }
    let said = read_to_end(stream);
    assert_eq!(status(&said), 431);
    let mut exact = b"GET /ws HTTP/1.1\r\nX: ".to_vec();
    exact.resize(16 * 1024, b'a');
    assert_eq!(status(&answer(server.address(), exact)), 431);
    let many = format!("GET /ws HTTP/1.1\r\n{}", "A: b\r\n".repeat(101));
    assert_eq!(status(&answer(server.address(), many)), 431);
    assert_settled(&server.handle());
}

/// Each case of the requests of HTTP is read as the operations listener reads it, also by the server for WebSockets.
#[test]
fn heads_are_read_as_http_has_them() {
    let server = start(config(), Sink);
    for case in load::<RequestCase>("http-requests") {
        let Some(error) = case.error.filter(|_| is_default(&case.name)) else {
            continue;
        };
        let is_of_body = ["body", "chunk", "trailer"].map(|word| error.name.contains(word));
        if !is_of_body.contains(&true) && !case.end {
            let said = answer(server.address(), latin_1(&case.bytes));
            assert_eq!(status(&said), error.status, "{}", case.name);
        }
    }
}

/// Whether a case is about the default limits.
fn is_default(name: &str) -> bool {
    !name.ends_with("past the limit") && !name.contains("without end")
}

#[test]
fn an_empty_body_and_the_key_of_the_rfc_are_no_fault() {
    let server = start(config(), Sink);
    let head = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEC==\r\n";
    let opened = |lines: &str| {
        let mut stream = tcp(server.address());
        stream
            .write_all(format!("{head}{lines}\r\n").as_bytes())
            .unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        String::from_utf8(start.to_vec()).unwrap()
    };
    for (lines, status) in [
        ("", 101),
        ("Content-Length: 0\r\n", 101),
        ("Expect: 100-continue\r\n", 101),
        ("Content-Length: 1\r\n", 400),
        ("Content-Length: 0\r\nContent-Length: 0\r\n", 400),
        ("Transfer-Encoding: chunked\r\n", 400),
        ("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Expect: magic\r\n", 417),
    ] {
        assert_eq!(opened(lines), format!("HTTP/1.1 {status}"), "{lines:?}");
    }
}

#[test]
fn a_refusal_is_heard_by_a_peer_that_has_sent_much_more() {
    let server = start(config(), Sink);
    let mut request = b"POST /ws HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    request.resize(PAST_SOCKETS_BYTES, b'a');
    assert_eq!(status(&answer(server.address(), request)), 405);
    assert_settled(&server.handle());
}

#[test]
fn a_head_larger_than_the_default_can_be_allowed() {
    let mut config = raw_config();
    config.limits.request_head_bytes_max = usize::MAX;
    let server = start(config, Echo);
    let opening = |bytes: usize| Opening::new(server.address()).header("Cookie", "x".repeat(bytes));
    let bytes_max = tidewire_net::ShardConfig::default().read_buffer_bytes / 4;
    opening(bytes_max - 1024).open();
    assert_eq!(opening(bytes_max).refused().0, 431);
}

#[test]
fn a_request_in_single_bytes_is_a_request() {
    let server = start(config(), Echo);
    let mut stream = tcp(server.address());
    for byte in Opening::new(server.address()).request() {
        stream.write_all(&[byte]).unwrap();
    }
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
}

#[test]
fn half_a_handshake_ends_by_its_timeout() {
    let mut config = config();
    config.limits.handshake_timeout_ms = 50;
    let server = start(config, Echo);
    let silent = tcp(server.address());
    let mut half = tcp(server.address());
    half.write_all(b"GET /ws HTTP/1.1\r\nHost: ").unwrap();
    assert_eq!(status(&read_to_end(silent)), 408);
    assert_eq!(status(&read_to_end(half)), 408);
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.handshake_timeouts, counters.handshakes_failed),
        (2, 2)
    );
}

#[test]
fn the_one_too_many_is_told_to_come_back() {
    let mut config = config();
    config.limits.connections_max = 2;
    config.limits.retry_after_s = 7;
    let server = start(config, Echo);
    let (first, mut second) = (connect_v1(&server), connect_v1(&server));
    for _ in 0..3 {
        let (status, said) = Opening::new(server.address()).refused();
        assert_eq!(status, 503);
        assert!(said.contains("\r\nRetry-After: 7\r\n"), "{said}");
    }
    assert_eq!(second.ask(&json!({"t": "still here"}))["t"], "still here");
    drop(first);
    wait_until("room again", || server.handle().connections() == 1);
    drop((connect_v1(&server), second));
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (
            counters.connections_rejected_full,
            counters.handshakes_completed
        ),
        (3, 3)
    );
}

#[test]
fn slow_handshakes_leave_sessions_alone_and_newcomers_waiting() {
    let mut config = config();
    config.limits.handshakes_max = 4;
    let server = start(config, Echo);
    let mut session = connect_v1(&server);
    let slow: Vec<_> = (0..12).map(|_| tcp(server.address())).collect();
    wait_until("as many as may be", || {
        server.handle().counters().handshakes_in_progress == 4
    });
    assert_eq!(session.ask(&json!({"t": "echo"}))["t"], "echo");
    // Behind the slow ones, but not for ever.
    let mut late = connect_v1(&server);
    assert_eq!(late.ask(&json!({"t": "echo"}))["t"], "echo");
    assert!(server.handle().counters().handshakes_evicted >= 9);
    drop((session, late, slow));
    assert_settled(&server.handle());
}

#[test]
fn origins_are_held_to_the_policy() {
    let with_policy = |origins| {
        start(
            Config {
                origins,
                ..config()
            },
            Echo,
        )
    };
    let at = |server: &tidewire_engine::Server, origin: &str| {
        Opening::new(server.address()).header("Origin", origin)
    };
    let same = with_policy(OriginPolicy::SameHost);
    connect(&same);
    at(&same, &format!("https://{}", same.address())).open();
    for stranger in [
        "https://evil.example",
        "null",
        &format!("https://{}.evil", same.address()),
    ] {
        assert_eq!(at(&same, stranger).refused().0, 403, "{stranger}");
    }
    let expected = ["https://app.example", "null", "capacitor://localhost"];
    let listed = with_policy(OriginPolicy::Listed(expected.map(str::to_owned).to_vec()));
    for origin in expected {
        at(&listed, origin).open();
    }
    at(&listed, &format!("http://{}", listed.address())).open();
    assert_eq!(at(&listed, "http://app.example").refused().0, 403);
    at(&with_policy(OriginPolicy::Any), "null").open();
    assert_eq!(assert_settled(&same.handle()).origin_rejections, 3);
}

#[test]
fn an_offered_subprotocol_is_named() {
    let server = start(config(), Echo);
    let opening = Opening::new(server.address())
        .protocol("one")
        .protocol("two");
    assert_eq!(opening.open().protocol.as_deref(), Some("one"));
    assert_eq!(connect(&server).protocol, None);
}

/// Browsers fail a connection for which they offered subprotocols if none is confirmed.
#[test]
fn a_subprotocol_that_carries_the_token_is_confirmed_if_nothing_else_is_offered() {
    for subprotocols in [Vec::new(), vec!["chat".to_owned()]] {
        let mut auth = AuthConfig::new(KeyMaterial::Hs256(vec![7; 32]));
        auth.subprotocol_prefix = Some("token.".to_owned());
        let config = Config {
            auth: Some(auth),
            subprotocols,
            ..config()
        };
        let server = start(config, Echo);
        let key = SigningKey::new(&KeyMaterial::Hs256(vec![7; 32])).unwrap();
        let claims = json!({"sub": "ana", "exp": 4_000_000_000_u64});
        let token = format!("token.{}", sign(&claims, &key, None).unwrap());
        let offering = |protocols: &[&str]| {
            let opening = Opening::new(server.address());
            let offer = |opening: Opening, name: &&str| opening.protocol(*name);
            protocols.iter().fold(opening, offer)
        };
        for (offered, confirmed) in [
            (vec![&*token], &*token),
            (vec![&*token, "chat"], "chat"),
            (vec!["chat", &*token], "chat"),
        ] {
            let mut client = offering(&offered).open();
            assert_eq!(client.protocol.as_deref(), Some(confirmed));
            let ready = client.next_json();
            assert_eq!(ready["p"]["details"]["user_id"], "ana");
        }
        assert_eq!(offering(&["chat"]).refused().0, 401);
    }
}

/// A page cannot close with 1002, 1007, 1008 or 1009: what it sends in their place is a close like any other.
#[test]
fn a_client_that_refuses_closes_as_any_peer_does() {
    let server = start(config(), Echo);
    let mut client = connect_v1(&server);
    client.send_close(CloseCode::CLIENT_REFUSED);
    assert_eq!(client.next(), Said::Close(Some(4406), String::new()));
    assert_eq!(client.next(), Said::End);
    let counters = assert_settled(&server.handle());
    assert_eq!(counters.sessions_closed_by_peer, 1);
    assert_eq!(counters.application_panics, 0);
}

#[test]
fn no_paths_are_all_paths() {
    let server = start(
        Config {
            paths: Vec::new(),
            ..config()
        },
        Echo,
    );
    let mut client = Opening::new(server.address()).target("/any/where?x").open();
    assert_eq!(client.next_json()["t"], "server_ready");
}

#[test]
fn without_version_1_the_server_says_nothing_by_itself() {
    let server = start(raw_config(), Echo);
    let mut client = connect(&server);
    for text in ["not JSON", r#"{"t":"ping"}"#, ""] {
        client.send_text(text);
        assert_eq!(client.next_text(), text);
    }
    client.send_binary(b"M:\xff");
    assert_eq!(client.next(), Said::Binary(b"M:\xff".to_vec()));
    client.send_close(CloseCode::NORMAL);
    assert_eq!(client.next(), Said::Close(Some(1000), String::new()));
    assert_eq!(client.next(), Said::End);
    let counters = assert_settled(&server.handle());
    assert_eq!((counters.messages_sent, counters.bytes_sent), (4, 23));
    assert_eq!(
        (counters.bytes_received, counters.sessions_closed_by_peer),
        (23, 1)
    );
}
