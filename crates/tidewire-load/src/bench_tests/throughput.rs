//! `throughput`: messages sent as fast as the server takes them, confirmed by pings between them.

use super::measure::Bench;
use crate::fleet::Fleet;
use crate::payload::Payload;
use crate::plan::Opened;
use crate::report::TestResult;
use crate::report::model::THROUGHPUT;
use crate::run::RunError;
use crate::stop::StopRule;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, connections)?;
    let result = send(
        bench,
        &mut fleet,
        &opened,
        THROUGHPUT,
        connections,
        Payload::TRADE,
    )?;
    fleet.close()?;
    Ok(vec![result])
}

/// One measurement of one kind of message on connections that are open.
pub(super) fn send(
    bench: &mut Bench<'_>,
    fleet: &mut Fleet,
    opened: &Opened,
    name: &str,
    connections: usize,
    payload: Payload,
) -> Result<TestResult, RunError> {
    let format = payload.encoding.as_str();
    let detail = format!(
        "{connections} connections, {} B {format}",
        payload.json_bytes
    );
    let duration = bench.options.duration;
    bench.started(name, &detail, duration);
    let ring = bench.ring(payload);
    let activity = bench.sending(&ring, false);
    let measured = bench.measure(fleet, activity, StopRule::Duration(duration))?;

    let mut result = bench.result(name, connections, opened);
    let saturating = bench.options.rate_per_s.is_none();
    bench.judge(&mut result, opened, &measured, saturating);
    result.format = Some(format.to_owned());
    result.payload_bytes = Some(payload.json_bytes as u64);
    result.wire_bytes = Some(ring.payload_bytes_mean());
    result.bytes_per_s = result
        .rate_per_s
        .map(|rate| rate * ring.payload_bytes_mean());
    Ok(bench.finished(result))
}
