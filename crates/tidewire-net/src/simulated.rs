//! Simulated connections: the sockets of a shard in a simulation.

mod random;
mod wire;

pub(crate) use random::Random;
pub(crate) use wire::{Blocked, Common, Direction, End, SimulatedSocket, Wire, lock};

use std::ops::RangeInclusive;

/// The faults of the network. The default delays and splits bytes, but breaks nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// The seed of all random choices. Default 0.
    pub seed: u64,
    /// The delay of each piece, in virtual milliseconds; pieces of one direction of a
    /// connection do not overtake each other. Default 0 to 5.
    pub delay_ms: RangeInclusive<u64>,
    /// The size of a piece, in bytes; at least 1. Default 1 to 16 KiB.
    pub piece_bytes: RangeInclusive<usize>,
    /// The probability that the socket of a shard accepts only a part of a write although there is room.
    /// After that it accepts nothing for a delay. Default 0.
    pub partial_write_chance: f64,
    /// The probability, for each piece, that the connection is reset instead of its arrival. Default 0.
    pub reset_chance: f64,
    /// The capacity of each direction of a connection, for bytes in transit or unread, in bytes;
    /// at least 1. Default 256 KiB.
    pub pipe_bytes: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            seed: 0,
            delay_ms: 0..=5,
            piece_bytes: 1..=16 * 1024,
            partial_write_chance: 0.0,
            reset_chance: 0.0,
            pipe_bytes: 256 * 1024,
        }
    }
}
