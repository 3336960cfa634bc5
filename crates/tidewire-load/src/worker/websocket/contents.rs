//! Contents of compressed and encrypted messages.

use std::collections::HashMap;

use tidewire_wire::deflate::{Decompressor, WINDOW_BITS_MAX};
use tidewire_wire::frame::ProtocolError;

use super::connect::MESSAGE_BYTES_MAX;
use crate::worker::websocket::channel::Channel;
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::ring::FrameRing;

/// Decompresses and decrypts messages, one at a time.
#[derive(Debug)]
pub(super) struct Contents {
    /// The decompressor of all connections, without context takeover; only if messages are compressed.
    inflater: Option<Box<Decompressor>>,
    /// The buffer for the content of the current message.
    content: Vec<u8>,
    /// For each message of the phase's ring its last compressed form: a server compresses equal messages to equal
    /// bytes, which need not be decompressed again.
    inflated: HashMap<usize, Vec<u8>>,
}

/// The form of a message on the wire.
pub(super) enum Form<'a> {
    Plain,
    Compressed,
    Sealed(&'a mut Channel),
}

impl Contents {
    pub(super) fn new(layer: Layer) -> Self {
        let inflater =
            (layer == Layer::Deflate).then(|| Box::new(Decompressor::new(WINDOW_BITS_MAX, false)));
        Self {
            inflater,
            content: Vec::new(),
            inflated: HashMap::new(),
        }
    }

    /// Forgets the messages of the previous phase.
    pub(super) fn forget(&mut self) {
        self.inflated.clear();
    }

    /// The content of a compressed message; the caller returns the buffer with [`Contents::give_back`].
    pub(super) fn inflate(&mut self, message: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let mut content = std::mem::take(&mut self.content);
        content.clear();
        match &mut self.inflater {
            Some(inflater) => inflater.decompress(message, &mut content, MESSAGE_BYTES_MAX)?,
            // A reader yields none where none was agreed.
            None => return Err(ProtocolError::ReservedBits),
        }
        Ok(content)
    }

    /// The content of an encrypted message; `None` if decryption fails. The caller returns the buffer.
    pub(super) fn open(&mut self, channel: &mut Channel, message: &[u8]) -> Option<Vec<u8>> {
        let mut content = std::mem::take(&mut self.content);
        content.clear();
        channel.open(message, &mut content).then_some(content)
    }

    /// Stores a buffer for the next message.
    pub(super) fn give_back(&mut self, content: Vec<u8>) {
        self.content = content;
    }

    /// Whether a payload has the message of the frame with this number.
    pub(super) fn is_of(
        &mut self,
        ring: &FrameRing,
        frame: u64,
        payload: &[u8],
        form: Form<'_>,
    ) -> bool {
        let message = ring.message(frame);
        let content = match form {
            Form::Plain => return payload == message,
            Form::Sealed(channel) => self.open(channel, payload),
            Form::Compressed => {
                let index = ring.index_of(frame);
                let known = self.inflated.get(&index);
                if known.is_some_and(|known| known == payload) {
                    return true;
                }
                let content = self.inflate(payload).ok();
                if content.as_deref() == Some(message) {
                    self.inflated.insert(index, payload.to_vec());
                }
                content
            }
        };
        let Some(content) = content else {
            return false;
        };
        let is_same = content == message;
        self.give_back(content);
        is_same
    }
}
