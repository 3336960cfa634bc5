//! RESP3, the protocol of Redis: bytes in, values out; values in, bytes out.
//!
//! `redis-protocol` 6.0 was tried on paper first and is not used. It parses a reply from its first byte again
//! after each read that did not complete it, so that a reply of many pages costs the square of its size; it
//! recurses once per level with no limit of depth, so that 100 KB of `*1` overflow the stack; and it has no
//! limit of size. The [`Scanner`] here looks at each byte once, keeps its levels in an array, and rejects a
//! value that declares too large a size. Values are slices of the scanned bytes: a push of a subscription is
//! read without an allocation.

mod frames;
mod scanner;
mod value;
mod writer;

pub use frames::Frames;
pub use scanner::{DEPTH_MAX, LINE_BYTES_MAX, Limits, RespError, Scanner};
pub use value::{Items, Value};
pub use writer::{argument, command, command_head, number_argument};

#[cfg(test)]
mod tests;

/// Replies, as a server writes them: for servers in tests.
pub mod reply;
