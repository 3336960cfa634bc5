//! Search for the highest rate that a service can keep: doubled until a threshold breaks, then
//! halved. Each step is judged as a run is.

mod judge;
mod search;
#[cfg(test)]
mod virtual_service;

use std::time::Duration;

use super::conclude::results_of;
use super::{LoadError, Loading};
use crate::accounting::tally::Tally;
use crate::fleet::service::PhasePlan;
use crate::report::{FoundRate, RateStep, TestResult, Verdict, number};
use crate::verdict::expectation::{Expectation, Figures};
use crate::worker::pace::{Pace, Share};
use crate::worker::rhythm::Rhythm;
use judge::{Outcome, judge};
use search::{Found, search};

/// The parameters of the search.
#[derive(Debug, Clone, PartialEq)]
pub struct FindLimit {
    /// The first rate, in requests per second.
    pub from_per_s: f64,
    /// The highest rate, if nothing breaks before.
    pub to_per_s: f64,
    /// How long each rate is kept at least; longer if an expectation needs more requests.
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

impl Loading<'_> {
    /// Searches for the highest rate; the result is that of the highest rate that held.
    pub(super) fn find_limit(&mut self, limits: &FindLimit) -> Result<TestResult, LoadError> {
        let expectations = match self.plan.expectations.is_empty() {
            true => default_expectations(),
            false => self.plan.expectations.clone(),
        };
        // A single request of a scenario has fewer values than all requests together.
        let script = &self.plan.setup.script;
        let needed = expectations.iter().map(|one| {
            let share = one.scope().map_or(1.0, |name| script.share_of(name));
            (one.values_needed() as f64 / share.max(SHARE_MIN)).ceil() as u64
        });
        let needed = needed.max();
        let mut steps = Vec::new();
        let mut best: Option<TestResult> = None;
        let mut worst: Option<TestResult> = None;
        let (mut held, mut broke) = (Occupancy::default(), Occupancy::default());
        let found = search(limits, needed.unwrap_or(1), |rate, longest| {
            if self.is_stopped() {
                return Ok(None);
            }
            let (result, tally, outcome) =
                self.try_rate((rate, longest), limits.is_poisson, &expectations)?;
            steps.push(step_of(rate, &result, &tally, &outcome));
            if self.is_stopped() {
                return Ok(None);
            }
            let occupancy = Occupancy::of(&tally, self.plan.setup.users, self.plan.setup.in_flight);
            match outcome {
                Outcome::Held => (best, held) = (Some(result), occupancy),
                Outcome::Broke(_) => (worst, broke) = (Some(result), occupancy),
                Outcome::Unclear(_) | Outcome::Disturbed(_) => worst = Some(result),
            }
            Ok::<_, LoadError>(Some(outcome))
        })?;
        let mut result = best
            .or(worst)
            .unwrap_or_else(|| self.nothing_measured(&expectations));
        describe(&mut result, &found, &steps);
        if found.held.is_some() && found.broke.is_some() {
            result.notes.extend(limit_of_connections(held, broke));
        }
        if self.is_interrupted() {
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
        (rate, longest): (f64, Duration),
        is_poisson: bool,
        expectations: &[Expectation],
    ) -> Result<(TestResult, Tally, Outcome), LoadError> {
        let pace = Pace::at(rate, is_poisson, self.plan.setup.seed);
        let share = Share::whole(pace.clone(), rate);
        let phase = PhasePlan {
            rhythm: Rhythm::Open { pace, per_s: rate },
            longest: Some(longest),
            requests: None,
            revives: true,
            is_teardown: false,
        };
        let shown = format!("{}/s", number::si(rate));
        self.progress.phase_started(&shown, phase.longest);
        let lost_before = self.lost_workers();
        let seen = self.measure(&phase, false)?;
        let mut result = TestResult::new(self.plan.test, self.plan.setup.users as u64);
        let tally = self.conclude(&mut result, seen, expectations);
        self.note_server(&tally);
        let outcome = match self.lost_workers() > lost_before {
            // The service is not responsible for it: the others try again.
            true => Outcome::Disturbed("a worker has ended".to_owned()),
            false => judge(&result, &tally, (&share, rate, longest.as_secs_f64())),
        };
        Ok((result, tally, outcome))
    }
}

/// How busy the connections of a step were.
#[derive(Debug, Clone, Copy, Default)]
struct Occupancy {
    /// The requests in flight on average, as a part of those that the connections can have in flight.
    busy_share: f64,
    /// The mean time from sending to the response.
    service_ns: f64,
}

impl Occupancy {
    fn of(tally: &Tally, connections: usize, in_flight: u32) -> Self {
        let service_ns = tally.service.mean_ns();
        let slots = connections as f64 * f64::from(in_flight);
        let whole_ns = slots * tally.duration().as_nanos() as f64;
        Self {
            busy_share: tally.service.count() as f64 * service_ns / whole_ns.max(1.0),
            service_ns,
        }
    }
}

/// A note if the number of connections limited the search: at the rate that broke, all of them were busy, and the service
/// answered about as fast as at the rate that held.
fn limit_of_connections(held: Occupancy, broke: Occupancy) -> Option<String> {
    let is_busy = broke.busy_share >= BUSY_MIN;
    let is_as_fast = broke.service_ns <= held.service_ns * SLOWER_MAX;
    (is_busy && is_as_fast).then(|| {
        format!(
            "The connections were the limit: all of them were busy at the rate that did not hold, although the service answered \
             in {} on average, as before. With more connections it may hold a higher rate.",
            number::us(broke.service_ns / 1_000.0)
        )
    })
}

fn step_of(rate: f64, result: &TestResult, tally: &Tally, outcome: &Outcome) -> RateStep {
    let latency = result.latency_us.as_ref();
    RateStep {
        offered_per_s: rate,
        achieved_per_s: result.rate_per_s.unwrap_or(0.0),
        p50: latency.map(|latency| latency.p50),
        p99: latency.map(|latency| latency.p99),
        errors: tally.requests.unsuccessful(),
        duration_s: tally.duration().as_secs_f64(),
        held: Some(*outcome == Outcome::Held),
        reason: match outcome {
            Outcome::Held => None,
            Outcome::Broke(broken) => Some(broken.reason.clone()),
            Outcome::Unclear(why) => Some(format!("unclear: {why}")),
            Outcome::Disturbed(why) => Some(format!("disturbed: {why}")),
        },
    }
}

fn describe(result: &mut TestResult, found: &Found, steps: &[RateStep]) {
    let unit = crate::report::unit_of(result);
    let shown = |rate: f64| format!("{} {unit} per second", number::si(rate));
    let reason = &found.reason;
    let answer = match (found.held, found.broke) {
        (Some(held), Some(broke)) => format!(
            "The highest rate that held is {}; {} did not: {reason}.",
            shown(held),
            shown(broke)
        ),
        (Some(held), None) => format!(
            "{} held; it is the highest rate that was tried.",
            shown(held)
        ),
        (None, _) => {
            result.verdict = Verdict::Failed;
            result.doubts.push("no_rate_held".to_owned());
            let tried = steps.last().map_or(0.0, |step| step.offered_per_s);
            let independent = match found.is_independent {
                true => " It is the same at every rate that was tried.",
                false => "",
            };
            format!(
                "No rate held, not even {}: {reason}.{independent}",
                shown(tried)
            )
        }
    };
    result.notes.insert(0, answer.clone());
    result.load.found_rate = Some(FoundRate {
        held_per_s: found.held,
        broke_per_s: found.broke,
        reason: (!reason.is_empty()).then(|| reason.clone()),
        text: answer,
    });
    if found.by_generator {
        result.verdict = result.verdict.max(Verdict::GeneratorBound);
        result.notes.push(
            "The generator was the limit of the search: the service may keep up with more."
                .to_owned(),
        );
    }
}

/// The least occupancy of connections that are busy. Between two requests each rests for a moment.
const BUSY_MIN: f64 = 0.9;

/// With a response time above this multiple of the earlier one, the service is at its own limit.
const SLOWER_MAX: f64 = 1.5;

/// A request with a smaller share of all makes no step longer.
const SHARE_MIN: f64 = 0.001;

/// The default expectation: users expect few errors.
fn default_expectations() -> Vec<Expectation> {
    "errors<1%".parse().into_iter().collect()
}
