//! Listening sockets, one per shard on the same port.

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::net::{SocketAddr, TcpListener};
use std::{io, iter};

/// Opens `shards` non-blocking listeners at one `address` (IPv4 or IPv6; port 0 for a free one).
///
/// `SO_REUSEPORT` lets every shard have its own and the kernel spread the connections over them. `backlog` is
/// the length of the queue of connections not yet accepted; the system caps it (`net.core.somaxconn`). An
/// IPv6 address accepts no IPv4 connections.
///
/// # Errors
/// The error of the operating system, such as an address that is not of this machine, or one in use,
/// also by a program that shares it with `SO_REUSEPORT`.
pub fn bind(address: SocketAddr, shards: usize, backlog: i32) -> io::Result<Vec<TcpListener>> {
    // Sharing a port with a stranger would split its traffic, so the port must be free at first.
    bind_at(address, shards, backlog, false)
}

/// The same at an address that other processes of this user may have, too, if they share it. The kernel then spreads the
/// connections over all of their listeners.
///
/// # Errors
/// The same; an address that a program has without sharing it is in use.
pub fn bind_shared(
    address: SocketAddr,
    shards: usize,
    backlog: i32,
) -> io::Result<Vec<TcpListener>> {
    bind_at(address, shards, backlog, true)
}

/// The first socket keeps the address. If it were closed and opened again, another program could take the port in between.
fn bind_at(
    mut address: SocketAddr,
    shards: usize,
    backlog: i32,
    is_shared: bool,
) -> io::Result<Vec<TcpListener>> {
    let first = open(address, is_shared)?;
    share(&first, true)?;
    if let Some(bound) = first.local_addr()?.as_socket() {
        address = bound;
    }
    let others = (1..shards).map(|_| open(address, true));
    iter::once(Ok(first))
        .chain(others)
        .map(|socket| {
            let socket = socket?;
            socket.listen(backlog)?;
            Ok(socket.into())
        })
        .collect()
}

/// Hands listening sockets that exist already to `shards` shards, so that each shard has at least one and no socket is
/// left out: as many sockets as shards or more are dealt out in turn, fewer are shared. They become non-blocking.
///
/// # Errors
/// The error of the operating system, and [`io::ErrorKind::InvalidInput`] if there is no socket or one that does not
/// listen.
pub fn deal(sockets: &[TcpListener], shards: usize) -> io::Result<Vec<Vec<TcpListener>>> {
    if sockets.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "there is no listening socket",
        ));
    }
    for socket in sockets {
        if !SockRef::from(socket).is_listener()? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a socket that was given does not listen",
            ));
        }
    }
    let mut hands: Vec<Vec<TcpListener>> = (0..shards).map(|_| Vec::new()).collect();
    for index in 0..sockets.len().max(shards) {
        let socket = &sockets[index % sockets.len()];
        socket.set_nonblocking(true)?;
        SockRef::from(socket).set_tcp_nodelay(true)?;
        hands[index % shards].push(socket.try_clone()?);
    }
    Ok(hands)
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
    share(&socket, shared)?;
    // Linux hands the option down to accepted sockets, which saves a system call for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Lets other sockets of this user have the same address, if they allow it, too.
fn share(socket: &Socket, shared: bool) -> io::Result<()> {
    #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
    socket.set_reuse_port(shared)?;
    #[cfg(windows)]
    let _ = (socket, shared);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_gets_a_socket_and_every_socket_a_shard() {
        for (sockets, shards) in [(1, 1), (1, 3), (2, 3), (3, 2), (5, 2)] {
            let sockets = bind("127.0.0.1:0".parse().unwrap(), sockets, 16).unwrap();
            let hands = deal(&sockets, shards).unwrap();
            assert_eq!(hands.len(), shards);
            assert!(hands.iter().all(|hand| !hand.is_empty()));
            let dealt = hands.iter().map(Vec::len).sum::<usize>();
            assert_eq!(dealt, sockets.len().max(shards));
        }
        let error = deal(&[], 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn processes_share_a_port_only_on_purpose() {
        let first = bind_shared("127.0.0.1:0".parse().unwrap(), 1, 16).unwrap();
        let shared = first[0].local_addr().unwrap();
        let second = bind_shared(shared, 2, 16).unwrap();
        assert_eq!(second[1].local_addr().unwrap(), shared);
        let refused = bind(shared, 1, 16).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        let alone = TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = bind_shared(alone.local_addr().unwrap(), 1, 16).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernel_gives_connections_to_every_shard() {
        let listeners = bind("127.0.0.1:0".parse().unwrap(), 2, 128).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let clients: Vec<_> = (0..64)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        let accepted = listeners
            .iter()
            .map(|listener| iter::from_fn(|| listener.accept().ok()).count())
            .collect::<Vec<_>>();
        assert_eq!(accepted.iter().sum::<usize>(), clients.len());
        assert!(accepted.iter().all(|&count| count > 0), "{accepted:?}");
    }

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
