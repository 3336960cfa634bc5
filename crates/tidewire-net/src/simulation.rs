//! A network without an operating system: real shards and handlers over simulated connections, in
//! virtual time, with faults drawn from a seed.
//!
//! A [`Driver`] owns the shards, the [`Network`] and the clock. Everything runs on the calling thread;
//! nothing asks a clock or another source of randomness, so a seed replays exactly as long as the
//! handlers are as strict. A turn of a shard takes no virtual time.
//!
//! ```
//! use tidewire_net::simulation::{Driver, Faults};
//! use tidewire_net::{Closed, ConnectionId, Handler, Io, Shard, ShardConfig};
//!
//! struct Echo;
//!
//! impl Handler for Echo {
//!     type Mail = ();
//!
//!     fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
//!         io.send(id, data);
//!         data.len()
//!     }
//!
//!     fn handle_close(&mut self, _: &mut Io, _: ConnectionId, _: Closed) {}
//! }
//!
//! let mut driver = Driver::new(Faults { seed: 7, ..Faults::default() });
//! let (shard, _mailbox) = Shard::new(&ShardConfig::default(), Echo)?;
//! let shard = driver.add(shard);
//! let client = driver.network().connect(shard);
//! client.send(b"hello");
//! driver.run_until(1_000);
//! assert_eq!(client.receive(), b"hello");
//! # Ok::<(), std::io::Error>(())
//! ```

mod client;
mod driver;
mod network;
mod random;
mod wire;

pub use client::{ClientEnd, Ended};
pub use driver::{Driver, UNIX_MS_AT_START};
pub use network::Network;
pub(crate) use wire::SimulatedSocket;

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
    /// The probability that a write of a shard is taken only in part although there is room, after
    /// which the socket takes nothing for a delay. Default 0.
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
