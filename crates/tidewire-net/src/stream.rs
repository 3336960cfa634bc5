//! A TCP connection, plain or under TLS, with the same calls.

use crate::readiness::ReadOutcome;
#[cfg(feature = "simulation")]
use crate::simulated::SimulatedSocket;
use crate::tls::{ClientConfig, ServerConfig};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::pki_types::ServerName;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

/// A non-blocking byte stream.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    /// TLS has yet to begin; until then bytes are read as they arrive.
    Held(Box<HeldStream>),
    Tls(Box<TlsStream>),
    #[cfg(feature = "simulation")]
    Simulated(SimulatedSocket),
}

/// A connection whose handler decides when TLS begins.
#[derive(Debug)]
pub(crate) struct HeldStream {
    /// Always there: it is moved out only when TLS replaces this stream.
    tcp: Option<TcpStream>,
    side: HeldSide,
}

/// The side of TLS.
#[derive(Debug)]
pub(crate) enum HeldSide {
    /// Nothing is written before TLS, as the peer expects TLS alone.
    Server(Arc<ServerConfig>),
    /// Plaintext is written before TLS, as to a proxy.
    Client(Arc<ClientConfig>, ServerName<'static>),
}

#[derive(Debug)]
pub(crate) struct TlsStream {
    tcp: TcpStream,
    tls: rustls::Connection,
    /// The peer has ended TLS or TCP.
    ended: bool,
    /// Something was written before the handshake was done, and rustls keeps it until then.
    early: bool,
}

impl Stream {
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(tcp) => Some(tcp),
            Self::Held(held) => held.tcp.as_ref(),
            Self::Tls(stream) => Some(&stream.tcp),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => None,
        }
    }

    fn tcp_mut(&mut self) -> Option<&mut TcpStream> {
        match self {
            Self::Plain(tcp) => Some(tcp),
            Self::Held(held) => held.tcp.as_mut(),
            Self::Tls(stream) => Some(&mut stream.tcp),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => None,
        }
    }

    /// Has everything that happens to the stream reported under this token.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if let Self::Simulated(socket) = self {
            socket.register(token.0 as u64);
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self.tcp_mut() {
            Some(tcp) => registry.register(tcp, token, interest),
            None => Ok(()),
        }
    }

    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self.tcp_mut() {
            Some(tcp) => registry.deregister(tcp),
            None => Ok(()),
        }
    }

    /// Fixes what the kernel may queue unread. A socket that cannot be set keeps what it has.
    pub(crate) fn set_receive_buffer(&self, bytes: usize) {
        if let Some(tcp) = self.tcp() {
            let _ = socket2::SockRef::from(tcp).set_recv_buffer_size(bytes);
        }
    }

    /// The other end's address; an error while there is no other end.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        #[cfg(feature = "simulation")]
        if let Self::Simulated(socket) = self {
            return Ok(socket.peer_address());
        }
        let tcp = self.tcp().ok_or(io::ErrorKind::NotConnected)?;
        tcp.peer_addr()
    }

    /// The error since the last call; not asked for if it is known that there is none.
    pub(crate) fn take_error_unless(&self, is_well: bool) -> io::Result<Option<io::Error>> {
        match is_well {
            true => Ok(None),
            false => self.take_error(),
        }
    }

    fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.tcp().map_or(Ok(None), TcpStream::take_error)
    }

    /// TLS negotiates still, so that nothing can be sent.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Held(_) => false,
            Self::Tls(stream) => stream.tls.is_handshaking(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => false,
        }
    }

    /// Reads the available bytes into `buffer`, at most once from the socket. `scratch` holds ciphertext.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> io::Result<ReadOutcome> {
        match self {
            Self::Plain(tcp) => read_plain(tcp, buffer),
            Self::Held(held) => held.read(buffer),
            Self::Tls(stream) => stream.read(buffer, scratch),
            #[cfg(feature = "simulation")]
            Self::Simulated(socket) => socket.read(buffer),
        }
    }

    /// Accepts bytes from the front of `bytes`; `WouldBlock` when it can accept none. When it accepts fewer
    /// than all, or [`wants_write`](Self::wants_write) then, the socket is full and will report room.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => retry_interrupted(|| tcp.write(bytes)),
            Self::Held(held) => held.write(&[IoSlice::new(bytes)]),
            Self::Tls(stream) => stream.write(bytes),
            #[cfg(feature = "simulation")]
            Self::Simulated(socket) => socket.write(&[IoSlice::new(bytes)]),
        }
    }

    /// The same from several slices one after another.
    pub(crate) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => retry_interrupted(|| tcp.write_vectored(slices)),
            Self::Held(held) => held.write(slices),
            Self::Tls(stream) => stream.write_vectored(slices),
            #[cfg(feature = "simulation")]
            Self::Simulated(socket) => socket.write(slices),
        }
    }

    /// Sends encrypted data and TLS's own messages. `Ok` when nothing is left.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) | Self::Held(_) => Ok(()),
            Self::Tls(stream) => stream.flush(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Ok(()),
        }
    }

    /// TLS holds bytes that the socket has not accepted.
    #[inline]
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Held(_) => false,
            Self::Tls(stream) => stream.tls.wants_write(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => false,
        }
    }

    /// TLS holds bytes that it can encrypt only when the peer has answered.
    pub(crate) fn waits_for_handshake(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Held(_) => false,
            Self::Tls(stream) => stream.early && stream.tls.is_handshaking(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => false,
        }
    }

    #[inline]
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether TLS waits for [`start_tls`](Self::start_tls).
    pub(crate) fn application_protocol(&self) -> Option<&[u8]> {
        match self {
            Self::Tls(stream) => stream.tls.alpn_protocol(),
            _ => None,
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }

    /// Whether this is to be the client's side of a TLS that waits.
    pub(crate) fn is_held_client(&self) -> bool {
        matches!(self, Self::Held(held) if matches!(held.side, HeldSide::Client(..)))
    }

    /// Begins TLS with the bytes that were read before it. Without effect if TLS was not held back.
    pub(crate) fn start_tls(&mut self, received: &[u8]) -> io::Result<()> {
        let Self::Held(held) = self else {
            return Ok(());
        };
        let tls = held.side.connection().map_err(io::Error::other)?;
        let tcp = held.tcp.take().ok_or(io::ErrorKind::NotConnected)?;
        let mut stream = Box::new(TlsStream::new(tcp, tls));
        let result = stream.begin(received);
        *self = Self::Tls(stream);
        result
    }

    /// Ends the output: with TLS's close_notify, then with TCP's end.
    pub(crate) fn shutdown_write(&mut self) {
        if let Self::Tls(stream) = self {
            stream.tls.send_close_notify();
            // A peer that does not receive it learns of the end from TCP.
            let _ = stream.flush();
        }
        #[cfg(feature = "simulation")]
        if let Self::Simulated(socket) = self {
            socket.shutdown();
        }
        if let Some(tcp) = self.tcp() {
            let _ = tcp.shutdown(std::net::Shutdown::Write);
        }
    }
}

impl HeldStream {
    pub(crate) fn new(tcp: TcpStream, side: HeldSide) -> Self {
        let tcp = Some(tcp);
        Self { tcp, side }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        let tcp = self.tcp.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        read_plain(tcp, buffer)
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (&self.side, &mut self.tcp) {
            (HeldSide::Client(..), Some(tcp)) => retry_interrupted(|| tcp.write_vectored(slices)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl HeldSide {
    fn connection(&self) -> Result<rustls::Connection, rustls::Error> {
        Ok(match self {
            Self::Server(config) => rustls::ServerConnection::new(Arc::clone(config))?.into(),
            Self::Client(config, name) => {
                rustls::ClientConnection::new(Arc::clone(config), name.clone())?.into()
            }
        })
    }
}

impl TlsStream {
    /// Gives TLS the bytes that arrived before it began: from a client that follows the protocol, a part of
    /// its ClientHello, which no plaintext can follow before our answer; from a server, nothing.
    fn begin(&mut self, mut received: &[u8]) -> io::Result<()> {
        while !received.is_empty() {
            self.tls.read_tls(&mut received)?;
            if let Err(error) = self.tls.process_new_packets() {
                let _ = self.flush();
                return Err(io::Error::other(error));
            }
        }
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn new(tcp: TcpStream, tls: rustls::Connection) -> Self {
        Self {
            tcp,
            tls,
            ended: false,
            early: false,
        }
    }

    fn read(&mut self, buffer: &mut [u8], scratch: &mut Vec<u8>) -> io::Result<ReadOutcome> {
        if self.ended {
            return Ok(ReadOutcome::End);
        }
        scratch.resize(CIPHERTEXT_BYTES, 0);
        // Plaintext is shorter than its ciphertext, so all of it fits, also when the first bytes
        // complete a record that rustls holds most of.
        let room = buffer
            .len()
            .saturating_sub(RECORD_BYTES_MAX)
            .min(CIPHERTEXT_BYTES);
        let (received, more) = match read_plain(&mut self.tcp, &mut scratch[..room])? {
            ReadOutcome::Data { bytes, more } => (bytes, more),
            ReadOutcome::WouldBlock => return Ok(ReadOutcome::WouldBlock),
            ReadOutcome::End => {
                self.ended = true;
                return Ok(ReadOutcome::End);
            }
        };
        let mut ciphertext = &scratch[..received];
        let mut plaintext_bytes = 0;
        while !ciphertext.is_empty() {
            self.tls.read_tls(&mut ciphertext)?;
            let state = match self.tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // Sends the reason to the peer, in an alert, if it still listens.
                    let _ = self.flush();
                    return Err(io::Error::other(error));
                }
            };
            let ready = state.plaintext_bytes_to_read();
            self.tls
                .reader()
                .read_exact(&mut buffer[plaintext_bytes..plaintext_bytes + ready])?;
            plaintext_bytes += ready;
            if state.peer_has_closed() {
                self.ended = true;
                break;
            }
        }
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        Ok(match (plaintext_bytes, self.ended) {
            (0, true) => ReadOutcome::End,
            (0, false) if !more => ReadOutcome::WouldBlock,
            (bytes, ended) => ReadOutcome::Data {
                bytes,
                more: more || ended,
            },
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let mut taken = 0;
        while taken < bytes.len() {
            let end = bytes.len().min(taken + PLAINTEXT_BYTES);
            let encrypted = self.tls.writer().write(&bytes[taken..end])?;
            taken += encrypted;
            self.early |= self.tls.is_handshaking();
            match self.flush() {
                // What rustls keeps until the handshake is done has a limit.
                Ok(()) if encrypted == 0 => break,
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if taken == 0 {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(taken)
        }
    }

    /// The free space in the buffer of rustls, so that small slices share a TLS record and a system call.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.tls.writer().write_vectored(slices)?;
        self.early |= self.tls.is_handshaking();
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ if taken == 0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            if self.tls.write_tls(&mut self.tcp)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

#[inline]
fn read_plain(tcp: &mut TcpStream, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
    match retry_interrupted(|| tcp.read(buffer)) {
        Ok(0) => Ok(ReadOutcome::End),
        // A short read has emptied the socket (epoll(7)), so the next edge will be reported.
        Ok(bytes) => Ok(ReadOutcome::Data {
            bytes,
            more: bytes == buffer.len(),
        }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadOutcome::WouldBlock),
        Err(error) => Err(error),
    }
}

fn retry_interrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Ciphertext read at a time; four full TLS records.
const CIPHERTEXT_BYTES: usize = 64 * 1024 + 1024;

/// The longest TLS record with its header (RFC 5246 6.2.3).
const RECORD_BYTES_MAX: usize = 16 * 1024 + 2048 + 5;

/// Plaintext that is encrypted before it is written to the socket; rustls buffers so much.
const PLAINTEXT_BYTES: usize = 64 * 1024;
