//! permessage-deflate: what is agreed is what was offered, whatever is compressed comes back through
//! frames, and nothing inflates past its limit or otherwise than another inflater inflates it.
//!
//! Input: three bytes of flags, then header values, messages to compress, or a message to inflate.

#![no_main]

use flate2::read::DeflateDecoder;
use libfuzzer_sys::fuzz_target;
use std::io::Read;
use tidewire_wire::deflate::{Compressor, Decompressor, DeflateParameters, WINDOW_BITS_MIN};
use tidewire_wire::frame::{OpCode, ProtocolError, Role, write_compressed_frame};
use tidewire_wire::message::{Event, Input, MessageReader};

fuzz_target!(|input: &[u8]| {
    let [kind, flags, more, bytes @ ..] = input else {
        return;
    };
    let parameters = DeflateParameters {
        server_no_context_takeover: flags & 1 != 0,
        client_no_context_takeover: flags & 2 != 0,
        server_max_window_bits: 9 + (flags >> 2) % 7,
        client_max_window_bits: 9 + (flags >> 5) % 7,
    };
    match kind % 4 {
        0 => negotiate(parameters, bytes),
        1 => there_and_back(parameters, u32::from(more % 10), bytes),
        _ => inflate(usize::from(*more) * 256, bytes),
    }
});

/// Offers and answers, from the other side of this library and from anywhere.
fn negotiate(ours: DeflateParameters, bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let _ = ours.parse_response(text).map(|agreed| {
        assert!(agreed.server_max_window_bits <= ours.server_max_window_bits);
        assert!(agreed.client_max_window_bits <= ours.client_max_window_bits);
        assert!(agreed.client_max_window_bits >= WINDOW_BITS_MIN);
        assert!(agreed.server_no_context_takeover || !ours.server_no_context_takeover);
        assert!(agreed.client_no_context_takeover || !ours.client_no_context_takeover);
    });
    if let Some(accepted) = DeflateParameters::accept(ours, text.split('\n')) {
        let parameters = accepted.parameters;
        assert!(parameters.server_max_window_bits <= ours.server_max_window_bits);
        assert!(parameters.server_max_window_bits >= WINDOW_BITS_MIN);
        assert!(parameters.server_no_context_takeover || !ours.server_no_context_takeover);
        assert!(
            accepted
                .header_value
                .bytes()
                .all(|byte| byte == b' ' || byte.is_ascii_graphic())
        );
        let open = DeflateParameters::default().parse_response(&accepted.header_value);
        if parameters.client_max_window_bits < WINDOW_BITS_MIN {
            // Right for who offered it, but no window that this library compresses with.
            assert!(open.is_err());
            return;
        }
        let open = open.expect("an answer that is valid for one who restricts nothing");
        assert_eq!(
            open.server_max_window_bits,
            parameters.server_max_window_bits
        );
        assert_eq!(
            open.server_no_context_takeover,
            parameters.server_no_context_takeover
        );
    }
    // The same two sides with what this library offers itself.
    let wanted = DeflateParameters {
        server_no_context_takeover: bytes.len() & 1 != 0,
        server_max_window_bits: 9 + (bytes.len() % 7) as u8,
        ..DeflateParameters::default()
    };
    let accepted = DeflateParameters::accept(wanted, [ours.offer().as_str()]);
    let accepted = accepted.expect("every offer of our own can be kept to");
    assert_eq!(
        ours.parse_response(&accepted.header_value),
        Ok(accepted.parameters)
    );
}

/// A client's messages, each byte 0xff 0xff apart, through frames to a server.
fn there_and_back(parameters: DeflateParameters, level: u32, bytes: &[u8]) {
    let keeps_context = !parameters.client_no_context_takeover;
    let window_bits = parameters.client_max_window_bits;
    let mut compressor = Compressor::new(level, window_bits, keeps_context);
    let mut decompressor = Decompressor::new(window_bits, keeps_context);
    let mut reader = MessageReader::new(Role::Server, 1 << 20).with_compression();
    for message in messages(bytes) {
        let mut deflated = Vec::new();
        compressor.compress(message, &mut deflated);
        let mut frame = Vec::new();
        write_compressed_frame(&mut frame, OpCode::Binary, &deflated, Some([1, 2, 3, 4]));
        let mut input = Input::new(&mut frame);
        let event = reader.read(&mut input).expect("a frame of our own");
        let Some(Event::Compressed(compressed)) = event else {
            panic!("{event:?}");
        };
        assert_eq!(compressed.bytes, deflated);
        let mut inflated = b"before".to_vec();
        let result = decompressor.decompress(compressed.bytes, &mut inflated, message.len());
        result.expect("a message of our own");
        assert_eq!(&inflated[6..], message);
        if message.len() % 5 == 4 {
            compressor.forget();
        }
    }
}

fn messages(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let end = bytes.windows(2).position(|pair| pair == [0xff, 0xff]);
        rest = end.map(|end| &bytes[end + 2..]);
        Some(&bytes[..end.unwrap_or(bytes.len())])
    })
    .take(50)
}

/// A message from anywhere.
fn inflate(bytes_max: usize, payload: &[u8]) {
    let mut out = b"before".to_vec();
    let mut decompressor = Decompressor::new(15, false);
    let result = decompressor.decompress(payload, &mut out, bytes_max);
    assert!(out.starts_with(b"before") && out.len() - 6 <= bytes_max);
    assert!(
        out.capacity() <= 4 * bytes_max + 1024,
        "{} bytes held",
        out.capacity()
    );

    // Neither the room in `out` nor what was inflated before makes a difference.
    let mut again = Vec::new();
    let repeated = decompressor.decompress(payload, &mut again, bytes_max);
    assert_eq!(repeated, result);
    assert_eq!(again, &out[6..]);

    // The stream may go on after a last block, which ends it for the other inflater.
    let mut first_stream = Vec::new();
    let stream = [payload, &[0, 0, 0xff, 0xff]].concat();
    let mut oracle = DeflateDecoder::new(stream.as_slice()).take(bytes_max as u64 + 1);
    let _ = oracle.read_to_end(&mut first_stream);
    match result {
        Ok(()) => assert!(again.starts_with(&first_stream)),
        Err(ProtocolError::MessageTooLarge) => {}
        Err(error) => assert_eq!((error, out.len()), (ProtocolError::InvalidDeflate, 6)),
    }
    if let (Ok(()), Some(less)) = (result, again.len().checked_sub(1)) {
        let refused = decompressor.decompress(payload, &mut Vec::new(), less);
        assert_eq!(refused, Err(ProtocolError::MessageTooLarge));
    }
}
