//! HTTP/1.1 (RFC 9112) and HTTP/2 (RFC 9113) without I/O: bytes in, events out; values in, bytes out.
//!
//! - [`response`]: what a client reads. A [`ResponseReader`] per connection finds where each response ends.
//! - [`request`]: what a client writes. A [`RequestHead`] is validated and encoded once.
//! - [`server`]: the other side of both.
//! - [`http2`]: both sides of HTTP/2.
//!
//! Nothing here reads a clock or opens a socket. A reader consumes from the front of what the caller has received
//! and gives the same result however those bytes were cut into pieces. A head that is not whole stays with the
//! caller; of a body no byte does.

mod chunked;
pub mod fields;
mod heads;
pub mod http2;
pub mod request;
pub mod response;
pub mod server;

pub use fields::{Fields, Version};
pub use request::{BodyLength, RequestHead};
pub use response::{ResponseHeads, ResponseReader};
