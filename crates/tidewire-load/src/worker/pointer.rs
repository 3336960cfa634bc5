//! JSON pointers (RFC 6901): their tokens, and what a token means in an array.

/// Whether a text is a pointer.
#[must_use]
pub fn is_pointer(text: &str) -> bool {
    text.is_empty() || text.starts_with('/')
}

/// The names of a pointer, from the outermost to the innermost.
pub(super) fn tokens(pointer: &str) -> impl Iterator<Item = String> {
    let tokens = pointer.split('/').skip(1);
    tokens.map(|token| token.replace("~1", "/").replace("~0", "~"))
}

/// The index that a token means in an array.
pub(super) fn index_of(token: &str) -> Option<usize> {
    let is_index = token == "0" || !token.starts_with(['0', '+']);
    token.parse().ok().filter(|_| is_index)
}
