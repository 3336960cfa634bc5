//! Compressors of this crate for messages without memory between them.

use super::alone::AloneCompressor;
use super::small::{self, SmallCompressor};

/// The compressor for small messages at a level.
#[derive(Debug)]
pub(crate) enum MessageCompressor {
    /// Level 1.
    Small(SmallCompressor),
    /// Levels 2 to 6.
    Alone(Box<AloneCompressor>),
}

impl MessageCompressor {
    /// `None` for a level at which a general compressor is used.
    pub(crate) fn for_level(level: u32, window_bits: u8) -> Option<Self> {
        match level {
            1 => Some(Self::Small(SmallCompressor::new(window_bits))),
            _ => {
                let alone = AloneCompressor::for_level(level, window_bits)?;
                Some(Self::Alone(Box::new(alone)))
            }
        }
    }

    /// Whether it compresses messages of this length in bytes.
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        let bytes_max = match self {
            Self::Small(_) => small::PAYLOAD_BYTES_MAX,
            Self::Alone(alone) => alone.payload_bytes_max(),
        };
        (1..=bytes_max).contains(&bytes)
    }

    /// Appends the compressed form of a message for which [`takes`](Self::takes) is true, without the tail of a flush.
    pub(crate) fn compress(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Small(small) => small.compress(payload, out),
            Self::Alone(alone) => alone.compress(payload, out),
        }
    }
}
