//! The parts of the protocol: examples, properties, and every split of their input.

mod classify;
mod connection;
mod deflate;
mod message;
mod proxy;
mod request;
