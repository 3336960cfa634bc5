//! Shared parts of the packages for Python and Node. Each package translates values of its language to the types of this crate,
//! and nothing else.
//!
//! - `failure`: every error, with its class, its code and the party that has to act
//! - `log`: what the engine logs, for the log of the language
//! - `server`: the options, the life and the queries of a server
//! - `utilities`: parts of the engine and of the protocol that are useful without a server

pub mod failure;
pub mod log;
pub mod server;
pub mod utilities;

pub use failure::{Failure, Fault};
