//! Ends of strings, values and runs of plain bytes. Every reader of this module is built on it.

use super::{JsonError, NESTING_MAX};

/// The index after the value that starts at `start`, of which `open` levels are open around it.
pub(crate) fn value_end(text: &[u8], start: usize, open: usize) -> Result<usize, JsonError> {
    match text.get(start) {
        Some(b'"') => string_end(text, start + 1),
        Some(b'{' | b'[') => nested_end(text, start, open),
        Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
            let part =
                |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
            let bytes = text[start..].iter().take_while(|byte| part(byte)).count();
            Ok(start + bytes)
        }
        _ => Err(JsonError::Malformed),
    }
}

fn nested_end(text: &[u8], start: usize, open: usize) -> Result<usize, JsonError> {
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
                    return Err(JsonError::TooDeep);
                }
                depth += 1;
                kinds = (kinds << 1) | u64::from(byte == b'{');
            }
            b'}' | b']' => {
                if (kinds & 1 == 1) != (byte == b'}') {
                    return Err(JsonError::Malformed);
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
    Err(JsonError::Malformed)
}

/// The index after the quote that closes the string whose content starts at `at`.
pub(crate) fn string_end(text: &[u8], mut at: usize) -> Result<usize, JsonError> {
    while let Some(rest) = text.get(at..) {
        at += plain_bytes::<true>(rest);
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at += 2,
            _ => break,
        }
    }
    Err(JsonError::Malformed)
}

/// How many bytes at the start stand for themselves in a string: no quote, no backslash and, with `CONTROLS`, no
/// control character. Looks at eight bytes at a time.
#[inline]
pub(crate) fn plain_bytes<const CONTROLS: bool>(text: &[u8]) -> usize {
    let mut rest = text;
    while let Some((chunk, behind)) = rest.split_first_chunk() {
        let found = special::<CONTROLS>(u64::from_le_bytes(*chunk));
        if found != 0 {
            return text.len() - rest.len() + (found.trailing_zeros() / 8) as usize;
        }
        rest = behind;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\') || (CONTROLS && *byte < 0x20);
    let plain = rest.iter().position(special).unwrap_or(rest.len());
    text.len() - rest.len() + plain
}

/// A word whose lowest bit that is set stands in the lowest byte that is no plain one. Higher bits may be
/// wrong, because a subtraction borrows from the byte above.
#[inline]
fn special<const CONTROLS: bool>(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = zero(word ^ (ONES * u64::from(b'"')));
    let backslash = zero(word ^ (ONES * u64::from(b'\\')));
    let found = quote | backslash;
    let found = if CONTROLS { found | below_space } else { found };
    found & HIGH
}

/// The index of the first byte from `at` on that is not white space.
pub(crate) fn skip_space(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plain_bytes_are_counted(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let slow = text.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            prop_assert_eq!(plain_bytes::<true>(&text), slow.unwrap_or(text.len()));
            let slow = text.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            prop_assert_eq!(plain_bytes::<false>(&text), slow.unwrap_or(text.len()));
        }
    }
}
