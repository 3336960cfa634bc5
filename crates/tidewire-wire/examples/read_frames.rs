//! Prints how fast frames are read from memory on one core: `cargo run --release --example read_frames`,
//! with `-- --json` one JSON object a line.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;
use tidewire_wire::envelope::classify_json;
use tidewire_wire::frame::{OpCode, Role, write_frame};
use tidewire_wire::mask;
use tidewire_wire::message::{Event, Input, MessageReader};

fn main() {
    let is_json = std::env::args().any(|argument| argument == "--json");
    for payload_bytes in [64, 175, 1024, 16 * 1024, 64 * 1024] {
        let (stream, frames) = stream(payload_bytes);
        let read_s = fastest_s(&stream, |buffer| read(buffer, |_| true));
        let classified_s = fastest_s(&stream, |buffer| {
            read(buffer, |text| classify_json(text).is_ok());
        });
        let (read, classified) = (frames as f64 / read_s, frames as f64 / classified_s);
        let read_bytes = read * payload_bytes as f64;
        if is_json {
            println!(
                r#"{{"measure":"frames","payload_bytes":{payload_bytes},"frames_per_s":{read:.0},"bytes_per_s":{read_bytes:.0},"classified_frames_per_s":{classified:.0}}}"#
            );
        } else {
            println!(
                "{payload_bytes:>6} B: {:>6.1} M frames/s, {:>5.2} GB/s of payload; {:>6.1} M/s with classification",
                read / 1e6,
                read_bytes / 1e9,
                classified / 1e6,
            );
        }
    }
    let (unmask, copy) = (unmask_bytes_per_s(), copy_bytes_per_s());
    if is_json {
        println!(
            r#"{{"measure":"unmask","unmask_bytes_per_s":{unmask:.0},"copy_bytes_per_s":{copy:.0}}}"#
        );
    } else {
        println!(
            "unmasking {:.1} GB/s, copying {:.1} GB/s",
            unmask / 1e9,
            copy / 1e9
        );
    }
}

/// As many masked text frames as one read of the event loop may bring, and their number.
fn stream(payload_bytes: usize) -> (Vec<u8>, usize) {
    let mut payload = br#"{"t":"trade","p":{"symbol":"BTC-USD","text":""#.to_vec();
    payload.resize(payload_bytes - 3, b'x');
    payload.extend_from_slice(b"\"}}");
    let (mut stream, mut frames) = (Vec::new(), 0);
    while stream.len() < BUFFER_BYTES {
        write_frame(&mut stream, OpCode::Text, &payload, Some(MASK));
        frames += 1;
    }
    (stream, frames)
}

fn read(buffer: &mut [u8], look: impl Fn(&[u8]) -> bool) {
    let mut reader = MessageReader::new(Role::Server, 1 << 20);
    let mut input = Input::new(buffer);
    while let Ok(Some(event)) = reader.read(&mut input) {
        if let Event::Text(text) = event {
            black_box(look(text.as_bytes()));
        }
    }
}

fn fastest_s(stream: &[u8], mut run: impl FnMut(&mut [u8])) -> f64 {
    let mut buffer = stream.to_vec();
    let mut fastest = f64::INFINITY;
    for _ in 0..ROUNDS {
        buffer.copy_from_slice(stream);
        let start = Instant::now();
        run(black_box(&mut buffer));
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    fastest
}

fn unmask_bytes_per_s() -> f64 {
    let stream = vec![b'x'; BUFFER_BYTES];
    let seconds = fastest_s(&stream, |buffer| {
        black_box(mask::apply(buffer, MASK));
    });
    BUFFER_BYTES as f64 / seconds
}

fn copy_bytes_per_s() -> f64 {
    let stream = vec![b'x'; BUFFER_BYTES];
    let mut copy = stream.clone();
    let seconds = fastest_s(&stream, |buffer| {
        copy.copy_from_slice(buffer);
        black_box(&mut copy);
    });
    BUFFER_BYTES as f64 / seconds
}

/// The largest read of the event loop.
const BUFFER_BYTES: usize = 512 * 1024;

const MASK: [u8; 4] = [0x1f, 0x2e, 0x3d, 0x4c];

const ROUNDS: usize = 400;
