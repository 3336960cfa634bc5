//! Replies of a server: for the model, and for tests.

/// Appends a string with its length.
pub fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    super::argument(out, bytes);
}

/// Appends a short text without a length, such as `OK`.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("+{text}\r\n").as_bytes());
}

/// Appends an error.
pub fn error(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("-{text}\r\n").as_bytes());
}

/// Appends a number.
pub fn integer(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(format!(":{number}\r\n").as_bytes());
}

/// Appends nothing.
pub fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(b"_\r\n");
}

/// Begins an array of N values.
pub fn array(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(format!("*{length}\r\n").as_bytes());
}

/// Begins a map of N pairs.
pub fn map(out: &mut Vec<u8>, pairs: usize) {
    out.extend_from_slice(format!("%{pairs}\r\n").as_bytes());
}

/// Begins a push of N values.
pub fn push(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(format!(">{length}\r\n").as_bytes());
}
