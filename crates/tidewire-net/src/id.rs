//! Names of connections and listeners of a shard.

/// Names a connection of one shard; never given to another connection while the shard lives, but for
/// a wrap of the 32-bit generation of its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

impl ConnectionId {
    pub(crate) fn new(index: usize, generation: u32) -> Self {
        // A slab of 2^32 sockets is past what an operating system opens.
        Self {
            index: index as u32,
            generation,
        }
    }

    /// The place in the shard's table: small, dense, and given again after the connection is gone, so
    /// that a handler can keep its own state in a vector.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// How many connections the shard had had before, but for a wrap.
    #[must_use]
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// Both parts in one number.
    #[must_use]
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The id that [`to_u64`](Self::to_u64) gave this number for.
    #[must_use]
    pub fn from_u64(number: u64) -> Self {
        Self {
            index: number as u32,
            generation: (number >> 32) as u32,
        }
    }
}

/// Names a listener of one shard, in the order in which they were added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListenerId(pub(crate) usize);
