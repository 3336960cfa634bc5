//! Stop rules: the end of a measurement.

use std::time::Duration;

/// The rule that ends a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StopRule {
    /// After this number of operations on each connection.
    Count(u64),
    /// After this time.
    Duration(Duration),
    /// When the mean rate is known precisely enough.
    Confidence(Confidence),
}

/// Ends a measurement when the 95 % confidence interval of the mean rate is narrow enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    /// Half the width of the interval divided by the mean, such as 0.02.
    pub half_width_max: f64,
    /// The shortest duration.
    pub at_least: Duration,
    /// The longest duration.
    pub at_most: Duration,
}

impl StopRule {
    /// The longest duration of the measurement; `None` when only the count ends it.
    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        match *self {
            Self::Count(_) => None,
            Self::Duration(duration) => Some(duration),
            Self::Confidence(confidence) => Some(confidence.at_most),
        }
    }

    /// Whether the rates of the intervals so far end the measurement before its longest time.
    #[must_use]
    pub fn is_met(&self, elapsed: Duration, rates: &[f64]) -> bool {
        match *self {
            Self::Count(_) | Self::Duration(_) => false,
            Self::Confidence(Confidence {
                half_width_max,
                at_least,
                ..
            }) => {
                elapsed >= at_least
                    && relative_half_width(rates).is_some_and(|width| width <= half_width_max)
            }
        }
    }
}

/// Half the width of the 95 % confidence interval of the mean, divided by the mean; `None` for fewer
/// than ten values, below which the normal approximation is too narrow.
#[must_use]
pub fn relative_half_width(rates: &[f64]) -> Option<f64> {
    if rates.len() < 10 {
        return None;
    }
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean > 0.0).then(|| NORMAL_95 * (variance / n).sqrt() / mean)
}

/// The two-sided 95 % quantile of the normal distribution.
const NORMAL_95: f64 = 1.96;

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> StopRule {
        StopRule::Confidence(Confidence {
            half_width_max: 0.05,
            at_least: Duration::from_secs(1),
            at_most: Duration::from_secs(60),
        })
    }

    #[test]
    fn steady_rates_end_it_early_and_varied_ones_do_not() {
        let steady = [100.0, 101.0, 99.0].repeat(5);
        let varied = [10.0, 200.0].repeat(5);
        assert!(rule().is_met(Duration::from_secs(2), &steady));
        assert!(!rule().is_met(Duration::from_millis(500), &steady));
        assert!(!rule().is_met(Duration::from_secs(2), &varied));
        assert!(!rule().is_met(Duration::from_secs(2), &steady[..9]));
        assert!(!rule().is_met(Duration::from_secs(2), &[0.0; 20]));
    }

    #[test]
    fn a_duration_is_left_to_the_clock() {
        let rule = StopRule::Duration(Duration::from_secs(5));
        assert!(!rule.is_met(Duration::from_secs(9), &[1.0; 20]));
        assert_eq!(rule.longest(), Some(Duration::from_secs(5)));
        assert_eq!(StopRule::Count(3).longest(), None);
    }
}
