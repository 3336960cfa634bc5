//! Receive buffers: the limit of unread bytes of a connection in the kernel.
//!
//! The kernel sizes a receive buffer by what the application reads in a round trip. Where the sender is as fast as the
//! reader, that is too small: the window closes, each read opens it a little, and the reader's core moves the sender's
//! data as well. So a connection that sends fast gets a large buffer, and all of these together have a limit.

use socket2::{Domain, Socket, Type};

/// The limits of a shard, and the granted buffers.
#[derive(Debug)]
pub(crate) struct ReceiveBuffers {
    /// The limit of one connection; with 0 the kernel chooses all sizes.
    bytes_max: usize,
    /// The limit of all connections together.
    total_bytes_max: usize,
    granted_bytes: usize,
}

/// The receive buffer of one connection.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ReceiveBuffer {
    /// Its size; 0 if the kernel chooses it.
    granted_bytes: u32,
    /// The bytes received in the current period.
    received_bytes: u32,
    /// The start of the period, in milliseconds; it wraps around.
    since_ms: u32,
}

impl ReceiveBuffers {
    /// Buffers of at most `bytes_max` each and `total_bytes_max` together, as far as the system allows them.
    pub(crate) fn new(bytes_max: usize, total_bytes_max: usize) -> Self {
        Self::with_allowance(bytes_max, total_bytes_max, allowance_bytes)
    }

    fn with_allowance(
        bytes_max: usize,
        total_bytes_max: usize,
        allowance: impl FnOnce(usize) -> usize,
    ) -> Self {
        let wanted = bytes_max.min(BUFFER_BYTES_LIMIT);
        let allowed = if wanted == 0 { 0 } else { allowance(wanted) };
        // A fixed buffer that is small holds a distant peer back more than the kernel's own choice does.
        let is_useful = allowed >= wanted.min(USEFUL_BYTES);
        if !is_useful {
            tracing::info!(
                allowed_bytes = allowed,
                "the system allows no large receive buffers (net.core.rmem_max); their sizes are left to the kernel"
            );
        }
        Self {
            bytes_max: if is_useful { allowed } else { 0 },
            total_bytes_max,
            granted_bytes: 0,
        }
    }

    #[inline]
    pub(crate) fn is_managed(&self) -> bool {
        self.bytes_max > 0
    }

    /// Accounts for `bytes` that were read from one of `connections` connections. Returns the new size of its
    /// buffer, if it changes.
    #[inline]
    pub(crate) fn account(
        &mut self,
        buffer: &mut ReceiveBuffer,
        bytes: usize,
        connections: usize,
        now_ms: u64,
    ) -> Option<usize> {
        let now_ms = now_ms as u32;
        if now_ms.wrapping_sub(buffer.since_ms) > PERIOD_MS {
            buffer.since_ms = now_ms;
            buffer.received_bytes = 0;
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        buffer.received_bytes = buffer.received_bytes.saturating_add(bytes);
        let granted = buffer.granted_bytes;
        let is_filled_in_period = buffer.received_bytes >= granted.max(BUFFER_BYTES_MIN as u32);
        let share = self.share(connections);
        let is_changed = match (granted as usize).cmp(&share) {
            std::cmp::Ordering::Less => is_filled_in_period,
            std::cmp::Ordering::Equal => false,
            std::cmp::Ordering::Greater => true,
        };
        is_changed.then(|| self.grant(buffer, share)).flatten()
    }

    /// The share of each of `connections` connections, rounded down to a quarter of a power of two, so that it rarely
    /// changes.
    fn share(&self, connections: usize) -> usize {
        let equal = self.total_bytes_max / connections.max(1);
        let step = ((equal + 1).next_power_of_two() / 8).max(1);
        (equal / step * step).clamp(BUFFER_BYTES_MIN.min(self.bytes_max), self.bytes_max)
    }

    /// Sets a buffer to its share, or to the minimum if the other buffers leave no room.
    fn grant(&mut self, buffer: &mut ReceiveBuffer, share: usize) -> Option<usize> {
        self.release(buffer);
        let left = self.total_bytes_max.saturating_sub(self.granted_bytes);
        let size = if share <= left {
            share
        } else {
            share.min(BUFFER_BYTES_MIN)
        };
        self.granted_bytes += size;
        let before = std::mem::replace(&mut buffer.granted_bytes, size as u32);
        (before as usize != size).then_some(size)
    }

    /// Releases the buffer of a connection that ends.
    pub(crate) fn release(&mut self, buffer: &ReceiveBuffer) {
        self.granted_bytes -= buffer.granted_bytes as usize;
    }
}

/// The part of `wanted` bytes that the system allows for a socket.
fn allowance_bytes(wanted: usize) -> usize {
    // Measured on Linux alone; other systems choose by themselves.
    if !cfg!(target_os = "linux") {
        return 0;
    }
    let size_of_socket = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_recv_buffer_size(wanted)?;
        socket.recv_buffer_size()
    };
    // Linux doubles the given size, for its own overhead (socket(7)), and caps it silently.
    size_of_socket().map_or(0, |bytes| (bytes / 2).min(wanted))
}

/// The minimum for a fast connection: the initial size on Linux.
const BUFFER_BYTES_MIN: usize = 64 * 1024;

/// Linux counts a buffer with its overhead in 31 bits.
const BUFFER_BYTES_LIMIT: usize = 512 * 1024 * 1024;

/// If the system allows less, its own choice is better.
const USEFUL_BYTES: usize = 512 * 1024;

/// A connection is fast that fills its buffer in this time, the longest round trip that is provided for.
const PERIOD_MS: u32 = 250;

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;

    fn managed(bytes_max: usize, total_bytes_max: usize) -> ReceiveBuffers {
        ReceiveBuffers::with_allowance(bytes_max, total_bytes_max, |wanted| wanted)
    }

    #[test]
    fn a_fast_connection_gets_its_share_and_a_slow_one_nothing() {
        let mut buffers = managed(4 * MIB, 64 * MIB);
        let (mut fast, mut slow) = (ReceiveBuffer::default(), ReceiveBuffer::default());
        assert_eq!(buffers.account(&mut fast, 32 * KIB, 2, 1_000), None);
        assert_eq!(
            buffers.account(&mut fast, 32 * KIB, 2, 1_100),
            Some(4 * MIB)
        );
        for turn in 0..100 {
            let now_ms = 1_000 + turn * 300;
            assert_eq!(buffers.account(&mut slow, 63 * KIB, 2, now_ms), None);
        }
    }

    #[test]
    fn more_connections_have_smaller_shares_and_never_more_than_the_limit() {
        let mut buffers = managed(4 * MIB, 16 * MIB);
        let mut connections = vec![ReceiveBuffer::default(); 100];
        for count in [1, 10, 100] {
            for _ in 0..2 {
                for buffer in &mut connections[..count] {
                    buffers.account(buffer, 8 * MIB, count, 5);
                }
            }
            assert!(buffers.granted_bytes <= 16 * MIB, "{count}");
            assert!(
                connections[..count]
                    .iter()
                    .all(|buffer| buffer.granted_bytes > 0)
            );
        }
        assert_eq!(connections[0].granted_bytes as usize, 160 * KIB);
    }

    #[test]
    fn who_comes_when_all_is_granted_gets_the_least() {
        let mut buffers = managed(4 * MIB, 8 * MIB);
        let mut first = [ReceiveBuffer::default(); 2];
        for buffer in &mut first {
            assert_eq!(buffers.account(buffer, MIB, 2, 0), Some(4 * MIB));
        }
        let mut late = ReceiveBuffer::default();
        assert_eq!(buffers.account(&mut late, MIB, 4, 0), Some(64 * KIB));
        // The others give way at their next reads, and then there is room.
        for buffer in &mut first {
            assert_eq!(buffers.account(buffer, 1, 4, 0), Some(2 * MIB));
        }
        assert_eq!(buffers.account(&mut late, MIB, 4, 0), Some(2 * MIB));
    }

    #[test]
    fn what_an_ended_connection_had_is_free_again() {
        let mut buffers = managed(4 * MIB, 4 * MIB);
        let mut first = ReceiveBuffer::default();
        assert_eq!(buffers.account(&mut first, MIB, 1, 0), Some(4 * MIB));
        buffers.release(&first);
        assert_eq!(buffers.granted_bytes, 0);
        let mut second = ReceiveBuffer::default();
        assert_eq!(buffers.account(&mut second, MIB, 1, 0), Some(4 * MIB));
    }

    #[test]
    fn where_the_system_allows_little_the_kernel_chooses() {
        let allowing = |allowed: usize| {
            ReceiveBuffers::with_allowance(4 * MIB, 64 * MIB, move |wanted| wanted.min(allowed))
        };
        assert!(!allowing(208 * KIB).is_managed());
        assert_eq!(allowing(MIB).bytes_max, MIB);
        assert!(!managed(0, 64 * MIB).is_managed());
        assert_eq!(managed(128 * KIB, MIB).bytes_max, 128 * KIB);
    }

    #[test]
    fn the_clock_may_wrap_around() {
        let mut buffers = managed(4 * MIB, 64 * MIB);
        let mut buffer = ReceiveBuffer::default();
        let before_wrap = u64::from(u32::MAX) - 10;
        assert_eq!(buffers.account(&mut buffer, 40 * KIB, 1, before_wrap), None);
        assert_eq!(
            buffers.account(&mut buffer, 40 * KIB, 1, before_wrap + 20),
            Some(4 * MIB)
        );
    }
}
