//! The options of a server: the engine's settings in the spelling of JavaScript, and those of the binding.

use crate::errors::{Failure, argument, configuration};
use serde_json::{Map, Value};
use tidewire_engine::Config;
use tidewire_engine::settings::{SettingError, config_from, names};

/// The options of one server.
pub(crate) struct Options {
    pub(crate) config: Config,
    pub(crate) scheme: &'static str,
    pub(crate) path: String,
    pub(crate) queue_bytes_max: usize,
    pub(crate) snapshot_requests: bool,
}

impl Options {
    /// Reads a JSON object whose names are in camelCase.
    pub(crate) fn read(text: &str) -> Result<Self, Failure> {
        let given: Map<String, Value> = serde_json::from_str(text).map_err(argument)?;
        let mut settings: Map<String, Value> = given
            .into_iter()
            .map(|(name, value)| (snake_case(&name), value))
            .collect();
        if let Some(rules) = settings.get_mut("topic_rules") {
            rename_fields(rules);
        }
        let queue_bytes_max = match settings.remove("queue_bytes_max") {
            None | Some(Value::Null) => QUEUE_BYTES_MAX,
            Some(value) => size("queueBytesMax", &value)?,
        };
        let snapshot_requests = match settings.remove("snapshot_requests") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(yes)) => yes,
            Some(value) => {
                let problem = format!("snapshotRequests: true or false is needed, not {value}");
                return Err(configuration(problem));
            }
        };
        let config = config_from(&settings).map_err(|error| refused(&error))?;
        Ok(Self {
            scheme: if config.tls.is_some() { "wss" } else { "ws" },
            path: config.paths.first().cloned().unwrap_or("/".to_owned()),
            config,
            queue_bytes_max,
            snapshot_requests,
        })
    }

    /// The names of all options, in camelCase.
    pub(crate) fn names() -> Vec<String> {
        let own = ["queue_bytes_max", "snapshot_requests"];
        names().chain(own).map(camel_case).collect()
    }
}

/// The error of a setting, with its option as JavaScript spells it, the range and the value.
fn refused(error: &SettingError) -> Failure {
    match error {
        SettingError::Unknown { name, nearest } => {
            let hint = nearest.map(|name| format!(": did you mean {}?", camel_case(name)));
            let name = camel_case(name);
            configuration(format!("unknown option {name}{}", hint.unwrap_or_default()))
        }
        SettingError::Value { name, problem } => {
            let problem = in_javascript(&mismatch(problem));
            configuration(format!("{}: {problem}", camel_case(name)))
        }
    }
}

/// What a problem with a type says: what is needed, and what was given.
fn mismatch(problem: &str) -> String {
    let kinds = ["invalid type: ", "invalid value: "];
    let found = kinds.iter().find_map(|kind| problem.split_once(kind));
    let parts = found.and_then(|(context, rest)| Some((context, rest.rsplit_once(", expected ")?)));
    let Some((context, (given, needed))) = parts else {
        return problem.to_owned();
    };
    let needed = RANGES
        .iter()
        .find_map(|(kind, range)| (*kind == needed).then_some(*range))
        .unwrap_or(needed);
    let given = given
        .trim_start_matches("integer ")
        .trim_start_matches("floating point ")
        .trim_start_matches("boolean ")
        .trim_start_matches("string ")
        .replace('`', "")
        .replace("sequence", "an array")
        .replace("map", "an object");
    format!("{context}{needed} is needed, not {given}")
}

/// A sentence with the names of options in the spelling of JavaScript.
fn in_javascript(problem: &str) -> String {
    let is_part = |mark: char| mark.is_ascii_alphanumeric() || mark == '_';
    problem
        .split(' ')
        .map(|part| match part.trim_matches(|mark| !is_part(mark)) {
            word if word.contains('_') && !VALUES.contains(&word) => {
                part.replace(word, &camel_case(word))
            }
            _ => part.to_owned(),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Gives the fields of topic rules the spelling of the engine. The other objects among the options have names of the
/// caller's choice.
fn rename_fields(rules: &mut Value) {
    let Value::Array(rules) = rules else { return };
    for rule in rules {
        if let Value::Object(fields) = rule {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(name, value)| (snake_case(&name), value))
                .collect();
        }
    }
}

fn size(name: &str, value: &Value) -> Result<usize, Failure> {
    let number = value
        .as_u64()
        .and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| {
        let problem = format!("{name}: a whole number from 0 is needed, not {value}");
        configuration(problem)
    })
}

/// `message_bytes_max` from `messageBytesMax`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for mark in name.chars() {
        match mark {
            // No setting has an underscore in JavaScript, so this one is unknown, too.
            '_' => snake.push_str("__"),
            'A'..='Z' => {
                snake.push('_');
                snake.push(mark.to_ascii_lowercase());
            }
            _ => snake.push(mark),
        }
    }
    snake
}

/// `messageBytesMax` from `message_bytes_max`.
pub(crate) fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut is_start = false;
    for mark in name.chars() {
        match mark {
            '_' => is_start = true,
            _ if is_start => {
                camel.push(mark.to_ascii_uppercase());
                is_start = false;
            }
            _ => camel.push(mark),
        }
    }
    camel
}

/// What is needed, for a type in Rust.
const RANGES: &[(&str, &str)] = &[
    ("usize", "a whole number from 0"),
    ("u64", "a whole number from 0"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u16", "a whole number from 0 to 65535"),
    ("u8", "a whole number from 0 to 255"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a sequence", "an array"),
    ("a map", "an object"),
];

/// Values that look like the names of options.
const VALUES: &[&str] = &["drop_oldest", "drop_newest"];

/// The default of `queueBytesMax`: events that wait to be received, in bytes.
const QUEUE_BYTES_MAX: usize = 64 << 20;
