//! `connection-storm`: how many connections a second the server makes ready.

use std::time::Duration;

use super::measure::Bench;
use crate::accounting::Accounting;
use crate::report::model::CONNECTION_STORM;
use crate::report::{Cpu, LatencyOrigin, TestResult};
use crate::run::RunError;
use crate::verdict::{bottleneck, cpu_share, verdict};

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    bench.started(
        CONNECTION_STORM,
        &format!("{connections} connections"),
        Duration::from_secs(1),
    );
    let mut fleet = bench.fleet()?;
    let before = bench.server_sample();
    let opened = bench.open(&mut fleet, connections)?;
    let after = bench.server_sample();

    let duration_s = opened.duration_s();
    let mut result = bench.result(CONNECTION_STORM, connections, &opened);
    result.duration_s = Some(duration_s);
    result.rate_per_s = (duration_s > 0.0).then(|| opened.connected as f64 / duration_s);
    result.latency_us = opened.latency.summary(LatencyOrigin::Sent);
    result.memory = after
        .as_ref()
        .map(|after| bench.idle_memory(after.rss_bytes, opened.connected));
    let server = before.as_ref().zip(after.as_ref());
    let server_s = server.map(|(before, after)| after.cpu.saturating_sub(before.cpu).as_secs_f64());
    result.cpu = Some(Cpu {
        client_s: opened.cpu.total.as_secs_f64(),
        server_s,
    });
    // Ticks of 10 ms say nothing about a test that is over in a few of them.
    let server_share = server
        .filter(|_| duration_s >= SHARE_MEANINGFUL_S)
        .map(|(before, after)| after.busiest_since(before).as_secs_f64() / duration_s);
    if server_share.is_some() {
        let client_share = cpu_share(opened.cpu.busiest.as_secs_f64(), duration_s, 1);
        result.bottleneck = bottleneck(client_share, server_share);
    }
    let account = Accounting {
        connections_attempted: opened.attempted,
        connections_failed: opened.failures.total(),
        ..Accounting::default()
    };
    let (judged, notes) = verdict(&account, result.bottleneck, server_share.is_some(), None);
    result.verdict = judged;
    result.notes.extend(notes);
    fleet.close()?;
    Ok(vec![bench.finished(result)])
}

const SHARE_MEANINGFUL_S: f64 = 0.2;
