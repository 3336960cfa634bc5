//! Parts of the engine and of the protocol that are useful without a server.
//!
//! - `compression`: zlib, and MessagePack from and to JSON
//! - `encryption`: a key agreement, and AES-256-GCM with its key
//! - `envelope`: the envelope around the payload of a message
//! - `signatures`: signatures of messages
//! - `token_bucket`: the rate limit of the server
//! - `tokens`: JSON Web Tokens

pub mod compression;
pub mod encryption;
pub mod envelope;
mod random;
pub mod signatures;
pub mod token_bucket;
pub mod tokens;

use crate::failure::Failure;
use std::time::{SystemTime, UNIX_EPOCH};

/// An array of exactly N bytes; `what` names them in the error.
///
/// # Errors
/// There are more or fewer bytes.
pub fn exactly<const N: usize>(bytes: &[u8], what: &str) -> Result<[u8; N], Failure> {
    let length = bytes.len();
    let bytes = bytes.try_into();
    bytes.map_err(|_| Failure::argument(format!("{what} has {N} bytes, not {length}")))
}

/// Milliseconds since 1970, UTC.
#[must_use]
pub fn unix_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| elapsed.as_millis() as u64)
}
