//! Sockets that another part of the program has accepted.

use super::Io;
use crate::id::ConnectionId;
use crate::socket::Phase;
use crate::stream::Stream;
use std::io;
use std::net::TcpStream;

/// Bytes that a connection may bring along, at most: with more, half of the read buffer could be full of what a handler leaves
/// unused.
pub const ADOPTED_BYTES_MAX: usize = 32 * 1024;

impl Io {
    /// Takes over a connection that is established: TCP, or the end of a pair of Unix sockets. The handler is not told, since it
    /// calls this itself. It receives the bytes that were read from the connection so far, and then the others.
    ///
    /// # Errors
    /// More than [`ADOPTED_BYTES_MAX`] bytes were read, the shard is stopping or simulated, or the system cannot watch the socket.
    /// The connection is closed then.
    pub fn adopt(&mut self, stream: TcpStream, received: Vec<u8>) -> io::Result<ConnectionId> {
        if received.len() > ADOPTED_BYTES_MAX {
            let words = "more bytes came before the handshake than can be handed over";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
        self.check_running()?;
        stream.set_nonblocking(true)?;
        // A Unix socket has no such option.
        let _ = stream.set_nodelay(true);
        let stream = Stream::Plain(mio::net::TcpStream::from_std(stream));
        let id = self.add(stream, Phase::Open)?;
        if let Some(socket) = self.socket_mut(id) {
            socket.flags.retry = !received.is_empty();
            socket.flags.readable = true;
            socket.tail = received;
        }
        self.read_later(id);
        Ok(id)
    }
}
