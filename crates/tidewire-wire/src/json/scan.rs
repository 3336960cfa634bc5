//! Finding fields in JSON without parsing it: strings and nesting are followed, all else is passed over.
//!
//! What is found in valid JSON is right. Of invalid JSON only what hides the structure is noticed;
//! whoever uses a value parses it.

use super::EnvelopeError;
use crate::format::NESTING_MAX;

/// The fields of one object, one after another.
pub(crate) struct Fields<'a> {
    text: &'a [u8],
    at: usize,
    first: bool,
}

/// A name, still escaped, and the bytes of its value.
pub(crate) struct Field<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Starts at the object that `text` begins with, white space aside.
    pub(crate) fn open(text: &'a [u8]) -> Result<Self, EnvelopeError> {
        let at = skip_space(text, 0);
        if text.get(at) != Some(&b'{') {
            return Err(EnvelopeError::NotAnObject);
        }
        Ok(Self {
            text,
            at: at + 1,
            first: true,
        })
    }

    /// The next field; `None` after the last, when only white space may follow.
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, EnvelopeError> {
        let Some(at) = next_element(self.text, self.at, b'}', self.first)? else {
            return Ok(None);
        };
        self.first = false;
        if self.text.get(at) != Some(&b'"') {
            return Err(EnvelopeError::Malformed);
        }
        let name_end = string_end(self.text, at + 1)?;
        let colon = skip_space(self.text, name_end);
        if self.text.get(colon) != Some(&b':') {
            return Err(EnvelopeError::Malformed);
        }
        let start = skip_space(self.text, colon + 1);
        let end = value_end(self.text, start, 1)?;
        self.at = end;
        Ok(Some(Field {
            name: &self.text[at + 1..name_end - 1],
            value: &self.text[start..end],
        }))
    }

    /// The value of the first field whose name is one of `names`.
    pub(crate) fn find(&mut self, names: &[&str]) -> Result<Option<&'a [u8]>, EnvelopeError> {
        while let Some(field) = self.next()? {
            for name in names {
                if string_is(field.name, name)? {
                    return Ok(Some(field.value));
                }
            }
        }
        Ok(None)
    }
}

/// Calls `each` with the bytes of every element of the array `text`.
///
/// Fails with `Malformed` if it is no array, and with whatever `each` fails.
pub(crate) fn elements<'a>(
    text: &'a [u8],
    mut each: impl FnMut(&'a [u8]) -> Result<(), EnvelopeError>,
) -> Result<(), EnvelopeError> {
    let mut at = skip_space(text, 0);
    if text.get(at) != Some(&b'[') {
        return Err(EnvelopeError::Malformed);
    }
    at += 1;
    let mut first = true;
    while let Some(start) = next_element(text, at, b']', first)? {
        first = false;
        at = value_end(text, start, 1)?;
        each(&text[start..at])?;
    }
    Ok(())
}

/// Where the element after `at` starts, past its comma; `None` at the closing bracket, behind which
/// nothing but white space may come.
fn next_element(
    text: &[u8],
    at: usize,
    close: u8,
    first: bool,
) -> Result<Option<usize>, EnvelopeError> {
    let at = skip_space(text, at);
    match text.get(at) {
        Some(&byte) if byte == close => {
            let end = skip_space(text, at + 1);
            if end == text.len() {
                Ok(None)
            } else {
                Err(EnvelopeError::Malformed)
            }
        }
        Some(b',') if !first => Ok(Some(skip_space(text, at + 1))),
        Some(_) if first => Ok(Some(at)),
        _ => Err(EnvelopeError::Malformed),
    }
}

/// The index after the value that starts at `start`, of which `open` levels are open around it.
pub(crate) fn value_end(text: &[u8], start: usize, open: usize) -> Result<usize, EnvelopeError> {
    match text.get(start) {
        Some(b'"') => string_end(text, start + 1),
        Some(b'{' | b'[') => nested_end(text, start, open),
        Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
            let part =
                |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
            let bytes = text[start..].iter().take_while(|byte| part(byte)).count();
            Ok(start + bytes)
        }
        _ => Err(EnvelopeError::Malformed),
    }
}

fn nested_end(text: &[u8], start: usize, open: usize) -> Result<usize, EnvelopeError> {
    // One bit for each open level, 1 for an object; the innermost is the lowest.
    let mut kinds = 0u64;
    let mut depth = 0;
    let mut at = start;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(text, at)?,
            b'{' | b'[' => {
                if open + depth >= NESTING_MAX {
                    return Err(EnvelopeError::TooDeep);
                }
                depth += 1;
                kinds = (kinds << 1) | u64::from(byte == b'{');
            }
            b'}' | b']' => {
                if (kinds & 1 == 1) != (byte == b'}') {
                    return Err(EnvelopeError::Malformed);
                }
                kinds >>= 1;
                depth -= 1;
                if depth == 0 {
                    return Ok(at);
                }
            }
            _ => {}
        }
    }
    Err(EnvelopeError::Malformed)
}

/// The index after the quote that closes the string whose content starts at `at`.
pub(crate) fn string_end(text: &[u8], mut at: usize) -> Result<usize, EnvelopeError> {
    while let Some(rest) = text.get(at..) {
        at += plain_bytes(rest);
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at += 2,
            _ => break,
        }
    }
    Err(EnvelopeError::Malformed)
}

/// How many bytes at the start stand for themselves in a string: no quote, backslash or control
/// character. Eight at a time.
#[inline]
pub(crate) fn plain_bytes(text: &[u8]) -> usize {
    let mut rest = text;
    while let Some((chunk, behind)) = rest.split_first_chunk() {
        let found = special(u64::from_le_bytes(*chunk));
        if found != 0 {
            return text.len() - rest.len() + (found.trailing_zeros() / 8) as usize;
        }
        rest = behind;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    let plain = rest.iter().position(special).unwrap_or(rest.len());
    text.len() - rest.len() + plain
}

/// A word whose lowest bit that is set stands in the lowest byte that is no plain one. Higher bits may be
/// wrong, because a subtraction borrows from the byte above.
fn special(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = zero(word ^ (ONES * u64::from(b'"')));
    let backslash = zero(word ^ (ONES * u64::from(b'\\')));
    (below_space | quote | backslash) & HIGH
}

/// The index of the first byte from `at` on that is not white space.
pub(crate) fn skip_space(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        .count()
}

/// Whether the escaped string content `raw` says `plain`.
pub(crate) fn string_is(raw: &[u8], plain: &str) -> Result<bool, EnvelopeError> {
    if !raw.contains(&b'\\') {
        return Ok(raw == plain.as_bytes());
    }
    let mut short = Short::default();
    unescape(raw, &mut short)?;
    Ok(short.is(plain.as_bytes()))
}

/// The start of a string with its escapes resolved. What is longer is no word of the protocol.
#[derive(Default)]
pub(crate) struct Short {
    bytes: [u8; SHORT_BYTES_MAX],
    length: usize,
}

impl Short {
    /// The whole string, or `None` if it was longer than any word of the protocol.
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..self.length)
    }

    fn is(&self, plain: &[u8]) -> bool {
        self.as_bytes() == Some(plain)
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
        }
        self.length += 1;
    }
}

/// Resolves the escapes of the string content `raw`, without allocating.
pub(crate) fn unescape(raw: &[u8], short: &mut Short) -> Result<(), EnvelopeError> {
    let mut rest = raw;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'\\' {
            short.push(*byte);
            continue;
        }
        let [kind, tail @ ..] = rest else {
            return Err(EnvelopeError::Malformed);
        };
        rest = tail;
        match kind {
            b'"' | b'\\' | b'/' => short.push(*kind),
            b'b' => short.push(8),
            b'f' => short.push(12),
            b'n' => short.push(b'\n'),
            b'r' => short.push(b'\r'),
            b't' => short.push(b'\t'),
            b'u' => {
                let (character, tail) = unicode_escape(rest)?;
                rest = tail;
                let mut utf8 = [0; 4];
                for byte in character.encode_utf8(&mut utf8).bytes() {
                    short.push(byte);
                }
            }
            _ => return Err(EnvelopeError::Malformed),
        }
    }
    Ok(())
}

/// The character of a `\u` escape, whose four digits come first, and of its second half if it needs one.
fn unicode_escape(rest: &[u8]) -> Result<(char, &[u8]), EnvelopeError> {
    let (high, rest) = hex4(rest)?;
    if !(0xd800..0xdc00).contains(&high) {
        return char::from_u32(high)
            .map(|c| (c, rest))
            .ok_or(EnvelopeError::Malformed);
    }
    let rest = rest.strip_prefix(b"\\u").ok_or(EnvelopeError::Malformed)?;
    let (low, rest) = hex4(rest)?;
    if !(0xdc00..0xe000).contains(&low) {
        return Err(EnvelopeError::Malformed);
    }
    let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    char::from_u32(code)
        .map(|c| (c, rest))
        .ok_or(EnvelopeError::Malformed)
}

fn hex4(text: &[u8]) -> Result<(u32, &[u8]), EnvelopeError> {
    let (digits, rest) = text.split_at_checked(4).ok_or(EnvelopeError::Malformed)?;
    let mut value = 0;
    for digit in digits {
        let digit = char::from(*digit)
            .to_digit(16)
            .ok_or(EnvelopeError::Malformed)?;
        value = value * 16 + digit;
    }
    Ok((value, rest))
}

/// Appends `text` as a JSON string with its quotes.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[start..at]);
        start = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[digit(byte >> 4), digit(byte & 0x0f)]);
            }
        }
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

/// Longer than every type and field name of the protocol.
const SHORT_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_field_behind_others() {
        let text = br#" { "p" : {"t":"no","s":"}\"]"} , "n":-1.5e3,"\u0074" : "yes" } "#;
        let found = Fields::open(text).unwrap().find(&["t"]).unwrap();
        assert_eq!(found, Some(&b"\"yes\""[..]));
        assert_eq!(Fields::open(text).unwrap().find(&["x"]).unwrap(), None);
    }

    #[test]
    fn broken_objects() {
        for text in [
            "{",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1}x",
            "{\"a\":[}",
            "{\"a\":[1}}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\",
            "{a:1}",
        ] {
            let found = Fields::open(text.as_bytes()).unwrap().find(&["x"]);
            assert_eq!(found, Err(EnvelopeError::Malformed), "{text}");
        }
    }

    #[test]
    fn elements_of_an_array() {
        let mut seen = Vec::new();
        let keep = |element: &'static [u8]| {
            seen.push(element);
            Ok(())
        };
        elements(b" [ {\"a\":[1,2]} ,2, \"]\" ] ", keep).unwrap();
        assert_eq!(seen, [&b"{\"a\":[1,2]}"[..], b"2", b"\"]\""]);
        for text in ["[", "[1", "[1,", "[1,]", "[,1]", "[1]1", "{}", ""] {
            assert_eq!(
                elements(text.as_bytes(), |_| Ok(())),
                Err(EnvelopeError::Malformed)
            );
        }
        assert_eq!(elements(b"[]", |_| Err(EnvelopeError::Malformed)), Ok(()));
    }

    #[test]
    fn lone_surrogates_are_refused() {
        for raw in [
            "\\ud83d",
            "\\ud83dx",
            "\\ude00",
            "\\ud83d\\u0041",
            "\\u12",
            "\\x",
        ] {
            assert_eq!(
                string_is(raw.as_bytes(), "a"),
                Err(EnvelopeError::Malformed),
                "{raw}"
            );
        }
        assert_eq!(string_is(b"\\ud83d\\ude00", "\u{1f600}"), Ok(true));
    }

    proptest! {
        #[test]
        fn written_strings_are_json(text in any::<String>()) {
            let mut out = Vec::new();
            write_string(&text, &mut out);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn plain_bytes_are_counted(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let slow = text.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            prop_assert_eq!(plain_bytes(&text), slow.unwrap_or(text.len()));
        }
    }
}
