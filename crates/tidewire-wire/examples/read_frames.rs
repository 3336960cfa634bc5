//! Prints how fast frames are read from memory on one core: `cargo run --release --example read_frames`.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;
use tidewire_wire::envelope::classify_json;
use tidewire_wire::frame::{OpCode, Role, write_frame};
use tidewire_wire::message::{Event, Input, MessageReader};

fn main() {
    for payload_bytes in [64, 175, 1024, 16 * 1024, 64 * 1024] {
        let mut payload =
            br#"{"t":"trade","p":{"symbol":"BTC-USD","price":67123.45,"text":""#.to_vec();
        payload.resize(payload_bytes.max(payload.len() + 3) - 3, b'x');
        payload.extend_from_slice(b"\"}}");
        let mut stream = Vec::new();
        while stream.len() < BUFFER_BYTES {
            write_frame(
                &mut stream,
                OpCode::Text,
                &payload,
                Some([0x1f, 0x2e, 0x3d, 0x4c]),
            );
        }
        let frames = stream.len() / (payload.len() + if payload.len() < 126 { 6 } else { 8 });
        let mut fastest = f64::INFINITY;
        for _ in 0..ROUNDS {
            let mut buffer = stream.clone();
            let start = Instant::now();
            let mut reader = MessageReader::new(Role::Server, 1 << 20);
            let mut input = Input::new(&mut buffer);
            while let Ok(Some(event)) = reader.read(&mut input) {
                if let Event::Text(text) = event {
                    black_box(classify_json(text.as_bytes()).is_ok());
                }
            }
            fastest = fastest.min(start.elapsed().as_secs_f64());
        }
        println!(
            "{payload_bytes:>6} B: {:>6.1} M frames/s, {:>5.2} GB/s, {:>6.1} ns a frame",
            frames as f64 / fastest / 1e6,
            stream.len() as f64 / fastest / 1e9,
            fastest / frames as f64 * 1e9,
        );
    }
}

/// What one read of the event loop may bring.
const BUFFER_BYTES: usize = 512 * 1024;

const ROUNDS: usize = 400;
