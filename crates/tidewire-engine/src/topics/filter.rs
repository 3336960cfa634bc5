//! Filters of subscriptions: a document of operators, compiled once and evaluated on the raw JSON
//! of each payload.

mod automaton;
mod compile;
mod condition;
mod constant;
mod paths;

use compile::Program;
pub use compile::{FilterProblem, InvalidFilter};
use serde_json::Value;
use std::fmt;
use tidewire_wire::json::{Found, JsonError, parse_tree};

/// A filter on payloads: it selects the publications that a subscription wants.
///
/// ```
/// use tidewire_engine::Filter;
///
/// let filter = Filter::compile(&serde_json::json!({
///     "side": "buy",
///     "order.price": {"$gte": 100, "$lt": 200},
///     "$or": [{"symbol": {"$in": ["EURUSD", "GBPUSD"]}}, {"tags": {"$contains": "urgent"}}],
/// }))?;
/// let wanted = br#"{"symbol":"EURUSD","side":"buy","order":{"price":100.5},"tags":[]}"#;
/// assert!(filter.matches(wanted));
/// # Ok::<(), tidewire_engine::InvalidFilter>(())
/// ```
///
/// # Documents
///
/// A document is an object, and all its members must hold; an empty one matches everything. A member
/// is
/// - `"$and": [documents]` or `"$or": [documents]`, of at least one, or `"$not": document`;
/// - `"path": {operators}`, all of which must hold, or `"path": value`, which is `{"$eq": value}`.
///   An object whose names do not begin with `$` is such a value.
///
/// A path is made of names with dots between them. On an object a name is that of a member; on an
/// array a number such as `0` is an index, counted from 0. Of members with the same name the first
/// counts. Members whose name has a dot cannot be reached, nor at the top those that begin with a
/// `$`.
///
/// | operator | holds if the field is there and |
/// |---|---|
/// | `$eq` | is equal to the value |
/// | `$gt`, `$gte`, `$lt`, `$lte` | is a number, or a string, as the value is, and stands in that order to it |
/// | `$in` | is equal to one of the values of the list |
/// | `$regex` | is a string, and the regular expression matches somewhere in it |
/// | `$contains` | is a string with the value in it, or an array with an element equal to the value |
/// | `$startswith`, `$endswith` | is a string that begins, or ends, with the value |
/// | `$exists` | the value is `true`; with `false`: if the field is not there |
///
/// `$ne` and `$nin` are the contrary of `$eq` and `$in`, and `"path": {"$not": {operators}}` is the
/// contrary of those operators. So of a field that is not there only `$ne`, `$nin`, `$not` and
/// `"$exists": false` hold. `null` is a value like another: a field that is `null` is there.
///
/// # Equality and order
///
/// Values of different types are never equal and have no order. Numbers are compared by value, `1`
/// and `1.0` being equal: whole numbers exactly from -2^63 to 2^64 - 1, all others as the nearest
/// binary floating-point number of 64 bits. Strings are compared by code point, without
/// normalization; one that is not Unicode, because of a lone `\ud800`, is equal to nothing and in
/// no order. Arrays are equal if their elements are, one by one; objects if they have the same
/// names with equal values. An array is not equal to its elements: for that there is `$contains`.
///
/// # Regular expressions
///
/// They have the syntax of the crate `regex`, without look-around and references back, and are not
/// anchored. `\d`, `\w`, `\s` and `\b` are about ASCII, as in JavaScript. Each is compiled to an
/// automaton of at most 32 KiB, so that a search needs a few nanoseconds for each byte; an
/// expression that needs a larger one is refused. `$regex` does not hold in strings of more than 4
/// KiB.
///
/// # Limits
///
/// 16 levels of nesting in the document, 64 KiB of text, 128 conditions, 1,024 values in a list, 16
/// names in a path; 16 searches (`$contains`, `$regex` and values that are arrays or objects), 4 of
/// them `$regex`, of 512 bytes. Searches other than `$regex` look at the first 64 KiB of a string,
/// an array or an object.
pub struct Filter {
    source: String,
    program: Program,
}

impl Filter {
    /// Checks and compiles a document.
    ///
    /// # Errors
    /// [`InvalidFilter`], which names the place in the document and the problem there.
    pub fn compile(document: &Value) -> Result<Self, InvalidFilter> {
        let source = compile::canonical(document)?;
        let program = Program::compile(document)?;
        Ok(Self { source, program })
    }

    /// Checks and compiles a document that is JSON text, in memory that is bounded by the largest
    /// document: a text with more values is refused before they are made.
    ///
    /// # Errors
    /// As [`Self::compile`]; a text that is no JSON is not an object.
    pub(crate) fn compile_text(text: &str) -> Result<Self, InvalidFilter> {
        let document = parse_tree(text.as_bytes(), TREE_BYTES_MAX);
        Self::compile(&document.map_err(|error| InvalidFilter {
            path: String::new(),
            problem: match error {
                JsonError::TooLarge => FilterProblem::TooLong,
                _ => FilterProblem::NotAnObject,
            },
        })?)
    }

    /// The document as JSON text, the same for equal documents, whatever the order of their
    /// members. Two filters with the same text match the same publications.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The largest cost of a look at a payload of N bytes, in units of
    /// [work](crate::limits::work).
    pub(crate) fn match_cost(&self, payload_bytes: usize) -> u64 {
        self.program.match_cost(payload_bytes)
    }

    /// The cost of its compilation, in units of [work](crate::limits::work).
    pub(crate) fn compile_cost(&self) -> u64 {
        self.program.compile_cost(self.source.len())
    }

    /// Its approximate size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        2 * self.source.len() + self.program.bytes() + size_of::<Self>()
    }

    /// Whether the filter matches this payload, which is JSON text.
    ///
    /// Only as much of it is read as the filter needs. Of text that is not valid JSON the answer
    /// may be either, but it never panics.
    pub fn matches(&self, payload: &[u8]) -> bool {
        if self.program.slots() <= SLOTS_INLINE {
            let mut found = [const { Found::Missing }; SLOTS_INLINE];
            self.program.run(payload, &mut found)
        } else {
            let mut found = Vec::new();
            found.resize_with(self.program.slots(), || Found::Missing);
            self.program.run(payload, &mut found)
        }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Filter").field(&self.source).finish()
    }
}

/// The memory of a document while it is compiled: 64 KiB of the smallest objects need 6 MiB.
const TREE_BYTES_MAX: usize = 8 << 20;

/// The fields of a filter that has no more of them need no allocation.
const SLOTS_INLINE: usize = 8;
