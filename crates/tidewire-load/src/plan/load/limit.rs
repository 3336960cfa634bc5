//! Search for the highest rate that a service can keep: doubled until a threshold breaks, then
//! halved.

use std::time::Duration;

use super::conclude::results_of;
use super::{LoadError, Loading};
use crate::accounting::tally::Tally;
use crate::fleet::service::PhasePlan;
use crate::report::{RateStep, TestResult, Verdict, number};
use crate::verdict::expectation::{Expectation, Figures};
use crate::worker::pace::Pace;
use crate::worker::rhythm::Rhythm;

/// The parameters of the search.
#[derive(Debug, Clone, PartialEq)]
pub struct FindLimit {
    /// The first rate, in requests per second.
    pub from_per_s: f64,
    /// The highest rate, if nothing breaks before.
    pub to_per_s: f64,
    /// How long each rate is kept.
    pub step: Duration,
    /// The search ends when the rates that held and broke differ by at most this part.
    pub resolution: f64,
    /// At random times, not evenly.
    pub is_poisson: bool,
}

impl Default for FindLimit {
    fn default() -> Self {
        Self {
            from_per_s: 1_000.0,
            to_per_s: 10e6,
            step: Duration::from_secs(5),
            resolution: 0.05,
            is_poisson: false,
        }
    }
}

/// The next rate; a pure function of the rates that held.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Search {
    held: Option<f64>,
    broke: Option<f64>,
}

impl Search {
    fn next(&self, limits: &FindLimit) -> Option<f64> {
        match (self.held, self.broke) {
            (None, None) => Some(limits.from_per_s),
            (Some(held), None) if held >= limits.to_per_s => None,
            (Some(held), None) => Some((held * 2.0).min(limits.to_per_s)),
            (None, Some(broke)) if broke <= RATE_MIN => None,
            (None, Some(broke)) => Some(broke / 4.0),
            (Some(held), Some(broke)) => {
                let is_close = broke / held <= 1.0 + limits.resolution;
                (!is_close).then(|| (held * broke).sqrt())
            }
        }
    }

    fn note(&mut self, rate: f64, has_held: bool) {
        let side = match has_held {
            true => &mut self.held,
            false => &mut self.broke,
        };
        *side = Some(rate);
    }
}

impl Loading<'_> {
    /// Searches for the highest rate; the result is that of the highest rate that held.
    pub(super) fn find_limit(&mut self, limits: &FindLimit) -> Result<TestResult, LoadError> {
        let expectations = match self.plan.expectations.is_empty() {
            true => default_expectations(),
            false => self.plan.expectations.clone(),
        };
        let mut search = Search {
            held: None,
            broke: None,
        };
        let mut steps = Vec::new();
        let mut best: Option<TestResult> = None;
        let mut worst: Option<TestResult> = None;
        while let Some(rate) = search.next(limits) {
            if self.is_stopped() || steps.len() >= STEPS_MAX {
                break;
            }
            let (result, tally) = self.try_rate(rate, limits, &expectations)?;
            let is_own_limit = fell_behind(&result);
            let has_held = holds(&result) && !is_own_limit;
            steps.push(step_of(rate, &result, &tally, has_held));
            search.note(rate, has_held);
            if has_held {
                best = Some(result);
            } else {
                worst = Some(result);
            }
        }
        let mut result = best
            .or_else(|| worst.clone())
            .unwrap_or_else(|| self.nothing_measured(&expectations));
        describe(&mut result, &search, worst.as_ref(), &steps);
        if self.is_stopped() {
            result.verdict = Verdict::Failed;
            result.doubts.push("interrupted".to_owned());
        }
        result.load.latency_by_rate = steps;
        Ok(result)
    }

    /// The result of a search that was interrupted before its first rate.
    fn nothing_measured(&self, expectations: &[Expectation]) -> TestResult {
        let mut result = TestResult::new(self.plan.test, self.plan.setup.users as u64);
        result.load.expectations = results_of(expectations, &Figures::default());
        result
    }

    fn try_rate(
        &mut self,
        rate: f64,
        limits: &FindLimit,
        expectations: &[Expectation],
    ) -> Result<(TestResult, Tally), LoadError> {
        let phase = PhasePlan {
            rhythm: Rhythm::Open {
                pace: Pace::at(rate, limits.is_poisson, self.plan.setup.seed),
                per_s: rate,
            },
            longest: Some(limits.step),
            requests: None,
            revives: true,
        };
        let shown = format!("{}/s", number::si(rate));
        self.progress.phase_started(&shown, phase.longest);
        let seen = self.measure(&phase, false)?;
        let mut result = TestResult::new(self.plan.test, self.plan.setup.users as u64);
        let tally = self.conclude(&mut result, seen, expectations);
        self.note_server(&tally);
        Ok((result, tally))
    }
}

/// Whether a rate was kept and every expectation holds.
fn holds(result: &TestResult) -> bool {
    let is_expected = result.load.expectations.iter().all(|one| one.kept);
    let is_kept = !result
        .doubts
        .iter()
        .any(|doubt| doubt == "pace_not_taken" || doubt == "nothing" || doubt == "interrupted");
    is_expected && is_kept
}

/// Whether the generator did not send the planned requests. Occasional delays are part of the
/// latencies, which the expectations judge.
fn fell_behind(result: &TestResult) -> bool {
    result.doubts.iter().any(|doubt| doubt == "pace_missed")
}

fn step_of(rate: f64, result: &TestResult, tally: &Tally, has_held: bool) -> RateStep {
    let latency = result.latency_us.as_ref();
    RateStep {
        offered_per_s: rate,
        achieved_per_s: result.rate_per_s.unwrap_or(0.0),
        p50: latency.map(|latency| latency.p50),
        p99: latency.map(|latency| latency.p99),
        errors: tally.requests.failed,
        duration_s: tally.duration().as_secs_f64(),
        held: Some(has_held),
    }
}

fn describe(
    result: &mut TestResult,
    search: &Search,
    worst: Option<&TestResult>,
    steps: &[RateStep],
) {
    let shown = |rate: f64| format!("{} requests per second", number::si(rate));
    let by_generator = worst.is_some_and(fell_behind);
    match (search.held, search.broke) {
        (Some(held), Some(broke)) => {
            let reason = worst.map(why).unwrap_or_default();
            result.notes.insert(
                0,
                format!(
                    "The highest rate that held is {}; {} did not: {reason}.",
                    shown(held),
                    shown(broke)
                ),
            );
        }
        (Some(held), None) => result.notes.insert(
            0,
            format!(
                "{} held; it is the highest rate that was tried.",
                shown(held)
            ),
        ),
        (None, _) => {
            result.verdict = Verdict::Failed;
            let tried = steps.last().map_or(0.0, |step| step.offered_per_s);
            let reason = worst.map(why).unwrap_or_default();
            result.notes.insert(
                0,
                format!("No rate held, not even {}: {reason}.", shown(tried)),
            );
        }
    }
    if by_generator {
        result.verdict = result.verdict.max(Verdict::GeneratorBound);
        result.notes.push(
            "The generator was the limit of the search: the service may keep up with more."
                .to_owned(),
        );
    }
}

/// The reason for which a rate did not hold.
fn why(result: &TestResult) -> String {
    let broken = result.load.expectations.iter().filter(|one| !one.kept);
    let mut reasons: Vec<String> = broken
        .map(|one| match &one.seen {
            Some(seen) => format!("`{}` was {seen}", one.text),
            None => format!("`{}` is not known", one.text),
        })
        .collect();
    if result.doubts.iter().any(|doubt| doubt == "pace_not_taken") {
        reasons.push("no connection was free for every request".to_owned());
    }
    if fell_behind(result) {
        reasons.push("the generator fell behind".to_owned());
    }
    reasons.join(", ")
}

/// The default expectation: users expect few errors.
fn default_expectations() -> Vec<Expectation> {
    "errors<1%".parse().into_iter().collect()
}

const RATE_MIN: f64 = 1.0;

/// Steps of a search: from 1,000/s to 10 M/s it takes 14, and 5 to halve to 5 %.
const STEPS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates that a search tries for a service that can keep up to `limit`, and its result.
    fn search(limit: f64, limits: &FindLimit) -> (Vec<f64>, Search) {
        let mut search = Search {
            held: None,
            broke: None,
        };
        let mut tried = Vec::new();
        while let Some(rate) = search.next(limits) {
            tried.push(rate);
            search.note(rate, rate <= limit);
            assert!(tried.len() < STEPS_MAX, "{tried:?}");
        }
        (tried, search)
    }

    #[test]
    fn the_limit_is_found_within_the_resolution() {
        let limits = FindLimit::default();
        for limit in [1_500.0, 37_000.0, 900_000.0, 300.0, 40.0] {
            let (tried, found) = search(limit, &limits);
            let held = found.held.unwrap();
            assert!(held <= limit && held >= limit / 1.05, "{limit}: {tried:?}");
        }
    }

    #[test]
    fn a_service_that_never_holds_or_always_does_ends_the_search() {
        let limits = FindLimit {
            to_per_s: 8_000.0,
            ..FindLimit::default()
        };
        assert_eq!(search(1e9, &limits).0, [1_000.0, 2_000.0, 4_000.0, 8_000.0]);
        assert_eq!(search(0.0, &limits).1.held, None);
    }
}
