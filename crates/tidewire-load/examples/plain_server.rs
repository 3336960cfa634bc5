//! A bare WebSocket server on one thread, to measure the lab against: `plain_server PORT echo|sink`.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Conduct, Server};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let conduct = match arguments.get(1).map(String::as_str) {
        Some("echo") => Conduct::Echo,
        _ => Conduct::Sink,
    };
    let port = arguments
        .first()
        .and_then(|port| port.parse().ok())
        .unwrap_or(5006);
    Server::start(conduct, false, ([127, 0, 0, 1], port).into()).wait();
}
