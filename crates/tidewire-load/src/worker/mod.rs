//! Workers: one thread each, with an event loop and its share of the connections.

pub(crate) mod http;
pub mod messages;
mod meter;
pub mod order;
pub mod pace;
pub mod script;
pub mod service;
pub mod target;
pub mod template;
pub mod websocket;
