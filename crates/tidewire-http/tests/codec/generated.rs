//! Responses, requests and noise that nobody wrote by hand: every way to cut them reads the same, and what is written
//! is read back.

use crate::{requests, responses};
use proptest::prelude::*;
use tidewire_http::request::{write_chunk, write_last_chunk};
use tidewire_http::response::{Expected, ResponseHeads};
use tidewire_http::server::{RequestHeads, ResponseHead};
use tidewire_http::{BodyLength, RequestHead};

/// A message to write: headers and body, as chunks of these sizes or with a length.
#[derive(Clone, Debug)]
struct Message {
    headers: Vec<(String, String)>,
    body: Vec<Vec<u8>>,
    is_chunked: bool,
}

fn message() -> impl Strategy<Value = Message> {
    let header = ("x-[a-z]{1,8}", "[ -~]{0,20}");
    let chunk = proptest::collection::vec(any::<u8>(), 1..40);
    (
        proptest::collection::vec(header, 0..5),
        proptest::collection::vec(chunk, 0..5),
        any::<bool>(),
    )
        .prop_map(|(headers, body, is_chunked)| Message {
            headers,
            body,
            is_chunked,
        })
}

impl Message {
    fn length(&self) -> BodyLength {
        if self.is_chunked {
            BodyLength::Chunked
        } else {
            BodyLength::Bytes(self.body.concat().len() as u64)
        }
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    fn write_body(&self, out: &mut Vec<u8>) {
        for chunk in &self.body {
            if self.is_chunked {
                write_chunk(chunk, out);
            } else {
                out.extend_from_slice(chunk);
            }
        }
        if self.is_chunked {
            write_last_chunk(out);
        }
    }

    fn body_text(&self) -> String {
        self.body.concat().into_iter().map(char::from).collect()
    }
}

/// Bytes near HTTP: pieces of it in any order, with noise in between.
fn near_http() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => proptest::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// Ascending places to cut at.
fn cut(bytes: &[u8], places: &[prop::sample::Index]) -> Vec<usize> {
    let mut cuts: Vec<usize> = places
        .iter()
        .map(|place| place.index(bytes.len() + 1))
        .collect();
    cuts.sort_unstable();
    cuts
}

proptest! {
    #[test]
    fn responses_that_are_written_are_read(
        messages in proptest::collection::vec((message(), 200_u16..600), 1..4),
        places in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut bytes = Vec::new();
        for (message, status) in &messages {
            let head = ResponseHead {
                status: *status,
                headers: &message.headers(),
                body: message.length(),
                date: None,
                closes: false,
            };
            head.write(&mut bytes).unwrap();
            if !matches!(status, 204 | 304) {
                message.write_body(&mut bytes);
            }
        }
        let expected = vec![Expected::Ordinary; messages.len()];
        let mut heads = ResponseHeads::default();
        let pieces = crate::pieces(&bytes, &cut(&bytes, &places));
        let found = responses::read(&mut heads, &expected, &pieces, None);
        prop_assert_eq!(found.error, None);
        prop_assert_eq!(found.unread, 0);
        prop_assert_eq!(found.responses.len(), messages.len());
        for (found, (message, status)) in found.responses.iter().zip(&messages) {
            prop_assert_eq!(found.status, *status);
            let body = if matches!(status, 204 | 304) { String::new() } else { message.body_text() };
            prop_assert_eq!(&found.body, &body);
        }
    }

    #[test]
    fn requests_that_are_written_are_read(
        messages in proptest::collection::vec((message(), "[A-Z]{1,8}", "/[!-\"$-~]{0,20}"), 1..4),
        places in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut bytes = Vec::new();
        for (message, method, target) in &messages {
            let head = RequestHead {
                method,
                target,
                host: "example.com",
                headers: &message.headers(),
                body: message.length(),
            };
            head.write(&mut bytes).unwrap();
            message.write_body(&mut bytes);
        }
        let pieces = crate::pieces(&bytes, &cut(&bytes, &places));
        let found = requests::read(&mut RequestHeads::default(), &pieces, true);
        prop_assert_eq!(found.error, None);
        prop_assert_eq!(found.requests.len(), messages.len());
        for (found, (message, method, target)) in found.requests.iter().zip(&messages) {
            prop_assert_eq!(&found.method, method);
            prop_assert_eq!(&found.target, target);
            prop_assert_eq!(&found.body, &message.body_text());
        }
    }

    #[test]
    fn every_way_to_cut_reads_the_same(
        bytes in near_http(),
        places in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        ends in prop_oneof![Just(None), Just(Some(true)), Just(Some(false))],
        expected in proptest::collection::vec(
            proptest::sample::select(&[Expected::Ordinary, Expected::Head, Expected::Connect, Expected::Upgrade][..]),
            1..4,
        ),
    ) {
        let pieces = crate::pieces(&bytes, &cut(&bytes, &places));
        let read = |pieces: &[&[u8]]| {
            responses::read(&mut ResponseHeads::default(), &expected, pieces, ends)
        };
        prop_assert_eq!(read(&pieces), read(&[&bytes]));
        let read = |pieces: &[&[u8]]| {
            requests::read(&mut RequestHeads::default(), pieces, ends.is_some())
        };
        prop_assert_eq!(read(&pieces), read(&[&bytes]));
    }
}

const PIECES: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 103 Early Hints\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n",
    "HTTP/1.0 500 Oh\n",
    "GET / HTTP/1.1\r\n",
    "POST /a?b HTTP/1.1\r\n",
    "GET / HTTP/1.0\r\n",
    "Host: a\r\n",
    "Content-Length: 3\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 5, 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Connection: close\r\n",
    "Expect: 100-continue\r\n",
    " folded\r\n",
    "\r\n",
    "\r\n",
    "\n",
    "\r",
    "abc",
    "3\r\nabc\r\n",
    "2;x\r\nab\r\n",
    "0\r\n\r\n",
    "0\r\nA: b\r\n\r\n",
    "ffffffffffffffff\r\n",
];
