//! `format-comparison`: the same message as JSON, MessagePack and zlib. It has several trades, since one trade is too short to
//! compress.

use super::measure::Bench;
use super::options::RunError;
use super::throughput::{Sending, send_each};
use crate::report::TestResult;
use crate::report::model::FORMAT_COMPARISON;
use crate::worker::websocket::payload::{Content, Payload};

const JSON_BYTES: usize = 1024;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let sending = Sending::one_way(FORMAT_COMPARISON);
    let mut results = Vec::new();
    // A client library agrees on a format when it connects, so each has connections of its own.
    for encoding in bench.encodings()? {
        if bench.is_stopped() {
            break;
        }
        let payload = Payload {
            encoding,
            ..Payload::json(JSON_BYTES).telling(Content::Trades)
        };
        results.extend(send_each(bench, &sending, connections, &[payload])?);
    }
    let json_rate = results.first().and_then(|json| json.rate_per_s);
    for result in &mut results {
        result.ratio_to_json = result
            .rate_per_s
            .zip(json_rate)
            .map(|(rate, json)| rate / json);
    }
    Ok(results)
}
