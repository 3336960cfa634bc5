//! What is inside compressed and encrypted messages.

use std::collections::HashMap;

use tidewire_wire::deflate::{Decompressor, WINDOW_BITS_MAX};
use tidewire_wire::frame::ProtocolError;

use super::connect::MESSAGE_BYTES_MAX;
use crate::worker::websocket::channel::Channel;
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::ring::FrameRing;

/// Looks into messages, one at a time.
#[derive(Debug)]
pub(super) struct Contents {
    /// For the compressed messages of all connections, which have no memory between them; only where
    /// there are any.
    inflater: Option<Box<Decompressor>>,
    /// What came out of the message at hand.
    content: Vec<u8>,
    /// Of each message of the phase's ring, the bytes that were last found to inflate to it: a server
    /// compresses the same to the same, which need not be inflated again.
    inflated: HashMap<usize, Vec<u8>>,
}

/// How a message is wrapped.
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

    /// Forgets the messages of the phase before.
    pub(super) fn forget(&mut self) {
        self.inflated.clear();
    }

    /// What a compressed message holds, to be given back by [`Contents::give_back`].
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

    /// What an encrypted message holds, to be given back; `None` if the peer has not encrypted it.
    pub(super) fn open(&mut self, channel: &mut Channel, message: &[u8]) -> Option<Vec<u8>> {
        let mut content = std::mem::take(&mut self.content);
        content.clear();
        channel.open(message, &mut content).then_some(content)
    }

    /// Takes a buffer back for the next message.
    pub(super) fn give_back(&mut self, content: Vec<u8>) {
        self.content = content;
    }

    /// Whether a payload holds the message of the frame with this number.
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
