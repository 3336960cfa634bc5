//! Classification of a message by its `t`, without parsing the payload.

use super::{Category, EnvelopeError};
use crate::format::{Item, Reader};
use crate::json::fields::Fields;
use crate::json::scan::{after_plain, plain_bytes};
use crate::json::text::{Short, unescape};
use crate::json::{AROUND_ENVELOPE, check};

/// The category of a message: the protocol's own, or the application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The protocol's.
    System(SystemType),
    /// The application's.
    Application,
}

impl Kind {
    /// Whom a message of this type belongs to.
    pub fn of(t: &str) -> Self {
        kind_of(t.as_bytes())
    }
}

/// The types of the protocol's own messages. They are recognised by `t` alone; `c` may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SystemType {
    /// `ping` or `PING`, both ways.
    Ping,
    /// `PONG` or `pong`, both ways.
    Pong,
    /// `client_hello`, to the server.
    ClientHello,
    /// `server_ready`, to the client.
    ServerReady,
    /// `server_hello`, to the client.
    ServerHello,
    /// `subscription_update` or `subscription`, both ways.
    SubscriptionUpdate,
    /// `sync_request`, to the server.
    SyncRequest,
    /// `config_update`, to the server.
    ConfigUpdate,
    /// `config_response`, to the client.
    ConfigResponse,
    /// `health_check`, to the server.
    HealthCheck,
    /// `health_check_response`, to the client.
    HealthCheckResponse,
    /// `metrics_request`, to the server.
    MetricsRequest,
    /// `metrics_response`, to the client.
    MetricsResponse,
    /// `presence_join`, to the client.
    PresenceJoin,
    /// `presence_leave`, to the client.
    PresenceLeave,
    /// `presence_update`, to the client.
    PresenceUpdate,
    /// `batch`, both ways.
    Batch,
    /// `key_update`, both ways.
    KeyUpdate,
    /// `rate_limit_warning`, to the client.
    RateLimitWarning,
    /// `error`, to the client.
    Error,
    /// `publish_request`, to the server.
    PublishRequest,
    /// `publish_response`, to the client.
    PublishResponse,
    /// `publication_gap`, to the client.
    PublicationGap,
    /// `publication_ack`, to the server.
    PublicationAck,
    /// `presence_request`, to the server.
    PresenceRequest,
    /// `presence_response`, to the client.
    PresenceResponse,
    /// `history_request`, to the server.
    HistoryRequest,
    /// `history_response`, to the client.
    HistoryResponse,
    /// `message_ack`, to the client.
    MessageAck,
    /// `call_request`, both ways.
    CallRequest,
    /// `call_response`, both ways.
    CallResponse,
    /// `reconnect`, to the client.
    Reconnect,
    /// `auth_expiry_warning`, to the client.
    AuthExpiryWarning,
    /// `auth_refresh`, to the server.
    AuthRefresh,
    /// `auth_refresh_response`, to the client.
    AuthRefreshResponse,
}

/// Classifies a message of JSON text, valid UTF-8 already, by its type.
///
/// The first `t` or `type` of the object decides. If it stands before the payload, nothing after it is read:
/// the receiver of the message finds out whether the rest is JSON. The prefixes `WSE`, `S` and `U` before the
/// object are skipped. Allocates nothing.
///
/// # Errors
/// No object, no type, a type that is not a string or empty, or broken JSON on the way to the type.
#[inline]
pub fn classify_json(text: &[u8]) -> Result<Kind, EnvelopeError> {
    let Some(value) = value_in_usual_place(text) else {
        return classify_anywhere(text);
    };
    match plain_bytes::<true>(value) {
        length @ 1.. if value.get(length) == Some(&b'"') => Ok(kind_of(&value[..length])),
        _ => classify_anywhere(text),
    }
}

/// The text behind the quote that opens the type, in the spellings of our own clients: the type first, or the category
/// and then the type.
#[inline(always)]
fn value_in_usual_place(text: &[u8]) -> Option<&[u8]> {
    if let Some(value) = text.strip_prefix(b"{\"t\":\"") {
        return Some(value);
    }
    if let Some(value) = text.strip_prefix(b"{\"type\":\"") {
        return Some(value);
    }
    let category = text.strip_prefix(b"{\"c\":\"")?;
    let rest = match category.strip_prefix(b"WSE") {
        Some(rest) => rest,
        None => category.get(1..)?,
    };
    rest.strip_prefix(b"\",\"t\":\"")
}

/// [`classify_json`] at a server's door: a message of the application is checked as a whole, so that nobody who receives
/// it is the first to find that it cannot be read. One of the protocol is checked by its own reader.
///
/// # Errors
/// As [`classify_json`]; and an application's message that is malformed or nested too deep anywhere.
#[inline]
pub fn accept_json(text: &[u8]) -> Result<Kind, EnvelopeError> {
    let Some(value) = value_in_usual_place(text) else {
        return accept_anywhere(text);
    };
    match after_plain(value) {
        [b'"', rest @ ..] if value.len() - rest.len() > 1 => {
            let kind = kind_of(&value[..value.len() - rest.len() - 1]);
            if kind == Kind::Application {
                check::rest_of_object(rest)?;
            }
            Ok(kind)
        }
        _ => accept_anywhere(text),
    }
}

/// [`accept_json`] for any order of fields.
#[cold]
fn accept_anywhere(text: &[u8]) -> Result<Kind, EnvelopeError> {
    let kind = classify_anywhere(text)?;
    if kind == Kind::Application {
        let (_, object) = strip_category(text);
        check::finish(check::value(check::after_space(object), AROUND_ENVELOPE)?)?;
    }
    Ok(kind)
}

/// [`accept_json`] for MessagePack, without the prefix `M:`. It has a meaning in JSON.
///
/// # Errors
/// As [`accept_json`].
#[inline]
pub fn accept_msgpack(bytes: &[u8]) -> Result<Kind, EnvelopeError> {
    let kind = classify_msgpack(bytes)?;
    if kind == Kind::Application {
        let mut reader = Reader::new(bytes);
        reader.checked_value(AROUND_ENVELOPE)?;
        reader.finish()?;
    }
    Ok(kind)
}

/// [`classify_json`] for MessagePack, without the prefix `M:`. Also here nothing after the type is
/// looked at.
///
/// # Errors
/// As [`classify_json`].
#[inline]
pub fn classify_msgpack(bytes: &[u8]) -> Result<Kind, EnvelopeError> {
    // As in JSON: a small map that starts with the type, or with the category and then the type.
    let ([0x81..=0x8f, 0xa1, b't', value @ ..]
    | [0x82..=0x8f, 0xa1, b'c', 0xa1, _, 0xa1, b't', value @ ..]
    | [
        0x82..=0x8f,
        0xa1,
        b'c',
        0xa3,
        _,
        _,
        _,
        0xa1,
        b't',
        value @ ..,
    ]) = bytes
    else {
        return classify_map(bytes);
    };
    if let [length @ 0xa1..=0xbf, name @ ..] = value
        && let Some(name) = name.get(..usize::from(length & 0x1f))
    {
        return Ok(kind_of(name));
    }
    classify_map(bytes)
}

impl SystemType {
    /// All types.
    pub const ALL: [Self; 35] = [
        Self::Ping,
        Self::Pong,
        Self::ClientHello,
        Self::ServerReady,
        Self::ServerHello,
        Self::SubscriptionUpdate,
        Self::SyncRequest,
        Self::ConfigUpdate,
        Self::ConfigResponse,
        Self::HealthCheck,
        Self::HealthCheckResponse,
        Self::MetricsRequest,
        Self::MetricsResponse,
        Self::PresenceJoin,
        Self::PresenceLeave,
        Self::PresenceUpdate,
        Self::Batch,
        Self::KeyUpdate,
        Self::RateLimitWarning,
        Self::Error,
        Self::PublishRequest,
        Self::PublishResponse,
        Self::PublicationGap,
        Self::PublicationAck,
        Self::PresenceRequest,
        Self::PresenceResponse,
        Self::HistoryRequest,
        Self::HistoryResponse,
        Self::MessageAck,
        Self::CallRequest,
        Self::CallResponse,
        Self::Reconnect,
        Self::AuthExpiryWarning,
        Self::AuthRefresh,
        Self::AuthRefreshResponse,
    ];

    /// The spelling that this project writes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Pong => "PONG",
            Self::ClientHello => "client_hello",
            Self::ServerReady => "server_ready",
            Self::ServerHello => "server_hello",
            Self::SubscriptionUpdate => "subscription_update",
            Self::SyncRequest => "sync_request",
            Self::ConfigUpdate => "config_update",
            Self::ConfigResponse => "config_response",
            Self::HealthCheck => "health_check",
            Self::HealthCheckResponse => "health_check_response",
            Self::MetricsRequest => "metrics_request",
            Self::MetricsResponse => "metrics_response",
            Self::PresenceJoin => "presence_join",
            Self::PresenceLeave => "presence_leave",
            Self::PresenceUpdate => "presence_update",
            Self::Batch => "batch",
            Self::KeyUpdate => "key_update",
            Self::RateLimitWarning => "rate_limit_warning",
            Self::Error => "error",
            Self::PublishRequest => "publish_request",
            Self::PublishResponse => "publish_response",
            Self::PublicationGap => "publication_gap",
            Self::PublicationAck => "publication_ack",
            Self::PresenceRequest => "presence_request",
            Self::PresenceResponse => "presence_response",
            Self::HistoryRequest => "history_request",
            Self::HistoryResponse => "history_response",
            Self::MessageAck => "message_ack",
            Self::CallRequest => "call_request",
            Self::CallResponse => "call_response",
            Self::Reconnect => "reconnect",
            Self::AuthExpiryWarning => "auth_expiry_warning",
            Self::AuthRefresh => "auth_refresh",
            Self::AuthRefreshResponse => "auth_refresh_response",
        }
    }

    /// The system type with this spelling, synonyms included; `None` for an application's type.
    pub fn parse(spelling: &str) -> Option<Self> {
        match kind_of(spelling.as_bytes()) {
            Kind::System(system) => Some(system),
            Kind::Application => None,
        }
    }
}

/// Removes one of the older prefixes and returns the category it names, and the text from the object on.
pub(crate) fn strip_category(text: &[u8]) -> (Option<Category>, &[u8]) {
    match text {
        [b'W', b'S', b'E', b'{', ..] => (Some(Category::System), &text[3..]),
        [b'S', b'{', ..] => (Some(Category::Snapshot), &text[1..]),
        [b'U', b'{', ..] => (Some(Category::Update), &text[1..]),
        _ => (None, text),
    }
}

/// For any order of keys, white space, escapes and prefixes.
#[cold]
fn classify_anywhere(text: &[u8]) -> Result<Kind, EnvelopeError> {
    let (_, object) = strip_category(text);
    let value = type_value(object)?;
    let [b'"', raw @ .., b'"'] = value else {
        return Err(EnvelopeError::InvalidType);
    };
    if raw.is_empty() {
        return Err(EnvelopeError::InvalidType);
    }
    if !raw.contains(&b'\\') {
        return Ok(kind_of(raw));
    }
    let mut short = Short::default();
    unescape(raw, &mut short)?;
    Ok(short.as_bytes().map_or(Kind::Application, kind_of))
}

/// For any order of keys.
#[cold]
fn classify_map(bytes: &[u8]) -> Result<Kind, EnvelopeError> {
    let mut reader = Reader::new(bytes);
    let Item::Map(pairs) = reader.item()? else {
        return Err(EnvelopeError::NotAnObject);
    };
    for _ in 0..pairs {
        let mut value = reader.clone();
        if matches!(value.item()?, Item::Str(b"t" | b"type")) {
            return match value.item()? {
                Item::Str(name) if !name.is_empty() => Ok(kind_of(name)),
                _ => Err(EnvelopeError::InvalidType),
            };
        }
        reader.skip(1)?;
        reader.skip(1)?;
    }
    Err(EnvelopeError::NoType)
}

/// The bytes of the first type in an object.
fn type_value(object: &[u8]) -> Result<&[u8], EnvelopeError> {
    let mut fields = Fields::open(object)?;
    fields.find(&["t", "type"])?.ok_or(EnvelopeError::NoType)
}

/// The first byte, the length and at most one byte more leave at most two candidates, so that an
/// application's type costs one or two jumps and at most two comparisons.
#[inline]
fn kind_of(name: &[u8]) -> Kind {
    use SystemType as T;
    let candidate = match (name.len(), name.first()) {
        (4, Some(b'p' | b'P')) => match name {
            b"ping" | b"PING" => T::Ping,
            b"pong" | b"PONG" => T::Pong,
            _ => return Kind::Application,
        },
        (5, Some(b'b')) => T::Batch,
        (5, Some(b'e')) => T::Error,
        (10, Some(b'k')) => T::KeyUpdate,
        (9, Some(b'r')) => T::Reconnect,
        (11, Some(b'm')) => T::MessageAck,
        (12, Some(b'a')) => T::AuthRefresh,
        (12, Some(b'c')) if name[1] == b'a' => T::CallRequest,
        (12, Some(b'c')) => T::ClientHello,
        (12, Some(b'h')) => T::HealthCheck,
        (12, Some(b's')) => match name {
            b"server_ready" => T::ServerReady,
            b"server_hello" => T::ServerHello,
            b"subscription" => return Kind::System(T::SubscriptionUpdate),
            _ => T::SyncRequest,
        },
        (13, Some(b'c')) if name[1] == b'a' => T::CallResponse,
        (13, Some(b'c')) => T::ConfigUpdate,
        (13, Some(b'p')) => T::PresenceJoin,
        (14, Some(b'p')) => T::PresenceLeave,
        (15, Some(b'c')) => T::ConfigResponse,
        (15, Some(b'h')) => T::HistoryRequest,
        (15, Some(b'm')) => T::MetricsRequest,
        (15, Some(b'p')) => match name[14] {
            b't' => T::PublishRequest,
            b'p' => T::PublicationGap,
            b'k' => T::PublicationAck,
            _ => T::PresenceUpdate,
        },
        (16, Some(b'h')) => T::HistoryResponse,
        (16, Some(b'm')) => T::MetricsResponse,
        (16, Some(b'p')) if name[1] == b'u' => T::PublishResponse,
        (16, Some(b'p')) => T::PresenceRequest,
        (17, Some(b'p')) => T::PresenceResponse,
        (18, Some(b'r')) => T::RateLimitWarning,
        (19, Some(b'a')) => T::AuthExpiryWarning,
        (19, Some(b's')) => T::SubscriptionUpdate,
        (21, Some(b'a')) => T::AuthRefreshResponse,
        (21, Some(b'h')) => T::HealthCheckResponse,
        _ => return Kind::Application,
    };
    let same = matches!(candidate, T::Ping | T::Pong) || name == candidate.as_str().as_bytes();
    if same {
        Kind::System(candidate)
    } else {
        Kind::Application
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(text: &str) -> Result<Kind, EnvelopeError> {
        classify_json(text.as_bytes())
    }

    const PING: Result<Kind, EnvelopeError> = Ok(Kind::System(SystemType::Ping));

    #[test]
    fn every_system_type_is_recognised_in_every_spelling() {
        use SystemType as T;
        for system in SystemType::ALL {
            let name = system.as_str();
            let expected = Ok(Kind::System(system));
            for text in [
                format!("{{\"t\":\"{name}\"}}"),
                format!("{{\"type\":\"{name}\",\"payload\":{{}}}}"),
                format!("{{\"c\":\"WSE\",\"t\":\"{name}\",\"p\":{{}}}}"),
                format!("{{\"c\":\"U\",\"t\":\"{name}\",\"p\":{{}}}}"),
                format!("WSE{{\"t\":\"{name}\"}}"),
                format!(" {{ \"p\" : {{\"t\":\"x\"}} , \"t\" : \"{name}\" }} "),
            ] {
                assert_eq!(classify(&text), expected, "{text}");
            }
            let mut other = name.to_owned();
            other.replace_range(1..2, "#");
            assert_eq!(SystemType::parse(&other), None, "{other}");
        }
        assert_eq!(SystemType::parse("PING"), Some(T::Ping));
        assert_eq!(SystemType::parse("pong"), Some(T::Pong));
        assert_eq!(
            SystemType::parse("subscription"),
            Some(T::SubscriptionUpdate)
        );
        assert_eq!(SystemType::parse("Ping"), None);
    }

    #[test]
    fn escapes_do_not_smuggle() {
        assert_eq!(classify(r#"{"t":"\u0070ing"}"#), PING);
        assert_eq!(classify(r#"{"t":"p\u0069ng"}"#), PING);
        assert_eq!(classify(r#"{"\u0074":"ping"}"#), PING);
        assert_eq!(classify(r#"{"t\u0079pe":"ping","t":"trade"}"#), PING);
        assert_eq!(classify(r#"{"t":"tr\"ade"}"#), Ok(Kind::Application));
        let long = "\\u0070".repeat(100);
        assert_eq!(
            classify(&format!("{{\"t\":\"{long}\"}}")),
            Ok(Kind::Application)
        );
    }

    #[test]
    fn what_is_no_envelope() {
        for text in [
            "",
            " ",
            "[]",
            "1",
            "\"t\"",
            "ping",
            "WSE",
            "X{\"t\":\"a\"}",
            "WSE {\"t\":\"a\"}",
        ] {
            assert_eq!(classify(text), Err(EnvelopeError::NotAnObject), "{text}");
        }
        for text in [
            "{}",
            "{\"p\":{\"t\":\"ping\"}}",
            "{\"c\":\"U\"}",
            "{\"T\":\"ping\"}",
        ] {
            assert_eq!(classify(text), Err(EnvelopeError::NoType), "{text}");
        }
        for text in [
            "{\"t\":1}",
            "{\"t\":\"\"}",
            "{\"t\":null}",
            "{\"c\":\"U\",\"t\":{\"a\":\"b\"}}",
        ] {
            assert_eq!(classify(text), Err(EnvelopeError::InvalidType), "{text}");
        }
        for text in [
            "{",
            "{\"t\":\"ping",
            "{\"t\":\"pi\nng\"}",
            "{\"t\":\"\\q\"}",
            "{\"t\"}",
            "{\"a\":[}",
        ] {
            assert_eq!(classify(text), Err(EnvelopeError::Malformed), "{text}");
        }
    }

    #[test]
    fn nesting_before_the_type_is_limited() {
        let nested = |levels: usize| {
            format!(
                "{{\"p\":{}{},\"t\":\"a\"}}",
                "[".repeat(levels),
                "]".repeat(levels)
            )
        };
        assert_eq!(classify(&nested(63)), Ok(Kind::Application));
        assert_eq!(classify(&nested(64)), Err(EnvelopeError::TooDeep));
        assert_eq!(classify(&nested(100_000)), Err(EnvelopeError::TooDeep));
    }

    #[test]
    fn the_rest_is_not_looked_at() {
        assert_eq!(classify("{\"t\":\"ping\",]"), PING);
        assert_eq!(classify("{\"c\":\"U\",\"t\":\"a\""), Ok(Kind::Application));
    }

    #[test]
    fn msgpack_in_any_order() {
        let pack = |text: &str| {
            let mut out = Vec::new();
            crate::format::json_to_msgpack(text.as_bytes(), &mut out).unwrap();
            out
        };
        assert_eq!(
            classify_msgpack(&pack(r#"{"a":{"t":"x"},"t":"ping"}"#)),
            PING
        );
        assert_eq!(
            classify_msgpack(&pack(r#"{"payload":[1],"type":"PING"}"#)),
            PING
        );
        assert_eq!(
            classify_msgpack(&pack(r#"{"t":"trade"}"#)),
            Ok(Kind::Application)
        );
        assert_eq!(classify_msgpack(&pack("{}")), Err(EnvelopeError::NoType));
        assert_eq!(
            classify_msgpack(&pack("[]")),
            Err(EnvelopeError::NotAnObject)
        );
        assert_eq!(
            classify_msgpack(&pack(r#"{"t":1}"#)),
            Err(EnvelopeError::InvalidType)
        );
        assert_eq!(
            classify_msgpack(&[0xdf, 255, 255, 255, 255]),
            Err(EnvelopeError::Malformed)
        );
        let mut deep = vec![0x82, 0xa1, b'p'];
        deep.extend([0x91; 1000]);
        assert_eq!(classify_msgpack(&deep), Err(EnvelopeError::TooDeep));
    }
}
