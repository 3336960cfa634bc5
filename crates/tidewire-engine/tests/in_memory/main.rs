//! Tests without sockets: rules by themselves, and servers on the simulated network.

#[path = "../common/mod.rs"]
mod common;

mod auth;
mod endings;
mod filter;
mod late_broker;
mod liveness_vectors;
mod rights;
mod subscription_tokens;
mod token_expiry;
