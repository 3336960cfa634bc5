//! zlib streams (RFC 1950), inflated under a limit.

use super::FormatError;
use crate::deflate::messages::MessageCompressor;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Inflates zlib streams one after another with one state (46 KiB), made once.
#[derive(Debug)]
pub struct Inflater {
    state: Decompress,
}

impl Default for Inflater {
    fn default() -> Self {
        Self::new()
    }
}

impl Inflater {
    /// Allocates the state.
    pub fn new() -> Self {
        Self {
            state: Decompress::new(true),
        }
    }

    /// Appends what the zlib stream `compressed` holds to `out`.
    ///
    /// Stops as soon as the result exceeds `out_bytes_max` bytes, and never holds more than twice that many. On
    /// an error `out` is as it was before.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`], [`FormatError::Truncated`] for a stream without its end,
    /// [`FormatError::TrailingBytes`] for bytes after it, [`FormatError::Malformed`] for anything else.
    pub fn inflate(
        &mut self,
        compressed: &[u8],
        out: &mut Vec<u8>,
        out_bytes_max: usize,
    ) -> Result<(), FormatError> {
        self.state.reset(true);
        let start = out.len();
        let result = self.inflate_from(compressed, out, start, out_bytes_max);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn inflate_from(
        &mut self,
        compressed: &[u8],
        out: &mut Vec<u8>,
        start: usize,
        out_bytes_max: usize,
    ) -> Result<(), FormatError> {
        // The room is one byte more than allowed: a result of exactly the limit differs from one that goes on.
        let room_max = out_bytes_max.saturating_add(1);
        let mut room = compressed
            .len()
            .saturating_mul(4)
            .clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        loop {
            let consumed = self.state.total_in() as usize;
            let produced = self.state.total_out() as usize;
            room = room.max(produced).min(room_max - produced);
            out.resize(start + produced + room, 0);
            let status = self
                .state
                .decompress(
                    &compressed[consumed..],
                    &mut out[start + produced..],
                    FlushDecompress::None,
                )
                .map_err(|_| FormatError::Malformed("not a zlib stream"))?;
            let total = self.state.total_out() as usize;
            if total > out_bytes_max {
                return Err(FormatError::TooLarge {
                    bytes_max: out_bytes_max,
                });
            }
            if matches!(status, Status::StreamEnd) {
                out.truncate(start + total);
                return if self.state.total_in() as usize == compressed.len() {
                    Ok(())
                } else {
                    Err(FormatError::TrailingBytes)
                };
            }
            let stuck = self.state.total_in() as usize == consumed && total == produced;
            if stuck {
                return Err(FormatError::Truncated);
            }
        }
    }
}

/// Deflates messages one after another with the same states, made once: for most messages at levels 1 to 6 a compressor of
/// this crate, as in [`Compressor`](crate::deflate::Compressor), and a general one (371 KiB) for the others.
#[derive(Debug)]
pub struct Deflater {
    level: u32,
    general: Option<Compress>,
    messages: Option<MessageCompressor>,
}

impl Deflater {
    /// `level` is 0 (stored) to 9 (smallest); 1 is the fastest that compresses, and
    /// a larger number counts as 9.
    pub fn new(level: u32) -> Self {
        Self {
            level: level.min(LEVEL_MAX),
            general: None,
            messages: MessageCompressor::for_level(level, WINDOW_BITS),
        }
    }

    /// Appends `plain` as one zlib stream to `out`. The prefix `C:` is the caller's.
    pub fn deflate(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        if let Some(messages) = &mut self.messages
            && messages.takes(plain.len())
        {
            out.extend_from_slice(&head(self.level));
            messages.compress(plain, out);
            out.extend_from_slice(&END_OF_BLOCKS);
            out.extend_from_slice(&adler32(plain).to_be_bytes());
            return;
        }
        let state = self
            .general
            .get_or_insert_with(|| Compress::new(Compression::new(self.level), true));
        state.reset();
        let start = out.len();
        let mut room = plain.len() / 2 + CHUNK_BYTES_MIN;
        loop {
            let consumed = state.total_in() as usize;
            let produced = state.total_out() as usize;
            out.resize(start + produced + room, 0);
            let status = state
                .compress(
                    &plain[consumed..],
                    &mut out[start + produced..],
                    FlushCompress::Finish,
                )
                .expect("a state that was just reset takes any input");
            let total = state.total_out() as usize;
            if matches!(status, Status::StreamEnd) {
                out.truncate(start + total);
                return;
            }
            room = room.saturating_mul(2);
        }
    }
}

/// [`Inflater::inflate`] with a state for this one stream.
///
/// # Errors
/// As [`Inflater::inflate`].
pub fn inflate(
    compressed: &[u8],
    out: &mut Vec<u8>,
    out_bytes_max: usize,
) -> Result<(), FormatError> {
    Inflater::new().inflate(compressed, out, out_bytes_max)
}

/// [`Deflater::deflate`] with a state for this one stream.
pub fn deflate(plain: &[u8], level: u32, out: &mut Vec<u8>) {
    Deflater::new(level).deflate(plain, out);
}

/// The checksum of RFC 1950, section 8.2. This many bytes fit into the sums between two remainders.
fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for chunk in bytes.chunks(5_552) {
        for byte in chunk {
            a += u32::from(*byte);
            b += a;
        }
        a %= 65_521;
        b %= 65_521;
    }
    b << 16 | a
}

const LEVEL_MAX: u32 = 9;

const WINDOW_BITS: u8 = 15;

/// The head of a stream (RFC 1950, section 2.2): deflate with a window of 32 KiB, and how much was done at this level.
fn head(level: u32) -> [u8; 2] {
    match level {
        0 | 1 => [0x78, 0x01],
        2..=5 => [0x78, 0x5E],
        6 => [0x78, 0x9C],
        _ => [0x78, 0xDA],
    }
}

/// The bytes after a flush at the end of a stream: the rest of the flush's empty block, and an empty last one.
const END_OF_BLOCKS: [u8; 6] = [0, 0, 0xff, 0xff, 0x03, 0];

const CHUNK_BYTES_MIN: usize = 256;
const CHUNK_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn deflated(plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        deflate(plain, 6, &mut out);
        out
    }

    #[test]
    fn exactly_the_limit_passes_and_one_more_does_not() {
        let stream = deflated(&[b'a'; 1000]);
        let mut out = b"before".to_vec();
        let mut inflater = Inflater::new();
        let refused = inflater.inflate(&stream, &mut out, 999);
        assert_eq!(refused, Err(FormatError::TooLarge { bytes_max: 999 }));
        assert_eq!(out, b"before");
        inflater.inflate(&stream, &mut out, 1000).unwrap();
        assert_eq!(out.len(), 1006);
    }

    #[test]
    fn a_bomb_costs_no_more_than_the_limit() {
        let stream = deflated(&vec![0; 50_000_000]);
        let mut out = Vec::new();
        let refused = inflate(&stream, &mut out, 100_000);
        assert_eq!(refused, Err(FormatError::TooLarge { bytes_max: 100_000 }));
        assert!(out.capacity() <= 200_002, "{}", out.capacity());
    }

    #[test]
    fn broken_streams() {
        let stream = deflated(b"hello hello hello hello");
        let mut out = Vec::new();
        let cut = &stream[..stream.len() - 1];
        assert_eq!(inflate(cut, &mut out, 100), Err(FormatError::Truncated));
        assert_eq!(inflate(b"", &mut out, 100), Err(FormatError::Truncated));
        let mut long = stream.clone();
        long.push(0);
        assert_eq!(
            inflate(&long, &mut out, 100),
            Err(FormatError::TrailingBytes)
        );
        let mut flipped = stream;
        let last = flipped.len() - 1;
        flipped[last] ^= 1;
        assert!(matches!(
            inflate(&flipped, &mut out, 100),
            Err(FormatError::Malformed(_))
        ));
        assert!(matches!(
            inflate(b"{}", &mut out, 100),
            Err(FormatError::Malformed(_))
        ));
        assert!(out.is_empty());
    }

    #[test]
    fn small_messages_at_level_1_are_streams_like_others() {
        let mut deflater = Deflater::new(1);
        let sizes = [1, 2, 100, 5_552, 5_553, 16 * 1024, 16 * 1024 + 1];
        for size in sizes {
            for plain in [
                vec![b'a'; size],
                (0..size).map(|at| (at * at / 7) as u8).collect(),
            ] {
                let (mut stream, mut back) = (Vec::new(), Vec::new());
                deflater.deflate(&plain, &mut stream);
                assert_eq!(stream[..2], head(1), "{size}");
                inflate(&stream, &mut back, size).unwrap();
                assert_eq!(back, plain);
            }
        }
        let wrong = [0x78, 0x01, 0x03, 0, 0, 0, 0, 2];
        assert!(inflate(&wrong, &mut Vec::new(), 9).is_err());
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    proptest! {
        #[test]
        fn round_trip_with_reused_states(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 1..4),
            level in 0u32..10,
        ) {
            let mut deflater = Deflater::new(level);
            let mut inflater = Inflater::new();
            for plain in messages {
                let mut stream = Vec::new();
                deflater.deflate(&plain, &mut stream);
                let mut back = Vec::new();
                inflater.inflate(&stream, &mut back, plain.len()).unwrap();
                prop_assert_eq!(back, plain);
            }
        }

        #[test]
        fn a_changed_byte_is_an_error_or_does_no_harm(
            plain in prop::collection::vec(any::<u8>(), 1..200), at: prop::sample::Index, byte: u8,
        ) {
            let mut stream = Vec::new();
            Deflater::new(6).deflate(&plain, &mut stream);
            let at = at.index(stream.len());
            stream[at] = byte;
            let mut back = Vec::new();
            if inflate(&stream, &mut back, 10_000).is_ok() {
                prop_assert_eq!(back, plain);
            }
        }
    }
}
