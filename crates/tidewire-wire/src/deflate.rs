//! permessage-deflate (RFC 7692): compression of single messages, with or without a shared context.

mod alone;
mod bits;
mod block;
mod huffman;
pub(crate) mod messages;
mod parameters;
mod small;

pub use parameters::{Accepted, DeflateError, DeflateParameters, EXTENSION_NAME};

use crate::frame::ProtocolError;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use messages::MessageCompressor;

/// Compresses the messages of one connection, or of many connections without context takeover.
///
/// Without context, compressors of this crate compress most messages: those of up to 16 KiB at level 1 (16 KiB of
/// memory), of up to 8 KiB at level 2, and of up to 64 KiB at levels 3 to 6 (160 KiB and the longest message's tokens). They are up to four
/// times as fast as a general compressor, which clears its tables before each message. The general one uses 371 KiB
/// with a window of 15 bits and 245 KiB with one of 9; it is made when a message first needs it.
#[derive(Debug)]
pub struct Compressor {
    level: u32,
    window_bits: u8,
    keeps_context: bool,
    general: Option<Compress>,
    messages: Option<MessageCompressor>,
}

impl Compressor {
    /// `level` is 1 (fastest) to 9 (smallest), `window_bits` 9 to 15; other numbers are replaced by
    /// the nearest of these. With `keeps_context` a message may refer to earlier ones, so that only one
    /// connection may use the compressor.
    #[must_use]
    pub fn new(level: u32, window_bits: u8, keeps_context: bool) -> Self {
        let (level, window_bits) = (level.clamp(1, 9), clamp_window(window_bits));
        let messages = match keeps_context {
            true => None,
            false => MessageCompressor::for_level(level, window_bits),
        };
        Self {
            level,
            window_bits,
            keeps_context,
            general: None,
            messages,
        }
    }

    /// Appends the compressed form of `payload` to `out`, as it stands in a frame with RSV1
    /// ([`write_compressed_frame`](crate::frame::write_compressed_frame)).
    pub fn compress(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        if payload.is_empty() {
            // The empty block of RFC 7692, section 7.2.3.6: a flush without data writes nothing.
            out.push(0);
            return;
        }
        if let Some(messages) = &mut self.messages
            && messages.takes(payload.len())
        {
            return messages.compress(payload, out);
        }
        let state = self.general.get_or_insert_with(|| {
            let level = Compression::new(self.level);
            Compress::new_with_window_bits(level, false, self.window_bits)
        });
        if !self.keeps_context {
            state.reset();
        }
        let start = state.total_in();
        out.reserve(payload.len() / 2 + ROOM_BYTES_MIN);
        loop {
            let consumed = (state.total_in() - start) as usize;
            state
                .compress_vec(&payload[consumed..], out, FlushCompress::Sync)
                .expect("a compressor that is never finished takes any input");
            let is_flushed = out.len() < out.capacity();
            if is_flushed && state.total_in() - start == payload.len() as u64 {
                break;
            }
            out.reserve(payload.len() / 2 + ROOM_BYTES_MIN);
        }
        debug_assert!(out.ends_with(&TAIL));
        out.truncate(out.len() - TAIL.len());
    }

    /// Discards the context, so that the next message refers to no earlier one. The peer still decompresses
    /// it correctly, because its own context is only larger than needed.
    pub fn forget(&mut self) {
        if let Some(state) = &mut self.general {
            state.reset();
        }
    }
}

/// Decompresses the messages of one connection, or of many connections without context takeover.
///
/// It uses 46 KiB.
#[derive(Debug)]
pub struct Decompressor {
    state: Decompress,
    keeps_context: bool,
}

impl Decompressor {
    /// `window_bits` (8 to 15) and `keeps_context` are those of the compressing peer; a larger window also works.
    #[must_use]
    pub fn new(window_bits: u8, keeps_context: bool) -> Self {
        Self {
            state: Decompress::new_with_window_bits(false, clamp_window(window_bits)),
            keeps_context,
        }
    }

    /// Appends the decompressed `payload` to `out`.
    ///
    /// It stops when the result is larger than `out_bytes_max` bytes. On an error `out` is unchanged.
    ///
    /// # Errors
    /// [`ProtocolError::MessageTooLarge`], or [`ProtocolError::InvalidDeflate`] for invalid data.
    /// A connection with context takeover cannot continue after an error.
    pub fn decompress(
        &mut self,
        payload: &[u8],
        out: &mut Vec<u8>,
        out_bytes_max: usize,
    ) -> Result<(), ProtocolError> {
        if !self.keeps_context {
            self.state.reset(false);
        }
        let start = out.len();
        let result = self
            .inflate(payload, out, start, out_bytes_max)
            .and_then(|()| self.inflate(&TAIL, out, start, out_bytes_max));
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    /// Decompresses a part of a message, whose result starts at `start`.
    fn inflate(
        &mut self,
        part: &[u8],
        out: &mut Vec<u8>,
        start: usize,
        out_bytes_max: usize,
    ) -> Result<(), ProtocolError> {
        let mut unread = part;
        loop {
            let produced = out.len() - start;
            // The room is one byte more than allowed: a result of exactly the limit differs from one that goes on.
            let room = (unread.len() * 3)
                .max(produced)
                .clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX)
                .min((out_bytes_max - produced).saturating_add(1));
            let (read_before, written_before) = (self.state.total_in(), self.state.total_out());
            out.resize(start + produced + room, 0);
            let status = self
                .state
                .decompress(unread, &mut out[start + produced..], FlushDecompress::Sync)
                .map_err(|_| ProtocolError::InvalidDeflate)?;
            let read = (self.state.total_in() - read_before) as usize;
            let written = (self.state.total_out() - written_before) as usize;
            unread = &unread[read..];
            out.truncate(start + produced + written);
            if produced + written > out_bytes_max {
                return Err(ProtocolError::MessageTooLarge);
            }
            match status {
                // A last block inside a message is allowed (RFC 7692, section 7.2.3.4); a new stream follows.
                Status::StreamEnd => {
                    self.state.reset(false);
                    if unread.is_empty() {
                        return Ok(());
                    }
                }
                _ if unread.is_empty() && written < room => return Ok(()),
                _ if read == 0 && written == 0 => return Err(ProtocolError::InvalidDeflate),
                _ => {}
            }
        }
    }
}

/// The smallest window of zlib for a raw stream is 9 bits.
fn clamp_window(window_bits: u8) -> u8 {
    window_bits.clamp(WINDOW_BITS_MIN, WINDOW_BITS_MAX)
}

/// The smallest window that this side compresses with.
pub const WINDOW_BITS_MIN: u8 = 9;

/// The largest window, 32 KiB, which is also the default.
pub const WINDOW_BITS_MAX: u8 = 15;

/// The end of every flushed message, which is not sent (RFC 7692, section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

const ROOM_BYTES_MIN: usize = 64;
const ROOM_BYTES_MAX: usize = 64 * 1024;
