//! The name of a connection in the tables of topics.

use tidewire_net::ConnectionId;

/// The name of a connection in the tables of topics: its place in the shard's table, and the lowest
/// 8 bits of its generation. So a connection can go on leaving after its place was given to
/// another.
pub(crate) fn member_key(id: ConnectionId) -> u32 {
    id.generation() << MEMBER_INDEX_BITS | id.index() as u32
}

/// A shard has fewer connections than 2 to the power of this.
const MEMBER_INDEX_BITS: u32 = 24;

/// The highest place in the shard's table that a connection can have.
pub(crate) const MEMBER_INDEX_MAX: usize = (1 << MEMBER_INDEX_BITS) - 1;
