//! The limit of unconfirmed bytes at full speed.
//!
//! Without a limit, the kernel's buffers fill up for a server that falls behind. With many
//! connections they need more than the kernel has for all of TCP. If the limit is too small, the
//! generator waits for confirmations instead of for the server. How much of the limit a connection
//! uses depends on how soon the server confirms.

use super::preflight;

/// The most unconfirmed bytes that each of this number of connections may have in flight on this machine.
pub(super) fn bytes_each(connections: u64) -> u64 {
    let kernel = preflight::tcp_memory_bytes().unwrap_or(KERNEL_BYTES_USUAL);
    bytes_each_of(connections, kernel)
}

/// An equal part of [`TOTAL_BYTES`], or [`EACH_BYTES_MIN`] if that is more. A quarter of the kernel's
/// memory for TCP stays free.
fn bytes_each_of(connections: u64, kernel_bytes: u64) -> u64 {
    let connections = connections.max(1);
    let part = TOTAL_BYTES.min(kernel_bytes / 4) / connections;
    let least = EACH_BYTES_MIN.min(kernel_bytes / 4 * 3 / connections);
    part.max(least).max(FLOOR_BYTES)
}

const TOTAL_BYTES: u64 = 256 * 1024 * 1024;
const EACH_BYTES_MIN: u64 = 1024 * 1024;
const FLOOR_BYTES: u64 = 16 * 1024;

/// For a kernel that does not report its memory for TCP.
const KERNEL_BYTES_USUAL: u64 = 1024 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * 1024 * 1024;

    #[test]
    fn many_connections_have_room_each_and_the_kernel_keeps_a_quarter() {
        assert_eq!(bytes_each_of(1, 2 * GIB), 256 * 1024 * 1024);
        assert_eq!(bytes_each_of(1_000, 2 * GIB), 1024 * 1024);
        assert_eq!(bytes_each_of(10_000, 4 * GIB), 322_122);
        assert_eq!(bytes_each_of(10_000, 2 * GIB), 161_061);
        // With little memory a quarter of it stays free, and below the floor a confirmation costs too
        // much.
        assert_eq!(bytes_each_of(10_000, GIB / 2), 40_265);
        assert_eq!(bytes_each_of(1_000_000, GIB), 16 * 1024);
        assert_eq!(bytes_each_of(0, GIB), 256 * 1024 * 1024);
    }
}
