//! A value as a view of bytes that a [`Scanner`] has passed.

use crate::resp::scanner::{Limits, Scanner, integer, length};

/// A value. What it contains is read when it is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// `+`, and every kind of string with a length.
    Text(&'a [u8]),
    /// `-` or `!`.
    Error(&'a [u8]),
    /// `:`.
    Integer(i64),
    /// `#`.
    Boolean(bool),
    /// `,` or `(`, as it is written.
    Number(&'a [u8]),
    /// `*` or `~`.
    Array(Items<'a>),
    /// `%`, keys and values in turn.
    Map(Items<'a>),
    /// `>`, which answers no command.
    Push(Items<'a>),
}

/// The values inside a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Items<'a> {
    remaining: usize,
    rest: &'a [u8],
}

impl<'a> Value<'a> {
    /// The value in bytes whose length a [`Scanner`] has given. Other bytes give [`Value::Null`].
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self::read(bytes).unwrap_or(Value::Null)
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut bytes = bytes;
        // The link needs no attributes.
        while bytes.first() == Some(&b'|') {
            let (text, rest) = line(bytes)?;
            let mut items = Items {
                remaining: 2 * count(text)?,
                rest,
            };
            while items.next().is_some() {}
            bytes = items.rest;
        }
        let (text, rest) = line(bytes)?;
        Some(match *bytes.first()? {
            b'+' => Value::Text(text),
            b'-' => Value::Error(text),
            b':' => Value::Integer(integer(text).ok()?),
            b'#' => Value::Boolean(text == b"t"),
            b',' | b'(' => Value::Number(text),
            b'$' if text == b"-1" => Value::Null,
            b'$' => Value::Text(rest.get(..count(text)?)?),
            b'=' => Value::Text(rest.get(4..count(text)?)?),
            b'!' => Value::Error(rest.get(..count(text)?)?),
            b'*' if text == b"-1" => Value::Null,
            b'*' | b'~' => Value::Array(Items {
                remaining: count(text)?,
                rest,
            }),
            b'>' => Value::Push(Items {
                remaining: count(text)?,
                rest,
            }),
            b'%' => Value::Map(Items {
                remaining: count(text)?.checked_mul(2)?,
                rest,
            }),
            _ => Value::Null,
        })
    }

    /// The bytes of a string; `None` for anything else.
    #[must_use]
    pub fn text(self) -> Option<&'a [u8]> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number, also if it is written as a string.
    #[must_use]
    pub fn unsigned(self) -> Option<u64> {
        match self {
            Value::Integer(number) => u64::try_from(number).ok(),
            Value::Text(text) => crate::layout::number(text),
            _ => None,
        }
    }

    /// The content of an array, a map or a push; nothing for anything else.
    #[must_use]
    pub fn items(self) -> Items<'a> {
        match self {
            Value::Array(items) | Value::Map(items) | Value::Push(items) => items,
            _ => Items {
                remaining: 0,
                rest: &[],
            },
        }
    }
}

impl Items<'_> {
    /// How many values are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.remaining
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        let everything = Limits {
            string_bytes_max: usize::MAX,
            value_bytes_max: usize::MAX / 4,
        };
        // It was scanned before as a part of the whole.
        let length = Scanner::new(everything).scan(self.rest).ok()??;
        let (item, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(Value::of(item))
    }
}

/// The text of the first line behind its first byte, and what follows.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', bytes)?;
    Some((bytes.get(1..end.checked_sub(1)?)?, &bytes[end + 1..]))
}

fn count(text: &[u8]) -> Option<usize> {
    usize::try_from(length(text).ok()?).ok()
}
