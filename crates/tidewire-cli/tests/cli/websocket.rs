//! A WebSocket client of a few lines, independent of the code under test.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An open session.
pub(crate) struct Session {
    stream: TcpStream,
}

impl Session {
    /// Opens a session.
    ///
    /// # Errors
    /// The status line of an answer other than 101.
    pub(crate) fn open(address: &str, path: &str, token: Option<&str>) -> Result<Self, String> {
        let mut stream = TcpStream::connect(address).unwrap();
        // Only so that a test fails instead of hanging.
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let authorization = token.map_or_else(String::new, |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             {authorization}\r\n"
        )
        .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.lines().next().unwrap();
        if status.contains(" 101 ") {
            Ok(Self { stream })
        } else {
            Err(status.to_owned())
        }
    }

    /// The next frame's opcode and payload.
    pub(crate) fn receive(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).unwrap();
        let length = match head[1] {
            126 => {
                let mut bytes = [0; 2];
                self.stream.read_exact(&mut bytes).unwrap();
                usize::from(u16::from_be_bytes(bytes))
            }
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).unwrap();
        (head[0] & 0x0f, payload)
    }

    /// Sends a short frame, masked with zeros (RFC 6455, section 5.3).
    pub(crate) fn send(&mut self, opcode: u8, payload: &[u8]) {
        assert!(payload.len() < 126);
        let mut frame = vec![0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).unwrap();
    }

    /// Waits for the close frame, answers it, and returns its code.
    pub(crate) fn close_code(&mut self) -> u16 {
        loop {
            if let (CLOSE, payload) = self.receive() {
                self.send(CLOSE, &payload[..2]);
                return u16::from_be_bytes([payload[0], payload[1]]);
            }
        }
    }
}

pub(crate) const TEXT: u8 = 1;
const CLOSE: u8 = 8;
