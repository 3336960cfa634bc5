//! The tests whose measurement is the opening of connections: `connection-storm`, `connect-latency` and
//! `rapid-reconnect`.

use std::time::Duration;

use super::measure::Bench;
use super::options::RunError;
use crate::accounting::generator::Moment;
use crate::accounting::outcome::{Opened, Ran};
use crate::accounting::recorder::Recorder;
use crate::accounting::server::ServerSample;
use crate::fleet::Fleet;
use crate::plan::sides::both_sides;
use crate::report::model::{CONNECT_LATENCY, CONNECTION_STORM, RAPID_RECONNECT};
use crate::report::{LatencyOrigin, TestResult, number};
use crate::verdict::account::Accounting;
use crate::verdict::evidence::{Aim, Evidence};
use crate::worker::order::Again;

/// How many connections a second the server makes ready.
pub(super) fn storm(
    bench: &mut Bench<'_>,
    connections: usize,
) -> Result<Vec<TestResult>, RunError> {
    let detail = number::connections(connections as u64);
    bench.started(CONNECTION_STORM, &detail, Duration::from_secs(1));
    let mut fleet = bench.fleet()?;
    let opening = Opening::of(bench, &mut fleet, |bench, fleet| {
        bench.open(fleet, connections)
    })?;
    let held = bench.survive(&mut fleet)?;
    bench.server.look(fleet.connected());
    let with_all_open = bench.server.sample();
    let processes = bench.server_processes_in_words();

    let mut result = bench.result(CONNECTION_STORM, connections, &opening.opened);
    let living = held.members.saturating_sub(held.broken.total());
    result.connected = Some(living);
    result.memory = with_all_open.map(|sample| bench.idle_memory(sample.rss_bytes, living, &[]));
    if let Some(words) = held.broken_since_opened().in_words() {
        let note = format!("Connections that broke after they had become ready: {words}.");
        result.notes.push(note);
    }
    result.notes.extend(processes);
    opening.judge(bench, &mut result, living, Some(&held));
    bench.close(fleet, Some(&mut result))?;
    bench.expect(&mut result, &opening.opened, None);
    Ok(vec![bench.finished(result)])
}

/// The time from the start of TCP until a connection is ready, one connection after the other.
pub(super) fn latency(bench: &mut Bench<'_>) -> Result<Vec<TestResult>, RunError> {
    let again = Again {
        rounds: Some(bench.options.rounds),
        longest: None,
    };
    let detail = format!("{} rounds", again.rounds.unwrap_or(1));
    bench.started(CONNECT_LATENCY, &detail, Duration::from_secs(1));
    reconnect(bench, CONNECT_LATENCY, 1, again)
}

/// Connections that are closed when they are ready, and opened again, for a while or a number of times.
pub(super) fn rapid(
    bench: &mut Bench<'_>,
    connections: usize,
) -> Result<Vec<TestResult>, RunError> {
    let duration = bench.options.duration;
    let cycles = bench.options.cycles;
    let again = Again {
        rounds: cycles,
        longest: cycles.is_none().then_some(duration),
    };
    let detail = format!("{connections} at once");
    bench.started(RAPID_RECONNECT, &detail, duration);
    reconnect(bench, RAPID_RECONNECT, connections, again)
}

fn reconnect(
    bench: &mut Bench<'_>,
    name: &str,
    connections: usize,
    again: Again,
) -> Result<Vec<TestResult>, RunError> {
    let mut fleet = bench.fleet()?;
    let opening = Opening::of(bench, &mut fleet, |bench, fleet| {
        bench.reconnect(fleet, connections, again)
    })?;
    let opened = &opening.opened;
    let mut result = bench.result(name, connections, opened);
    // They were open one after the other.
    result.connected = None;
    let attempted = number::grouped(opened.attempted);
    result.notes.push(format!(
        "{attempted} connections were opened and closed, {connections} at a time."
    ));
    opening.judge(bench, &mut result, opened.connected, None);
    bench.close(fleet, Some(&mut result))?;
    bench.expect(&mut result, &opening.opened, None);
    Ok(vec![bench.finished(result)])
}

/// Connections that were opened, and both sides before and after.
struct Opening {
    opened: Opened,
    server: Option<(ServerSample, ServerSample)>,
    started: Moment,
    ended: Moment,
}

impl Opening {
    fn of(
        bench: &mut Bench<'_>,
        fleet: &mut Fleet,
        open: impl FnOnce(&mut Bench<'_>, &mut Fleet) -> Result<Opened, RunError>,
    ) -> Result<Self, RunError> {
        let before = bench.server.sample();
        let started = bench.moment(fleet);
        let opened = open(bench, fleet)?;
        let ended = bench.moment(fleet);
        let after = bench.server.sample();
        Ok(Self {
            opened,
            server: before.zip(after),
            started,
            ended,
        })
    }

    /// Adds the figures, of which this many connections lived to the end, and the verdict over them.
    fn judge(&self, bench: &Bench<'_>, result: &mut TestResult, living: u64, held: Option<&Ran>) {
        let opened = &self.opened;
        let duration_s = opened.duration_s();
        let failed = opened.attempted.saturating_sub(living);
        result.failed = Some(failed);
        result.duration_s = Some(duration_s);
        result.rate_per_s = opened.rate_per_s(living);
        result.latency_us = opened.latency.summary(LatencyOrigin::Sent);
        // Ticks of 10 ms are too coarse for a test that lasts only a few of them.
        let is_long = duration_s >= SHARE_MEANINGFUL_S;
        let server_s = self.server.as_ref().filter(|_| is_long);
        let server_s = server_s.map(|(before, after)| {
            let (all, busiest) = (after.cpu_since(before), after.busiest_since(before));
            (all.as_secs_f64(), busiest.as_secs_f64())
        });
        let (usage, generator) = both_sides(
            opened.cpu,
            duration_s,
            server_s,
            (&bench.cores, &bench.server),
            (&self.started, &self.ended),
            (&opened.waits, &Recorder::new()),
        );
        let saturates = is_long && result.test != CONNECT_LATENCY;
        let evidence = Evidence {
            aim: if saturates { Aim::Saturate } else { Aim::Keep },
            account: Accounting {
                connections_attempted: opened.attempted,
                connections_failed: failed,
                pings_sent: held.map_or(0, |held| held.pings_sent),
                pongs_lost: held.map_or(0, |held| held.pongs_lost),
                ..Accounting::default()
            },
            pongs_strange: held.map_or(0, |held| held.pongs_strange),
            interrupted: opened.interrupted || held.is_some_and(|held| held.interrupted),
            generator,
            usage,
            latency_p99_us: result.latency_us.as_ref().map(|latency| latency.p99),
            ..Evidence::default()
        };
        bench.conclude(result, &evidence, opened.cpu);
    }
}

const SHARE_MEANINGFUL_S: f64 = 0.2;
