//! Behaviour of the test servers: honest ones, and ones that lie.

use tidewire_wire::frame::OpCode;

/// How a server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// Reads everything, answers pings.
    Sink,
    /// Reads everything, answers pings, and counts as received all but every third message.
    SinkDroppingThird,
    /// Sends every message back.
    Echo,
    /// An echo that leaves every N-th message out.
    EchoDropping(u64),
    /// An echo that leaves every second message out and sends the next one twice.
    EchoDroppingAndDoubling,
    /// An echo that sends the messages of each pair in the other order.
    EchoSwapping,
    /// An echo that sends other bytes of the same length.
    EchoGarbage,
    /// An echo that keeps the first message and sends it for every one.
    EchoRepeating,
    /// An echo that changes one byte of every hundredth message.
    EchoFlipping,
    /// An echo that cuts every message short.
    EchoCutting,
    /// An echo that answers everything once more.
    EchoTwice,
    /// An echo that stalls once, after N messages, for N milliseconds.
    EchoStalling(u64, u64),
    /// An echo that reads nothing for N milliseconds after each read.
    EchoSlow(u64),
    /// Reads everything and never answers a ping.
    SinkWithoutPong,
    /// Answers each ping, and sends a pong that answers none, as near to the next ping's as can be guessed.
    PongsGuessed,
    /// Answers each ping twice.
    PongsTwice,
    /// Sends an empty pong of RFC 6455 with each answer, as a heartbeat.
    PongsAsHeartbeat,
    /// Ends a connection after N messages.
    ClosingAfter(u64),
    /// Ends every connection with this close code, N milliseconds after it became ready.
    ClosingReady(u16, u64),
    /// Makes every connection ready, and ends those past N at once.
    ClosingAbove(usize),
    /// Version 1: an echo that takes [`LIMIT`] messages of each connection and refuses the others, which
    /// it tells now and then, with their number.
    Limiting,
    /// The same, but tells of one refusal only.
    LimitingInSilence,
    /// Version 1: answers every N-th message with an error that is no limit's.
    Erring(u64),
    /// Answers every upgrade with 503.
    Refusing,
    /// Takes N connections and answers the next with 503.
    Limited(usize),
    /// Never answers an upgrade.
    Mute,
}

impl Conduct {
    /// Whether whatever asks for an answer gets it, sooner or later.
    pub(crate) fn answers(self) -> bool {
        matches!(
            self,
            Self::Sink
                | Self::SinkDroppingThird
                | Self::Echo
                | Self::EchoStalling(..)
                | Self::EchoSlow(_)
                | Self::PongsAsHeartbeat
        )
    }

    /// Whether a message is refused and not answered.
    pub(crate) fn refuses(self, number: u64) -> bool {
        match self {
            Self::Limiting | Self::LimitingInSilence => number > LIMIT,
            Self::Erring(nth) => number.is_multiple_of(nth),
            _ => false,
        }
    }

    /// Whether the message with this number, counted from 1, is counted as received.
    pub(crate) fn counts(self, number: u64) -> bool {
        self != Self::SinkDroppingThird || !number.is_multiple_of(3)
    }

    /// Calls `send` for everything that is sent for the message with this number, counted from 1.
    pub(crate) fn reply(
        self,
        number: u64,
        payload: &[u8],
        held: &mut Vec<u8>,
        mut send: impl FnMut(&[u8]),
    ) {
        match self {
            Self::Echo
            | Self::EchoStalling(..)
            | Self::EchoSlow(_)
            | Self::Limiting
            | Self::LimitingInSilence => send(payload),
            Self::EchoDropping(nth) if !number.is_multiple_of(nth) => send(payload),
            Self::EchoDroppingAndDoubling if number.is_multiple_of(2) => {
                send(payload);
                send(payload);
            }
            Self::EchoSwapping if number.is_multiple_of(2) => {
                send(payload);
                send(held);
            }
            Self::EchoSwapping => payload.clone_into(held),
            Self::EchoGarbage => send(&payload.iter().map(garbled).collect::<Vec<u8>>()),
            Self::EchoRepeating => {
                if held.is_empty() {
                    payload.clone_into(held);
                }
                send(held);
            }
            Self::EchoFlipping if number.is_multiple_of(100) => {
                let mut changed = payload.to_vec();
                let middle = changed.len() / 2;
                changed[middle] ^= 1;
                send(&changed);
            }
            Self::EchoFlipping => send(payload),
            Self::EchoCutting => send(&payload[..payload.len() - 1]),
            Self::EchoTwice => {
                send(payload);
                send(payload);
            }
            _ => {}
        }
    }

    /// Calls `send` for every payload of a pong that is sent for a WebSocket ping with this one.
    pub(crate) fn pongs(self, ping: &[u8], mut send: impl FnMut(&[u8])) {
        match self {
            Self::SinkWithoutPong => {}
            Self::PongsGuessed => {
                send(ping);
                let mut guess = ping.to_vec();
                if let Some(last) = guess.last_mut() {
                    *last = last.wrapping_add(1);
                }
                send(&guess);
            }
            Self::PongsTwice => {
                send(ping);
                send(ping);
            }
            Self::PongsAsHeartbeat => {
                send(b"");
                send(ping);
            }
            _ => send(ping),
        }
    }

    /// Calls `send` for every version 1 message that is sent for an application's ping with this timestamp.
    pub(crate) fn app_pongs(self, timestamp: &str, mut send: impl FnMut(&str)) {
        let pong = format!(r#"{{"c":"WSE","t":"PONG","p":{{"client_timestamp":{timestamp}}}}}"#);
        match self {
            Self::SinkWithoutPong => {}
            Self::PongsGuessed => {
                send(&pong);
                send(r#"{"c":"WSE","t":"PONG","p":{"client_timestamp":null}}"#);
            }
            Self::PongsTwice => {
                send(&pong);
                send(&pong);
            }
            _ => send(&pong),
        }
    }
}

/// A letter or digit for another one, so that it stays text.
fn garbled(byte: &u8) -> u8 {
    match byte {
        b'z' => b'a',
        b'a'..=b'y' => byte + 1,
        other => *other,
    }
}

/// The opcode that a text or binary message has.
pub(crate) fn opcode_of(is_text: bool) -> OpCode {
    if is_text {
        OpCode::Text
    } else {
        OpCode::Binary
    }
}

/// Messages that a limiting server takes of each connection.
pub(crate) const LIMIT: u64 = 9;
