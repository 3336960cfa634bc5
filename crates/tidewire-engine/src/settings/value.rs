//! Values of options: each is checked against its kind and brought into one form.

use super::spec::{Item, Kind, OptionSpec};
use crate::auth::hosts;
use crate::auth::network::Network;
use crate::topics::access::{AccessRules, InvalidRules, Rules};
use serde_json::Value;
use std::net::{SocketAddr, ToSocketAddrs};

/// A value that is one of its option's kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Checked {
    Integer(u64),
    Boolean(bool),
    /// Choices in the spelling of the table, texts, ratios, secrets, paths of files and addresses.
    Text(String),
    List(Vec<String>),
    Counts(Vec<(String, usize)>),
}

impl Checked {
    /// The value as people read it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Boolean(yes) => yes.to_string(),
            Self::Text(text) => text.clone(),
            Self::List(items) => items.join(", "),
            Self::Counts(counts) => {
                let counts = counts.iter();
                let counts = counts.map(|(pattern, count)| format!("{pattern}={count}"));
                counts.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// A value that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unusable {
    /// As it was given, if it may be shown.
    pub(super) value: Option<String>,
    /// The expected kind of value.
    pub(super) problem: String,
}

/// Reads a value. `is_text` is true if everything in its source is text: numbers and booleans are read from
/// texts, and commas separate the items of a list.
pub(super) fn check(spec: &OptionSpec, value: &Value, is_text: bool) -> Result<Checked, Unusable> {
    let read = match spec.kind {
        Kind::Integer { smallest, largest } => {
            let in_range = |number: &u64| (smallest..=largest).contains(number);
            number(value, is_text)
                .filter(in_range)
                .map(Checked::Integer)
        }
        Kind::Numbers(known) => {
            let is_known = |number: &u64| known.contains(number);
            number(value, is_text)
                .filter(is_known)
                .map(Checked::Integer)
        }
        Kind::Boolean => boolean(value, is_text).map(Checked::Boolean),
        Kind::Choice(known) => choice(value, known).map(Checked::Text),
        Kind::Text | Kind::Secret | Kind::File => text(value).map(Checked::Text),
        Kind::Ratio => ratio(value, is_text).map(|ratio| Checked::Text(ratio.to_string())),
        Kind::Address => text(value)
            .filter(|text| address(text).is_some())
            .map(Checked::Text),
        Kind::List(item) => return list(spec, item, value, is_text),
        Kind::Counts => return counts(value, is_text),
        // Rules are read key by key.
        Kind::Rules => None,
    };
    read.ok_or_else(|| Unusable {
        value: (spec.kind != Kind::Secret).then(|| shown(value)),
        problem: expected(spec, value),
    })
}

/// The first address of a text such as `127.0.0.1:5006`.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    text.to_socket_addrs().ok()?.next()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn number(value: &Value, is_text: bool) -> Option<u64> {
    match value {
        Value::String(digits) if is_text => digits.parse().ok(),
        _ => value.as_u64(),
    }
}

fn ratio(value: &Value, is_text: bool) -> Option<f64> {
    let ratio: f64 = match value {
        Value::String(digits) if is_text => digits.trim().parse().ok()?,
        _ => value.as_f64()?,
    };
    (0.0..=1.0).contains(&ratio).then_some(ratio)
}

fn boolean(value: &Value, is_text: bool) -> Option<bool> {
    match value {
        Value::String(word) if is_text => word.parse().ok(),
        _ => value.as_bool(),
    }
}

fn choice(value: &Value, known: &[&str]) -> Option<String> {
    let given = value.as_str()?.replace('-', "_");
    let chosen = known.iter().find(|word| word.replace('-', "_") == given);
    chosen.map(|&word| word.to_owned())
}

fn list(spec: &OptionSpec, item: Item, value: &Value, is_text: bool) -> Result<Checked, Unusable> {
    let items = texts(value, is_text).ok_or_else(|| Unusable {
        value: Some(shown(value)),
        problem: expected(spec, value),
    })?;
    for text in &items {
        check_item(item, text).map_err(|problem| Unusable {
            value: Some(format!("{text:?}")),
            problem,
        })?;
    }
    Ok(Checked::List(items))
}

/// One text, or a list of them.
fn texts(value: &Value, is_text: bool) -> Option<Vec<String>> {
    match value {
        Value::String(text) if is_text => Some(text.split(',').map(str::to_owned).collect()),
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) => items.iter().map(text).collect(),
        _ => None,
    }
}

/// `{"orders.>": 1000}` or `["orders.>=1000"]`.
fn counts(value: &Value, is_text: bool) -> Result<Checked, Unusable> {
    let unusable = |value: String| Unusable {
        value: Some(value),
        problem: "expected patterns and whole numbers, such as orders.>=1000".to_owned(),
    };
    let mut counts = Vec::new();
    if let Value::Object(fields) = value {
        for (pattern, count) in fields {
            let given = || unusable(format!("{pattern:?}: {}", shown(count)));
            let count = count.as_u64().and_then(|count| usize::try_from(count).ok());
            counts.push((pattern.clone(), count.ok_or_else(given)?));
        }
    } else {
        for text in texts(value, is_text).ok_or_else(|| unusable(shown(value)))? {
            // A pattern may end with `>`, but the last `=` is the one before the number.
            let pair = text.rsplit_once('=');
            let pair = pair.and_then(|(pattern, count)| Some((pattern, count.parse().ok()?)));
            let (pattern, count) = pair.ok_or_else(|| unusable(format!("{text:?}")))?;
            counts.push((pattern.to_owned(), count));
        }
    }
    for (pattern, _) in &counts {
        check_item(Item::Pattern, pattern).map_err(|problem| Unusable {
            value: Some(format!("{pattern:?}")),
            problem,
        })?;
    }
    Ok(Checked::Counts(counts))
}

/// Why a text cannot be an item of a list.
pub(super) fn check_item(item: Item, text: &str) -> Result<(), String> {
    let is_any = text == ANY;
    match item {
        Item::Path if is_any || text.starts_with('/') => Ok(()),
        Item::Path => Err("expected a path that starts with a slash, or any".to_owned()),
        Item::Origin if is_any || is_origin(text) => Ok(()),
        Item::Origin => {
            let expected =
                "expected an origin such as https://app.example.com (no path), null, or any";
            Err(expected.to_owned())
        }
        Item::Host => hosts::check(text).map_err(|error| error.to_string()),
        Item::Network => {
            let network = text.parse::<Network>();
            network.map(drop).map_err(|error| error.to_string())
        }
        Item::Name => Ok(()),
        Item::Glob => check_glob(text),
        Item::Pattern if text.contains(['{', '}']) => {
            Err("a rule holds for every user: braces have no meaning in its pattern".to_owned())
        }
        Item::Pattern => check_glob(text),
    }
}

/// Whether a browser may send this as `Origin`. Pages without an origin of their own send `null`, and those of some
/// schemes, such as `file://`, name no host.
fn is_origin(text: &str) -> bool {
    text.eq_ignore_ascii_case("null")
        || text.split_once("://").is_some_and(|(scheme, host)| {
            let needs_host = scheme.starts_with("http");
            !scheme.is_empty() && !host.contains('/') && (!needs_host || !host.is_empty())
        })
}

/// A glob of access, as the engine checks it.
fn check_glob(text: &str) -> Result<(), String> {
    let rules = AccessRules {
        subscribe: Rules {
            allow: vec![text.to_owned()],
            deny: Vec::new(),
        },
        ..AccessRules::closed()
    };
    rules.check().map_err(|error| match error {
        InvalidRules::Glob { problem, .. } => problem.to_string(),
        InvalidRules::Placeholder { .. } => "only {sub} may stand in braces".to_owned(),
        other => other.to_string(),
    })
}

/// A right value in place of this one.
fn expected(spec: &OptionSpec, value: &Value) -> String {
    match spec.kind {
        Kind::Integer { smallest, largest } => {
            let is_too_large = value.as_str().is_some_and(|text| {
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
            });
            let range = match largest {
                u64::MAX if !is_too_large => format!("from {smallest} on"),
                _ => format!("from {smallest} to {largest}"),
            };
            format!("expected a whole number {range} ({})", spec.unit)
        }
        Kind::Numbers(known) => {
            let known: Vec<String> = known.iter().map(u64::to_string).collect();
            format!("expected one of {}", known.join(", "))
        }
        Kind::Boolean => "expected true or false".to_owned(),
        Kind::Choice(known) => format!("expected one of {}", known.join(", ")),
        Kind::Text | Kind::Secret => "expected a text".to_owned(),
        Kind::Ratio => "expected a number from 0 to 1".to_owned(),
        Kind::File => "expected the path of a file".to_owned(),
        Kind::Address => {
            "expected an address and a port, such as 127.0.0.1:5006 or [::]:5006".to_owned()
        }
        Kind::List(_) => "expected a text or a list of texts".to_owned(),
        Kind::Counts => "expected patterns and whole numbers".to_owned(),
        Kind::Rules => "expected a list of rules".to_owned(),
    }
}

/// A value as an error shows it.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Stands for every path, origin or host.
pub(super) const ANY: &str = "any";

/// Errors are one line.
const SHOWN_CHARACTERS_MAX: usize = 80;
