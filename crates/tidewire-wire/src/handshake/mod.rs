//! The HTTP/1.1 opening handshake of both sides (RFC 6455, section 4).

pub mod client;
pub mod server;

use base64::Engine as _;

/// The value of `Sec-WebSocket-Accept` for the key `key` (RFC 6455, section 4.2.2).
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
}
