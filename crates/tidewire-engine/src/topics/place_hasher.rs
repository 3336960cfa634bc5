//! A hasher for the numbers of a shard.

use std::hash::Hasher;

/// Hashes numbers that the shard has given itself, so that nobody can choose colliding ones.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Fibonacci hashing; the rotation brings the good high bits to where the table looks.
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
