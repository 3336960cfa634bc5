//! The model of Redis: compared with a real server, and used to simulate links.

mod differential;
mod garbage;
mod log;
#[path = "../real/server.rs"]
mod server;
mod simulation;
mod world;
