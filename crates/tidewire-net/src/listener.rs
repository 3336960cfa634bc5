//! Listening sockets, one per shard on the same port.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Opens `shards` non-blocking listeners at one `address` (IPv4 or IPv6; port 0 for a free one).
///
/// `SO_REUSEPORT` lets every shard have its own and the kernel spread the connections over them.
/// `backlog` is the length of the queue of connections not yet accepted; the system caps it
/// (`net.core.somaxconn`). An IPv6 address takes no IPv4 connections.
///
/// # Errors
/// What the operating system says, such as an address that is not of this machine, or one in use,
/// also by a program that shares it with `SO_REUSEPORT`.
pub fn bind(address: SocketAddr, shards: usize, backlog: i32) -> io::Result<Vec<TcpListener>> {
    let mut address = address;
    // Sharing a port with a stranger would split its traffic, so the port must be free at first.
    let probe = open(address, false)?;
    if let Some(bound) = probe.local_addr()?.as_socket() {
        address = bound;
    }
    drop(probe);
    (0..shards)
        .map(|_| {
            let socket = open(address, true)?;
            socket.listen(backlog)?;
            Ok(socket.into())
        })
        .collect()
}

fn open(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    #[cfg(not(windows))]
    socket.set_reuse_address(true)?;
    #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
    socket.set_reuse_port(shared)?;
    #[cfg(windows)]
    let _ = shared;
    // Linux hands the option down to accepted sockets, which saves a system call for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_a_port_that_strangers_cannot_take() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listeners = bind(address.parse().unwrap(), 2, 16).unwrap();
            let taken = listeners[0].local_addr().unwrap();
            assert_eq!(listeners[1].local_addr().unwrap(), taken);
            assert_eq!(
                bind(taken, 1, 16).unwrap_err().kind(),
                io::ErrorKind::AddrInUse
            );
        }
    }
}
