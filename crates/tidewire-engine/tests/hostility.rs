//! Attacks of hostile peers; the other connections are still served.

mod common;

use common::{
    Client, Opening, Said, answer, assert_settled, config, connect, connect_v1, frame, raw_config,
    start, status, tcp, text_frame, wait_until,
};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tidewire_engine::Server;
use tidewire_engine::apps::{Echo, Sink};
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::{OpCode, write_header};

const MASK: [u8; 4] = [1, 2, 3, 4];

#[track_caller]
fn assert_served(client: &mut Client) {
    client.send_text(&json!({ "t": "echo" }).to_string());
    let mut said = client.next_json();
    // The server asks whether a client lives that has been waiting for others here.
    while said["t"] == "ping" {
        said = client.next_json();
    }
    assert_eq!(said["t"], "echo");
}

/// 5,000 sockets send half a request and then nothing. Those who have a session keep it, and those who come
/// behind them, from the same address, get one long before the slow ones time out.
#[test]
fn five_thousand_slow_handshakes_leave_a_hundred_good_clients_served() {
    const SLOW: usize = 5_000;
    let mut config = config();
    // They would have to wait for ever.
    config.limits.handshake_timeout_ms = 600_000;
    config.limits.handshakes_per_address_max = 512;
    let server = start(config, Echo);
    let mut good: Vec<Client> = (0..50).map(|_| connect_v1(&server)).collect();
    let address = server.address();
    let flood = std::thread::spawn(move || -> Vec<TcpStream> {
        let slow = (0..SLOW).map(|_| {
            let mut stream = TcpStream::connect(address).expect("a place in the backlog");
            let _ = stream.write_all(b"GET /ws HTTP/1.1\r\nHost: x\r\n");
            stream
        });
        slow.collect()
    });
    wait_until("the limit of slow ones", || {
        server.handle().counters().handshakes_in_progress >= 512
    });
    for _ in 0..50 {
        good.push(connect_v1(&server));
        good.iter_mut().for_each(assert_served);
    }
    let slow = flood.join().expect("the flood came through");
    assert_eq!(slow.len(), SLOW);
    wait_until("everyone accepted", || {
        server.handle().counters().connections_accepted >= (SLOW + 100) as u64
    });
    good.iter_mut().for_each(assert_served);
    let now = server.handle().counters();
    assert_eq!(now.connections_open, 100);
    assert!(now.handshakes_in_progress <= 512, "{now:?}");
    assert_eq!(
        now.handshakes_evicted + now.handshakes_in_progress + now.handshakes_parked,
        SLOW as u64
    );
    drop((good, slow));
    assert_settled(&server.handle());
}

/// Only who has had its time makes room, and nobody does while nobody waits.
#[test]
fn a_newcomer_takes_the_place_of_the_oldest_alone() {
    let mut config = config();
    config.limits.handshakes_max = 2;
    config.limits.handshake_timeout_ms = 600_000;
    let server = start(config, Echo);
    let slow: Vec<_> = (0..2).map(|_| tcp(server.address())).collect();
    wait_until("both accepted", || {
        server.handle().counters().handshakes_in_progress == 2
    });
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(server.handle().counters().handshakes_evicted, 0);
    let newcomers: Vec<_> = (0..2).map(|_| tcp(server.address())).collect();
    wait_until("both of the old ones gone", || {
        server.handle().counters().handshakes_evicted == 2
    });
    std::thread::sleep(Duration::from_millis(700));
    let now = server.handle().counters();
    assert_eq!((now.handshakes_evicted, now.handshakes_in_progress), (2, 2));
    drop((slow, newcomers));
    assert_settled(&server.handle());
}

#[test]
fn a_flood_of_pings_is_answered_in_bounded_memory_and_order() {
    let server = start(raw_config(), Echo);
    let mut other = connect(&server);
    let mut flood = connect(&server);
    let pings = frame(OpCode::Ping, &[7; 125]).repeat(1000);
    flood
        .stream
        .tcp()
        .set_write_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout that is not zero");
    // Until the server reads no more, because nobody takes its pongs. On a busy machine a write times out before that.
    let mut written = 0;
    let frame_bytes = pings.len() / 1000;
    loop {
        match flood.stream.tcp().write(&pings[written % frame_bytes..]) {
            Ok(bytes) => written += bytes,
            Err(_) if server.handle().counters().reading_pauses > 0 => break,
            Err(_) => {}
        }
        assert!(written < 2_000_000_000, "the server takes all");
    }
    other.send_text("still here?");
    assert_eq!(other.next_text(), "still here?");
    assert_eq!(flood.next(), Said::Pong(vec![7; 125]));
}

#[test]
fn a_million_empty_fragments_are_one_empty_message() {
    let server = start(raw_config(), Echo);
    let mut other = connect(&server);
    let mut client = connect(&server);
    let mut first = Vec::new();
    write_header(&mut first, false, OpCode::Text, 0, Some(MASK));
    client.send_bytes(&first);
    let mut empty = Vec::new();
    write_header(&mut empty, false, OpCode::Continuation, 0, Some(MASK));
    let many = empty.repeat(10_000);
    for _ in 0..100 {
        client.send_bytes(&many);
        other.send_text("x");
        assert_eq!(other.next_text(), "x");
    }
    let mut last = Vec::new();
    write_header(&mut last, true, OpCode::Continuation, 0, Some(MASK));
    client.send_bytes(&last);
    assert_eq!(client.next_text(), "");
}

#[test]
fn a_huge_length_with_no_data_costs_nothing() {
    let mut config = raw_config();
    config.limits.message_bytes_max = 1 << 40;
    let server = start(config, Echo);
    let before = resident_bytes();
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let mut client = connect(&server);
            let mut header = Vec::new();
            write_header(&mut header, true, OpCode::Binary, 1 << 40, Some(MASK));
            client.send_bytes(&header);
            client
        })
        .collect();
    let mut other = connect(&server);
    other.send_text("x");
    assert_eq!(other.next_text(), "x");
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < 32 * 1024 * 1024, "{growth} bytes");
    drop(clients);

    // Past the limit it is refused by the header alone.
    let server = start(raw_config(), Echo);
    let mut client = connect(&server);
    let mut header = Vec::new();
    write_header(&mut header, true, OpCode::Binary, 1 << 40, Some(MASK));
    client.send_bytes(&header);
    client.assert_closed(CloseCode::MESSAGE_TOO_LARGE);
}

#[test]
fn a_cookie_of_64_kb_is_refused_and_an_unfinished_one_too() {
    let server = start(config(), Sink);
    let opening = |bytes| Opening::new(server.address()).header("Cookie", "a".repeat(bytes));
    assert_eq!(opening(64 * 1024).refused().0, 431);
    opening(8 * 1024).open();
}

/// Requests that a proxy in front could read in another way than this server.
#[test]
fn smuggled_headers_are_refused() {
    let server = start(config(), Sink);
    let good = String::from_utf8(Opening::new(server.address()).request()).expect("ASCII");
    let with = |line: &str| good.replacen("Upgrade: websocket\r\n", line, 1);
    for (name, request) in [
        ("bare LF", with("Upgrade: websocket\n")),
        ("bare LF at the end", good.replace("\r\n\r\n", "\r\n\n")),
        (
            "folded header",
            with("Upgrade: websocket\r\nX: a\r\n b\r\n"),
        ),
        (
            "folded by a tab",
            with("Upgrade: websocket\r\nX: a\r\n\tb\r\n"),
        ),
        (
            "two upgrades",
            with("Upgrade: websocket\r\nUpgrade: h2c\r\n"),
        ),
        (
            "two keys",
            with("Upgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"),
        ),
        (
            "two versions",
            with("Upgrade: websocket\r\nSec-WebSocket-Version: 8\r\n"),
        ),
        ("two hosts", with("Upgrade: websocket\r\nHost: other\r\n")),
        (
            "two tokens",
            with("Upgrade: websocket\r\nAuthorization: a\r\nAuthorization: b\r\n"),
        ),
        (
            "a body",
            with("Upgrade: websocket\r\nContent-Length: 5\r\n"),
        ),
        (
            "a chunked body",
            with("Upgrade: websocket\r\nTransfer-Encoding: chunked\r\n"),
        ),
        ("space before the colon", with("Upgrade : websocket\r\n")),
        ("a NUL", with("Upgrade: websocket\r\nX: a\0b\r\n")),
        ("a CR inside", with("Upgrade: websocket\r\nX: a\rb\r\n")),
    ] {
        let said = answer(server.address(), &request);
        assert_eq!(status(&said), 400, "{name}: {said}");
    }
    assert_settled(&server.handle());
}

fn nested_json(levels: usize) -> String {
    let mut text = r#"{"t":"config_update","p":"#.to_owned();
    text.push_str(&r#"{"a":"#.repeat(levels - 1));
    text.push('1');
    text.push_str(&"}".repeat(levels));
    text
}

#[test]
fn nesting_past_64_is_refused_in_both_formats() {
    let server = start(config(), Sink);
    let mut client = connect_v1(&server);
    for (levels, t) in [(64, "config_response"), (65, "error"), (100_000, "error")] {
        let said = ask_text(&mut client, &nested_json(levels));
        assert_eq!(said["t"], t, "{levels}: {said}");
    }
    for (levels, t) in [(64, "config_response"), (65, "error"), (100_000, "error")] {
        let mut packed = b"M:\x82\xa1t\xadconfig_update\xa1p".to_vec();
        packed.extend(b"\x81\xa1a".repeat(levels - 1));
        packed.push(1);
        client.send_binary(&packed);
        let said = client.next_json();
        assert_eq!(said["t"], t, "{levels}: {said}");
    }
}

fn ask_text(client: &mut Client, text: &str) -> serde_json::Value {
    client.send_text(text);
    client.next_json()
}

/// One byte a write, from a client that never stops, and everyone else at full speed.
#[test]
fn a_trickle_is_understood_and_holds_nobody_up() {
    let server = start(config(), Echo);
    let mut other = connect_v1(&server);
    let mut slow = connect_v1(&server);
    let message = text_frame(r#"{"t":"slow","p":{"text":"ä€𝄞"}}"#);
    for byte in message {
        slow.send_bytes(&[byte]);
        assert_served(&mut other);
    }
    assert_eq!(slow.next_json()["t"], "slow");
}

/// A peer that breaks a rule learns the kind of rule, and the server continues.
#[test]
fn each_violation_has_its_code() {
    let server = start(raw_config(), Echo);
    let refused = |server: &Server, bytes: &[u8], code: CloseCode| {
        let mut client = connect(server);
        client.send_bytes(bytes);
        client.assert_closed(code);
    };
    let protocol = CloseCode::PROTOCOL_ERROR;
    for reserved in [0x90, 0xa0, 0xc0, 0xf0] {
        refused(&server, &[reserved | 1, 0x80, 1, 2, 3, 4], protocol);
    }
    for opcode in [3, 4, 5, 6, 7, 0xb, 0xc, 0xd, 0xe, 0xf] {
        refused(&server, &[0x80 | opcode, 0x80, 1, 2, 3, 4], protocol);
    }
    refused(&server, &[0x81, 0x01, b'x'], protocol);
    for control in [8, 9, 0xa] {
        refused(&server, &[control, 0x80, 1, 2, 3, 4], protocol);
        refused(
            &server,
            &[0x80 | control, 0xfe, 0, 126, 1, 2, 3, 4],
            protocol,
        );
    }
    for code in [0u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535] {
        refused(
            &server,
            &frame(OpCode::Close, &code.to_be_bytes()),
            protocol,
        );
    }
    refused(&server, &frame(OpCode::Close, &[3]), protocol);
    refused(
        &server,
        &frame(OpCode::Close, &[3, 232, 0xff]),
        CloseCode::INVALID_PAYLOAD,
    );
    assert_settled(&server.handle());
}

fn resident_bytes() -> usize {
    let mut status = String::new();
    std::fs::File::open("/proc/self/statm")
        .and_then(|mut file| file.read_to_string(&mut status))
        .expect("Linux");
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number of pages") * 4096
}

#[test]
fn half_a_request_is_a_socket_and_nothing_else() {
    let server = start(config(), Sink);
    let mut stream = tcp(server.address());
    stream.write_all(b"GET /ws HT").expect("room");
    wait_until("it is seen", || {
        server.handle().counters().handshakes_in_progress == 1
    });
    drop(stream);
    assert_settled(&server.handle());
}
