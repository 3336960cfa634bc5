//! A message of a server as rules look at it.

use std::cell::OnceCell;

use memchr::memmem::Finder;
use regex_lite::Regex;
use serde_json::Value;
use tidewire_wire::format::msgpack_to_json;

use super::places::{Bytes, Mask, Span};
use super::pointers::Pointers;

/// The reason for which a server refuses.
#[derive(Debug, Clone)]
pub enum Reason {
    /// A text of the user's.
    Text(String),
    /// In the message.
    In(Source),
}

/// A place in a message.
#[derive(Debug, Clone)]
pub enum Source {
    /// The pointer of the conversation with this number.
    Pointer(usize),
    /// The first match of this expression: its first group, or all of it.
    Regex(Regex),
    /// These bytes.
    Bytes(Span),
}

/// Conditions that a message has to meet, all of them.
#[derive(Debug, Clone, Default)]
pub struct Test {
    /// All of it.
    pub is: Option<Vec<u8>>,
    /// Its beginning.
    pub starts: Option<Vec<u8>>,
    /// A part of it.
    pub contains: Option<Part>,
    /// The numbers of pointers, with the value there; any but null without one.
    pub values: Vec<(usize, Option<Value>)>,
    /// Bytes at places.
    pub masks: Vec<Mask>,
}

/// A message, whose JSON is read once and only if it is needed.
pub(super) struct View<'m> {
    bytes: &'m [u8],
    content_at: usize,
    is_binary: bool,
    pointers: &'m Pointers,
    values: OnceCell<Vec<Option<Value>>>,
    present: OnceCell<ByteSet>,
}

/// A part of a message, which is searched only where all of its bytes are.
#[derive(Debug, Clone)]
pub struct Part {
    finder: Finder<'static>,
    bytes: ByteSet,
}

/// A bit for each value of a byte.
type ByteSet = [u64; 4];

fn set_of(bytes: &[u8]) -> ByteSet {
    let mut set = ByteSet::default();
    for byte in bytes {
        set[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    set
}

impl Part {
    /// This text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            finder: Finder::new(text).into_owned(),
            bytes: set_of(text.as_bytes()),
        }
    }

    fn is_in(&self, message: &View<'_>) -> bool {
        let present = message.present.get_or_init(|| set_of(message.bytes));
        let mut both = self.bytes.iter().zip(present);
        both.all(|(needed, present)| needed & !present == 0)
            && self.finder.find(message.bytes).is_some()
    }
}

impl<'m> View<'m> {
    pub(super) fn new(bytes: &'m [u8], is_binary: bool, pointers: &'m Pointers) -> Self {
        Self {
            bytes,
            content_at: 0,
            is_binary,
            pointers,
            values: OnceCell::new(),
            present: OnceCell::new(),
        }
    }

    /// A message that has its length before this place.
    pub(super) fn with_content_at(self, content_at: usize) -> Self {
        Self { content_at, ..self }
    }

    pub(super) fn bytes(&self) -> &'m [u8] {
        self.bytes
    }

    fn placed(&self) -> Bytes<'m> {
        Bytes {
            all: self.bytes,
            content_at: self.content_at,
        }
    }

    /// The value at a pointer.
    pub(super) fn at(&self, pointer: usize) -> Option<&Value> {
        let values = self.values.get_or_init(|| match self.is_binary {
            false => self.pointers.read(self.bytes),
            true => {
                let mut json = Vec::new();
                // A message that is not MessagePack may contain JSON, such as a packet of MQTT.
                match msgpack_to_json(self.bytes, &mut json) {
                    Ok(()) => self.pointers.read(&json),
                    Err(_) => self.pointers.read(self.bytes),
                }
            }
        });
        values.get(pointer)?.as_ref()
    }

    /// The text at a place: a string without its quotes.
    pub(super) fn text(&self, source: &Source) -> Option<Vec<u8>> {
        match source {
            Source::Pointer(pointer) => match self.at(*pointer)? {
                Value::Null => None,
                Value::String(text) => Some(text.clone().into_bytes()),
                other => Some(other.to_string().into_bytes()),
            },
            Source::Regex(regex) => first_group(self.bytes, regex),
            Source::Bytes(span) => span.of(self.placed()).map(<[u8]>::to_vec),
        }
    }

    /// The reason of a failure, shortened.
    pub(super) fn reason(&self, reason: &Reason) -> String {
        let text = match reason {
            Reason::Text(text) => text.clone(),
            Reason::In(source) => {
                let text = self.text(source).unwrap_or_default();
                match source {
                    Source::Bytes(_) => printable(&text),
                    _ => String::from_utf8_lossy(&text).into_owned(),
                }
            }
        };
        text.chars().take(REASON_CHARS_MAX).collect()
    }
}

impl Test {
    /// The first bytes that a message may have, if a condition restricts them.
    pub(super) fn first_bytes(&self) -> Option<Vec<u8>> {
        let of_text = self.starts.as_ref().and_then(|text| text.first());
        let mut of_masks = self.masks.iter().filter_map(Mask::first_bytes);
        let of_masks = of_masks.next().map(Iterator::collect);
        of_masks.or_else(|| of_text.map(|first| vec![*first]))
    }

    pub(super) fn holds(&self, message: &View<'_>) -> bool {
        let bytes = message.bytes;
        let mut values = self.values.iter();
        let mut masks = self.masks.iter();
        self.is.as_ref().is_none_or(|is| bytes == *is)
            && self
                .starts
                .as_ref()
                .is_none_or(|start| bytes.starts_with(start))
            && self
                .contains
                .as_ref()
                .is_none_or(|part| part.is_in(message))
            && masks.all(|mask| mask.holds(message.placed()))
            && values.all(|(pointer, wanted)| match (message.at(*pointer), wanted) {
                (Some(value), Some(wanted)) => value == wanted,
                (value, None) => value.is_some_and(|value| !value.is_null()),
                (None, Some(_)) => false,
            })
    }
}

/// Bytes as text, or as digits such as `0x87` if they are none that can be shown.
fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => {
            let shown = bytes.iter().take(REASON_CHARS_MAX);
            let digits = shown.map(|byte| format!("{byte:02x}"));
            format!("0x{}", digits.collect::<String>())
        }
    }
}

/// The first group of the first match, or all of it if there is no group.
pub(crate) fn first_group(message: &[u8], regex: &Regex) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(message);
    let found = regex.captures(&text)?;
    let value = found.iter().skip(1).flatten().next();
    let value = value.or_else(|| found.get(0))?;
    Some(value.as_str().as_bytes().to_vec())
}

const REASON_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_meets_all_conditions_of_a_test() {
        let mut pointers = Pointers::default();
        let mut value = |pointer: &str, value: Option<Value>| Test {
            values: vec![(pointers.add(pointer), value)],
            ..Test::default()
        };
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let is = Test {
            is: text("2"),
            ..Test::default()
        };
        let both = Test {
            starts: text("42"),
            contains: Some(Part::new("\"error\"")),
            ..Test::default()
        };
        let ping = value("/type", Some("ping".into()));
        let error = value("/0", Some("error".into()));
        let seven = value("/id", Some(7.into()));
        let any = value("/id", None);
        for (test, message, expected) in [
            (&Test::default(), "", true),
            (&is, "2", true),
            (&is, "2probe", false),
            (&both, r#"42["error"]"#, true),
            (&both, r#"43["error"]"#, false),
            (&both, r#"42["other"]"#, false),
            (&ping, r#"{"type":"ping"}"#, true),
            (&ping, r#"{"type":"pong"}"#, false),
            (&ping, "no JSON {", false),
            (&error, r#"42["error"]"#, true),
            (&seven, r#"{"id":7}"#, true),
            (&any, r#"{"id":false}"#, true),
            (&any, r#"{"id":null}"#, false),
        ] {
            let view = View::new(message.as_bytes(), false, &pointers);
            assert_eq!(test.holds(&view), expected, "{test:?} {message}");
        }
        // {"type": "ping"} in MessagePack.
        let packed = b"\x81\xa4type\xa4ping";
        assert!(ping.holds(&View::new(packed, true, &pointers)));
        assert!(!ping.holds(&View::new(b"\xc1", true, &pointers)));
        let in_bytes = b"0\x15\x00\x02{[{\"type\":\"ping\"}";
        assert!(ping.holds(&View::new(in_bytes, true, &pointers)));
    }

    #[test]
    fn bytes_are_shown_as_text_or_as_digits() {
        let pointers = Pointers::default();
        for (message, span, expected) in [
            (&b"\xe0\x01\x87"[..], "2..3", "0x87"),
            (b"\x20\x02\x00\x05", "+1..+2", "0x05"),
            (b"\x01\x00out of order", "2..", "out of order"),
            (b"\x01ok\n", "1..", "0x6f6b0a"),
            (b"\x01", "5..6", ""),
        ] {
            let view = View::new(message, true, &pointers).with_content_at(2);
            let source = Source::Bytes(span.parse().unwrap());
            assert_eq!(view.reason(&Reason::In(source)), expected, "{span}");
        }
        let long = View::new(&[0xff; 4000], true, &pointers);
        let all = Reason::In(Source::Bytes("0..".parse().unwrap()));
        assert_eq!(long.reason(&all).len(), REASON_CHARS_MAX);
    }

    #[test]
    fn values_come_from_json_or_from_an_expression() {
        let mut pointers = Pointers::default();
        let at = ["/sid", "/pingInterval", "/none", "/e"].map(|pointer| pointers.add(pointer));
        let text = b"0{\"sid\":\"a b\",\"pingInterval\":25000,\"none\":null}";
        let message = View::new(text, false, &pointers);
        let [sid, interval, none, _] = at.map(|at| message.text(&Source::Pointer(at)));
        assert_eq!(sid.as_deref(), Some(&b"a b"[..]));
        assert_eq!((interval.as_deref(), none), (Some(&b"25000"[..]), None));
        let regex = |pattern: &str| message.text(&Source::Regex(Regex::new(pattern).unwrap()));
        let found = regex("(x)|Interval\":([0-9]+)");
        assert_eq!(found.as_deref(), Some(&b"25000"[..]));
        assert_eq!(regex("^0").as_deref(), Some(&b"0"[..]));
        let long = format!("{{\"e\":\"{}\"}}", "ä".repeat(500));
        let long = View::new(long.as_bytes(), false, &pointers);
        let reason = long.reason(&Reason::In(Source::Pointer(at[3])));
        assert_eq!(reason.chars().count(), REASON_CHARS_MAX);
    }
}
