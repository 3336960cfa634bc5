//! Histogram: how often a duration fell into each of some fixed ranges.
//!
//! One thread records, any thread reads, as with [`Counter`]: a record is a search among the bounds
//! and three loads and stores without a lock.

use super::Counter;
use std::time::Duration;

/// Durations that one thread records and any thread reads.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [Counter; BOUNDS_NS.len() + 1],
    sum_ns: Counter,
}

/// The counts of a [`Histogram`] at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// How many durations were at most as long as the bound of the same index, and longer than the
    /// bound before it. The last one counts those above every bound.
    pub counts: [u64; BOUNDS_NS.len() + 1],
    /// All durations added up, in nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    /// Records one duration. Only one thread may call it: the counts of a second one could get lost.
    #[inline]
    pub fn record(&self, duration: Duration) {
        self.record_many(duration, 1);
    }

    /// Records a duration `count` times.
    #[inline]
    pub fn record_many(&self, duration: Duration, count: u64) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let index = BOUNDS_NS.partition_point(|bound| *bound < ns);
        self.counts[index].add(count);
        self.sum_ns.add(ns.saturating_mul(count));
    }

    /// All counts now.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            counts: std::array::from_fn(|index| self.counts[index].load()),
            sum_ns: self.sum_ns.load(),
        }
    }
}

impl HistogramSnapshot {
    /// How many durations were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds the counts of another one.
    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

/// The upper bounds of the ranges, in nanoseconds: 10 µs to 10 s.
pub const BOUNDS_NS: [u64; 19] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_range_below_it() {
        let histogram = Histogram::default();
        for ns in [0, 10_000, 10_001, 10_000_000_000, 10_000_000_001] {
            histogram.record(Duration::from_nanos(ns));
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.counts[..3], [2, 1, 0]);
        assert_eq!(snapshot.counts[BOUNDS_NS.len() - 1..], [1, 1]);
        assert_eq!(snapshot.count(), 5);
        assert_eq!(snapshot.sum_ns, 20_000_020_002);
    }

    #[test]
    fn many_count_as_many() {
        let histogram = Histogram::default();
        histogram.record_many(Duration::from_millis(2), 1_000);
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.counts[7], snapshot.count()), (1_000, 1_000));
        assert_eq!(snapshot.sum_ns, 2_000_000_000);
    }

    #[test]
    fn bounds_grow() {
        assert!(BOUNDS_NS.is_sorted_by(|left, right| left < right));
    }
}
