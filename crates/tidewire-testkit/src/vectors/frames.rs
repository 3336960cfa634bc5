//! `frames.json`, `fragmentation.json` and `deflate-frames.json`.

use super::Hex;
use serde::Deserialize;

/// The bytes of one connection and the events or the error that a reader must return for them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The title of the case.
    pub name: String,
    /// Which side reads.
    pub reader: Side,
    /// The bytes from the other side.
    pub bytes: Hex,
    /// The events that are read, in order.
    pub events: Vec<Event>,
    /// The rule that is broken after them.
    pub error: Option<Broken>,
    /// The largest message, in bytes; 1 MiB by default.
    #[serde(default = "message_bytes_max")]
    pub message_bytes_max: usize,
    /// Whether permessage-deflate was agreed.
    #[serde(default)]
    pub deflate: bool,
    /// The message to write to get the bytes.
    pub frame: Option<Frame>,
    /// The message to write in several frames to get the bytes.
    pub fragments: Option<Fragments>,
}

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The one that accepted it.
    Server,
    /// The one that opened it.
    Client,
}

/// An event that is read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Hex),
    /// A ping.
    Ping(Hex),
    /// A pong.
    Pong(Hex),
    /// A close.
    Close {
        /// Its code, if it has one.
        code: Option<u16>,
        /// Its reason.
        reason: String,
    },
}

/// A rule of RFC 6455 or RFC 7692 that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broken {
    /// Which.
    pub name: String,
    /// The close code for it.
    pub close_code: u16,
}

/// One frame.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Its opcode, in words.
    pub opcode: String,
    /// Its payload, not masked.
    pub payload: Hex,
    /// The masking key, if it is masked.
    pub mask: Option<Hex>,
}

/// One message in several frames.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fragments {
    /// `text` or `binary`.
    pub kind: String,
    /// The whole payload.
    pub payload: Hex,
    /// Bytes of it in each frame.
    pub bytes: Vec<usize>,
    /// The masking key, if they are masked.
    pub mask: Option<Hex>,
}

fn message_bytes_max() -> usize {
    1024 * 1024
}
