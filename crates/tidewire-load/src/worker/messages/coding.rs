//! Codings of the messages of a load: compression, which all connections share, and encryption, for
//! which each connection has a key.

use rand::Rng;
use rand::rngs::SmallRng;
use tidewire_wire::deflate::{Compressor, Decompressor, WINDOW_BITS_MAX};
use tidewire_wire::frame::{OpCode, write_compressed_frame, write_frame, write_frame_with};

use super::MESSAGE_BYTES_MAX;
use crate::worker::websocket::channel::Channel;
use crate::worker::websocket::layer::Layer;

/// The codings of one worker.
#[derive(Debug)]
pub(super) struct Coding {
    deflate: Option<Deflate>,
    /// The content of the current message.
    content: Vec<u8>,
}

/// Compression without memory between messages.
#[derive(Debug)]
struct Deflate {
    compressor: Compressor,
    decompressor: Decompressor,
    deflated: Vec<u8>,
}

impl Coding {
    pub(super) fn new(layer: Layer) -> Self {
        let deflate = || Deflate {
            compressor: Compressor::new(DEFLATE_LEVEL, WINDOW_BITS_MAX, false),
            decompressor: Decompressor::new(WINDOW_BITS_MAX, false),
            deflated: Vec::new(),
        };
        Self {
            deflate: (layer == Layer::Deflate).then(deflate),
            content: Vec::new(),
        }
    }

    /// Appends the frame of a message.
    #[inline]
    pub(super) fn write_frame(
        &mut self,
        channel: Option<&mut Channel>,
        random: &mut SmallRng,
        (opcode, message): (OpCode, &[u8]),
        out: &mut Vec<u8>,
    ) {
        let mask = random.random();
        match (channel, &mut self.deflate) {
            (Some(channel), _) => write_frame_with(out, Some(mask), |out| {
                channel.seal(message, out);
                OpCode::Binary
            }),
            (None, Some(deflate)) => {
                deflate.deflated.clear();
                let deflated = &mut deflate.deflated;
                deflate.compressor.compress(message, deflated);
                write_compressed_frame(out, opcode, deflated, Some(mask));
            }
            (None, None) => write_frame(out, opcode, message, Some(mask)),
        }
    }

    /// The content of a compressed message, to be given back afterwards.
    pub(super) fn inflate(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let mut content = self.take_buffer();
        let decompressor = &mut self.deflate.as_mut()?.decompressor;
        let inflated = decompressor.decompress(message, &mut content, MESSAGE_BYTES_MAX);
        inflated.ok().map(|()| content)
    }

    /// The content of an encrypted message, to be given back afterwards.
    pub(super) fn open(&mut self, channel: &mut Channel, message: &[u8]) -> Option<Vec<u8>> {
        let mut content = self.take_buffer();
        channel.open(message, &mut content).then_some(content)
    }

    /// Stores the buffer for the next message.
    pub(super) fn give_back(&mut self, content: Vec<u8>) {
        self.content = content;
    }

    fn take_buffer(&mut self) -> Vec<u8> {
        let mut content = std::mem::take(&mut self.content);
        content.clear();
        content
    }
}

/// The compression level of most software.
const DEFLATE_LEVEL: u32 = 6;
