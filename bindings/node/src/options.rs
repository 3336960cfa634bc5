//! The options of a server: those of the engine's table, in the spelling of JavaScript.

use crate::errors::{Failure, argument, configuration};
use serde_json::{Map, Value};
use tidewire_bindings::server::ServerOptions;
use tidewire_engine::OptionSpelling;
use tidewire_engine::settings::SettingError;

/// Reads a JSON object whose names are in camelCase.
pub(crate) fn read(text: &str) -> Result<ServerOptions, Failure> {
    let given: Map<String, Value> = serde_json::from_str(text).map_err(argument)?;
    let mut keywords = renamed(given);
    // The keys of rules are names, too; those of other objects are the caller's own.
    if let Some(Value::Array(rules)) = keywords.get_mut("topic_rules") {
        for rule in rules {
            if let Value::Object(keys) = rule {
                *keys = renamed(std::mem::take(keys));
            }
        }
    }
    let mut options = ServerOptions::from_keywords(&keywords).map_err(|error| refused(&error))?;
    options.config.option_spelling = OptionSpelling::CamelCase;
    Ok(options)
}

/// The names of all options, in camelCase.
pub(crate) fn names() -> Vec<String> {
    ServerOptions::names().map(camel_case).collect()
}

/// The fields of an object under the engine's names.
fn renamed(fields: Map<String, Value>) -> Map<String, Value> {
    let fields = fields.into_iter();
    fields
        .map(|(name, value)| (snake_case(&name), value))
        .collect()
}

/// The error of an option, as JavaScript spells it. The value is shown as it was given.
fn refused(error: &SettingError) -> Failure {
    let SettingError::Value {
        option,
        value,
        problem,
    } = error
    else {
        return configuration(in_javascript(&error.to_string()));
    };
    let value = value.as_ref().map(|value| format!("{value}: "));
    configuration(format!(
        "{}: {}{}",
        in_javascript(option),
        value.unwrap_or_default(),
        in_javascript(problem)
    ))
}

/// A sentence with the names of options in the spelling of JavaScript: every word with an underscore that is no value.
fn in_javascript(sentence: &str) -> String {
    let is_part = |mark: char| mark.is_ascii_alphanumeric() || mark == '_';
    let spelled = sentence.split(' ').map(|part| {
        let mut words = part.split(|mark| !is_part(mark));
        match words.find(|word| word.contains('_') && !VALUES.contains(word)) {
            Some(word) => part.replace(word, &camel_case(word)),
            None => part.to_owned(),
        }
    });
    spelled.collect::<Vec<_>>().join(" ")
}

/// `message_bytes_max` from `messageBytesMax`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for mark in name.chars() {
        match mark {
            // No option has an underscore in JavaScript, so this one is unknown.
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
    OptionSpelling::CamelCase.of(name)
}

/// Values that look like the names of options.
const VALUES: &[&str] = &["drop_oldest", "drop_newest"];
