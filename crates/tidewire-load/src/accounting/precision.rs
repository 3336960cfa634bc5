//! Precision of a figure: the half-width of its 95 % confidence interval, relative to the figure.
//!
//! Neighbouring windows are combined into batches, and the figure of each batch is one value:
//! batches differ independently of each other where windows do not (the method of batch means; of
//! quantiles for percentiles). Half the width of the interval is Student's t times the standard
//! error of these values.

use std::fmt;
use std::str::FromStr;

use super::windows::Window;
use crate::report::buckets::RESOLUTION;
use crate::report::statistics::student_97_5;
use crate::verdict::expectation::values_needed;

/// A figure and its required precision, such as `p99:5%`; parsed from text by [`str::parse`].
#[derive(Debug, Clone, PartialEq)]
pub struct Precision {
    text: String,
    figure: Figure,
    /// Half the width of the interval divided by the figure.
    half_width_max: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    Rate,
    Mean,
    Percentile(f64),
}

/// The reason for which a text is not a precision, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: {advice}")]
pub struct PrecisionError {
    text: String,
    advice: &'static str,
}

impl Precision {
    /// Whether these windows of equal length give the figure the required precision.
    #[must_use]
    pub fn is_met(&self, windows: &[Window]) -> bool {
        self.half_width(windows)
            .is_some_and(|width| width <= self.half_width_max)
    }

    /// Half the width of the 95 % interval divided by the figure; `None` with fewer than ten windows, or with too few
    /// values in one of the batches.
    #[must_use]
    pub fn half_width(&self, windows: &[Window]) -> Option<f64> {
        if windows.len() < WINDOWS_MIN {
            return None;
        }
        let size = windows.len().div_ceil(BATCHES_MAX);
        // The first windows are left out, so that all batches have one length.
        let batches = windows[windows.len() % size..].chunks_exact(size);
        let values: Option<Vec<f64>> = batches.map(|batch| self.figure.of(batch)).collect();
        let values = values?;
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / (n - 1.0);
        let half_width = student_97_5(n - 1.0) * (variance / n).sqrt() / mean;
        // A bucket distinguishes its times only up to its width.
        let blur = match self.figure {
            Figure::Percentile(_) => RESOLUTION / 2.0,
            _ => 0.0,
        };
        (mean > 0.0).then_some(half_width + blur)
    }
}

impl Figure {
    fn of(self, batch: &[Window]) -> Option<f64> {
        match self {
            Self::Rate => Some(batch.iter().map(|window| window.succeeded).sum::<u64>() as f64),
            Self::Mean => Window::mean_us_of(batch),
            Self::Percentile(percentile) => {
                let mut whole = Window::default();
                batch.iter().for_each(|window| whole.add(window));
                let is_known = whole.latencies() >= values_needed(percentile);
                whole.percentile_us(percentile).filter(|_| is_known)
            }
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Precision {
    type Err = PrecisionError;

    fn from_str(text: &str) -> Result<Self, PrecisionError> {
        let text = text.trim();
        let error = |advice| PrecisionError {
            text: text.to_owned(),
            advice,
        };
        let (name, share) = text
            .split_once(':')
            .ok_or_else(|| error("write a figure and its precision, as in p99:5% or rate:1%"))?;
        let name = name.trim();
        let figure = match (
            name,
            name.strip_prefix('p')
                .and_then(|digits| digits.parse().ok()),
        ) {
            ("rate", _) => Figure::Rate,
            ("mean", _) => Figure::Mean,
            (_, Some(percentile)) if percentile > 0.0 && percentile < 100.0 => {
                Figure::Percentile(percentile)
            }
            _ => {
                return Err(error(
                    "the figure is rate, mean or a percentile, as in p99:5%",
                ));
            }
        };
        let percent: Option<f64> = share
            .trim()
            .strip_suffix('%')
            .and_then(|number| number.trim().parse().ok());
        let percent = percent
            .filter(|percent| *percent > 0.0 && *percent < 100.0)
            .ok_or_else(|| error("write a share above 0 after the colon, as in p99:5%"))?;
        if matches!(figure, Figure::Percentile(_)) && percent < PERCENT_MIN {
            return Err(error(
                "a percentile is known to 2 % at best: write p99:2% or more",
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            figure,
            half_width_max: percent / 100.0,
        })
    }
}

/// With fewer windows even Student's t is too optimistic.
pub const WINDOWS_MIN: usize = 10;
/// More batches hardly improve the estimate of their variance, and reduce their independence.
const BATCHES_MAX: usize = 30;
const PERCENT_MIN: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::windows::WindowSeries;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::time::Duration;

    fn precision(text: &str) -> Precision {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Windows with exponential latencies of mean 1 ms, `per_window` each.
    fn windows(seed: u64, count: u64, per_window: u64) -> Vec<Window> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut series = WindowSeries::new();
        for second in 0..count {
            for request in 0..per_window {
                let ns = -(1.0 - random.random::<f64>()).ln() * 1e6;
                series.succeed(second * 1_000_000_000 + request, ns as u64, 1);
            }
        }
        series.whole(Duration::from_secs(count))
    }

    #[test]
    fn the_interval_of_a_known_distribution_holds_the_truth() {
        // The mean is 1,000 µs, the 90th percentile 1,000 ln 10 µs.
        let (mean, p90) = (precision("mean:5%"), precision("p90:5%"));
        let held = (0..100).filter(|seed| {
            let windows = windows(*seed, 20, 200);
            let mut whole = Window::default();
            windows.iter().for_each(|window| whole.add(window));
            let near = |precision: &Precision, found: Option<f64>, truth: f64| {
                let width = precision.half_width(&windows).unwrap_or(0.0);
                found.is_some_and(|found| (found / truth - 1.0).abs() <= width)
            };
            near(&mean, whole.mean_us(), 1_000.0)
                && near(
                    &p90,
                    whole.percentile_us(90.0),
                    1_000.0 * std::f64::consts::LN_10,
                )
        });
        assert!(held.count() >= 90, "of 100 seeds, at 95 % each");
    }

    #[test]
    fn more_windows_make_it_narrower_until_it_is_met() {
        let wanted = precision("mean:3%");
        let width = |count| wanted.half_width(&windows(1, count, 100));
        assert_eq!(width(9), None, "too few windows");
        let (ten, hundred) = (width(10).unwrap(), width(100).unwrap());
        assert!(hundred < ten / 2.0, "{ten} {hundred}");
        assert!(!wanted.is_met(&windows(1, 10, 100)) && wanted.is_met(&windows(1, 100, 100)));
    }

    #[test]
    fn steady_and_varied_rates() {
        let steady: Vec<Window> = (0..20).map(|n| with_rate(1_000 + n % 3)).collect();
        let varied: Vec<Window> = (0..20)
            .map(|n| with_rate(if n % 2 == 0 { 100 } else { 2_000 }))
            .collect();
        let wanted = precision("rate: 1 %");
        assert!(wanted.is_met(&steady) && !wanted.is_met(&varied));
        assert!(
            !wanted.is_met(&vec![Window::default(); 20]),
            "nothing is known of nothing"
        );
    }

    fn with_rate(succeeded: u64) -> Window {
        let mut series = WindowSeries::new();
        (0..succeeded).for_each(|_| series.count(0, 0));
        series.whole(Duration::from_secs(1)).remove(0)
    }

    #[test]
    fn a_percentile_needs_enough_values_in_each_batch() {
        let wanted = precision("p99:50%");
        assert_eq!(wanted.half_width(&windows(1, 20, 99)), None);
        assert!(wanted.half_width(&windows(1, 20, 100)).is_some());
        // With more windows several form one batch.
        assert!(wanted.half_width(&windows(1, 120, 30)).is_some());
        let equal = vec![windows(1, 1, 1_000).remove(0); 20];
        assert_eq!(wanted.half_width(&equal), Some(RESOLUTION / 2.0));
    }

    #[test]
    fn what_is_wrong_says_what_to_write() {
        for (text, advice) in [
            ("p99", "as in p99:5%"),
            ("p99:5", "a share above 0"),
            ("p99:0%", "a share above 0"),
            ("latency:5%", "rate, mean or a percentile"),
            ("p100:5%", "rate, mean or a percentile"),
            ("p99:1%", "2 % at best"),
        ] {
            let error = text.parse::<Precision>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{text}`: ")) && error.contains(advice),
                "{error}"
            );
        }
        assert_eq!(precision(" p99.9 : 5% ").to_string(), "p99.9 : 5%");
    }
}
