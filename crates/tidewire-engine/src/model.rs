//! The engine's vocabulary: connections, messages, positions and the health of shards.

use self::adoption::AdoptionTicket;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tidewire_net::{ConnectionId, Heartbeat, Pulse, Waker};
use tidewire_wire::close::CloseCode;
use tidewire_wire::envelope::{check_payload, epoch_text, parse_epoch};
use tidewire_wire::session::GapRange;

pub(crate) mod adoption;
pub(crate) mod call_types;
pub(crate) mod callback;
pub(crate) mod content;
pub(crate) mod inbox;
pub(crate) mod queries;
pub(crate) mod spelling;
pub(crate) mod url;

/// Names a connection of a server, for as long as the server runs. With a broker it also names the server, so that the
/// other servers that share the broker reach the connection, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey {
    /// The server in the upper 48 bits, 0 without a broker; the shard in the lower 16.
    place: u64,
    pub(crate) id: ConnectionId,
}

/// The peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Names the connection in every later call.
    pub connection: ConnectionKey,
    /// The `sub` claim of the token; `None` without authentication.
    pub user: Option<String>,
    /// The other end of the TCP connection or, behind a [trusted proxy](crate::TrustedProxies), the client
    /// that it forwards; then the port is 0 if the proxy does not report it.
    pub address: Option<std::net::SocketAddr>,
    /// The ticket of a connection that the application has [handed over](crate::Adoption::ticket).
    pub adoption: Option<AdoptionTicket>,
}

/// The result of a reload of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Options with other values, which hold from now on.
    pub changed: Vec<&'static str>,
    /// Options with other values, which hold only after the next start.
    pub needs_restart: Vec<&'static str>,
}

/// An option that was given to a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GivenSetting {
    /// The option.
    pub name: &'static str,
    /// Its value; not that of a secret.
    pub value: String,
    /// Where it was given, such as `--shards` or `tidewire.toml:7: shards`.
    pub source: String,
}

/// A function that lists the options that were given to a program and are in force now.
pub struct SettingsFunction(pub Box<dyn Fn() -> Vec<GivenSetting> + Send + Sync>);

impl fmt::Debug for SettingsFunction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SettingsFunction(..)")
    }
}

/// A function that reads the configuration of a server again, from where its program has it. An error is the
/// reason why nothing changed.
pub struct ReloadFunction(pub Box<dyn Fn() -> Result<Reloaded, String> + Send + Sync>);

impl fmt::Debug for ReloadFunction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ReloadFunction(..)")
    }
}

/// A message as it was received. Compressed ones are given inflated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// How the bytes are to be read.
    pub encoding: Encoding,
    /// The message. JSON messages of version 1 are known to be UTF-8 and to be an object with a
    /// type, not to be valid JSON throughout, nor to be nested less deep than any limit: a parser
    /// has to see to that itself.
    pub bytes: &'a [u8],
}

/// How the bytes of a message are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8 text; in version 1, JSON.
    Text,
    /// Bytes without a meaning to the engine; only without version 1.
    Binary,
    /// MessagePack, without the prefix that marks it in a frame.
    MessagePack,
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outgoing {
    /// Text, sent as it is.
    Text(Arc<str>),
    /// Bytes, sent as they are.
    Binary(Arc<[u8]>),
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed, with this code if it gave one.
    ByPeer(Option<CloseCode>),
    /// This side closed, with this code.
    ByUs(CloseCode),
    /// The connection broke without a closing handshake.
    Lost,
}

/// The place of a publication in its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Which life of the topic: offsets of different epochs cannot be compared.
    pub epoch: u32,
    /// The publication's number in this epoch, from 1. As the position of a topic it is the newest
    /// one's; 0 means that nothing was published yet.
    pub offset: u64,
}

/// Why something could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The shard has not caught up; try again.
    #[error("the server has not caught up with what was sent before")]
    Busy,
    /// The broker behind the servers did not answer, so the other servers may not be notified. This server
    /// has done its part. A retry does no harm.
    #[error("the broker behind the servers does not answer, so other servers may not be told")]
    Unavailable,
    /// The server has stopped.
    #[error("the server has stopped")]
    Stopped,
}

/// Wakes one shard, so that it asks its application again whether it is ready.
#[derive(Debug, Clone)]
pub struct ShardWaker(pub(crate) Waker);

/// How a shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ShardHealth {
    /// It waits for something to do and wakes when it is asked to, or has not been in one turn of its loop for too long.
    Healthy,
    /// It has been in one turn of its loop for longer than
    /// [`shard_stall_ms`](crate::Limits::shard_stall_ms): the application blocks it, most likely. Or it has not woken
    /// for so long after an earlier look at its health: its thread is stopped, or gets no processor.
    Stuck {
        /// For how long, in milliseconds.
        turn_ms: u64,
    },
    /// Its loop has ended, because the server stops or has failed.
    Ended,
}

/// Why a server has ended by itself: a fault of the engine or of the operating system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} has failed: {reason}")]
pub struct ServerFailure {
    /// The shard, from 0.
    pub shard: usize,
    /// The message of the panic or the operating system.
    pub reason: String,
}

impl ShardWaker {
    /// Wakes the shard.
    pub fn wake(&self) {
        self.0.wake();
    }
}

impl ConnectionKey {
    /// `server` has 48 bits, a shard 16.
    pub(crate) fn new(server: u64, shard: u32, id: ConnectionId) -> Self {
        Self {
            place: server << SHARD_BITS | u64::from(shard) & SHARD_MASK,
            id,
        }
    }

    /// The server, 0 without a broker.
    pub(crate) fn server(self) -> u64 {
        self.place >> SHARD_BITS
    }

    pub(crate) fn shard(self) -> u32 {
        (self.place & SHARD_MASK) as u32
    }
}

const SHARD_BITS: u32 = 16;
const SHARD_MASK: u64 = (1 << SHARD_BITS) - 1;

/// The digits of a server in a key.
const SERVER_DIGITS: usize = 12;

/// A key as text: the shard and a number, `3-4294967297`; with a broker the server before them,
/// `n0123456789ab-3-4294967297`.
impl fmt::Display for ConnectionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.server() != 0 {
            write!(formatter, "n{:0SERVER_DIGITS$x}-", self.server())?;
        }
        write!(formatter, "{}-{}", self.shard(), self.id.to_u64())
    }
}

/// A text that is no [`ConnectionKey`]: the caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a connection is written as two numbers with a hyphen, such as 0-4294967297, with a broker behind its server, such \
     as n0123456789ab-0-4294967297"
)]
pub struct InvalidConnectionKey;

impl FromStr for ConnectionKey {
    type Err = InvalidConnectionKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (server, rest) = match text.strip_prefix('n') {
            Some(named) => {
                let (digits, rest) = named.split_once('-').ok_or(InvalidConnectionKey)?;
                let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                if digits.len() != SERVER_DIGITS || !digits.bytes().all(is_digit) {
                    return Err(InvalidConnectionKey);
                }
                let server = u64::from_str_radix(digits, 16).map_err(|_| InvalidConnectionKey)?;
                (server, rest)
            }
            None => (0, text),
        };
        let (shard, number) = rest.split_once('-').ok_or(InvalidConnectionKey)?;
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(shard) || !is_number(number) {
            return Err(InvalidConnectionKey);
        }
        let shard: u16 = shard.parse().map_err(|_| InvalidConnectionKey)?;
        let number = number.parse().map_err(|_| InvalidConnectionKey)?;
        let id = ConnectionId::from_u64(number);
        Ok(Self::new(server, shard.into(), id))
    }
}

impl Serialize for ConnectionKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ConnectionKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Position {
    /// The epoch as it is written on the wire: eight hexadecimal digits.
    pub fn epoch_hex(self) -> String {
        epoch_text(self.epoch)
    }

    /// This place alone, as a gap names it.
    pub(crate) fn as_range(self) -> GapRange {
        GapRange {
            epoch: self.epoch,
            from: self.offset,
            to: self.offset,
        }
    }

    /// Reads an epoch of exactly eight hexadecimal digits in lower case; `None` for anything else.
    pub fn parse_epoch(text: &str) -> Option<u32> {
        let is_as_written = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        parse_epoch(text).filter(|_| is_as_written)
    }
}

impl ShardHealth {
    pub(crate) fn of(heartbeat: &Heartbeat, stall_ms: u64) -> Self {
        match heartbeat.pulse() {
            Pulse::InTurn(long) | Pulse::Unresponsive(long)
                if long > Duration::from_millis(stall_ms) =>
            {
                Self::Stuck {
                    turn_ms: long.as_millis() as u64,
                }
            }
            Pulse::Waiting | Pulse::InTurn(_) | Pulse::Unresponsive(_) => Self::Healthy,
            Pulse::Ended => Self::Ended,
        }
    }
}

/// Reads a payload that may be null: where it is there, it is not missing.
pub(crate) fn present<'de, D: Deserializer<'de>>(
    value: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(value).map(Some)
}

/// The text of a payload of the application; `{}` for one that is missing.
pub(crate) fn payload_text(payload: Option<&RawValue>) -> &str {
    payload.map_or("{}", RawValue::get)
}

/// Whether a text is JSON that a client can read as part of a message.
pub(crate) fn is_payload(json: &str) -> bool {
    check_payload(json).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let id = ConnectionId::from_u64(u64::MAX);
        let server = 0xfedc_ba98_7654;
        for (key, text) in [
            (ConnectionKey::new(0, 63, id), "63-18446744073709551615"),
            (
                ConnectionKey::new(server, 63, id),
                "nfedcba987654-63-18446744073709551615",
            ),
            (
                ConnectionKey::new(1, 0, id),
                "n000000000001-0-18446744073709551615",
            ),
        ] {
            assert_eq!(key.to_string(), text);
            assert_eq!(text.parse(), Ok(key));
            let json = serde_json::to_string(&key).expect("a text");
            assert_eq!(serde_json::from_str::<ConnectionKey>(&json).ok(), Some(key));
        }
        for text in [
            "",
            "-",
            "1-",
            "-1",
            "1",
            "1-2-3",
            "+1-2",
            "1-+2",
            "1- 2",
            "65536-1",
            "n1-0-1",
            "n00000000000g-0-1",
            "n00000000000A-0-1",
            "n+00000000001-0-1",
            "n000000000001-1",
            "n000000000001",
        ] {
            assert_eq!(
                text.parse::<ConnectionKey>(),
                Err(InvalidConnectionKey),
                "{text}"
            );
        }
    }
}
