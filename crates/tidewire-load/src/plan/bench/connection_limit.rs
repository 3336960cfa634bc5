//! `connection-limit`: doubles the connections until something fails, then bisects.

use std::collections::BTreeMap;
use std::time::Duration;

use super::measure::Bench;
use super::options::RunError;
use crate::accounting::failure::{Failure, Failures};
use crate::accounting::outcome::Opened;
use crate::fleet::Part;
use crate::fleet::stop::StopRule;
use crate::report::model::CONNECTION_LIMIT;
use crate::report::{
    ConnectionLimit, LimitPhase, LimitProbe, StoppedBy, TestResult, Verdict, number,
};
use crate::verdict::Doubt;
use crate::verdict::evidence::Aim;
use crate::worker::order::Activity;

pub(super) fn run(bench: &mut Bench<'_>, first: usize) -> Result<Vec<TestResult>, RunError> {
    let files_max = bench.connections_room()?;
    let connections_max = bench.options.connections_max.min(files_max).max(1);
    let first = first.clamp(1, connections_max);
    let mut search = Search::new(first, connections_max, bench.options.limit_resolution);
    let mut best: Option<TestResult> = None;
    let mut last_failures = Failures::default();
    let mut full_processes = None;
    let mut was_interrupted = false;
    let mut probes = Vec::new();
    while let Some(count) = search.next() {
        let detail = number::connections(count as u64);
        bench.started(CONNECTION_LIMIT, &detail, Duration::from_secs(2));
        let tried = try_count(bench, count)?;
        // What failed in this one may have failed by the interruption.
        was_interrupted = bench.is_stopped();
        if was_interrupted {
            break;
        }
        let is_stable = tried.result.verdict != Verdict::Failed;
        probes.push(tried.probe(search.phase(), bench.source_addresses()));
        if is_stable {
            best = Some(tried.result);
        } else {
            last_failures = tried.failures;
            full_processes = tried.processes;
        }
        search.record(count, is_stable);
    }
    let mut result = best.unwrap_or_else(|| {
        let asked = search.failed.min(search.first) as u64;
        TestResult {
            verdict: Verdict::Failed,
            doubts: vec!["connections_failed".into()],
            notes: vec!["No number of connections was stable.".into()],
            ..TestResult::new(CONNECTION_LIMIT, asked)
        }
    });
    if was_interrupted {
        let stable = search.stable;
        result.verdict = Verdict::Failed;
        result.doubts.push(Doubt::Interrupted.name().to_owned());
        result.notes.push(format!(
            "The search was interrupted before the limit was found: {stable} connections were stable."
        ));
    } else {
        result.limit = Some(ConnectionLimit {
            largest_stable: search.stable as u64,
            stopped_by: match last_failures.most_common() {
                None if search.failed != usize::MAX => StoppedBy::Server,
                None if files_max <= bench.options.connections_max => StoppedBy::OpenFiles,
                None => StoppedBy::Plan,
                Some(failure) => stopped_by(failure),
            },
            probes,
        });
    }
    if let Some(words) = last_failures.in_words() {
        result.notes.push(format!(
            "With {}: {words}.",
            number::connections(search.failed as u64)
        ));
        result.notes.extend(full_processes);
    }
    bench.expect(&mut result, &Opened::default(), None);
    Ok(vec![bench.finished(result)])
}

/// The outcome of one number of connections.
struct Tried {
    result: TestResult,
    /// Handshakes per second of the connections that were opened.
    rate_per_s: Option<f64>,
    /// Why connections could not be opened or did not last.
    failures: Failures,
    /// The server's processes, where there are several.
    processes: Option<String>,
}

impl Tried {
    fn probe(&self, phase: LimitPhase, source_addresses: u32) -> LimitProbe {
        LimitProbe {
            phase,
            connections: self.result.connections,
            connected: self.result.connected.unwrap_or_default(),
            stable: self.result.verdict != Verdict::Failed,
            rate_per_s: self.rate_per_s,
            errors: by_name(&self.failures),
            source_addresses,
        }
    }
}

/// Opens N connections, holds them for a moment and pings each of them: stable is what all of them outlive.
fn try_count(bench: &mut Bench<'_>, count: usize) -> Result<Tried, RunError> {
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, count)?;
    let rate_per_s = opened.rate_per_s(opened.connected);
    let mut result = bench.result(CONNECTION_LIMIT, count, &opened);
    let processes = bench.server_processes_in_words();
    let mut failures = opened.failures.clone();
    if failures.total() > 0 {
        result.verdict = Verdict::Failed;
    } else {
        failures.merge(&bench.survive(&mut fleet)?.broken_since_opened());
        let ping = |_: Part<'_>| Activity::Pings { per_connection: 1 };
        let measured = bench.measure(&mut fleet, ping, StopRule::Count(1))?;
        bench.judge(&mut result, &opened, &measured, Aim::Keep);
        failures.merge(&measured.ran.broken_since_opened());
    }
    bench.close(fleet, Some(&mut result))?;
    Ok(Tried {
        result,
        rate_per_s,
        failures,
        processes,
    })
}

/// Failures by the name of their kind, with the close code or HTTP status where they have one: `unexpected-status-503`.
fn by_name(failures: &Failures) -> BTreeMap<String, u64> {
    let name = |failure: Failure| match failure.code() {
        Some(code) => format!("{}-{code}", failure.name()),
        None => failure.name().to_owned(),
    };
    failures
        .iter()
        .map(|(failure, count)| (name(failure), count))
        .collect()
}

fn stopped_by(failure: Failure) -> StoppedBy {
    match failure {
        Failure::OpenFiles => StoppedBy::OpenFiles,
        Failure::NoPort => StoppedBy::Ports,
        Failure::Memory => StoppedBy::Memory,
        _ => StoppedBy::Server,
    }
}

/// Which number of connections to try next.
#[derive(Debug)]
struct Search {
    /// The largest number that was stable; 0 before there is one.
    stable: usize,
    /// The smallest number that failed; `usize::MAX` before there is one.
    failed: usize,
    first: usize,
    connections_max: usize,
    /// How close the limit is searched, as a share of it.
    resolution: f64,
}

impl Search {
    fn new(first: usize, connections_max: usize, resolution: f64) -> Self {
        Self {
            stable: 0,
            failed: usize::MAX,
            first,
            connections_max,
            resolution,
        }
    }

    fn phase(&self) -> LimitPhase {
        match self.failed {
            usize::MAX => LimitPhase::Doubling,
            _ => LimitPhase::Narrowing,
        }
    }

    fn next(&self) -> Option<usize> {
        if self.failed == usize::MAX {
            return match self.stable {
                0 => Some(self.first),
                stable if stable >= self.connections_max => None,
                stable => Some((stable * 2).min(self.connections_max)),
            };
        }
        let gap = self.failed - self.stable;
        let enough = ((self.failed as f64 * self.resolution) as usize).max(1);
        (gap > enough).then(|| self.stable + gap / 2)
    }

    fn record(&mut self, count: usize, is_stable: bool) {
        if is_stable {
            self.stable = self.stable.max(count);
        } else {
            self.failed = self.failed.min(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::LIMIT_RESOLUTION;
    use super::*;

    fn find(limit: usize, first: usize, connections_max: usize) -> (usize, usize) {
        find_to(LIMIT_RESOLUTION, limit, first, connections_max)
    }

    fn find_to(
        resolution: f64,
        limit: usize,
        first: usize,
        connections_max: usize,
    ) -> (usize, usize) {
        let mut search = Search::new(first, connections_max, resolution);
        let mut tries = 0;
        while let Some(count) = search.next() {
            assert!(count <= connections_max);
            search.record(count, count <= limit);
            tries += 1;
            assert!(tries < 40);
        }
        (search.stable, tries)
    }

    #[test]
    fn the_limit_is_found_to_a_sixty_fourth() {
        for limit in [1, 7, 100, 777, 4_096, 60_000] {
            let (stable, _) = find(limit, 100, 100_000);
            assert!(
                stable <= limit && limit - stable <= limit / 50 + 1,
                "{limit}: {stable}"
            );
        }
        assert_eq!(find(0, 100, 1_000).0, 0);
    }

    #[test]
    fn a_finer_resolution_finds_the_limit_itself_and_a_coarse_one_ends_early() {
        assert_eq!(find_to(1e-9, 4_097, 100, 100_000).0, 4_097);
        let (coarse, tries) = find_to(0.5, 60_000, 100, 100_000);
        assert!(
            (30_000..=60_000).contains(&coarse) && tries <= 12,
            "{coarse} in {tries}"
        );
    }

    #[test]
    fn without_a_failure_it_ends_at_the_plans_maximum() {
        assert_eq!(find(usize::MAX, 100, 1_000), (1_000, 5));
    }
}
