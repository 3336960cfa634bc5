//! Huffman codes of limited length (RFC 1951, section 3.2.2), made from how often symbols occur.

use super::bits::reversed;

/// A code of up to `N` symbols.
#[derive(Debug, Clone)]
pub(super) struct Code<const N: usize> {
    /// How long the code of each symbol is; 0 for one that does not occur.
    pub(super) lengths: [u8; N],
    /// As they are written, the first bit lowest.
    pub(super) codes: [u16; N],
}

impl<const N: usize> Code<N> {
    /// The best code with at most `length_max` bits per symbol, or nearly: beyond the limit bits are moved by the rule
    /// of zlib. A code has at least two symbols, because some decoders accept no other.
    pub(super) fn new(counts: &[u32; N], length_max: usize) -> Self {
        let mut used = [0u32; N];
        let mut len = 0;
        for (symbol, count) in counts.iter().enumerate() {
            if *count > 0 {
                used[len] = (*count).min(COUNT_MAX) << SYMBOL_BITS | symbol as u32;
                len += 1;
            }
        }
        if len < 2 {
            return Self::of_two(counts);
        }
        let used = &mut used[..len];
        used.sort_unstable();
        let mut lengths = [0; N];
        let mut at_length = lengths_of(used);
        limit(&mut at_length, length_max);
        // The rarest symbols get the longest codes.
        let mut symbols = used.iter().map(|entry| (entry & SYMBOL_MASK) as usize);
        for (length, count) in at_length.iter().enumerate().rev() {
            for symbol in symbols.by_ref().take(*count as usize) {
                lengths[symbol] = length as u8;
            }
        }
        Self::from_lengths(lengths)
    }

    /// The one symbol that occurs, if any, and another one.
    fn of_two(counts: &[u32; N]) -> Self {
        let first = counts.iter().position(|count| *count > 0).unwrap_or(0);
        let mut lengths = [0; N];
        lengths[first] = 1;
        lengths[usize::from(first == 0)] = 1;
        Self::from_lengths(lengths)
    }

    /// The codes that follow from their lengths.
    pub(super) fn from_lengths(lengths: [u8; N]) -> Self {
        let mut at_length = [0u16; LENGTH_MAX + 1];
        for length in lengths {
            at_length[usize::from(length)] += 1;
        }
        at_length[0] = 0;
        let mut next = [0u16; LENGTH_MAX + 2];
        for length in 1..=LENGTH_MAX {
            next[length + 1] = (next[length] + at_length[length]) << 1;
        }
        let mut codes = [0; N];
        for (code, length) in codes.iter_mut().zip(lengths) {
            if length > 0 {
                let next = &mut next[usize::from(length)];
                *code = reversed(u32::from(*next), u32::from(length)) as u16;
                *next += 1;
            }
        }
        Self { lengths, codes }
    }

    /// The number of symbols up to the last one that occurs, but at least `least`.
    pub(super) fn used(&self, least: usize) -> usize {
        let last = self.lengths.iter().rposition(|length| *length > 0);
        last.map_or(0, |last| last + 1).max(least)
    }

    /// The bits of all symbols by their counts, without extra bits.
    pub(super) fn bits(&self, counts: &[u32; N]) -> usize {
        let each = counts.iter().zip(self.lengths);
        each.map(|(count, length)| *count as usize * usize::from(length))
            .sum()
    }
}

/// How many symbols have codes of each length, without a limit: minimum redundancy by Moffat and Katajainen, "In-place
/// calculation of minimum-redundancy codes" (1995). `used` is sorted by the counts.
fn lengths_of(used: &[u32]) -> [u32; LENGTHS] {
    let len = used.len();
    let mut nodes = [0u32; SYMBOLS_MAX];
    let nodes = &mut nodes[..len];
    for (node, entry) in nodes.iter_mut().zip(used) {
        *node = entry >> SYMBOL_BITS;
    }
    // Pairs of the least nodes become inner nodes, whose places then hold the numbers of their parents.
    let (mut leaf, mut root) = (0, 0);
    for next in 0..len - 1 {
        let mut sum = 0;
        for _ in 0..2 {
            let takes_inner = leaf >= len || (root < next && nodes[root] < nodes[leaf]);
            if takes_inner {
                sum += nodes[root];
                nodes[root] = next as u32;
                root += 1;
            } else {
                sum += nodes[leaf];
                leaf += 1;
            }
        }
        nodes[next] = sum;
    }
    // The depths of inner nodes, from the root down.
    nodes[len - 2] = 0;
    for node in (0..len - 2).rev() {
        nodes[node] = nodes[nodes[node] as usize] + 1;
    }
    // At each depth, a node that is not an inner node is a leaf.
    let mut at_length = [0; LENGTHS];
    let (mut available, mut depth, mut inner) = (1, 0, len - 1);
    while available > 0 {
        let mut inner_here = 0;
        while inner > 0 && nodes[inner - 1] == depth {
            inner_here += 1;
            inner -= 1;
        }
        at_length[(depth as usize).min(LENGTHS - 1)] += available - inner_here;
        available = 2 * inner_here;
        depth += 1;
    }
    at_length
}

/// Moves codes that are too long up, and makes room for them where codes are short.
fn limit(at_length: &mut [u32; LENGTHS], length_max: usize) {
    let too_long: u32 = at_length[length_max + 1..].iter().sum();
    at_length[length_max + 1..].fill(0);
    at_length[length_max] += too_long;
    let whole = 1u32 << length_max;
    let share = |(length, count): (usize, &u32)| *count << (length_max - length);
    let mut total: u32 = at_length[..=length_max]
        .iter()
        .enumerate()
        .skip(1)
        .map(share)
        .sum();
    while total > whole {
        at_length[length_max] -= 1;
        let shorter = (1..length_max).rev().find(|length| at_length[*length] > 0);
        if let Some(length) = shorter {
            at_length[length] -= 1;
            at_length[length + 1] += 2;
        }
        total -= 1;
    }
}

const SYMBOL_BITS: u32 = 9;
const SYMBOL_MASK: u32 = (1 << SYMBOL_BITS) - 1;
const COUNT_MAX: u32 = u32::MAX >> SYMBOL_BITS;
const SYMBOLS_MAX: usize = 288;
/// The longest code of deflate.
const LENGTH_MAX: usize = 15;
/// Lengths that are counted separately before they are limited.
const LENGTHS: usize = 33;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every bit pattern stands for a symbol, once.
    fn assert_complete<const N: usize>(code: &Code<N>, length_max: u32) {
        let share = |length: &u8| 1u32 << (length_max - u32::from(*length));
        let used = code.lengths.iter().filter(|length| **length > 0);
        assert_eq!(used.map(share).sum::<u32>(), 1 << length_max);
    }

    #[test]
    fn few_symbols_make_a_code_of_two() {
        for (counts, lengths) in [
            ([0, 0, 0], [1, 1, 0]),
            ([5, 0, 0], [1, 1, 0]),
            ([0, 0, 9], [1, 0, 1]),
            ([1, 0, 9], [1, 0, 1]),
        ] {
            assert_eq!(Code::new(&counts, 15).lengths, lengths, "{counts:?}");
        }
    }

    #[test]
    fn lengths_are_the_best_and_codes_in_order() {
        let code = Code::new(&[10, 1, 2, 0, 4], 15);
        assert_eq!(code.lengths, [1, 3, 3, 0, 2]);
        // 0, 110, 111 and 10, the first bit lowest.
        assert_eq!(code.codes, [0b0, 0b011, 0b111, 0, 0b01]);
    }

    proptest! {
        #[test]
        fn codes_are_complete_and_short_enough(
            counts in prop::collection::vec(prop_oneof![Just(0u32), 0..10u32, 0..100_000u32], 30),
        ) {
            let counts: [u32; 30] = counts.try_into().expect("as many");
            for length_max in [5, 7, 15] {
                let code = Code::new(&counts, length_max);
                assert_complete(&code, length_max as u32);
                let used = code.lengths.iter().zip(counts);
                prop_assert!(used.clone().all(|(length, count)| count == 0 || *length > 0));
                prop_assert!(used.clone().all(|(length, _)| usize::from(*length) <= length_max));
            }
        }
    }
}
