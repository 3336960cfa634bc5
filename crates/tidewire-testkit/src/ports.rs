//! Ports for servers that a test starts again where they were.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// A free address of this machine. Its port is below those that the system gives to outgoing connections, because an
/// outgoing connection could occupy such a port while the server is away.
#[must_use]
pub fn free_address() -> SocketAddr {
    let chosen = RandomState::new();
    (0u16..)
        .map(|attempt| 20_000 + (chosen.hash_one(attempt) % 12_000) as u16)
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .find(|address| TcpListener::bind(address).is_ok())
        .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}
