//! Rates from samples of the confirmed count.

use std::time::{Duration, Instant};

use crate::accounting::live::Live;

/// Rates from samples of the confirmed count at every tick.
#[derive(Debug)]
pub(super) struct Samples {
    start: Instant,
    last: (Duration, u64),
    /// Per second, for each tick.
    pub(super) rates: Vec<f64>,
}

impl Samples {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            last: (Duration::ZERO, 0),
            rates: Vec::new(),
        }
    }

    /// Completes the figures with those that depend on the total time.
    pub(super) fn add(&mut self, live: Live) -> Live {
        let elapsed = self.start.elapsed();
        let now = (elapsed, live.confirmed);
        self.rates.push(rate(self.last, now));
        self.last = now;
        let recent = &self.rates[self.rates.len().saturating_sub(TICKS_PER_S)..];
        let rate_per_s = recent.iter().sum::<f64>() / recent.len() as f64;
        Live {
            elapsed,
            rate_per_s,
            ..live
        }
    }
}

fn rate(before: (Duration, u64), now: (Duration, u64)) -> f64 {
    let seconds = (now.0 - before.0).as_secs_f64();
    if seconds > 0.0 {
        now.1.saturating_sub(before.1) as f64 / seconds
    } else {
        0.0
    }
}

pub(super) const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_S: usize = 10;
