//! Conversations: what a session of another protocol sends besides the messages of a load, and what the messages of
//! its server mean.

use std::cell::OnceCell;
use std::time::Duration;

use memchr::memmem::Finder;
use regex_lite::Regex;
use serde_json::Value;
use tidewire_wire::format::msgpack_to_json;

use super::pointers::Pointers;
use crate::worker::template::Template;

/// A conversation. Its captured values are the first variables of the script.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Sent by each connection after the upgrade.
    pub start: Vec<Template>,
    /// What the server's messages mean: the first rule that holds counts. A message without a rule belongs to the
    /// load.
    pub rules: Vec<Rule>,
    /// Sent again and again by each connection that is ready.
    pub beats: Vec<Beat>,
    /// Bytes that end a message: a frame may contain several.
    pub separator: Option<Vec<u8>>,
    /// The places that rules look at: in JSON, or in the MessagePack of a binary message.
    pub pointers: Pointers,
}

/// What some messages of a server mean.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The messages.
    pub test: Test,
    /// The values to keep of them.
    pub captures: Vec<(usize, Source)>,
    /// What is sent back.
    pub answers: Vec<Template>,
    /// What it means.
    pub meaning: Meaning,
    /// The name under which they are counted.
    pub count: Option<String>,
}

/// The meaning of a message.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// A part of the protocol: nothing more.
    Protocol,
    /// The session is ready for the messages of the load.
    Ready,
    /// It belongs to the load: the answer to a message, or one that was not asked for.
    Message,
    /// The server refuses a message, or the session: the reason.
    Failure(Reason),
    /// The server ends the session.
    End,
}

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
}

/// Conditions that a message has to meet, all of them.
#[derive(Debug, Clone, Default)]
pub struct Test {
    /// All of it.
    pub is: Option<Vec<u8>>,
    /// Its beginning.
    pub starts: Option<Vec<u8>>,
    /// A part of it.
    pub contains: Option<Finder<'static>>,
    /// The numbers of pointers, with the value there; any but null without one.
    pub values: Vec<(usize, Option<Value>)>,
}

/// A message that is sent again and again.
#[derive(Debug, Clone)]
pub struct Beat {
    /// The time between two.
    pub every: Every,
    /// The message.
    pub message: Template,
}

/// The time between two messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Every {
    /// Always the same.
    Fixed(Duration),
    /// A captured number of this unit.
    Captured(usize, Duration),
}

impl Conversation {
    /// Whether a session is ready only when its server says so.
    #[must_use]
    pub fn waits(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| matches!(rule.meaning, Meaning::Ready))
    }

    /// The messages of a frame.
    pub(super) fn messages<'m>(&self, frame: &'m [u8]) -> Vec<&'m [u8]> {
        let Some(separator) = &self.separator else {
            return vec![frame];
        };
        let mut messages = Vec::new();
        let mut rest = frame;
        while let Some(at) = memchr::memmem::find(rest, separator) {
            messages.push(&rest[..at]);
            rest = &rest[at + separator.len()..];
        }
        if !rest.is_empty() {
            messages.push(rest);
        }
        messages
    }

    /// The first rule that holds for a message.
    pub(super) fn rule(&self, message: &View<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.test.holds(message))
    }
}

impl Every {
    /// The time, with these captured values; `None` for one that is no number above 0.
    pub(super) fn ns(self, captured: &[Vec<u8>]) -> Option<u64> {
        let time = match self {
            Self::Fixed(time) => time,
            Self::Captured(variable, unit) => {
                let text = std::str::from_utf8(captured.get(variable)?).ok()?;
                let number: f64 = text.trim().parse().ok()?;
                Duration::try_from_secs_f64(unit.as_secs_f64() * number).ok()?
            }
        };
        Some(time.max(BEAT_MIN).as_nanos() as u64).filter(|_| !time.is_zero())
    }
}

/// A message, whose JSON is read once and only if it is needed.
pub(super) struct View<'m> {
    bytes: &'m [u8],
    is_binary: bool,
    pointers: &'m Pointers,
    values: OnceCell<Vec<Option<Value>>>,
}

impl<'m> View<'m> {
    pub(super) fn new(bytes: &'m [u8], is_binary: bool, pointers: &'m Pointers) -> Self {
        Self {
            bytes,
            is_binary,
            pointers,
            values: OnceCell::new(),
        }
    }

    /// The value at a pointer.
    fn at(&self, pointer: usize) -> Option<&Value> {
        let values = self.values.get_or_init(|| match self.is_binary {
            false => self.pointers.read(self.bytes),
            true => {
                let mut json = Vec::new();
                match msgpack_to_json(self.bytes, &mut json) {
                    Ok(()) => self.pointers.read(&json),
                    Err(_) => Vec::new(),
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
        }
    }

    /// The reason of a failure, shortened.
    pub(super) fn reason(&self, reason: &Reason) -> String {
        let text = match reason {
            Reason::Text(text) => text.clone(),
            Reason::In(source) => {
                let text = self.text(source).unwrap_or_default();
                String::from_utf8_lossy(&text).into_owned()
            }
        };
        text.chars().take(REASON_CHARS_MAX).collect()
    }
}

impl Test {
    fn holds(&self, message: &View<'_>) -> bool {
        let bytes = message.bytes;
        let mut values = self.values.iter();
        self.is.as_ref().is_none_or(|is| bytes == *is)
            && self
                .starts
                .as_ref()
                .is_none_or(|start| bytes.starts_with(start))
            && self
                .contains
                .as_ref()
                .is_none_or(|part| part.find(bytes).is_some())
            && values.all(|(pointer, wanted)| match (message.at(*pointer), wanted) {
                (Some(value), Some(wanted)) => value == wanted,
                (value, None) => value.is_some_and(|value| !value.is_null()),
                (None, Some(_)) => false,
            })
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

/// No server can ask for more.
const BEAT_MIN: Duration = Duration::from_millis(10);

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
            contains: Some(Finder::new("\"error\"").into_owned()),
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

    #[test]
    fn a_frame_may_contain_several_messages() {
        let mut conversation = Conversation::default();
        assert_eq!(conversation.messages(b"a\x1eb"), [&b"a\x1eb"[..]]);
        conversation.separator = Some(b"\x1e".to_vec());
        assert_eq!(conversation.messages(b"a\x1eb\x1e"), [b"a", b"b"]);
        assert_eq!(conversation.messages(b"a\x1e\x1eb"), [&b"a"[..], b"", b"b"]);
        assert!(conversation.messages(b"").is_empty());
    }

    #[test]
    fn a_captured_interval_is_used_if_it_is_one() {
        let ms = Every::Captured(0, Duration::from_millis(1));
        let ns = |text: &str| ms.ns(&[text.as_bytes().to_vec()]);
        assert_eq!(ns("25000"), Some(25_000_000_000));
        assert_eq!(
            ns("0.5"),
            Some(10_000_000),
            "no more than a hundred a second"
        );
        for wrong in ["", "0", "-1", "x", "1e300"] {
            assert_eq!(ns(wrong), None, "{wrong}");
        }
        assert_eq!(
            Every::Fixed(Duration::from_secs(1)).ns(&[]),
            Some(1_000_000_000)
        );
    }
}
