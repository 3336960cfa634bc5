//! Utilities that need no server: values of JavaScript, and the shared crate below.
//!
//! - `compression`: zlib, and MessagePack from and to JSON
//! - `encryption`: a key agreement, and encryption with its key
//! - `envelope`: the envelope around the payload of a message
//! - `filter`: filters of documents
//! - `jwt`: JSON Web Tokens
//! - `priority_queue`, `sequencer`: order of items that JavaScript holds under numbers
//! - `signatures`: signatures of messages
//! - `token_bucket`: the rate limit of the server

mod compression;
mod encryption;
mod envelope;
mod filter;
mod jwt;
mod priority_queue;
mod sequencer;
mod signatures;
mod token_bucket;

use napi_derive::napi;
use tidewire_engine::settings::nearest;

/// The version of the package.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The known name that is most like `name`, if one is alike.
#[napi]
pub fn nearest_name(name: String, known: Vec<String>) -> Option<String> {
    nearest(&name, known.iter().map(String::as_str)).map(str::to_owned)
}
