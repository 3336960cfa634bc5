//! Matching of a server's messages to a user's messages, and their time of creation.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use regex_lite::Regex;
use serde_json::Value;

use super::places::{Bytes, Number};
use super::pointers::Pointers;
use super::view::first_group;

/// The evidence that a message has arrived.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Matching {
    /// A WebSocket ping after it: the pong proves that it was read. Nothing answers the message
    /// itself.
    #[default]
    None,
    /// The next message from the server answers the oldest that is open.
    Order,
    /// The answer has the same value in this field.
    Field(Pointer),
    /// The answer has the same first group of this expression.
    Regex(Pattern),
    /// The answer has the number of the message at this place.
    Sequence(Number),
}

impl Matching {
    /// The identification of a message that is sent, which has this number.
    pub(super) fn key_sent(&self, sequence: u64, message: &[u8]) -> Option<u64> {
        match self {
            Self::Sequence(number) => Some(number.form.wrapped(sequence)),
            other => other.key(Bytes {
                all: message,
                content_at: 0,
            }),
        }
    }

    /// The identification of a message: the same number for equal values.
    pub(super) fn key(&self, bytes: Bytes<'_>) -> Option<u64> {
        let message = bytes.all;
        match self {
            Self::None | Self::Order => None,
            // No message has the number 0.
            Self::Sequence(number) => number.of(bytes).filter(|number| *number > 0),
            Self::Field(pointer) => pointer.key(message),
            Self::Regex(pattern) => {
                let mut hasher = DefaultHasher::new();
                first_group(message, &pattern.0)?.hash(&mut hasher);
                Some(hasher.finish())
            }
        }
    }
}

/// A regular expression.
#[derive(Debug, Clone)]
pub struct Pattern(pub Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

/// A field of a JSON message: a JSON pointer (RFC 6901), or the name of a field of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    pointers: Pointers,
}

impl Pointer {
    /// From `/a/b`, or from a name.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let text = match text.starts_with('/') {
            true => text.to_owned(),
            false => format!("/{}", text.replace('~', "~0").replace('/', "~1")),
        };
        let mut pointers = Pointers::default();
        pointers.add(&text);
        Self { text, pointers }
    }

    fn value(&self, message: &[u8]) -> Option<Value> {
        self.pointers.read(message).pop()?
    }

    /// The identification of a message: the same number for equal values.
    pub(super) fn key(&self, message: &[u8]) -> Option<u64> {
        let value = self.value(message)?;
        let mut hasher = DefaultHasher::new();
        match &value {
            Value::String(text) => text.hash(&mut hasher),
            other => other.to_string().hash(&mut hasher),
        }
        Some(hasher.finish())
    }

    /// A time in microseconds since 1970. Its size determines its unit.
    pub(super) fn time_us(&self, message: &[u8]) -> Option<u64> {
        let time = self.value(message)?.as_f64().filter(|time| *time > 0.0)?;
        let us = if time < SECONDS_BELOW {
            time * 1e6
        } else if time < MILLISECONDS_BELOW {
            time * 1e3
        } else if time < MICROSECONDS_BELOW {
            time
        } else {
            time / 1e3
        };
        Some(us as u64)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Microseconds since 1970.
pub(crate) fn unix_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap_or_default().as_micros() as u64
}

/// Seconds since 1970.
pub(crate) fn unix_s() -> i64 {
    (unix_us() / 1_000_000) as i64
}

/// Seconds are below this until the year 5138, and milliseconds are above it since 1973.
const SECONDS_BELOW: f64 = 1e11;
const MILLISECONDS_BELOW: f64 = 1e14;
const MICROSECONDS_BELOW: f64 = 1e17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_known_by_the_same_key() {
        let id = Pointer::new("id");
        let key = |text: &str| id.key(text.as_bytes());
        assert_eq!(key(r#"{"id":7,"x":1}"#), key(r#"{"y":[],"id": 7}"#));
        assert_ne!(key(r#"{"id":7}"#), key(r#"{"id":8}"#));
        assert_eq!(key(r#"{"x":7}"#), None);
        assert_eq!(key("no json"), None);
        assert_eq!(key(r#"42["a",1]"#), None);
        assert_eq!(key(r#"42{"id":7}"#), key(r#"{"id":7}"#));
        let number = Matching::Regex(Pattern(Regex::new("^4[23]([0-9]+)").unwrap()));
        let key = |message| {
            number.key(Bytes {
                all: message,
                content_at: 0,
            })
        };
        assert_eq!(key(b"4217[1]"), key(b"4317[]"));
        assert_ne!(key(b"4217[1]"), key(b"4318[]"));
        assert_eq!(key(b"44"), None);
        let nested = Pointer::new("/p/n");
        assert!(nested.key(br#"{"p":{"n":"a"}}"#).is_some());
    }

    #[test]
    fn the_number_of_a_message_is_in_its_reply() {
        let matching = Matching::Sequence("+0..+2".parse().unwrap());
        let reply = |message: &'static [u8], content_at| {
            matching.key(Bytes {
                all: message,
                content_at,
            })
        };
        assert_eq!(matching.key_sent(258, b""), reply(&[0x40, 2, 1, 2], 2));
        assert_eq!(matching.key_sent(65_535 + 258, b""), Some(258));
        let long = [0x40, 0x80, 1, 1, 2];
        assert_eq!(
            matching.key_sent(258, b""),
            matching.key(Bytes {
                all: &long,
                content_at: 3
            })
        );
        assert_eq!(reply(&[0x40, 2, 0, 0], 2), None);
        assert_eq!(reply(&[0x40, 2, 1], 2), None);
    }

    #[test]
    fn the_unit_of_a_time_is_told_by_its_size() {
        let at = Pointer::new("at");
        let us = |text: &str| at.time_us(text.as_bytes());
        let expected = Some(1_700_000_000_000_000);
        assert_eq!(us(r#"{"at":1700000000}"#), expected);
        assert_eq!(us(r#"{"at":1700000000000}"#), expected);
        assert_eq!(us(r#"{"at":1700000000000000}"#), expected);
        assert_eq!(us(r#"{"at":1700000000000000000}"#), expected);
        assert_eq!(us(r#"{"at":"soon"}"#), None);
    }
}
