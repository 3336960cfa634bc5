//! Conversations in the form of their files: the protocols of other WebSocket servers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::matching::{matching, regex};
use super::spec::Texts;
use super::{OptionError, quantity};
use crate::worker::messages::Matching;
use crate::worker::messages::conversation::{Conversation, Every, Heartbeat};
use crate::worker::messages::pointers::Pointers;
use crate::worker::messages::rules::{Meaning, Rule, Rules};
use crate::worker::messages::view::{Part, Reason, Source, Test};
use crate::worker::pointer::is_pointer;
use crate::worker::template::{Escape, Names, Template};

/// A conversation, as it is written in its file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConversationFile {
    /// Path and query, if the URL has none.
    pub path: Option<String>,
    /// Subprotocols to offer.
    pub subprotocols: Vec<String>,
    /// Whether messages are binary.
    pub binary: bool,
    /// The bytes that end a message.
    separator: Option<String>,
    start: Vec<String>,
    send: Option<String>,
    /// The message, if the user gives none.
    pub message: Option<String>,
    reply: Option<String>,
    #[serde(rename = "rule")]
    rules: Vec<RuleText>,
    #[serde(rename = "every")]
    heartbeats: Vec<HeartbeatText>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RuleText {
    is: Option<String>,
    starts: Option<String>,
    contains: Option<String>,
    json: BTreeMap<String, Value>,
    answer: Texts,
    capture: BTreeMap<String, String>,
    ready: bool,
    message: bool,
    event: bool,
    fail: Option<String>,
    close: bool,
    count: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeartbeatText {
    interval: String,
    send: String,
}

/// What surrounds each message of a load.
#[derive(Debug, Clone, Default)]
pub struct Envelope {
    before: Template,
    after: Template,
}

impl Envelope {
    /// The message as it is sent.
    #[must_use]
    pub fn around(&self, message: &Template) -> Template {
        let mut whole = self.before.clone();
        whole.append(message);
        whole.append(&self.after);
        whole
    }
}

impl ConversationFile {
    /// Reads a conversation: one that the program has, by its name, or a file.
    ///
    /// # Errors
    /// No conversation has this name, the file cannot be read, or it is no conversation.
    pub fn read(name: &str) -> Result<Self, OptionError> {
        let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
        let text = match shipped {
            Some((_, text)) => (*text).to_owned(),
            None if Path::new(name)
                .extension()
                .is_none_or(|ending| ending != "toml") =>
            {
                let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
                return Err(OptionError::new(format_args!(
                    "`{name}` is not a profile: write raw, v1, {} or the path of a file that ends in .toml",
                    names.join(", ")
                )));
            }
            None => std::fs::read_to_string(name)
                .map_err(|error| OptionError::unreadable(Path::new(name), &error))?,
        };
        let file: Self = toml::from_str(&text)
            .map_err(|error| OptionError::new(format_args!("{name}: {error}")))?;
        file.conversation()
            .and_then(|_| file.envelope())
            .and_then(|_| file.matching())
            .map_err(|error| OptionError::new(format_args!("{name}: {error}")))?;
        Ok(file)
    }

    /// The names of its captured values, which messages may use.
    #[must_use]
    pub fn names(&self) -> Names {
        let mut captured: Vec<String> = Vec::new();
        for name in self.rules.iter().flat_map(|rule| rule.capture.keys()) {
            if !captured.contains(name) {
                captured.push(name.clone());
            }
        }
        Names {
            captured,
            ..Names::default()
        }
    }

    /// How a message is known to have arrived, if the file says it.
    ///
    /// # Errors
    /// The text does not define a way to match.
    pub fn matching(&self) -> Result<Option<Matching>, OptionError> {
        self.reply.as_deref().map(matching).transpose()
    }

    /// What surrounds each message.
    ///
    /// # Errors
    /// A wrong template.
    pub fn envelope(&self) -> Result<Envelope, OptionError> {
        let text = self.send.as_deref().unwrap_or(MESSAGE);
        let (before, after) = text.split_once(MESSAGE).ok_or_else(|| {
            OptionError::new(format_args!(
                "`send` must contain {MESSAGE}: the place of the message of the load"
            ))
        })?;
        let names = self.names();
        let mut after = template(after, &names)?;
        after.push_fixed(self.separator.as_deref().unwrap_or_default().as_bytes());
        Ok(Envelope {
            before: template(before, &names)?,
            after,
        })
    }

    /// The conversation.
    ///
    /// # Errors
    /// A rule, a template or a place is wrong: the message names it.
    pub fn conversation(&self) -> Result<Conversation, OptionError> {
        if self.separator.as_deref() == Some("") {
            return Err(OptionError::new(
                "`separator` is empty: write the text that ends a message, or remove it",
            ));
        }
        let names = self.names();
        let mut pointers = Pointers::default();
        let start = self.start.iter().map(|text| template(text, &names));
        let rules = (1..).zip(&self.rules).map(|(number, rule)| {
            rule.rule(&names, &mut pointers)
                .map_err(|error| OptionError::new(format_args!("rule {number}: {error}")))
        });
        let heartbeats = self.heartbeats.iter().map(|heartbeat| {
            Ok(Heartbeat {
                every: every(&heartbeat.interval, &names)?,
                message: template(&heartbeat.send, &names)?,
            })
        });
        let rules = rules.collect::<Result<_, OptionError>>()?;
        Ok(Conversation {
            start: start.collect::<Result<_, _>>()?,
            rules: Rules::new(rules),
            heartbeats: heartbeats.collect::<Result<_, OptionError>>()?,
            separator: self.separator.clone().map(String::into_bytes),
            pointers,
        })
    }
}

impl RuleText {
    fn rule(&self, names: &Names, pointers: &mut Pointers) -> Result<Rule, OptionError> {
        let meanings = [
            self.ready.then_some(Meaning::Ready),
            self.message.then_some(Meaning::Message),
            self.event.then_some(Meaning::Event),
            self.close.then_some(Meaning::End),
            self.fail
                .as_deref()
                .map(|text| reason(text, pointers))
                .transpose()?
                .map(Meaning::Failure),
        ];
        let mut meanings = meanings.into_iter().flatten();
        let meaning = meanings.next().unwrap_or(Meaning::Protocol);
        if meanings.next().is_some() {
            return Err(OptionError::new(
                "`ready`, `message`, `event`, `fail` and `close` exclude each other: give one of them",
            ));
        }
        let bytes = |text: &Option<String>| text.clone().map(String::into_bytes);
        let mut values = Vec::new();
        for (pointer, value) in &self.json {
            let wanted = (value.as_str() != Some(ANY)).then(|| value.clone());
            values.push((add_pointer(pointer, pointers)?, wanted));
        }
        let mut captures = Vec::new();
        for (name, from) in &self.capture {
            let place = names.captured.iter().position(|known| known == name);
            let source = source(from, pointers)?.ok_or_else(|| {
                OptionError::new(format_args!(
                    "the capture `{name}` comes from `{from}`: write json:/a/b or regex:id=(\\d+)"
                ))
            })?;
            captures.push((place.unwrap_or(0), source));
        }
        let answers = self.answer.0.iter();
        Ok(Rule {
            test: Test {
                is: bytes(&self.is),
                starts: bytes(&self.starts),
                contains: self.contains.as_deref().map(Part::new),
                values,
            },
            captures,
            answers: answers
                .map(|text| template(text, names))
                .collect::<Result<_, _>>()?,
            meaning,
            count: self.count.clone(),
        })
    }
}

/// The reason of a failure: a place in the message, or a text.
fn reason(text: &str, pointers: &mut Pointers) -> Result<Reason, OptionError> {
    let place = source(text, pointers)?;
    Ok(place.map_or_else(|| Reason::Text(text.to_owned()), Reason::In))
}

/// A place in a message, if the text is meant as one.
fn source(text: &str, pointers: &mut Pointers) -> Result<Option<Source>, OptionError> {
    Ok(match text.split_once(':') {
        Some(("json", pointer)) => Some(Source::Pointer(add_pointer(pointer, pointers)?)),
        Some(("regex", pattern)) => Some(Source::Regex(regex(pattern)?)),
        _ => None,
    })
}

/// The number of a pointer.
fn add_pointer(pointer: &str, pointers: &mut Pointers) -> Result<usize, OptionError> {
    match is_pointer(pointer) {
        true => Ok(pointers.add(pointer)),
        false => Err(OptionError::new(format_args!(
            "`{pointer}` is not a JSON pointer: write /a/b"
        ))),
    }
}

fn template(text: &str, names: &Names) -> Result<Template, OptionError> {
    Template::of(text.as_bytes(), names, Escape::None).map_err(OptionError::new)
}

/// A time such as `25s`, or a captured number with its unit such as `{{interval}}ms`.
fn every(text: &str, names: &Names) -> Result<Every, OptionError> {
    let captured = text
        .strip_prefix("{{")
        .and_then(|rest| rest.split_once("}}"));
    let Some((name, unit)) = captured else {
        return quantity::duration(text).map(Every::Fixed);
    };
    let variable = names.captured.iter().position(|known| known == name.trim());
    let variable = variable.ok_or_else(|| {
        OptionError::new(format_args!(
            "the interval `{text}`: no rule captures `{}`",
            name.trim()
        ))
    })?;
    let unit: Duration = quantity::duration(&format!("1{unit}"))?;
    Ok(Every::Captured(variable, unit))
}

/// The place of a message in `send`.
const MESSAGE: &str = "{{message}}";

/// Any value at a pointer.
const ANY: &str = "*";

/// The conversations that the program has.
pub const SHIPPED: [(&str, &str); 7] = [
    (
        "action-cable",
        include_str!("../../conversations/action-cable.toml"),
    ),
    (
        "centrifugo",
        include_str!("../../conversations/centrifugo.toml"),
    ),
    (
        "graphql-ws",
        include_str!("../../conversations/graphql-ws.toml"),
    ),
    ("phoenix", include_str!("../../conversations/phoenix.toml")),
    ("signalr", include_str!("../../conversations/signalr.toml")),
    (
        "socket.io",
        include_str!("../../conversations/socket.io.toml"),
    ),
    ("stomp", include_str!("../../conversations/stomp.toml")),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<Conversation, String> {
        let file: ConversationFile = toml::from_str(text).map_err(|error| error.to_string())?;
        let checked = file.envelope().and_then(|_| file.matching());
        checked
            .and_then(|_| file.conversation())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_shipped_conversation_is_one() {
        for (name, _) in SHIPPED {
            let file = ConversationFile::read(name).unwrap();
            assert!(!file.rules.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_wrong_conversation_says_what_is_wrong() {
        for (text, expected) in [
            ("strat = []", "unknown field `strat`"),
            ("separator = ''", "`separator` is empty"),
            ("send = '42'", "`send` must contain {{message}}"),
            ("start = ['{{sid}}']", "`{{sid}}` stands for nothing"),
            ("reply = 'maybe'", "does not define how to match"),
            ("reply = 'regex:('", "not a regular expression"),
            ("[[rule]]\nready = true\nclose = true", "rule 1: `ready`"),
            (
                "[[rule]]\njson = { 'a/b' = 1 }",
                "`a/b` is not a JSON pointer",
            ),
            (
                "[[rule]]\ncapture = { a = 'header:a' }",
                "rule 1: the capture `a`",
            ),
            ("[[rule]]\nfail = 'json:a'", "`a` is not a JSON pointer"),
            ("[[every]]\ninterval = '5x'\nsend = 'a'", "5x"),
            (
                "[[every]]\ninterval = '{{a}}ms'\nsend = 'a'",
                "no rule captures `a`",
            ),
        ] {
            let error = file(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = ConversationFile::read("soket.io").unwrap_err().to_string();
        assert!(error.contains("socket.io, stomp or the path"), "{error}");
        let error = ConversationFile::read("/none.toml")
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot read /none.toml"), "{error}");
    }

    #[test]
    fn intervals_are_times_or_captured_numbers() {
        let names = Names {
            captured: vec!["a".into(), "b".into()],
            ..Names::default()
        };
        let fixed = Every::Fixed(Duration::from_millis(1500));
        assert_eq!(every("1.5s", &names), Ok(fixed));
        let captured = Every::Captured(1, Duration::from_millis(1));
        assert_eq!(every("{{ b }}ms", &names), Ok(captured));
        let seconds = Every::Captured(1, Duration::from_secs(1));
        assert_eq!(every("{{b}}", &names), Ok(seconds));
        assert!(every("{{b}}x", &names).is_err());
    }
}
