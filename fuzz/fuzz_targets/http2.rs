//! HTTP/2 of both sides: however the bytes are cut, the same events, answers and error follow; and whatever arrives, little
//! is answered.
//!
//! Input: one byte of flags, one byte that seeds the cuts, the bytes of the connection behind its preface and settings.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use tidewire_http::http2::{
    Connection, Event, Fault, Heads, Limits, PREFACE, write_request, write_response,
};

fuzz_target!(|input: &[u8]| {
    let [flags, seed, bytes @ ..] = input else {
        return;
    };
    if bytes.is_empty() {
        return;
    }
    let is_client = flags & 1 == 0;
    let whole = read(bytes, &[bytes.len()], is_client);
    let cut = usize::from(*seed) % bytes.len();
    assert_eq!(whole, read(bytes, &[cut, bytes.len()], is_client));
    if bytes.len() <= EVERY_BYTE_MAX {
        let every_byte: Vec<usize> = (1..=bytes.len()).collect();
        assert_eq!(whole, read(bytes, &every_byte, is_client));
    }
    assert!(whole.1.len() <= 4_096 + 20 * bytes.len());
});

/// The events in words, without the cuts of bodies; the answers; and the error.
fn read(bytes: &[u8], cuts: &[usize], is_client: bool) -> (Vec<String>, Vec<u8>, Option<Fault>) {
    let (mut heads, limits, mut out) = (Heads::default(), Limits::default(), Vec::new());
    let mut connection = match is_client {
        true => Connection::client(&limits, &mut out),
        false => Connection::server(&limits, &mut out),
    };
    let (mut request, mut response) = (Vec::new(), Vec::new());
    assert!(write_request(
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "http",
        &mut request
    ));
    write_response(200, &[], &mut response);
    let body: Arc<[u8]> = vec![b'a'; 100].into();
    if is_client {
        for _ in 0..4 {
            assert!(
                connection
                    .open(&request, b"body", false, &mut out)
                    .is_some()
            );
        }
    }
    let mut unread = if is_client {
        Vec::new()
    } else {
        PREFACE.to_vec()
    };
    unread.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let (mut events, mut start) = (Vec::new(), 0);
    for &cut in cuts {
        unread.extend_from_slice(&bytes[start..cut]);
        start = cut;
        let mut at = 0;
        loop {
            let step = match connection.receive(&mut heads, &unread[at..], 0, &mut out) {
                Ok(step) => step,
                Err(fault) => return (events, out, Some(fault)),
            };
            at += step.consumed;
            match step.event {
                Event::More if step.consumed == 0 => break,
                Event::More | Event::Body { .. } => {}
                Event::Done { stream, message } => {
                    events.push(format!("{stream} {message:?}"));
                    if !is_client {
                        connection.respond(stream, &response, &body, usize::MAX, &mut out);
                    }
                }
                other => events.push(format!("{other:?}")),
            }
        }
        unread.drain(..at);
    }
    (events, out, None)
}

const EVERY_BYTE_MAX: usize = 512;
