//! `throughput`: messages sent as fast as the server takes them, confirmed by pings between them.

use super::measure::Bench;
use crate::fleet::Fleet;
use crate::payload::Payload;
use crate::plan::Opened;
use crate::report::TestResult;
use crate::report::model::THROUGHPUT;
use crate::run::RunError;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    send_each(bench, THROUGHPUT, connections, &[Payload::TRADE])
}

/// One measurement for each kind of message, all on the same connections.
pub(super) fn send_each(
    bench: &mut Bench<'_>,
    name: &str,
    connections: usize,
    payloads: &[Payload],
) -> Result<Vec<TestResult>, RunError> {
    let Some(first) = payloads.first() else {
        return Ok(Vec::new());
    };
    // Opening is a part of the first: with many connections it takes its time.
    announce(bench, name, connections, first);
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, connections)?;
    let mut results: Vec<TestResult> = Vec::new();
    for payload in payloads {
        if !results.is_empty() {
            if bench.is_stopped() {
                break;
            }
            announce(bench, name, connections, payload);
        }
        let mut result = bench.result(name, connections, &opened);
        send(bench, &mut fleet, &opened, *payload, &mut result)?;
        results.push(bench.finished(result));
    }
    fleet.close()?;
    Ok(results)
}

fn announce(bench: &mut Bench<'_>, name: &str, connections: usize, payload: &Payload) {
    let (bytes, format) = (payload.json_bytes, payload.encoding.as_str());
    let detail = format!("{connections} connections, {bytes} B {format}");
    bench.started(name, &detail, bench.options.duration);
}

fn send(
    bench: &mut Bench<'_>,
    fleet: &mut Fleet,
    opened: &Opened,
    payload: Payload,
    result: &mut TestResult,
) -> Result<(), RunError> {
    let ring = bench.ring(payload);
    let activity = bench.sending(&ring, false);
    let measured = bench.measure(fleet, activity, bench.sending_stop())?;

    let saturating = bench.options.rate_per_s.is_none();
    bench.judge(result, opened, &measured, saturating);
    bench.describe(result, payload, &ring);
    Ok(())
}
