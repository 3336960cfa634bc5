//! Prints how long classifying a message takes: `cargo run --release --example classify`, with
//! `-- --json` one JSON object a line.

use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;
use tidewire_wire::envelope::{classify_json, classify_msgpack};
use tidewire_wire::format::json_to_msgpack;

const ROUNDS: u32 = 5_000_000;

fn main() -> std::io::Result<()> {
    let is_json = std::env::args().any(|argument| argument == "--json");
    let payload = "{\"symbol\":\"BTC-USD\",\"price\":67123.45,\"quantity\":0.0125,\"side\":\"buy\",\
        \"ts\":1732212345678,\"venue\":\"one\",\"id\":\"0193501e-7c4e-7000-8000-000000000000\"}";
    let messages = [
        (
            "c, t, p",
            format!("{{\"c\":\"U\",\"t\":\"trade\",\"p\":{payload}}}"),
        ),
        ("t, p", format!("{{\"t\":\"trade\",\"p\":{payload}}}")),
        (
            "type, payload",
            format!("{{\"type\":\"trade\",\"payload\":{payload}}}"),
        ),
        (
            "v, c, t, p",
            format!("{{\"v\":1,\"c\":\"U\",\"t\":\"trade\",\"p\":{payload}}}"),
        ),
        ("p, t", format!("{{\"p\":{payload},\"t\":\"trade\"}}")),
        (
            "ping",
            "{\"c\":\"WSE\",\"t\":\"ping\",\"p\":{\"timestamp\":1732212345678}}".to_owned(),
        ),
    ];
    let mut out = std::io::stdout().lock();
    for (name, text) in &messages {
        let mut packed = Vec::new();
        let packable = json_to_msgpack(text.as_bytes(), &mut packed).is_ok();
        let json_ns = time_ns(|| classify_json(black_box(text.as_bytes())).is_ok());
        let msgpack_ns = time_ns(|| classify_msgpack(black_box(&packed)).is_ok() == packable);
        let bytes = text.len();
        if is_json {
            writeln!(
                out,
                r#"{{"measure":"classify","message":"{name}","payload_bytes":{bytes},"json_ns":{json_ns:.2},"msgpack_ns":{msgpack_ns:.2}}}"#
            )?;
        } else {
            writeln!(
                out,
                "{name:14} {bytes:4} B  JSON {json_ns:6.1} ns  MessagePack {msgpack_ns:6.1} ns"
            )?;
        }
    }
    Ok(())
}

fn time_ns(mut run: impl FnMut() -> bool) -> f64 {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(run());
    }
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}
