//! Repeats: what several runs of one test differ by.

use serde::{Deserialize, Serialize};

/// The spread of a result over the repeats of its test. The result's own figures are those of the median run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    /// The runs that have this result.
    pub count: u64,
    /// `rate_per_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<Range>,
    /// `p50` of `latency_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<Range>,
    /// `p99` of `latency_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<Range>,
    /// `largest_stable` of `limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_stable: Option<Range>,
}

/// The smallest and the largest value of a figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Range {
    /// The range of finite values; `None` without any.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        values
            .filter(|value| value.is_finite())
            .fold(None, |range, value| {
                let Self { min, max } = range.unwrap_or(Self {
                    min: value,
                    max: value,
                });
                Some(Self {
                    min: min.min(value),
                    max: max.max(value),
                })
            })
    }
}
