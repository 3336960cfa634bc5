//! A compressor for small messages without memory between them, at the speed of level 1.
//!
//! A general one clears its tables of 128 KiB before each message, which costs more than a message of 1 KB
//! does. This one has a table of 16 KiB that is never cleared: places are counted on from message to
//! message, so that an entry of an earlier message is known by its number. It writes one block with the
//! fixed codes (RFC 1951, section 3.2.6), as level 1 of others does.

use super::bits::{
    BitWriter, Bits, LENGTH_MAX, distance_symbol, fixed_code, four_at, length_symbol, match_length,
    reversed,
};

#[derive(Debug)]
pub(crate) struct SmallCompressor {
    /// The place after the last one where each hash was seen, counted over all messages.
    table: Box<[u32; TABLE_ENTRIES]>,
    /// Places of messages before this one are at most this.
    base: u32,
    distance_max: usize,
}

impl SmallCompressor {
    pub(crate) fn new(window_bits: u8) -> Self {
        Self {
            table: Box::new([0; TABLE_ENTRIES]),
            base: 0,
            distance_max: 1 << window_bits,
        }
    }

    /// Appends the compressed form of `payload`, of at most [`PAYLOAD_BYTES_MAX`], without the tail of a flush.
    pub(crate) fn compress(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        if self.base > u32::MAX - 2 * PAYLOAD_BYTES_MAX as u32 {
            self.table.fill(0);
            self.base = 0;
        }
        let start = out.len();
        let mut writer = BitWriter::new(out);
        writer.put(FIXED_BLOCK, 3);
        self.write_symbols(payload, &mut writer);
        self.base += payload.len() as u32 + 1;
        // The end of the block, and the head of the empty one that a flush appends (RFC 7692, section 7.2.1).
        writer.put(0, 7 + 3);
        writer.align();
        if out.len() - start > payload.len() + STORED_OVERHEAD_BYTES {
            out.truncate(start);
            write_stored(payload, out);
        }
    }

    fn write_symbols(&mut self, payload: &[u8], writer: &mut BitWriter<'_>) {
        let mut at = 0;
        while let Some(four) = four_at(payload, at) {
            let entry = &mut self.table[hash(four)];
            let seen = std::mem::replace(entry, self.base + at as u32 + 1);
            let found = (seen > self.base)
                .then(|| (seen - self.base - 1) as usize)
                .filter(|from| at - from <= self.distance_max)
                .filter(|from| four_at(payload, *from) == Some(four));
            let Some(from) = found else {
                writer.put_pair(LITERALS[usize::from(payload[at])]);
                at += 1;
                continue;
            };
            let length = match_length(payload, from, at);
            writer.put_pair(LENGTHS[length]);
            writer.put_pair(distance_code(at - from));
            // The next repetition often starts where this one ended.
            let last = at + length - 1;
            if let Some(four) = four_at(payload, last) {
                self.table[hash(four)] = self.base + last as u32 + 1;
            }
            at += length;
        }
        for byte in &payload[at..] {
            writer.put_pair(LITERALS[usize::from(*byte)]);
        }
    }
}

/// Blocks without compression (RFC 1951, section 3.2.4), and the head of the empty one.
fn write_stored(payload: &[u8], out: &mut Vec<u8>) {
    let length = payload.len() as u16;
    out.push(0);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(payload);
    out.push(0);
}

#[inline]
fn hash(four: u32) -> usize {
    (four.wrapping_mul(0x9E37_79B1) >> (32 - TABLE_BITS)) as usize
}

/// The code of a distance with its extra bits.
#[inline]
fn distance_code(distance: usize) -> Bits {
    let (symbol, (extra, extra_bits)) = distance_symbol(distance as u32);
    (reversed(symbol, 5) | extra << 5, 5 + extra_bits)
}

const LITERALS: [Bits; 256] = {
    let mut codes = [(0, 0); 256];
    let mut symbol = 0;
    while symbol < 256 {
        codes[symbol] = fixed_code(symbol as u32);
        symbol += 1;
    }
    codes
};

/// The code of each length with its extra bits; the first three are no lengths.
const LENGTHS: [Bits; LENGTH_MAX + 1] = {
    let mut codes = [(0, 0); LENGTH_MAX + 1];
    let mut length = 3;
    while length <= LENGTH_MAX {
        let (symbol, (extra, extra_bits)) = length_symbol(length as u32);
        let (code, bits) = fixed_code(symbol);
        codes[length] = (code | extra << bits, bits + extra_bits);
        length += 1;
    }
    codes
};

/// The largest payload that is compressed in this way: one stored block holds it, and larger ones are worth codes
/// of their own.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16 * 1024;

const TABLE_BITS: u32 = 12;
const TABLE_ENTRIES: usize = 1 << TABLE_BITS;

/// Not the last block; fixed codes.
const FIXED_BLOCK: u32 = 0b010;

/// The head of a stored block, and that of the empty one behind it.
const STORED_OVERHEAD_BYTES: usize = 6;

#[cfg(test)]
mod tests {
    use super::super::Decompressor;
    use super::*;
    use proptest::prelude::*;

    fn round_trip(compressor: &mut SmallCompressor, payload: &[u8]) -> usize {
        let mut compressed = b"before".to_vec();
        compressor.compress(payload, &mut compressed);
        let mut plain = Vec::new();
        Decompressor::new(15, false)
            .decompress(&compressed[6..], &mut plain, payload.len())
            .expect("what we compressed");
        assert!(plain == payload, "{} bytes", payload.len());
        compressed.len() - 6
    }

    #[test]
    fn every_length_and_distance() {
        let mut compressor = SmallCompressor::new(15);
        for length in 0..600 {
            round_trip(&mut compressor, &vec![b'a'; length]);
        }
        for distance in (1..PAYLOAD_BYTES_MAX - 300).step_by(37) {
            // Nothing repeats but the start, after N bytes.
            let mut payload: Vec<u8> = (0..distance as u32)
                .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
                .take(distance)
                .collect();
            payload.extend_from_within(..distance.min(280));
            round_trip(&mut compressor, &payload);
        }
    }

    #[test]
    fn repetition_gets_small_and_noise_no_larger_than_it_must() {
        let mut compressor = SmallCompressor::new(15);
        let text = r#"{"symbol":"BTC-USD","price":1234.5,"side":"buy"},"#.repeat(20);
        assert!(round_trip(&mut compressor, text.as_bytes()) < 120);
        let noise: Vec<u8> = (0..4096u32)
            .flat_map(|n| n.wrapping_mul(n).wrapping_mul(2_654_435_761).to_le_bytes())
            .take(PAYLOAD_BYTES_MAX)
            .collect();
        let size = round_trip(&mut compressor, &noise);
        assert!(size <= noise.len() + STORED_OVERHEAD_BYTES);
    }

    #[test]
    fn places_are_counted_past_the_end_of_their_numbers() {
        let mut compressor = SmallCompressor::new(15);
        compressor.base = u32::MAX - 2 * PAYLOAD_BYTES_MAX as u32 - 100;
        for _ in 0..10 {
            round_trip(&mut compressor, &b"the same again ".repeat(20));
        }
        assert!(compressor.base < 10_000);
    }

    #[test]
    fn nothing_refers_further_back_than_the_window() {
        let mut compressor = SmallCompressor::new(9);
        let mut payload = b"only at both ends".to_vec();
        payload.extend((0..200u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()));
        payload.extend_from_within(..17);
        let mut compressed = Vec::new();
        compressor.compress(&payload, &mut compressed);
        let mut plain = Vec::new();
        let mut small_window = Decompressor::new(9, true);
        small_window
            .decompress(&compressed, &mut plain, payload.len())
            .expect("a window of 512 bytes is enough");
        assert_eq!(plain, payload);
    }

    proptest! {
        #[test]
        fn anything_comes_back(
            payloads in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..2000), 1u8..=255), 1..5,
            ),
            window_bits in 9u8..16,
        ) {
            let mut compressor = SmallCompressor::new(window_bits);
            for (bytes, kinds) in payloads {
                let payload: Vec<u8> = bytes.iter().map(|byte| byte % kinds).collect();
                round_trip(&mut compressor, &payload);
            }
        }
    }
}
