//! The rates that a search tries, as a pure function of the outcomes.

use std::time::Duration;

use super::FindLimit;
use super::judge::{Broken, Outcome};

/// What a search has found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Found {
    /// The highest rate that held.
    pub(super) held: Option<f64>,
    /// The lowest rate above it that did not.
    pub(super) broke: Option<f64>,
    /// The reason for which it did not.
    pub(super) reason: String,
    /// The generator, and not the service, ended the search.
    pub(super) by_generator: bool,
    /// The violation is the same at lower rates: no rate will hold.
    pub(super) is_independent: bool,
    /// A rate between the two for which a step cannot show whether it holds.
    unclear: Option<f64>,
    /// The rate that held did so in a longer step, too.
    is_proved: bool,
}

/// Tries rates until the two sides of the limit are close together. `attempt` tries a rate for a time; `None` ends the
/// search.
pub(super) fn search<E>(
    limits: &FindLimit,
    values_needed: u64,
    mut attempt: impl FnMut(f64, Duration) -> Result<Option<Outcome>, E>,
) -> Result<Found, E> {
    let mut found = Found::default();
    let mut before: Option<Broken> = None;
    for _ in 0..RATES_MAX {
        let (rate, factor) = match found.next(limits) {
            Some(rate) => (rate, 1),
            None => match found.unproved() {
                Some(rate) => (rate, PROOF_FACTOR),
                None => break,
            },
        };
        let longest = step_of(limits, values_needed, rate) * factor;
        let Some(outcome) = settled(|| attempt(rate, longest))? else {
            break;
        };
        found.is_proved = factor > 1 && outcome == Outcome::Held;
        if factor > 1 && outcome != Outcome::Held {
            found.held = None;
        }
        match outcome {
            Outcome::Held => found.hold(rate),
            Outcome::Unclear(reason) => {
                found.unclear = Some(rate);
                if found.reason.is_empty() {
                    found.reason = reason;
                }
            }
            Outcome::Disturbed(reason) => {
                found.fail(rate, reason);
                found.by_generator = true;
            }
            Outcome::Broke(broken) => {
                found.is_independent = found.held.is_none()
                    && before
                        .as_ref()
                        .is_some_and(|before| is_same(before, &broken));
                found.fail(rate, broken.reason.clone());
                before = Some(broken);
            }
        }
    }
    Ok(found)
}

/// The outcome of a rate. A disturbed step proves nothing, and one violation may be chance: both are tried
/// again. A violation counts when it was seen twice, or is gross.
fn settled<E>(
    mut attempt: impl FnMut() -> Result<Option<Outcome>, E>,
) -> Result<Option<Outcome>, E> {
    let mut broken: Option<Outcome> = None;
    let mut disturbed = None;
    for _ in 0..TRIES_MAX {
        match attempt()? {
            None => return Ok(None),
            Some(Outcome::Disturbed(why)) => disturbed = Some(Outcome::Disturbed(why)),
            Some(Outcome::Broke(one)) if !one.is_gross && broken.is_none() => {
                broken = Some(Outcome::Broke(one));
            }
            settled => return Ok(settled),
        }
    }
    Ok(broken.or(disturbed))
}

/// Whether a violation does not depend on the rate: at a quarter of it, it is as large.
fn is_same(before: &Broken, now: &Broken) -> bool {
    match (&before.figure, &now.figure) {
        (Some((name, before)), Some((same, now))) => name == same && *now >= before * SAME_PART,
        _ => false,
    }
}

/// The time of a step: long enough for the values that the expectations need, and for a growing backlog
/// to differ from chance.
fn step_of(limits: &FindLimit, values_needed: u64, rate: f64) -> Duration {
    let values = values_needed as f64 * NEEDED_FACTOR;
    let needed_s = (values / rate).min(STEP_S_MAX);
    let backlog_s = (REQUESTS_MIN / rate).clamp(BACKLOG_S_MIN, BACKLOG_S_MAX);
    let needed_s = needed_s.max(backlog_s);
    limits.step.max(Duration::from_secs_f64(needed_s))
}

impl Found {
    fn hold(&mut self, rate: f64) {
        self.held = Some(rate);
        self.unclear = self.unclear.filter(|unclear| *unclear > rate);
    }

    fn fail(&mut self, rate: f64, reason: String) {
        (self.broke, self.reason, self.by_generator) = (Some(rate), reason, false);
        self.unclear = self.unclear.filter(|unclear| *unclear < rate);
    }

    /// The rate that held, if it is the answer and held only in short steps.
    fn unproved(&self) -> Option<f64> {
        self.held
            .filter(|_| self.broke.is_some() && !self.is_proved)
    }

    fn next(&self, limits: &FindLimit) -> Option<f64> {
        if let Some(unclear) = self.unclear {
            let side = 1.0 + limits.resolution / 2.0;
            let (below, above) = (unclear / side, unclear * side);
            return match (self.held, self.broke) {
                (held, _) if held.is_none_or(|held| held < below * 0.99) => {
                    (below > RATE_MIN).then_some(below)
                }
                (_, broke) if broke.is_none_or(|broke| broke > above * 1.01) => Some(above),
                _ => None,
            };
        }
        match (self.held, self.broke) {
            (None, None) => Some(limits.from_per_s),
            (Some(held), None) if held >= limits.to_per_s => None,
            (Some(held), None) => Some((held * 2.0).min(limits.to_per_s)),
            (None, Some(_)) if self.is_independent => None,
            (None, Some(broke)) if broke <= RATE_MIN => None,
            (None, Some(broke)) => Some(broke / 4.0),
            (Some(held), Some(broke)) => {
                let is_close = broke / held <= 1.0 + limits.resolution;
                (!is_close).then(|| (held * broke).sqrt())
            }
        }
    }
}

const RATE_MIN: f64 = 1.0;

/// The limit for a search: 14 rates lead from 1,000/s to 10 M/s, and 5 more narrow the interval to 5 %.
const RATES_MAX: usize = 40;

/// Tries of one rate.
const TRIES_MAX: usize = 4;

/// A few more values than are needed, because not every request has succeeded when the step ends.
const NEEDED_FACTOR: f64 = 1.1;

/// Requests of a step from which a backlog that grows by 1 % differs from chance.
const REQUESTS_MIN: f64 = 1_500.0;

/// A shorter step does not show whether its backlog grows.
const BACKLOG_S_MIN: f64 = 2.0;

/// A slow service is not given longer than this for its backlog.
const BACKLOG_S_MAX: f64 = 15.0;

/// The rate that held is tried once more in a step of this many times the length.
const PROOF_FACTOR: u32 = 2;

/// The longest step, in seconds, unless the user asks for more.
const STEP_S_MAX: f64 = 120.0;

/// A violation at a quarter of the rate that is at least this part of the earlier one is the same.
const SAME_PART: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::super::judge::Excuse;
    use super::*;

    fn broke(reason: &str) -> Outcome {
        Outcome::Broke(Broken {
            reason: reason.to_owned(),
            figure: None,
            is_gross: false,
            excuse: Excuse::Delay,
        })
    }

    /// The rates that a search tries for a service that can keep up to `limit`, and its result.
    fn of_limit(limit: f64, limits: &FindLimit) -> (Vec<f64>, Found) {
        let mut tried = Vec::new();
        let found = search::<()>(limits, 1, |rate, _| {
            if tried.last() != Some(&rate) {
                tried.push(rate);
            }
            Ok(Some(match rate <= limit {
                true => Outcome::Held,
                false => broke("slow"),
            }))
        });
        (tried, found.expect("nothing fails"))
    }

    #[test]
    fn the_limit_is_found_within_the_resolution() {
        let limits = FindLimit::default();
        for limit in [1_500.0, 37_000.0, 900_000.0, 300.0, 40.0] {
            let (tried, found) = of_limit(limit, &limits);
            let (held, broke) = (found.held.unwrap_or(0.0), found.broke.unwrap_or(0.0));
            assert!(held <= limit && held >= limit / 1.05, "{limit}: {tried:?}");
            assert!(broke > limit, "{limit}: {tried:?}");
        }
    }

    #[test]
    fn an_unclear_rate_is_between_the_two_that_are_clear() {
        let limits = FindLimit::default();
        for limit in [1_000.0, 1_700.0, 333.0] {
            let found = search::<()>(&limits, 1, |rate, _| {
                Ok(Some(match rate / limit {
                    ..0.99 => Outcome::Held,
                    ..1.015 => Outcome::Unclear("grew".to_owned()),
                    _ => broke("slow"),
                }))
            });
            let found = found.expect("nothing fails");
            let (held, broke) = (found.held.unwrap_or(0.0), found.broke.unwrap_or(0.0));
            assert!(held < limit && broke > limit, "{limit}: {found:?}");
            assert!(broke / held < 1.12, "{limit}: {found:?}");
        }
    }

    #[test]
    fn a_rate_that_held_by_chance_is_found_out_in_a_longer_step() {
        let limits = FindLimit::default();
        let found = search::<()>(&limits, 1, |rate, longest| {
            let is_long = longest > limits.step;
            let limit = if is_long { 1_000.0 } else { 1_020.0 };
            Ok(Some(match rate <= limit {
                true => Outcome::Held,
                false => broke("slow"),
            }))
        });
        let found = found.expect("nothing fails");
        let (held, broke) = (found.held.unwrap_or(0.0), found.broke.unwrap_or(0.0));
        assert!(held <= 1_000.0 && broke > 1_000.0, "{found:?}");
    }

    #[test]
    fn a_service_that_never_holds_or_always_does_ends_the_search() {
        let limits = FindLimit {
            to_per_s: 8_000.0,
            ..FindLimit::default()
        };
        assert_eq!(
            of_limit(1e9, &limits).0,
            [1_000.0, 2_000.0, 4_000.0, 8_000.0]
        );
        assert_eq!(of_limit(0.0, &limits).1.held, None);
    }

    #[test]
    fn one_violation_and_disturbed_steps_are_tried_again() {
        let disturbed = || Outcome::Disturbed("stopped".to_owned());
        let of = |outcomes: Vec<Outcome>| {
            let mut outcomes = outcomes.into_iter();
            let found = settled::<()>(|| Ok(outcomes.next())).expect("nothing fails");
            (found, outcomes.count())
        };
        assert_eq!(
            of(vec![broke("a"), Outcome::Held]),
            (Some(Outcome::Held), 0)
        );
        let twice = of(vec![disturbed(), broke("a"), broke("b"), disturbed()]);
        assert_eq!(twice, (Some(broke("b")), 1));
        let never = of(vec![disturbed(), disturbed(), disturbed(), disturbed()]);
        assert_eq!(never, (Some(disturbed()), 0));
        let gross = Outcome::Broke(Broken {
            reason: "far beyond".to_owned(),
            figure: None,
            is_gross: true,
            excuse: Excuse::None,
        });
        assert_eq!(of(vec![gross.clone(), Outcome::Held]), (Some(gross), 1));
        assert_eq!(of(vec![]), (None, 0), "an interruption ends it");
    }

    #[test]
    fn a_violation_that_does_not_depend_on_the_rate_is_an_answer() {
        let mut tried = Vec::new();
        let found = search::<()>(&FindLimit::default(), 1, |rate, _| {
            tried.push(rate);
            Ok(Some(Outcome::Broke(Broken {
                reason: format!("`p99<50ms` was 200 ms at {rate}"),
                figure: Some(("p99<50ms".to_owned(), 200_000.0)),
                is_gross: true,
                excuse: Excuse::None,
            })))
        });
        let found = found.expect("nothing fails");
        assert_eq!((found.held, found.is_independent), (None, true));
        assert_eq!(tried, [1_000.0, 250.0]);
        assert_eq!(found.reason, "`p99<50ms` was 200 ms at 250");
    }

    #[test]
    fn a_step_is_as_long_as_its_figure_needs() {
        let limits = FindLimit::default();
        assert_eq!(step_of(&limits, 100, 1_000.0), limits.step);
        assert_eq!(step_of(&limits, 2_000, 100.0), Duration::from_secs(22));
        assert_eq!(step_of(&limits, 1, 100.0), Duration::from_secs(15));
        assert_eq!(step_of(&limits, 10_000, 1.0), Duration::from_secs(120));
    }
}
