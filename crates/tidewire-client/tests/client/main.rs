//! The client against the real engine, over real sockets.

mod binary;
mod common;
mod expiry;
mod faults;
mod granted;
mod history;
mod layers;
mod life;
mod limits;
mod promises;
mod proxies;
mod queue;
mod reconnect;
mod requests;
mod scenarios;
mod tls;
mod websocket;
