//! One server over real sockets.

#[path = "../common/mod.rs"]
mod common;

mod acknowledged;
mod api;
mod api_mistakes;
mod back_pressure;
mod backend;
mod backlog;
mod batches;
mod calls;
mod compression;
mod containment;
mod dashboard;
mod drain;
mod encryption;
mod fairness;
mod forms;
mod forwarding;
mod frames;
mod garbage;
mod groups;
mod handle;
mod history;
mod hosts;
mod key_sets;
mod liveness;
mod opening_handshake;
mod ops;
mod overload;
mod pending_handshakes;
mod presence;
mod races;
mod recovery;
mod refusals;
mod reload;
mod renewal;
mod signing;
mod stall;
mod sync;
mod timings;
mod tls;
mod tokens;
mod topics;
mod unfinished;
mod version_1;
