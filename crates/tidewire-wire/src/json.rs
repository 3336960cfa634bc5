//! The JSON reader of the whole protocol: search, validation and evaluation share one scanner.
//!
//! - `scan`: the ends of strings and values.
//! - `fields`: the members of an object and the elements of an array, without their content.
//! - `check`: the check of a whole value, fast.
//! - `strict`: a walk that validates the whole text.
//! - [`Cursor`]: a walk that trusts the text and reads values, for filters.
//! - `tree`: a whole value in memory, below a limit.
//! - `text`: unescaping and escaping of strings.

pub(crate) mod check;
mod cursor;
pub(crate) mod fields;
mod number;
pub(crate) mod scan;
pub(crate) mod strict;
pub(crate) mod text;
mod tree;

pub use cursor::{Cursor, Found};
pub use number::Number;
pub use tree::parse_tree;

/// The value of a JSON number that has digits only, if it is below 2^64. JSON has no leading zeros.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if matches!(text, [] | [b'0', _, ..]) {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// The reason why a text is not the expected JSON: the fault of its author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not an object.
    #[error("the text is not an object")]
    NotAnObject,
    /// Not valid JSON.
    #[error("the text is malformed")]
    Malformed,
    /// Nested deeper than [`NESTING_MAX`], or a payload deeper than [`PAYLOAD_NESTING_MAX`].
    #[error("nested too deep")]
    TooDeep,
    /// As a tree of values it would need more memory than the limit.
    #[error("a tree of too many values")]
    TooLarge,
}

/// The maximum nesting of arrays and objects in a JSON or MessagePack message.
pub const NESTING_MAX: usize = 64;

/// The maximum nesting of an application's payload, and of presence data, wherever it is sent: the other levels are for
/// what carries it, a message in a batch or a publication in the answer about a history.
pub const PAYLOAD_NESTING_MAX: usize = 60;

/// The levels around a payload that has all of its own.
pub(crate) const AROUND_PAYLOAD: usize = NESTING_MAX - PAYLOAD_NESTING_MAX;

/// The levels around an envelope whose payload has all of its own.
pub(crate) const AROUND_ENVELOPE: usize = AROUND_PAYLOAD - 1;
