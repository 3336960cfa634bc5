//! Trees of values, which only a reader that trusts its peer makes, and only below a limit of memory.

use super::JsonError;
use super::scan::string_end;
use serde_json::Value;

/// Parses one JSON value as a tree of at most about `bytes_max` bytes of memory, found without making it.
///
/// # Errors
/// [`JsonError::TooLarge`] for one that would need more, and [`JsonError::Malformed`].
pub fn parse_tree(text: &[u8], bytes_max: usize) -> Result<Value, JsonError> {
    if text.len() > bytes_max / BYTES_PER_BYTE_MAX && !fits(text, bytes_max) {
        return Err(JsonError::TooLarge);
    }
    serde_json::from_slice(text).map_err(|_| JsonError::Malformed)
}

/// Whether the tree of a text, which need not be valid, needs at most `bytes_max` bytes.
fn fits(text: &[u8], bytes_max: usize) -> bool {
    let (mut bytes, mut at) = (VALUE_BYTES, 0);
    while let Some(&byte) = text.get(at) {
        at += 1;
        bytes += match byte {
            b'"' => {
                let Ok(end) = string_end(text, at) else {
                    // What ends here is refused soon.
                    return true;
                };
                let length = end - at;
                at = end;
                STRING_BYTES + length
            }
            b'{' if text.get(at) != Some(&b'}') => OBJECT_BYTES,
            b'[' if text.get(at) != Some(&b']') => ARRAY_BYTES,
            b':' => MEMBER_BYTES,
            b',' => 2 * VALUE_BYTES,
            _ => 0,
        };
        if bytes > bytes_max {
            return false;
        }
    }
    true
}

/// One value, as it lies in its array.
const VALUE_BYTES: usize = size_of::<Value>();
/// A string besides its text, with what the allocator needs.
const STRING_BYTES: usize = 16;
/// The first node of an object with members.
const OBJECT_BYTES: usize = 640;
/// Of each member of an object in further nodes.
const MEMBER_BYTES: usize = 64;
/// The elements of an array that has any: room for four.
const ARRAY_BYTES: usize = 4 * VALUE_BYTES + 16;
/// No text makes a larger tree for each of its bytes.
const BYTES_PER_BYTE_MAX: usize = OBJECT_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_text_for_a_large_tree_is_refused() {
        let nested = format!("[{}0]", r#"{"":{"":{"":0}}},"#.repeat(1_000));
        assert_eq!(
            parse_tree(nested.as_bytes(), 1 << 20),
            Err(JsonError::TooLarge)
        );
        assert!(parse_tree(nested.as_bytes(), 4 << 20).is_ok());
        let flat = format!("[{}0]", "0,".repeat(1_000_000));
        assert_eq!(
            parse_tree(flat.as_bytes(), 32 << 20),
            Err(JsonError::TooLarge)
        );
        let long = format!("\"{}\"", "x".repeat(1 << 20));
        assert!(parse_tree(long.as_bytes(), 2 << 20).is_ok());
    }

    #[test]
    fn what_is_malformed_is_so_at_any_size() {
        for text in ["\"a", "[1", "{\"a\"}", ""] {
            assert_eq!(
                parse_tree(text.as_bytes(), 1_000),
                Err(JsonError::Malformed),
                "{text}"
            );
        }
    }
}
