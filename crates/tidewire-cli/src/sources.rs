//! Where the value of an option comes from: command line, then environment, then configuration file,
//! then default. The order is that of `clap`, once for all options: the environment is made known to
//! it, and the file's values replace the defaults.

use crate::config_file::Entry;
use crate::failure::Failure;
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use std::error::Error as _;
use std::ffi::OsString;

/// How strong the source of each given option is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranks(ArgMatches);

impl Ranks {
    /// The ranks of the options of one command.
    pub(crate) fn new(matches: &ArgMatches) -> Self {
        Self(matches.clone())
    }

    /// Of options that exclude each other, those `given` under their option's name, the one from the
    /// strongest source; `None` if none is given.
    ///
    /// # Errors
    /// Two come from the same source.
    pub(crate) fn strongest<T>(&self, given: Vec<(&str, Option<T>)>) -> Result<Option<T>, Failure> {
        let mut best: Option<(Option<ValueSource>, &str, T)> = None;
        for (id, value) in given {
            let Some(value) = value else { continue };
            let rank = self.0.value_source(id);
            match &best {
                Some((other, id_of_other, _)) if *other == rank => {
                    let (one, two) = (flag_of(id_of_other), flag_of(id));
                    let text = format!("{one} and {two} exclude each other: give one of them");
                    return Err(Failure::usage(text));
                }
                Some((other, ..)) if *other > rank => {}
                _ => best = Some((rank, id, value)),
            }
        }
        Ok(best.map(|(_, _, value)| value))
    }

    /// Whether an option was typed on the command line.
    pub(crate) fn is_typed(&self, id: &str) -> bool {
        self.0.value_source(id) == Some(ValueSource::CommandLine)
    }
}

/// The command with an environment variable for each option: `TIDEWIRE_` and its name.
pub(crate) fn with_environment(command: Command) -> Command {
    command.mut_args(|arg| match arg.get_long() {
        Some(_) if arg.get_env().is_none() && !arg.is_hide_set() => {
            let variable = format!("TIDEWIRE_{}", arg.get_id().as_str().to_uppercase());
            // The notes below the help tell the rule, which is shorter than a variable for each option.
            arg.env(variable).hide_env(true)
        }
        _ => arg,
    })
}

/// Checks what the environment says, so that an error names the variable and not an option that nobody
/// typed.
pub(crate) fn check_environment(command: &Command) -> Result<(), Failure> {
    for arg in command.get_arguments() {
        let Some(variable) = arg.get_env() else {
            continue;
        };
        let Some(value) = std::env::var_os(variable) else {
            continue;
        };
        check(arg, &[value])
            .map_err(|why| Failure::usage(format!("{}: {why}", variable.to_string_lossy())))?;
    }
    Ok(())
}

/// The command with the file's values in place of its defaults.
///
/// # Errors
/// An unknown key or a bad value, with its line.
pub(crate) fn with_file(mut command: Command, entries: Vec<Entry>) -> Result<Command, Failure> {
    for Entry { key, values, place } in entries {
        let arg = command
            .get_arguments()
            .find(|arg| is_key(arg) && arg.get_id() == key.as_str());
        let Some(arg) = arg else {
            let keys = command
                .get_arguments()
                .filter(|arg| is_key(arg))
                .map(|arg| arg.get_id().as_str());
            let hint = nearest(&key, keys)
                .map_or_else(String::new, |key| format!(", did you mean {key}?"));
            return Err(Failure::usage(format!("{place}: unknown key {key}{hint}")));
        };
        let arguments: Vec<OsString> = values.iter().map(OsString::from).collect();
        check(arg, &arguments).map_err(|why| Failure::usage(format!("{place}: {key}: {why}")))?;
        command = command.mut_arg(key, |arg| arg.default_values(values));
    }
    Ok(command)
}

/// Whether an option may stand in a configuration file.
fn is_key(arg: &Arg) -> bool {
    let id = arg.get_id().as_str();
    arg.get_long().is_some() && !arg.is_hide_set() && !["config", "help", "version"].contains(&id)
}

/// Whether an option takes these values; else why not.
fn check(arg: &Arg, values: &[OsString]) -> Result<(), String> {
    let alone = arg.clone().env(Resettable::Reset).required(false);
    let flag = format!("--{}=", arg.get_long().unwrap_or_default());
    let line = values.iter().map(|value| {
        let mut word = OsString::from(&flag);
        word.push(value);
        word
    });
    let command = Command::new("check").no_binary_name(true).arg(alone);
    match command.try_get_matches_from(line) {
        Ok(_) => Ok(()),
        Err(error) => Err(reason(&error)),
    }
}

fn reason(error: &clap::Error) -> String {
    let value = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.as_str(),
        _ => "",
    };
    match (
        error.kind(),
        error.source(),
        error.get(ContextKind::ValidValue),
    ) {
        (ErrorKind::ValueValidation, Some(source), _) => format!("{value:?}: {source}"),
        (ErrorKind::InvalidValue, _, Some(ContextValue::Strings(known))) => {
            format!("{value:?} is not one of {}", known.join(", "))
        }
        (ErrorKind::ArgumentConflict, ..) => "one value only".to_owned(),
        _ => usage_text(error),
    }
}

/// What is wrong with a command line, without the usage that `clap` adds.
pub(crate) fn usage_text(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let end = ["\n\nUsage:", "\n\nFor more information"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    let text = &text[..end.unwrap_or(text.len())];
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

fn flag_of(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}

/// The known word that a typing error most likely meant.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.replace('-', "_");
    known
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 2)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, in bytes.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, b) in right.bytes().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found_and_nonsense_has_none() {
        let known = ["listen", "ops_listen", "message_bytes_max"];
        assert_eq!(
            nearest("message_byte_max", known.into_iter()),
            Some("message_bytes_max")
        );
        assert_eq!(nearest("ops-listen", known.into_iter()), Some("ops_listen"));
        assert_eq!(nearest("zzzzzzzzzzzz", known.into_iter()), None);
        assert_eq!(
            (
                distance("", "abc"),
                distance("abc", "adc"),
                distance("ab", "ab")
            ),
            (3, 1, 0)
        );
    }
}
