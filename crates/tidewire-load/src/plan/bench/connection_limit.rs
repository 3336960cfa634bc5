//! `connection-limit`: doubles the connections until something fails, then bisects.

use std::time::Duration;

use super::measure::Bench;
use super::options::RunError;
use crate::accounting::failure::{Failure, Failures};
use crate::accounting::outcome::Opened;
use crate::fleet::Part;
use crate::fleet::stop::StopRule;
use crate::report::model::CONNECTION_LIMIT;
use crate::report::{ConnectionLimit, StoppedBy, TestResult, Verdict};
use crate::verdict::Doubt;
use crate::verdict::evidence::Aim;
use crate::worker::order::Activity;

pub(super) fn run(bench: &mut Bench<'_>, first: usize) -> Result<Vec<TestResult>, RunError> {
    let files_max = bench.connections_room()?;
    let connections_max = bench.options.connections_max.min(files_max).max(1);
    let mut search = Search::new(first.clamp(1, connections_max), connections_max);
    let mut best: Option<TestResult> = None;
    let mut last_failures = Failures::default();
    let mut full_processes = None;
    let mut was_interrupted = false;
    while let Some(count) = search.next() {
        let detail = format!("{count} connections");
        bench.started(CONNECTION_LIMIT, &detail, Duration::from_secs(2));
        let (result, failures, processes) = try_count(bench, count)?;
        // What failed in this one may have failed by the interruption.
        was_interrupted = bench.is_stopped();
        if was_interrupted {
            break;
        }
        let is_stable = result.verdict != Verdict::Failed;
        if is_stable {
            best = Some(result);
        } else {
            last_failures = failures;
            full_processes = processes;
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
        });
    }
    if let Some(words) = last_failures.in_words() {
        result
            .notes
            .push(format!("With {} connections: {words}.", search.failed));
        result.notes.extend(full_processes);
    }
    bench.expect(&mut result, &Opened::default(), None);
    Ok(vec![bench.finished(result)])
}

/// Opens N connections, holds them for a moment and pings each of them: stable is what all of them
/// outlive. The result, why connections failed, and the server's processes, where there are several.
fn try_count(
    bench: &mut Bench<'_>,
    count: usize,
) -> Result<(TestResult, Failures, Option<String>), RunError> {
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, count)?;
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
    Ok((result, failures, processes))
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
}

impl Search {
    fn new(first: usize, connections_max: usize) -> Self {
        Self {
            stable: 0,
            failed: usize::MAX,
            first,
            connections_max,
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
        let enough = (self.failed / SEARCH_RESOLUTION).max(1);
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

/// The limit is found to one part in this many.
const SEARCH_RESOLUTION: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn find(limit: usize, first: usize, connections_max: usize) -> (usize, usize) {
        let mut search = Search::new(first, connections_max);
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
    fn without_a_failure_it_ends_at_the_plans_maximum() {
        assert_eq!(find(usize::MAX, 100, 1_000), (1_000, 5));
    }
}
