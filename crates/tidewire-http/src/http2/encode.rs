//! Heads as header blocks, which are the same on every connection.

use super::head::is_of_http1;
use super::hpack::{write_field, write_repeated};
use crate::fields::Fields;

/// Appends the header block of a request that is written as the head of an HTTP/1.1 request, such as
/// [`RequestHead`](crate::RequestHead) makes it. `Host` becomes the authority; headers about an HTTP/1.1 connection are left
/// out (RFC 9113, section 8.2.2). False, with nothing appended, if it has no method and target.
#[must_use]
pub fn write_request(head: &[u8], scheme: &str, out: &mut Vec<u8>) -> bool {
    each_field(head, scheme, |name, value| write_field(name, value, out))
}

/// The header blocks of a request that is sent again and again on a connection, and of which nothing else enters the
/// peer's table: the peer keeps the fields of the first block, and the others only name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedBlocks {
    /// The block of the first request on a connection.
    pub first: Vec<u8>,
    /// The block of each later one.
    pub later: Vec<u8>,
}

/// The blocks of a request that is written as for [`write_request`], for a peer that
/// [keeps a table](super::Connection::peer_keeps_table). `None` if it has no method and target, or too much for a table.
#[must_use]
pub fn repeated_request(head: &[u8], scheme: &str) -> Option<RepeatedBlocks> {
    let mut fields = Vec::new();
    let is_whole = each_field(head, scheme, |name, value| {
        fields.push((name.to_vec(), value.to_vec()));
    });
    let fields = is_whole.then_some(fields)?;
    let (first, later) = write_repeated(&fields)?;
    Some(RepeatedBlocks { first, later })
}

/// Passes each field of a request to a function, in the order of their block; false if there is no method and target.
fn each_field(head: &[u8], scheme: &str, mut take: impl FnMut(&[u8], &[u8])) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return false;
    };
    take(b":method", method);
    take(b":scheme", scheme.as_bytes());
    let fields = Fields::of(head);
    if let Some(host) = fields.value("host") {
        take(b":authority", host);
    }
    take(b":path", target);
    let mut name_bytes = [0; NAME_BYTES_MAX];
    for (name, value) in fields {
        let Some(lower) = name_bytes.get_mut(..name.len()) else {
            // A longer name than any that is in use.
            take(&name.to_ascii_lowercase(), value);
            continue;
        };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let lower: &[u8] = lower;
        let is_left_out = matches!(lower, b"host" | b"http2-settings") || is_of_http1(lower, value);
        if !is_left_out {
            take(lower, value);
        }
    }
    true
}

/// Appends the header block of a response. Names are in lower case.
pub fn write_response(status: u16, headers: &[(&str, &str)], out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    write_field(b":status", digits.format(status).as_bytes(), out);
    for (name, value) in headers {
        write_field(name.as_bytes(), value.as_bytes(), out);
    }
}

/// Longer names are copied to the heap.
const NAME_BYTES_MAX: usize = 64;
