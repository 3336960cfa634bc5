//! The check of whole JSON values, one pass and no memory: what passes here is read as JSON everywhere.
//!
//! Each string has a meaning in UTF-8, each number is finite, and nothing is nested too deep. The text must be valid
//! UTF-8 already. The server checks each message of a client with it, so that each step counts: a step looks at
//! eight bytes at once, which is a short string with its quotes, or a name with its colon. The common steps
//! assume no white space and no escapes; where there are some, slower steps pass them and return. Behind the
//! end of the text all bytes are 0, which no step accepts.
//!
//! A step receives the rest of the text and returns the rest after its part.

use super::scan::{after_digits, after_plain, first_word};
use super::{AROUND_ENVELOPE, JsonError, NESTING_MAX};

/// The rest after the value that `text` begins with. `open` levels are open around the value.
#[inline]
pub(crate) fn value(text: &[u8], open: usize) -> Result<&[u8], JsonError> {
    match first_byte(text) {
        b'"' => string(&text[1..]),
        b'{' | b'[' => {
            let walk = Walk {
                kinds: 0,
                open,
                outside: open,
            };
            walk.run(Step::Value(text))
        }
        _ => scalar(text),
    }
}

/// Checks the rest of an object that is a whole text, after the value of one of its members.
#[inline]
pub(crate) fn rest_of_object(rest: &[u8]) -> Result<(), JsonError> {
    let walk = Walk {
        kinds: 1,
        open: AROUND_ENVELOPE + 1,
        outside: AROUND_ENVELOPE,
    };
    finish(walk.run(Step::After(rest))?)
}

/// Checks that nothing but white space is left.
#[inline]
pub(crate) fn finish(rest: &[u8]) -> Result<(), JsonError> {
    if after_space(rest).is_empty() {
        Ok(())
    } else {
        Err(JsonError::Malformed)
    }
}

/// A place inside of arrays and objects.
struct Walk {
    /// One bit for each open level, 1 for an object; the innermost is the lowest.
    kinds: u64,
    open: usize,
    /// The open levels around the value.
    outside: usize,
}

/// The next part of the text.
enum Step<'a> {
    /// The content of a name, behind its quote.
    Name(&'a [u8]),
    /// A value.
    Value(&'a [u8]),
    /// What follows a value.
    After(&'a [u8]),
}

impl Walk {
    /// Passes all levels but those outside.
    #[inline(never)]
    fn run(mut self, step: Step<'_>) -> Result<&[u8], JsonError> {
        let mut step = step;
        loop {
            step = match step {
                Step::Name(rest) => names(rest)?,
                Step::Value(rest) => match first_byte(rest) {
                    b'"' => Step::After(string(&rest[1..])?),
                    b'{' | b'[' => self.enter(rest)?,
                    _ => Step::After(scalar(rest)?),
                },
                Step::After(rest) if self.open == self.outside => return Ok(rest),
                Step::After(rest) => self.next(rest)?,
            };
        }
    }

    /// Passes the bracket that opens a level.
    #[inline(always)]
    fn enter<'a>(&mut self, rest: &'a [u8]) -> Result<Step<'a>, JsonError> {
        if self.open >= NESTING_MAX {
            return Err(JsonError::TooDeep);
        }
        self.open += 1;
        let is_object = first_byte(rest) == b'{';
        self.kinds = (self.kinds << 1) | u64::from(is_object);
        let rest = after_space(&rest[1..]);
        match first_byte(rest) {
            b'"' if is_object => Ok(Step::Name(&rest[1..])),
            b'}' if is_object => Ok(self.close(rest)),
            b']' if !is_object => Ok(self.close(rest)),
            _ if !is_object => Ok(Step::Value(rest)),
            _ => Err(JsonError::Malformed),
        }
    }

    /// Passes the comma behind a value, or the bracket that closes its level.
    #[inline(always)]
    fn next<'a>(&mut self, rest: &'a [u8]) -> Result<Step<'a>, JsonError> {
        let is_object = self.kinds & 1 == 1;
        match rest {
            [b',', b'"', rest @ ..] if is_object => Ok(Step::Name(rest)),
            [b',', rest @ ..] if !is_object => Ok(Step::Value(after_space(rest))),
            [b'}', ..] if is_object => Ok(self.close(rest)),
            [b']', ..] if !is_object => Ok(self.close(rest)),
            _ => self.spaced_next(rest),
        }
    }

    /// The same with white space.
    #[inline(never)]
    fn spaced_next<'a>(&mut self, rest: &'a [u8]) -> Result<Step<'a>, JsonError> {
        let is_object = self.kinds & 1 == 1;
        let rest = after_space(rest);
        match rest {
            [b'}', ..] if is_object => Ok(self.close(rest)),
            [b']', ..] if !is_object => Ok(self.close(rest)),
            [b',', rest @ ..] if is_object => match after_space(rest) {
                [b'"', rest @ ..] => Ok(Step::Name(rest)),
                _ => Err(JsonError::Malformed),
            },
            [b',', rest @ ..] => Ok(Step::Value(after_space(rest))),
            _ => Err(JsonError::Malformed),
        }
    }

    #[inline(always)]
    fn close<'a>(&mut self, rest: &'a [u8]) -> Step<'a> {
        self.kinds >>= 1;
        self.open -= 1;
        Step::After(&rest[1..])
    }
}

/// Passes names and their values as long as these are strings and numbers.
#[inline(always)]
fn names(rest: &[u8]) -> Result<Step<'_>, JsonError> {
    let mut rest = rest;
    let mut is_name = true;
    loop {
        rest = after_plain(rest);
        let word = first_word(rest);
        if is_name {
            if word as u16 != u16::from_le_bytes(*b"\":") {
                return spaced_name(rest).map(Step::Value);
            }
            match (word >> 16) as u8 {
                // The quote that opens the value.
                b'"' => {}
                b'0'..=b'9' => {
                    rest = scalar(&rest[2..])?;
                    if first_word(rest) as u16 != u16::from_le_bytes(*b",\"") {
                        return Ok(Step::After(rest));
                    }
                    rest = &rest[2..];
                    continue;
                }
                _ => return Ok(Step::Value(after_space(&rest[2..]))),
            }
        } else if word << 40 != NEXT_NAME {
            return after_string(rest).map(Step::After);
        }
        // The quote that opens the next string stands behind two more bytes.
        rest = &rest[3..];
        is_name = !is_name;
    }
}

/// Passes the rest of a name, with escapes, and the colon, with white space.
#[inline(never)]
fn spaced_name(rest: &[u8]) -> Result<&[u8], JsonError> {
    match after_space(after_string(rest)?) {
        [b':', rest @ ..] => Ok(after_space(rest)),
        _ => Err(JsonError::Malformed),
    }
}

/// The rest after a string, from its content on. Its escapes are valid, and no half of a surrogate pair is alone.
#[inline]
pub(crate) fn string(rest: &[u8]) -> Result<&[u8], JsonError> {
    after_string(after_plain(rest))
}

/// The same from the first byte on that does not stand for itself.
#[inline(always)]
fn after_string(rest: &[u8]) -> Result<&[u8], JsonError> {
    match rest {
        [b'"', rest @ ..] => Ok(rest),
        _ => after_escapes(rest),
    }
}

#[inline(never)]
fn after_escapes(mut rest: &[u8]) -> Result<&[u8], JsonError> {
    loop {
        rest = match rest {
            [b'"', rest @ ..] => return Ok(rest),
            [b'\\', b'u', rest @ ..] => after_unicode(rest)?,
            [
                b'\\',
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
                rest @ ..,
            ] => rest,
            _ => return Err(JsonError::Malformed),
        };
        rest = after_plain(rest);
    }
}

/// The rest after the digits of a `\u`, and after those of the second half if it is one of a pair.
fn after_unicode(rest: &[u8]) -> Result<&[u8], JsonError> {
    let (code, rest) = hex4(rest)?;
    match (code, rest) {
        (0xd800..=0xdbff, [b'\\', b'u', rest @ ..]) => match hex4(rest)? {
            (0xdc00..=0xdfff, rest) => Ok(rest),
            _ => Err(JsonError::Malformed),
        },
        (0xd800..=0xdfff, _) => Err(JsonError::Malformed),
        _ => Ok(rest),
    }
}

fn hex4(rest: &[u8]) -> Result<(u32, &[u8]), JsonError> {
    let (digits, rest) = rest.split_at_checked(4).ok_or(JsonError::Malformed)?;
    let code = digits.iter().try_fold(0, |code, byte| {
        Some(code * 16 + char::from(*byte).to_digit(16)?)
    });
    Ok((code.ok_or(JsonError::Malformed)?, rest))
}

/// The rest after a number or a word.
#[inline(always)]
fn scalar(text: &[u8]) -> Result<&[u8], JsonError> {
    let rest = match text {
        [b'1'..=b'9', rest @ ..] => after_digits(rest),
        [b'0', rest @ ..] => rest,
        [b'-', b'1'..=b'9', rest @ ..] => after_digits(rest),
        [b'-', b'0', rest @ ..] => rest,
        _ => return word(text),
    };
    let rest = match rest {
        [b'.', b'0'..=b'9', rest @ ..] => after_digits(rest),
        rest => rest,
    };
    // If no digit follows a point, the point stays in the rest, and the next step rejects it.
    if matches!(rest, [b'e' | b'E', ..]) || text.len() - rest.len() > FINITE_BYTES {
        return after_finite(text, rest);
    }
    Ok(rest)
}

/// The same for a number that may be too large for a double: an exponent follows, or it has very many digits.
#[inline(never)]
fn after_finite<'a>(text: &'a [u8], rest: &'a [u8]) -> Result<&'a [u8], JsonError> {
    let rest = match rest {
        [b'e' | b'E', b'+' | b'-', rest @ ..] | [b'e' | b'E', rest @ ..] => after_digits(rest),
        rest => rest,
    };
    // It refuses an exponent without digits, too.
    match serde_json::from_slice::<f64>(&text[..text.len() - rest.len()]) {
        Ok(_) => Ok(rest),
        Err(_) => Err(JsonError::Malformed),
    }
}

#[inline(never)]
fn word(text: &[u8]) -> Result<&[u8], JsonError> {
    let mut words = [&b"true"[..], b"false", b"null"].into_iter();
    let rest = words.find_map(|word| text.strip_prefix(word));
    rest.ok_or(JsonError::Malformed)
}

/// The rest after white space.
#[inline(always)]
pub(crate) fn after_space(rest: &[u8]) -> &[u8] {
    match rest {
        [(..=b' '), ..] => after_long_space(rest),
        _ => rest,
    }
}

#[inline(never)]
fn after_long_space(mut rest: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\n' | b'\r', behind @ ..] = rest {
        rest = behind;
    }
    rest
}

#[inline(always)]
fn first_byte(rest: &[u8]) -> u8 {
    rest.first().copied().unwrap_or(0)
}

/// The end of a string and the quote of the next name, as the highest bytes of a word.
const NEXT_NAME: u64 = u64::from_le_bytes(*b"\0\0\0\0\0\",\"");

/// A number of this many bytes without an exponent is finite.
const FINITE_BYTES: usize = 300;
