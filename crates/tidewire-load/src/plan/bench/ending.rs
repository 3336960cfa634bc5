//! Early end of a test: an expectation that is broken for too long.

use std::time::Duration;

use super::kind::TestKind;
use super::options::BenchOptions;
use crate::accounting::live::Live;
use crate::fleet::Wish;
use crate::fleet::stop::StopRule;
use crate::verdict::expectation::{Distribution, Figures, Patience, Piece};

/// Examines a test second by second.
pub(super) struct Ending {
    patience: Patience<Second>,
    /// The start of the current second, and the messages confirmed before it.
    begun: (Duration, u64),
    broken: Option<String>,
    is_paced: bool,
    /// The planned end; `None` if a number of round trips ends the test.
    end: Option<Duration>,
}

impl Ending {
    /// `None` if nothing ends this test early.
    pub(super) fn of(
        options: &BenchOptions,
        test: Option<TestKind>,
        stop: &StopRule,
    ) -> Option<Self> {
        let (abort_after, test) = options.abort_after.zip(test)?;
        let is_paced = options.rate_per_s.is_some();
        let expectations: Vec<_> = options
            .expectations
            .iter()
            .filter(|expectation| expectation.applies_to(test, is_paced))
            .map(|expectation| expectation.of_figure().clone())
            .collect();
        Some(Self {
            patience: Patience::new(&expectations, abort_after.as_secs_f64()),
            begun: (Duration::ZERO, 0),
            broken: None,
            is_paced,
            end: stop.longest(),
        })
    }

    /// The decision at this moment of the test.
    pub(super) fn look(&mut self, live: &Live) -> Wish {
        let (since, confirmed) = self.begun;
        let span = live.elapsed.saturating_sub(since);
        // After the end only confirmations of earlier messages arrive.
        let is_over = self.end.is_some_and(|end| live.elapsed >= end);
        if span >= SECOND && !is_over {
            self.begun = (live.elapsed, live.confirmed);
            let broken = self.patience.observe(&Second {
                seconds: span.as_secs_f64(),
                confirmed: live.confirmed.saturating_sub(confirmed),
                // The connections of a counted test end one after the other.
                has_rate: self.end.is_some(),
                is_paced: self.is_paced,
                latency: SoFar {
                    count: live.confirmed,
                    p99_us: live.latency_p99_us,
                },
            });
            if let Some(broken) = broken {
                self.broken = Some(broken.to_string());
            }
        }
        match self.broken {
            Some(_) => Wish::Stop,
            None => Wish::GoOn,
        }
    }

    /// The expectation that has ended the test.
    pub(super) fn into_broken(self) -> Option<String> {
        self.broken
    }
}

/// A second of a test, with the figures that are known during a test.
#[derive(Debug, Clone, Copy)]
struct Second {
    seconds: f64,
    confirmed: u64,
    has_rate: bool,
    is_paced: bool,
    latency: SoFar,
}

impl Piece for Second {
    fn extend(&mut self, later: &Self) {
        self.seconds += later.seconds;
        self.confirmed += later.confirmed;
        self.latency = later.latency;
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }

    fn figures(&self) -> Figures<'_> {
        Figures {
            latency: Some(&self.latency),
            // At a given rate the latency counts from the planned time; that from the actual send is known
            // at the end.
            service: self.is_paced.then_some(&SoFar::UNKNOWN),
            rate_per_s: self
                .has_rate
                .then_some(self.confirmed as f64 / self.seconds),
            ..Figures::default()
        }
    }

    fn of_name(&self, _: &str) -> Option<Self> {
        None
    }
}

/// The latency from the start of the test until now, of which only the 99th percentile is known.
#[derive(Debug, Clone, Copy)]
struct SoFar {
    count: u64,
    p99_us: Option<f64>,
}

impl SoFar {
    const UNKNOWN: Self = Self {
        count: 0,
        p99_us: None,
    };
}

impl Distribution for SoFar {
    fn count(&self) -> u64 {
        self.p99_us.map_or(0, |_| self.count)
    }

    fn percentile_us(&self, percentile: f64) -> Option<f64> {
        self.p99_us.filter(|_| percentile == 99.0)
    }

    fn min_us(&self) -> Option<f64> {
        None
    }

    fn mean_us(&self) -> Option<f64> {
        None
    }

    fn max_us(&self) -> Option<f64> {
        None
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::target::Target;

    fn ending(expectations: &[&str]) -> Ending {
        let target = Target::parse("ws://127.0.0.1:1/").unwrap();
        let options = BenchOptions {
            expectations: expectations
                .iter()
                .map(|one| one.parse().unwrap())
                .collect(),
            abort_after: Some(Duration::from_secs(3)),
            ..BenchOptions::new(target)
        };
        let stop = StopRule::Duration(Duration::from_secs(20));
        Ending::of(&options, Some(TestKind::Echo), &stop).unwrap()
    }

    /// The moment after this many seconds at 1,000 confirmations per second.
    fn live(seconds: u64, p99_us: f64) -> Live {
        Live {
            elapsed: Duration::from_secs(seconds),
            confirmed: seconds * 1_000,
            latency_p99_us: Some(p99_us),
            ..Live::default()
        }
    }

    #[test]
    fn a_rate_that_is_too_low_for_three_seconds_ends_the_test() {
        let mut ending = ending(&["rate>2k"]);
        assert_eq!(ending.look(&live(1, 10.0)), Wish::GoOn);
        assert_eq!(ending.look(&live(2, 10.0)), Wish::GoOn);
        assert_eq!(ending.look(&live(3, 10.0)), Wish::Stop);
        assert_eq!(ending.into_broken().as_deref(), Some("rate>2k"));
    }

    #[test]
    fn a_second_that_keeps_the_expectation_begins_the_count_anew() {
        let mut ending = ending(&["p99<1ms", "throughput: rate>1M", "max<1us"]);
        for (seconds, p99_us) in [(1, 2e3), (2, 2e3), (3, 10.0), (4, 2e3), (5, 2e3)] {
            assert_eq!(ending.look(&live(seconds, p99_us)), Wish::GoOn);
        }
        assert_eq!(ending.look(&live(6, 2e3)), Wish::Stop);
        assert_eq!(ending.into_broken().as_deref(), Some("p99<1ms"));
    }

    #[test]
    fn without_a_time_no_test_ends_early() {
        let target = Target::parse("ws://127.0.0.1:1/").unwrap();
        let options = BenchOptions::new(target);
        let stop = StopRule::Duration(Duration::from_secs(20));
        assert!(Ending::of(&options, Some(TestKind::Echo), &stop).is_none());
    }

    #[test]
    fn the_wait_for_late_confirmations_breaks_nothing() {
        let mut ending = ending(&["rate>500"]);
        for seconds in 1..20 {
            assert_eq!(ending.look(&live(seconds, 10.0)), Wish::GoOn);
        }
        for elapsed in 20..40 {
            let late = Live {
                elapsed: Duration::from_secs(elapsed),
                ..live(19, 10.0)
            };
            assert_eq!(ending.look(&late), Wish::GoOn);
        }
        assert_eq!(ending.into_broken(), None);
    }

    #[test]
    fn at_a_given_rate_the_latency_from_the_actual_send_ends_nothing() {
        let mut ending = ending(&["service.p99<1ms"]);
        ending.is_paced = true;
        for seconds in 1..10 {
            assert_eq!(ending.look(&live(seconds, 5e3)), Wish::GoOn);
        }
    }
}
