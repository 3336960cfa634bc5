//! Bytes in, events and bytes out: control frames and the closing handshake of both sides.

use proptest::prelude::*;
use tidewire_wire::close::CloseCode;
use tidewire_wire::connection::{Connection, ConnectionState, Masked, Output};
use tidewire_wire::frame::{OpCode, ProtocolError, Role, write_close, write_frame};
use tidewire_wire::message::{Event, Input};

/// The mask of every client of these tests.
const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];

/// The writer of a side: a server without a mask, a client with one.
struct Written {
    role: Role,
    bytes: Vec<u8>,
}

impl Output for Written {
    fn buffer(&mut self, _opcode: OpCode) -> Option<&mut Vec<u8>> {
        Some(&mut self.bytes)
    }

    fn mask(&mut self) -> Option<[u8; 4]> {
        mask_of(self.role)
    }
}

fn mask_of(role: Role) -> Option<[u8; 4]> {
    (role == Role::Client).then_some(MASK)
}

fn peer_of(role: Role) -> Role {
    match role {
        Role::Client => Role::Server,
        Role::Server => Role::Client,
    }
}

fn side(role: Role) -> (Connection, Written) {
    let bytes = Vec::new();
    (Connection::new(role, 1000), Written { role, bytes })
}

/// The frame that the side `role` sends.
fn frame(role: Role, opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, opcode, payload, mask_of(role));
    bytes
}

fn close(role: Role, code: Option<CloseCode>, reason: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_close(&mut bytes, code, reason, mask_of(role));
    bytes
}

/// Reads all of `bytes`: each event as its debug text, and the error that ended the reading.
fn read(
    (connection, written): &mut (Connection, Written),
    bytes: &[u8],
) -> (Vec<String>, Option<ProtocolError>) {
    let mut bytes = bytes.to_vec();
    let mut input = Input::new(&mut bytes);
    let mut events = Vec::new();
    loop {
        match connection.receive(&mut input, written) {
            Ok(Some(event)) => events.push(format!("{event:?}")),
            Ok(None) => return (events, None),
            Err(error) => return (events, Some(error)),
        }
    }
}

const ROLES: [Role; 2] = [Role::Client, Role::Server];
const GOING_AWAY: Option<CloseCode> = Some(CloseCode::GOING_AWAY);

#[test]
fn a_ping_is_answered_with_its_payload_until_the_peer_has_closed() {
    for role in ROLES {
        let peer = peer_of(role);
        let mut side = side(role);
        let ping = frame(peer, OpCode::Ping, b"once");
        assert_eq!(read(&mut side, &ping).0.len(), 1);
        assert_eq!(side.1.bytes, frame(role, OpCode::Pong, b"once"));

        // RFC 6455, section 5.5.2: also after this side's close frame, which is no answer to the ping.
        side.1.bytes.clear();
        assert!(side.0.control.close(None, "", &mut side.1));
        read(&mut side, &ping);
        let expected = [close(role, None, ""), frame(role, OpCode::Pong, b"once")].concat();
        assert_eq!(side.1.bytes, expected);

        side.1.bytes.clear();
        let both = [close(peer, None, ""), ping].concat();
        let (events, error) = read(&mut side, &both);
        assert_eq!((events.len(), error), (1, None), "{events:?}");
        assert!(side.1.bytes.is_empty());
    }
}

#[test]
fn a_pong_is_handed_out_and_not_answered() {
    for role in ROLES {
        let mut side = side(role);
        let pong = frame(peer_of(role), OpCode::Pong, b"x");
        assert_eq!(read(&mut side, &pong), (vec!["Pong([120])".into()], None));
        assert!(side.1.bytes.is_empty());
    }
}

#[test]
fn a_close_is_echoed_with_its_code_and_nothing_behind_it_is_read() {
    for role in ROLES {
        for code in [None, GOING_AWAY] {
            let peer = peer_of(role);
            let mut side = side(role);
            let late = frame(peer, OpCode::Text, b"late");
            let bytes = [close(peer, code, ""), late.clone()].concat();
            let (events, error) = read(&mut side, &bytes);
            assert_eq!(events, [format!("Close({code:?}, \"\")")]);
            assert_eq!(error, None);
            assert_eq!(side.1.bytes, close(role, code, ""));
            assert_eq!(side.0.control.state(), ConnectionState::Closed);
            // Nothing leaves any more.
            assert!(!side.0.control.send(OpCode::Text, b"x", &mut side.1));
            assert!(!side.0.control.close(code, "", &mut side.1));
            side.0.control.fail(CloseCode::NORMAL, "", &mut side.1);
            assert_eq!(side.1.bytes, close(role, code, ""));
            assert_eq!(read(&mut side, &late), (Vec::new(), None));
        }
    }
}

#[test]
fn the_caller_may_choose_the_code_of_the_answer() {
    struct Normal(Vec<u8>);
    impl Output for Normal {
        fn buffer(&mut self, _opcode: OpCode) -> Option<&mut Vec<u8>> {
            Some(&mut self.0)
        }
        fn mask(&mut self) -> Option<[u8; 4]> {
            None
        }
        fn close_code(&self, _received: Option<CloseCode>) -> Option<CloseCode> {
            Some(CloseCode::NORMAL)
        }
    }
    let mut output = Normal(Vec::new());
    let mut bytes = close(Role::Client, GOING_AWAY, "");
    let mut input = Input::new(&mut bytes);
    let mut connection = Connection::new(Role::Server, 10);
    let event = connection.receive(&mut input, &mut output);
    assert_eq!(event, Ok(Some(Event::Close(GOING_AWAY, ""))));
    assert_eq!(output.0, close(Role::Server, Some(CloseCode::NORMAL), ""));
}

#[test]
fn a_close_of_ours_waits_for_the_peers_and_messages_before_it_are_read() {
    for role in ROLES {
        let peer = peer_of(role);
        let mut side = side(role);
        assert!(side.0.control.send(OpCode::Text, b"last", &mut side.1));
        assert!(side.0.control.close(GOING_AWAY, "bye", &mut side.1));
        assert_eq!(side.0.control.state(), ConnectionState::Closing);
        assert!(!side.0.control.send(OpCode::Text, b"x", &mut side.1));
        assert!(!side.0.control.close(GOING_AWAY, "again", &mut side.1));
        let expected = [
            frame(role, OpCode::Text, b"last"),
            close(role, GOING_AWAY, "bye"),
        ];
        assert_eq!(side.1.bytes, expected.concat());
        let bytes = [frame(peer, OpCode::Text, b"still"), close(peer, None, "")].concat();
        let (events, error) = read(&mut side, &bytes);
        assert_eq!(
            (events, error),
            (
                vec!["Text(\"still\")".into(), "Close(None, \"\")".into()],
                None
            )
        );
        assert_eq!(side.1.bytes, expected.concat(), "no second close frame");
        assert_eq!(side.0.control.state(), ConnectionState::Closed);
    }
}

#[test]
fn a_broken_rule_ends_the_connection_with_its_code() {
    for role in ROLES {
        let mut side = side(role);
        // A frame that has a mask where none may be, or the other way round.
        let (_, error) = read(&mut side, &frame(role, OpCode::Text, b"x"));
        let error = error.expect("a broken rule");
        side.0.control.fail(error.close_code(), "why", &mut side.1);
        let expected = close(role, Some(CloseCode::PROTOCOL_ERROR), "why");
        assert_eq!(side.1.bytes, expected);
        assert_eq!(side.0.control.state(), ConnectionState::Closed);
        let valid = frame(peer_of(role), OpCode::Text, b"x");
        assert_eq!(read(&mut side, &valid), (Vec::new(), None));
    }
    let mut large = side(Role::Client);
    let (_, error) = read(&mut large, &frame(Role::Server, OpCode::Binary, &[0; 1001]));
    assert_eq!(error, Some(ProtocolError::MessageTooLarge));
}

#[test]
fn an_output_that_is_gone_drops_frames_and_the_state_moves_on() {
    struct Gone;
    impl Output for Gone {
        fn buffer(&mut self, _opcode: OpCode) -> Option<&mut Vec<u8>> {
            None
        }
        fn mask(&mut self) -> Option<[u8; 4]> {
            None
        }
    }
    let mut bytes = [
        frame(Role::Client, OpCode::Ping, b""),
        close(Role::Client, None, ""),
    ]
    .concat();
    let mut input = Input::new(&mut bytes);
    let mut connection = Connection::new(Role::Server, 10);
    assert_eq!(
        connection.receive(&mut input, &mut Gone),
        Ok(Some(Event::Ping(b"")))
    );
    assert_eq!(
        connection.receive(&mut input, &mut Gone),
        Ok(Some(Event::Close(None, "")))
    );
    assert_eq!(connection.control.state(), ConnectionState::Closed);
}

#[derive(Debug, Clone)]
enum Step {
    Send(Vec<u8>),
    Ping(Vec<u8>),
    Close,
    /// The peer reads N of the bytes that wait for it.
    Deliver(usize),
}

fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..60);
    let step = prop_oneof![
        3 => payload.clone().prop_map(Step::Send),
        2 => payload.prop_map(Step::Ping),
        1 => Just(Step::Close),
        5 => (1..200_usize).prop_map(Step::Deliver),
    ];
    proptest::collection::vec((any::<bool>(), step), 0..40)
}

proptest! {
    /// Whatever two sides do, and however their bytes are cut: neither breaks a rule, each ping has its pong, each
    /// message that was sent arrives, and each sends one close frame if either does.
    #[test]
    fn two_sides_always_come_to_an_end(steps in steps()) {
        let mut sides = [side(Role::Client), side(Role::Server)];
        let mut unread = [Vec::new(), Vec::new()];
        let mut sent = [0, 0];
        let mut received = [0, 0];
        let mut closes = false;
        let finish = [(true, usize::MAX), (false, usize::MAX), (true, usize::MAX), (false, usize::MAX)];
        let finish = finish.map(|(first, bytes)| (first, Step::Deliver(bytes)));
        for (first, step) in steps.into_iter().chain(finish) {
            let at = usize::from(first);
            let (connection, written) = &mut sides[at];
            match step {
                Step::Send(payload) => {
                    sent[at] += usize::from(connection.control.send(OpCode::Binary, &payload, written));
                }
                Step::Ping(payload) => {
                    connection.control.send(OpCode::Ping, &payload, written);
                }
                Step::Close => closes |= connection.control.close(GOING_AWAY, "", written),
                Step::Deliver(bytes) => {
                    let from = &mut sides[1 - at].1.bytes;
                    let bytes = bytes.min(from.len());
                    unread[at].extend(from.drain(..bytes));
                    let mut part = std::mem::take(&mut unread[at]);
                    let mut input = Input::new(&mut part);
                    let (connection, written) = &mut sides[at];
                    while let Some(event) = connection.receive(&mut input, written).expect("valid frames") {
                        received[at] += usize::from(matches!(event, Event::Binary(_)));
                    }
                    let used = input.consumed();
                    unread[at] = part.split_off(used);
                }
            }
        }
        prop_assert_eq!([received[1], received[0]], sent);
        for (connection, _) in &sides {
            let expected = if closes { ConnectionState::Closed } else { ConnectionState::Open };
            prop_assert_eq!(connection.control.state(), expected);
        }
    }
}

#[test]
fn each_frame_of_a_client_has_a_mask_of_its_own() {
    let mut buffer = Vec::new();
    let mut drawn = 0;
    let mask = || {
        drawn += 1;
        [drawn; 4]
    };
    let mut output = Masked {
        buffer: &mut buffer,
        mask,
    };
    let mut connection = Connection::new(Role::Client, 10);
    connection.control.send(OpCode::Text, b"a", &mut output);
    connection.control.close(None, "", &mut output);
    assert_eq!(
        buffer,
        [0x81, 0x81, 1, 1, 1, 1, b'a' ^ 1, 0x88, 0x80, 2, 2, 2, 2]
    );
}
