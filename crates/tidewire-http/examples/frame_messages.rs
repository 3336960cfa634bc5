//! Prints how long it takes to frame HTTP messages from memory on one core, in nanoseconds per message:
//! `cargo run --release --example frame_messages`.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;
use tidewire_http::BodyLength;
use tidewire_http::request::{RequestHead, write_chunk, write_last_chunk};
use tidewire_http::response::{Event, Expected, ResponseHeads, ResponseReader};
use tidewire_http::server::{self, RequestHeads, RequestReader, ResponseHead};

fn main() {
    let fixed = |second| response(BodyLength::Bytes(2), second);
    let chunked = |second| response(BodyLength::Chunked, second);
    let few_dates = |write: fn(u32) -> Vec<u8>| (0..16).map(|_| write(0)).collect::<Vec<_>>();
    let new_dates = |write: fn(u32) -> Vec<u8>| (0..16).map(write).collect::<Vec<_>>();
    let mut heads = ResponseHeads::default();
    let mut responses = |reads: &[Vec<u8>]| read_responses(&mut heads, reads);
    print("response, equal heads", &few_dates(fixed), &mut responses);
    print("response, each head new", &new_dates(fixed), &mut responses);
    print("chunked, equal heads", &few_dates(chunked), &mut responses);
    print(
        "chunked, each head new",
        &new_dates(chunked),
        &mut responses,
    );
    let pipelined = vec![few_dates(fixed).concat()];
    print("16 responses in a read", &pipelined, &mut responses);
    let mut heads = RequestHeads::default();
    let mut requests = |reads: &[Vec<u8>]| read_requests(&mut heads, reads);
    print("request, equal heads", &few_dates(request), &mut requests);
    print("request, each head new", &new_dates(request), &mut requests);
    let pipelined = vec![few_dates(request).concat()];
    print("16 requests in a read", &pipelined, &mut requests);
}

/// The fastest of some rounds over `reads`, each of which is what one read of a socket returned.
fn print(what: &str, reads: &[Vec<u8>], mut read: impl FnMut(&[Vec<u8>]) -> usize) {
    let mut fastest_ns = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut messages = 0;
        for _ in 0..REPEATS {
            messages += read(black_box(reads));
        }
        fastest_ns = fastest_ns.min(start.elapsed().as_secs_f64() * 1e9 / messages as f64);
    }
    let bytes = reads[0].len();
    println!("{what:<24} {fastest_ns:>6.1} ns per message, {bytes} bytes a read");
}

fn read_responses(heads: &mut ResponseHeads, reads: &[Vec<u8>]) -> usize {
    let mut reader = ResponseReader::new();
    let mut responses = 0;
    for data in reads {
        let mut consumed = 0;
        while let Ok(step) = reader.read(heads, &data[consumed..], Expected::Ordinary) {
            consumed += step.consumed;
            match step.event {
                Event::More => break,
                Event::Done(_) => responses += 1,
                event => {
                    black_box(event);
                }
            }
        }
    }
    responses
}

fn read_requests(heads: &mut RequestHeads, reads: &[Vec<u8>]) -> usize {
    let mut reader = RequestReader::new();
    let mut requests = 0;
    for data in reads {
        let mut consumed = 0;
        while let Ok(step) = reader.read(heads, &data[consumed..]) {
            consumed += step.consumed;
            match step.event {
                server::Event::More => break,
                server::Event::Done(_) => requests += 1,
                event => {
                    black_box(event);
                }
            }
        }
    }
    requests
}

/// As long as what a common server sends, with a date in this second.
fn response(body: BodyLength, second: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let date = format!("Sun, 06 Nov 1994 08:49:{second:02} GMT");
    let head = ResponseHead {
        status: 200,
        headers: &[
            ("Server", "nginx/1.24.0"),
            ("Content-Type", "application/octet-stream"),
            ("Connection", "keep-alive"),
            ("X-Request", "abcdef"),
        ],
        body,
        date: Some(&date),
        closes: false,
    };
    head.write(&mut out).unwrap_or_default();
    if body == BodyLength::Chunked {
        write_chunk(b"OK", &mut out);
        write_last_chunk(&mut out);
    } else {
        out.extend_from_slice(b"OK");
    }
    out
}

fn request(number: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let target = format!("/{number:02}");
    let head = RequestHead {
        method: "GET",
        target: &target,
        host: "127.0.0.1:7357",
        headers: &[("Accept", "*/*")],
        body: BodyLength::None,
    };
    head.write(&mut out).unwrap_or_default();
    out
}

const ROUNDS: usize = 20;
const REPEATS: usize = 10_000;
