//! Three servers, their links and a model of Redis in one thread, on virtual time, from a seed:
//! connections break, Redis ends and comes back with its data or without, clients move from server
//! to server.
//!
//! `TIDEWIRE_SEEDS` is the number of seeds, 15 without it; `TIDEWIRE_SEED` is one of them.

mod clocks;
#[path = "../common/mod.rs"]
mod common;
mod followers;
mod members;
mod producers;
mod world;

/// A topic with history.
const TOPIC: &str = "h.a";
