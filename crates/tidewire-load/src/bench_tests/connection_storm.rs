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
    result.memory = bench.memory(opened.connected);
    let server = before.as_ref().zip(after.as_ref());
    let server_s = server.map(|(before, after)| after.cpu.saturating_sub(before.cpu).as_secs_f64());
    result.cpu = Some(Cpu {
        client_s: opened.cpu.as_secs_f64(),
        server_s,
    });
    // Ticks of 10 ms say nothing about a test that is over in a few of them.
    if duration_s >= SHARE_MEANINGFUL_S {
        let threads = fleet.threads() as u32;
        let share =
            server.map(|(before, after)| after.busiest_since(before).as_secs_f64() / duration_s);
        result.bottleneck = bottleneck(
            cpu_share(opened.cpu.as_secs_f64(), duration_s, threads, u32::MAX),
            share,
        );
    }
    let account = Accounting {
        connections_attempted: opened.attempted,
        connections_failed: opened.failures.total(),
        ..Accounting::default()
    };
    let (judged, notes) = verdict(&account, result.bottleneck, false, None);
    result.verdict = judged;
    result.notes.extend(notes);
    fleet.close()?;
    Ok(vec![bench.finished(result)])
}

const SHARE_MEANINGFUL_S: f64 = 0.2;
