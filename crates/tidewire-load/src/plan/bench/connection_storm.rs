//! `connection-storm`: how many connections a second the server makes ready.

use std::time::Duration;

use super::measure::Bench;
use super::options::RunError;
use crate::accounting::generator::Moment;
use crate::accounting::outcome::{Opened, Ran};
use crate::accounting::recorder::Recorder;
use crate::plan::sides::both_sides;
use crate::report::model::CONNECTION_STORM;
use crate::report::{LatencyOrigin, TestResult};
use crate::verdict::account::Accounting;
use crate::verdict::evidence::{Aim, Evidence};

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    bench.started(
        CONNECTION_STORM,
        &format!("{connections} connections"),
        Duration::from_secs(1),
    );
    let mut fleet = bench.fleet()?;
    let before = bench.server.sample();
    let started = Moment::now(&bench.cores, fleet.stopped());
    let opened = bench.open(&mut fleet, connections)?;
    let ended = Moment::now(&bench.cores, fleet.stopped());
    let after = bench.server.sample();
    let held = bench.survive(&mut fleet)?;
    bench.server.look(fleet.connected());
    let with_all_open = bench.server.sample();

    let duration_s = opened.duration_s();
    let living = held.members.saturating_sub(held.broken.total());
    let mut result = bench.result(CONNECTION_STORM, connections, &opened);
    result.connected = Some(living);
    result.failed = Some(opened.attempted.saturating_sub(living));
    result.duration_s = Some(duration_s);
    result.rate_per_s = (living > 0 && duration_s > 0.0).then(|| living as f64 / duration_s);
    result.latency_us = opened.latency.summary(LatencyOrigin::Sent);
    result.memory = with_all_open.map(|sample| bench.idle_memory(sample.rss_bytes, living, &[]));
    if let Some(words) = held.broken_since_opened().in_words() {
        let note = format!("Connections that broke after they had become ready: {words}.");
        result.notes.push(note);
    }
    // Ticks of 10 ms say nothing about a test that is over in a few of them.
    let is_long = duration_s >= SHARE_MEANINGFUL_S;
    let server_s = before.zip(after).filter(|_| is_long);
    let server_s = server_s.map(|(before, after)| {
        let (all, busiest) = (after.cpu_since(&before), after.busiest_since(&before));
        (all.as_secs_f64(), busiest.as_secs_f64())
    });
    let (usage, generator) = both_sides(
        opened.cpu,
        duration_s,
        server_s,
        (&bench.cores, &bench.server),
        (&started, &ended),
        (&opened.waits, &Recorder::new()),
    );
    let evidence = Evidence {
        aim: if is_long { Aim::Saturate } else { Aim::Keep },
        account: account(&opened, &held, living),
        pongs_strange: held.pongs_strange,
        interrupted: opened.interrupted || held.interrupted,
        generator,
        usage,
        latency_p99_us: result.latency_us.as_ref().map(|latency| latency.p99),
        ..Evidence::default()
    };
    bench.conclude(&mut result, &evidence, opened.cpu);
    bench.close(fleet, Some(&mut result))?;
    bench.expect(&mut result, &opened, None);
    Ok(vec![bench.finished(result)])
}

fn account(opened: &Opened, held: &Ran, living: u64) -> Accounting {
    Accounting {
        connections_attempted: opened.attempted,
        connections_failed: opened.attempted.saturating_sub(living),
        pings_sent: held.pings_sent,
        pongs_lost: held.pongs_lost,
        ..Accounting::default()
    }
}

const SHARE_MEANINGFUL_S: f64 = 0.2;
