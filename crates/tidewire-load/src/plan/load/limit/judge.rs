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
    /// The generator did not keep up, or was disturbed, for this reason: the step is no evidence about the
    /// service.
    Disturbed(String),
}

/// The first violation that was measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Broken {
    /// The reason with its value.
    pub(super) reason: String,
    /// The figure that is compared with the same figure of a lower rate: its name and its value. A larger
    /// value is worse.
    pub(super) figure: Option<(String, f64)>,
    /// So far beyond the bound that a second try would be the same.
    pub(super) is_gross: bool,
    /// The disturbances of the generator that may be the reason.
    pub(super) excuse: Excuse,
}

/// Which disturbances of the generator may be the reason of a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Excuse {
    /// None: the violation is larger than any of them makes it.
    None,
    /// A pause, in which the service may have ended what waited.
    Pause,
    /// A delay is enough.
    Delay,
}

impl Broken {
    fn of(reason: String) -> Self {
        Self {
            reason,
            figure: None,
            is_gross: false,
            excuse: Excuse::Delay,
        }
    }

    /// Failed requests, of which this is the part of those that were due.
    fn by_failures(self, share: f64) -> Self {
        let is_gross = share >= GROSS;
        Self {
            is_gross,
            excuse: if is_gross {
                Excuse::None
            } else {
                Excuse::Pause
            },
            ..self
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
        (Some(broken), Some((kind, why))) if broken.excuse >= kind => {
            Outcome::Disturbed(why.to_owned())
        }
        (Some(broken), _) => Outcome::Broke(broken),
    }
}

/// The worst disturbance of the generator, if there was one: the excuse that it gives, and its description.
fn disturbance(result: &TestResult) -> Option<(Excuse, &'static str)> {
    use Excuse::{Delay, Pause};
    let kinds = [
        ("pace_missed", Pause, "the generator fell behind"),
        ("generator_stopped", Pause, "the generator was stopped"),
        (
            "generator_starved",
            Pause,
            "other programs used the generator's cores",
        ),
        (
            "generator_throttled",
            Pause,
            "a quota held the generator back",
        ),
        ("generator_late", Delay, "the generator was late"),
        (
            "generator_noise",
            Delay,
            "the generator waited for its cores",
        ),
    ];
    let is_raised = |name: &str| result.doubts.iter().any(|doubt| doubt == name);
    let found = kinds.iter().find(|(name, ..)| is_raised(name));
    found.map(|(_, kind, words)| (*kind, *words))
}

/// The first violation: of an expectation with a measured value, of the backlog, of the run, and only
/// then of a figure that is not known.
fn violation(result: &TestResult, tally: &Tally, (growth, rate): (f64, f64)) -> Option<Broken> {
    let broken = || result.load.expectations.iter().filter(|one| !one.kept);
    let measured = broken().find_map(|one| Some((one, one.seen.as_ref()?)));
    if let Some((one, seen)) = measured {
        let broken = Broken::of(format!("`{}` was {seen}", one.text));
        return Some(unkept(result, &one.text, broken));
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
    let broken = Broken {
        figure: Some(("failed".to_owned(), share)),
        ..Broken::of(reason.trim_end_matches('.').to_owned())
    };
    Some(broken.by_failures(share))
}

/// The violation of an expectation: its figure, and what may be the reason of it.
fn unkept(result: &TestResult, text: &str, broken: Broken) -> Broken {
    let Ok(expectation) = text.parse::<Expectation>() else {
        return broken;
    };
    let figure = worse_than(result, &expectation);
    let value = figure.as_ref().map(|(_, value)| *value);
    let broken = Broken { figure, ..broken };
    match (expectation.kind(), value) {
        (FigureKind::Errors | FigureKind::Status | FigureKind::Connections, share) => {
            broken.by_failures(share.unwrap_or_default())
        }
        (FigureKind::Latency, Some(median_us)) => {
            let Some((percentile, most_us)) = expectation.latency_at_most_us() else {
                return broken;
            };
            let error_us = result.generator.and_then(|generator| generator.error_us);
            let error_us = error_us.unwrap_or_default();
            // Without what the generator's own delays may have added to it.
            let is_beyond =
                |of: f64, seen_us: f64, own_us: f64| of <= percentile && seen_us - own_us > most_us;
            let is_gross = is_beyond(50.0, median_us, error_us.p50);
            let is_certain = is_gross
                || result.latency_us.as_ref().is_some_and(|all| {
                    expectation.scope().is_none() && is_beyond(99.0, all.p99, error_us.p99)
                });
            Broken {
                is_gross,
                excuse: if is_certain {
                    Excuse::None
                } else {
                    Excuse::Delay
                },
                ..broken
            }
        }
        _ => broken,
    }
}

/// The median of a latency, or the part that failed: what may depend on the rate.
fn worse_than(result: &TestResult, expectation: &Expectation) -> Option<(String, f64)> {
    let named = expectation.scope().and_then(|name| {
        let mut targets = result.load.targets.iter();
        targets.find(|target| target.name == name)
    });
    let (requests, statuses, latency) = match named {
        Some(target) => (
            Some(target.requests),
            &target.statuses,
            target.latency_us.as_ref(),
        ),
        None => (
            result.load.requests,
            &result.load.statuses,
            result.latency_us.as_ref(),
        ),
    };
    let value = match expectation.kind() {
        FigureKind::Errors => requests?.unsuccessful() as f64 / requests?.due() as f64,
        FigureKind::Status => expectation.statuses_against(statuses)?,
        FigureKind::Connections => {
            let connecting = result.load.connecting.as_ref()?;
            let lost = connecting.failed + connecting.ended;
            lost as f64 / (connecting.opened + connecting.failed).max(1) as f64
        }
        FigureKind::Latency => latency?.p50,
        _ => return None,
    };
    Some((expectation.to_string(), value))
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

/// With fewer quarters of a second a slope is not significant.
const WINDOWS_MIN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Connecting, ExpectationResult, Latency, Requests, TargetFigures};

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
        let of_all = worse_than(&result, &"errors<1%".parse().expect("it is right"));
        assert_eq!(of_all, Some(("errors<1%".to_owned(), 0.1)));
    }

    /// The outcome of a step in which an expectation was broken while the generator had this doubt.
    fn of_disturbed(text: &str, doubt: &str, failed: u64, p50_us: f64) -> Outcome {
        let mut result = TestResult::new("http", 4);
        result.doubts = vec![doubt.to_owned()];
        result.load.requests = Some(Requests {
            sent: 100,
            succeeded: 100 - failed,
            failed,
            ..Requests::default()
        });
        result.load.statuses = [(200, 100 - failed), (503, failed)].into();
        result.load.connecting = Some(Connecting {
            opened: 100 - failed,
            failed,
            ..Connecting::default()
        });
        result.latency_us = Some(Latency {
            p50: p50_us,
            p99: p50_us + 15_000.0,
            ..Latency::default()
        });
        result.load.expectations = vec![ExpectationResult {
            text: text.to_owned(),
            kept: false,
            seen: Some("more".to_owned()),
            ..ExpectationResult::default()
        }];
        let share = Share::whole(crate::worker::pace::Pace::at(100.0, false, 1), 100.0);
        judge(&result, &Tally::new(0, 2), (&share, 100.0, 1.0))
    }

    #[test]
    fn a_disturbance_excuses_only_what_it_may_be_the_reason_of() {
        let is_excused = |text: &str, doubt: &str, failed: u64, p50_us: f64| {
            let outcome = of_disturbed(text, doubt, failed, p50_us);
            matches!(outcome, Outcome::Disturbed(_))
        };
        // A late request is not a failed one, but a pause may end what waits.
        for doubt in ["generator_late", "generator_noise"] {
            assert!(!is_excused("errors<1%", doubt, 5, 100.0), "{doubt}");
        }
        for doubt in ["generator_stopped", "generator_starved", "pace_missed"] {
            assert!(is_excused("errors<1%", doubt, 5, 100.0), "{doubt}");
            assert!(!is_excused("errors<1%", doubt, 67, 100.0), "{doubt}");
        }
        // Each was answered with the wrong status, or a twentieth of them.
        for (text, failed, is_excuse) in [
            ("status:503<1%", 5, true),
            ("status:503<1%", 67, false),
            ("status:200>99%", 67, false),
            ("connected>=99%", 5, true),
            ("connected>=99%", 67, false),
        ] {
            let excused = is_excused(text, "generator_stopped", failed, 100.0);
            assert_eq!(excused, is_excuse, "{text}: {failed}");
            assert!(!is_excused(text, "generator_late", failed, 100.0), "{text}");
        }
        // Half of the requests were slower than one in a hundred may be.
        assert!(is_excused("p99<50ms", "generator_late", 0, 30_000.0));
        assert!(!is_excused("p99<50ms", "generator_late", 0, 200_000.0));
        assert!(!is_excused("p99<50ms", "generator_stopped", 0, 200_000.0));
        // The percentile itself is beyond the limit by more than the generator's part of it.
        assert!(!is_excused("p99.9<20ms", "generator_late", 0, 10_000.0));
        assert!(is_excused("p99.9<35ms", "generator_late", 0, 10_000.0));
        assert!(is_excused("rate>90", "generator_late", 0, 100.0));
    }
}
