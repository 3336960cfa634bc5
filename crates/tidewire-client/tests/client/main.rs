//! The client against the real engine, over real sockets.

mod common;
mod faults;
mod layers;
mod life;
mod limits;
mod proxies;
mod queue;
mod reconnect;
mod requests;
mod scenarios;
mod websocket;
