//! What is inside compressed and encrypted messages.

use tidewire_wire::deflate::{Decompressor, WINDOW_BITS_MAX};
use tidewire_wire::frame::ProtocolError;

use super::open::MESSAGE_BYTES_MAX;
use crate::channel::Channel;
use crate::layer::Layer;

/// Looks into messages, one at a time.
#[derive(Debug)]
pub(super) struct Contents {
    /// For the compressed messages of all connections, which have no memory between them; only where
    /// there are any.
    inflater: Option<Box<Decompressor>>,
    /// What came out of the message at hand.
    content: Vec<u8>,
}

impl Contents {
    pub(super) fn new(layer: Layer) -> Self {
        let inflater =
            (layer == Layer::Deflate).then(|| Box::new(Decompressor::new(WINDOW_BITS_MAX, false)));
        Self {
            inflater,
            content: Vec::new(),
        }
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

    /// Whether a payload is this message, which may be compressed, or is encrypted if there is a channel.
    #[cold]
    pub(super) fn is_of(
        &mut self,
        message: &[u8],
        payload: &[u8],
        is_compressed: bool,
        channel: Option<&mut Channel>,
    ) -> bool {
        let content = match channel {
            Some(channel) => self.open(channel, payload),
            None if is_compressed => self.inflate(payload).ok(),
            None => return payload == message,
        };
        let Some(content) = content else {
            return false;
        };
        let is_same = content == message;
        self.give_back(content);
        is_same
    }
}
