//! Rules of HTTP/2 that a server breaks: each has its name, and ends the connection or one stream.

use crate::http2::{
    BOTH, END_HEADERS, END_STREAM, GET, PADDED, Side, client_with_requests, frame, request,
    request_trailers, response, settings,
};
use tidewire_http::http2::Limits;

#[test]
fn a_server_that_does_not_begin_as_one_is_found() {
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (
            "fault not-http2",
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        ),
        ("fault not-http2", frame(4, 1, 0, b"")),
        ("fault bad-setting", settings(&[(2, 1)])),
        ("fault bad-setting", settings(&[(5, 100)])),
        ("fault window-overflow", settings(&[(4, 1 << 31)])),
        ("fault bad-frame-size", frame(4, 0, 0, b"12345")),
    ];
    for (expected, bytes) in cases {
        let mut client = client_with_requests(2);
        client.feed(&bytes);
        assert_eq!(client.heard.last().map(String::as_str), Some(expected));
    }
}

/// After the server's settings and these bytes the last event is the expected one. Another stream goes on, unless the connection
/// does not; then a GOAWAY is the last word.
#[track_caller]
fn assert_found(cases: &[(&str, Vec<u8>)]) {
    for (expected, bytes) in cases {
        let mut client = client_with_requests(2);
        client.feed(&settings(&[]));
        client.feed(bytes);
        assert_eq!(
            client.heard.last().map(String::as_str),
            Some(*expected),
            "{:?}",
            client.heard
        );
        client.feed(&frame(1, BOTH, 3, &response(200, &[])));
        let is_over = client.fault.is_some();
        assert_eq!(
            client.heard.contains(&"3: done 0".to_owned()),
            !is_over,
            "{expected}"
        );
        assert_eq!(
            client.out[client.out.len() - 17 + 3] == 7,
            is_over,
            "{expected}"
        );
    }
}

#[test]
fn a_rule_of_the_connection_ends_it() {
    let good = response(200, &[]);
    assert_found(&[
        (
            "fault unexpected-frame",
            frame(5, END_HEADERS, 1, &[0, 0, 0, 2]),
        ),
        ("fault unexpected-frame", frame(0, 0, 0, b"a")),
        ("fault unexpected-frame", frame(1, BOTH, 9, &good)),
        ("fault unexpected-frame", frame(9, END_HEADERS, 1, &good)),
        (
            "fault unexpected-frame",
            [frame(1, 0, 1, &good), frame(6, 0, 0, &[0; 8])].concat(),
        ),
        ("fault bad-padding", frame(0, PADDED, 1, &[9, 1, 2])),
        (
            "fault bad-padding",
            frame(1, PADDED | BOTH, 1, &[200, 1, 2]),
        ),
        ("fault bad-header-block", frame(1, BOTH, 1, &[0x80])),
        ("fault bad-frame-size", frame(6, 0, 0, b"1234567")),
        ("fault bad-frame-size", frame(0, 0, 1, &[0; 16_385])),
        (
            "fault window-overflow",
            frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        ),
    ]);
}

#[test]
fn a_rule_of_one_stream_resets_it() {
    let (good, two) = (
        response(200, &[]),
        response(200, &[("content-length", "2")]),
    );
    assert_found(&[
        ("1: broken bad-header", frame(0, 0, 1, b"a")),
        (
            "1: broken bad-header",
            frame(1, BOTH, 1, &response(200, &[("Upper", "a")])),
        ),
        (
            "1: broken bad-header",
            frame(1, BOTH, 1, &response(200, &[("connection", "close")])),
        ),
        (
            "1: broken bad-header",
            frame(1, BOTH, 1, &response(200, &[("a", "b\r\nc: d")])),
        ),
        (
            "1: broken bad-header",
            frame(1, BOTH, 1, &response(200, &[("a b", "c")])),
        ),
        (
            "1: broken bad-header",
            frame(1, BOTH, 1, &response(20, &[])),
        ),
        ("1: broken bad-header", frame(1, BOTH, 1, &[])),
        (
            "1: broken bad-header",
            frame(1, BOTH, 1, &[&good[..], &good[..]].concat()),
        ),
        (
            "1: broken bad-header",
            frame(1, BOTH, 1, &response(103, &[])),
        ),
        (
            "1: broken bad-content-length",
            frame(1, BOTH, 1, &response(200, &[("content-length", "x")])),
        ),
        ("1: broken truncated-body", frame(1, BOTH, 1, &two)),
        (
            "1: broken surplus-data",
            [
                frame(1, END_HEADERS, 1, &two),
                frame(0, END_STREAM, 1, b"abc"),
            ]
            .concat(),
        ),
        (
            "1: broken bad-trailer",
            [
                frame(1, END_HEADERS, 1, &good),
                frame(1, END_HEADERS, 1, &request_trailers()),
            ]
            .concat(),
        ),
        (
            "1: broken bad-header",
            [frame(1, END_HEADERS, 1, &good), frame(1, BOTH, 1, &good)].concat(),
        ),
        (
            "1: broken window-overflow",
            frame(8, 0, 1, &[0x7f, 0xff, 0xff, 0xff]),
        ),
        ("1: broken empty-window-update", frame(8, 0, 1, &[0; 4])),
    ]);
}

#[test]
fn more_than_a_window_is_a_fault() {
    let limits = Limits {
        stream_window: 100,
        ..Limits::default()
    };
    let mut client = Side::client(limits);
    client
        .connection
        .open(&request(GET), b"", false, &mut client.out);
    client.feed(&settings(&[]));
    client.feed(&frame(1, END_HEADERS, 1, &response(200, &[])));
    client.feed(&frame(0, 0, 1, &[0; 101]));
    assert_eq!(client.heard.last().unwrap(), "1: broken window-exceeded");
}
