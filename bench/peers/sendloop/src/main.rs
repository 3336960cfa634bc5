//! Not a server but what a fan-out costs without one: each message of a connection is framed once and given to
//! every other connection by one non-blocking send.
//!
//! There is just enough of WebSocket for the load generator to connect: the opening handshake, messages in one
//! frame, pings answered. Nothing is checked, counted, limited or kept for later: a connection whose socket
//! does not take a whole frame at once is ended, as its stream would be broken.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;

use peer_args::{Mode, Options};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

fn main() -> ExitCode {
    let options = Options::of_program(&[Mode::Broadcast]);
    let Err(error) = Loop::new(options.port).and_then(Loop::run);
    eprintln!("127.0.0.1:{}: {error}", options.port);
    ExitCode::FAILURE
}

struct Loop {
    listener: TcpListener,
    readiness: OwnedFd,
    /// Connections by the number that their events have.
    connections: Vec<Option<Connection>>,
    /// Places in `connections` that are free.
    free: Vec<usize>,
}

struct Connection {
    stream: TcpStream,
    /// Whether the opening handshake is over.
    is_open: bool,
    /// The read bytes that are not complete yet.
    input: Vec<u8>,
}

impl Loop {
    fn new(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        // Listening again lengthens the queue: the standard library's is short for thousands at once.
        rustix::net::listen(&listener, LISTEN_BACKLOG_CONNECTIONS)?;
        listener.set_nonblocking(true)?;
        let readiness = epoll::create(CreateFlags::CLOEXEC)?;
        watch(&readiness, &listener, LISTENER)?;
        println!("listening on {}", listener.local_addr()?);
        Ok(Self {
            listener,
            readiness,
            connections: Vec::new(),
            free: Vec::new(),
        })
    }

    fn run(mut self) -> io::Result<Infallible> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.readiness, room, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    number => self.read(number as usize),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let number = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            watch(&self.readiness, &stream, number as u64)?;
            self.connections[number] = Some(Connection {
                stream,
                is_open: false,
                input: Vec::new(),
            });
        }
        Ok(())
    }

    /// Reads from a connection, and ends it if it cannot continue.
    fn read(&mut self, number: usize) {
        let Some(connection) = &mut self.connections[number] else {
            return;
        };
        let mut frames = Vec::new();
        if connection.read(&mut frames).is_err() {
            self.end(number);
        }
        for frame in frames {
            self.send_to_others(number, &frame);
        }
    }

    /// The loop that is measured.
    fn send_to_others(&mut self, sender: usize, frame: &[u8]) {
        let mut broken = Vec::new();
        for (number, connection) in self.connections.iter().enumerate() {
            let Some(connection) = connection else {
                continue;
            };
            if number != sender && connection.is_open && connection.send(frame).is_err() {
                broken.push(number);
            }
        }
        broken.into_iter().for_each(|number| self.end(number));
    }

    fn end(&mut self, number: usize) {
        // Closing the socket takes it out of the events.
        if self.connections[number].take().is_some() {
            self.free.push(number);
        }
    }
}

impl Connection {
    /// Reads once, answers what is for this connection alone, and adds the frames that are for the others. An
    /// error is the end of the connection.
    fn read(&mut self, frames: &mut Vec<Vec<u8>>) -> io::Result<()> {
        let mut buffer = [0; READ_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.input.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut taken = 0;
        if !self.is_open {
            let Some(end) = find(&self.input, b"\r\n\r\n") else {
                return Ok(());
            };
            taken = end + 4;
            self.send(answer(&self.input[..end])?.as_bytes())?;
            self.is_open = true;
        }
        while let Some((head, length)) = next_frame(&self.input[taken..])? {
            let frame = unmasked(head, &self.input[taken..taken + length]);
            taken += length;
            match head & OPCODE {
                TEXT | BINARY => frames.push(frame),
                PING => self.send(&[&[FINAL | PONG], &frame[1..]].concat())?,
                PONG => {}
                _ => return Err(ErrorKind::ConnectionAborted.into()),
            }
        }
        self.input.drain(..taken);
        Ok(())
    }

    /// One non-blocking `send`.
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match (&self.stream).write(bytes)? {
            count if count == bytes.len() => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }
}

fn watch(readiness: &OwnedFd, socket: impl AsFd, number: u64) -> io::Result<()> {
    let data = EventData::new_u64(number);
    Ok(epoll::add(readiness, socket, data, EventFlags::IN)?)
}

/// The first byte of the next frame and the length of all of it, if it is there as a whole.
fn next_frame(input: &[u8]) -> io::Result<Option<(u8, usize)>> {
    let [head, second, ..] = *input else {
        return Ok(None);
    };
    let (header, payload) = match second & LENGTH {
        LENGTH_OF_16_BITS => match *input {
            [_, _, high, low, ..] => (8, usize::from(u16::from_be_bytes([high, low]))),
            _ => return Ok(None),
        },
        LENGTH_OF_64_BITS => return Err(ErrorKind::InvalidData.into()),
        short => (6, usize::from(short)),
    };
    if head & FINAL == 0 || second & MASKED == 0 {
        return Err(ErrorKind::InvalidData.into());
    }
    let length = header + payload;
    Ok((input.len() >= length).then_some((head, length)))
}

/// The same frame as a server sends it.
fn unmasked(head: u8, frame: &[u8]) -> Vec<u8> {
    let length_end = if frame[1] & LENGTH == LENGTH_OF_16_BITS {
        4
    } else {
        2
    };
    let mut out = vec![head, frame[1] & LENGTH];
    out.extend_from_slice(&frame[2..length_end]);
    let (mask, payload) = frame[length_end..].split_at(4);
    out.extend(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    out
}

fn answer(head: &[u8]) -> io::Result<String> {
    let head = std::str::from_utf8(head).map_err(|_| ErrorKind::InvalidData)?;
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key")
            .then_some(value.trim())
    });
    let accept = derive_accept_key(key.ok_or(ErrorKind::InvalidData)?.as_bytes());
    Ok(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

/// The number of the listener's events.
const LISTENER: u64 = u64::MAX;

/// Enough for ten thousand connections opened at once; the kernel caps it at `somaxconn`.
const LISTEN_BACKLOG_CONNECTIONS: i32 = 4096;

const EVENTS_MAX: usize = 1024;
const READ_BYTES: usize = 16 * 1024;

// RFC 6455, section 5.2.
const FINAL: u8 = 0x80;
const OPCODE: u8 = 0x0f;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const PING: u8 = 9;
const PONG: u8 = 10;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
const LENGTH_OF_16_BITS: u8 = 126;
const LENGTH_OF_64_BITS: u8 = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_leaves_without_its_mask() {
        let short = [0x81, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2];
        assert_eq!(next_frame(&short).unwrap(), Some((0x81, 8)));
        assert_eq!(unmasked(0x81, &short), b"\x81\x02hi");
        let mut long = vec![0x82, 0x80 | 126, 0, 200, 9, 9, 9, 9];
        long.extend([b'x' ^ 9; 200]);
        assert_eq!(next_frame(&long).unwrap(), Some((0x82, 208)));
        assert_eq!(unmasked(0x82, &long)[..5], [0x82, 126, 0, 200, b'x']);
    }

    #[test]
    fn a_part_is_waited_for_and_what_is_not_understood_ends() {
        for part in [
            &[][..],
            &[0x81],
            &[0x81, 0x82, 1, 2, 3, 4, 5],
            &[0x81, 0xfe, 0],
        ] {
            assert_eq!(next_frame(part).unwrap(), None);
        }
        for wrong in [[0x01, 0x80], [0x81, 0x02], [0x81, 0xff]] {
            assert!(next_frame(&wrong).is_err());
        }
    }
}
