//! Prints what it costs to evaluate a subscription's filter on one payload. Run it with `--release`.

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;
use tidewire_engine::Filter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "median and fastest of {ROUNDS} rounds, payload of {} bytes",
        PAYLOAD.len()
    );
    for (name, document) in documents() {
        let filter = Filter::compile(&document)?;
        let taken = filter.matches(PAYLOAD.as_bytes());
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&filter)).collect();
        rounds.sort_by(f64::total_cmp);
        let (median, fastest) = (rounds[ROUNDS / 2], rounds[0]);
        println!("{median:6.1} ns {fastest:6.1} ns  {name} (taken: {taken})");
    }
    Ok(())
}

/// Nanoseconds per evaluation.
fn round(filter: &Filter) -> f64 {
    let started = Instant::now();
    for _ in 0..EVALUATIONS {
        black_box(filter.matches(black_box(PAYLOAD.as_bytes())));
    }
    started.elapsed().as_nanos() as f64 / f64::from(EVALUATIONS)
}

fn documents() -> [(&'static str, Value); 6] {
    [
        ("one field, equal", json!({"symbol": "EURUSD"})),
        (
            "a range and a side",
            json!({"price": {"$gt": 1, "$lte": 1.5}, "side": "buy"}),
        ),
        (
            "a list or a nested number",
            json!({"$or": [
                {"symbol": {"$in": ["AAPL", "MSFT", "GOOG"]}},
                {"order.items.0.quantity": {"$gte": 100}},
            ]}),
        ),
        (
            "a regular expression",
            json!({"account": {"$regex": "^desk-[0-9]+$"}}),
        ),
        (
            "an element of an array",
            json!({"tags": {"$contains": "urgent"}}),
        ),
        (
            "the last field is missing",
            json!({"nowhere": {"$exists": false}, "side": "buy"}),
        ),
    ]
}

const PAYLOAD: &str = r#"{"symbol":"EURUSD","side":"buy","price":1.08415,"account":"desk-1742","order":{"id":918273645,"items":[{"sku":"A-1","quantity":250}]},"tags":["fx","urgent"],"venue":"LD4"}"#;
const EVALUATIONS: u32 = 20_000;
const ROUNDS: usize = 101;
