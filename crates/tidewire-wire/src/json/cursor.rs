//! A walk through JSON text that parses only the values that are asked for and passes over all others.
//!
//! Values found in valid JSON are right. In text that is not JSON the walk ends early or finds some value. No
//! step goes back, so that every walk ends.

use super::number::Number;
use super::scan::plain_bytes;
use std::borrow::Cow;

/// A place in JSON text.
#[derive(Clone)]
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

/// The value at a place.
#[derive(Debug)]
pub enum Found<'a> {
    /// No such field.
    Missing,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
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
    /// A cursor at the first value of the text.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        let mut cursor = Self { text, at: 0 };
        cursor.pass_space();
        cursor
    }

    /// The byte here.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Goes past the byte here, which is the bracket that opens an array or an object.
    #[inline]
    pub fn enter(&mut self) {
        self.at += 1;
    }

    /// Returns the name of the next member of the object and goes to its value. After the last member it
    /// returns `None` and goes past the object.
    #[inline]
    pub fn next_name(&mut self) -> Option<Cow<'a, [u8]>> {
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
                // A name that is not Unicode is no field's.
                _ => self.pass_value()?,
            }
        }
    }

    /// Goes to the next element of the array. After the last one it returns `None` and goes
    /// past the array.
    #[inline]
    pub fn next_element(&mut self) -> Option<()> {
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
    pub fn value(&mut self) -> Option<Found<'a>> {
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
    pub fn pass_value(&mut self) -> Option<()> {
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

    /// Goes past the array or object that the cursor is inside of.
    pub fn leave(&mut self) -> Option<()> {
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

/// The index after the quote that ends the string whose content starts at `at`, and whether the content has an
/// escape.
#[inline]
fn string_end(text: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut is_escaped = false;
    loop {
        at += plain_bytes::<false>(text.get(at..)?);
        if *text.get(at)? == b'"' {
            return Some((at + 1, is_escaped));
        }
        is_escaped = true;
        at += 2;
    }
}

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
        fn any_text_ends(text in "[\\[\\]{}\",:\\\\tfn0-9. ]{0,40}") {
            let mut cursor = Cursor::new(text.as_bytes());
            cursor.enter();
            while cursor.next_name().is_some() && cursor.pass_value().is_some() {}
            let mut cursor = Cursor::new(text.as_bytes());
            while cursor.next_element().is_some() && cursor.pass_value().is_some() {}
        }
    }
}
