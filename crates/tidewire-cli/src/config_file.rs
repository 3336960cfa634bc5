//! The configuration file: TOML that names the same settings as the options.
//!
//! A key is the name of an option with underscores. It may stand at the top or in one of the tables `[auth]`,
//! `[tls]`, `[security]`, `[compression]`, `[topics]` and `[limits]`, which only group; a key is never given
//! twice. The tables `[[topics.rule]]` define what the server keeps of which topics.

use crate::failure::Failure;
use serde_json::Value;
use std::fs;
use std::path::Path;
use tidewire_engine::settings::{self, Way};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The content of a file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Settings {
    /// The settings, in their order.
    pub(crate) entries: Vec<Entry>,
    /// The tables `[[topics.rule]]`, in their order.
    pub(crate) rules: Vec<Rule>,
}

/// One table `[[topics.rule]]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    /// Its keys.
    pub(crate) entries: Vec<Entry>,
    /// `file:line`, for errors.
    pub(crate) place: String,
}

/// One setting of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// The key, such as `message_bytes_max`.
    pub(crate) key: String,
    /// Its value.
    pub(crate) value: Value,
    /// `file:line`, for errors.
    pub(crate) place: String,
}

/// Reads the settings of a file.
pub(crate) fn read(path: &Path) -> Result<Settings, Failure> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("cannot read the configuration {name}: {error}"))
    })?;
    parse(&name, &text)
}

fn parse(name: &str, text: &str) -> Result<Settings, Failure> {
    let file = File { name, text };
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Failure::usage(format!("{}: {}", file.place(offset), error.message()))
    })?;
    let mut settings = Settings::default();
    let mut entries: Vec<(usize, Entry)> = Vec::new();
    let mut take = |key: &Key<'_>, value: &Spanned<DeValue<'_>>| {
        let entry = file.entry(key, value)?;
        if entries.iter().any(|(_, other)| other.key == entry.key) {
            let Entry { key, place, .. } = entry;
            return Err(Failure::usage(format!("{place}: {key} is given twice")));
        }
        entries.push((key.span().start, entry));
        Ok(())
    };
    for (key, value) in table.get_ref() {
        match value.get_ref() {
            DeValue::Table(group) if GROUPS.contains(&&**key.get_ref()) => {
                for (inner, value) in group {
                    if key.get_ref() == TOPICS && inner.get_ref() == RULE {
                        settings.rules = file.rules(inner, value)?;
                    } else {
                        take(inner, value)?;
                    }
                }
            }
            DeValue::Table(_) if !is_option(key) => {
                let known = GROUPS.join("], [");
                let words = format!("[{}] is not one of the tables [{known}]", key.get_ref());
                return Err(file.failure(key.span().start, &words));
            }
            _ => take(key, value)?,
        }
    }
    entries.sort_by_key(|(offset, _)| *offset);
    settings.entries = entries.into_iter().map(|(_, entry)| entry).collect();
    Ok(settings)
}

fn is_option(key: &Key<'_>) -> bool {
    settings::option(key.get_ref(), Way::File).is_some()
}

/// A file and its text, which give the line of a mistake.
struct File<'a> {
    name: &'a str,
    text: &'a str,
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

impl File<'_> {
    fn place(&self, offset: usize) -> String {
        format!("{}:{}", self.name, line_of(self.text, offset))
    }

    fn failure(&self, offset: usize, words: &str) -> Failure {
        Failure::usage(format!("{}: {words}", self.place(offset)))
    }

    fn entry(&self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Result<Entry, Failure> {
        let offset = key.span().start;
        let key = key.get_ref().to_string();
        let value = json(value.get_ref())
            .ok_or_else(|| self.failure(offset, &format!("{key}: {EXPECTED}")))?;
        Ok(Entry {
            key,
            value,
            place: self.place(offset),
        })
    }

    fn rules(&self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Result<Vec<Rule>, Failure> {
        let offset = key.span().start;
        let misplaced = || self.failure(offset, "rules are tables: write [[topics.rule]]");
        let DeValue::Array(tables) = value.get_ref() else {
            return Err(misplaced());
        };
        let rules = tables.iter().map(|table| {
            let DeValue::Table(fields) = table.get_ref() else {
                return Err(misplaced());
            };
            let entries = fields.iter().map(|(key, value)| self.entry(key, value));
            Ok(Rule {
                entries: entries.collect::<Result<_, _>>()?,
                place: self.place(table.span().start),
            })
        });
        rules.collect()
    }
}

/// A value as JSON; `None` for dates and times.
fn json(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::String(text) => Some(text.as_ref().into()),
        DeValue::Integer(digits) => {
            let number = i128::from_str_radix(digits.as_str(), digits.radix()).ok()?;
            let small = u64::try_from(number).map(Value::from);
            let small = small.or_else(|_| i64::try_from(number).map(Value::from));
            Some(small.unwrap_or_else(|_| number.to_string().into()))
        }
        DeValue::Float(number) => Some(number.as_str().into()),
        DeValue::Boolean(yes) => Some((*yes).into()),
        DeValue::Datetime(_) => None,
        DeValue::Array(items) => {
            let items = items.iter().map(|item| json(item.get_ref()));
            items.collect::<Option<_>>().map(Value::Array)
        }
        DeValue::Table(fields) => {
            let fields = fields.iter().map(|(key, value)| {
                let value = json(value.get_ref())?;
                Some((key.get_ref().to_string(), value))
            });
            fields.collect::<Option<_>>().map(Value::Object)
        }
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
const GROUPS: [&str; 6] = ["auth", "tls", "security", "compression", TOPICS, "limits"];

const TOPICS: &str = "topics";

/// The tables of `[topics]` that are rules.
const RULE: &str = "rule";

const EXPECTED: &str = "expected a text, a number, true, false, an array or a table";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_only_group_and_lines_are_known() {
        let text =
            "listen = \"[::]:1\"\n[limits]\nmessage_bytes_max = 1_000\n\n[auth]\nno_auth = true\n";
        let entries = parse("a.toml", text).unwrap().entries;
        let seen: Vec<_> = entries
            .iter()
            .map(|entry| {
                (
                    entry.key.as_str(),
                    entry.value.to_string(),
                    entry.place.as_str(),
                )
            })
            .collect();
        let expected = [
            ("listen", "\"[::]:1\"".to_owned(), "a.toml:1"),
            ("message_bytes_max", "1000".to_owned(), "a.toml:3"),
            ("no_auth", "true".to_owned(), "a.toml:6"),
        ];
        assert_eq!(seen, expected);
        let history = &parse("a", "history = {'a.>' = 3}").unwrap().entries[0];
        assert_eq!(history.value, json!({"a.>": 3}));
        assert_eq!(
            parse("a", "path = ['/a', '/b']").unwrap().entries[0].value,
            json!(["/a", "/b"])
        );
    }

    #[test]
    fn rules_are_tables_of_their_own() {
        let text = "[topics]\ntopics_open = true\n[[topics.rule]]\npattern = \"a\"\n\n\
            [[topics.rule]]\npattern = \"b\"\npresence = true\n";
        let settings = parse("f", text).unwrap();
        assert_eq!(settings.entries.len(), 1);
        let places: Vec<_> = settings
            .rules
            .iter()
            .map(|rule| rule.place.as_str())
            .collect();
        assert_eq!(places, ["f:3", "f:6"]);
        let presence = &settings.rules[1].entries[1];
        assert_eq!(
            (presence.key.as_str(), presence.place.as_str()),
            ("presence", "f:8")
        );
        assert_eq!(presence.value, json!(true));
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
            ("[topics]\nrule = 1\n", "f:2: rules are tables"),
            ("[topics]\nrule = [1]\n", "f:2: rules are tables"),
            ("[[topics.rule]]\na = 1979-05-27\n", "f:2: a: expected"),
        ];
        for (text, expected) in cases {
            let message = parse("f", text).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
