//! Frames made beforehand, so that sending costs no encoding.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidewire_wire::frame::{OpCode, write_frame};

use crate::payload::{Payload, trade_json};

/// Masked client frames one behind the other in one buffer, which every session sends from again and
/// again, straight from the shared bytes.
///
/// A session's place is a count of bytes since the ring's first frame, which grows past the end of the
/// buffer; [`FrameRing::unsent`] turns it into bytes.
#[derive(Debug)]
pub struct FrameRing {
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<u32>,
    /// Bytes of each frame, if they are all alike, which spares a search.
    stride: Option<u64>,
    payload_bytes: Vec<u32>,
    opcode: OpCode,
}

impl FrameRing {
    /// As many frames of `payload` as fit in `bytes_max`, but at least two, with masks and contents
    /// drawn from `seed`.
    #[must_use]
    pub fn new(payload: Payload, bytes_max: usize, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let opcode = payload.encoding.opcode();
        let (mut bytes, mut ends, mut payload_bytes) = (Vec::new(), Vec::new(), Vec::new());
        let mut message = Vec::new();
        loop {
            message.clear();
            let json = trade_json(payload.json_bytes, &mut random);
            payload.encoding.encode(&json, &mut message);
            let start = bytes.len();
            write_frame(&mut bytes, opcode, &message, Some(random.random()));
            if bytes.len() > bytes_max && ends.len() >= FRAMES_MIN {
                bytes.truncate(start);
                break;
            }
            ends.push(bytes.len() as u32);
            payload_bytes.push(message.len() as u32);
        }
        let stride = u64::from(ends[0]);
        let is_uniform = ends
            .iter()
            .zip(1..)
            .all(|(end, number)| u64::from(*end) == stride * number);
        Self {
            bytes,
            ends,
            stride: is_uniform.then_some(stride),
            payload_bytes,
            opcode,
        }
    }

    /// The ring of the usual size.
    #[must_use]
    pub fn of(payload: Payload, seed: u64) -> Self {
        Self::new(payload, RING_BYTES, seed)
    }

    /// Bytes of one lap.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
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

    /// The bytes from `place` to `goal`, at most to the end of the lap.
    #[inline]
    #[must_use]
    pub fn unsent(&self, place: u64, goal: u64) -> &[u8] {
        let start = (place % self.len_bytes()) as usize;
        let wanted = usize::try_from(goal.saturating_sub(place)).unwrap_or(usize::MAX);
        let rest = &self.bytes[start..];
        &rest[..rest.len().min(wanted)]
    }
}

/// Small enough to stay in a core's cache, large enough for one write to carry a thousand messages.
pub const RING_BYTES: usize = 256 * 1024;

const FRAMES_MIN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Encoding;
    use tidewire_wire::frame::Role;
    use tidewire_wire::message::{Event, Input, MessageReader};

    fn rings() -> [FrameRing; 4] {
        let zlib = Payload {
            json_bytes: 175,
            encoding: Encoding::Zlib,
        };
        [
            FrameRing::new(Payload::TRADE, 10_000, 1),
            FrameRing::new(Payload::json(65_536), 10_000, 1),
            FrameRing::new(zlib, 10_000, 1),
            FrameRing::of(Payload::TRADE, 1),
        ]
    }

    #[test]
    fn every_frame_reads_back_as_its_message() {
        for ring in rings() {
            let mut bytes = ring.bytes.clone();
            let mut input = Input::new(&mut bytes);
            let mut reader = MessageReader::new(Role::Server, 1 << 20);
            let mut frame = 0;
            while let Some(event) = reader.read(&mut input).unwrap() {
                let length = match event {
                    Event::Text(text) => text.len(),
                    Event::Binary(bytes) => bytes.len(),
                    other => panic!("{other:?}"),
                };
                assert_eq!(length, ring.payload_bytes(frame));
                frame += 1;
                assert_eq!(input.consumed() as u64, ring.start_of(frame));
            }
            assert_eq!(frame, ring.frames());
            assert!(frame >= 2);
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
        let ring = FrameRing::new(Payload::TRADE, 10_000, 1);
        assert_eq!(ring.unsent(183, 366).len(), 183);
        assert_eq!(
            ring.unsent(183, u64::MAX).len() as u64,
            ring.len_bytes() - 183
        );
        assert_eq!(
            ring.unsent(ring.len_bytes() + 183, u64::MAX),
            &ring.bytes[183..]
        );
        assert!(ring.unsent(183, 183).is_empty());
    }

    #[test]
    fn frames_differ_in_mask_and_content() {
        let ring = FrameRing::new(Payload::TRADE, 10_000, 1);
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
