//! Tokens in messages.

/// A token, which is a secret: it never reaches a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Bytes that a token in a message may have.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
