//! The source of everything that is drawn.

use std::ops::RangeInclusive;

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): the
/// same numbers from the same seed in every version and on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range; its start if the range is empty.
    pub(crate) fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let span = range.end().saturating_sub(*range.start());
        let drawn = (u128::from(self.next()) * (u128::from(span) + 1)) >> 64;
        range.start() + drawn as u64
    }

    /// Whether something of this probability, from 0 to 1, happens.
    pub(crate) fn happens(&mut self, chance: f64) -> bool {
        let drawn = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < chance
    }
}
