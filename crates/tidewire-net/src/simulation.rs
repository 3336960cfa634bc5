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

pub use crate::simulated::Faults;
pub use client::{ClientEnd, Ended};
pub use driver::{Driver, UNIX_MS_AT_START};
pub use network::Network;
