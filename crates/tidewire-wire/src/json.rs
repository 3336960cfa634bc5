//! One reader of JSON for the whole protocol: what finds, what checks and what evaluates shares the same scanner.
//!
//! - [`scan`]: where strings and values end.
//! - [`fields`]: the members of an object and the elements of an array, not looked into.
//! - [`strict`]: a walk that checks all of the text.
//! - [`Cursor`]: a walk that trusts the text and reads values, for filters.
//! - [`text`]: strings without their escapes, and written with them.

mod cursor;
pub(crate) mod fields;
mod number;
pub(crate) mod scan;
pub(crate) mod strict;
pub(crate) mod text;

pub use cursor::{Cursor, Found};
pub use number::Number;

/// Why text is not the JSON that is asked for. Always the fault of who wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not an object.
    #[error("the text is not an object")]
    NotAnObject,
    /// Not valid JSON.
    #[error("the text is malformed")]
    Malformed,
    /// Nested deeper than [`NESTING_MAX`].
    #[error("nested deeper than {NESTING_MAX}")]
    TooDeep,
}

/// Levels of arrays and objects that a JSON or MessagePack message may have.
pub const NESTING_MAX: usize = 64;
