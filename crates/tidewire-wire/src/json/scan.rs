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

/// The first eight bytes, the first of them lowest; 0 for those behind the end of the text.
#[inline(always)]
pub(crate) fn first_word(rest: &[u8]) -> u64 {
    match rest.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => last_word(rest),
    }
}

/// The same for less than eight bytes.
#[inline(never)]
fn last_word(rest: &[u8]) -> u64 {
    match (rest.first_chunk(), rest.last_chunk(), rest) {
        // Bytes that are in both are the same.
        (Some(first), Some(last), _) => {
            let shift = 8 * (rest.len() % 8 - 4);
            u64::from(u32::from_le_bytes(*first)) | (u64::from(u32::from_le_bytes(*last)) << shift)
        }
        (_, _, [first, second, third]) => {
            u64::from_le_bytes([*first, *second, *third, 0, 0, 0, 0, 0])
        }
        (_, _, [first, second]) => u64::from(u16::from_le_bytes([*first, *second])),
        (_, _, [first]) => u64::from(*first),
        _ => 0,
    }
}

/// The text from the first byte on that does not stand for itself in a string. What [`plain_bytes`] finds, faster for
/// short strings.
#[inline(always)]
pub(crate) fn after_plain(rest: &[u8]) -> &[u8] {
    let Some((chunk, behind)) = rest.split_first_chunk() else {
        return after_long_plain(rest);
    };
    let found = special::<true>(u64::from_le_bytes(*chunk));
    if found != 0 {
        return &rest[(found.trailing_zeros() / 8) as usize..];
    }
    after_long_plain(behind)
}

/// The same for a string that is long, or near the end of the text.
#[inline(never)]
fn after_long_plain(mut rest: &[u8]) -> &[u8] {
    // Most end soon.
    if let Some((chunk, behind)) = rest.split_first_chunk() {
        let found = special::<true>(u64::from_le_bytes(*chunk));
        if found != 0 {
            return &rest[(found.trailing_zeros() / 8) as usize..];
        }
        rest = behind;
    }
    while let Some((chunk, behind)) = rest.split_first_chunk::<32>() {
        // Without a way out of the loop it is done by vector instructions.
        let mut is_plain = true;
        for byte in chunk {
            is_plain &= (*byte >= b' ') & (*byte != b'"') & (*byte != b'\\');
        }
        if !is_plain {
            break;
        }
        rest = behind;
    }
    loop {
        // The bytes behind the end are control characters.
        let found = special::<true>(first_word(rest));
        if found != 0 {
            let bytes = (found.trailing_zeros() / 8) as usize;
            return rest.get(bytes..).unwrap_or_default();
        }
        rest = rest.get(8..).unwrap_or_default();
    }
}

/// The text from the first byte on that is no decimal digit.
#[inline(always)]
pub(crate) fn after_digits(mut rest: &[u8]) -> &[u8] {
    while let Some((chunk, behind)) = rest.split_first_chunk() {
        let value = u64::from_le_bytes(*chunk) ^ (ONES * u64::from(b'0'));
        // A value beyond 9 carries into the highest bit of its byte, or has it set. Higher bytes may be wrong then.
        let found = (value.wrapping_add(ONES * 0x76) | value) & HIGH;
        if found != 0 {
            return &rest[(found.trailing_zeros() / 8) as usize..];
        }
        rest = behind;
    }
    while let [b'0'..=b'9', behind @ ..] = rest {
        rest = behind;
    }
    rest
}

/// A word whose lowest bit that is set stands in the lowest byte that is no plain one. Higher bits may be
/// wrong, because a subtraction borrows from the byte above.
#[inline(always)]
fn special<const CONTROLS: bool>(word: u64) -> u64 {
    let quote = (word ^ (ONES * u64::from(b'"'))).wrapping_sub(ONES);
    let backslash = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
    let found = quote | backslash;
    let found = if CONTROLS {
        found | word.wrapping_sub(ONES * 0x20)
    } else {
        found
    };
    // A byte of a character beyond ASCII is plain, whatever the subtractions make of it.
    found & !word & HIGH
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

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

        #[test]
        fn plain_bytes_and_digits_end(
            text in prop::collection::vec(prop_oneof![8 => 0x20u8..0x7f, 4 => b'0'..=b'9', 1 => any::<u8>()], 0..100),
        ) {
            let plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..0x20);
            let plain = text.iter().take_while(|byte| plain(byte)).count();
            prop_assert_eq!(after_plain(&text), &text[plain..]);
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            prop_assert_eq!(after_digits(&text), &text[digits..]);
            let mut word = [0; 8];
            let bytes = text.len().min(8);
            word[..bytes].copy_from_slice(&text[..bytes]);
            prop_assert_eq!(first_word(&text), u64::from_le_bytes(word));
        }
    }
}
