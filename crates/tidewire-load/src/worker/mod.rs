//! Workers: one thread each, with an event loop and its share of the connections.

pub mod order;
pub mod pace;
pub mod target;
pub mod websocket;
