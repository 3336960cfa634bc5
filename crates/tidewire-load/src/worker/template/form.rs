//! Forms of a whole number in bytes: of lengths, and of numbers such as the identifier of a packet.

/// A form of a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Seven bits in each byte, the lowest first; the highest bit of a byte is set if another one follows. At most
    /// four bytes, as MQTT has it.
    Varint,
    /// This number of bytes, the highest first.
    Big(usize),
    /// This number of bytes, the lowest first.
    Little(usize),
}

/// The number at the beginning of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// The number, and how many bytes it has.
    Number(u64, usize),
    /// The bytes are the beginning of one.
    Incomplete,
    /// It has more than four bytes.
    Wrong,
}

impl Form {
    /// Each with its name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("varint", Self::Varint),
        ("u8", Self::Big(1)),
        ("u16", Self::Big(2)),
        ("u32", Self::Big(4)),
        ("u16le", Self::Little(2)),
        ("u32le", Self::Little(4)),
    ];

    /// The form with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, form)| *form)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, form)| *form == self);
        known.map_or("", |(name, _)| name)
    }

    /// The largest number of this form.
    #[must_use]
    pub const fn largest(self) -> u64 {
        match self {
            Self::Varint => (1 << (7 * VARINT_BYTES_MAX)) - 1,
            Self::Big(bytes) | Self::Little(bytes) => (1 << (8 * bytes)) - 1,
        }
    }

    /// The number in the range of this form: after the largest one follows 1, so that a number above 0 never becomes 0.
    #[must_use]
    pub const fn wrapped(self, number: u64) -> u64 {
        match number {
            0 => 0,
            number => (number - 1) % self.largest() + 1,
        }
    }

    /// Inserts a number, which is not above the largest, at a place of some bytes.
    pub fn insert(self, number: u64, out: &mut Vec<u8>, at: usize) {
        let bytes = number.to_be_bytes();
        match self {
            Self::Varint => {
                let (mut digits, mut count, mut rest) = ([0; VARINT_BYTES_MAX], 0, number);
                for digit in &mut digits {
                    count += 1;
                    *digit = (rest & 0x7f) as u8;
                    rest >>= 7;
                    if rest == 0 {
                        break;
                    }
                    *digit |= 0x80;
                }
                out.splice(at..at, digits.into_iter().take(count));
            }
            Self::Big(count) => {
                out.splice(at..at, bytes[bytes.len() - count..].iter().copied());
            }
            Self::Little(count) => {
                out.splice(at..at, bytes.into_iter().rev().take(count));
            }
        }
    }

    /// Appends a number, which is not above the largest.
    pub fn write(self, number: u64, out: &mut Vec<u8>) {
        self.insert(number, out, out.len());
    }

    /// The number at the beginning of some bytes.
    #[must_use]
    pub fn read(self, bytes: &[u8]) -> Read {
        let (Self::Big(count) | Self::Little(count)) = self else {
            return read_varint(bytes);
        };
        let Some(bytes) = bytes.get(..count) else {
            return Read::Incomplete;
        };
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let number = match self {
            Self::Little(_) => bytes.iter().rev().fold(0, join),
            _ => bytes.iter().fold(0, join),
        };
        Read::Number(number, count)
    }
}

fn read_varint(bytes: &[u8]) -> Read {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Read::Number(number, at + 1);
        }
    }
    match bytes.len() < VARINT_BYTES_MAX {
        true => Read::Incomplete,
        false => Read::Wrong,
    }
}

/// MQTT 3.1.1 and 5, section 2.2.3 and 1.5.5.
const VARINT_BYTES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_the_bytes_of_their_form() {
        for (name, number, expected) in [
            ("u8", 255, &[255][..]),
            ("u16", 258, &[1, 2]),
            ("u16le", 258, &[2, 1]),
            ("u32", 0x0102_0304, &[1, 2, 3, 4]),
            ("u32le", 0x0102_0304, &[4, 3, 2, 1]),
            // The examples of MQTT 3.1.1, table 2.4.
            ("varint", 0, &[0]),
            ("varint", 127, &[0x7f]),
            ("varint", 128, &[0x80, 1]),
            ("varint", 16_383, &[0xff, 0x7f]),
            ("varint", 16_384, &[0x80, 0x80, 1]),
            ("varint", 268_435_455, &[0xff, 0xff, 0xff, 0x7f]),
        ] {
            let form = Form::of(name).unwrap();
            let mut out = Vec::new();
            form.write(number, &mut out);
            assert_eq!(out, expected, "{name} {number}");
            assert_eq!((form.name(), form.wrapped(number)), (name, number));
            assert_eq!(form.read(expected), Read::Number(number, expected.len()));
            let cut = &expected[..expected.len() - 1];
            assert_eq!(form.read(cut), Read::Incomplete, "{name} {number}");
        }
        assert_eq!(Form::of("u24"), None);
        assert_eq!(Form::Varint.read(&[0x80; 4]), Read::Wrong);
    }

    #[test]
    fn numbers_beyond_the_largest_begin_again_at_1() {
        for (form, number, expected) in [
            (Form::Big(2), 0, 0),
            (Form::Big(2), 65_535, 65_535),
            (Form::Big(2), 65_536, 1),
            (Form::Big(2), 2 * 65_535, 65_535),
            (Form::Big(1), 256, 1),
            (Form::Varint, 1 << 28, 1),
        ] {
            assert_eq!(form.wrapped(number), expected, "{form:?} {number}");
        }
    }

    proptest! {
        #[test]
        fn a_number_is_read_as_it_is_written(place in 0..Form::ALL.len(), number: u64, after: Vec<u8>) {
            let (_, form) = Form::ALL[place];
            let number = form.wrapped(number);
            let mut bytes = after.clone();
            form.insert(number, &mut bytes, 0);
            let length = bytes.len() - after.len();
            prop_assert_eq!(form.read(&bytes), Read::Number(number, length));
        }
    }
}
