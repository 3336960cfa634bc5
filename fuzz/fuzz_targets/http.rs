//! HTTP/1.1 of both sides: however the bytes are cut, the same messages and the same error are read; and a message that
//! was read, written again, reads the same.
//!
//! Input: one byte of flags, one byte that seeds the cuts, the bytes of the connection.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_http::request::{write_chunk, write_last_chunk};
use tidewire_http::response::{self, Expected, ResponseError, ResponseHeads, ResponseReader};
use tidewire_http::server::{self, RequestError, RequestHeads, RequestReader};
use tidewire_http::{BodyLength, RequestHead};

fuzz_target!(|input: &[u8]| {
    let [flags, seed, bytes @ ..] = input else {
        return;
    };
    let expected = [
        Expected::Ordinary,
        Expected::Head,
        Expected::Connect,
        Expected::Upgrade,
    ][usize::from(flags & 3)];
    let end = [None, Some(true), Some(false), None][usize::from(flags >> 2 & 3)];
    let cuts = cuts(*seed, bytes.len());
    let responses = read_responses(bytes, &[], expected, end);
    assert_eq!(responses, read_responses(bytes, &cuts, expected, end));
    let requests = read_requests(bytes, &[]);
    assert_eq!(requests, read_requests(bytes, &cuts));
    if bytes.len() <= EVERY_BYTE_MAX {
        let every_byte: Vec<usize> = (0..bytes.len()).collect();
        assert_eq!(responses, read_responses(bytes, &every_byte, expected, end));
        assert_eq!(requests, read_requests(bytes, &every_byte));
    }
    write_again(&requests.0);
});

/// The heads without their own line ends, and the bodies, of all responses; the last may be a part.
type Responses = (Vec<(Vec<u8>, Vec<u8>)>, usize, Result<(), ResponseError>);

fn read_responses(
    bytes: &[u8],
    cuts: &[usize],
    expected: Expected,
    end: Option<bool>,
) -> Responses {
    let mut heads = ResponseHeads::default();
    let mut reader = ResponseReader::new();
    let (mut found, mut whole) = (Vec::new(), 0);
    let mut unread = Vec::new();
    let mut start = 0;
    for &cut in cuts.iter().chain([&bytes.len()]) {
        unread.extend_from_slice(&bytes[start..cut]);
        start = cut;
        let mut consumed = 0;
        loop {
            let step = match reader.read(&mut heads, &unread[consumed..], expected) {
                Ok(step) => step,
                Err(error) => return (found, whole, Err(error)),
            };
            consumed += step.consumed;
            match step.event {
                response::Event::More => break,
                response::Event::Interim { .. } => {}
                response::Event::Head(head) => {
                    let _ = head.headers().count();
                    found.push((head.raw().to_vec(), Vec::new()));
                }
                response::Event::Body(bytes) => {
                    let (_, body) = found.last_mut().expect("a head comes first");
                    body.extend_from_slice(bytes);
                }
                response::Event::Done(response) => {
                    whole += 1;
                    assert_eq!(found.len(), whole);
                    let (head, body) = &found[whole - 1];
                    assert!(response.head_bytes >= head.len() as u64);
                    assert_eq!(response.body_bytes, body.len() as u64);
                    assert!(reader.is_between());
                }
            }
        }
        unread.drain(..consumed);
    }
    let result = match end.map(|is_clean| reader.finish(is_clean)) {
        None | Some(Ok(None)) => Ok(()),
        Some(Ok(Some(_))) => {
            whole += 1;
            Ok(())
        }
        Some(Err(error)) => Err(error),
    };
    (found, whole, result)
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    target: String,
    body_length: BodyLength,
    body: Vec<u8>,
}

type Requests = (Vec<Request>, usize, Result<(), RequestError>);

fn read_requests(bytes: &[u8], cuts: &[usize]) -> Requests {
    let mut heads = RequestHeads::default();
    let mut reader = RequestReader::new();
    let (mut found, mut whole) = (Vec::<Request>::new(), 0);
    let mut unread = Vec::new();
    let mut start = 0;
    for &cut in cuts.iter().chain([&bytes.len()]) {
        unread.extend_from_slice(&bytes[start..cut]);
        start = cut;
        let mut consumed = 0;
        loop {
            let step = match reader.read(&mut heads, &unread[consumed..]) {
                Ok(step) => step,
                Err(error) => return (found, whole, Err(error)),
            };
            consumed += step.consumed;
            match step.event {
                server::Event::More => break,
                server::Event::Head(head) => {
                    assert!(head.path() == "/" || head.target.contains(head.path()));
                    found.push(Request {
                        method: head.method.to_owned(),
                        target: head.target.to_owned(),
                        body_length: head.body,
                        body: Vec::new(),
                    });
                }
                server::Event::Body(bytes) => {
                    let request = found.last_mut().expect("a head comes first");
                    request.body.extend_from_slice(bytes);
                }
                server::Event::Done(received) => {
                    whole += 1;
                    assert_eq!(found.len(), whole);
                    assert_eq!(received.body_bytes, found[whole - 1].body.len() as u64);
                }
            }
        }
        unread.drain(..consumed);
    }
    (found, whole, reader.finish())
}

fn write_again(requests: &[Request]) {
    let mut bytes = Vec::new();
    for request in requests {
        let head = RequestHead {
            method: &request.method,
            target: &request.target,
            host: "a",
            headers: &[],
            body: match request.body_length {
                BodyLength::Bytes(_) => BodyLength::Bytes(request.body.len() as u64),
                other => other,
            },
        };
        head.write(&mut bytes)
            .expect("what was read can be written");
        if request.body_length == BodyLength::Chunked {
            write_chunk(&request.body, &mut bytes);
            write_last_chunk(&mut bytes);
        } else {
            bytes.extend_from_slice(&request.body);
        }
    }
    let (again, whole, result) = read_requests(&bytes, &[]);
    assert_eq!((whole, result), (requests.len(), Ok(())));
    for (again, request) in again.iter().zip(requests) {
        assert_eq!(again.method, request.method);
        assert_eq!(again.target, request.target);
        assert_eq!(again.body, request.body);
    }
}

/// A few ascending places to cut at, from one byte.
fn cuts(seed: u8, bytes: usize) -> Vec<usize> {
    let mut state = u32::from(seed) | 0x100;
    let mut places: Vec<usize> = (0..seed % 8)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % (bytes + 1)
        })
        .collect();
    places.sort_unstable();
    places
}

/// Above this size reading byte by byte is too slow for what it finds.
const EVERY_BYTE_MAX: usize = 1000;
