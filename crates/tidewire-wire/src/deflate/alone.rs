//! A compressor for messages without memory between them, at levels 2 to 6.
//!
//! It searches chains of places that have the same four bytes, and writes blocks with the code that needs the
//! least room. A general compressor clears its tables before each message; this one counts places on
//! from message to message, as [`SmallCompressor`](super::small::SmallCompressor) does, so that an entry of an earlier
//! message is known by its number.

use super::bits::{BitWriter, LENGTH_MAX, four_at, match_length};
use super::block::{Block, Token};

#[derive(Debug)]
pub(crate) struct AloneCompressor {
    effort: Effort,
    distance_max: usize,
    /// The place after the last one with the same hash, counted over all messages.
    newest: Box<[u32; TABLE_ENTRIES]>,
    /// For each place of the message, by its lowest bits, the entry that it has replaced in `newest`.
    before: Box<[u32; WINDOW_BYTES]>,
    /// Places of messages before this one are at most this.
    base: u32,
    /// How much of `newest` is used: small messages stay in the nearest cache.
    hash_shift: u32,
    block: Block,
}

/// How long better repetitions are looked for.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// Earlier places that are compared.
    places: u32,
    /// The length of a repetition, in bytes, from which no better one at the next place is searched.
    lazy: usize,
    /// The length of a repetition, in bytes, that is good enough.
    good: usize,
    /// Longer payloads are for a general compressor, which is faster with them.
    payload_bytes_max: usize,
}

/// A repetition of earlier bytes.
#[derive(Debug, Clone, Copy)]
struct Repetition {
    length: usize,
    distance: usize,
}

impl AloneCompressor {
    /// The compressor for a level, if it is one of this compressor's.
    pub(crate) fn for_level(level: u32, window_bits: u8) -> Option<Self> {
        let (places, lazy, good, payload_bytes_max) = match level {
            2 => (4, 4, 16, PAYLOAD_BYTES_MAX / 8),
            3 => (6, 8, 24, PAYLOAD_BYTES_MAX),
            4 => (8, 12, 32, PAYLOAD_BYTES_MAX),
            5 => (12, 16, 48, PAYLOAD_BYTES_MAX),
            6 => (16, 16, 64, PAYLOAD_BYTES_MAX),
            _ => return None,
        };
        Some(Self {
            effort: Effort {
                places,
                lazy,
                good,
                payload_bytes_max,
            },
            distance_max: 1 << window_bits,
            newest: Box::new([0; TABLE_ENTRIES]),
            before: Box::new([0; WINDOW_BYTES]),
            base: 0,
            hash_shift: 0,
            block: Block::default(),
        })
    }

    /// The largest payload that is compressed in this way.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.effort.payload_bytes_max
    }

    /// Appends the compressed form of `payload`, of at most
    /// [`payload_bytes_max`](Self::payload_bytes_max), without the tail of a flush.
    pub(crate) fn compress(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        if self.base > u32::MAX - 2 * PAYLOAD_BYTES_MAX as u32 {
            self.newest.fill(0);
            self.base = 0;
        }
        let bits = usize::BITS - payload.len().leading_zeros();
        self.hash_shift = u32::BITS - bits.clamp(TABLE_BITS_MIN, TABLE_BITS);
        out.reserve(payload.len() / 2 + ROOM_BYTES);
        let mut writer = BitWriter::new(out);
        let (mut at, mut block_start) = (0, 0);
        while at < payload.len() {
            at = self.next(payload, at);
            if self.block.is_full() {
                self.block.write(&payload[block_start..at], &mut writer);
                block_start = at;
            }
        }
        if block_start < payload.len() {
            self.block.write(&payload[block_start..], &mut writer);
        }
        self.base += payload.len() as u32 + 1;
        // The head of the empty block that a flush appends (RFC 7692, section 7.2.1).
        writer.put(0, 3);
        writer.align();
    }

    /// Adds the repetition or the byte at `at` to the block; returns the place behind it.
    fn next(&mut self, payload: &[u8], mut at: usize) -> usize {
        let Some(mut found) = self.find(payload, at, 0) else {
            self.block.push(Token::literal(payload[at]));
            return at + 1;
        };
        // Where a better repetition begins at the next place, this byte is written as it is.
        let mut entered = at + 1;
        while found.length < self.effort.lazy {
            let better = self.find(payload, at + 1, found.length);
            entered = at + 2;
            let Some(better) = better else { break };
            self.block.push(Token::literal(payload[at]));
            found = better;
            at += 1;
        }
        self.block
            .push(Token::repetition(found.length, found.distance));
        let end = at + found.length;
        for place in entered..end {
            let Some(four) = four_at(payload, place) else {
                break;
            };
            self.enter(four, place);
        }
        end
    }

    #[inline]
    fn hash(&self, four: u32) -> usize {
        (four.wrapping_mul(0x9E37_79B1) >> self.hash_shift) as usize % TABLE_ENTRIES
    }

    /// Enters a place with its first four bytes; the entry of the place before it that has the same hash.
    #[inline]
    fn enter(&mut self, four: u32, at: usize) -> u32 {
        let hash = self.hash(four);
        let entry = &mut self.newest[hash];
        let before = std::mem::replace(entry, self.base + at as u32 + 1);
        self.before[at % WINDOW_BYTES] = before;
        before
    }

    /// The longest repetition at a place, if it is longer than `best`, and enters the place.
    #[inline]
    fn find(&mut self, payload: &[u8], at: usize, best: usize) -> Option<Repetition> {
        let four = four_at(payload, at)?;
        let mut entry = self.enter(four, at);
        // Entries up to this one are of earlier messages, or too far away.
        let too_old = self.base + at.saturating_sub(self.distance_max) as u32;
        let mut best = best.max(LENGTH_MIN - 1);
        let mut found = None;
        // A repetition that is longer than the best one has these four bytes at the best one's end.
        let mut last = four_at(payload, at + best - 3)?;
        for _ in 0..self.effort.places {
            if entry <= too_old {
                break;
            }
            let from = (entry - self.base - 1) as usize;
            let may_be_longer = four_at(payload, from + best - 3) == Some(last);
            if may_be_longer && four_at(payload, from) == Some(four) {
                let length = match_length(payload, from, at);
                if length > best {
                    let distance = at - from;
                    found = Some(Repetition { length, distance });
                    best = length;
                    if length >= self.effort.good.min(LENGTH_MAX) {
                        break;
                    }
                    let Some(next_last) = four_at(payload, at + best - 3) else {
                        break;
                    };
                    last = next_last;
                }
            }
            entry = self.before[from % WINDOW_BYTES];
        }
        found
    }
}

/// The largest payload at any level.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

const TABLE_BITS_MIN: u32 = 9;
const TABLE_BITS: u32 = 13;
const TABLE_ENTRIES: usize = 1 << TABLE_BITS;
const WINDOW_BYTES: usize = 32 * 1024;

/// Shorter repetitions are not looked for.
const LENGTH_MIN: usize = 4;

/// Room for heads of blocks.
const ROOM_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::super::Decompressor;
    use super::*;
    use proptest::prelude::*;

    fn round_trip(compressor: &mut AloneCompressor, window_bits: u8, payload: &[u8]) -> usize {
        let mut compressed = b"before".to_vec();
        compressor.compress(payload, &mut compressed);
        let mut plain = Vec::new();
        // With a context the window is no larger than the one that was asked for.
        Decompressor::new(window_bits, true)
            .decompress(&compressed[6..], &mut plain, payload.len())
            .expect("what we compressed");
        assert!(plain == payload, "{} bytes", payload.len());
        compressed.len() - 6
    }

    fn at_level(level: u32) -> AloneCompressor {
        AloneCompressor::for_level(level, 15).expect("a level of this compressor")
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let words = 0..bytes.div_ceil(4) as u32;
        words
            .flat_map(|n| n.wrapping_mul(n).wrapping_mul(2_654_435_761).to_le_bytes())
            .take(bytes)
            .collect()
    }

    #[test]
    fn every_length_and_distance() {
        let mut compressor = at_level(6);
        for length in 1..600 {
            round_trip(&mut compressor, 15, &vec![b'a'; length]);
        }
        for distance in (1..WINDOW_BYTES + 300).step_by(391) {
            let mut payload = noise(distance);
            payload.extend_from_within(..distance.min(280));
            round_trip(&mut compressor, 15, &payload);
        }
    }

    #[test]
    fn noise_gets_no_larger_than_it_must_and_repetition_small() {
        let mut compressor = at_level(6);
        let text = r#"{"symbol":"BTC-USD","price":1234.5,"side":"buy"},"#.repeat(1_000);
        assert!(round_trip(&mut compressor, 15, text.as_bytes()) < 400);
        for bytes in [1, 100, TABLE_ENTRIES, PAYLOAD_BYTES_MAX] {
            let blocks = 1 + bytes.div_ceil(16 * 1024);
            let size = round_trip(&mut compressor, 15, &noise(bytes));
            assert!(size <= bytes + 5 * blocks, "{size} for {bytes}");
        }
    }

    /// Letters as frequent as Fibonacci's numbers want codes that are too long.
    #[test]
    fn codes_are_no_longer_than_they_may_be() {
        let (mut a, mut b) = (1, 1);
        let mut payload = Vec::new();
        for letter in 0..22 {
            payload.extend(std::iter::repeat_n(letter * 7, a));
            (a, b) = (b, a + b);
        }
        // Shuffled: repetitions would remove letters from the counts.
        let mut state = 1u64;
        for at in (1..payload.len()).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            payload.swap(at, (state >> 33) as usize % (at + 1));
        }
        let payload = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
        round_trip(&mut at_level(6), 15, payload);
    }

    #[test]
    fn places_are_counted_past_the_end_of_their_numbers() {
        let mut compressor = at_level(5);
        compressor.base = u32::MAX - 2 * PAYLOAD_BYTES_MAX as u32 - 100;
        for _ in 0..10 {
            round_trip(&mut compressor, 15, &b"the same again ".repeat(20));
        }
        assert!(compressor.base < 10_000);
    }

    proptest! {
        #[test]
        fn anything_comes_back(
            payloads in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 1..3000), 1u8..=255, 1usize..8), 1..4,
            ),
            window_bits in 9u8..16,
            level in 2u32..7,
        ) {
            let mut compressor = AloneCompressor::for_level(level, window_bits).expect("a level");
            for (bytes, kinds, times) in payloads {
                let payload: Vec<u8> = bytes.iter().map(|byte| byte % kinds).collect();
                round_trip(&mut compressor, window_bits, &payload.repeat(times));
            }
        }
    }
}
