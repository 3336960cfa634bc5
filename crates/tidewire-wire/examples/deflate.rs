//! Time and size of messages that are compressed without memory between messages, beside zlib-rs: the best of several runs
//! of each, in turns.
//!
//! ```sh
//! cargo run --release -p tidewire-wire --example deflate
//! ```

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use flate2::{Compress, Compression, FlushCompress};
use std::time::{Duration, Instant};
use tidewire_wire::deflate::Compressor;

fn main() {
    println!(
        "bytes | level | us | bytes sent | zlib-rs: us | bytes sent | ratio of time | of bytes"
    );
    for bytes in [1024, 4096, 16 * 1024, 60 * 1024] {
        let message = trades(bytes);
        for level in [1, 2, 3, 4, 5, 6] {
            let (mut ours, mut general) = (Duration::MAX, Duration::MAX);
            let (mut out, mut other) = (Vec::new(), Vec::with_capacity(2 * bytes));
            let mut compressor = Compressor::new(level, 15, false);
            let mut zlib = Compress::new(Compression::new(level), false);
            for _ in 0..RUNS {
                ours = ours.min(time(bytes, || {
                    out.clear();
                    compressor.compress(&message, &mut out);
                }));
                general = general.min(time(bytes, || {
                    other.clear();
                    zlib.reset();
                    let flushed = zlib.compress_vec(&message, &mut other, FlushCompress::Sync);
                    flushed.expect("room for all of it");
                }));
            }
            let (ours, general) = (ours.as_secs_f64() * 1e6, general.as_secs_f64() * 1e6);
            let (sent, others) = (out.len(), other.len() - 4);
            println!(
                "{bytes} | {level} | {ours:.1} | {sent} | {general:.1} | {others} | {:.2} | {:.3}",
                general / ours,
                sent as f64 / others as f64
            );
        }
    }
}

/// The time of one call.
fn time(bytes: usize, mut act: impl FnMut()) -> Duration {
    let calls = (TIMED_BYTES / bytes) as u32;
    let start = Instant::now();
    for _ in 0..calls {
        act();
    }
    start.elapsed() / calls
}

/// JSON as a market sends it, of a given length or more.
fn trades(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let mut json = String::from("[");
    while json.len() < bytes {
        let symbol = ["BTC-USD", "ETH-USD", "AAPL", "NVDA"][next(4) as usize];
        let side = ["buy", "sell"][next(2) as usize];
        let (price, quantity) = (
            next(10_000_000) as f64 / 100.0,
            next(1_000_000) as f64 / 1e6,
        );
        json += &format!(
            r#"{{"symbol":"{symbol}","price":{price},"quantity":{quantity},"side":"{side}"}},"#
        );
    }
    json.truncate(bytes);
    json.into_bytes()
}

const RUNS: usize = 400;
const TIMED_BYTES: usize = 64 << 10;
