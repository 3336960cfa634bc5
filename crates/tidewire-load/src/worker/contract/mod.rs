//! The worker contract: the orders of a controller and the words of a worker, one JSON object per line.
//!
//! `docs/worker-contract.md` describes it for people who write a worker in another language. The
//! controller's side is [`crate::fleet::remote`], the worker's side is [`crate::fleet::serve`].

pub mod figures;
pub mod orders;
pub mod words;

/// The version of the contract. A worker and a controller of different versions refuse each other.
pub const CONTRACT: u32 = 1;
