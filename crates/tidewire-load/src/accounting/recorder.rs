//! Recorder of latencies: a histogram per worker, merged at the end.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::report::model::{Latency, LatencyOrigin};

/// Records latencies with three significant digits, up to [`LATENCY_NS_MAX`].
///
/// About 220 KiB each, and recording never allocates. Longer latencies are recorded as the maximum.
/// In another process's words it is its [`Recorder::buckets`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Buckets", into = "Buckets")]
pub struct Recorder {
    histogram: Histogram<u64>,
}

/// A value in nanoseconds and how often it was recorded, for each bucket that has any.
type Buckets = Vec<(u64, u64)>;

impl From<Buckets> for Recorder {
    fn from(buckets: Buckets) -> Self {
        Self::of_buckets(&buckets)
    }
}

impl From<Recorder> for Buckets {
    fn from(recorder: Recorder) -> Self {
        recorder.buckets()
    }
}

impl Recorder {
    /// An empty recorder.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
            .expect("the bounds are constants the library accepts");
        Self { histogram }
    }

    /// Records one latency in nanoseconds.
    pub fn record_ns(&mut self, latency_ns: u64) {
        self.record_many_ns(latency_ns, 1);
    }

    /// Records the same latency `count` times, at the cost of one.
    pub fn record_many_ns(&mut self, latency_ns: u64, count: u64) {
        self.histogram
            .saturating_record_n(latency_ns.min(LATENCY_NS_MAX), count);
    }

    /// A value of each bucket that has any, and their number.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let recorded = self.histogram.iter_recorded();
        recorded
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
            .collect()
    }

    /// A recorder with these values, each with its number.
    pub fn of_buckets(buckets: &[(u64, u64)]) -> Self {
        let mut recorder = Self::new();
        for (value_ns, count) in buckets {
            recorder.record_many_ns(*value_ns, *count);
        }
        recorder
    }

    /// Adds the latencies of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all recorders have the same bounds");
    }

    /// Number of latencies recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency in nanoseconds that `percentile` (0 to 100) of the recorded ones do not exceed.
    pub fn percentile_ns(&self, percentile: f64) -> u64 {
        self.histogram.value_at_percentile(percentile)
    }

    /// The smallest latency in nanoseconds; 0 when nothing was recorded.
    pub fn min_ns(&self) -> u64 {
        self.histogram.min()
    }

    /// The mean latency in nanoseconds; 0 when nothing was recorded.
    pub fn mean_ns(&self) -> f64 {
        self.histogram.mean()
    }

    /// The largest latency in nanoseconds; 0 when nothing was recorded.
    pub fn max_ns(&self) -> u64 {
        self.histogram.max()
    }

    /// The distribution in the form of a report, in microseconds; `None` when nothing was recorded.
    pub fn summary(&self, origin: LatencyOrigin) -> Option<Latency> {
        let at = |percentile| us(self.percentile_ns(percentile) as f64);
        (self.count() > 0).then(|| Latency {
            origin,
            p50: at(50.0),
            p90: at(90.0),
            p95: at(95.0),
            p99: at(99.0),
            p99_9: at(99.9),
            p99_99: at(99.99),
            min: us(self.histogram.min() as f64),
            max: us(self.histogram.max() as f64),
            mean: us(self.histogram.mean()),
            stdev: us(self.histogram.stdev()),
            count: self.count(),
            points: self.percentile_points(),
        })
    }

    /// `(percentile, microseconds)` for a plot, evenly spaced on an axis of log 1/(1-p), from 0 to
    /// the last percentile that the number of recorded latencies can distinguish, then the maximum
    /// at 100.
    pub fn percentile_points(&self) -> Vec<(f64, f64)> {
        if self.count() == 0 {
            return Vec::new();
        }
        let count = self.count() as f64;
        let mut points: Vec<(f64, f64)> = (0..)
            .map(|step| 10f64.powf(f64::from(step) / POINTS_PER_DECADE))
            .take_while(|&inverse| inverse <= count)
            .map(|inverse| {
                let percentile = 100.0 * (1.0 - 1.0 / inverse);
                (
                    rounded(percentile, 1e6),
                    us(self.percentile_ns(percentile) as f64),
                )
            })
            .collect();
        points.push((100.0, us(self.histogram.max() as f64)));
        points
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// Nanoseconds to microseconds, with three decimals: a nanosecond is the clock's own resolution.
fn us(ns: f64) -> f64 {
    rounded(ns / 1000.0, 1e3)
}

fn rounded(value: f64, scale: f64) -> f64 {
    (value * scale).round() / scale
}

/// The longest distinguished latency: 60 seconds.
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;
const POINTS_PER_DECADE: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn close(actual: f64, expected: f64) -> bool {
        (actual - expected).abs() <= expected * 0.001
    }

    #[test]
    fn a_uniform_distribution_is_summarised_within_three_digits() {
        let mut recorder = Recorder::new();
        (1..=100_000u64).for_each(|us| recorder.record_ns(us * 1000));
        let latency = recorder.summary(LatencyOrigin::Intended).unwrap();
        assert_eq!(
            (latency.count, latency.origin),
            (100_000, LatencyOrigin::Intended)
        );
        for (actual, expected) in [
            (latency.p50, 50_000.0),
            (latency.p90, 90_000.0),
            (latency.p95, 95_000.0),
            (latency.p99, 99_000.0),
            (latency.p99_9, 99_900.0),
            (latency.p99_99, 99_990.0),
            (latency.max, 100_000.0),
            (latency.min, 1.0),
            (latency.mean, 50_000.5),
        ] {
            assert!(close(actual, expected), "{actual} is not {expected}");
        }
    }

    #[test]
    fn an_empty_recorder_has_no_summary() {
        assert_eq!(Recorder::new().summary(LatencyOrigin::Sent), None);
        assert_eq!(Recorder::new().percentile_points(), []);
    }

    #[test]
    fn merged_recorders_equal_one_that_saw_everything() {
        let (mut a, mut b, mut all) = (Recorder::new(), Recorder::new(), Recorder::new());
        for value in 1..5000u64 {
            if value % 3 == 0 { &mut a } else { &mut b }.record_ns(value * value);
            all.record_ns(value * value);
        }
        a.merge(&b);
        assert_eq!(
            a.summary(LatencyOrigin::Sent),
            all.summary(LatencyOrigin::Sent)
        );
    }

    #[test]
    fn what_is_too_long_is_recorded_as_the_maximum() {
        let mut recorder = Recorder::new();
        recorder.record_ns(u64::MAX);
        recorder.record_ns(0);
        assert_eq!(recorder.count(), 2);
        assert!(close(
            recorder.percentile_ns(100.0) as f64,
            LATENCY_NS_MAX as f64
        ));
    }

    #[test]
    fn points_ascend_from_the_smallest_to_the_largest() {
        let mut recorder = Recorder::new();
        (1..=10_000u64).for_each(|us| recorder.record_ns(us * 1000));
        let points = recorder.percentile_points();
        assert_eq!(points[0].0, 0.0);
        assert_eq!(points.last().map(|point| point.0), Some(100.0));
        assert!(
            points
                .windows(2)
                .all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1),
            "{points:?}"
        );
        assert!(points[points.len() - 2].0 <= 99.99 + 1e-9);
    }
}
