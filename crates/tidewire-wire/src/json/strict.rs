//! Walking through JSON and checking all of it, for what is handed on as it came.
//!
//! What is passed here reads as JSON everywhere in this project: each string has a meaning in UTF-8, each
//! number is finite, and nothing is nested too deep. The text must be valid UTF-8 already.

use super::scan::{plain_bytes, string_end};
use super::text::{Short, unescape};
use super::{JsonError, NESTING_MAX};

/// Checks that a text is one JSON value that reads as such everywhere, also inside a message that has N levels
/// around it.
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

    /// Goes into the object that comes next; false, and nothing is passed, if it is no object.
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
        let start = self.at;
        match self.peek() {
            Some(b'"') => {
                self.string()?;
            }
            Some(b'{' | b'[') => self.container()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        }
        let value = &self.text[start..self.at];
        self.skip_space();
        Ok(value)
    }

    /// That nothing is left.
    pub(crate) fn finish(&self) -> Result<(), JsonError> {
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    fn container(&mut self) -> Result<(), JsonError> {
        // One bit for each open level, 1 for an object; the innermost is the lowest.
        let mut kinds = u64::from(self.peek() == Some(b'{'));
        let outside = self.depth;
        self.enter()?;
        let mut first = true;
        loop {
            let in_object = kinds & 1 == 1;
            if self.leaves(if in_object { b'}' } else { b']' }, &mut first)? {
                if self.depth == outside {
                    return Ok(());
                }
                kinds >>= 1;
                first = false;
                self.skip_space();
                continue;
            }
            if in_object {
                self.string()?;
                self.colon()?;
            }
            match self.peek() {
                Some(open @ (b'{' | b'[')) => {
                    self.enter()?;
                    kinds = (kinds << 1) | u64::from(open == b'{');
                    first = true;
                }
                _ => {
                    self.value()?;
                }
            }
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

    /// Passes the closing bracket, if it comes next, or else the comma before another element.
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
        let mut escaped = false;
        loop {
            self.at += plain_bytes::<true>(&self.text[self.at..]);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.at += 2;
                    if self.at > self.text.len() {
                        return Err(JsonError::Malformed);
                    }
                }
                _ => return Err(JsonError::Malformed),
            }
        }
        self.at += 1;
        let quoted = &self.text[start..self.at];
        if escaped {
            unescape(&quoted[1..quoted.len() - 1], &mut Short::default())?;
        }
        Ok(quoted)
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        let mut sure = self.at - start <= FINITE_BYTES;
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
            sure = false;
        }
        let token = &self.text[start..self.at];
        if sure || serde_json::from_slice::<f64>(token).is_ok() {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let rest = &self.text[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        if digits == 0 {
            return Err(JsonError::Malformed);
        }
        Ok(())
    }

    fn word(&mut self) -> Result<(), JsonError> {
        let rest = &self.text[self.at..];
        for word in [&b"true"[..], b"false", b"null"] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(());
            }
        }
        Err(JsonError::Malformed)
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
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }
}

/// A number of this many bytes without an exponent is finite.
const FINITE_BYTES: usize = 300;

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
