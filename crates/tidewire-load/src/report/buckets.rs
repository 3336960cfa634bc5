//! Buckets of a coarse latency histogram: 32 to each power of two, so that a bucket is at most 3.1 % wide.
//!
//! The index of a time is its position among all buckets from 0 ns on. Times below 32 ns have a bucket each,
//! and times from 68.7 s on share the last one.

/// Number of buckets.
pub(crate) const BUCKETS: usize = ((TOP_BITS - SUB_BITS + 1) as usize) << SUB_BITS;

/// The widest bucket divided by its lower end: two times that differ by less may share a bucket.
pub(crate) const RESOLUTION: f64 = 1.0 / (1 << SUB_BITS) as f64;

/// The bucket of a time in nanoseconds.
#[inline]
pub(crate) fn index_of(ns: u64) -> usize {
    let ns = ns.min(NS_MAX);
    if ns < SUB_COUNT {
        return ns as usize;
    }
    let exponent = 63 - ns.leading_zeros();
    let sub = (ns >> (exponent - SUB_BITS)) & (SUB_COUNT - 1);
    (u64::from(exponent - SUB_BITS + 1) * SUB_COUNT + sub) as usize
}

/// The largest time in nanoseconds that belongs to the bucket.
pub(crate) fn upper_ns(index: usize) -> u64 {
    let index = index.min(BUCKETS - 1) as u64;
    let (octave, sub) = (index / SUB_COUNT, index % SUB_COUNT);
    if octave == 0 {
        return sub;
    }
    ((SUB_COUNT + sub + 1) << (octave - 1)) - 1
}

/// The upper end of the bucket in microseconds.
pub(crate) fn upper_us(index: usize) -> f64 {
    upper_ns(index) as f64 / 1000.0
}

/// The time in microseconds that `percentile` (0 to 100) of the counted ones do not exceed: nearest rank,
/// with the times of a bucket spread evenly over it. `buckets` holds the upper end of each bucket in
/// microseconds and its count, ascending. `None` when nothing was counted.
pub(crate) fn percentile_us(
    buckets: impl Iterator<Item = (f64, u64)> + Clone,
    percentile: f64,
) -> Option<f64> {
    let total: u64 = buckets.clone().map(|bucket| bucket.1).sum();
    if total == 0 {
        return None;
    }
    let rank = rank(percentile, total);
    let mut below = 0.0;
    let mut last = 0.0;
    for (upper_us, count) in buckets.filter(|bucket| bucket.1 > 0) {
        let count = count as f64;
        last = upper_us;
        if below + count >= rank {
            let lower_us = upper_us * (1.0 - RESOLUTION);
            return Some(lower_us + (upper_us - lower_us) * (rank - below) / count);
        }
        below += count;
    }
    Some(last)
}

/// How many of `total` sorted values are at most the percentile's: nearest rank.
pub(crate) fn rank(percentile: f64, total: u64) -> f64 {
    let exact = percentile / 100.0 * total as f64;
    // 99.9 % of 1,000 are 999, and not the 1,000 that the rounding of 0.999 would make them.
    ((exact * 1e6).round() / 1e6).ceil().max(1.0)
}

const SUB_BITS: u32 = 5;
const SUB_COUNT: u64 = 1 << SUB_BITS;
/// 2^36 ns are 68.7 s.
const TOP_BITS: u32 = 36;
const NS_MAX: u64 = (1 << TOP_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_that_ends_at_or_after_it() {
        let mut times: Vec<u64> = (0..2_000).collect();
        times.extend((5..36).flat_map(|bits| {
            let power = 1u64 << bits;
            [power - 1, power, power + 1, power + power / 3]
        }));
        for ns in times {
            let index = index_of(ns);
            assert!(ns <= upper_ns(index), "{ns}");
            assert!(index == 0 || ns > upper_ns(index - 1), "{ns}");
        }
        assert_eq!(index_of(u64::MAX), BUCKETS - 1);
        assert_eq!(index_of(NS_MAX), BUCKETS - 1);
    }

    #[test]
    fn no_bucket_is_wider_than_the_resolution() {
        for index in 33..BUCKETS {
            let (lower, upper) = (upper_ns(index - 1) as f64, upper_ns(index) as f64);
            assert!(
                (upper - lower) / (lower + 1.0) <= RESOLUTION + 1e-9,
                "{index}"
            );
        }
    }

    #[test]
    fn percentiles_are_right_within_the_resolution() {
        let mut counts = vec![0u64; BUCKETS];
        (1..=10_000u64).for_each(|us| counts[index_of(us * 1000)] += 1);
        let buckets = counts.iter().enumerate().map(|(i, &n)| (upper_us(i), n));
        for (percentile, expected) in [(50.0, 5_000.0), (99.0, 9_900.0), (100.0, 10_000.0)] {
            let found = percentile_us(buckets.clone(), percentile).unwrap();
            assert!(
                (found / expected - 1.0).abs() <= RESOLUTION,
                "{found} for {expected}"
            );
        }
        assert_eq!(percentile_us([(5.0, 0)].into_iter(), 50.0), None);
    }
}
