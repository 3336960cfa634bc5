//! The event loop over real sockets.

#[path = "../common/mod.rs"]
mod common;

mod backpressure;
mod before_tls;
mod lifecycle;
mod outbox;
mod plain;
mod tls;
