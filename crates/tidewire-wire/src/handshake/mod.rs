//! The HTTP/1.1 opening handshake of both sides (RFC 6455, section 4).

pub mod client;
pub mod server;

use base64::Engine as _;

/// What `Sec-WebSocket-Accept` must say for the key `key` (RFC 6455, section 4.2.2).
fn accept_value(key: &[u8]) -> [u8; ACCEPT_BYTES] {
    let mut digest = sha1_smol::Sha1::new();
    digest.update(key);
    digest.update(ACCEPT_GUID);
    let mut value = [0; ACCEPT_BYTES];
    base64::engine::general_purpose::STANDARD
        .encode_slice(digest.digest().bytes(), &mut value)
        .expect("20 bytes are 28 characters of base64");
    value
}

/// The comma-separated elements of a header value, without the empty ones.
fn list(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(trim)
        .filter(|element| !element.is_empty())
}

/// Whether one of the elements of a list is `token`, in any case.
fn list_has(value: &str, token: &str) -> bool {
    list(value).any(|element| element.eq_ignore_ascii_case(token))
}

/// Takes the optional white space of RFC 9110, section 5.6.3, off both ends.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// A token of RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

/// Text without white space, controls and what is not ASCII.
fn is_visible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A header value that cannot end its line.
fn is_header_value(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte == b'\t' || (byte >= 0x20 && byte != 0x7f))
}

/// RFC 9112, section 2.2, lets a receiver take a bare LF for a line end; two programs in a row that differ in
/// this can be played against each other.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let mut before = 0;
    head.iter().any(|byte| {
        let before = std::mem::replace(&mut before, *byte);
        *byte == b'\n' && before != b'\r'
    })
}

fn write_header(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Header lines that either side takes from the other.
pub const HEADERS_MAX: usize = 64;

const ACCEPT_BYTES: usize = 28;
const ACCEPT_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 6455, section 1.3.
        assert_eq!(
            &accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="),
            b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn lists() {
        assert!(list_has("keep-alive,\t Upgrade", "upgrade"));
        assert!(!list_has("upgraded, up grade", "upgrade"));
        assert_eq!(list(" a,, b ,").collect::<Vec<_>>(), ["a", "b"]);
    }
}
