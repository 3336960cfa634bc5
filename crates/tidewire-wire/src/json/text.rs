//! Strings: escapes resolved and written.

use super::JsonError;
use std::borrow::Cow;

/// The text of a JSON string with its quotes; `None` if it is none.
pub(crate) fn text(value: &[u8]) -> Option<Cow<'_, str>> {
    let [b'"', raw @ .., b'"'] = value else {
        return None;
    };
    if raw.contains(&b'\\') {
        return serde_json::from_slice(value).ok().map(Cow::Owned);
    }
    simdutf8::basic::from_utf8(raw).ok().map(Cow::Borrowed)
}

/// The content `raw` of a JSON string without its escapes; `None` if it is not Unicode.
pub(crate) fn name(raw: &[u8]) -> Option<Cow<'_, str>> {
    if !raw.contains(&b'\\') {
        return simdutf8::basic::from_utf8(raw).ok().map(Cow::Borrowed);
    }
    let quoted = [b"\"", raw, b"\""].concat();
    serde_json::from_slice(&quoted).ok().map(Cow::Owned)
}

/// Whether the escaped string content `raw` means `plain`.
pub(crate) fn string_is(raw: &[u8], plain: &str) -> Result<bool, JsonError> {
    if !raw.contains(&b'\\') {
        return Ok(raw == plain.as_bytes());
    }
    let mut short = Short::default();
    unescape(raw, &mut short)?;
    Ok(short.is(plain.as_bytes()))
}

/// The start of a string with its escapes resolved. A longer string is no word of the protocol.
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
pub(crate) fn unescape(raw: &[u8], short: &mut Short) -> Result<(), JsonError> {
    let mut rest = raw;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'\\' {
            short.push(*byte);
            continue;
        }
        let [kind, tail @ ..] = rest else {
            return Err(JsonError::Malformed);
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
            _ => return Err(JsonError::Malformed),
        }
    }
    Ok(())
}

/// The character of a `\u` escape, from its four digits on, and of its second half if it needs one.
fn unicode_escape(rest: &[u8]) -> Result<(char, &[u8]), JsonError> {
    let (high, rest) = hex4(rest)?;
    if !(0xd800..0xdc00).contains(&high) {
        return char::from_u32(high)
            .map(|c| (c, rest))
            .ok_or(JsonError::Malformed);
    }
    let rest = rest.strip_prefix(b"\\u").ok_or(JsonError::Malformed)?;
    let (low, rest) = hex4(rest)?;
    if !(0xdc00..0xe000).contains(&low) {
        return Err(JsonError::Malformed);
    }
    let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    char::from_u32(code)
        .map(|c| (c, rest))
        .ok_or(JsonError::Malformed)
}

fn hex4(text: &[u8]) -> Result<(u32, &[u8]), JsonError> {
    let (digits, rest) = text.split_at_checked(4).ok_or(JsonError::Malformed)?;
    let mut value = 0;
    for digit in digits {
        let digit = char::from(*digit)
            .to_digit(16)
            .ok_or(JsonError::Malformed)?;
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
                Err(JsonError::Malformed),
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
    }
}
