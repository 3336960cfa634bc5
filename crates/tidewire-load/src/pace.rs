//! When each message is meant to be sent: a pure function of how many were sent before it.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// How messages are spread over time.
#[derive(Debug, Clone, PartialEq)]
pub enum Pace {
    /// So many a second, evenly.
    Constant {
        /// Messages in a second; positive.
        per_s: f64,
    },
    /// So many a second on average, at random times as independent users would send them.
    Poisson(Arrivals),
}

/// Arrival times drawn beforehand, so that a pace stays a pure function.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    /// Nanoseconds from the start, ascending; after the last the pattern repeats.
    times_ns: Arc<[u64]>,
}

impl Pace {
    /// A Poisson process of `per_s` messages a second, drawn from `seed`.
    #[must_use]
    pub fn poisson(per_s: f64, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut at_ns = 0.0;
        let times_ns = (0..ARRIVALS_DRAWN)
            .map(|_| {
                // The inverse of the exponential distribution; 1 - u is never zero.
                let uniform: f64 = random.random();
                at_ns -= (1.0 - uniform).ln() * 1e9 / per_s;
                at_ns as u64
            })
            .collect();
        Self::Poisson(Arrivals { times_ns })
    }

    /// When the message number `index`, counted from 0, is meant to leave, in nanoseconds from the
    /// start.
    #[must_use]
    pub fn intended_ns(&self, index: u64) -> u64 {
        match self {
            Self::Constant { per_s } => (index as f64 * 1e9 / per_s) as u64,
            Self::Poisson(Arrivals { times_ns }) => {
                let drawn = times_ns.len() as u64;
                let lap_ns = times_ns.last().copied().unwrap_or(0);
                let within = times_ns
                    .get((index % drawn.max(1)) as usize)
                    .copied()
                    .unwrap_or(0);
                (index / drawn.max(1)) * lap_ns + within
            }
        }
    }

    /// The share of this pace that one of `workers` keeps: with all of them together it is the whole.
    #[must_use]
    pub fn share(per_s: f64, is_poisson: bool, workers: usize, worker: usize, seed: u64) -> Self {
        let per_s = per_s / workers.max(1) as f64;
        if is_poisson {
            Self::poisson(per_s, seed.wrapping_add(worker as u64))
        } else {
            Self::Constant { per_s }
        }
    }
}

/// More than a second's worth at any rate one thread can keep; the pattern repeats after it.
const ARRIVALS_DRAWN: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_pace_has_even_gaps() {
        let pace = Pace::Constant { per_s: 1000.0 };
        let times = [0, 1, 5].map(|index| pace.intended_ns(index));
        assert_eq!(times, [0, 1_000_000, 5_000_000]);
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_variance_of_the_process() {
        let pace = Pace::poisson(10_000.0, 7);
        let count = 2 * ARRIVALS_DRAWN as u64;
        let gaps: Vec<f64> = (1..count)
            .map(|index| (pace.intended_ns(index) - pace.intended_ns(index - 1)) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 100_000.0 - 1.0).abs() < 0.03, "{mean}");
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.05,
            "{}",
            variance.sqrt()
        );
    }

    #[test]
    fn the_same_seed_draws_the_same_times() {
        assert_eq!(Pace::poisson(5.0, 1), Pace::poisson(5.0, 1));
        assert_ne!(Pace::poisson(5.0, 1), Pace::poisson(5.0, 2));
    }

    #[test]
    fn the_workers_shares_add_up() {
        let shares: Vec<Pace> = (0..4)
            .map(|w| Pace::share(1000.0, false, 4, w, 0))
            .collect();
        assert!(
            shares
                .iter()
                .all(|share| *share == Pace::Constant { per_s: 250.0 })
        );
    }
}
