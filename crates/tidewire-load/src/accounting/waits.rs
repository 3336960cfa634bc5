//! Waits of the generator for its cores, and the bound that they set on the error of a percentile.

use serde::{Deserialize, Serialize};

use super::recorder::Recorder;
use crate::report::model::ErrorBounds;

/// The time that a worker's thread spent ready to run and without a core, in each short piece of a phase.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Waits {
    /// Microseconds of each piece, without the pieces that had no wait.
    pieces_us: Vec<u32>,
    /// The time of all pieces, of all workers together.
    observed_ns: u64,
}

impl Waits {
    /// Those of another process.
    #[must_use]
    pub fn of(mut pieces_us: Vec<u32>, observed_ns: u64) -> Self {
        pieces_us.truncate(PIECES_MAX);
        Self {
            pieces_us,
            observed_ns,
        }
    }

    /// The waits of the pieces that have any, in microseconds.
    #[must_use]
    pub fn pieces_us(&self) -> &[u32] {
        &self.pieces_us
    }

    /// The length of all pieces.
    #[must_use]
    pub fn observed_ns(&self) -> u64 {
        self.observed_ns
    }

    /// Adds a piece of this length with this wait.
    pub fn add(&mut self, length_ns: u64, waited_ns: u64) {
        self.observed_ns += length_ns;
        let waited_us = u32::try_from(waited_ns / 1_000).unwrap_or(u32::MAX);
        if waited_us > 0 && self.pieces_us.len() < PIECES_MAX {
            self.pieces_us.push(waited_us);
        }
    }

    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.observed_ns += other.observed_ns;
        let room = PIECES_MAX.saturating_sub(self.pieces_us.len());
        self.pieces_us.extend(other.pieces_us.iter().take(room));
    }

    /// The most by which the waits can have raised a percentile, in microseconds, when `part` of them is
    /// a disturbance.
    ///
    /// A request at a random moment is delayed by the rest of the wait in which it falls. That rest is
    /// longer than `e` in the part of the time that the waits exceed `e`. Even if exactly the slowest
    /// requests were delayed, the percentile rises by no more than the `e` that the remaining part of the
    /// requests exceeds.
    #[must_use]
    pub fn error_us(&self, percentile: f64, part: f64) -> f64 {
        let allowed_us = self.observed_ns as f64 / 1e3 * (100.0 - percentile) / 100.0;
        let beyond = |bound_us: f64| -> f64 {
            let waits = self
                .pieces_us
                .iter()
                .map(|&us| f64::from(us) * part - bound_us);
            waits.filter(|beyond| *beyond > 0.0).sum()
        };
        let longest = self.pieces_us.iter().max().copied().unwrap_or(0);
        let (mut low, mut high) = (0.0, f64::from(longest) * part);
        if beyond(0.0) <= allowed_us {
            return 0.0;
        }
        while high - low > 1.0 {
            let middle = f64::midpoint(low, high);
            match beyond(middle) > allowed_us {
                true => low = middle,
                false => high = middle,
            }
        }
        high
    }

    /// The bounds for the percentiles that a report shows.
    #[must_use]
    pub fn bounds(&self, part: f64) -> ErrorBounds {
        let at = |percentile| self.error_us(percentile, part);
        ErrorBounds {
            p50: at(50.0),
            p90: at(90.0),
            p95: at(95.0),
            p99: at(99.0),
            p99_9: at(99.9),
        }
    }

    /// The bounds for the delays with which requests left: those belong to the same percentiles.
    #[must_use]
    pub fn with_lateness(bounds: ErrorBounds, late: &Recorder) -> ErrorBounds {
        if late.count() == 0 {
            return bounds;
        }
        let at = |bound: f64, percentile| bound.max(late.percentile_ns(percentile) as f64 / 1e3);
        ErrorBounds {
            p50: at(bounds.p50, 50.0),
            p90: at(bounds.p90, 90.0),
            p95: at(bounds.p95, 95.0),
            p99: at(bounds.p99, 99.0),
            p99_9: at(bounds.p99_9, 99.9),
        }
    }
}

/// Pieces of a day of one worker.
const PIECES_MAX: usize = 1_728_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Ten seconds in pieces of 50 ms, every n-th with a wait of `wait_ms` milliseconds.
    fn waits(every: u64, wait_ms: u64) -> Waits {
        let mut waits = Waits::default();
        for piece in 0..200 {
            waits.add(50 * MS, if piece % every == 0 { wait_ms * MS } else { 0 });
        }
        waits
    }

    #[test]
    fn seven_per_cent_of_the_core_in_long_slices_spoil_the_p99_and_not_the_median() {
        // 29 waits of 24 ms: 7 % of the time. The p99 can be 24 ms - 100 ms / 29 too high.
        let waits = waits(7, 24);
        let error_ms = waits.error_us(99.0, 1.0) / 1e3;
        assert!((20.0..=21.0).contains(&error_ms), "{error_ms}");
        assert_eq!(waits.error_us(50.0, 1.0), 0.0);
        // Half of each was for the server, which is no disturbance.
        assert!(waits.error_us(99.0, 0.5) / 1e3 < 9.0);
    }

    #[test]
    fn short_waits_spoil_little_and_rare_ones_only_the_highest_percentiles() {
        assert!(waits(1, 1).error_us(99.0, 1.0) < 600.0);
        // One stop of 50 ms in ten seconds is half a per cent.
        let one = waits(200, 50);
        assert_eq!(one.error_us(99.0, 1.0), 0.0);
        assert!(one.error_us(99.9, 1.0) > 39_000.0);
        assert_eq!(Waits::default().bounds(1.0), ErrorBounds::default());
    }

    #[test]
    fn workers_share_the_requests() {
        let mut all = waits(7, 24);
        let quiet = waits(1_000, 0);
        all.merge(&quiet);
        assert!(all.error_us(99.0, 1.0) < waits(7, 24).error_us(99.0, 1.0));
        let late = {
            let mut late = Recorder::new();
            (0..100).for_each(|_| late.record_ns(5 * MS));
            late
        };
        let bounds = Waits::with_lateness(ErrorBounds::default(), &late);
        assert!((bounds.p50 / 5_000.0 - 1.0).abs() < 0.01);
    }
}
