//! The answer of HTTP to a client that is not let in.

use crate::auth::TokenError;
use tidewire_wire::handshake::server::write_rejection;

/// The answer to a request that is rejected.
pub(super) fn write_refusal(
    status: u16,
    reason: &str,
    retry_after_s: Option<u64>,
    buffer: &mut Vec<u8>,
) {
    let seconds = retry_after_s.unwrap_or_default().to_string();
    let mut headers = Vec::new();
    if retry_after_s.is_some() {
        headers.push(("Retry-After", seconds.as_str()));
    }
    let challenge = challenge(reason);
    if status == 401 {
        headers.push(("WWW-Authenticate", challenge.as_str()));
    }
    write_rejection(status, &headers, reason, buffer);
}

/// `WWW-Authenticate` for a token that is not accepted (RFC 6750, section 3): without a token no error is named.
fn challenge(reason: &str) -> String {
    if reason == TokenError::Missing.to_string() {
        return "Bearer".to_owned();
    }
    // The reason can repeat a part of the token. A quoted string must not end early.
    let is_plain = |letter: char| matches!(letter, ' '..='~') && !matches!(letter, '"' | '\\');
    let plain = reason.chars().take(CHALLENGE_CHARS_MAX);
    let plain: String = plain
        .map(|letter| if is_plain(letter) { letter } else { '?' })
        .collect();
    format!("Bearer error=\"invalid_token\", error_description=\"{plain}\"")
}

/// The longest reason in a challenge, in characters.
const CHALLENGE_CHARS_MAX: usize = 200;
