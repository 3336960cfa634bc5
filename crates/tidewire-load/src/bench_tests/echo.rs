//! `echo`: a closed loop with so many messages in flight, or an open loop at a given rate, with a
//! server that sends every message back.

use super::measure::Bench;
use crate::payload::Payload;
use crate::report::TestResult;
use crate::run::RunError;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let (duration, in_flight) = (bench.options.duration, bench.options.in_flight);
    let detail = match bench.options.rate_per_s {
        Some(rate) => format!("{connections} connections, {rate} messages/s"),
        None => format!("{connections} connections, {in_flight} in flight"),
    };
    bench.started("echo", &detail, duration);
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, connections)?;
    let ring = bench.ring(Payload::TRADE);
    let activity = bench.sending(&ring, true);
    let measured = bench.measure(&mut fleet, activity, bench.sending_stop())?;

    let mut result = bench.result("echo", connections, &opened);
    let saturating = bench.options.rate_per_s.is_none();
    bench.judge(&mut result, &opened, &measured, saturating);
    result.format = Some(Payload::TRADE.encoding.as_str().to_owned());
    result.payload_bytes = Some(Payload::TRADE.json_bytes as u64);
    result.bytes_per_s = result
        .rate_per_s
        .map(|rate| rate * ring.payload_bytes_mean());
    if bench.options.rate_per_s.is_none() {
        result.notes.push(format!(
            "{in_flight} messages in flight on each connection."
        ));
    }
    fleet.close()?;
    Ok(vec![bench.finished(result)])
}
