use super::*;
use crate::worker::websocket::payload::Content;
use crate::worker::websocket::payload::Encoding;
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
        FrameRing::of(Payload::TRADE, Layer::Plain, 1, false),
    ]
}

fn answered_rings() -> [FrameRing; 4] {
    let zlib = Payload {
        encoding: Encoding::Zlib,
        ..Payload::TRADE
    };
    let trades = Payload::json(1_024).telling(Content::Trades);
    [
        FrameRing::answered(Payload::TRADE, Layer::Plain, 10_000, 1),
        FrameRing::answered(Payload::json(65_536), Layer::Plain, 10_000, 1),
        FrameRing::answered(zlib, Layer::Plain, 10_000, 1),
        FrameRing::answered(trades, Layer::Deflate, 10_000, 1),
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
            assert_eq!(length, ring.payload_bytes[frame as usize] as usize);
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
    let ring = FrameRing::of(Payload::TRADE, Layer::Encryption, 1, false);
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
        assert_eq!(sealed.len(), ring.payload_bytes[frame as usize] as usize);
        assert_eq!(&sealed[14..sealed.len() - 16], ring.message(frame));
    }
}

#[test]
fn places_and_frames_agree_over_several_laps() {
    for ring in rings().into_iter().chain(answered_rings()) {
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

/// The messages of a session in three laps, in the order in which it sends them.
fn sent(ring: &FrameRing) -> Vec<u8> {
    let (mut place, mut bytes) = (0, Vec::new());
    let goal = ring.start_of(ring.frames() * 3);
    while place < goal {
        let unsent = ring.unsent(place, goal);
        assert!(!unsent.is_empty());
        place += unsent.len() as u64;
        bytes.extend_from_slice(&ring.bytes[unsent]);
    }
    bytes
}

#[test]
fn every_lap_has_all_messages_in_an_order_of_its_own() {
    for ring in answered_rings() {
        let mut bytes = sent(&ring);
        let mut input = Input::new(&mut bytes);
        let mut reader = MessageReader::new(Role::Server, 1 << 20).with_compression();
        let mut inflater = Decompressor::new(WINDOW_BITS_MAX, false);
        let mut orders = vec![Vec::new(); 3];
        for number in 0..ring.frames() * 3 {
            let message = match reader.read(&mut input).unwrap().unwrap() {
                Event::Text(text) => text.as_bytes().to_vec(),
                Event::Binary(bytes) => bytes.to_vec(),
                Event::Compressed(Compressed { bytes, .. }) => {
                    let mut message = Vec::new();
                    inflater.decompress(bytes, &mut message, 1 << 20).unwrap();
                    message
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(message, ring.message(number));
            let index = ring.index_with(&message).unwrap();
            assert_eq!(index, ring.index_of(number));
            orders[(number / ring.frames()) as usize].push(index);
        }
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        orders.iter_mut().for_each(|order| order.sort_unstable());
        let all: Vec<usize> = (0..ring.frames() as usize).collect();
        assert!(orders.iter().all(|order| *order == all));
        assert!(all.len() >= ANSWERED_FRAMES_MIN);
    }
}

#[test]
fn replies_are_right_as_far_as_they_are_what_was_sent() {
    for ring in answered_rings() {
        if ring.layer() != Layer::Plain {
            continue;
        }
        // From the middle of one lap over the next.
        let (from, frames) = (ring.frames() / 2, ring.frames() * 2);
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for frame in from..from + frames {
            write_frame(&mut bytes, ring.opcode, ring.message(frame), None);
            ends.push(bytes.len());
        }
        let whole = |limit: u64, data: &[u8]| ring.whole_replies(from, from + limit, data);
        assert_eq!(whole(frames, &bytes), (frames, bytes.len()));
        assert_eq!(whole(3, &bytes), (3, ends[3]));
        assert_eq!(whole(0, &bytes), (0, 0));
        assert_eq!(whole(frames, &[]), (0, 0));
        // Cut off within a frame, and changed by one bit in another.
        let cut = ends[ends.len() - 1] - 1;
        assert_eq!(
            whole(frames, &bytes[..cut]),
            (frames - 1, ends[ends.len() - 2])
        );
        for wrong in [0, 1, 5, ends.len() - 2] {
            let mut changed = bytes.clone();
            changed[ends[wrong + 1] - 1] ^= 1;
            assert_eq!(whole(frames, &changed), (wrong as u64, ends[wrong]));
        }
    }
}

#[test]
fn no_two_messages_are_alike() {
    let ring = FrameRing::answered(Payload::json(64), Layer::Plain, 1 << 20, 1);
    let messages: std::collections::HashSet<&[u8]> =
        (0..ring.frames()).map(|f| ring.message(f)).collect();
    assert_eq!(messages.len() as u64, ring.frames());
}
