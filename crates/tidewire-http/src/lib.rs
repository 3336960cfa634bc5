//! HTTP/1.1 without I/O (RFC 9112): bytes in, events out; values in, bytes out.
//!
//! - [`response`]: what a client reads. A [`ResponseReader`] per connection finds where each response ends.
//! - [`request`]: what a client writes. A [`RequestHead`] is validated and encoded once.
//! - [`server`]: the other side of both.
//!
//! Nothing here reads a clock or opens a socket. A reader consumes from the front of what the caller has received
//! and gives the same result however those bytes were cut into pieces. A head that is not whole stays with the
//! caller; of a body no byte does.

mod chunked;
pub mod fields;
mod heads;
pub mod request;
pub mod response;
pub mod server;

pub use fields::{Fields, Version};
pub use request::{BodyLength, RequestHead};
pub use response::{ResponseHeads, ResponseReader};
