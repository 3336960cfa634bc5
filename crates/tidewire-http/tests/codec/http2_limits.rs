//! Limits of both sides of HTTP/2: the known floods, and blocks that stand for much more than themselves.

use crate::http2::{
    BOTH, END_HEADERS, GET, PADDED, frame, nothing, ready_server, request, response, settings,
};
use tidewire_http::http2::Fault;

#[test]
fn frames_that_bring_nothing_are_limited() {
    let get = request(GET);
    let open = |number: u32| frame(1, BOTH, 2 * number + 1, &get);
    let cancel = frame(3, 0, 0, &8_u32.to_be_bytes());
    let reset = |number: u32| {
        let mut frame = cancel.clone();
        frame[5..9].copy_from_slice(&(2 * number + 1).to_be_bytes());
        frame
    };
    type Flood<'a> = Box<dyn Fn(u32) -> Vec<u8> + 'a>;
    let first = || [frame(1, END_HEADERS, 1, &get), Vec::new()].concat();
    let floods: Vec<(&str, Vec<u8>, Flood<'_>)> = vec![
        ("pings", Vec::new(), Box::new(|_| frame(6, 0, 0, &[0; 8]))),
        ("settings", Vec::new(), Box::new(|_| settings(&[]))),
        (
            "resets",
            Vec::new(),
            Box::new(|number| [open(number), reset(number)].concat()),
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
            "frames after the end",
            open(0),
            Box::new(|_| frame(1, BOTH, 1, &get)),
        ),
    ];
    for (name, start, flood) in &floods {
        let mut server = ready_server();
        server.feed(start);
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
