//! Frames made beforehand, so that sending costs no encoding.

use std::collections::HashSet;
use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidewire_wire::deflate::{Compressor, WINDOW_BITS_MAX};
use tidewire_wire::frame::{OpCode, write_compressed_frame, write_frame, write_frame_with};
use tidewire_wire::secure::SEALED_OVERHEAD_BYTES;

use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::payload::Payload;

/// Masked client frames one behind the other in one buffer, which every session sends from again and
/// again, straight from the shared bytes.
///
/// A session's place is a count of bytes since the ring's first frame, which grows past the end of the
/// buffer; [`FrameRing::unsent`] turns it into a range of bytes.
///
/// No two messages of a ring are alike. Where each is to be answered, every lap begins at another frame, so
/// that the order of messages does not repeat either: a server that leaves a whole lap out and sends it
/// later is found out like one that does it with a message.
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
    /// The messages in the frames, before compression or encryption, one behind the other.
    messages: Vec<u8>,
    /// Where each message ends.
    message_ends: Vec<u32>,
    opcode: OpCode,
    layer: Layer,
    /// The seed of the order of each lap; `None` if all laps are alike.
    shuffle: Option<u64>,
    /// The frames of the replies; only where messages are to be answered as they were sent.
    replies: Option<Replies>,
    /// What the messages are.
    payload: Payload,
}

impl FrameRing {
    /// As many frames of `payload` as fit in `bytes_max`, but at least two, with masks and contents
    /// drawn from `seed`.
    #[must_use]
    pub fn new(payload: Payload, layer: Layer, bytes_max: usize, seed: u64) -> Self {
        Self::made(payload, layer, (bytes_max, FRAMES_MIN), seed)
    }

    /// The same for messages that are answered, with the replies to compare with. Enough large frames
    /// are made that a lap is longer than what a server could change unseen.
    #[must_use]
    pub fn answered(payload: Payload, layer: Layer, bytes_max: usize, seed: u64) -> Self {
        let ring = Self::made(payload, layer, (bytes_max, ANSWERED_FRAMES_MIN), seed);
        let replies = (layer == Layer::Plain).then(|| Replies::of(&ring));
        Self {
            shuffle: Some(seed),
            replies,
            ..ring
        }
    }

    fn made(
        payload: Payload,
        layer: Layer,
        (bytes_max, frames_min): (usize, usize),
        seed: u64,
    ) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut writer = Writer::new(payload, layer);
        let mut known = HashSet::new();
        let mut ring = Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            stride: None,
            payload_bytes: Vec::new(),
            messages: Vec::new(),
            message_ends: Vec::new(),
            opcode: writer.opcode,
            layer,
            shuffle: None,
            replies: None,
            payload,
        };
        loop {
            let (start, message_start) = (ring.bytes.len(), ring.messages.len());
            let json = payload.content.json(payload.json_bytes, &mut random);
            if !known.insert(json.clone()) {
                continue;
            }
            payload.encoding.encode(&json, &mut ring.messages);
            let message = &ring.messages[message_start..];
            let payload_bytes = writer.write(message, random.random(), &mut ring.bytes);
            if ring.bytes.len() > bytes_max && ring.ends.len() >= frames_min {
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

    /// The ring of the usual size, for messages that are answered or not.
    #[must_use]
    pub fn of(payload: Payload, layer: Layer, seed: u64, are_answered: bool) -> Self {
        let bytes_max = match layer {
            Layer::Plain | Layer::Deflate => RING_BYTES,
            Layer::Encryption => SEALED_RING_BYTES,
        };
        let make = if are_answered {
            Self::answered
        } else {
            Self::new
        };
        make(payload, layer, bytes_max, seed)
    }

    /// The frames; empty if they are encrypted, which each session does for itself.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the messages are.
    #[must_use]
    pub fn payload(&self) -> Payload {
        self.payload
    }

    /// The layer of the messages.
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

    /// The number of frames in these bytes, at least one. Compressed frames count with their decompressed size.
    #[must_use]
    pub fn frames_in(&self, bytes: u64) -> u64 {
        (bytes / self.frame_bytes().max(1)).max(1)
    }

    /// The mean size of a frame. A compressed frame counts with its decompressed size.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        (self.len_bytes() / self.frames()).max(self.message(0).len() as u64)
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

    /// The message in the frame with this number, counted from the ring's first, before it was compressed or
    /// encrypted.
    #[must_use]
    pub fn message(&self, frame: u64) -> &[u8] {
        self.message_at(self.index_of(frame))
    }

    /// The message in the frame with this index.
    fn message_at(&self, index: usize) -> &[u8] {
        let start = index
            .checked_sub(1)
            .map_or(0, |before| self.message_ends[before]);
        &self.messages[start as usize..self.message_ends[index] as usize]
    }

    /// Which frame of the buffer has this number.
    #[inline]
    #[must_use]
    pub fn index_of(&self, frame: u64) -> usize {
        let (lap, rest) = (frame / self.frames(), frame % self.frames());
        ((rest + self.first_of(lap)) % self.frames()) as usize
    }

    /// The frame of the buffer with which a lap begins.
    #[inline]
    fn first_of(&self, lap: u64) -> u64 {
        let Some(seed) = self.shuffle.filter(|_| lap > 0) else {
            return 0;
        };
        // In the one half of the buffer and in the other by turns, so that no lap is like the one before.
        let half = self.frames() / 2;
        mixed(seed.wrapping_add(lap)) % half + (lap % 2) * half
    }

    /// Where a frame of the buffer starts.
    #[inline]
    fn begin_of(&self, index: u64) -> u64 {
        match (self.stride, index.checked_sub(1)) {
            (Some(stride), _) => index * stride,
            (None, None) => 0,
            (None, Some(before)) => u64::from(self.ends[before as usize]),
        }
    }

    /// Whole frames before the place.
    #[inline]
    #[must_use]
    pub fn frames_before(&self, place: u64) -> u64 {
        if let Some(stride) = self.stride {
            return place / stride;
        }
        let (lap, rest) = (place / self.len_bytes(), place % self.len_bytes());
        let first = self.first_of(lap);
        let at = self.begin_of(first) + rest;
        let before = |byte: u64| {
            let byte = byte as u32;
            self.ends.partition_point(|end| *end <= byte) as u64
        };
        let within = match at.checked_sub(self.len_bytes()) {
            None => before(at) - first,
            Some(wrapped) => self.frames() - first + before(wrapped),
        };
        lap * self.frames() + within
    }

    /// The place where the frame with this number starts.
    #[inline]
    #[must_use]
    pub fn start_of(&self, frame: u64) -> u64 {
        if let Some(stride) = self.stride {
            return frame * stride;
        }
        let (lap, rest) = (frame / self.frames(), frame % self.frames());
        let first = self.first_of(lap);
        let begin = self.begin_of(first);
        let within = match (first + rest).checked_sub(self.frames()) {
            None => self.begin_of(first + rest) - begin,
            Some(wrapped) => self.len_bytes() - begin + self.begin_of(wrapped),
        };
        lap * self.len_bytes() + within
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

    /// Which bytes of the buffer are those from `place` to `goal`, at most to where the buffer or the lap
    /// ends.
    #[inline]
    #[must_use]
    pub fn unsent(&self, place: u64, goal: u64) -> Range<usize> {
        let (lap, rest) = (place / self.len_bytes(), place % self.len_bytes());
        let begin = self.begin_of(self.first_of(lap));
        let (start, end_max) = match (begin + rest).checked_sub(self.len_bytes()) {
            None => (begin + rest, self.len_bytes()),
            Some(wrapped) => (wrapped, begin),
        };
        let wanted = goal.saturating_sub(place);
        start as usize..start.saturating_add(wanted).min(end_max) as usize
    }

    /// Compares `data` with the replies to frame number `frame` and the following ones, up to `limit`.
    /// Returns how many whole replies at the front of `data` match exactly, and their bytes; zero for a
    /// server whose replies differ from their messages.
    #[inline]
    #[must_use]
    pub fn whole_replies(&self, frame: u64, limit: u64, data: &[u8]) -> (u64, usize) {
        let Some(replies) = &self.replies else {
            return (0, 0);
        };
        let (mut frames, mut bytes) = (0, 0);
        while frame + frames < limit && bytes < data.len() {
            let number = frame + frames;
            let index = self.index_of(number);
            // As far as the buffer goes on in the order of the lap.
            let to_lap_end = self.frames() - number % self.frames();
            let most = to_lap_end
                .min(self.frames() - index as u64)
                .min(limit - number);
            let (fresh, fresh_bytes, is_all) = replies.alike(index, most as usize, &data[bytes..]);
            frames += fresh as u64;
            bytes += fresh_bytes;
            if !is_all {
                break;
            }
        }
        (frames, bytes)
    }

    /// The frames of the buffer that hold this message; one at most.
    #[cold]
    #[must_use]
    pub fn index_with(&self, message: &[u8]) -> Option<usize> {
        (0..self.ends.len()).find(|&index| self.message_at(index) == message)
    }
}

/// The frames that a server sends which answers each message with its like.
#[derive(Debug)]
struct Replies {
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<u32>,
    /// Bytes of each frame, if they are all alike.
    stride: Option<usize>,
}

impl Replies {
    fn of(ring: &FrameRing) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for index in 0..ring.ends.len() {
            write_frame(&mut bytes, ring.opcode, ring.message_at(index), None);
            ends.push(bytes.len() as u32);
        }
        let stride = ends[0] as usize;
        let mut numbered = ends.iter().zip(1..);
        let is_uniform = numbered.all(|(end, number)| *end as usize == stride * number);
        Self {
            bytes,
            ends,
            stride: is_uniform.then_some(stride),
        }
    }

    /// Of `most` replies from `index` on, how many are whole at the front of `data`, their bytes, and
    /// whether these are all.
    #[inline]
    fn alike(&self, index: usize, most: usize, data: &[u8]) -> (usize, usize, bool) {
        let begin = match (self.stride, index) {
            (Some(stride), _) => index * stride,
            (None, 0) => 0,
            (None, _) => self.ends[index - 1] as usize,
        };
        let end = self.ends[index + most - 1] as usize;
        let bytes = bytes_alike(&self.bytes[begin..end], data);
        let frames = match self.stride {
            Some(stride) => bytes / stride,
            None => {
                self.ends[index..index + most].partition_point(|&e| e as usize <= begin + bytes)
            }
        };
        let whole_bytes = match frames {
            0 => 0,
            _ => self.ends[index + frames - 1] as usize - begin,
        };
        (frames, whole_bytes, frames == most)
    }
}

/// How many bytes at the front of both are the same.
#[inline]
pub(crate) fn bytes_alike(known: &[u8], data: &[u8]) -> usize {
    let bytes = known.len().min(data.len());
    let (known, data) = (&known[..bytes], &data[..bytes]);
    if known == data {
        return bytes;
    }
    let mut pairs = known.iter().zip(data);
    pairs.position(|(a, b)| a != b).unwrap_or(bytes)
}

/// A number in which every bit depends on all bits of the other (splitmix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
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

/// The compression level of most software.
const DEFLATE_LEVEL: u32 = 6;

/// The encrypted frames of one session: some dozens of usual ones.
const SEALED_RING_BYTES: usize = 16 * 1024;

/// Small enough to stay in a core's cache, large enough for one write to carry a thousand messages.
pub const RING_BYTES: usize = 256 * 1024;

const FRAMES_MIN: usize = 2;

/// Fewer frames would make a lap that a server could leave out and make up for unseen: within a lap
/// every change is seen for certain, a shift by a whole lap in all but one of this many.
const ANSWERED_FRAMES_MIN: usize = 16;

#[cfg(test)]
mod tests;
