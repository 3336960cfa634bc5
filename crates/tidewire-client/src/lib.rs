//! The Rust client of Tidewire: the parts that need no socket.

pub mod backoff;
pub mod breaker;
pub mod config;
pub mod endpoints;
mod error;
pub mod priority_queue;
pub mod quality;
mod queue;
pub mod rate;
pub mod sequencer;
mod url;

pub use config::Config;
pub use error::Error;
pub use queue::QueueDepth;
