//! Frames: read whole, cut at every place and byte by byte; and written.

use tidewire_testkit::vectors::frames::{Broken, Case, Event, Fragments, Frame, Side};
use tidewire_testkit::vectors::{Hex, load};
use tidewire_wire::close::CloseCode;
use tidewire_wire::deflate::Decompressor;
use tidewire_wire::frame::{OpCode, ProtocolError, Role, write_close, write_frame, write_header};
use tidewire_wire::mask;
use tidewire_wire::message::{self, Input, MessageReader};

pub(crate) fn run(file: &str) {
    for case in load::<Case>(file) {
        read(&case);
        if let Some(frame) = &case.frame {
            write(&case, frame);
        }
        if let Some(fragments) = &case.fragments {
            write_fragments(&case, fragments);
        }
    }
}

/// The word of the vectors for an error, and its close code.
pub(crate) fn broken(error: ProtocolError) -> Broken {
    let name = match error {
        ProtocolError::ReservedBits => "reserved_bits",
        ProtocolError::ReservedOpCode => "reserved_opcode",
        ProtocolError::NotMasked => "not_masked",
        ProtocolError::Masked => "masked",
        ProtocolError::ControlFragmented => "control_fragmented",
        ProtocolError::ControlTooLong => "control_too_long",
        ProtocolError::LengthEncoding => "length_encoding",
        ProtocolError::UnexpectedContinuation => "unexpected_continuation",
        ProtocolError::ExpectedContinuation => "expected_continuation",
        ProtocolError::ClosePayload => "close_payload",
        ProtocolError::InvalidUtf8 => "invalid_utf8",
        ProtocolError::MessageTooLarge => "message_too_large",
        ProtocolError::InvalidDeflate => "invalid_deflate",
    };
    Broken {
        name: name.to_owned(),
        close_code: error.close_code().value(),
    }
}

/// A long case is not cut at every place: that would take a time that grows with its square.
fn read(case: &Case) {
    let length = case.bytes.len();
    let expected = (case.events.clone(), case.error.clone());
    let step = (length / 200).max(1);
    let ways = (0..=length)
        .step_by(step)
        .map(|cut| vec![cut])
        .chain([(0..length).collect()]);
    for cuts in ways {
        let found = events(case, &cuts);
        assert_eq!(found, expected, "{}, cut at {cuts:?}", case.name);
    }
}

/// Feeds the bytes as an event loop does: what is left unread comes again in front of the next piece.
fn events(case: &Case, cuts: &[usize]) -> (Vec<Event>, Option<Broken>) {
    let role = match case.reader {
        Side::Server => Role::Server,
        Side::Client => Role::Client,
    };
    let mut reader = MessageReader::new(role, case.message_bytes_max);
    if case.deflate {
        reader = reader.with_compression();
    }
    let mut decompressor = Decompressor::new(15, true);
    let mut bounds = vec![0];
    bounds.extend(cuts);
    bounds.push(case.bytes.len());
    let (mut found, mut tail) = (Vec::new(), Vec::new());
    for pair in bounds.windows(2) {
        tail.extend_from_slice(&case.bytes[pair[0]..pair[1]]);
        let mut input = Input::new(&mut tail);
        loop {
            let event = reader.read(&mut input);
            match event.and_then(|event| {
                event
                    .map(|event| own(event, &mut decompressor, case.message_bytes_max))
                    .transpose()
            }) {
                Ok(Some(event)) => {
                    let is_over = matches!(event, Event::Close { .. });
                    found.push(event);
                    if is_over {
                        return (found, None);
                    }
                }
                Ok(None) => break,
                Err(error) => return (found, Some(broken(error))),
            }
        }
        let consumed = input.consumed();
        tail.drain(..consumed);
    }
    (found, None)
}

fn own(
    event: message::Event<'_>,
    decompressor: &mut Decompressor,
    bytes_max: usize,
) -> Result<Event, ProtocolError> {
    let hex = |bytes: &[u8]| Hex(bytes.to_vec());
    Ok(match event {
        message::Event::Text(text) => Event::Text(text.as_str().to_owned()),
        message::Event::Binary(bytes) => Event::Binary(hex(bytes)),
        message::Event::Ping(bytes) => Event::Ping(hex(bytes)),
        message::Event::Pong(bytes) => Event::Pong(hex(bytes)),
        message::Event::Close(code, reason) => Event::Close {
            code: code.map(CloseCode::value),
            reason: reason.to_owned(),
        },
        message::Event::Compressed(compressed) => {
            let mut inflated = Vec::new();
            decompressor.decompress(compressed.bytes, &mut inflated, bytes_max)?;
            match compressed.event(&inflated)? {
                message::Event::Text(text) => Event::Text(text.as_str().to_owned()),
                message::Event::Binary(bytes) => Event::Binary(hex(bytes)),
                other => panic!("no compressed message: {other:?}"),
            }
        }
    })
}

fn write(case: &Case, frame: &Frame) {
    let op_code = match frame.opcode.as_str() {
        "text" => OpCode::Text,
        "binary" => OpCode::Binary,
        "close" => OpCode::Close,
        "ping" => OpCode::Ping,
        "pong" => OpCode::Pong,
        other => panic!("{}: {other}", case.name),
    };
    let mask = frame.mask.as_ref().map(masking_key);
    let mut written = Vec::new();
    write_frame(&mut written, op_code, &frame.payload, mask);
    assert_eq!(written, case.bytes.0, "{}, written", case.name);
    if let [Event::Close { code, reason }] = &case.events[..] {
        let code = code.map(|code| CloseCode::from_wire(code).expect("a code for the wire"));
        written.clear();
        write_close(&mut written, code, reason, mask);
        assert_eq!(written, case.bytes.0, "{}, written as a close", case.name);
    }
}

fn write_fragments(case: &Case, fragments: &Fragments) {
    let mask = fragments.mask.as_ref().map(masking_key);
    let mut op_code = match fragments.kind.as_str() {
        "text" => OpCode::Text,
        "binary" => OpCode::Binary,
        other => panic!("{}: {other}", case.name),
    };
    let (mut written, mut at) = (Vec::new(), 0);
    for (index, bytes) in fragments.bytes.iter().enumerate() {
        let is_last = index + 1 == fragments.bytes.len();
        write_header(&mut written, is_last, op_code, *bytes, mask);
        let start = written.len();
        written.extend_from_slice(&fragments.payload[at..at + bytes]);
        if let Some(mask) = mask {
            mask::apply(&mut written[start..], mask);
        }
        op_code = OpCode::Continuation;
        at += bytes;
    }
    assert_eq!(at, fragments.payload.len(), "{}", case.name);
    assert_eq!(written, case.bytes.0, "{}, written", case.name);
}

fn masking_key(mask: &Hex) -> [u8; 4] {
    mask[..].try_into().expect("four bytes")
}
