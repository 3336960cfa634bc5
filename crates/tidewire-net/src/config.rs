//! Configuration of a shard: the sizes of its buffers and queues.

/// The sizes of a shard.
#[derive(Debug, Clone)]
pub struct ShardConfig {
    /// The size of the read buffer, in bytes. Default 128 KiB; smaller values than 64 KiB are raised to it.
    pub read_buffer_bytes: usize,
    /// The limit of the outbox of one connection, in bytes; beyond it the connection ends with
    /// [`Closed::OutboxOverflow`](crate::Closed::OutboxOverflow). Default 16 MiB.
    pub outbox_bytes_max: usize,
    /// The limit of all outboxes together, in bytes; shared chunks count once. Beyond it a connection with more than
    /// [`OUTBOX_SHARE_BYTES`](crate::OUTBOX_SHARE_BYTES) in its outbox ends with
    /// [`Closed::OutboxOverflow`](crate::Closed::OutboxOverflow). Default 1 GiB.
    pub outboxes_bytes_max: usize,
    /// The receive buffer of a connection that sends fast, in bytes; Linux uses up to twice as much memory for it. With
    /// 0 the kernel chooses the size, as on systems other than Linux and those that allow less than 512 KiB
    /// (`net.core.rmem_max`). Default 0.
    pub receive_buffer_bytes_max: usize,
    /// The limit of the receive buffers of all connections together. Each fast connection has an equal part, but at
    /// least 64 KiB, which is also the size for other connections. Default 1 GiB.
    pub receive_buffers_bytes_max: usize,
    /// The maximum number of waiting mails. Default 4096; at least 1.
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
