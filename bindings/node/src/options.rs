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
        let config = config_from(&settings).map_err(|error| refused(&error, &settings))?;
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
fn refused(error: &SettingError, settings: &Map<String, Value>) -> Failure {
    match error {
        SettingError::Unknown { name, nearest } => {
            let hint = nearest.map(|name| format!(": did you mean {}?", camel_case(name)));
            let name = camel_case(name);
            configuration(format!("unknown option {name}{}", hint.unwrap_or_default()))
        }
        SettingError::Value { name, problem } => {
            let mut problem = problem.clone();
            for (kind, range) in RANGES {
                problem = problem.replace(kind, range);
            }
            // Options that a sentence names are the words with an underscore in them.
            for known in names().filter(|known| known.contains('_')) {
                problem = replace_word(&problem, known, &camel_case(known));
            }
            let value = settings.get(name).map(shown).unwrap_or_default();
            configuration(format!("{}: {problem}{value}", camel_case(name)))
        }
    }
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

/// The value as an error shows it: a secret and a long one are left out.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(_) | Value::Bool(_) => format!(" (it is {value})"),
        _ => String::new(),
    }
}

fn replace_word(text: &str, word: &str, with: &str) -> String {
    let is_part = |mark: char| mark.is_ascii_alphanumeric() || mark == '_';
    text.split(' ')
        .map(|part| match part.trim_matches(|mark| !is_part(mark)) {
            inner if inner == word => part.replace(word, with),
            _ => part.to_owned(),
        })
        .collect::<Vec<_>>()
        .join(" ")
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

/// What a sentence about a number says in place of the type in Rust.
const RANGES: &[(&str, &str)] = &[
    ("expected usize", "expected a whole number from 0"),
    ("expected u64", "expected a whole number from 0"),
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected u16", "expected a whole number from 0 to 65535"),
    ("expected u8", "expected a whole number from 0 to 255"),
    ("expected f64", "expected a number"),
    ("expected a boolean", "expected true or false"),
    ("invalid type: ", ""),
    ("invalid value: ", ""),
    ("floating point `", "the number `"),
];

/// The default of `queueBytesMax`: events that wait to be received, in bytes.
const QUEUE_BYTES_MAX: usize = 64 << 20;
