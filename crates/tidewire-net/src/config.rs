//! Configuration of a shard: the sizes of its buffers and queues.

/// The sizes of a shard.
#[derive(Debug, Clone)]
pub struct ShardConfig {
    /// The one read buffer, in bytes. Default 128 KiB; at least 64 KiB, to which less is raised.
    pub read_buffer_bytes: usize,
    /// What may wait for one connection to take it, in bytes; past it the connection ends with
    /// [`Closed::OutboxOverflow`](crate::Closed::OutboxOverflow). Default 16 MiB.
    pub outbox_bytes_max: usize,
    /// What may wait in all outboxes together, in bytes; chunks that several share count once. Past it a connection
    /// for which more than [`OUTBOX_SHARE_BYTES`](crate::OUTBOX_SHARE_BYTES) wait ends with
    /// [`Closed::OutboxOverflow`](crate::Closed::OutboxOverflow). Default 1 GiB.
    pub outboxes_bytes_max: usize,
    /// What the kernel may hold unread of a connection that sends fast, in bytes; Linux takes up to twice as much
    /// memory for it. 0 leaves it to the kernel, as do systems other than Linux and those that allow less than 512 KiB
    /// (`net.core.rmem_max`). Default 0.
    pub receive_buffer_bytes_max: usize,
    /// The same of all connections together. Each gets an equal part, but at least 64 KiB, which is also what a
    /// connection has before it is fast. Default 1 GiB.
    pub receive_buffers_bytes_max: usize,
    /// Mail that may wait. Default 4096; at least 1.
    pub mailbox_capacity: usize,
}

impl Default for ShardConfig {
    fn default() -> Self {
        Self {
            read_buffer_bytes: 128 * 1024,
            outbox_bytes_max: 16 * 1024 * 1024,
            outboxes_bytes_max: 1024 * 1024 * 1024,
            receive_buffer_bytes_max: 0,
            receive_buffers_bytes_max: 1024 * 1024 * 1024,
            mailbox_capacity: 4096,
        }
    }
}
