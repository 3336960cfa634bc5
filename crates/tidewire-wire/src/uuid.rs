//! UUID version 7 (RFC 9562, section 5.7): ids that sort by their time of creation.

use std::fmt;

/// A UUID as its 16 bytes, most significant first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uuid(pub [u8; 16]);

/// Creates a version 7 UUID from milliseconds since 1970 (the lower 48 bits count) and 10 random
/// bytes, of which 74 bits are used.
pub fn uuid_v7(unix_ms: u64, random: [u8; 10]) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&unix_ms.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&random);
    bytes[6] = 0x70 | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    Uuid(bytes)
}

impl Uuid {
    /// The time of a version 7 id, in milliseconds since 1970.
    #[must_use]
    pub fn unix_ms(self) -> u64 {
        self.0[..6]
            .iter()
            .fold(0, |ms, byte| ms << 8 | u64::from(*byte))
    }

    /// Appends the 36 characters: lower-case hex with hyphens.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encode());
    }

    /// Reads the 36 characters, in either case; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != TEXT_BYTES {
            return None;
        }
        let mut bytes = [0; 16];
        let mut at = 0;
        for (index, byte) in bytes.iter_mut().enumerate() {
            if HYPHEN_BEFORE.contains(&index) {
                if text[at] != b'-' {
                    return None;
                }
                at += 1;
            }
            *byte = (nibble(text[at])? << 4) | nibble(text[at + 1])?;
            at += 2;
        }
        Some(Self(bytes))
    }

    fn encode(&self) -> [u8; TEXT_BYTES] {
        let mut text = [b'-'; TEXT_BYTES];
        let mut at = 0;
        for (index, byte) in self.0.iter().enumerate() {
            if HYPHEN_BEFORE.contains(&index) {
                at += 1;
            }
            text[at] = HEX[usize::from(byte >> 4)];
            text[at + 1] = HEX[usize::from(byte & 0x0f)];
            at += 2;
        }
        text
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.encode() {
            fmt::Write::write_char(f, char::from(byte))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

const TEXT_BYTES: usize = 36;
const HYPHEN_BEFORE: [usize; 4] = [4, 6, 8, 10];
const HEX: [u8; 16] = *b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 9562, appendix A.6.
        let random = [0xc, 0xc3, 0x18, 0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f];
        let uuid = uuid_v7(0x017F_22E2_79B0, random);
        assert_eq!(uuid.to_string(), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
    }

    #[test]
    fn later_ids_sort_after_earlier_ones() {
        assert!(uuid_v7(1000, [0xff; 10]) < uuid_v7(1001, [0; 10]));
    }

    #[test]
    fn only_the_hyphenated_form_is_read() {
        for wrong in [
            "",
            "017f22e279b07cc398c4dc0c0c07398f",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398g",
            "017f22e2_79b0-7cc3-98c4-dc0c0c07398f",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398é",
        ] {
            assert_eq!(Uuid::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trip(bytes: [u8; 16]) {
            let mut text = Vec::new();
            Uuid(bytes).write(&mut text);
            let text = String::from_utf8(text).unwrap();
            prop_assert_eq!(Uuid::parse(&text), Some(Uuid(bytes)));
            prop_assert_eq!(Uuid::parse(&text.to_uppercase()), Some(Uuid(bytes)));
        }
    }
}
