//! Bits and codes of a deflate stream (RFC 1951, section 3.2).

/// Bits and how many they are.
pub(super) type Bits = (u32, u32);

pub(super) struct BitWriter<'o> {
    out: &'o mut Vec<u8>,
    bits: u64,
    used: u32,
}

impl<'o> BitWriter<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>) -> Self {
        Self {
            out,
            bits: 0,
            used: 0,
        }
    }

    #[inline]
    pub(super) fn put_pair(&mut self, (bits, count): Bits) {
        self.put(bits, count);
    }

    /// Appends up to 32 bits, the lowest first.
    #[inline]
    pub(super) fn put(&mut self, bits: u32, count: u32) {
        self.bits |= u64::from(bits) << self.used;
        self.used += count;
        if self.used >= 32 {
            self.out
                .extend_from_slice(&(self.bits as u32).to_le_bytes());
            self.bits >>= 32;
            self.used -= 32;
        }
    }

    /// Fills the last byte with zeros.
    pub(super) fn align(&mut self) {
        let bytes = self.used.div_ceil(8) as usize;
        self.out
            .extend_from_slice(&self.bits.to_le_bytes()[..bytes]);
        (self.bits, self.used) = (0, 0);
    }

    /// Appends whole bytes after [`align`](Self::align).
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        debug_assert_eq!(self.used, 0);
        self.out.extend_from_slice(bytes);
    }
}

/// Codes are written from their highest bit on, everything else from its lowest.
pub(super) const fn reversed(code: u32, bits: u32) -> u32 {
    code.reverse_bits() >> (32 - bits)
}

/// The fixed code of a literal or length symbol (RFC 1951, section 3.2.6).
pub(super) const fn fixed_code(symbol: u32) -> Bits {
    match symbol {
        0..=143 => (reversed(0x30 + symbol, 8), 8),
        144..=255 => (reversed(0x190 + symbol - 144, 9), 9),
        256..=279 => (reversed(symbol - 256, 7), 7),
        _ => (reversed(0xC0 + symbol - 280, 8), 8),
    }
}

/// The symbol of a length from 3 to 258 and its extra bits (RFC 1951, section 3.2.5).
pub(super) const fn length_symbol(length: u32) -> (u32, Bits) {
    let less = length - 3;
    if length == LENGTH_MAX as u32 {
        (285, (0, 0))
    } else if less < 8 {
        (257 + less, (0, 0))
    } else {
        let extra_bits = 29 - less.leading_zeros();
        let symbol = 257 + 4 * (extra_bits + 1) + (less >> extra_bits & 3);
        (symbol, (less & ((1 << extra_bits) - 1), extra_bits))
    }
}

/// The symbol of a distance from 1 to 32,768 and its extra bits (RFC 1951, section 3.2.5).
#[inline]
pub(super) const fn distance_symbol(distance: u32) -> (u32, Bits) {
    let less = distance - 1;
    if less < 4 {
        return (less, (0, 0));
    }
    let extra_bits = 30 - less.leading_zeros();
    let symbol = 2 * (extra_bits + 1) + (less >> extra_bits & 1);
    (symbol, (less & ((1 << extra_bits) - 1), extra_bits))
}

/// The next four bytes, if four are left.
#[inline]
pub(super) fn four_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*four))
}

/// How far the bytes at `at` are those at `from`, which lies before; at least four bytes are known to be.
#[inline]
pub(super) fn match_length(bytes: &[u8], from: usize, at: usize) -> usize {
    let length_max = (bytes.len() - at).min(LENGTH_MAX);
    let (earlier, later) = (&bytes[from..], &bytes[at..at + length_max]);
    let mut length = 4;
    while let (Some(a), Some(b)) = (
        earlier
            .get(length..)
            .and_then(|rest| rest.first_chunk::<8>()),
        later.get(length..).and_then(|rest| rest.first_chunk::<8>()),
    ) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return length + differing.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    while length < length_max && earlier[length] == later[length] {
        length += 1;
    }
    length
}

pub(super) const LENGTH_MAX: usize = 258;

/// The symbol that ends a block.
pub(super) const END_OF_BLOCK: usize = 256;
