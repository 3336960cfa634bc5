//! Responses as a client reads them.

use crate::{pieces, ways_to_cut};
use tidewire_http::response::{
    Event, Expected, Framing, Limits, ResponseError, ResponseHeads, ResponseReader,
};
use tidewire_testkit::vectors::http::{self, ResponseCase};
use tidewire_testkit::vectors::{latin_1, load};

/// The events of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) responses: Vec<http::Response>,
    pub(crate) error: Option<ResponseError>,
    /// A response is due, and none of its bytes, or not all, are there.
    pub(crate) incomplete: bool,
    pub(crate) unread: usize,
}

/// Reads as an event loop does: what is left unread comes again in front of the next piece.
pub(crate) fn read(
    heads: &mut ResponseHeads,
    expected: &[Expected],
    pieces: &[&[u8]],
    is_clean_end: Option<bool>,
) -> Found {
    let mut connection = Connection::default();
    let mut unread = Vec::new();
    for piece in pieces {
        unread.extend_from_slice(piece);
        let consumed = connection.read(heads, expected, &unread);
        unread.drain(..consumed);
        if connection.found.error.is_some() {
            return connection.found;
        }
    }
    connection.found.unread = unread.len();
    if connection.found.responses.len() == expected.len() {
        return connection.found;
    }
    match is_clean_end.map(|is_clean| connection.reader.finish(is_clean)) {
        None => {
            connection.found.incomplete = true;
            connection.found.unread = 0;
        }
        Some(Ok(None)) => assert!(unread.is_empty()),
        Some(Ok(Some(response))) => connection.done(response),
        Some(Err(error)) => {
            connection.found.error = Some(error);
            connection.found.unread = 0;
        }
    }
    connection.found
}

#[derive(Default)]
struct Connection {
    reader: ResponseReader,
    found: Found,
    interims: Vec<u16>,
    framing: String,
    body: Vec<u8>,
    /// Bytes consumed since the last whole response.
    wire_bytes: u64,
}

impl Connection {
    fn read(&mut self, heads: &mut ResponseHeads, expected: &[Expected], data: &[u8]) -> usize {
        let mut consumed = 0;
        while let Some(expected) = expected.get(self.found.responses.len()) {
            let step = match self.reader.read(heads, &data[consumed..], *expected) {
                Ok(step) => step,
                Err(error) => {
                    let again = self.reader.read(heads, &data[consumed..], *expected);
                    assert_eq!(again.err(), Some(error), "an error stays");
                    self.found.error = Some(error);
                    return consumed;
                }
            };
            consumed += step.consumed;
            self.wire_bytes += step.consumed as u64;
            match step.event {
                Event::More => break,
                Event::Interim { status } => self.interims.push(status),
                Event::Head(head) => {
                    let lines = head.raw().split(|byte| *byte == b'\n');
                    assert!(head.headers().count() <= lines.count());
                    framing_name(head.framing).clone_into(&mut self.framing);
                }
                Event::Body(bytes) => {
                    assert!(!bytes.is_empty());
                    self.body.extend_from_slice(bytes);
                }
                Event::Done(response) => {
                    assert!(self.reader.is_between());
                    self.done(response);
                }
            }
        }
        consumed
    }

    fn done(&mut self, response: tidewire_http::response::Response) {
        assert_eq!(response.body_bytes, self.body.len() as u64);
        assert_eq!(response.wire_bytes, std::mem::take(&mut self.wire_bytes));
        assert!(response.head_bytes + response.body_bytes <= response.wire_bytes);
        let body = std::mem::take(&mut self.body);
        self.found.responses.push(http::Response {
            interims: std::mem::take(&mut self.interims),
            status: response.status,
            framing: std::mem::take(&mut self.framing),
            body: body.into_iter().map(char::from).collect(),
            keeps_alive: response.keeps_alive,
            tunnel: response.is_tunnel,
            suspect: response.is_suspect,
        });
    }
}

fn framing_name(framing: Framing) -> &'static str {
    match framing {
        Framing::None => "none",
        Framing::Length(_) => "length",
        Framing::Chunked => "chunked",
        Framing::UntilClose => "until_close",
        Framing::Tunnel => "tunnel",
    }
}

#[test]
fn vectors() {
    for case in load::<ResponseCase>("http-responses") {
        let bytes = latin_1(&case.bytes);
        for cuts in ways_to_cut(bytes.len()) {
            let found = run(&case, &mut heads(&case), &pieces(&bytes, &cuts));
            let name = format!("{}, cut at {cuts:?}", case.name);
            assert_eq!(found.responses, case.responses, "{name}");
            let error = found.error.map(|error| error.name().to_owned());
            assert_eq!(error, case.error, "{name}");
            assert_eq!(found.unread, case.unread, "{name}");
            assert_eq!(found.incomplete, case.incomplete, "{name}");
        }
    }
}

/// Heads that are remembered from other connections change nothing.
#[test]
fn vectors_with_shared_heads() {
    let cases = load::<ResponseCase>("http-responses");
    let mut shared = ResponseHeads::default();
    for case in cases.iter().chain(cases.iter().rev()) {
        let has_own_limits = heads_limits(case) != Limits::default();
        if has_own_limits {
            continue;
        }
        let bytes = latin_1(&case.bytes);
        for _ in 0..2 {
            let found = run(case, &mut shared, &[&bytes]);
            assert_eq!(found.responses, case.responses, "{}", case.name);
            let error = found.error.map(|error| error.name().to_owned());
            assert_eq!(error, case.error, "{}", case.name);
        }
    }
}

fn run(case: &ResponseCase, heads: &mut ResponseHeads, pieces: &[&[u8]]) -> Found {
    let expected: Vec<_> = case
        .expected
        .iter()
        .map(|expected| match expected {
            http::Expected::Ordinary => Expected::Ordinary,
            http::Expected::Head => Expected::Head,
            http::Expected::Connect => Expected::Connect,
            http::Expected::Upgrade => Expected::Upgrade,
        })
        .collect();
    let is_clean_end = case.end.map(|end| end == http::End::Clean);
    read(heads, &expected, pieces, is_clean_end)
}

fn heads(case: &ResponseCase) -> ResponseHeads {
    ResponseHeads::new(heads_limits(case))
}

fn heads_limits(case: &ResponseCase) -> Limits {
    Limits {
        head_bytes_max: case.head_bytes_max,
        trailer_bytes_max: case.trailer_bytes_max,
        interim_max: case.interim_max,
    }
}

#[test]
fn headers_of_a_response() {
    let data =
        b"HTTP/1.0 200 OK\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nContent-Length: 0\r\n\r\n";
    let mut heads = ResponseHeads::default();
    let step = ResponseReader::new()
        .read(&mut heads, data, Expected::Ordinary)
        .unwrap();
    let Event::Head(head) = step.event else {
        panic!("{:?}", step.event);
    };
    assert_eq!(step.consumed, data.len());
    assert_eq!(head.raw(), data);
    assert_eq!(head.version, tidewire_http::Version::Http10);
    assert_eq!(head.header("SET-COOKIE"), Some(&b"a=b"[..]));
    assert_eq!(head.headers().values("Set-Cookie").count(), 2);
    assert_eq!(head.header("etag"), None);
}
