//! Reading JSON text in place: only what is asked for is parsed, all else is passed over.
//!
//! What is found in valid JSON is right. Text that is not JSON ends the reading early or gives some
//! value; no step goes back, so that every reading ends.

use super::number::Number;
use std::borrow::Cow;

/// A place in JSON text.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

/// What there is in a place.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// No such field.
    Missing,
    Null,
    Bool(bool),
    Number(Number),
    /// A string without its escapes.
    Text(Cow<'a, [u8]>),
    /// A string that is not Unicode.
    BrokenText,
    /// The text from the opening bracket to the end of the whole.
    Array(&'a [u8]),
    /// The text from the opening brace to the end of the whole.
    Object(&'a [u8]),
}

impl<'a> Cursor<'a> {
    /// At the first value of the text.
    pub(super) fn new(text: &'a [u8]) -> Self {
        let mut cursor = Self { text, at: 0 };
        cursor.pass_space();
        cursor
    }

    /// The byte here.
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Goes past the byte here, which is the bracket that opens an array or an object.
    pub(super) fn enter(&mut self) {
        self.at += 1;
    }

    /// The name of the next member of the object, and goes to its value. After the last member it
    /// gives `None` and goes past the object.
    #[inline]
    pub(super) fn next_name(&mut self) -> Option<Cow<'a, [u8]>> {
        loop {
            self.next_item(b'}')?;
            if self.peek()? != b'"' {
                return None;
            }
            let name = self.string()?;
            self.pass_space();
            if self.peek()? != b':' {
                return None;
            }
            self.at += 1;
            self.pass_space();
            match name {
                Found::Text(name) => return Some(name),
                // A name that is not Unicode is nobody's.
                _ => self.pass_value()?,
            }
        }
    }

    /// Goes to the next element of the array. After the last one it gives `None` and goes past the array.
    #[inline]
    pub(super) fn next_element(&mut self) -> Option<()> {
        self.next_item(b']')
    }

    #[inline]
    fn next_item(&mut self, close: u8) -> Option<()> {
        self.pass_space();
        let mut byte = self.peek()?;
        if byte == b',' {
            self.at += 1;
            self.pass_space();
            byte = self.peek()?;
        }
        if byte == close {
            self.at += 1;
            return None;
        }
        Some(())
    }

    /// Reads the value here and goes past it, but stays before an array or an object.
    #[inline]
    pub(super) fn value(&mut self) -> Option<Found<'a>> {
        let rest = self.text.get(self.at..)?;
        let (found, bytes) = match rest.first()? {
            b'"' => return self.string(),
            b'{' => (Found::Object(rest), 0),
            b'[' => (Found::Array(rest), 0),
            b't' => (Found::Bool(true), 4),
            b'f' => (Found::Bool(false), 5),
            b'n' => (Found::Null, 4),
            _ => {
                let (number, bytes) = Number::read(rest)?;
                (Found::Number(number), bytes)
            }
        };
        self.at += bytes;
        Some(found)
    }

    /// Goes past the value here.
    #[inline]
    pub(super) fn pass_value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.at = string_end(self.text, self.at + 1)?.0,
            b'{' | b'[' => {
                self.at += 1;
                self.leave()?;
            }
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | ..=b' ');
                // Of nothing but a delimiter there is no end: the reading stops there.
                self.at += self.text[self.at..]
                    .iter()
                    .position(ends)
                    .filter(|&bytes| bytes > 0)?;
            }
        }
        Some(())
    }

    /// Goes past the array or object of which this is the inside.
    pub(super) fn leave(&mut self) -> Option<()> {
        let mut depth = 1_usize;
        loop {
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b'"' => self.at = string_end(self.text, self.at)?.0,
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(());
                    }
                }
                _ => {}
            }
        }
    }

    #[inline]
    fn string(&mut self) -> Option<Found<'a>> {
        let start = self.at;
        let (end, is_escaped) = string_end(self.text, start + 1)?;
        self.at = end;
        if !is_escaped {
            return Some(Found::Text(Cow::Borrowed(&self.text[start + 1..end - 1])));
        }
        Some(unescape(&self.text[start..end]))
    }

    #[inline]
    fn pass_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }
}

#[cold]
fn unescape(quoted: &[u8]) -> Found<'static> {
    match serde_json::from_slice::<String>(quoted) {
        Ok(text) => Found::Text(Cow::Owned(text.into_bytes())),
        Err(_) => Found::BrokenText,
    }
}

/// Where the string ends whose inside is at `at`: after its quote; and whether it has an escape.
#[inline]
fn string_end(text: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut is_escaped = false;
    loop {
        at = quote_or_backslash(text, at)?;
        if text[at] == b'"' {
            return Some((at + 1, is_escaped));
        }
        is_escaped = true;
        at += 2;
    }
}

/// Looks at eight bytes at once: of those that are zero after the exclusive or, subtraction sets the high
/// bit, and the lowest bit that is set is right (Hacker's Delight, 6-1).
#[inline]
fn quote_or_backslash(text: &[u8], mut at: usize) -> Option<usize> {
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let (quotes, backslashes) = (word ^ QUOTES, word ^ BACKSLASHES);
        let zeros =
            (quotes.wrapping_sub(LOW) & !quotes) | (backslashes.wrapping_sub(LOW) & !backslashes);
        let zeros = zeros & HIGH;
        if zeros != 0 {
            return Some(at + zeros.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = text.get(at..)?;
    rest.iter()
        .position(|byte| matches!(byte, b'"' | b'\\'))
        .map(|offset| at + offset)
}

const LOW: u64 = u64::from_le_bytes([1; 8]);
const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
const QUOTES: u64 = u64::from_le_bytes([b'"'; 8]);
const BACKSLASHES: u64 = u64::from_le_bytes([b'\\'; 8]);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strings_end_at_their_quote() {
        for (text, end, is_escaped) in [
            ("\"", 1, false),
            ("abc\" \"", 4, false),
            ("abcdefgh\"", 9, false),
            ("abcdefghijklmno\"pqrstuvwxyz", 16, false),
            ("a\\\"b\"", 5, true),
            ("abcdefg\\\"\"", 10, true),
            ("\\\\\"", 3, true),
            ("\u{a3}\u{20ac}#!]\"", 9, false),
        ] {
            assert_eq!(
                string_end(text.as_bytes(), 0),
                Some((end, is_escaped)),
                "{text}"
            );
        }
        for text in ["", "abc", "abcdefgh", "\\\"", "\\", "abcdefg\\"] {
            assert_eq!(string_end(text.as_bytes(), 0), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn eight_bytes_are_as_one(text in "[\"\\\\a!#\\]\u{a2}]{0,24}", at in 0_usize..30) {
            let bytes = text.as_bytes();
            let wanted = |&index: &usize| matches!(bytes[index], b'"' | b'\\');
            prop_assert_eq!(quote_or_backslash(bytes, at), (at..bytes.len()).find(wanted));
        }

        #[test]
        fn any_text_ends(text in "[\\[\\]{}\",:\\\\tfn0-9. ]{0,40}") {
            let mut cursor = Cursor::new(text.as_bytes());
            cursor.enter();
            while cursor.next_name().is_some() && cursor.pass_value().is_some() {}
            let mut cursor = Cursor::new(text.as_bytes());
            while cursor.next_element().is_some() && cursor.pass_value().is_some() {}
        }
    }
}
