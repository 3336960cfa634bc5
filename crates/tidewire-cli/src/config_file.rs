//! The configuration file: TOML that names the same settings as the options.
//!
//! A key is the name of an option with underscores. It may stand at the top or in one of the tables
//! `[auth]`, `[tls]`, `[security]`, `[compression]` and `[limits]`, which only group; a key is never given twice.

use crate::failure::Failure;
use std::fs;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One setting of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The key, such as `message_bytes_max`.
    pub(crate) key: String,
    /// Its values as an option would take them: one, or those of an array.
    pub(crate) values: Vec<String>,
    /// `file:line`, for errors.
    pub(crate) place: String,
}

/// Reads the settings of a file, in their order.
pub(crate) fn read(path: &Path) -> Result<Vec<Entry>, Failure> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("cannot read the configuration {name}: {error}"))
    })?;
    parse(&name, &text)
}

fn parse(name: &str, text: &str) -> Result<Vec<Entry>, Failure> {
    let place = |offset: usize| format!("{name}:{}", line_of(text, offset));
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Failure::usage(format!("{}: {}", place(offset), error.message()))
    })?;
    let mut entries: Vec<(usize, Entry)> = Vec::new();
    let mut take = |key: &Spanned<_>, value: &Spanned<DeValue<'_>>| {
        let offset = key.span().start;
        let key: &std::borrow::Cow<'_, str> = key.get_ref();
        let place = place(offset);
        let values = values(value.get_ref())
            .ok_or_else(|| Failure::usage(format!("{place}: {key}: {EXPECTED}")))?;
        if entries.iter().any(|(_, entry)| entry.key == **key) {
            return Err(Failure::usage(format!("{place}: {key} is given twice")));
        }
        entries.push((
            offset,
            Entry {
                key: key.to_string(),
                values,
                place,
            },
        ));
        Ok(())
    };
    for (key, value) in table.get_ref() {
        match value.get_ref() {
            DeValue::Table(group) if GROUPS.contains(&&**key.get_ref()) => {
                for (key, value) in group {
                    take(key, value)?;
                }
            }
            DeValue::Table(_) => {
                let known = GROUPS.join("], [");
                let text = format!("[{}] is not one of the tables [{known}]", key.get_ref());
                return Err(Failure::usage(format!(
                    "{}: {text}",
                    place(key.span().start)
                )));
            }
            _ => take(key, value)?,
        }
    }
    entries.sort_by_key(|(offset, _)| *offset);
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

fn values(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::Array(items) => items.iter().map(|item| scalar(item.get_ref())).collect(),
        _ => scalar(value).map(|value| vec![value]),
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(digits) => i128::from_str_radix(digits.as_str(), digits.radix())
            .ok()
            .map(|number| number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// The line of a byte, from 1.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text
        .bytes()
        .take(offset)
        .filter(|&byte| byte == b'\n')
        .count()
}

/// Tables that group keys.
const GROUPS: [&str; 5] = ["auth", "tls", "security", "compression", "limits"];

const EXPECTED: &str = "expected a text, a number, true, false or an array of them";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_only_group_and_lines_are_known() {
        let text =
            "listen = \"[::]:1\"\n[limits]\nmessage_bytes_max = 1_000\n\n[auth]\nno_auth = true\n";
        let entries = parse("a.toml", text).unwrap();
        let seen: Vec<_> = entries
            .iter()
            .map(|entry| {
                (
                    entry.key.as_str(),
                    entry.values[0].as_str(),
                    entry.place.as_str(),
                )
            })
            .collect();
        let expected = [
            ("listen", "[::]:1", "a.toml:1"),
            ("message_bytes_max", "1000", "a.toml:3"),
            ("no_auth", "true", "a.toml:6"),
        ];
        assert_eq!(seen, expected);
        assert_eq!(
            parse("a", "path = ['/a', '/b']").unwrap()[0].values,
            ["/a", "/b"]
        );
    }

    #[test]
    fn mistakes_name_file_and_line() {
        let cases = [
            ("a = 1\nb = \n", "f:2: "),
            (
                "\n[limit]\na = 1\n",
                "f:2: [limit] is not one of the tables",
            ),
            ("[auth]\na = 1979-05-27\n", "f:2: a: expected"),
            ("a = 1\n[tls]\na = 2\n", "f:3: a is given twice"),
        ];
        for (text, expected) in cases {
            let message = parse("f", text).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
