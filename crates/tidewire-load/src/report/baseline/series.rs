//! The windows of a result, in the form that the comparison of two runs needs.

use super::super::model::{LatencyWindow, TestResult};

/// A compared figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Figure {
    Rate,
    Mean,
    Percentile(&'static str, f64),
}

impl Figure {
    pub(super) const ALL: [Self; 6] = [
        Self::Rate,
        Self::Mean,
        Self::Percentile("p50", 50.0),
        Self::Percentile("p90", 90.0),
        Self::Percentile("p99", 99.0),
        Self::Percentile("p99.9", 99.9),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Mean => "mean",
            Self::Percentile(name, _) => name,
        }
    }

    pub(super) fn is_percentile(self) -> bool {
        matches!(self, Self::Percentile(..))
    }

    pub(super) fn is_better_higher(self) -> bool {
        self == Self::Rate
    }

    /// The figure of one result.
    pub(super) fn of(self, result: &TestResult) -> Option<f64> {
        let latency = result
            .latency_us
            .as_ref()
            .filter(|latency| latency.count > 0);
        match self {
            Self::Rate => result.rate_per_s,
            Self::Mean => Some(latency?.mean),
            Self::Percentile(_, percentile) => {
                let latency = latency?;
                let is_known = latency.count as f64 * (100.0 - percentile) >= 100.0 - 1e-6;
                let value = match self.name() {
                    "p50" => latency.p50,
                    "p90" => latency.p90,
                    "p99" => latency.p99,
                    _ => latency.p99_9,
                };
                is_known.then_some(value)
            }
        }
    }

    /// The median of several results of one set-up.
    pub(super) fn median(self, results: &[&TestResult]) -> Option<f64> {
        let mut values: Vec<f64> = results
            .iter()
            .filter_map(|result| self.of(result))
            .collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        match values.len() {
            0 => None,
            n if n % 2 == 1 => Some(values[middle]),
            _ => Some(f64::midpoint(values[middle - 1], values[middle])),
        }
    }

    /// The number of latencies of a result above the percentile.
    fn values_above(self, result: &TestResult) -> u64 {
        match (self, &result.latency_us) {
            (Self::Percentile(_, percentile), Some(latency)) => {
                (latency.count as f64 * (100.0 - percentile) / 100.0 + 1e-6) as u64
            }
            _ => u64::MAX,
        }
    }

    /// The reason why this figure of the two sides is not comparable.
    pub(super) fn doubt(self, before: &[&TestResult], after: &TestResult) -> Option<String> {
        let origin = |result: &TestResult| result.latency_us.as_ref().map(|latency| latency.origin);
        if self != Self::Rate {
            let differs = before.iter().any(|result| origin(result) != origin(after));
            if differs {
                return Some("the clocks of the latencies start at different moments".to_owned());
            }
            let all = before.iter().copied().chain([after]);
            let above = all.map(|result| self.values_above(result)).min()?;
            return (above < ABOVE_MIN).then(|| {
                format!("only {above} latencies are above it, and {ABOVE_MIN} are needed: measure for longer")
            });
        }
        None
    }
}

/// With fewer values above it, a percentile varies more by chance than the interval from windows
/// shows.
const ABOVE_MIN: u64 = 30;

/// The windows of a result, or of several results that count as one.
#[derive(Debug, Default)]
pub(super) struct Series {
    /// Successful requests per second, for each window.
    pub(super) rates: Vec<f64>,
    /// The windows that have a histogram.
    pub(super) latencies: Vec<LatencyWindow>,
}

impl Series {
    pub(super) fn of(results: &[&TestResult]) -> Self {
        let mut series = Self::default();
        for result in results {
            let over_time = result.load.latency_over_time.as_ref();
            match over_time {
                Some(over_time) if over_time.window_s > 0.0 && result.rate_series.is_empty() => {
                    let counts = over_time.windows.iter().map(|window| window.count as f64);
                    series
                        .rates
                        .extend(counts.map(|count| count / over_time.window_s));
                }
                _ => series.rates.extend(&result.rate_series),
            }
            let windows = over_time.iter().flat_map(|over_time| &over_time.windows);
            let with_times = windows.filter(|window| !window.histogram.is_empty());
            series.latencies.extend(with_times.cloned());
        }
        // A report is an untrusted file.
        series.rates.retain(|rate| rate.is_finite() && *rate >= 0.0);
        series
    }
}
