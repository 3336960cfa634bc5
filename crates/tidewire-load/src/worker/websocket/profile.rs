//! Profiles of a session: plain RFC 6455, or protocol version 1.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{
    Envelope, Kind, SystemType, classify_json, classify_msgpack, parse_json, parse_msgpack,
};
use tidewire_wire::format::{Framing, identify};
use tidewire_wire::frame::{OpCode, write_frame, write_frame_with};

use crate::accounting::outcome::ServerFacts;
use crate::worker::websocket::channel::Channel;

/// The dialogue of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// RFC 6455 and nothing else: connected at the 101, and a ping is a WebSocket ping.
    Raw,
    /// Protocol version 1: connected when `server_ready` has arrived, and a ping is a `ping` message that a
    /// `PONG` answers.
    #[default]
    V1,
}

impl Profile {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Raw, Self::V1];

    /// The name in a report and on a command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::V1 => "v1",
        }
    }
}

/// The kind of a message of a version 1 server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerMessage {
    Ready,
    Hello,
    /// With the `client_timestamp` that it returns, if it can be seen.
    Pong(Option<u64>),
    Ping,
    Error,
    /// The answer to a `subscription_update`.
    Subscription,
    OtherSystem,
    Application,
}

/// The kind of a version 1 message.
#[inline]
pub(crate) fn classify(opcode: OpCode, message: &[u8]) -> ServerMessage {
    let framing = match opcode {
        OpCode::Text => Framing::Json,
        _ => identify(message),
    };
    let kind = match framing {
        Framing::Json => classify_json(message),
        Framing::MessagePack => classify_msgpack(&message[2..]),
        _ => return ServerMessage::Application,
    };
    match kind {
        Ok(Kind::System(system)) => classify_system(system, message),
        _ => ServerMessage::Application,
    }
}

fn classify_system(system: SystemType, message: &[u8]) -> ServerMessage {
    match system {
        SystemType::Pong => ServerMessage::Pong(client_timestamp(message)),
        SystemType::Ping => ServerMessage::Ping,
        SystemType::ServerReady => ServerMessage::Ready,
        SystemType::ServerHello => ServerMessage::Hello,
        SystemType::Error => ServerMessage::Error,
        SystemType::SubscriptionUpdate => ServerMessage::Subscription,
        _ => ServerMessage::OtherSystem,
    }
}

/// The number behind `"client_timestamp":`, found without a parser, because a ping test receives
/// hundreds of thousands of them per second.
fn client_timestamp(message: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"client_timestamp\":";
    let start = find(message, NAME)? + NAME.len();
    let digits = message[start..].trim_ascii_start();
    let length = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    std::str::from_utf8(&digits[..length]).ok()?.parse().ok()
}

/// Adds the fields of `server_ready` or `server_hello` to the facts.
pub(crate) fn learn(facts: &mut ServerFacts, message: &[u8]) {
    let Some(envelope) = envelope(message) else {
        return;
    };
    let payload = &envelope.payload;
    if let Some(version) = payload["details"]["version"].as_str() {
        facts.version = Some(version.to_owned());
    }
    if let Some(version) = payload["server_version"].as_str() {
        facts.version = Some(version.to_owned());
    }
    let limits = &payload["limits"];
    facts.rate_limit_capacity = limits["rate_limit_capacity"]
        .as_u64()
        .or(facts.rate_limit_capacity);
    facts.rate_limit_refill_per_s = limits["rate_limit_refill"]
        .as_u64()
        .or(facts.rate_limit_refill_per_s);
}

/// An `error` of a version 1 server: its code, and the number of rejected messages, which is one by
/// default. A code that version 1 does not know is [`UNKNOWN_CODE`].
pub(crate) fn read_error(message: &[u8]) -> (&'static str, u32) {
    let Some(Envelope { payload, .. }) = envelope(message) else {
        return (UNKNOWN_CODE, 1);
    };
    let known = payload["code"].as_str().and_then(ErrorCode::parse);
    let code = known.map_or(UNKNOWN_CODE, ErrorCode::as_str);
    let refused = payload["refused"].as_u64().unwrap_or(1);
    (code, u32::try_from(refused).unwrap_or(u32::MAX))
}

fn envelope(message: &[u8]) -> Option<Envelope> {
    match message.strip_prefix(b"M:") {
        Some(packed) => parse_msgpack(packed).ok(),
        None => parse_json(message).ok(),
    }
}

/// Appends the frame of a `client_hello`.
pub(crate) fn write_hello(out: &mut Vec<u8>, mask: [u8; 4]) {
    const HELLO: &str = concat!(
        r#"{"c":"WSE","t":"client_hello","p":{"client_version":"tidewire-load/"#,
        env!("CARGO_PKG_VERSION"),
        r#"","protocol_version":1,"features":{},"capabilities":[]},"v":1}"#
    );
    write_frame(out, OpCode::Text, HELLO.as_bytes(), Some(mask));
}

/// Appends the frame of a `client_hello` that asks for encryption, with this side's key.
pub(crate) fn write_key_hello(out: &mut Vec<u8>, public_key: &[u8], mask: [u8; 4]) {
    let hello = format!(
        concat!(
            r#"{{"c":"WSE","t":"client_hello","p":{{"client_version":"tidewire-load/"#,
            env!("CARGO_PKG_VERSION"),
            r#"","protocol_version":1,"features":{{"encryption":true}},"capabilities":[],"#,
            r#""encryption_public_key":"{}"}},"v":1}}"#
        ),
        STANDARD.encode(public_key)
    );
    write_frame(out, OpCode::Text, hello.as_bytes(), Some(mask));
}

/// Appends the frame of a `subscription_update` that asks for one topic, encrypted if there is a channel.
pub(crate) fn write_subscription(
    out: &mut Vec<u8>,
    topic: &str,
    mask: [u8; 4],
    channel: Option<&mut Channel>,
) {
    let request = format!(
        r#"{{"c":"WSE","t":"subscription_update","p":{{"action":"subscribe","topics":["{topic}"]}},"v":1}}"#
    );
    write_text(out, request.as_bytes(), mask, channel);
}

/// Whether the answer to a `subscription_update` confirms the subscription of the topic.
pub(crate) fn is_subscribed(message: &[u8], topic: &str) -> bool {
    let topics = envelope(message).map(|envelope| envelope.payload["success_topics"].clone());
    topics.is_some_and(|topics| {
        let mut names = topics.as_array().into_iter().flatten();
        names.any(|name| name.as_str() == Some(topic))
    })
}

/// The server's key in a `server_hello`; `None` if there is none.
pub(crate) fn encryption_key(message: &[u8]) -> Option<Vec<u8>> {
    let Envelope { payload, .. } = envelope(message)?;
    STANDARD
        .decode(payload["encryption_public_key"].as_str()?)
        .ok()
}

/// Appends the frame of an application `ping` sent at `unix_ms`, encrypted if there is a channel.
pub(crate) fn write_ping(
    out: &mut Vec<u8>,
    unix_ms: u64,
    mask: [u8; 4],
    channel: Option<&mut Channel>,
) {
    let head = r#"{"c":"WSE","t":"ping","p":{"timestamp":"#;
    write_stamped(out, head, unix_ms, mask, channel);
}

/// Appends the frame of the `PONG` that answers a server's `ping`, encrypted if there is a channel.
pub(crate) fn write_pong(
    out: &mut Vec<u8>,
    unix_ms: u64,
    mask: [u8; 4],
    channel: Option<&mut Channel>,
) {
    let head = r#"{"c":"WSE","t":"PONG","p":{"client_timestamp":"#;
    write_stamped(out, head, unix_ms, mask, channel);
}

fn write_stamped(
    out: &mut Vec<u8>,
    head: &str,
    number: u64,
    mask: [u8; 4],
    channel: Option<&mut Channel>,
) {
    let mut message = [0u8; STAMPED_BYTES_MAX];
    let mut writer = std::io::Cursor::new(&mut message[..]);
    // The array is longer than any head with the longest number.
    let _ = std::io::Write::write_fmt(&mut writer, format_args!("{head}{number}}},\"v\":1}}"));
    let length = writer.position() as usize;
    write_text(out, &message[..length], mask, channel);
}

/// Appends the frame of a text message, encrypted if there is a channel.
pub(crate) fn write_text(
    out: &mut Vec<u8>,
    message: &[u8],
    mask: [u8; 4],
    channel: Option<&mut Channel>,
) {
    match channel {
        None => write_frame(out, OpCode::Text, message, Some(mask)),
        Some(channel) => write_frame_with(out, Some(mask), |out| {
            channel.seal(message, out);
            OpCode::Binary
        }),
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// The code of every error that version 1 does not define.
const UNKNOWN_CODE: &str = "an unknown code";

const STAMPED_BYTES_MAX: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_wire::frame::Role;
    use tidewire_wire::message::{Event, Input, MessageReader};

    fn text_of(frame: &mut [u8]) -> String {
        match MessageReader::new(Role::Server, 1000).read(&mut Input::new(frame)) {
            Ok(Some(Event::Text(text))) => text.as_str().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_the_lab_says_is_version_1() {
        let mut frame = Vec::new();
        write_hello(&mut frame, [1, 2, 3, 4]);
        assert_eq!(
            parse_json(text_of(&mut frame).as_bytes()).unwrap().payload["protocol_version"],
            1
        );
        frame.clear();
        write_ping(&mut frame, u64::MAX, [1, 2, 3, 4], None);
        assert_eq!(
            parse_json(text_of(&mut frame).as_bytes()).unwrap().payload["timestamp"],
            u64::MAX
        );
        frame.clear();
        write_pong(&mut frame, u64::MAX, [1, 2, 3, 4], None);
        assert_eq!(
            classify(OpCode::Text, text_of(&mut frame).as_bytes()),
            ServerMessage::Pong(Some(u64::MAX))
        );
    }

    #[test]
    fn what_the_server_says_is_told_apart() {
        let cases = [
            (
                r#"{"c":"WSE","t":"server_ready","p":{}}"#,
                ServerMessage::Ready,
            ),
            (
                r#"{"c":"WSE","t":"server_hello","p":{}}"#,
                ServerMessage::Hello,
            ),
            (
                r#"{"t":"PONG","p":{"client_timestamp": 17,"latency":1}}"#,
                ServerMessage::Pong(Some(17)),
            ),
            (r#"{"t":"PONG","p":{}}"#, ServerMessage::Pong(None)),
            (r#"{"t":"ping","p":{}}"#, ServerMessage::Ping),
            (
                r#"{"t":"error","p":{"code":"SERVER_ERROR"}}"#,
                ServerMessage::Error,
            ),
            (
                r#"{"t":"trade","p":{"code":"RATE_LIMITED"}}"#,
                ServerMessage::Application,
            ),
            ("no envelope", ServerMessage::Application),
        ];
        for (text, kind) in cases {
            assert_eq!(classify(OpCode::Text, text.as_bytes()), kind, "{text}");
            assert_eq!(classify(OpCode::Binary, text.as_bytes()), kind, "{text}");
        }
    }

    #[test]
    fn an_error_says_its_code_and_how_many_messages_it_refuses() {
        let cases: [(&[u8], (&str, u32)); 4] = [
            (
                br#"{"t":"error","p":{"code":"RATE_LIMITED","refused":17}}"#,
                ("RATE_LIMITED", 17),
            ),
            (
                br#"{"t":"error","p":{"code":"RATE_LIMITED"}}"#,
                ("RATE_LIMITED", 1),
            ),
            (
                br#"{"t":"error","p":{"code":"INVENTED"}}"#,
                (UNKNOWN_CODE, 1),
            ),
            (b"M:nothing", (UNKNOWN_CODE, 1)),
        ];
        for (message, expected) in cases {
            assert_eq!(read_error(message), expected);
        }
    }

    #[test]
    fn the_servers_limits_and_version_are_learned() {
        let mut facts = ServerFacts::default();
        learn(
            &mut facts,
            br#"{"t":"server_ready","p":{"details":{"version":"2.4"}}}"#,
        );
        let hello = br#"{"t":"server_hello","p":{"limits":
            {"rate_limit_capacity":100000,"rate_limit_refill":10000}}}"#;
        learn(&mut facts, hello);
        let expected = ServerFacts {
            server: None,
            version: Some("2.4".into()),
            rate_limit_capacity: Some(100_000),
            rate_limit_refill_per_s: Some(10_000),
        };
        assert_eq!(facts, expected);
    }
}
