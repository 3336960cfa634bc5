//! The WebSocket client of the tests: it shows everything that a server sends, and sends any bytes, right or wrong.
//!
//! - [`blocking`]: over sockets, with or without TLS.
//! - [`simulated`]: over the simulated network, in virtual time.
//!
//! Neither answers a ping or a close by itself, so that a test decides what the server gets to see.

pub mod blocking;
pub mod simulated;

pub use blocking::{Client, Opening, Stream, read_to_any_end, read_to_end, tcp};
pub use simulated::SimulatedClient;

use serde_json::Value;
use tidewire_wire::close::CloseCode;
use tidewire_wire::connection::{Connection, ConnectionState, Output};
use tidewire_wire::deflate::{Decompressor, DeflateParameters};
use tidewire_wire::frame::{self, OpCode, Role};
use tidewire_wire::message::{Event, Input};

/// The messages of the server, and the end of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
    /// A ping, which is not answered.
    Ping(Vec<u8>),
    /// A pong.
    Pong(Vec<u8>),
    /// A close frame, which is not answered.
    Close(Option<u16>, String),
    /// The orderly end of the stream; under TLS after a close_notify.
    End,
    /// A reset, or the end of TCP under a TLS stream that has not ended.
    Reset,
}

impl Said {
    /// The JSON of a text.
    #[track_caller]
    pub fn json(&self) -> Value {
        match self {
            Self::Text(text) => serde_json::from_str(text).expect("JSON"),
            other => panic!("{other:?}"),
        }
    }
}

/// The messages of the other side after the upgrade, read without I/O.
///
/// [`Self::push`] adds received bytes, and [`Self::next`] returns their messages. The latter panics if the other side
/// breaks a rule of RFC 6455.
pub struct Incoming {
    connection: Connection,
    bytes: Vec<u8>,
    decompressor: Decompressor,
    /// Number of messages that arrived compressed.
    compressed: usize,
}

impl Incoming {
    /// The connection after an upgrade that agreed on `deflate`; `bytes` followed the response.
    fn of_server(deflate: Option<DeflateParameters>, bytes: Vec<u8>) -> Self {
        let mut connection = Connection::new(Role::Client, usize::MAX);
        if deflate.is_some() {
            connection = connection.with_compression();
        }
        let keeps_context = deflate.is_some_and(|agreed| !agreed.server_no_context_takeover);
        Self {
            connection,
            bytes,
            decompressor: Decompressor::new(15, keeps_context),
            compressed: 0,
        }
    }

    /// The messages of a client, for a server of a test. No compression was agreed.
    #[must_use]
    pub fn of_client() -> Self {
        Self {
            connection: Connection::new(Role::Server, usize::MAX),
            bytes: Vec::new(),
            decompressor: Decompressor::new(15, false),
            compressed: 0,
        }
    }

    /// Adds bytes that were received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message or control frame; `None` if more bytes are needed.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Said> {
        if self.connection.control.state() == ConnectionState::Closed {
            assert!(
                self.bytes.is_empty(),
                "bytes behind the close: {:?}",
                self.bytes
            );
            return None;
        }
        let mut input = Input::new(&mut self.bytes);
        let event = self.connection.receive(&mut input, &mut Silent);
        let Some(event) = event.expect("a peer that keeps the rules") else {
            // Of a message that is not whole, the connection has kept what has arrived.
            let used = input.consumed();
            self.bytes.drain(..used);
            return None;
        };
        let said = match event {
            Event::Text(text) => Said::Text(text.as_str().to_owned()),
            Event::Binary(bytes) => Said::Binary(bytes.to_vec()),
            Event::Compressed(message) => {
                self.compressed += 1;
                let mut plain = Vec::new();
                self.decompressor
                    .decompress(message.bytes, &mut plain, usize::MAX - 1)
                    .expect("a message that inflates");
                match message.event(&plain).expect("UTF-8 if it is a text") {
                    Event::Text(text) => Said::Text(text.as_str().to_owned()),
                    _ => Said::Binary(plain),
                }
            }
            Event::Ping(payload) => Said::Ping(payload.to_vec()),
            Event::Pong(payload) => Said::Pong(payload.to_vec()),
            Event::Close(code, reason) => {
                Said::Close(code.map(CloseCode::value), reason.to_owned())
            }
        };
        let used = input.consumed();
        self.bytes.drain(..used);
        Some(said)
    }
}

/// The output of a client that answers nothing by itself.
struct Silent;

impl Output for Silent {
    fn buffer(&mut self, _opcode: OpCode) -> Option<&mut Vec<u8>> {
        None
    }

    fn mask(&mut self) -> Option<[u8; 4]> {
        None
    }
}

/// A masked frame.
pub fn frame(opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_frame(&mut bytes, opcode, payload, Some(MASK));
    bytes
}

/// A masked frame that may be one of several.
pub fn fragment(fin: bool, opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame(opcode, payload);
    bytes[0] = bytes[0] & 0x7F | u8::from(fin) << 7;
    bytes
}

/// A masked text.
pub fn text_frame(text: &str) -> Vec<u8> {
    frame(OpCode::Text, text.as_bytes())
}

/// A masked close frame without a reason.
pub fn close_frame(code: Option<CloseCode>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_close(&mut bytes, code, "", Some(MASK));
    bytes
}

/// The mask of all frames of the tests' clients.
pub const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
