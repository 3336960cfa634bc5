//! Workers: one thread each, with an event loop and its share of the connections.

pub mod contract;
mod control;
pub(crate) mod http;
pub mod inputs;
pub mod jar;
pub mod kinds;
pub mod messages;
mod meter;
pub(crate) mod mixed;
pub mod order;
pub mod pace;
pub mod pointer;
mod request_line;
pub mod rhythm;
pub mod script;
pub mod service;
pub mod target;
pub mod template;
pub mod walk;
pub mod websocket;

/// The seed of a worker, from the seed of the run.
fn seed(run: u64, index: usize) -> u64 {
    run.wrapping_add((index as u64).wrapping_mul(SEED_STEP))
}

/// An odd number with mixed bits.
const SEED_STEP: u64 = 0x9E37_79B9_7F4A_7C15;
