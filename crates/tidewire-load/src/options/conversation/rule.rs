//! Rules in the form of a conversation's file.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::options::OptionError;
use crate::options::matching::regex;
use crate::options::spec::Texts;
use crate::worker::messages::places::Mask;
use crate::worker::messages::pointers::Pointers;
use crate::worker::messages::rules::{Meaning, Rule};
use crate::worker::messages::view::{Part, Reason, Source, Test};
use crate::worker::pointer::is_pointer;
use crate::worker::template::{Names, Template};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RuleText {
    is: Option<String>,
    starts: Option<String>,
    contains: Option<String>,
    json: BTreeMap<String, Value>,
    hex: BTreeMap<String, String>,
    answer: Texts,
    pub(super) capture: BTreeMap<String, String>,
    ready: bool,
    message: bool,
    event: bool,
    fail: Option<String>,
    close: CloseText,
    count: Option<String>,
}

/// `close` of a rule: true, or the reason for which the server ends the session.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "true, or a reason")]
enum CloseText {
    Is(bool),
    Reason(String),
}

impl Default for CloseText {
    fn default() -> Self {
        Self::Is(false)
    }
}

impl RuleText {
    /// The rule.
    ///
    /// # Errors
    /// A condition, a place or a template is wrong.
    pub(super) fn rule(&self, names: &Names, pointers: &mut Pointers) -> Result<Rule, OptionError> {
        let meanings = [
            self.ready.then_some(Meaning::Ready),
            self.message.then_some(Meaning::Message),
            self.event.then_some(Meaning::Event),
            match &self.close {
                CloseText::Is(is) => is.then_some(Meaning::End(None)),
                CloseText::Reason(text) => Some(Meaning::End(Some(reason(text, pointers)?))),
            },
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
        let masks = self.hex.iter().map(|(at, digits)| mask(at, digits));
        let masks = masks.collect::<Result<_, _>>()?;
        let captures = self.captures(names, pointers)?;
        let answers = self.answer.0.iter();
        Ok(Rule {
            test: Test {
                is: bytes(&self.is),
                starts: bytes(&self.starts),
                contains: self.contains.as_deref().map(Part::new),
                values,
                masks,
            },
            captures,
            answers: answers
                .map(|text| Template::message(text.as_bytes(), names).map_err(OptionError::new))
                .collect::<Result<_, _>>()?,
            meaning,
            count: self.count.clone(),
        })
    }

    /// The values to keep, by the numbers of their variables.
    fn captures(
        &self,
        names: &Names,
        pointers: &mut Pointers,
    ) -> Result<Vec<(usize, Source)>, OptionError> {
        let mut captures = Vec::new();
        for (name, from) in &self.capture {
            let place = names.captured.iter().position(|known| known == name);
            let source = source(from, pointers)?.ok_or_else(|| {
                OptionError::new(format_args!(
                    "the capture `{name}` comes from `{from}`: write json:/a/b, regex:id=(\\d+) or bytes:2..4"
                ))
            })?;
            captures.push((place.unwrap_or(0), source));
        }
        Ok(captures)
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
        Some(("bytes", span)) => Some(Source::Bytes(span.parse().map_err(|()| {
            OptionError::new(format_args!(
                "`{text}` names no bytes: write bytes:2..4 or bytes:5.., and bytes:+0..+2 from the end of the length on"
            ))
        })?)),
        _ => None,
    })
}

/// Bytes at a place.
fn mask(at: &str, digits: &str) -> Result<Mask, OptionError> {
    Mask::new(at, digits).ok_or_else(|| {
        OptionError::new(format_args!(
            "`hex` has `{digits}` at `{at}`: write a place such as \"0\", \"+1\" or \"-1\", and two digits for each byte, \
             with ? for any, such as \"3?\""
        ))
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

/// Any value at a pointer.
const ANY: &str = "*";
