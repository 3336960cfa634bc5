//! Observation of a part of a load, for expectations during the load.

use std::collections::BTreeMap;

use super::recorder::Recorder;
use super::windows::Window;
use crate::verdict::expectation::{Distribution, Figures, Part, Piece};

/// The figures of some seconds of a load.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// Length in seconds.
    pub seconds: f64,
    /// Counts and latencies.
    pub window: Window,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// The counts and latencies of single requests, by their names.
    pub named: BTreeMap<String, Window>,
}

impl Piece for Observation {
    fn extend(&mut self, later: &Self) {
        self.seconds += later.seconds;
        self.window.add(&later.window);
        for (status, count) in &later.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (name, window) in &later.named {
            self.named.entry(name.clone()).or_default().add(window);
        }
    }

    fn of_name(&self, name: &str) -> Option<Self> {
        Some(Self {
            seconds: self.seconds,
            window: self.named.get(name)?.clone(),
            ..Self::default()
        })
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }

    fn figures(&self) -> Figures<'_> {
        let window = &self.window;
        let per_s = |count: u64| (self.seconds > 0.0).then(|| count as f64 / self.seconds);
        Figures {
            latency: Some(window),
            rate_per_s: per_s(window.succeeded),
            bytes_per_s: per_s(window.bytes),
            errors: Some(Part {
                count: window.failed,
                of: window.succeeded + window.failed,
            }),
            statuses: Some(&self.statuses),
            ..Figures::default()
        }
    }
}

impl Distribution for Window {
    fn count(&self) -> u64 {
        self.latencies()
    }

    fn percentile_us(&self, percentile: f64) -> Option<f64> {
        Self::percentile_us(self, percentile)
    }

    fn min_us(&self) -> Option<f64> {
        Self::percentile_us(self, 0.0)
    }

    fn mean_us(&self) -> Option<f64> {
        Self::mean_us(self)
    }

    fn max_us(&self) -> Option<f64> {
        Self::max_us(self)
    }
}

impl Distribution for Recorder {
    fn count(&self) -> u64 {
        Self::count(self)
    }

    fn percentile_us(&self, percentile: f64) -> Option<f64> {
        (Self::count(self) > 0).then(|| self.percentile_ns(percentile) as f64 / 1000.0)
    }

    fn min_us(&self) -> Option<f64> {
        (Self::count(self) > 0).then(|| self.min_ns() as f64 / 1000.0)
    }

    fn mean_us(&self) -> Option<f64> {
        (Self::count(self) > 0).then(|| self.mean_ns() / 1000.0)
    }

    fn max_us(&self) -> Option<f64> {
        (Self::count(self) > 0).then(|| self.max_ns() as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::windows::WindowSeries;
    use crate::verdict::expectation::{Expectation, Patience};
    use std::time::Duration;

    /// Second `at` of a load with this number of requests of this latency, of which each tenth
    /// failed.
    fn second(at: u64, count: u64, latency_us: u64) -> Observation {
        let mut series = WindowSeries::new();
        for request in 0..count {
            let at_ns = at * 1_000_000_000 + request;
            if request % 10 == 9 {
                series.fail(at_ns);
            } else {
                series.succeed(at_ns, latency_us * 1_000, 100);
            }
        }
        let windows = series.whole(Duration::from_secs(at + 1));
        Observation {
            seconds: 1.0,
            window: windows[at as usize].clone(),
            statuses: [(200, count * 9 / 10), (500, count / 10)].into(),
            ..Observation::default()
        }
    }

    fn is_kept(text: &str, observation: &Observation) -> bool {
        let expectation: Expectation = text.parse().expect("it is right");
        expectation.result(&observation.figures()).kept
    }

    #[test]
    fn the_figures_of_two_seconds_are_those_of_both() {
        let mut both = second(0, 1_000, 500);
        both.extend(&second(1, 3_000, 2_000));
        for (text, kept) in [
            ("rate==1800", true),
            ("bytes==180KB/s", true),
            ("errors==10%", true),
            ("status:500<=10%", true),
            ("p25<520us", true),
            ("p50>1.9ms", true),
            ("max==2ms", true),
            ("mean<1.7ms", true),
            ("late<1s", false),
        ] {
            assert_eq!(is_kept(text, &both), kept, "{text}");
        }
    }

    #[test]
    fn a_load_that_gets_slow_is_given_up() {
        let expectation: Expectation = "p99<1ms".parse().expect("it is right");
        let mut patience = Patience::new(std::slice::from_ref(&expectation), 2.0);
        assert_eq!(patience.observe(&second(0, 1_000, 500)), None);
        assert_eq!(patience.observe(&second(1, 1_000, 3_000)), None);
        assert_eq!(
            patience.observe(&second(2, 1_000, 3_000)),
            Some(&expectation)
        );
    }

    #[test]
    fn a_recorder_has_the_figures_of_its_summary() {
        let mut recorder = Recorder::new();
        assert_eq!(Distribution::percentile_us(&recorder, 50.0), None);
        assert_eq!(Distribution::max_us(&recorder), None);
        (1..=1_000u64).for_each(|us| recorder.record_ns(us * 1_000));
        let of: &dyn Distribution = &recorder;
        let near = |found: Option<f64>, expected: f64| {
            found.is_some_and(|us| (us / expected - 1.0).abs() < 0.001)
        };
        assert_eq!(of.count(), 1_000);
        assert!(near(of.percentile_us(99.0), 990.0) && near(of.mean_us(), 500.5));
        assert!(near(of.min_us(), 1.0) && near(of.max_us(), 1_000.0));
    }
}
