//! The Huffman code of header strings (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: it follows from the lengths of its 257 codes. All tables are made from them at compile time.

/// Appends the decoded text. False, with part of it appended, if the bytes are not of the code: they hold the end of a
/// string, or their padding is longer than 7 bits or not of ones.
#[must_use]
pub(super) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let mut node = ROOT;
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            let step = STEPS[node as usize][nibble as usize];
            if step.is_end {
                return false;
            }
            if step.has_symbol {
                out.push(step.symbol);
            }
            node = step.node;
        }
    }
    PADDINGS[node as usize]
}

/// The bytes that [`encode`] appends.
#[must_use]
pub(super) fn encoded_length(text: &[u8]) -> usize {
    let bits: usize = text
        .iter()
        .map(|byte| usize::from(LENGTHS[usize::from(*byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Appends the encoded text.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut held) = (0_u64, 0_u32);
    for byte in text {
        let symbol = usize::from(*byte);
        let length = u32::from(LENGTHS[symbol]);
        bits = bits << length | u64::from(CODES[symbol]);
        held += length;
        while held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    if held > 0 {
        let padding = 8 - held;
        out.push((bits << padding) as u8 | ((1 << padding) - 1) as u8);
    }
}

/// Four bits from a node of the code's tree: the next node, and a symbol if one is complete. The shortest code has five
/// bits, so there is at most one.
#[derive(Clone, Copy)]
struct Step {
    node: u8,
    symbol: u8,
    has_symbol: bool,
    /// The symbol is the end of a string, which may not occur.
    is_end: bool,
}

/// The tree: each inner node's two children, as an inner node or `LEAF` and a symbol.
struct Tree {
    children: [[u16; 2]; NODES],
    used: usize,
}

const fn codes() -> [u32; SYMBOLS] {
    let mut codes = [0; SYMBOLS];
    let (mut code, mut length) = (0_u32, 1_u8);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] == length {
                codes[symbol] = code;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        length += 1;
    }
    codes
}

const fn tree() -> Tree {
    let mut tree = Tree {
        children: [[NONE; 2]; NODES],
        used: 1,
    };
    let mut symbol = 0;
    while symbol < SYMBOLS {
        let mut node = 0;
        let mut left = LENGTHS[symbol];
        while left > 0 {
            left -= 1;
            let bit = (CODES[symbol] >> left & 1) as usize;
            if left == 0 {
                tree.children[node][bit] = LEAF | symbol as u16;
            } else {
                if tree.children[node][bit] == NONE {
                    tree.children[node][bit] = tree.used as u16;
                    tree.used += 1;
                }
                node = tree.children[node][bit] as usize;
            }
        }
        symbol += 1;
    }
    tree
}

const fn steps() -> [[Step; 16]; NODES] {
    let tree = tree();
    let nothing = Step {
        node: 0,
        symbol: 0,
        has_symbol: false,
        is_end: false,
    };
    let mut steps = [[nothing; 16]; NODES];
    let mut start = 0;
    while start < NODES {
        let mut nibble = 0;
        while nibble < 16 {
            let mut step = nothing;
            let mut node = start;
            let mut bit = 4;
            while bit > 0 {
                bit -= 1;
                let child = tree.children[node][nibble >> bit & 1];
                if child & LEAF == 0 {
                    node = child as usize;
                } else {
                    let symbol = child & !LEAF;
                    step.is_end |= symbol as usize == END;
                    step.symbol = symbol as u8;
                    step.has_symbol = true;
                    node = 0;
                }
            }
            step.node = node as u8;
            steps[start][nibble] = step;
            nibble += 1;
        }
        start += 1;
    }
    steps
}

/// The nodes at which a string may end: after at most seven ones.
const fn paddings() -> [bool; NODES] {
    let tree = tree();
    let mut paddings = [false; NODES];
    let (mut node, mut ones) = (0, 0);
    while ones <= 7 {
        paddings[node] = true;
        node = tree.children[node][1] as usize;
        ones += 1;
    }
    paddings
}

static STEPS: [[Step; 16]; NODES] = steps();
static PADDINGS: [bool; NODES] = paddings();
static CODES: [u32; SYMBOLS] = codes();

/// All bytes, and the end of a string.
const SYMBOLS: usize = 257;
const END: usize = 256;
/// Inner nodes of a full binary tree.
const NODES: usize = SYMBOLS - 1;
const ROOT: u8 = 0;
const LEAF: u16 = 1 << 15;
const NONE: u16 = LEAF - 1;
const LONGEST: u8 = 30;

/// Bits of each symbol's code (RFC 7541, appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        assert_eq!(out.len(), encoded_length(text));
        out
    }

    /// The examples of RFC 7541, appendix C.
    #[test]
    fn the_code_is_that_of_the_standard() {
        for (text, bytes) in [
            (
                &b"www.example.com"[..],
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ][..],
            ),
            (b"no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            (b"302", &[0x64, 0x02]),
            (b"", &[]),
        ] {
            assert_eq!(encoded(text), bytes);
        }
    }

    #[test]
    fn the_end_of_a_string_and_other_padding_are_no_text() {
        for bytes in [
            // The end of a string, 30 ones.
            &[0xff, 0xff, 0xff, 0xff][..],
            // Eight ones, of which seven are the most.
            &[0xff],
            // `a` and padding of zeros.
            &[0b0001_1000],
            // `a` and padding of three ones and eight more.
            &[0b0001_1111, 0xff],
        ] {
            assert!(!decode(bytes, &mut Vec::new()), "{bytes:x?}");
        }
        assert!(decode(&[0b0001_1111], &mut Vec::new()));
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text: Vec<u8>) {
            let mut out = Vec::new();
            prop_assert!(decode(&encoded(&text), &mut out));
            prop_assert_eq!(out, text);
        }

        #[test]
        fn what_decodes_is_what_would_be_encoded(bytes: Vec<u8>) {
            let mut out = Vec::new();
            if decode(&bytes, &mut out) {
                prop_assert_eq!(encoded(&out), bytes);
            }
        }
    }
}
