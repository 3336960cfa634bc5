//! The model of Redis: compared with a real server, and used to simulate links.

mod differential;
mod garbage;
mod groups;
mod log;
mod presence;
mod producers;
#[path = "../real/server.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod server;
mod simulation;
mod world;
