//! The message reader of both sides: however its input is cut it says the same, it agrees with a plain
//! reader that joins and checks as RFC 6455 reads, and what it read is read back when written again.
//!
//! Input: one byte of flags, one byte that seeds the cuts, the bytes of the connection.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::{
    Extensions, FrameHeader, OpCode, ProtocolError, Role, parse_extended_header, write_close,
    write_compressed_frame, write_frame,
};
use tidewire_wire::message::{Event, Input, MessageReader, TAIL_BYTES_MAX};

fuzz_target!(|input: &[u8]| {
    let [flags, seed, bytes @ ..] = input else {
        return;
    };
    let side = Side {
        role: [Role::Server, Role::Client][usize::from(flags & 1)],
        message_bytes_max: [64, 1000, 1 << 20, usize::MAX][usize::from(flags >> 1 & 3)],
        extensions: [Extensions::None, Extensions::Deflate][usize::from(flags >> 3 & 1)],
    };
    let whole = side.read_in_pieces(bytes, &[]);
    assert_eq!(whole, side.read_plainly(bytes));
    if bytes.len() <= EVERY_BYTE_MAX {
        let every_byte: Vec<usize> = (0..bytes.len()).collect();
        assert_eq!(whole, side.read_in_pieces(bytes, &every_byte));
    }
    assert_eq!(whole, side.read_in_pieces(bytes, &cuts(*seed, bytes.len())));
    side.write_again(&whole.0);
});

#[derive(Clone, Copy)]
struct Side {
    role: Role,
    message_bytes_max: usize,
    extensions: Extensions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Owned {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Compressed(bool, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<CloseCode>, String),
}

type Outcome = (Vec<Owned>, Result<(), ProtocolError>);

fn own(event: &Event<'_>) -> Owned {
    match event {
        Event::Text(text) => Owned::Text(text.as_bytes().to_vec()),
        Event::Binary(bytes) => Owned::Binary(bytes.to_vec()),
        Event::Compressed(message) => Owned::Compressed(message.is_text, message.bytes.to_vec()),
        Event::Ping(bytes) => Owned::Ping(bytes.to_vec()),
        Event::Pong(bytes) => Owned::Pong(bytes.to_vec()),
        Event::Close(code, reason) => Owned::Close(*code, (*reason).to_owned()),
    }
}

impl Side {
    /// Unread bytes come again in front of the next piece, as in an event loop.
    fn read_in_pieces(self, bytes: &[u8], cuts: &[usize]) -> Outcome {
        let mut reader = MessageReader::new(self.role, self.message_bytes_max);
        if self.extensions == Extensions::Deflate {
            reader = reader.with_compression();
        }
        let mut events = Vec::new();
        let mut unread = Vec::new();
        let mut start = 0;
        for &end in cuts.iter().chain([&bytes.len()]) {
            unread.extend_from_slice(&bytes[start..end]);
            start = end;
            let mut input = Input::new(&mut unread);
            loop {
                match reader.read(&mut input) {
                    Ok(Some(event)) => events.push(own(&event)),
                    Ok(None) => break,
                    Err(error) => return (events, Err(error)),
                }
            }
            let consumed = input.consumed();
            unread.drain(..consumed);
            assert!(
                unread.len() <= TAIL_BYTES_MAX,
                "{} bytes left",
                unread.len()
            );
        }
        (events, Ok(()))
    }

    /// RFC 6455 read the plain way: frame by frame, joined in one buffer, checked from its start each time.
    fn read_plainly(self, mut rest: &[u8]) -> Outcome {
        let mut events = Vec::new();
        let mut joined: Option<(FrameHeader, Vec<u8>)> = None;
        loop {
            let header = match parse_extended_header(rest, self.role, self.extensions) {
                Ok(Some(header)) => header,
                Ok(None) => return (events, Ok(())),
                Err(error) => return (events, Err(error)),
            };
            let behind = &rest[header.header_bytes..];
            let here =
                usize::try_from(header.payload_bytes).map_or(behind.len(), |n| n.min(behind.len()));
            let is_whole = here as u64 == header.payload_bytes;
            let mask = header.mask.unwrap_or_default();
            let payload = behind[..here]
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, key)| byte ^ key);
            let payload: Vec<u8> = payload.collect();
            rest = &behind[here..];
            if header.opcode.is_control() {
                if !is_whole {
                    return (events, Ok(()));
                }
                match control(header.opcode, &payload) {
                    Ok(event) => events.push(event),
                    Err(error) => return (events, Err(error)),
                }
                continue;
            }
            let (first, mut message) = match (header.opcode, joined.take()) {
                (OpCode::Continuation, None) => {
                    return (events, Err(ProtocolError::UnexpectedContinuation));
                }
                (OpCode::Continuation, Some(joined)) => joined,
                (_, Some(_)) => return (events, Err(ProtocolError::ExpectedContinuation)),
                (_, None) => (header, Vec::new()),
            };
            if header.payload_bytes > (self.message_bytes_max - message.len()) as u64 {
                return (events, Err(ProtocolError::MessageTooLarge));
            }
            message.extend_from_slice(&payload);
            let is_end = is_whole && header.fin;
            if first.opcode == OpCode::Text
                && !first.is_compressed
                && let Err(error) = std::str::from_utf8(&message)
                && (is_end || error.error_len().is_some())
            {
                return (events, Err(ProtocolError::InvalidUtf8));
            }
            if !is_whole {
                return (events, Ok(()));
            }
            let is_text = first.opcode == OpCode::Text;
            match first.opcode {
                _ if !header.fin => joined = Some((first, message)),
                _ if first.is_compressed => events.push(Owned::Compressed(is_text, message)),
                OpCode::Text => events.push(Owned::Text(message)),
                _ => events.push(Owned::Binary(message)),
            }
        }
    }

    fn write_again(self, events: &[Owned]) {
        let mask = (self.role == Role::Server).then_some([0x9a, 0, 0xff, 0x31]);
        let mut bytes = Vec::new();
        for event in events {
            match event {
                Owned::Text(text) => write_frame(&mut bytes, OpCode::Text, text, mask),
                Owned::Compressed(is_text, deflated) => {
                    let opcode = if *is_text {
                        OpCode::Text
                    } else {
                        OpCode::Binary
                    };
                    write_compressed_frame(&mut bytes, opcode, deflated, mask);
                }
                Owned::Binary(binary) => write_frame(&mut bytes, OpCode::Binary, binary, mask),
                Owned::Ping(payload) => write_frame(&mut bytes, OpCode::Ping, payload, mask),
                Owned::Pong(payload) => write_frame(&mut bytes, OpCode::Pong, payload, mask),
                Owned::Close(code, reason) => write_close(&mut bytes, *code, reason, mask),
            }
        }
        let (again, result) = self.read_in_pieces(&bytes, &[]);
        assert_eq!((again.as_slice(), result), (events, Ok(())));
    }
}

/// A few ascending places to cut at, from one byte.
fn cuts(seed: u8, bytes: usize) -> Vec<usize> {
    let mut state = u32::from(seed) | 0x100;
    let mut places: Vec<usize> = (0..seed % 8)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % (bytes + 1)
        })
        .collect();
    places.sort_unstable();
    places
}

fn control(opcode: OpCode, payload: &[u8]) -> Result<Owned, ProtocolError> {
    match (opcode, payload) {
        (OpCode::Ping, _) => Ok(Owned::Ping(payload.to_vec())),
        (OpCode::Pong, _) => Ok(Owned::Pong(payload.to_vec())),
        (_, []) => Ok(Owned::Close(None, String::new())),
        (_, [high, low, reason @ ..]) => {
            let code = CloseCode::from_wire(u16::from_be_bytes([*high, *low]));
            let code = code.ok_or(ProtocolError::ClosePayload)?;
            let reason = std::str::from_utf8(reason).map_err(|_| ProtocolError::InvalidUtf8)?;
            Ok(Owned::Close(Some(code), reason.to_owned()))
        }
        _ => Err(ProtocolError::ClosePayload),
    }
}

/// Above this size reading byte by byte is too slow for what it finds.
const EVERY_BYTE_MAX: usize = 1000;
