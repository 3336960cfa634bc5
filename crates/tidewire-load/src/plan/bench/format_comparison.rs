//! `format-comparison`: the same message as JSON, MessagePack and zlib.

use super::measure::Bench;
use super::options::RunError;
use super::throughput::{Sending, send_each};
use crate::report::TestResult;
use crate::report::model::FORMAT_COMPARISON;
use crate::worker::websocket::payload::{Encoding, Payload};

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let payloads =
        [Encoding::Json, Encoding::MessagePack, Encoding::Zlib].map(|encoding| Payload {
            encoding,
            ..Payload::TRADE
        });
    let mut results = send_each(
        bench,
        &Sending::one_way(FORMAT_COMPARISON),
        connections,
        &payloads,
    )?;
    let json_rate = results.first().and_then(|json| json.rate_per_s);
    for result in &mut results {
        result.ratio_to_json = result
            .rate_per_s
            .zip(json_rate)
            .map(|(rate, json)| rate / json);
    }
    Ok(results)
}
