//! Delay of responses: fixed, or drawn from a distribution.

use rand::Rng;
use std::fmt;
use std::str::FromStr;

/// The delay of a response, in milliseconds. Written as `20`, `5..20`, `exp:10` or `normal:20,5`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Delay {
    /// None.
    #[default]
    None,
    /// Always the same.
    Fixed(f64),
    /// From the first to the second, each equally likely.
    Uniform(f64, f64),
    /// Exponentially distributed, with this mean.
    Exponential(f64),
    /// Normally distributed, with this mean and standard deviation; never less than 0.
    Normal(f64, f64),
}

/// A text that is not a delay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a delay: write milliseconds (20), a range (5..20), exp:MEAN or normal:MEAN,DEVIATION, at most one hour"
)]
pub struct DelayError(String);

impl Delay {
    /// The next delay, in whole milliseconds.
    pub(super) fn draw_ms(&self, random: &mut impl Rng) -> u64 {
        // In [0, 1), so that the logarithms are finite.
        let mut unit = || random.random::<f64>();
        let ms = match *self {
            Self::None => 0.0,
            Self::Fixed(ms) => ms,
            Self::Uniform(least, most) => least + (most - least) * unit(),
            Self::Exponential(mean) => -mean * (1.0 - unit()).ln(),
            // Box and Muller, 1958.
            Self::Normal(mean, deviation) => {
                let radius = (-2.0 * (1.0 - unit()).ln()).sqrt();
                mean + deviation * radius * (std::f64::consts::TAU * unit()).cos()
            }
        };
        ms.round().clamp(0.0, DELAY_MS_MAX) as u64
    }
}

impl FromStr for Delay {
    type Err = DelayError;

    fn from_str(text: &str) -> Result<Self, DelayError> {
        let ms = |text: &str| {
            let ms: Option<f64> = text.trim().parse().ok();
            ms.filter(|ms| (0.0..=DELAY_MS_MAX).contains(ms))
        };
        let delay = if let Some(mean) = text.strip_prefix("exp:") {
            ms(mean).map(Self::Exponential)
        } else if let Some(both) = text.strip_prefix("normal:") {
            both.split_once(',')
                .and_then(|(mean, deviation)| Some(Self::Normal(ms(mean)?, ms(deviation)?)))
        } else if let Some((least, most)) = text.split_once("..") {
            ms(least)
                .zip(ms(most))
                .filter(|(least, most)| least <= most)
                .map(|(least, most)| Self::Uniform(least, most))
        } else {
            ms(text).map(|ms| {
                if ms == 0.0 {
                    Self::None
                } else {
                    Self::Fixed(ms)
                }
            })
        };
        delay.ok_or_else(|| DelayError(text.to_owned()))
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("0"),
            Self::Fixed(ms) => write!(f, "{ms}"),
            Self::Uniform(least, most) => write!(f, "{least}..{most}"),
            Self::Exponential(mean) => write!(f, "exp:{mean}"),
            Self::Normal(mean, deviation) => write!(f, "normal:{mean},{deviation}"),
        }
    }
}

const DELAY_MS_MAX: f64 = 3_600_000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    #[test]
    fn what_is_written_is_read() {
        for (text, delay) in [
            ("0", Delay::None),
            ("20", Delay::Fixed(20.0)),
            ("2.5", Delay::Fixed(2.5)),
            ("5..20", Delay::Uniform(5.0, 20.0)),
            ("exp:10", Delay::Exponential(10.0)),
            ("normal:20,5", Delay::Normal(20.0, 5.0)),
        ] {
            assert_eq!(text.parse(), Ok(delay), "{text}");
            assert_eq!(delay.to_string(), text);
        }
        for wrong in [
            "",
            "x",
            "-1",
            "20..5",
            "..",
            "exp:",
            "normal:5",
            "normal:5,-1",
            "inf",
            "NaN",
            "1e12",
        ] {
            let error = wrong.parse::<Delay>().unwrap_err().to_string();
            assert!(error.contains("5..20"), "{wrong}: {error}");
        }
    }

    #[test]
    fn draws_follow_their_distribution() {
        let mut random = SmallRng::seed_from_u64(7);
        let mut mean = |delay: Delay| {
            let draws: Vec<u64> = (0..20_000).map(|_| delay.draw_ms(&mut random)).collect();
            let most = draws.iter().max().copied().unwrap_or_default();
            (draws.iter().sum::<u64>() as f64 / 20_000.0, most)
        };
        assert_eq!(mean(Delay::Fixed(20.0)), (20.0, 20));
        assert_eq!(mean(Delay::None), (0.0, 0));
        let (uniform, most) = mean(Delay::Uniform(100.0, 200.0));
        assert!((149.0..151.0).contains(&uniform), "{uniform}");
        assert_eq!(most, 200);
        let (exponential, most) = mean(Delay::Exponential(100.0));
        assert!((97.0..103.0).contains(&exponential), "{exponential}");
        assert!(most > 500);
        let (normal, most) = mean(Delay::Normal(100.0, 20.0));
        assert!((99.0..101.0).contains(&normal), "{normal}");
        assert!((160..240).contains(&most), "{most}");
    }
}
