//! Shared parts of the tests of the other crates. Never more than a dev-dependency.
//!
//! - [`vectors`]: the protocol's test vectors, `protocol/vectors/*.json`, as values.
//! - [`redis_model`]: Redis in memory, with a clock of its own.
//! - [`schema`]: a check of JSON against the schemas beside them.
//! - [`ports`]: a port on which a server can be started again.
//! - [`search`]: a search for the most expensive message of each type.
//! - [`seeds`]: the seeds of a simulation.
//! - [`options`]: each option of a server with an example.
//! - [`shard`]: a server on a thread of its own.
//! - [`stepped_clock`]: a clock that jumps, for processes.
//! - [`topics`]: a checker of what subscribers see.
//! - [`websocket`]: the WebSocket client of all tests, blocking and simulated.
//! - [`simulation`]: the simulated network, with virtual time and faults from a seed.
//!
//! All of it panics on what should not be: a test that goes on without its data proves nothing.

pub mod options;
pub mod ports;
#[cfg(unix)]
pub mod redis;
pub mod redis_model;
pub mod schema;
pub mod search;
pub mod seeds;
pub mod shard;
#[cfg(unix)]
pub mod stepped_clock;
pub mod topics;
pub mod vectors;
pub mod websocket;

pub use tidewire_net::simulation;
