//! `format-comparison`: the same message as JSON, MessagePack and zlib.

use super::measure::Bench;
use super::throughput::send;
use crate::payload::{Encoding, Payload};
use crate::report::TestResult;
use crate::report::model::FORMAT_COMPARISON;
use crate::run::RunError;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, connections)?;
    let mut results: Vec<TestResult> = Vec::new();
    for encoding in [Encoding::Json, Encoding::MessagePack, Encoding::Zlib] {
        if bench.is_stopped() {
            break;
        }
        let payload = Payload {
            encoding,
            ..Payload::TRADE
        };
        let mut result = send(
            bench,
            &mut fleet,
            &opened,
            FORMAT_COMPARISON,
            connections,
            payload,
        )?;
        let json_rate = results
            .first()
            .map_or(result.rate_per_s, |json| json.rate_per_s);
        result.ratio_to_json = result
            .rate_per_s
            .zip(json_rate)
            .map(|(rate, json)| rate / json);
        results.push(result);
    }
    fleet.close()?;
    Ok(results)
}
