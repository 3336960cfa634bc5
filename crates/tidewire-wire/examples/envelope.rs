//! Prints how long each way to read an envelope takes, JSON and MessagePack:
//! `cargo run --release --features crypto --example envelope`. With a name behind it only that way runs, for one
//! round, so that its instructions can be counted.

use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;
use tidewire_wire::envelope::{
    Outline, check_value, correlation_id, message_payload, parse_json_head,
};
use tidewire_wire::format::{Format, json_to_msgpack};
use tidewire_wire::secure::SignedMessage;
use tidewire_wire::session::PublishRequest;

fn main() -> std::io::Result<()> {
    let text = MESSAGE.as_bytes();
    let mut packed = Vec::new();
    json_to_msgpack(text, &mut packed).map_err(std::io::Error::other)?;
    let mut scratch = Vec::new();
    let mut out = std::io::stdout().lock();
    let only = std::env::args().nth(1);
    let mut show = |name: &str, run: &mut dyn FnMut() -> bool| match &only {
        None => writeln!(out, "{name:28} {:7.1} ns", median_ns(run)),
        Some(only) if only == name => writeln!(out, "{name:28} {:7.1} ns", round_ns(run)),
        Some(_) => Ok(()),
    };
    let outline = |format, bytes| Outline::find(format, black_box(bytes)).is_ok();
    let signed = |format, bytes| SignedMessage::find(format, black_box(bytes)).is_ok();
    show("outline", &mut || outline(Format::Json, text))?;
    show("outline, MessagePack", &mut || {
        outline(Format::MessagePack, &packed)
    })?;
    show("signed parts", &mut || signed(Format::Json, text))?;
    show("signed parts, MessagePack", &mut || {
        signed(Format::MessagePack, &packed)
    })?;
    show("whole envelope", &mut || {
        parse_json_head(black_box(text)).is_ok()
    })?;
    show("payload", &mut || {
        message_payload(Format::Json, black_box(text)).is_ok()
    })?;
    show("correlation id", &mut || {
        correlation_id(Format::Json, black_box(text)).is_ok()
    })?;
    show("check", &mut || check_value(black_box(MESSAGE)).is_ok())?;
    let request = REQUEST.as_bytes();
    show("publish request", &mut || {
        PublishRequest::parse(Format::Json, black_box(request), &mut scratch).is_ok()
    })?;
    let mut packed = Vec::new();
    show("JSON to MessagePack", &mut || {
        packed.clear();
        json_to_msgpack(black_box(text), &mut packed).is_ok()
    })
}

/// The median of several rounds; each call must succeed.
fn median_ns(run: &mut dyn FnMut() -> bool) -> f64 {
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        *round = round_ns(run);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// The time of a call, over one round.
fn round_ns(run: &mut dyn FnMut() -> bool) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        assert!(run(), "the message is valid");
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

const MESSAGE: &str = r#"{"c":"U","t":"trade","id":"0193501e-7c4e-7000-8000-000000000000","ts":"2024-11-21T18:05:45.678Z","seq":17,"tp":"orders.eu","e":"0badcafe","o":1742,"p":{"symbol":"BTC-USD","price":67123.45,"quantity":0.0125,"side":"buy","tags":["spot","eu"],"text":"two words and a \"quote\""},"v":1,"pri":5,"cid":"k-17","sig":"v2:0:AAAA"}"#;

const REQUEST: &str = r#"{"c":"WSE","t":"publish_request","cid":"k-17","n":9,"p":{"topic":"orders.eu","type":"trade","payload":{"symbol":"BTC-USD","price":67123.45,"quantity":0.0125,"side":"buy","tags":["spot","eu"]}}}"#;

const CALLS: u32 = 20_000;
const ROUNDS: usize = 25;
