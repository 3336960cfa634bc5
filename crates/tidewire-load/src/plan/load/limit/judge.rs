//! The judgement of one step of the search: a rate holds if it was achieved, its backlog did not grow, and the step is
//! a good run.

use crate::accounting::outcome::WINDOW;
use crate::accounting::tally::Tally;
use crate::report::{TestResult, Verdict, number};
use crate::verdict::expectation::{Expectation, FigureKind};
use crate::worker::pace::Share;

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    /// Every expectation was kept, and the service kept up.
    Held,
    /// It did not.
    Broke(Broken),
    /// Its backlog grew, but by so little that chance may be the reason.
    Unclear(String),
    /// The generator did not keep up, or was disturbed, for this reason: the step says nothing about the
    /// service.
    Disturbed(String),
}

/// The first violation that was measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Broken {
    /// The reason with its value.
    pub(super) reason: String,
    /// What is compared with the same of a lower rate: the figure's name and its value, where more is
    /// worse.
    pub(super) figure: Option<(String, f64)>,
    /// So far beyond the bound that a second try would be the same.
    pub(super) is_gross: bool,
}

impl Broken {
    fn of(reason: String) -> Self {
        Self {
            reason,
            figure: None,
            is_gross: false,
        }
    }
}

/// Judges a step of this planned rate. `seconds` is its planned time.
pub(super) fn judge(
    result: &TestResult,
    tally: &Tally,
    (share, rate, seconds): (&Share, f64, f64),
) -> Outcome {
    let growth = backlog_growth(tally, share, seconds).unwrap_or(0.0);
    let broken = violation(result, tally, (growth, rate));
    let disturbance = disturbance(result);
    match (broken, disturbance) {
        (None, None) if growth > UNCLEAR_MIN * rate => Outcome::Unclear(grown(growth, rate)),
        (None, _) => Outcome::Held,
        (Some(_), Some(why)) => Outcome::Disturbed(why),
        (Some(broken), None) => Outcome::Broke(broken),
    }
}

/// The disturbance of the generator, if there was one.
fn disturbance(result: &TestResult) -> Option<String> {
    let names = [
        ("pace_missed", "the generator fell behind"),
        ("generator_stopped", "the generator was stopped"),
        (
            "generator_starved",
            "other programs used the generator's cores",
        ),
        ("generator_throttled", "a quota held the generator back"),
        ("generator_late", "the generator was late"),
        ("generator_noise", "the generator waited for its cores"),
    ];
    let is_raised = |name: &str| result.doubts.iter().any(|doubt| doubt == name);
    let found = names.iter().find(|(name, _)| is_raised(name));
    found.map(|(_, words)| (*words).to_owned())
}

/// The first violation: of an expectation with a measured value, of the backlog, of the run, and only
/// then of a figure that is not known.
fn violation(result: &TestResult, tally: &Tally, (growth, rate): (f64, f64)) -> Option<Broken> {
    let broken = || result.load.expectations.iter().filter(|one| !one.kept);
    let measured = broken().find_map(|one| Some((one, one.seen.as_ref()?)));
    if let Some((one, seen)) = measured {
        return Some(Broken {
            figure: worse_than(result, &one.text),
            ..Broken::of(format!("`{}` was {seen}", one.text))
        });
    }
    if growth > GROWTH_MAX * rate {
        return Some(Broken {
            is_gross: growth > GROSS * rate,
            ..Broken::of(grown(growth, rate))
        });
    }
    run_violation(result, tally).or_else(|| {
        let unknown = broken().next()?;
        let why = unknown.reason.as_deref().unwrap_or("not known");
        Some(Broken::of(format!("`{}` is {why}", unknown.text)))
    })
}

fn grown(growth: f64, rate: f64) -> String {
    format!(
        "the service kept up with {}/s, and the backlog grew by {}/s",
        number::si((rate - growth).max(0.0)),
        number::si(growth)
    )
}

/// What fails a run fails a step, too.
fn run_violation(result: &TestResult, tally: &Tally) -> Option<Broken> {
    let has = |name: &str| result.doubts.iter().any(|doubt| doubt == name);
    if has("pace_not_taken") {
        let (due, sent) = (tally.due, tally.requests.sent);
        return Some(Broken {
            is_gross: (sent as f64) < due as f64 * (1.0 - GROSS),
            ..Broken::of(format!(
                "no connection was free for {} of {} requests",
                number::grouped(due.saturating_sub(sent)),
                number::grouped(due)
            ))
        });
    }
    if result.verdict != Verdict::Failed {
        return None;
    }
    let failures = crate::report::failures_of(result);
    let first = failures.into_iter().next();
    let reason = first.or_else(|| result.notes.first().cloned());
    let reason = reason.unwrap_or_else(|| "the run failed".to_owned());
    let requests = &tally.requests;
    let share = requests.failed as f64 / requests.due().max(1) as f64;
    Some(Broken {
        figure: Some(("failed".to_owned(), share)),
        ..Broken::of(reason.trim_end_matches('.').to_owned())
    })
}

/// The value of a latency, or the failed part: what may depend on the rate.
fn worse_than(result: &TestResult, text: &str) -> Option<(String, f64)> {
    let expectation: Expectation = text.parse().ok()?;
    let named = expectation.scope().and_then(|name| {
        let mut targets = result.load.targets.iter();
        targets.find(|target| target.name == name)
    });
    let (requests, latency) = match named {
        Some(target) => (Some(target.requests), target.latency_us.as_ref()),
        None => (result.load.requests, result.latency_us.as_ref()),
    };
    let value = match expectation.kind() {
        FigureKind::Errors => requests?.unsuccessful() as f64 / requests?.due() as f64,
        FigureKind::Latency => latency?.p50,
        _ => return None,
    };
    Some((text.to_owned(), value))
}

/// The requests per second by which those that were due grow beyond those that are done, between the
/// first quarter of the step and its end: the slope of the line through the backlog of each quarter of
/// a second. `None` if a step is too short, or if it grew by no more than a few requests in all.
pub(super) fn backlog_growth(tally: &Tally, share: &Share, seconds: f64) -> Option<f64> {
    let window_s = WINDOW.as_secs_f64();
    let windows = (seconds / window_s) as usize;
    let from = windows / 4;
    if windows < from + WINDOWS_MIN {
        return None;
    }
    let done = |quarters: &[u64], index: usize| quarters.get(index).copied().unwrap_or(0);
    let mut finished = 0;
    let backlog: Vec<f64> = (0..windows)
        .map(|index| {
            finished += done(&tally.quarters, index) + done(&tally.failed_quarters, index);
            let due = share.due_in((index as u64 + 1) * WINDOW.as_nanos() as u64);
            due as f64 - finished as f64
        })
        .collect();
    let slope = slope(&backlog[from..]) / window_s;
    let grown = slope * (windows - from) as f64 * window_s;
    (grown > GROWN_MIN).then_some(slope)
}

/// The slope of the line through values at equal distances, by least squares.
fn slope(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / n;
    let places = || {
        values
            .iter()
            .enumerate()
            .map(|(x, y)| (x as f64 - middle, y - mean))
    };
    let squares: f64 = places().map(|(x, _)| x * x).sum();
    places().map(|(x, y)| x * y).sum::<f64>() / squares
}

/// A backlog that grows by more than this part of the rate grows without end.
const GROWTH_MAX: f64 = 0.015;

/// A backlog that grows by less than this part of the rate does not grow.
const UNCLEAR_MIN: f64 = 0.0025;

/// Fewer requests than this are no growth: as many are on their way at any time.
const GROWN_MIN: f64 = 3.0;

/// Beyond this part a second try would be the same.
const GROSS: f64 = 0.2;

/// With fewer quarters of a second a slope says little.
const WINDOWS_MIN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ExpectationResult, Requests, TargetFigures};

    #[test]
    fn the_request_that_an_expectation_names_is_judged_alone() {
        let requests = |succeeded, failed| Requests {
            sent: succeeded + failed,
            succeeded,
            failed,
            ..Requests::default()
        };
        let mut result = TestResult::new("http", 4);
        result.load.requests = Some(requests(90, 10));
        result.load.targets = vec![
            TargetFigures {
                name: "GET /items".to_owned(),
                requests: requests(80, 0),
                ..TargetFigures::default()
            },
            TargetFigures {
                name: "log in: now".to_owned(),
                requests: requests(10, 10),
                ..TargetFigures::default()
            },
        ];
        let text = "log in: now: errors<1%";
        result.load.expectations = vec![ExpectationResult {
            text: text.to_owned(),
            kept: false,
            seen: Some("50 %".to_owned()),
            ..ExpectationResult::default()
        }];
        let tally = Tally::new(0, 2);
        let broken = violation(&result, &tally, (0.0, 100.0)).expect("it is broken");
        assert_eq!(broken.figure, Some((text.to_owned(), 0.5)));
        assert_eq!(broken.reason, format!("`{text}` was 50 %"));
        let of_all = worse_than(&result, "errors<1%");
        assert_eq!(of_all, Some(("errors<1%".to_owned(), 0.1)));
    }
}
