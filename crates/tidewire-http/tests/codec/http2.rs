//! Connections of HTTP/2: both sides with each other, and every way to cut the bytes between them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::{pieces, ways_to_cut};
use proptest::prelude::*;
use std::sync::Arc;
use tidewire_http::http2::{
    Connection, ErrorCode, Event, Fault, Heads, Limits, PREFACE, repeated_request, write_request,
    write_response,
};

/// One side: what it has heard, in words, and what it has to send.
pub(crate) struct Side {
    pub(crate) connection: Connection,
    heads: Heads,
    pub(crate) out: Vec<u8>,
    unread: Vec<u8>,
    pub(crate) heard: Vec<String>,
    pub(crate) fault: Option<Fault>,
    pub(crate) now_ms: u64,
}

impl Side {
    pub(crate) fn client(limits: Limits) -> Self {
        let mut out = Vec::new();
        Self::new(Connection::client(&limits, &mut out), out)
    }

    pub(crate) fn server(limits: Limits) -> Self {
        let mut out = Vec::new();
        Self::new(Connection::server(&limits, &mut out), out)
    }

    fn new(connection: Connection, out: Vec<u8>) -> Self {
        Self {
            connection,
            heads: Heads::default(),
            out,
            unread: Vec::new(),
            heard: Vec::new(),
            fault: None,
            now_ms: 0,
        }
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Bytes of the peer. Pieces of a body are joined, because where they are cut is of no meaning.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        let mut at = 0;
        while self.fault.is_none() {
            let data = &self.unread[at..];
            let read = self
                .connection
                .receive(&mut self.heads, data, self.now_ms, &mut self.out);
            let step = match read {
                Ok(step) => step,
                Err(fault) => {
                    self.fault = Some(fault);
                    self.heard.push(format!("fault {}", fault.name()));
                    return;
                }
            };
            at += step.consumed;
            let words = match step.event {
                Event::More if step.consumed == 0 => break,
                Event::More => continue,
                Event::Ready => "ready".to_owned(),
                Event::Head(head) => {
                    let line = match head.status {
                        0 => format!("{:?}", head.request_line()),
                        status => status.to_string(),
                    };
                    let fields = head.headers().map(|(name, value)| {
                        let text = [name, b"=", value].concat();
                        String::from_utf8_lossy(&text).into_owned()
                    });
                    let fields: Vec<String> = fields.collect();
                    format!("{}: head {line} {}", head.stream, fields.join(" "))
                }
                Event::Interim { stream, status } => format!("{stream}: interim {status}"),
                Event::Body { stream, bytes } => {
                    let start = format!("{stream}: body ");
                    let bytes = bytes.len();
                    match self.heard.last_mut() {
                        Some(last) if last.starts_with(&start) => {
                            let before: usize = last[start.len()..].parse().unwrap();
                            *last = format!("{start}{}", before + bytes);
                            continue;
                        }
                        _ => format!("{start}{bytes}"),
                    }
                }
                Event::Done { stream, message } => {
                    assert!(message.wire_bytes >= message.head_bytes + message.body_bytes);
                    format!("{stream}: done {}", message.body_bytes)
                }
                Event::Reset { stream, code } => format!("{stream}: reset {code}"),
                Event::Broken { stream, fault } => format!("{stream}: broken {}", fault.name()),
                Event::GoAway { last, code } => format!("goaway {last} {code}"),
            };
            self.heard.push(words);
        }
        self.unread.drain(..at);
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let setting =
        |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()[..]].concat();
    frame(
        4,
        0,
        0,
        &values.iter().flat_map(setting).collect::<Vec<u8>>(),
    )
}

pub(crate) fn request(text: &str) -> Vec<u8> {
    let mut block = Vec::new();
    assert!(write_request(text.as_bytes(), "http", &mut block));
    block
}

pub(crate) fn response(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    write_response(status, headers, &mut block);
    block
}

pub(crate) fn nothing() -> Arc<[u8]> {
    Arc::new([])
}

pub(crate) const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const BOTH: u8 = END_STREAM | END_HEADERS;

/// Passes everything between the two sides until neither has more to say.
fn talk(client: &mut Side, server: &mut Side) {
    loop {
        client.connection.pump(usize::MAX, &mut client.out);
        server.connection.pump(usize::MAX, &mut server.out);
        let (sent, answered) = (client.take(), server.take());
        if sent.is_empty() && answered.is_empty() {
            return;
        }
        server.feed(&sent);
        client.feed(&answered);
    }
}

#[test]
fn requests_and_responses_of_any_size_pass_through_small_windows() {
    let limits = Limits {
        stream_window: 1_000,
        connection_window: 65_535,
        ..Limits::default()
    };
    let (mut client, mut server) = (Side::client(limits), Side::server(limits));
    talk(&mut client, &mut server);
    assert_eq!(
        (&client.heard[..], &server.heard[..]),
        (&["ready".to_owned()][..], &["ready".to_owned()][..])
    );
    let block = request(
        "POST /up?a=b HTTP/1.1\r\nHost: a.example\r\nX-Long: 1\r\nConnection: close\r\n\r\n",
    );
    let body = vec![7; 300_000];
    for _ in 0..3 {
        let opened = client
            .connection
            .open(&block, &body, false, &mut client.out);
        assert!(opened.is_some());
    }
    talk(&mut client, &mut server);
    for stream in [1, 3, 5] {
        let head = format!("{stream}: head (\"POST\", \"/up?a=b\") host=a.example x-long=1");
        assert!(server.heard.contains(&head), "{:?}", server.heard);
        assert!(server.heard.contains(&format!("{stream}: done 300000")));
    }
    // Answers in another order.
    let whole: Arc<[u8]> = vec![8; 200_000].into();
    let head = response(200, &[("content-length", "200000"), ("set-cookie", "a=b")]);
    for stream in [5, 1] {
        assert!(
            server
                .connection
                .respond(stream, &head, &whole, 10, &mut server.out)
        );
    }
    assert!(server.connection.has_unsent());
    talk(&mut client, &mut server);
    assert!(
        client
            .heard
            .contains(&"5: head 200 content-length=200000 set-cookie=a=b".to_owned())
    );
    assert!(client.heard.contains(&"5: done 200000".to_owned()));
    assert!(client.heard.contains(&"1: done 200000".to_owned()));
    assert!(!server.connection.has_unsent() && client.connection.is_open());
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let (mut client, mut server) = (
        Side::client(Limits::default()),
        Side::server(Limits::default()),
    );
    let nothing = nothing();
    for (method, is_head) in [("GET", false), ("HEAD", true)] {
        let block = request(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        client
            .connection
            .open(&block, b"", is_head, &mut client.out);
    }
    talk(&mut client, &mut server);
    let empty = response(204, &[]);
    assert!(
        server
            .connection
            .respond(1, &empty, &nothing, 0, &mut server.out)
    );
    let length = response(200, &[("content-length", "5")]);
    assert!(
        server
            .connection
            .respond(3, &length, &nothing, 0, &mut server.out)
    );
    talk(&mut client, &mut server);
    assert_eq!(
        client.heard[1..],
        [
            "1: head 204 ",
            "1: done 0",
            "3: head 200 content-length=5",
            "3: done 0"
        ]
    );
}

/// A server's side of a connection with what a client may meet.
fn conversation() -> Vec<u8> {
    let long = response(200, &[("x-long", &"v".repeat(500))]);
    [
        settings(&[(3, 100), (0x99, 1)]),
        frame(1, END_HEADERS, 1, &response(103, &[("link", "</a>")])),
        frame(
            1,
            END_HEADERS,
            1,
            &response(200, &[("content-length", "6")]),
        ),
        frame(0, 0, 1, b"abc"),
        // Padding, and an unknown frame between two of the same stream.
        frame(0xbe, 0xff, 7, b"unknown"),
        frame(0, PADDED | END_STREAM, 1, b"\x05def.....".as_slice()),
        // A header block in pieces, with a priority; trailers.
        frame(1, 0x20, 3, &[&[0, 0, 0, 0, 16], &long[..10]].concat()),
        frame(9, 0, 3, &long[10..20]),
        frame(9, END_HEADERS, 3, &long[20..]),
        frame(0, 0, 3, &[b'x'; 40]),
        frame(6, 0, 0, b"pingpong"),
        frame(1, BOTH, 3, &request_trailers()),
        frame(3, 0, 5, &7_u32.to_be_bytes()),
        frame(
            7,
            0,
            0,
            &[&7_u32.to_be_bytes()[..], &11_u32.to_be_bytes()[..], b"calm"].concat(),
        ),
    ]
    .concat()
}

pub(crate) fn request_trailers() -> Vec<u8> {
    let mut block = vec![0];
    for text in ["x-sum", "12"] {
        block.push(text.len() as u8);
        block.extend_from_slice(text.as_bytes());
    }
    block
}

pub(crate) fn client_with_requests(count: usize) -> Side {
    let mut client = Side::client(Limits::default());
    for _ in 0..count {
        client
            .connection
            .open(&request(GET), b"", false, &mut client.out);
    }
    client.out.clear();
    client
}

#[test]
fn every_way_to_cut_the_bytes_is_read_the_same() {
    let bytes = conversation();
    let long = "v".repeat(500);
    let expected = [
        "ready",
        "1: interim 103",
        "1: head 200 content-length=6",
        "1: body 6",
        "1: done 6",
        &format!("3: head 200 x-long={long}"),
        "3: body 40",
        "3: done 40",
        "5: reset refused-stream",
        "goaway 7 enhance-your-calm",
    ];
    let mut answers = None;
    for cuts in ways_to_cut(bytes.len()) {
        let mut client = client_with_requests(3);
        for piece in pieces(&bytes, &cuts) {
            client.feed(piece);
        }
        assert_eq!(client.heard, expected, "{cuts:?}");
        assert!(!client.connection.is_open());
        // An acknowledgement and a pong.
        assert_eq!(*answers.get_or_insert(client.out.clone()), client.out);
        assert_eq!(client.out.len(), 9 + 17);
    }
}

/// A server that has read the preface and the settings.
pub(crate) fn ready_server() -> Side {
    let mut server = Side::server(Limits::default());
    server.feed(PREFACE);
    server.feed(&settings(&[]));
    server.out.clear();
    server
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let limits = Limits {
        streams_max: 2,
        ..Limits::default()
    };
    let mut server = Side::server(limits);
    server.feed(PREFACE);
    server.feed(&settings(&[]));
    server.out.clear();
    for number in [1, 3, 5] {
        server.feed(&frame(1, BOTH, number, &request(GET)));
    }
    let refused = frame(3, 0, 5, &7_u32.to_be_bytes());
    assert!(server.out.ends_with(&refused));
    assert!(
        server
            .connection
            .respond(1, &response(200, &[]), &nothing(), 0, &mut server.out)
    );
    server.feed(&frame(1, BOTH, 7, &request(GET)));
    assert!(server.heard.contains(&"7: done 0".to_owned()));
    // A client keeps to what its server allows.
    let mut client = Side::client(limits);
    client.feed(&settings(&[(3, 1)]));
    let mut open = || {
        client
            .connection
            .open(&request(GET), b"", false, &mut client.out)
    };
    assert_eq!((open(), open()), (Some(1), None));
    assert_eq!(client.connection.streams_max(), 1);
}

#[test]
fn what_was_given_up_brings_no_more_events() {
    let mut client = client_with_requests(2);
    client.feed(&settings(&[]));
    client
        .connection
        .reset(1, ErrorCode::CANCEL, &mut client.out);
    client.feed(&frame(1, END_HEADERS, 1, &response(200, &[])));
    client.feed(&frame(0, END_STREAM, 1, &[1; 100]));
    client.feed(&frame(1, BOTH, 3, &response(200, &[])));
    assert_eq!(client.heard, ["ready", "3: head 200 ", "3: done 0"]);
}

#[test]
fn a_smaller_table_of_the_peer_is_confirmed_once() {
    let mut client = Side::client(Limits::default());
    client.feed(&settings(&[(1, 0)]));
    client.out.clear();
    for first in [0x20, 0x82] {
        client
            .connection
            .open(&request(GET), b"", false, &mut client.out);
        assert_eq!(client.take()[9], first);
    }
}

#[test]
fn what_belongs_to_a_connection_of_http_1_is_left_out() {
    let text = "GET /a HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\nKeep-Alive: 1\r\nProxy-Connection: x\r\n\
                Transfer-Encoding: chunked\r\nUpgrade: h2c\r\nTE: gzip\r\nAccept: */*\r\n\r\n";
    let mut server = ready_server();
    server.feed(&frame(1, BOTH, 1, &request(text)));
    assert_eq!(
        server.heard[1],
        "1: head (\"GET\", \"/a\") host=h:1 accept=*/*"
    );
    assert!(!write_request(b"", "http", &mut Vec::new()));
}

#[test]
fn a_repeated_request_is_read_as_the_same_each_time() {
    let text = format!(
        "POST /a/long/path?with=a&query=b HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nX-A: {}\r\nX-B: b\r\n\r\n",
        "a".repeat(300)
    );
    let blocks = repeated_request(text.as_bytes(), "https").unwrap();
    assert!(blocks.later.len() <= 8, "{}", blocks.later.len());
    let mut server = ready_server();
    server.feed(&frame(1, BOTH, 1, &request(&text)));
    server.feed(&frame(1, BOTH, 3, &blocks.first));
    // A block that enters nothing into the table comes between.
    server.feed(&frame(1, BOTH, 5, &request(&text)));
    server.feed(&frame(1, BOTH, 7, &blocks.later));
    server.feed(&frame(1, BOTH, 9, &blocks.later));
    let heads: Vec<&str> = server
        .heard
        .iter()
        .filter_map(|words| words.split_once(": head ").map(|parts| parts.1))
        .collect();
    assert_eq!(heads, [heads[0]; 5]);
    let too_long = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "a".repeat(4_096)
    );
    assert_eq!(repeated_request(too_long.as_bytes(), "http"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Noise behind a good start breaks nothing, and is read the same in one piece and byte by byte.
    #[test]
    fn noise(frames in prop::collection::vec((0..11_u8, any::<u8>(), 0..8_u32, prop::collection::vec(any::<u8>(), 0..30)), 0..12)) {
        let noise: Vec<u8> = frames.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload)).collect();
        let bytes = [settings(&[]), noise].concat();
        let mut whole = client_with_requests(3);
        whole.feed(&bytes);
        let mut cut = client_with_requests(3);
        for byte in &bytes {
            cut.feed(&[*byte]);
        }
        prop_assert_eq!((&whole.heard, &whole.out), (&cut.heard, &cut.out));
        let mut server = ready_server();
        server.feed(&bytes);
        let mut cut = ready_server();
        for byte in &bytes {
            cut.feed(&[*byte]);
        }
        prop_assert_eq!((&server.heard, &server.out), (&cut.heard, &cut.out));
    }
}
