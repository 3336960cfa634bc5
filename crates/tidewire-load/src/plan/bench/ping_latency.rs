//! `ping-latency`: round trips on all connections at once, one after another on each.

use std::time::Duration;

use super::measure::Bench;
use super::options::RunError;
use crate::fleet::Part;
use crate::fleet::stop::StopRule;
use crate::report::model::PING_LATENCY;
use crate::report::{TestResult, number};
use crate::verdict::evidence::Aim;
use crate::worker::order::Activity;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let per_connection = bench.options.pings_per_connection;
    let detail = format!(
        "{}, {per_connection} pings each",
        number::connections(connections as u64)
    );
    bench.started(PING_LATENCY, &detail, Duration::from_secs(2));
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, connections)?;
    let pings = |_: Part<'_>| Activity::Pings { per_connection };
    let measured = bench.measure(&mut fleet, pings, StopRule::Count(per_connection))?;

    let mut result = bench.result(PING_LATENCY, connections, &opened);
    bench.judge(&mut result, &opened, &measured, Aim::RoundTrips);
    measured.show_round_trips(&mut result);
    bench.close(fleet, Some(&mut result))?;
    bench.expect(&mut result, &opened, Some(&measured.ran));
    Ok(vec![bench.finished(result)])
}
