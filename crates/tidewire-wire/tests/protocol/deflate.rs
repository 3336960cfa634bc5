//! permessage-deflate: what is compressed comes back, in frames cut anywhere, and nothing inflates past its limit.

use proptest::prelude::*;
use tidewire_wire::deflate::{Compressor, Decompressor};
use tidewire_wire::frame::{
    OpCode, ProtocolError, Role, write_compressed_frame, write_frame, write_header,
};
use tidewire_wire::message::{Compressed, Event, Input, MessageReader};

fn compressed(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Compressor::new(6, 15, false).compress(payload, &mut out);
    out
}

fn inflated(compressed: &[u8]) -> Result<Vec<u8>, ProtocolError> {
    let mut out = Vec::new();
    Decompressor::new(15, false).decompress(compressed, &mut out, 1000)?;
    Ok(out)
}

/// RFC 7692, section 7.2.3.
#[test]
fn examples_of_the_specification() {
    for hello in [
        &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
        // A stored block.
        &[
            0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00,
        ],
        // A last block, and the byte that makes the tail a block of its own.
        &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
        // Two blocks.
        &[
            0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00,
        ],
    ] {
        assert_eq!(inflated(hello), Ok(b"Hello".to_vec()), "{hello:02x?}");
    }
    assert_eq!(inflated(&[0x00]), Ok(Vec::new()));
    assert_eq!(compressed(b""), [0x00]);

    let mut takes_over = Decompressor::new(15, true);
    let mut out = Vec::new();
    let first = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    takes_over.decompress(&first, &mut out, 10).unwrap();
    let again = [0xf2, 0x00, 0x11, 0x00, 0x00];
    takes_over.decompress(&again, &mut out, 10).unwrap();
    assert_eq!(out, b"HelloHello");
    // Without the message before, the reference leads nowhere.
    assert_eq!(inflated(&again), Err(ProtocolError::InvalidDeflate));
}

#[test]
fn exactly_the_limit_passes_and_one_more_does_not() {
    let payload = vec![b'a'; 50_000];
    let compressed = compressed(&payload);
    for keeps_context in [false, true] {
        let mut out = b"before".to_vec();
        let refused =
            Decompressor::new(15, keeps_context).decompress(&compressed, &mut out, 49_999);
        assert_eq!(refused, Err(ProtocolError::MessageTooLarge));
        assert_eq!(out, b"before");
        let mut decompressor = Decompressor::new(15, keeps_context);
        decompressor
            .decompress(&compressed, &mut out, 50_000)
            .unwrap();
        assert_eq!(out.len(), 50_006);
    }
}

#[test]
fn a_bomb_costs_no_more_than_the_limit() {
    let bomb = compressed(&vec![0; 100_000_000]);
    assert!(bomb.len() < 200_000);
    let mut out = Vec::new();
    let refused = Decompressor::new(15, false).decompress(&bomb, &mut out, 100_000);
    assert_eq!(refused, Err(ProtocolError::MessageTooLarge));
    assert!(out.capacity() <= 400_000, "{}", out.capacity());
}

#[test]
fn a_shared_decompressor_survives_what_it_refused() {
    let mut shared = Decompressor::new(15, false);
    let mut out = Vec::new();
    assert!(shared.decompress(&[0xff; 40], &mut out, 1000).is_err());
    shared
        .decompress(&compressed(b"next"), &mut out, 1000)
        .unwrap();
    assert_eq!(out, b"next");
}

#[test]
fn a_compressor_that_forgot_refers_to_nothing() {
    let message = b"the same words again and again".repeat(4);
    let mut keeping = Compressor::new(6, 15, true);
    let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
    keeping.compress(&message, &mut first);
    keeping.compress(&message, &mut second);
    assert!(second.len() < first.len() / 2);
    keeping.forget();
    keeping.compress(&message, &mut third);
    assert_eq!(inflated(&third), Ok(message));
}

fn read_all(reader: &mut MessageReader, bytes: &mut [u8]) -> Result<Vec<String>, ProtocolError> {
    let mut input = Input::new(bytes);
    let mut events = Vec::new();
    while let Some(event) = reader.read(&mut input)? {
        events.push(format!("{event:?}"));
    }
    Ok(events)
}

#[test]
fn rsv1_has_its_place() {
    let payload = compressed(b"Hello");
    let with = || MessageReader::new(Role::Client, 1000).with_compression();
    let frame = |opcode, fin: bool| {
        let mut bytes = Vec::new();
        write_header(&mut bytes, fin, opcode, payload.len(), None);
        bytes.extend_from_slice(&payload);
        bytes
    };
    for (first, allowed) in [
        (OpCode::Text, true),
        (OpCode::Binary, true),
        (OpCode::Ping, false),
        (OpCode::Pong, false),
        (OpCode::Close, false),
        (OpCode::Continuation, false),
    ] {
        let mut bytes = frame(first, true);
        bytes[0] |= 0x40;
        let result = read_all(&mut with(), &mut bytes.clone());
        assert_eq!(result.is_ok(), allowed, "{first:?}");
        // Not agreed upon, and the other reserved bits.
        let mut without = MessageReader::new(Role::Client, 1000);
        let refused = Err(ProtocolError::ReservedBits);
        assert_eq!(read_all(&mut without, &mut bytes.clone()), refused);
        for bit in [0x10, 0x20] {
            let mut bytes = bytes.clone();
            bytes[0] |= bit;
            assert_eq!(read_all(&mut with(), &mut bytes), refused);
        }
    }
    // On a later frame of the message.
    let mut bytes = frame(OpCode::Text, false);
    bytes[0] |= 0x40;
    bytes.extend(frame(OpCode::Continuation, true));
    let second = bytes.len() / 2;
    assert!(read_all(&mut with(), &mut bytes.clone()).is_ok());
    bytes[second] |= 0x40;
    assert_eq!(
        read_all(&mut with(), &mut bytes),
        Err(ProtocolError::ReservedBits)
    );
}

#[test]
fn text_is_checked_after_inflating() {
    let payload = compressed(b"\xff\xfe");
    let compressed = |is_text| Compressed {
        is_text,
        bytes: &payload,
    };
    let plain = inflated(&payload).unwrap();
    let text = compressed(true).event(&plain);
    assert_eq!(text, Err(ProtocolError::InvalidUtf8));
    let binary = compressed(false).event(&plain);
    assert_eq!(binary, Ok(Event::Binary(b"\xff\xfe")));
}

proptest! {
    /// Compressed and plain messages, in fragments, cut anywhere, come out as they went in.
    #[test]
    fn round_trip_in_any_fragmentation(
        messages in prop::collection::vec(
            (prop::collection::vec(0u8..8, 0..2000), any::<bool>(), 1usize..5), 1..6,
        ),
        keeps_context: bool,
        level in 1u32..10,
        window_bits in 9u8..16,
        cuts in prop::collection::vec(0usize..4000, 0..6),
        mask in any::<[u8; 4]>(),
    ) {
        let mut compressor = Compressor::new(level, window_bits, keeps_context);
        let mut bytes = Vec::new();
        for (payload, is_compressed, fragments) in &messages {
            let mut body = payload.clone();
            if *is_compressed {
                body.clear();
                compressor.compress(payload, &mut body);
            }
            if *fragments == 1 && *is_compressed {
                write_compressed_frame(&mut bytes, OpCode::Binary, &body, Some(mask));
                continue;
            }
            let size = body.len().div_ceil(*fragments).max(1);
            let mut parts: Vec<&[u8]> = body.chunks(size).collect();
            if parts.is_empty() {
                parts.push(&[]);
            }
            for (index, part) in parts.iter().enumerate() {
                let start = bytes.len();
                let opcode = if index == 0 { OpCode::Binary } else { OpCode::Continuation };
                write_frame(&mut bytes, opcode, part, Some(mask));
                if index + 1 < parts.len() {
                    bytes[start] &= 0x7f;
                }
                if index == 0 && *is_compressed {
                    bytes[start] |= 0x40;
                }
            }
        }
        let mut decompressor = Decompressor::new(window_bits, keeps_context);
        let mut reader = MessageReader::new(Role::Server, 100_000).with_compression();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % bytes.len()).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let (mut read, mut tail, mut at) = (Vec::new(), Vec::new(), 0);
        for cut in cuts {
            tail.extend_from_slice(&bytes[at..cut]);
            at = cut;
            let mut input = Input::new(&mut tail);
            while let Some(event) = reader.read(&mut input).unwrap() {
                match event {
                    Event::Binary(payload) => read.push(payload.to_vec()),
                    Event::Compressed(message) => {
                        prop_assert!(!message.is_text);
                        let mut out = Vec::new();
                        decompressor.decompress(message.bytes, &mut out, 2000).unwrap();
                        read.push(out);
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            let consumed = input.consumed();
            tail.drain(..consumed);
        }
        let expected: Vec<Vec<u8>> = messages.into_iter().map(|(payload, ..)| payload).collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), keeps_context: bool) {
        let mut out = Vec::new();
        let mut decompressor = Decompressor::new(15, keeps_context);
        for part in bytes.chunks(50) {
            let _ = decompressor.decompress(part, &mut out, 1000);
        }
        prop_assert!(out.len() <= 6000);
    }
}
