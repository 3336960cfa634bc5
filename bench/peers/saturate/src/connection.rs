//! One connection: what it has sent and what came back.

use crate::frames::{FrameReader, Ring};
use crate::options::{Mode, Options};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

pub struct Connection {
    pub stream: TcpStream,
    /// Where in the ring its next byte is.
    offset: usize,
    /// Bytes of frames written.
    sent_bytes: u64,
    /// Messages that came back.
    answered: u64,
    reader: FrameReader,
    /// Of the last ping; its bytes that are not written.
    ping_left: Option<usize>,
    /// The pong to the last ping has arrived.
    pub is_confirmed: bool,
}

impl Connection {
    /// Connects and makes the opening handshake, waiting for both.
    pub fn open(options: &Options) -> io::Result<Self> {
        let mut stream = TcpStream::connect(options.address)?;
        stream.set_nodelay(true)?;
        // A reset leaves no port behind that waits a minute.
        rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO))?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            options.path, options.address
        );
        // In one write: not every server takes a request in pieces.
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        let end = loop {
            let read = stream.read(&mut piece)?;
            answer.extend_from_slice(&piece[..read]);
            if let Some(start) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break start + 4;
            }
            if read == 0 {
                return Err(io::Error::other("the server ended the handshake"));
            }
        };
        if !answer.starts_with(b"HTTP/1.1 101") {
            let answer = String::from_utf8_lossy(&answer).into_owned();
            return Err(io::Error::other(format!("not upgraded: {answer}")));
        }
        stream.set_nonblocking(true)?;
        let mut reader = FrameReader::default();
        // What the server says by itself is no answer.
        reader.read(&answer[end..], u64::MAX);
        Ok(Self {
            stream,
            offset: 0,
            sent_bytes: 0,
            answered: 0,
            reader,
            ping_left: None,
            is_confirmed: false,
        })
    }

    /// Messages written whole.
    pub fn sent(&self, ring: &Ring) -> u64 {
        self.sent_bytes / ring.frame_bytes as u64
    }

    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Writes once, as much as the mode allows; whether there is more that it may send.
    pub fn send(&mut self, ring: &Ring, options: &Options) -> io::Result<bool> {
        let allowed = match options.mode {
            Mode::Sink => usize::MAX,
            Mode::Echo { in_flight } => {
                let until = (self.answered + in_flight as u64) * ring.frame_bytes as u64;
                (until - self.sent_bytes) as usize
            }
        };
        if allowed == 0 {
            return Ok(false);
        }
        let rest = &ring.bytes[self.offset..];
        let length = rest.len().min(options.write_bytes).min(allowed);
        let written = self.write(&rest[..length], ring)?;
        Ok(allowed > written)
    }

    /// Writes what is left of a begun frame and the last ping; whether all of it is written.
    pub fn finish(&mut self, ring: &Ring, ping: &[u8]) -> io::Result<bool> {
        let begun = self.offset % ring.frame_bytes;
        if self.ping_left.is_none() && begun > 0 {
            let end = self.offset - begun + ring.frame_bytes;
            self.write(&ring.bytes[self.offset..end], ring)?;
            if !self.offset.is_multiple_of(ring.frame_bytes) {
                return Ok(false);
            }
        }
        let left = self.ping_left.unwrap_or(ping.len());
        let written = taken(self.stream.write(&ping[ping.len() - left..]))?;
        self.ping_left = Some(left - written);
        Ok(left == written)
    }

    fn write(&mut self, bytes: &[u8], ring: &Ring) -> io::Result<usize> {
        let written = taken(self.stream.write(bytes))?;
        self.sent_bytes += written as u64;
        self.offset = (self.offset + written) % ring.bytes.len();
        Ok(written)
    }

    /// Reads once; the messages that came back by it.
    pub fn receive(&mut self, buffer: &mut [u8], payload_bytes: usize) -> io::Result<usize> {
        let read = match self.stream.read(buffer) {
            Ok(0) => return Err(io::Error::other("the server ended a connection")),
            result => taken(result)?,
        };
        let received = self.reader.read(&buffer[..read], payload_bytes as u64);
        if received.is_closed {
            return Err(io::Error::other("the server closed a connection"));
        }
        self.answered += received.messages as u64;
        self.is_confirmed |= received.pongs > 0 && self.ping_left == Some(0);
        Ok(received.messages)
    }
}

/// The bytes that a socket accepted or gave; none if it would block.
fn taken(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        result => result,
    }
}
