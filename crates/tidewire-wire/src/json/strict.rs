//! A cursor that checks all of a JSON text, for parts that are forwarded unchanged.
//!
//! A text that passes here reads as JSON everywhere in this project: each string has a meaning in UTF-8, each
//! number is finite, and nothing is nested too deep. The text must be valid UTF-8 already.

use super::scan::string_end;
use super::{AROUND_PAYLOAD, JsonError, NESTING_MAX, check};

/// Checks that a text is one JSON value that reads as such everywhere, also inside a message that has `levels_around`
/// levels around it.
///
/// # Errors
/// It is malformed, or nested too deep.
pub(crate) fn check_value(text: &str, levels_around: usize) -> Result<(), JsonError> {
    let mut cursor = Cursor::new(text.as_bytes());
    cursor.depth = levels_around;
    cursor.value()?;
    cursor.finish()
}

/// Appends valid JSON without its white space; `None` if it is longer than `bytes_max`, and part of it is written then.
pub(crate) fn write_compact(text: &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Option<()> {
    let end = out.len() + bytes_max;
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        let bytes = match byte {
            b'"' => string_end(rest, 1).ok()?,
            b' ' | b'\t' | b'\n' | b'\r' => {
                rest = &rest[1..];
                continue;
            }
            _ => 1,
        };
        if out.len() + bytes > end {
            return None;
        }
        out.extend_from_slice(&rest[..bytes]);
        rest = &rest[bytes..];
    }
    Some(())
}

/// A place in a text, with the levels that are open around it.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let mut cursor = Self {
            text,
            at: 0,
            depth: 0,
        };
        cursor.skip_space();
        cursor
    }

    /// Enters the object at the cursor; false, and the cursor stays, if there is no object.
    pub(crate) fn enter_object(&mut self) -> Result<bool, JsonError> {
        if self.peek() != Some(b'{') {
            return Ok(false);
        }
        self.enter()?;
        Ok(true)
    }

    /// The next name of the object that was entered, still escaped, with the cursor before its value;
    /// `None` past the end of the object. `first` is the caller's to keep for each object, true at first.
    pub(crate) fn name(&mut self, first: &mut bool) -> Result<Option<&'a [u8]>, JsonError> {
        if self.leaves(b'}', first)? {
            self.skip_space();
            return Ok(None);
        }
        let quoted = self.string()?;
        self.colon()?;
        Ok(Some(&quoted[1..quoted.len() - 1]))
    }

    /// Passes a value and whatever white space follows it; the bytes of the value.
    #[inline]
    pub(crate) fn value(&mut self) -> Result<&'a [u8], JsonError> {
        let text = &self.text[self.at..];
        let rest = check::value(text, self.depth)?;
        self.go_to(check::after_space(rest));
        Ok(&text[..text.len() - rest.len()])
    }

    /// [`Self::value`] of a payload, which has levels of its own.
    #[inline]
    pub(crate) fn payload(&mut self) -> Result<&'a [u8], JsonError> {
        let depth = std::mem::replace(&mut self.depth, AROUND_PAYLOAD);
        let value = self.value();
        self.depth = depth;
        value
    }

    /// That nothing is left.
    pub(crate) fn finish(&self) -> Result<(), JsonError> {
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    fn colon(&mut self) -> Result<(), JsonError> {
        self.skip_space();
        self.expect(b':')?;
        self.skip_space();
        Ok(())
    }

    /// Passes the opening bracket.
    fn enter(&mut self) -> Result<(), JsonError> {
        if self.depth >= NESTING_MAX {
            return Err(JsonError::TooDeep);
        }
        self.depth += 1;
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    /// Passes the closing bracket, if it is next, or else the comma before another element.
    fn leaves(&mut self, close: u8, first: &mut bool) -> Result<bool, JsonError> {
        if self.peek() == Some(close) {
            self.at += 1;
            self.depth -= 1;
            return Ok(true);
        }
        if !std::mem::take(first) {
            self.expect(b',')?;
            self.skip_space();
        }
        Ok(false)
    }

    /// A string with its quotes.
    fn string(&mut self) -> Result<&'a [u8], JsonError> {
        let start = self.at;
        self.expect(b'"')?;
        self.go_to(check::string(&self.text[self.at..])?);
        Ok(&self.text[start..self.at])
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return Err(JsonError::Malformed);
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        self.go_to(check::after_space(&self.text[self.at..]));
    }

    /// Goes to where this rest of the text begins.
    fn go_to(&mut self, rest: &[u8]) {
        self.at = self.text.len() - rest.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), JsonError> {
        let mut cursor = Cursor::new(text.as_bytes());
        cursor.value()?;
        cursor.finish()
    }

    #[test]
    fn what_is_json() {
        for text in [
            "{}",
            " [ ] ",
            "0",
            "-0.0e-7",
            "1E5",
            "[1,2 , -3.25]",
            "{\"a\":{\"b\":[true,false,null,{}]},\"a\":\"\\u00e9\\n\\\"\"}",
            "\"\\ud83d\\ude00é\"",
            "\"exactly8 and more than that\"",
            "[[],[[]],{}]",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_is_not() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "]",
            "{]",
            "[}",
            "[1 2]",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\" 1}",
            "01",
            "-",
            "1.",
            ".5",
            "+1",
            "1e",
            "1e+",
            "0x1",
            "tru",
            "truee",
            "nul",
            "NaN",
            "\"",
            "\"\\\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"a\nb\"",
            "\"\u{1f}\"",
            "\"1234567\n\"",
            "1e999",
            "{} {}",
            "[1]]",
            "{\"a\":1 \"b\":2}",
            "\"a\"b",
        ] {
            assert_eq!(check(text), Err(JsonError::Malformed), "{text}");
        }
        assert_eq!(check(&"9".repeat(310)), Err(JsonError::Malformed));
        assert_eq!(check(&"9".repeat(300)), Ok(()));
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(check(&nested(64)), Ok(()));
        assert_eq!(check(&nested(65)), Err(JsonError::TooDeep));
        assert_eq!(check(&"[".repeat(100_000)), Err(JsonError::TooDeep));
    }

    #[test]
    fn the_levels_around_a_value_count() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(check_value(&nested(61), 3), Ok(()));
        assert_eq!(check_value(&nested(62), 3), Err(JsonError::TooDeep));
        assert_eq!(check_value(" 1 ", 3), Ok(()));
        assert_eq!(check_value("1 2", 3), Err(JsonError::Malformed));
    }

    #[test]
    fn an_object_is_walked_through() {
        let mut cursor = Cursor::new(b" { \"a\" : [ 1 ] , \"b\\u0020\":{\"c\":2}} ");
        let mut first = true;
        assert_eq!(cursor.enter_object(), Ok(true));
        assert_eq!(cursor.name(&mut first), Ok(Some(&b"a"[..])));
        assert_eq!(cursor.enter_object(), Ok(false));
        assert_eq!(cursor.value(), Ok(&b"[ 1 ]"[..]));
        assert_eq!(cursor.name(&mut first), Ok(Some(&b"b\\u0020"[..])));
        assert_eq!(cursor.enter_object(), Ok(true));
        let mut first_inside = true;
        assert_eq!(cursor.name(&mut first_inside), Ok(Some(&b"c"[..])));
        assert_eq!(cursor.value(), Ok(&b"2"[..]));
        assert_eq!(cursor.name(&mut first_inside), Ok(None));
        assert_eq!(cursor.name(&mut first), Ok(None));
        assert_eq!(cursor.finish(), Ok(()));
    }
}
