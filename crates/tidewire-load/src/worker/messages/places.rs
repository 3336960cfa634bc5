//! Places in a message, counted in bytes.

use std::str::FromStr;

use crate::worker::template::form::{Form, Read};

/// The bytes of a message, and where its content begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes<'m> {
    pub(super) all: &'m [u8],
    /// After the length, or 0 if the message has none.
    pub(super) content_at: usize,
}

/// A place in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// After this number of bytes.
    Start(usize),
    /// After this number of bytes of its content, which begins after its length.
    Content(usize),
    /// Before its last bytes, this number of them.
    End(usize),
}

/// A part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    from: Place,
    /// Its end, if that is not the end of the message.
    to: Option<Place>,
}

/// A number in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    span: Span,
    /// Its form.
    pub form: Form,
}

/// Some bytes at a place: digits of which some may be any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    at: Place,
    /// The bits that count of each byte, and their values.
    bytes: Vec<(u8, u8)>,
}

impl Place {
    fn index(self, message: Bytes<'_>) -> Option<usize> {
        let length = message.all.len();
        match self {
            Self::Start(at) => Some(at),
            Self::Content(at) => message.content_at.checked_add(at),
            Self::End(before) => length.checked_sub(before),
        }
        .filter(|at| *at <= length)
    }
}

impl FromStr for Place {
    type Err = ();

    /// `3`, `+3` or `-3`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, digits): (fn(usize) -> Self, &str) = match text.split_at_checked(1) {
            Some(("+", digits)) => (Self::Content, digits),
            Some(("-", digits)) => (Self::End, digits),
            _ => (Self::Start, text),
        };
        let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| is_number);
        number.map(kind).ok_or(())
    }
}

impl Span {
    pub(super) fn of(self, message: Bytes<'_>) -> Option<&[u8]> {
        let from = self.from.index(message)?;
        let to = match self.to {
            Some(to) => to.index(message)?,
            None => message.all.len(),
        };
        message.all.get(from..to)
    }

    /// Its length, if that is the same for all messages.
    fn bytes(self) -> Option<usize> {
        match (self.from, self.to?) {
            (Place::Start(from), Place::Start(to)) | (Place::Content(from), Place::Content(to)) => {
                to.checked_sub(from)
            }
            (Place::End(from), Place::End(to)) => from.checked_sub(to),
            _ => None,
        }
    }
}

impl FromStr for Span {
    type Err = ();

    /// `2..4`, or without an end `2..`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (from, to) = text.split_once("..").ok_or(())?;
        let to = Some(to).filter(|to| !to.is_empty());
        let span = Self {
            from: from.parse()?,
            to: to.map(str::parse).transpose()?,
        };
        match (span.to, span.bytes()) {
            (Some(Place::Start(_) | Place::Content(_)), Some(0)) => Err(()),
            (Some(to), None)
                if std::mem::discriminant(&to) == std::mem::discriminant(&span.from) =>
            {
                Err(())
            }
            _ => Ok(span),
        }
    }
}

impl Number {
    pub(super) fn of(self, message: Bytes<'_>) -> Option<u64> {
        match self.form.read(self.span.of(message)?) {
            Read::Number(number, _) => Some(number),
            Read::Incomplete | Read::Wrong => None,
        }
    }
}

impl FromStr for Number {
    type Err = ();

    /// `2..4`: one, two or four bytes, the highest first.
    fn from_str(text: &str) -> Result<Self, ()> {
        let span: Span = text.parse()?;
        match span.bytes() {
            Some(bytes @ (1 | 2 | 4)) => Ok(Self {
                span,
                form: Form::Big(bytes),
            }),
            _ => Err(()),
        }
    }
}

impl Mask {
    /// From a place, and digits such as `3? 00`.
    #[must_use]
    pub fn new(at: &str, digits: &str) -> Option<Self> {
        let nibble = |digit: char| match digit {
            '?' => Some((0, 0)),
            digit => Some((0xf, digit.to_digit(16)? as u8)),
        };
        let digits = digits.chars().filter(|digit| !digit.is_whitespace());
        let nibbles: Vec<(u8, u8)> = digits.map(nibble).collect::<Option<_>>()?;
        let is_whole = nibbles.len().is_multiple_of(2) && !nibbles.is_empty();
        let join = |pair: &[(u8, u8)]| (pair[0].0 << 4 | pair[1].0, pair[0].1 << 4 | pair[1].1);
        Some(Self {
            at: at.parse().ok().filter(|_| is_whole)?,
            bytes: nibbles.chunks_exact(2).map(join).collect(),
        })
    }

    pub(super) fn holds(&self, message: Bytes<'_>) -> bool {
        let there = self.at.index(message).map(|at| &message.all[at..]);
        there.is_some_and(|there| {
            let mut pairs = self.bytes.iter().zip(there);
            there.len() >= self.bytes.len()
                && pairs.all(|((mask, value), byte)| byte & mask == *value)
        })
    }

    /// The first bytes that a message may have, if it restricts them.
    pub(super) fn first_bytes(&self) -> Option<impl Iterator<Item = u8>> {
        let (mask, value) = *self.bytes.first().filter(|_| self.at == Place::Start(0))?;
        let fits = move |byte: &u8| byte & mask == value;
        (mask != 0).then(|| (0..=u8::MAX).filter(fits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(content_at: usize) -> Bytes<'static> {
        Bytes {
            all: &[0x40, 0x03, 0x01, 0x02, 0x87],
            content_at,
        }
    }

    #[test]
    fn spans_are_parts_of_a_message() {
        for (text, expected) in [
            ("2..4", Some(&[1, 2][..])),
            ("4..", Some(&[0x87])),
            ("5..", Some(&[])),
            ("6..", None),
            ("3..6", None),
            ("+0..+2", Some(&[1, 2])),
            ("+2..", Some(&[0x87])),
            ("-1..", Some(&[0x87])),
            ("0..-4", Some(&[0x40])),
            ("-6..", None),
            ("4..-3", None),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.of(message(2)), expected, "{text}");
        }
        for wrong in [
            "", "2", "..", "..4", "4..2", "2..2", "a..b", "2..+", "--1..", "+-1..",
        ] {
            assert_eq!(wrong.parse::<Span>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn numbers_have_one_two_or_four_bytes() {
        for (text, expected) in [
            ("2..4", Some(0x0102)),
            ("+0..+2", Some(0x0102)),
            ("-1..-0", Some(0x87)),
            ("0..4", Some(0x4003_0102)),
            ("4..6", None),
        ] {
            let number: Number = text.parse().unwrap();
            assert_eq!(number.of(message(2)), expected, "{text}");
        }
        for wrong in ["2..", "2..5", "2..+4", "2"] {
            assert_eq!(wrong.parse::<Number>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn masks_hold_for_the_bytes_that_they_name() {
        for (at, digits, expected) in [
            ("0", "40", true),
            ("0", "4?", true),
            ("0", "?1", false),
            ("0", "4? 03 01", true),
            ("3", "0287", true),
            ("4", "87 00", false),
            ("5", "00", false),
            ("+2", "8?", true),
            ("+2", "9?", false),
            ("-1", "87", true),
            ("-5", "40", true),
            ("-6", "40", false),
        ] {
            let mask = Mask::new(at, digits).unwrap();
            assert_eq!(mask.holds(message(2)), expected, "{at} {digits}");
        }
        for (at, digits) in [("0", ""), ("0", "4"), ("0", "4x"), ("a", "40"), ("", "40")] {
            assert_eq!(Mask::new(at, digits), None, "{at} {digits}");
        }
    }

    #[test]
    fn a_mask_at_the_start_names_first_bytes() {
        let first = |at: &str, digits: &str| {
            let mask = Mask::new(at, digits).unwrap();
            mask.first_bytes().map(Iterator::collect::<Vec<_>>)
        };
        assert_eq!(first("0", "40 00"), Some(vec![0x40]));
        assert_eq!(first("0", "3?"), Some((0x30..=0x3f).collect()));
        assert_eq!((first("0", "??"), first("1", "40")), (None, None));
    }
}
