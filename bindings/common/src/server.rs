//! A server of the engine, as the packages own it.

pub mod adopting;
pub mod connect_requests;
mod lifecycle;
mod options;
pub mod publishing;
pub mod queries;

pub use lifecycle::{ServerLifecycle, close_code};
pub use options::ServerOptions;
