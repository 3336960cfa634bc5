//! The Tidewire protocol without I/O.
//!
//! The input is bytes, events and the time; the output is bytes, events and the next deadline. Nothing here
//! reads a clock, draws a random number, opens a socket or writes a log line, so that every rule of the
//! protocol can be tested with bytes alone, and the crate builds for `wasm32-unknown-unknown`.
//!
//! - [`handshake`]: the HTTP/1.1 opening handshake of both sides (RFC 6455, section 4).
//! - [`proxy`], [`forwarded`]: the address of a client behind proxies.
//! - [`frame`], [`mask`], [`utf8`], [`close`], [`message`]: RFC 6455 frames and messages, parsed in place.
//! - [`connection`]: a connection of either side: answers to control frames, and the closing handshake.
//! - [`deflate`]: permessage-deflate (RFC 7692).
//! - [`json`]: the one reader of JSON, below the envelope, the signatures and the filters of subscriptions.
//! - [`envelope`], [`format`](mod@format), [`codes`], [`uuid`], [`timestamp`]: version 1 messages and their encodings.
//! - [`session`]: the version 1 state machine of each side.
//! - `secure`: encryption and signatures; only with the feature `crypto`.

pub mod close;
pub mod codes;
pub mod connection;
pub mod deflate;
pub mod envelope;
pub mod format;
pub mod forwarded;
pub mod frame;
pub mod handshake;
mod header;
pub mod json;
pub mod mask;
pub mod message;
pub mod proxy;
#[cfg(feature = "crypto")]
pub mod secure;
pub mod session;
pub mod timestamp;
pub mod utf8;
pub mod uuid;
