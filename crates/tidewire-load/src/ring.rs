//! Frames made beforehand, so that sending costs no encoding.

use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidewire_wire::deflate::{Compressor, WINDOW_BITS_MAX};
use tidewire_wire::frame::{OpCode, write_compressed_frame, write_frame, write_frame_with};
use tidewire_wire::secure::SEALED_OVERHEAD_BYTES;

use crate::layer::Layer;
use crate::payload::Payload;

/// Masked client frames one behind the other in one buffer, which every session sends from again and
/// again, straight from the shared bytes.
///
/// A session's place is a count of bytes since the ring's first frame, which grows past the end of the
/// buffer; [`FrameRing::unsent`] turns it into a range of bytes.
///
/// Of encrypted frames only the measures are shared: each session has the bytes under its own key, as
/// [`FrameRing::sealed`] makes them.
#[derive(Debug)]
pub struct FrameRing {
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<u32>,
    /// Bytes of each frame, if they are all alike, which spares a search.
    stride: Option<u64>,
    payload_bytes: Vec<u32>,
    /// What the frames hold, before it was compressed or encrypted, one behind the other.
    messages: Vec<u8>,
    /// Where each message ends.
    message_ends: Vec<u32>,
    opcode: OpCode,
    layer: Layer,
}

impl FrameRing {
    /// As many frames of `payload` as fit in `bytes_max`, but at least two, with masks and contents
    /// drawn from `seed`.
    #[must_use]
    pub fn new(payload: Payload, layer: Layer, bytes_max: usize, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut writer = Writer::new(payload, layer);
        let mut ring = Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            stride: None,
            payload_bytes: Vec::new(),
            messages: Vec::new(),
            message_ends: Vec::new(),
            opcode: writer.opcode,
            layer,
        };
        loop {
            let (start, message_start) = (ring.bytes.len(), ring.messages.len());
            let json = payload.content.json(payload.json_bytes, &mut random);
            payload.encoding.encode(&json, &mut ring.messages);
            let message = &ring.messages[message_start..];
            let payload_bytes = writer.write(message, random.random(), &mut ring.bytes);
            if ring.bytes.len() > bytes_max && ring.ends.len() >= FRAMES_MIN {
                ring.bytes.truncate(start);
                ring.messages.truncate(message_start);
                break;
            }
            ring.ends.push(ring.bytes.len() as u32);
            ring.message_ends.push(ring.messages.len() as u32);
            ring.payload_bytes.push(payload_bytes as u32);
        }
        let stride = u64::from(ring.ends[0]);
        let mut ends = ring.ends.iter().zip(1..);
        let is_uniform = ends.all(|(end, number)| u64::from(*end) == stride * number);
        ring.stride = is_uniform.then_some(stride);
        if layer == Layer::Encryption {
            ring.bytes = Vec::new();
        }
        ring
    }

    /// The ring of the usual size.
    #[must_use]
    pub fn of(payload: Payload, layer: Layer, seed: u64) -> Self {
        let bytes_max = match layer {
            Layer::Plain | Layer::Deflate => RING_BYTES,
            Layer::Encryption => SEALED_RING_BYTES,
        };
        Self::new(payload, layer, bytes_max, seed)
    }

    /// The frames; empty if they are encrypted, which each session does for itself.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What is done to the messages.
    #[must_use]
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// The frames of a ring of encrypted ones, whose payloads `seal` appends: `E:`, 12 bytes, the
    /// encrypted message and 16 bytes.
    pub fn sealed(
        &self,
        mut seal: impl FnMut(&[u8], &mut Vec<u8>),
        random: &mut SmallRng,
    ) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len_bytes() as usize);
        for frame in 0..self.frames() {
            write_frame_with(&mut bytes, Some(random.random()), |out| {
                seal(self.message(frame), out);
                self.opcode
            });
        }
        bytes
    }

    /// Bytes of one lap.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.ends.last().map_or(0, |end| u64::from(*end))
    }

    /// Frames of one lap.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.ends.len() as u64
    }

    /// The opcode of all frames.
    #[must_use]
    pub fn opcode(&self) -> OpCode {
        self.opcode
    }

    /// Mean payload bytes of a frame.
    #[must_use]
    pub fn payload_bytes_mean(&self) -> f64 {
        let sum: u64 = self
            .payload_bytes
            .iter()
            .map(|bytes| u64::from(*bytes))
            .sum();
        sum as f64 / self.payload_bytes.len() as f64
    }

    /// Payload bytes of the frame with this number, counted from the ring's first.
    #[inline]
    #[must_use]
    pub fn payload_bytes(&self, frame: u64) -> usize {
        let index = if self.stride.is_some() {
            0
        } else {
            frame % self.frames()
        };
        self.payload_bytes[index as usize] as usize
    }

    /// The message in the frame with this number, before it was compressed or encrypted.
    #[must_use]
    pub fn message(&self, frame: u64) -> &[u8] {
        let index = (frame % self.frames()) as usize;
        let start = index
            .checked_sub(1)
            .map_or(0, |before| self.message_ends[before]);
        &self.messages[start as usize..self.message_ends[index] as usize]
    }

    /// Whole frames before the place.
    #[inline]
    #[must_use]
    pub fn frames_before(&self, place: u64) -> u64 {
        if let Some(stride) = self.stride {
            return place / stride;
        }
        let (lap, rest) = (place / self.len_bytes(), (place % self.len_bytes()) as u32);
        lap * self.frames() + self.ends.partition_point(|end| *end <= rest) as u64
    }

    /// The place where the frame with this number starts.
    #[inline]
    #[must_use]
    pub fn start_of(&self, frame: u64) -> u64 {
        if let Some(stride) = self.stride {
            return frame * stride;
        }
        let (lap, rest) = (frame / self.frames(), frame % self.frames());
        let before = if rest == 0 {
            0
        } else {
            u64::from(self.ends[rest as usize - 1])
        };
        lap * self.len_bytes() + before
    }

    /// The first place at or behind `place` where a frame starts.
    #[inline]
    #[must_use]
    pub fn boundary(&self, place: u64) -> u64 {
        let frames = self.frames_before(place);
        let start = self.start_of(frames);
        if start == place {
            place
        } else {
            self.start_of(frames + 1)
        }
    }

    /// Which bytes of the buffer are those from `place` to `goal`, at most to the end of the lap.
    #[inline]
    #[must_use]
    pub fn unsent(&self, place: u64, goal: u64) -> Range<usize> {
        let start = place % self.len_bytes();
        let wanted = goal.saturating_sub(place);
        let end = start.saturating_add(wanted).min(self.len_bytes());
        start as usize..end as usize
    }
}

/// Makes frames out of messages.
struct Writer {
    layer: Layer,
    opcode: OpCode,
    compressor: Option<Box<Compressor>>,
    deflated: Vec<u8>,
}

impl Writer {
    fn new(payload: Payload, layer: Layer) -> Self {
        let deflates = layer == Layer::Deflate;
        Self {
            layer,
            opcode: match layer {
                Layer::Plain | Layer::Deflate => payload.encoding.opcode(),
                Layer::Encryption => OpCode::Binary,
            },
            compressor: deflates
                .then(|| Box::new(Compressor::new(DEFLATE_LEVEL, WINDOW_BITS_MAX, false))),
            deflated: Vec::new(),
        }
    }

    /// Appends the frame of a message, or one of its size if it is to be encrypted; the bytes of its
    /// payload.
    fn write(&mut self, message: &[u8], mask: [u8; 4], out: &mut Vec<u8>) -> usize {
        if let Some(compressor) = &mut self.compressor {
            self.deflated.clear();
            compressor.compress(message, &mut self.deflated);
            write_compressed_frame(out, self.opcode, &self.deflated, Some(mask));
            return self.deflated.len();
        }
        if self.layer == Layer::Encryption {
            let payload_bytes = message.len() + SEALED_OVERHEAD_BYTES;
            write_frame(out, self.opcode, &vec![0; payload_bytes], Some(mask));
            return payload_bytes;
        }
        write_frame(out, self.opcode, message, Some(mask));
        message.len()
    }
}

/// What most software compresses with.
const DEFLATE_LEVEL: u32 = 6;

/// The encrypted frames of one session: some dozens of usual ones.
const SEALED_RING_BYTES: usize = 16 * 1024;

/// Small enough to stay in a core's cache, large enough for one write to carry a thousand messages.
pub const RING_BYTES: usize = 256 * 1024;

const FRAMES_MIN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Content;
    use crate::payload::Encoding;
    use tidewire_wire::deflate::Decompressor;
    use tidewire_wire::frame::Role;
    use tidewire_wire::message::{Compressed, Event, Input, MessageReader};

    fn rings() -> [FrameRing; 5] {
        let zlib = Payload {
            encoding: Encoding::Zlib,
            ..Payload::TRADE
        };
        let trades = Payload::json(1_024).telling(Content::Trades);
        [
            FrameRing::new(Payload::TRADE, Layer::Plain, 10_000, 1),
            FrameRing::new(Payload::json(65_536), Layer::Plain, 10_000, 1),
            FrameRing::new(zlib, Layer::Plain, 10_000, 1),
            FrameRing::new(trades, Layer::Deflate, 10_000, 1),
            FrameRing::of(Payload::TRADE, Layer::Plain, 1),
        ]
    }

    #[test]
    fn every_frame_reads_back_as_its_message() {
        for ring in rings() {
            let mut bytes = ring.bytes.clone();
            let mut input = Input::new(&mut bytes);
            let mut reader = MessageReader::new(Role::Server, 1 << 20).with_compression();
            let mut frame = 0;
            while let Some(event) = reader.read(&mut input).unwrap() {
                let (length, message) = match event {
                    Event::Text(text) => (text.len(), text.as_bytes().to_vec()),
                    Event::Binary(bytes) => (bytes.len(), bytes.to_vec()),
                    Event::Compressed(Compressed { bytes, is_text }) => {
                        let mut message = Vec::new();
                        let mut inflater = Decompressor::new(WINDOW_BITS_MAX, false);
                        inflater.decompress(bytes, &mut message, 1 << 20).unwrap();
                        assert!(is_text && bytes.len() < message.len());
                        (bytes.len(), message)
                    }
                    other => panic!("{other:?}"),
                };
                assert_eq!(length, ring.payload_bytes(frame));
                assert_eq!(message, ring.message(frame));
                frame += 1;
                assert_eq!(input.consumed() as u64, ring.start_of(frame));
            }
            assert_eq!(frame, ring.frames());
            assert!(frame >= 2);
        }
    }

    #[test]
    fn encrypted_frames_have_the_measures_of_the_ring() {
        let ring = FrameRing::of(Payload::TRADE, Layer::Encryption, 1);
        assert!(ring.bytes().is_empty() && ring.opcode() == OpCode::Binary);
        let seal = |message: &[u8], out: &mut Vec<u8>| {
            out.extend_from_slice(b"E:");
            out.extend_from_slice(&[7; 12]);
            out.extend_from_slice(message);
            out.extend_from_slice(&[9; 16]);
        };
        let mut bytes = ring.sealed(seal, &mut SmallRng::seed_from_u64(1));
        assert_eq!(bytes.len() as u64, ring.len_bytes());
        let mut reader = MessageReader::new(Role::Server, 1 << 20);
        let mut input = Input::new(&mut bytes);
        for frame in 0..ring.frames() {
            let Some(Event::Binary(sealed)) = reader.read(&mut input).unwrap() else {
                panic!("frame {frame}");
            };
            assert_eq!(sealed.len(), ring.payload_bytes(frame));
            assert_eq!(&sealed[14..sealed.len() - 16], ring.message(frame));
        }
    }

    #[test]
    fn places_and_frames_agree_over_several_laps() {
        for ring in rings() {
            for frame in 0..ring.frames() * 3 {
                let start = ring.start_of(frame);
                assert_eq!(ring.frames_before(start), frame);
                assert_eq!(ring.boundary(start), start);
                assert_eq!(ring.boundary(start + 1), ring.start_of(frame + 1));
                assert_eq!(ring.frames_before(start + 1), frame);
            }
        }
    }

    #[test]
    fn what_is_unsent_ends_at_the_goal_or_at_the_lap() {
        let ring = FrameRing::new(Payload::TRADE, Layer::Plain, 10_000, 1);
        let lap = ring.len_bytes();
        assert_eq!(ring.unsent(183, 366), 183..366);
        assert_eq!(ring.unsent(183, u64::MAX), 183..lap as usize);
        assert_eq!(ring.unsent(lap + 183, u64::MAX), 183..lap as usize);
        assert!(ring.unsent(183, 183).is_empty());
    }

    #[test]
    fn frames_differ_in_mask_and_content() {
        let ring = FrameRing::new(Payload::TRADE, Layer::Plain, 10_000, 1);
        let stride = ring.start_of(1) as usize;
        assert_eq!(stride, 183);
        let first = &ring.bytes[..stride];
        assert!(
            ring.bytes
                .chunks(stride)
                .skip(1)
                .all(|frame| frame[4..8] != first[4..8])
        );
    }
}
