//! The bound of what is on its way unconfirmed at full speed.
//!
//! Without one, a server that falls behind has as much waiting in the kernel as its buffers take, which is slow to work
//! off and, with many connections, more than the kernel has for all of TCP. With too small a one, the generator waits for
//! confirmations instead of for the server.

use super::preflight;

/// Bytes that one of so many connections may have on their way unconfirmed on this machine.
pub(super) fn bytes_each(connections: u64) -> u64 {
    let kernel = preflight::tcp_memory_bytes().unwrap_or(KERNEL_BYTES_USUAL);
    bytes_each_of(connections, kernel)
}

/// An equal part of [`TOTAL_BYTES`], or [`EACH_BYTES_MIN`] if that is more: half of it is written at once, which costs
/// least if it fills a packet of the loopback (64 KiB). The kernel keeps half of what it has for TCP before it presses.
fn bytes_each_of(connections: u64, kernel_bytes: u64) -> u64 {
    let connections = connections.max(1);
    let part = TOTAL_BYTES.min(kernel_bytes / 4) / connections;
    let least = EACH_BYTES_MIN.min(kernel_bytes / 2 / connections);
    part.max(least).max(FLOOR_BYTES)
}

const TOTAL_BYTES: u64 = 256 * 1024 * 1024;
const EACH_BYTES_MIN: u64 = 128 * 1024;
const FLOOR_BYTES: u64 = 16 * 1024;

/// Where the kernel does not say what it has for TCP.
const KERNEL_BYTES_USUAL: u64 = 1024 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * 1024 * 1024;

    #[test]
    fn many_connections_have_room_each_and_the_kernel_keeps_half() {
        assert_eq!(bytes_each_of(1, 2 * GIB), 256 * 1024 * 1024);
        assert_eq!(bytes_each_of(1_000, 2 * GIB), 268_435);
        assert_eq!(bytes_each_of(10_000, 4 * GIB), 128 * 1024);
        assert_eq!(bytes_each_of(10_000, 2 * GIB), 107_374);
        // A kernel with little keeps half of it, and below the floor nothing is worth a confirmation.
        assert_eq!(bytes_each_of(10_000, GIB / 2), 26_843);
        assert_eq!(bytes_each_of(1_000_000, GIB), 16 * 1024);
        assert_eq!(bytes_each_of(0, GIB), 256 * 1024 * 1024);
    }
}
