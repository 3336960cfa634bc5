//! Bytes in, events out: the message reader, however its input is cut.

use proptest::prelude::*;
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::{OpCode, ProtocolError, Role, write_close, write_frame, write_header};
use tidewire_wire::mask;
use tidewire_wire::message::{Event, Input, MessageReader, TAIL_BYTES_MAX};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Owned {
    Text(String),
    Binary(Vec<u8>),
    Compressed(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<CloseCode>, String),
}

fn own(event: &Event<'_>) -> Owned {
    match event {
        Event::Text(text) => Owned::Text(text.as_str().to_owned()),
        Event::Binary(bytes) => Owned::Binary(bytes.to_vec()),
        Event::Compressed(message) => Owned::Compressed(message.bytes.to_vec()),
        Event::Ping(bytes) => Owned::Ping(bytes.to_vec()),
        Event::Pong(bytes) => Owned::Pong(bytes.to_vec()),
        Event::Close(code, reason) => Owned::Close(*code, (*reason).to_owned()),
    }
}

/// Feeds `bytes` in the pieces that `cuts` makes, as an event loop does: what is left unread comes
/// again in front of the next piece.
fn read_in_pieces(
    reader: &mut MessageReader,
    bytes: &[u8],
    cuts: &[usize],
) -> (Vec<Owned>, Result<(), ProtocolError>) {
    let mut events = Vec::new();
    let mut tail = Vec::new();
    let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    bounds.extend([0, bytes.len()]);
    bounds.sort_unstable();
    for pair in bounds.windows(2) {
        tail.extend_from_slice(&bytes[pair[0]..pair[1]]);
        let mut input = Input::new(&mut tail);
        loop {
            match reader.read(&mut input) {
                Ok(Some(event)) => events.push(own(&event)),
                Ok(None) => break,
                Err(error) => return (events, Err(error)),
            }
        }
        let consumed = input.consumed();
        tail.drain(..consumed);
        assert!(
            tail.len() <= TAIL_BYTES_MAX,
            "{} bytes left unread",
            tail.len()
        );
    }
    (events, Ok(()))
}

fn server() -> MessageReader {
    MessageReader::new(Role::Server, 1 << 20)
}

const MASK: Option<[u8; 4]> = Some([0x12, 0x34, 0x56, 0x78]);

fn fragment(out: &mut Vec<u8>, fin: bool, opcode: OpCode, payload: &[u8]) {
    write_header(out, fin, opcode, payload.len(), MASK);
    let start = out.len();
    out.extend_from_slice(payload);
    mask::apply(&mut out[start..], MASK.expect("a mask"));
}

#[test]
fn every_cut_of_a_mixed_stream_gives_the_same_events() {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, OpCode::Text, "größe".as_bytes(), MASK);
    fragment(&mut bytes, false, OpCode::Text, "grö".as_bytes());
    write_frame(&mut bytes, OpCode::Ping, b"in between", MASK);
    fragment(&mut bytes, false, OpCode::Continuation, b"");
    fragment(&mut bytes, true, OpCode::Continuation, "ße".as_bytes());
    write_frame(&mut bytes, OpCode::Binary, &[7; 300], MASK);
    write_frame(&mut bytes, OpCode::Pong, b"", MASK);
    write_close(&mut bytes, Some(CloseCode::NORMAL), "bye", MASK);
    let expected = vec![
        Owned::Text("größe".into()),
        Owned::Ping(b"in between".to_vec()),
        Owned::Text("größe".into()),
        Owned::Binary(vec![7; 300]),
        Owned::Pong(Vec::new()),
        Owned::Close(Some(CloseCode::NORMAL), "bye".into()),
    ];
    for cut in 0..=bytes.len() {
        let (events, result) = read_in_pieces(&mut server(), &bytes, &[cut]);
        assert_eq!((events, result), (expected.clone(), Ok(())), "cut at {cut}");
    }
    let every_byte: Vec<usize> = (0..bytes.len()).collect();
    let (events, result) = read_in_pieces(&mut server(), &bytes, &every_byte);
    assert_eq!((events, result), (expected, Ok(())));
}

#[test]
fn broken_sequences_are_refused_with_their_code() {
    let mut continuation_first = Vec::new();
    fragment(&mut continuation_first, true, OpCode::Continuation, b"x");
    let mut text_in_text = Vec::new();
    fragment(&mut text_in_text, false, OpCode::Text, b"x");
    fragment(&mut text_in_text, true, OpCode::Text, b"y");
    let mut bad_text = Vec::new();
    write_frame(&mut bad_text, OpCode::Text, &[0xFF], MASK);
    let mut cut_character = Vec::new();
    fragment(&mut cut_character, false, OpCode::Text, &[0xC3]);
    fragment(&mut cut_character, true, OpCode::Continuation, b"");
    let mut close_of_one_byte = Vec::new();
    write_frame(&mut close_of_one_byte, OpCode::Close, &[3], MASK);
    let mut close_1005 = Vec::new();
    write_frame(&mut close_1005, OpCode::Close, &1005u16.to_be_bytes(), MASK);
    let mut close_bad_reason = Vec::new();
    write_frame(
        &mut close_bad_reason,
        OpCode::Close,
        &[0x03, 0xE8, 0xFF],
        MASK,
    );
    for (bytes, error, code) in [
        (
            continuation_first,
            ProtocolError::UnexpectedContinuation,
            1002,
        ),
        (text_in_text, ProtocolError::ExpectedContinuation, 1002),
        (bad_text, ProtocolError::InvalidUtf8, 1007),
        (cut_character, ProtocolError::InvalidUtf8, 1007),
        (close_of_one_byte, ProtocolError::ClosePayload, 1002),
        (close_1005, ProtocolError::ClosePayload, 1002),
        (close_bad_reason, ProtocolError::InvalidUtf8, 1007),
    ] {
        let (_, result) = read_in_pieces(&mut server(), &bytes, &[]);
        assert_eq!(result, Err(error));
        assert_eq!(error.close_code().value(), code);
    }
}

#[test]
fn invalid_text_fails_before_its_message_ends() {
    let mut bytes = Vec::new();
    fragment(&mut bytes, false, OpCode::Text, &[b'a', 0xF4, 0x90]);
    let (_, result) = read_in_pieces(&mut server(), &bytes, &[]);
    assert_eq!(result, Err(ProtocolError::InvalidUtf8));
}

#[test]
fn the_limit_holds_for_declared_and_for_joined_sizes() {
    let limit = 1000;
    let mut declared = Vec::new();
    write_header(&mut declared, true, OpCode::Binary, 1 << 40, MASK);
    let mut joined = Vec::new();
    fragment(&mut joined, false, OpCode::Binary, &[0; 600]);
    fragment(&mut joined, true, OpCode::Continuation, &[0; 401]);
    let mut exact = Vec::new();
    fragment(&mut exact, false, OpCode::Binary, &[0; 600]);
    fragment(&mut exact, true, OpCode::Continuation, &[0; 400]);
    for (bytes, expected) in [
        (declared, Err(ProtocolError::MessageTooLarge)),
        (joined, Err(ProtocolError::MessageTooLarge)),
        (exact, Ok(())),
    ] {
        let mut reader = MessageReader::new(Role::Server, limit);
        assert_eq!(read_in_pieces(&mut reader, &bytes, &[]).1, expected);
    }
    assert_eq!(ProtocolError::MessageTooLarge.close_code().value(), 1009);
}

fn message() -> impl Strategy<Value = (Owned, Vec<usize>)> {
    let content = prop_oneof![
        "\\PC{0,200}".prop_map(Owned::Text),
        proptest::collection::vec(any::<u8>(), 0..400).prop_map(Owned::Binary),
        proptest::collection::vec(any::<u8>(), 0..125).prop_map(Owned::Ping),
        proptest::collection::vec(any::<u8>(), 0..125).prop_map(Owned::Pong),
    ];
    (content, proptest::collection::vec(0usize..400, 0..4))
}

/// Writes a message as frames cut at `cuts`, masked or not.
fn write_message(out: &mut Vec<u8>, message: &Owned, cuts: &[usize], mask: Option<[u8; 4]>) {
    let (opcode, payload) = match message {
        Owned::Text(text) => (OpCode::Text, text.as_bytes()),
        Owned::Binary(bytes) => (OpCode::Binary, &bytes[..]),
        Owned::Ping(bytes) => return write_frame(out, OpCode::Ping, bytes, mask),
        Owned::Pong(bytes) => return write_frame(out, OpCode::Pong, bytes, mask),
        Owned::Close(code, reason) => return write_close(out, *code, reason, mask),
        Owned::Compressed(_) => unreachable!("no test writes a compressed message"),
    };
    let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut % (payload.len() + 1)).collect();
    bounds.extend([0, payload.len()]);
    bounds.sort_unstable();
    let frames = bounds.len() - 1;
    for (index, pair) in bounds.windows(2).enumerate() {
        let part = &payload[pair[0]..pair[1]];
        let opcode = if index == 0 {
            opcode
        } else {
            OpCode::Continuation
        };
        write_header(out, index + 1 == frames, opcode, part.len(), mask);
        let start = out.len();
        out.extend_from_slice(part);
        if let Some(mask) = mask {
            mask::apply(&mut out[start..], mask);
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_in_any_fragmentation(
        messages in proptest::collection::vec(message(), 0..8),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
        masked in any::<bool>(),
    ) {
        let (mask, role) = if masked { (MASK, Role::Server) } else { (None, Role::Client) };
        let mut bytes = Vec::new();
        for (message, message_cuts) in &messages {
            write_message(&mut bytes, message, message_cuts, mask);
        }
        let mut reader = MessageReader::new(role, 1 << 20);
        let (events, result) = read_in_pieces(&mut reader, &bytes, &cuts);
        prop_assert_eq!(result, Ok(()));
        let expected: Vec<Owned> = messages.into_iter().map(|(message, _)| message).collect();
        prop_assert_eq!(events, expected);
    }

    #[test]
    fn garbage_never_panics_and_cuts_do_not_change_its_meaning(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cuts in proptest::collection::vec(any::<usize>(), 0..6),
    ) {
        let whole = read_in_pieces(&mut server(), &bytes, &[]);
        let pieces = read_in_pieces(&mut server(), &bytes, &cuts);
        prop_assert_eq!(whole, pieces);
    }

    /// A reader with extensions takes no short cut.
    #[test]
    fn the_short_cut_for_texts_changes_nothing(
        second in prop_oneof![Just(0xFE_u8), Just(0xFF_u8), 0x70_u8..=0xFF],
        length in prop_oneof![Just(124_u16), Just(125), Just(126), 0..400_u16],
        rest in proptest::collection::vec(prop_oneof![0x20_u8..0x7F, any::<u8>()], 0..420),
        limit in prop_oneof![Just(100_usize), Just(1000)],
    ) {
        let mut bytes = vec![0x81, second];
        if second == 0xFE {
            bytes.extend_from_slice(&length.to_be_bytes());
        }
        bytes.extend_from_slice(&rest);
        let mut short = MessageReader::new(Role::Server, limit);
        let (events, result) = read_in_pieces(&mut short, &bytes, &[]);
        let mut careful = MessageReader::new(Role::Server, limit).with_compression();
        let expected = read_in_pieces(&mut careful, &bytes, &[]);
        if result == Err(ProtocolError::ReservedBits) {
            // A compressed message further behind, which the careful reader accepts.
            prop_assert!(expected.0.starts_with(&events));
        } else {
            prop_assert_eq!((events, result), expected);
        }
    }
}
