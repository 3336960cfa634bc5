//! Accounting: what both sides have sent, received and used.

pub mod connect_times;
pub(crate) mod counts;
pub mod ended;
pub mod failure;
pub mod fan_out;
pub(crate) mod generator;
pub mod live;
pub mod observation;
pub mod operations;
pub mod outcome;
pub mod precision;
pub mod recorder;
pub mod resources;
pub(crate) mod sampler;
pub(crate) mod server;
pub mod stats;
pub mod tally;
pub mod texts;
pub mod waits;
pub mod windows;
