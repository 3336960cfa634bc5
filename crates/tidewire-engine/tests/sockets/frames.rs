//! RFC 6455 against a real server: messages of every shape, and every broken rule.

use crate::common;

use common::{
    Client, PAST_SOCKETS_BYTES, Said, assert_settled, close_frame, connect, fragment, frame,
    raw_config, start, text_frame, wait_until,
};
use tidewire_engine::Server;
use tidewire_engine::apps::Echo;
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::OpCode;

fn echo() -> Server {
    start(raw_config(), Echo)
}

/// The client is closed with `code` for sending `bytes`, and another one does not notice.
#[track_caller]
fn assert_refused(server: &Server, bytes: &[u8], code: CloseCode) {
    let mut bystander = connect(server);
    let mut client = connect(server);
    client.send_bytes(bytes);
    client.assert_closed(code);
    bystander.send_text("still here");
    assert_eq!(bystander.next_text(), "still here");
}

#[test]
fn messages_of_every_size_come_back() {
    let server = echo();
    let mut client = connect(&server);
    for bytes in [0, 1, 125, 126, 127, 65_535, 65_536, 300_000, 1024 * 1024] {
        let payload: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        client.send_binary(&payload);
        assert!(client.next() == Said::Binary(payload), "{bytes} bytes");
        let text = "é".repeat(bytes / 2);
        client.send_text(&text);
        assert!(client.next() == Said::Text(text), "{bytes} bytes");
    }
}

#[test]
fn many_messages_in_one_write_keep_their_order() {
    let server = echo();
    let mut client = connect(&server);
    let frames: Vec<u8> = (0..5_000)
        .flat_map(|number| text_frame(&number.to_string()))
        .collect();
    client.send_bytes(&frames);
    for number in 0..5_000 {
        assert_eq!(client.next_text(), number.to_string());
    }
    drop(client);
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.messages_received, counters.messages_sent),
        (5_000, 5_000)
    );
    assert_eq!((counters.sessions_lost, counters.protocol_errors), (1, 0));
}

#[test]
fn single_bytes_and_fragments_make_messages() {
    let server = echo();
    let mut client = connect(&server);
    for byte in text_frame("drop by drop: ö") {
        client.send_bytes(&[byte]);
    }
    assert_eq!(client.next_text(), "drop by drop: ö");

    let mut parts = fragment(false, OpCode::Text, b"he\xc3");
    parts.extend(frame(OpCode::Ping, b"between"));
    parts.extend(fragment(false, OpCode::Continuation, b"\xa9"));
    parts.extend(fragment(false, OpCode::Continuation, b""));
    client.send_bytes(&parts);
    assert_eq!(client.next(), Said::Pong(b"between".to_vec()));
    client.send_bytes(&fragment(true, OpCode::Continuation, b"!"));
    assert_eq!(client.next_text(), "heé!");
}

#[test]
fn pings_are_answered_in_order_and_pongs_are_not() {
    let server = echo();
    let mut client = connect(&server);
    let longest = [7; 125];
    let mut bytes = frame(OpCode::Pong, b"unasked");
    bytes.extend(text_frame("before"));
    bytes.extend(frame(OpCode::Ping, &longest));
    bytes.extend(frame(OpCode::Ping, b""));
    client.send_bytes(&bytes);
    assert_eq!(client.next_text(), "before");
    assert_eq!(client.next(), Said::Pong(longest.to_vec()));
    assert_eq!(client.next(), Said::Pong(Vec::new()));
    let counters = server.handle().counters();
    assert_eq!((counters.pings_received, counters.pongs_received), (2, 1));
}

#[test]
fn each_broken_rule_is_1002() {
    let server = echo();
    let masked = |first: u8, second: u8, rest: &[u8]| {
        let mut bytes = vec![first, second | 0x80];
        bytes.extend_from_slice(rest);
        bytes.extend_from_slice(&[0; 4]);
        bytes
    };
    let two = |first: Vec<u8>, second: Vec<u8>| [first, second].concat();
    let close = |payload: &[u8]| frame(OpCode::Close, payload);
    let cases = [
        ("a reserved bit", masked(0xC1, 0, &[])),
        ("another reserved bit", masked(0x91, 0, &[])),
        ("a reserved data opcode", masked(0x83, 0, &[])),
        ("a reserved control opcode", masked(0x8B, 0, &[])),
        ("no mask", vec![0x81, 0]),
        ("a fragmented ping", masked(0x09, 0, &[])),
        ("a long ping", masked(0x89, 126, &[0, 126])),
        ("a length of 16 bits too many", masked(0x81, 126, &[0, 125])),
        (
            "a length of 64 bits too many",
            masked(0x81, 127, &[0, 0, 0, 0, 0, 0, 0xFF, 0xFF]),
        ),
        ("a length without end", masked(0x81, 127, &[0xFF; 8])),
        (
            "nothing to continue",
            fragment(true, OpCode::Continuation, b"x"),
        ),
        (
            "no continuation",
            two(fragment(false, OpCode::Text, b"x"), text_frame("y")),
        ),
        ("half a close code", close(&[3])),
        ("close code 999", close(&999u16.to_be_bytes())),
        ("close code 1005", close(&1005u16.to_be_bytes())),
        ("close code 5000", close(&5000u16.to_be_bytes())),
    ];
    let count = cases.len() as u64;
    for (name, bytes) in cases {
        println!("{name}");
        assert_refused(&server, &bytes, CloseCode::PROTOCOL_ERROR);
    }
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.protocol_errors, counters.sessions_closed_by_server),
        (count, count)
    );
}

#[test]
fn text_that_is_not_utf_8_is_1007() {
    let server = echo();
    let cases = [
        frame(OpCode::Text, b"a\xff"),
        frame(OpCode::Text, "ö".as_bytes().split_last().unwrap().1),
        frame(OpCode::Text, b"\xed\xa0\x80"),
        // Refused before the message ends, because nothing can mend it.
        [
            fragment(false, OpCode::Text, b"a\xf4"),
            fragment(false, OpCode::Continuation, b"\x90"),
        ]
        .concat(),
        [
            fragment(false, OpCode::Text, b"\xe2\x82"),
            fragment(true, OpCode::Continuation, b"x"),
        ]
        .concat(),
        frame(OpCode::Close, b"\x03\xe8\xff"),
    ];
    for bytes in cases {
        assert_refused(&server, &bytes, CloseCode::INVALID_PAYLOAD);
    }
    assert_settled(&server.handle());
}

#[test]
fn a_message_past_the_limit_is_1009() {
    let mut config = raw_config();
    config.limits.message_bytes_max = 1000;
    let server = start(config, Echo);
    let mut client = connect(&server);
    client.send_text(&"x".repeat(1000));
    assert_eq!(client.next_text().len(), 1000);
    let too_many = [
        text_frame(&"x".repeat(1001)),
        // The header alone is enough, whatever it promises.
        vec![
            0x82, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0,
        ],
        [
            fragment(false, OpCode::Binary, &[0; 600]),
            fragment(true, OpCode::Continuation, &[0; 401]),
        ]
        .concat(),
    ];
    for bytes in &too_many {
        assert_refused(&server, bytes, CloseCode::MESSAGE_TOO_LARGE);
    }
    drop(client);
    assert_eq!(assert_settled(&server.handle()).messages_refused_size, 3);
}

#[test]
fn a_close_is_heard_by_a_peer_that_has_sent_much_more() {
    let server = echo();
    let mut bytes = frame(OpCode::Text, b"\xff");
    bytes.resize(PAST_SOCKETS_BYTES, 0x55);
    assert_refused(&server, &bytes, CloseCode::INVALID_PAYLOAD);
    assert_settled(&server.handle());
}

#[test]
fn a_peer_that_closes_gets_its_code_back_and_no_more() {
    let server = echo();
    for code in [
        CloseCode::NORMAL,
        CloseCode::GOING_AWAY,
        CloseCode::from_wire(4999).unwrap(),
    ] {
        let mut client = connect(&server);
        let mut bytes = text_frame("last");
        bytes.extend(close_frame(Some(code)));
        bytes.extend(text_frame("ignored"));
        bytes.extend(b"garbage, too");
        client.send_bytes(&bytes);
        assert_eq!(client.next_text(), "last");
        assert_eq!(
            client.next(),
            Said::Close(Some(code.value()), String::new())
        );
        assert_eq!(client.next(), Said::End);
    }
    let mut client = connect(&server);
    client.send_bytes(&close_frame(None));
    assert_eq!(client.next(), Said::Close(None, String::new()));
    assert_eq!(client.next(), Said::End);
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.sessions_closed_by_peer, counters.messages_received),
        (4, 3)
    );
    assert_eq!(counters.protocol_errors, 0);
}

#[test]
fn a_peer_that_vanishes_is_lost() {
    let server = echo();
    let mut half: Client = connect(&server);
    half.send_bytes(&text_frame("never finished")[..5]);
    half.stream.end_writing();
    assert_eq!(half.next(), Said::End);
    drop(connect(&server));
    wait_until("both gone", || server.handle().connections() == 0);
    assert_eq!(assert_settled(&server.handle()).sessions_lost, 2);
}
