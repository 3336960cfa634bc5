//! `echo`: a closed loop with so many messages in flight, or an open loop at a given rate, with a
//! server that sends every message back.

use super::measure::Bench;
use crate::fleet::Fleet;
use crate::payload::Payload;
use crate::plan::Opened;
use crate::report::TestResult;
use crate::run::RunError;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let sizes = bench.options.echo_sizes.iter();
    let payloads: Vec<Payload> = sizes.map(|&bytes| bench.payload(bytes)).collect();
    let Some(first) = payloads.first() else {
        return Ok(Vec::new());
    };
    announce(bench, connections, first);
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, connections)?;
    let mut results: Vec<TestResult> = Vec::new();
    for payload in payloads {
        if !results.is_empty() {
            if bench.is_stopped() {
                break;
            }
            announce(bench, connections, &payload);
        }
        let mut result = bench.result(NAME, connections, &opened);
        exchange(bench, &mut fleet, &opened, payload, &mut result)?;
        results.push(bench.finished(result));
    }
    fleet.close()?;
    Ok(results)
}

fn announce(bench: &mut Bench<'_>, connections: usize, payload: &Payload) {
    let (bytes, in_flight) = (payload.json_bytes, bench.options.in_flight);
    let detail = match bench.options.rate_per_s {
        Some(rate) => format!("{connections} connections, {bytes} B, {rate} messages/s"),
        None => format!("{connections} connections, {bytes} B, {in_flight} in flight"),
    };
    bench.started(NAME, &detail, bench.options.duration);
}

fn exchange(
    bench: &mut Bench<'_>,
    fleet: &mut Fleet,
    opened: &Opened,
    payload: Payload,
    result: &mut TestResult,
) -> Result<(), RunError> {
    let ring = bench.ring(payload);
    let activity = bench.sending(&ring, true);
    let measured = bench.measure(fleet, activity, bench.sending_stop())?;

    let saturating = bench.options.rate_per_s.is_none();
    bench.judge(result, opened, &measured, saturating);
    bench.describe(result, payload, &ring);
    if saturating {
        let in_flight = bench.options.in_flight;
        result.notes.push(format!(
            "{in_flight} messages in flight on each connection."
        ));
    }
    Ok(())
}

const NAME: &str = "echo";
