//! Limits of both sides of HTTP/2: the known floods, and blocks that stand for much more than themselves.

use crate::http2::{
    BOTH, END_HEADERS, GET, PADDED, Side, client_with_requests, frame, nothing, ready_server,
    request, response, settings,
};
use std::sync::Arc;
use tidewire_http::http2::{ErrorCode, Fault, Limits, PREFACE};

/// A name, what precedes it, and the frames of each round.
type Flood = (&'static str, Vec<u8>, Box<dyn Fn(u32) -> Vec<u8>>);

fn open(number: u32) -> Vec<u8> {
    frame(1, BOTH, 2 * number + 1, &request(GET))
}

fn floods() -> Vec<Flood> {
    let reset = |number: u32| frame(3, 0, 2 * number + 1, &8_u32.to_be_bytes());
    let first = || frame(1, END_HEADERS, 1, &request(GET));
    vec![
        ("pings", Vec::new(), Box::new(|_| frame(6, 0, 0, &[0; 8]))),
        ("settings", Vec::new(), Box::new(|_| settings(&[]))),
        (
            "resets",
            Vec::new(),
            Box::new(move |number| [open(number), reset(number)].concat()),
        ),
        ("empty frames", first(), Box::new(|_| frame(0, 0, 1, b""))),
        (
            "padding",
            first(),
            Box::new(|_| frame(0, PADDED, 1, &[3, 0, 0, 0])),
        ),
        (
            "priorities",
            Vec::new(),
            Box::new(|_| frame(2, 0, 1, &[0, 0, 0, 9, 1])),
        ),
        (
            "unknown frames",
            Vec::new(),
            Box::new(|_| frame(99, 0, 0, b"")),
        ),
        (
            "windows",
            first(),
            Box::new(|_| frame(8, 0, 1, &[0, 0, 0, 1])),
        ),
        (
            "requests that must be reset",
            Vec::new(),
            Box::new(|number| [open(number), open(number)].concat()),
        ),
        (
            "requests that are none",
            Vec::new(),
            Box::new(|number| frame(1, BOTH, 2 * number + 1, &[0x82])),
        ),
        ("frames after the end", open(0), Box::new(|_| open(0))),
    ]
}

#[test]
fn frames_that_bring_nothing_are_limited() {
    for (name, start, flood) in floods() {
        let mut server = ready_server();
        server.feed(&start);
        let mut sent = 0;
        while server.fault.is_none() && sent < 10_000 {
            server.feed(&flood(sent));
            sent += 1;
        }
        let is_closed = matches!(server.fault, Some(Fault::Flood | Fault::StreamClosed));
        assert!(
            is_closed && sent <= 1_200,
            "{name}: {sent} {:?}",
            server.fault
        );
        assert!(
            server.out.len() <= 40_000,
            "{name}: {} bytes",
            server.out.len()
        );
    }
}

#[test]
fn the_same_number_over_time_is_no_flood() {
    let get = request(GET);
    let mut server = ready_server();
    for number in 0..5_000 {
        server.now_ms += 10;
        server.feed(&frame(6, 0, 0, &[0; 8]));
        server.feed(&frame(1, BOTH, 2 * number + 1, &get));
        let block = response(204, &[]);
        let stream = 2 * number + 1;
        assert!(
            server
                .connection
                .respond(stream, &block, &nothing(), 0, &mut server.out)
        );
        server.out.clear();
    }
    assert_eq!(server.fault, None);
}

#[test]
fn windows_of_an_upload_are_no_flood() {
    let mut client = Side::client(Limits::default());
    client.feed(&settings(&[]));
    let block = request("POST / HTTP/1.1\r\nHost: a\r\n\r\n");
    let body = vec![1; 4_000_000];
    let opened = client
        .connection
        .open(&block, &body, false, &mut client.out);
    let mut sent = 0;
    while client.connection.has_unsent() {
        // As some servers do: both windows after each 4 KiB.
        for stream in [0, opened.unwrap()] {
            client.feed(&frame(8, 0, stream, &4_096_u32.to_be_bytes()));
        }
        client.connection.pump(usize::MAX, &mut client.out);
        sent += client.out.len();
        client.out.clear();
    }
    assert!(sent >= body.len() - 65_535 && client.fault.is_none());
}

#[test]
fn a_body_in_pieces_of_one_byte_is_a_flood() {
    let mut server = Side::server(Limits::default());
    server.feed(PREFACE);
    server.feed(&settings(&[(4, 1)]));
    server.feed(&frame(1, BOTH, 1, &request(GET)));
    let body: Arc<[u8]> = vec![1; 1_000_000].into();
    let head = response(200, &[]);
    server
        .connection
        .respond(1, &head, &body, usize::MAX, &mut server.out);
    let mut steps = 0;
    while server.fault.is_none() && steps < 10_000 {
        server.feed(&frame(8, 0, 1, &1_u32.to_be_bytes()));
        server.connection.pump(usize::MAX, &mut server.out);
        steps += 1;
    }
    assert_eq!(server.fault, Some(Fault::Flood));
}

#[test]
fn what_was_on_its_way_to_a_stream_that_was_given_up_is_no_flood() {
    let mut client = client_with_requests(40);
    client.feed(&settings(&[]));
    for stream in (1..80).step_by(2) {
        client.feed(&frame(1, END_HEADERS, stream, &response(200, &[])));
        client
            .connection
            .reset(stream, ErrorCode::CANCEL, &mut client.out);
    }
    for stream in (1..80).step_by(2) {
        for _ in 0..100 {
            client.feed(&frame(0, 0, stream, &[0; 1_000]));
        }
    }
    assert_eq!(client.fault, None);
}

#[test]
fn a_fault_after_the_end_was_announced_is_announced_too() {
    let mut server = ready_server();
    server
        .connection
        .go_away(ErrorCode::NO_ERROR, &mut server.out);
    server.feed(&frame(6, 0, 0, b"short"));
    assert_eq!(server.out.len(), 2 * 17);
    assert_eq!(server.out[33], ErrorCode::FRAME_SIZE_ERROR.0 as u8);
}

#[test]
fn header_blocks_are_limited() {
    let get = request(GET);
    // Many pieces, large pieces, and a small block that stands for much.
    let mut server = ready_server();
    server.feed(&frame(1, 0, 1, &get));
    for _ in 0..20 {
        server.feed(&frame(9, 0, 1, b""));
    }
    assert_eq!(server.fault, Some(Fault::HeadersTooLong));
    let mut server = ready_server();
    server.feed(&frame(1, 0, 1, &get));
    for _ in 0..5 {
        server.feed(&frame(9, 0, 1, &[b'a'; 16_384]));
    }
    assert_eq!(server.fault, Some(Fault::HeadersTooLong));
    let mut bomb = vec![0x40, 1, b'x', 0x7f, 0xb9, 0x16];
    bomb.extend([b'v'; 3_000]);
    bomb.extend([0xbe; 100]);
    let mut server = ready_server();
    server.feed(&frame(1, BOTH, 1, &bomb));
    assert_eq!(server.fault, Some(Fault::HeadersTooLong));
}
