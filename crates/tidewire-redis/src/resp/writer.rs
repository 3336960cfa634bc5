//! Commands, as arrays of strings.

/// Appends a command with these arguments; the first is its name.
pub fn command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    command_head(out, arguments.len());
    for bytes in arguments {
        argument(out, bytes);
    }
}

/// Begins a command; exactly `arguments` arguments must follow.
pub fn command_head(out: &mut Vec<u8>, arguments: usize) {
    head(out, b'*', arguments as u64);
}

/// Appends an argument.
pub fn argument(out: &mut Vec<u8>, bytes: &[u8]) {
    head(out, b'$', bytes.len() as u64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number as an argument.
pub fn number_argument(out: &mut Vec<u8>, number: u64) {
    argument(out, itoa::Buffer::new().format(number).as_bytes());
}

fn head(out: &mut Vec<u8>, kind: u8, length: u64) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}
