//! Conversations in the form of their files: the protocols of other WebSocket servers.

mod rule;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::matching::matching;
use super::{OptionError, distinct, quantity};
use crate::worker::inputs;
use crate::worker::messages::Matching;
use crate::worker::messages::conversation::{Conversation, Every, Heartbeat};
use crate::worker::messages::framing::Framing;
use crate::worker::messages::pointers::Pointers;
use crate::worker::messages::rules::Rules;
use crate::worker::template::form::Form;
use crate::worker::template::{Escape, Names, Syntax, Template};
use rule::RuleText;

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
    /// The place of the length of a message.
    length: Option<LengthText>,
    /// Values that its user may set, with those without that.
    values: BTreeMap<String, String>,
    start: Vec<String>,
    send: Option<String>,
    subscribe: Option<String>,
    /// The message, if the user gives none.
    pub message: Option<String>,
    reply: Option<String>,
    #[serde(rename = "rule")]
    rules: Vec<RuleText>,
    #[serde(rename = "every")]
    heartbeats: Vec<HeartbeatText>,
    /// Variables that a scenario captures, see [`Self::read_with`].
    #[serde(skip)]
    further: Vec<String>,
    /// The values as texts, see [`Self::set`].
    #[serde(skip)]
    known: Vec<(String, Template)>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LengthText {
    at: u16,
    size: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeartbeatText {
    interval: String,
    send: String,
}

/// The text around a message.
#[derive(Debug, Clone)]
pub struct Envelope(Template);

impl Default for Envelope {
    /// Nothing.
    fn default() -> Self {
        Self(Template::hole())
    }
}

impl Envelope {
    /// The message as it is sent.
    #[must_use]
    pub fn around(&self, message: &Template) -> Template {
        self.0.filled(message)
    }
}

impl ConversationFile {
    /// Reads a conversation: one that the program has, by its name, or a file.
    ///
    /// # Errors
    /// No conversation has this name, the file cannot be read, or it is no conversation.
    pub fn read(name: &str) -> Result<Self, OptionError> {
        Self::read_with(name, Vec::new())
    }

    /// The same, whose texts may use the variables that a scenario captures, too.
    ///
    /// # Errors
    /// As those of [`Self::read`].
    pub fn read_with(name: &str, variables: Vec<String>) -> Result<Self, OptionError> {
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
            None => inputs::read_to_string(Path::new(name))
                .map_err(|error| OptionError::unreadable(Path::new(name), &error))?,
        };
        Self::of(&text, variables)
            .map_err(|error| OptionError::new(format_args!("{name}: {error}")))
    }

    /// The conversation in a text, with its own values.
    fn of(text: &str, variables: Vec<String>) -> Result<Self, OptionError> {
        let mut file: Self = toml::from_str(text).map_err(OptionError::new)?;
        file.further = variables;
        let captured = file.names();
        for (name, value) in &file.values {
            check_name(name, &captured)?;
            file.known
                .push((name.clone(), known_value(name, value, &captured)?));
        }
        file.conversation()?;
        file.envelope()?;
        file.subscription()?;
        file.matching()?;
        Ok(file)
    }

    /// Sets some of its values.
    ///
    /// # Errors
    /// It has no value of this name, or a text that needs it is wrong with it.
    pub fn set(&mut self, given: &[(String, String)], syntax: &Syntax) -> Result<(), OptionError> {
        let names = Names {
            known: Vec::new(),
            syntax: syntax.clone(),
            ..self.names()
        };
        for (name, value) in given {
            let place = self.known.iter().position(|(known, _)| known == name);
            let place = place.ok_or_else(|| self.unknown(name))?;
            self.known[place].1 = known_value(name, value, &names)?;
        }
        self.conversation()?;
        self.envelope()?;
        self.subscription().map(drop)
    }

    fn unknown(&self, name: &str) -> OptionError {
        let names: Vec<&str> = self.values.keys().map(String::as_str).collect();
        OptionError::new(match names.is_empty() {
            true => format!("the profile has no values, and {name} is set: remove --set"),
            false => format!(
                "the profile has no value {name}: set one of {}",
                names.join(", ")
            ),
        })
    }

    /// The names of what it captures.
    #[must_use]
    pub fn captured(&self) -> Vec<String> {
        distinct(self.rules.iter().flat_map(|rule| rule.capture.keys()))
    }

    /// The names of its values, of what it captures, and of what a scenario does, which messages may use.
    #[must_use]
    pub fn names(&self) -> Names {
        let mut captured = self.captured();
        captured.extend(self.further.iter().cloned());
        Names {
            captured,
            known: self.known.clone(),
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

    /// The text around each message.
    ///
    /// # Errors
    /// A wrong template.
    pub fn envelope(&self) -> Result<Envelope, OptionError> {
        let mut whole = self.around("send", self.send.as_deref())?;
        whole.push_fixed(self.separator.as_deref().unwrap_or_default().as_bytes());
        Ok(Envelope(whole))
    }

    /// The text around each subscription, without a separator.
    ///
    /// # Errors
    /// A wrong template.
    pub fn subscription(&self) -> Result<Envelope, OptionError> {
        self.around("subscribe", self.subscribe.as_deref())
            .map(Envelope)
    }

    fn around(&self, field: &str, text: Option<&str>) -> Result<Template, OptionError> {
        let mut names = self.names();
        names.known.push((MESSAGE.to_owned(), Template::hole()));
        let Some(text) = text else {
            return Ok(Template::hole());
        };
        let whole = template(text, &names)?;
        match whole.has_hole() {
            true => Ok(whole),
            false => Err(OptionError::new(format_args!(
                "`{field}` must contain {{{{{MESSAGE}}}}}: the place of the message of the load"
            ))),
        }
    }

    /// How messages are found in frames.
    fn framing(&self) -> Result<Framing, OptionError> {
        match (&self.separator, &self.length) {
            (Some(_), Some(_)) => Err(OptionError::new(
                "`separator` and `length` exclude each other: give what ends a message, or its length",
            )),
            (Some(separator), None) if separator.is_empty() => Err(OptionError::new(
                "`separator` is empty: write the text that ends a message, or remove it",
            )),
            (Some(separator), None) => Ok(Framing::Separator(separator.clone().into_bytes())),
            (None, Some(length)) => {
                let form = Form::of(&length.size).ok_or_else(|| {
                    let known: Vec<&str> = Form::ALL.iter().map(|(name, _)| *name).collect();
                    OptionError::new(format_args!(
                        "`length` has the size `{}`: write one of {}",
                        length.size,
                        known.join(", ")
                    ))
                })?;
                Ok(Framing::Length {
                    at: length.at.into(),
                    form,
                })
            }
            (None, None) => Ok(Framing::Frames),
        }
    }

    /// The conversation.
    ///
    /// # Errors
    /// A rule, a template or a place is wrong: the message names it.
    pub fn conversation(&self) -> Result<Conversation, OptionError> {
        let framing = self.framing()?;
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
            framing,
            pointers,
        })
    }
}

fn template(text: &str, names: &Names) -> Result<Template, OptionError> {
    Template::message(text.as_bytes(), names).map_err(OptionError::new)
}

/// A value that texts may use.
fn known_value(name: &str, text: &str, names: &Names) -> Result<Template, OptionError> {
    Template::of(text.as_bytes(), names, Escape::None)
        .map_err(|error| OptionError::new(format_args!("the value {name}: {error}")))
}

/// That the name of a value can be written between braces, and means nothing else.
fn check_name(name: &str, captured: &Names) -> Result<(), OptionError> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    if name.is_empty() || !name.chars().all(is_word) || [MESSAGE, "end"].contains(&name) {
        return Err(OptionError::new(format_args!(
            "the value `{name}` needs another name: letters, digits, _ and -, and neither {MESSAGE} nor end"
        )));
    }
    let names = Names {
        known: vec![(name.to_owned(), Template::default())],
        ..captured.clone()
    };
    template(&format!("{{{{{name}}}}}"), &names).map(drop)
}

/// A time such as `25s`, a value, or a captured number with its unit such as `{{interval}}ms`.
fn every(text: &str, names: &Names) -> Result<Every, OptionError> {
    let captured = text
        .strip_prefix("{{")
        .and_then(|rest| rest.split_once("}}"));
    let Some((name, unit)) = captured else {
        return quantity::duration(text).map(Every::Fixed);
    };
    let known = names.known.iter().find(|(known, _)| known == name.trim());
    if let Some((name, value)) = known {
        let value = value.as_fixed().map(String::from_utf8_lossy);
        let value = value.ok_or_else(|| {
            OptionError::new(format_args!(
                "the interval `{text}`: the value {name} is not constant"
            ))
        })?;
        return quantity::duration(&format!("{value}{unit}")).map(Every::Fixed);
    }
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

/// The name of a message where it is surrounded.
const MESSAGE: &str = "message";

/// The conversations that the program has.
pub const SHIPPED: [(&str, &str); 9] = [
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
    ("mqtt", include_str!("../../conversations/mqtt.toml")),
    ("mqtt5", include_str!("../../conversations/mqtt5.toml")),
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
        let file = ConversationFile::of(text, Vec::new());
        let conversation = file.and_then(|file| file.conversation());
        conversation.map_err(|error| error.to_string())
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
    fn wrong_bytes_and_values_say_what_to_write() {
        for (text, expected) in [
            ("subscribe = '42'", "`subscribe` must contain {{message}}"),
            (
                "separator = 'a'\nlength = { at = 0, size = 'u8' }",
                "`separator` and `length` exclude each other",
            ),
            (
                "length = { at = 0, size = 'u9' }",
                "write one of varint, u8",
            ),
            ("length = { at = -1, size = 'u8' }", "invalid value"),
            ("[[rule]]\nhex = { '0' = '4' }", "`hex` has `4` at `0`"),
            ("[[rule]]\nhex = { 'a' = '40' }", "`hex` has `40` at `a`"),
            (
                "[[rule]]\nfail = 'bytes:4'",
                "rule 1: `bytes:4` names no bytes",
            ),
            ("[[rule]]\nclose = 'json:a'", "`a` is not a JSON pointer"),
            ("[[rule]]\nclose = 1", "true, or a reason"),
            ("reply = 'seq:2..5'", "seq:2..4"),
            ("start = ['{{hex:1}}']", "two hexadecimal digits"),
            ("start = ['{{size:u9}}']", "no form of a number"),
            ("start = ['{{u24:seq}}']", "no form of a number"),
            ("start = ['{{u16:}}']", "needs a number"),
            ("start = ['{{u16:uuid}}']", "needs a number"),
            ("start = ['{{end}}']", "ends nothing"),
            ("start = ['{{with:a}}']", "needs the name of a value"),
            (
                "[values]\na = '{{size:u8}}'",
                "the value a: `{{size:u8}}` makes bytes",
            ),
            (
                "[values]\na = '{{b}}'\nb = ''",
                "the value a: `{{b}}` stands for nothing",
            ),
            ("[values]\nseq = ''", "`{{seq}}` is a built-in value"),
            ("[values]\nmessage = ''", "needs another name"),
            ("[values]\n'a b' = ''", "needs another name"),
            (
                "start = ['{{u8:a}}']\n[values]\na = '256'",
                "256 does not fit into u8",
            ),
            ("start = ['{{u8:a}}']\n[values]\na = 'x'", "needs a number"),
            (
                "[[every]]\ninterval = '{{a}}ms'\nsend = 'a'",
                "no rule captures `a`",
            ),
        ] {
            let error = file(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn values_are_set_by_name() {
        let text = "start = ['a {{topic}} {{with:login}}login {{login}}{{end}}{{without:login}}anonymous{{end}}']\n\
             [values]\ntopic = 'tidewire'\nlogin = ''";
        let mut file = ConversationFile::of(text, Vec::new()).unwrap();
        let start = |file: &ConversationFile| {
            let start = file.conversation().unwrap().start.remove(0);
            start
                .as_fixed()
                .map(|text| String::from_utf8_lossy(text).into_owned())
        };
        assert_eq!(start(&file).as_deref(), Some("a tidewire anonymous"));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let given = [pair("login", "me"), pair("topic", "b")];
        file.set(&given, &Syntax::Braces).unwrap();
        assert_eq!(start(&file).as_deref(), Some("a b login me"));
        file.set(&[pair("topic", "{{user}}")], &Syntax::Literal)
            .unwrap();
        assert_eq!(start(&file).as_deref(), Some("a {{user}} login me"));
        file.set(&[pair("topic", "{{user}}")], &Syntax::Braces)
            .unwrap();
        assert_eq!(start(&file), None);
        let error = file.set(&[pair("tpoic", "secret")], &Syntax::Braces);
        let error = error.unwrap_err().to_string();
        assert_eq!(
            error,
            "the profile has no value tpoic: set one of login, topic"
        );
        let error = file.set(&[pair("login", "{{secret")], &Syntax::Braces);
        assert!(!error.unwrap_err().to_string().contains("secret"));
        let none = ConversationFile::default().set(&given, &Syntax::Braces);
        assert!(none.unwrap_err().to_string().contains("has no values"));
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
        let set = |value: &str| Names {
            known: vec![("b".into(), Template::fixed(value.as_bytes()))],
            ..Names::default()
        };
        assert_eq!(every("{{b}}ms", &set("1500")), Ok(fixed));
        assert_eq!(every("{{b}}", &set("1.5s")), Ok(fixed));
        assert!(every("{{b}}", &set("soon")).is_err());
        let seconds = Every::Captured(1, Duration::from_secs(1));
        assert_eq!(every("{{b}}", &names), Ok(seconds));
        assert!(every("{{b}}x", &names).is_err());
    }
}
