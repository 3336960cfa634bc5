//! Blocks of a deflate stream, with the code that needs the least room (RFC 1951, section 3.2).

use super::bits::{BitWriter, Bits, END_OF_BLOCK, LENGTH_MAX, distance_symbol, length_symbol};
use super::huffman::Code;

/// A byte, or a repetition of earlier ones: its length above its distance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token(u32);

/// The content of a block that is not written yet.
#[derive(Debug)]
pub(super) struct Block {
    tokens: Vec<Token>,
    literals: [u32; LITERALS],
    distances: [u32; DISTANCES],
}

impl Token {
    pub(super) fn literal(byte: u8) -> Self {
        Self(u32::from(byte))
    }

    pub(super) fn repetition(length: usize, distance: usize) -> Self {
        Self((length as u32) << DISTANCE_BITS | distance as u32)
    }

    /// The length, which is 0 for a literal, and the distance or the literal.
    fn parts(self) -> (usize, u32) {
        (
            (self.0 >> DISTANCE_BITS) as usize,
            self.0 & ((1 << DISTANCE_BITS) - 1),
        )
    }
}

impl Default for Block {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            literals: [0; LITERALS],
            distances: [0; DISTANCES],
        }
    }
}

impl Block {
    pub(super) fn is_full(&self) -> bool {
        self.tokens.len() >= TOKENS_MAX
    }

    #[inline]
    pub(super) fn push(&mut self, token: Token) {
        self.tokens.push(token);
        match token.parts() {
            (0, literal) => self.literals[literal as usize] += 1,
            (length, distance) => {
                let (symbol, _) = LENGTHS[length];
                self.literals[usize::from(symbol)] += 1;
                self.distances[distance_symbol(distance).0 as usize] += 1;
            }
        }
    }

    /// Writes the block, which stands for these bytes, and begins the next one.
    pub(super) fn write(&mut self, plain: &[u8], writer: &mut BitWriter<'_>) {
        self.literals[END_OF_BLOCK] = 1;
        let literals = Code::new(&self.literals, CODE_BITS_MAX);
        let distances = Code::new(&self.distances, CODE_BITS_MAX);
        let head = Head::new(&literals, &distances);
        let own_bits =
            head.bits() + literals.bits(&self.literals) + distances.bits(&self.distances);
        let (fixed_literals, fixed_distances) = (&FIXED.0, &FIXED.1);
        let fixed_bits =
            fixed_literals.bits(&self.literals) + fixed_distances.bits(&self.distances);
        let stored_bits =
            8 * (plain.len() + STORED_OVERHEAD_BYTES * (1 + plain.len() / STORED_BYTES_MAX));
        let extra_bits = self.extra_bits();
        if stored_bits <= own_bits.min(fixed_bits) + extra_bits {
            write_stored(plain, writer);
        } else if fixed_bits <= own_bits {
            writer.put(FIXED_BLOCK, 3);
            self.write_tokens(fixed_literals, fixed_distances, writer);
        } else {
            writer.put(OWN_BLOCK, 3);
            head.write(writer);
            self.write_tokens(&literals, &distances, writer);
        }
        self.tokens.clear();
        self.literals.fill(0);
        self.distances.fill(0);
    }

    fn extra_bits(&self) -> usize {
        let lengths = self.literals[FIRST_LENGTH..].iter().enumerate();
        let of_lengths = lengths.map(|(index, count)| {
            let bits = if index == LAST_LENGTH - FIRST_LENGTH {
                0
            } else {
                (index / 4).saturating_sub(1)
            };
            *count as usize * bits
        });
        let distances = self.distances.iter().enumerate();
        let of_distances =
            distances.map(|(symbol, count)| *count as usize * (symbol / 2).saturating_sub(1));
        of_lengths.sum::<usize>() + of_distances.sum::<usize>()
    }

    fn write_tokens(
        &self,
        literals: &Code<LITERALS>,
        distances: &Code<DISTANCES>,
        writer: &mut BitWriter<'_>,
    ) {
        for token in &self.tokens {
            let (length, distance) = token.parts();
            if length == 0 {
                writer.put_pair(literals.of(distance as usize));
                continue;
            }
            let (symbol, extra) = LENGTHS[length];
            writer.put_pair(joined(literals.of(usize::from(symbol)), extra));
            let (symbol, extra) = distance_symbol(distance);
            writer.put_pair(joined(distances.of(symbol as usize), extra));
        }
        writer.put_pair(literals.of(END_OF_BLOCK));
    }
}

/// A code and the extra bits behind it.
#[inline]
fn joined((code, code_bits): Bits, (extra, extra_bits): Bits) -> Bits {
    (code | extra << code_bits, code_bits + extra_bits)
}

impl<const N: usize> Code<N> {
    #[inline]
    fn of(&self, symbol: usize) -> Bits {
        (
            u32::from(self.codes[symbol]),
            u32::from(self.lengths[symbol]),
        )
    }
}

/// The head of a block with codes of its own: the lengths of the two codes, repeated ones counted, written in a
/// third code (RFC 1951, section 3.2.7).
struct Head {
    literals: usize,
    distances: usize,
    /// Symbols with their extra bits.
    lengths: Vec<(u8, Bits)>,
    code: Code<LENGTH_SYMBOLS>,
    counts: [u32; LENGTH_SYMBOLS],
}

impl Head {
    fn new(literals: &Code<LITERALS>, distances: &Code<DISTANCES>) -> Self {
        let (literals_used, distances_used) = (literals.used(FIRST_LENGTH), distances.used(1));
        let mut all = [0; LITERALS + DISTANCES];
        all[..literals_used].copy_from_slice(&literals.lengths[..literals_used]);
        let all = &mut all[..literals_used + distances_used];
        all[literals_used..].copy_from_slice(&distances.lengths[..distances_used]);
        let lengths = counted(all);
        let mut counts = [0; LENGTH_SYMBOLS];
        for (symbol, _) in &lengths {
            counts[usize::from(*symbol)] += 1;
        }
        Self {
            literals: literals_used,
            distances: distances_used,
            lengths,
            code: Code::new(&counts, LENGTH_CODE_BITS_MAX),
            counts,
        }
    }

    /// How many lengths of the third code the head contains.
    fn told(&self) -> usize {
        let is_used = |symbol: &usize| self.code.lengths[*symbol] > 0;
        let last = ORDER.iter().rposition(is_used);
        last.map_or(0, |last| last + 1).max(LENGTHS_TOLD_MIN)
    }

    fn bits(&self) -> usize {
        let extra: u32 = self.lengths.iter().map(|(_, (_, bits))| bits).sum();
        14 + 3 * self.told() + self.code.bits(&self.counts) + extra as usize
    }

    fn write(&self, writer: &mut BitWriter<'_>) {
        writer.put((self.literals - FIRST_LENGTH) as u32, 5);
        writer.put((self.distances - 1) as u32, 5);
        writer.put((self.told() - LENGTHS_TOLD_MIN) as u32, 4);
        for symbol in &ORDER[..self.told()] {
            writer.put(u32::from(self.code.lengths[*symbol]), 3);
        }
        for (symbol, extra) in &self.lengths {
            writer.put_pair(joined(self.code.of(usize::from(*symbol)), *extra));
        }
    }
}

/// Lengths as symbols: repeated lengths are counted.
fn counted(lengths: &[u8]) -> Vec<(u8, Bits)> {
    let mut symbols = Vec::with_capacity(lengths.len());
    for run in lengths.chunk_by(|a, b| a == b) {
        let (length, mut rest) = (run[0], run.len());
        if length == 0 {
            while rest >= 11 {
                let count = rest.min(138);
                symbols.push((18, (count as u32 - 11, 7)));
                rest -= count;
            }
            if rest >= 3 {
                symbols.push((17, (rest as u32 - 3, 3)));
                rest = 0;
            }
        } else {
            symbols.push((length, (0, 0)));
            rest -= 1;
            while rest >= 3 {
                let count = rest.min(6);
                symbols.push((16, (count as u32 - 3, 2)));
                rest -= count;
            }
        }
        symbols.extend(std::iter::repeat_n((length, (0, 0)), rest));
    }
    symbols
}

/// Blocks without compression (RFC 1951, section 3.2.4).
fn write_stored(plain: &[u8], writer: &mut BitWriter<'_>) {
    for part in plain.chunks(STORED_BYTES_MAX) {
        writer.put(0, 3);
        writer.align();
        let length = part.len() as u16;
        writer.bytes(&length.to_le_bytes());
        writer.bytes(&(!length).to_le_bytes());
        writer.bytes(part);
    }
}

/// The symbol of each length and its extra bits; the first three are no lengths.
const LENGTHS: [(u16, Bits); LENGTH_MAX + 1] = {
    let mut symbols = [(0, (0, 0)); LENGTH_MAX + 1];
    let mut length = 3;
    while length <= LENGTH_MAX {
        let (symbol, extra) = length_symbol(length as u32);
        symbols[length] = (symbol as u16, extra);
        length += 1;
    }
    symbols
};

/// The fixed codes, for a block that contains no codes of its own.
static FIXED: std::sync::LazyLock<(Code<LITERALS>, Code<DISTANCES>)> =
    std::sync::LazyLock::new(|| {
        let length = |symbol| match symbol {
            0..=143 => 8,
            144..=255 => 9,
            256..=279 => 7,
            _ => 8,
        };
        (
            Code::from_lengths(std::array::from_fn(length)),
            Code::from_lengths([5; DISTANCES]),
        )
    });

/// A block of more would have parts that want different codes.
const TOKENS_MAX: usize = 16 * 1024;

const DISTANCE_BITS: u32 = 16;

/// Symbols of literals and lengths; the last two occur in no block, but have a place in the fixed code.
const LITERALS: usize = 288;
const DISTANCES: usize = 30;
const FIRST_LENGTH: usize = 257;
const LAST_LENGTH: usize = 285;
const CODE_BITS_MAX: usize = 15;

/// Symbols that encode the lengths of codes.
const LENGTH_SYMBOLS: usize = 19;
const LENGTH_CODE_BITS_MAX: usize = 7;
const LENGTHS_TOLD_MIN: usize = 4;

/// The order in which a head contains the lengths of their codes.
const ORDER: [usize; LENGTH_SYMBOLS] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];

/// Not the last block; fixed codes.
const FIXED_BLOCK: u32 = 0b010;

/// Not the last block; codes of its own.
const OWN_BLOCK: u32 = 0b100;

const STORED_BYTES_MAX: usize = 0xFFFF;
const STORED_OVERHEAD_BYTES: usize = 5;
