//! HTTP/2 without I/O (RFC 9113): bytes in, events out; requests or responses in, bytes out.
//!
//! - [`Connection`] is one side of a connection: streams, windows, settings, and the faults of a peer.
//! - [`write_request`] and [`write_response`] make header blocks. A block is the same on every connection, so that a
//!   request is encoded once.
//!
//! A peer cannot make a connection hold or do more than its [`Limits`] allow: header blocks and what they expand to are
//! bounded, and so are the frames that bring nothing (resets, pings, settings, empty frames): 1,000 at once and 100 per
//! second, and two more for each answered request. Server push is refused, priorities are ignored.

mod connection;
mod encode;
mod error;
mod event;
mod frame;
mod head;
mod hpack;
mod huffman;
mod state;
mod stream;

pub use connection::Connection;
pub use encode::{RepeatedBlocks, repeated_request, write_request, write_response};
pub use error::{ErrorCode, Fault, StreamFault};
pub use event::{Event, Head, Step};
pub use frame::PREFACE;
pub use head::{Heads, Limits};
pub use stream::Message;
