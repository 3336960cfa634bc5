//! The tables of options as they are written, and what makes one wrong.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::value::{self, Value};

/// All groups of options, and the keys of a rule of topics.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) groups: Vec<Group>,
    pub(crate) rule_keys: Vec<Row>,
}

/// Options that belong together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) about: String,
    #[serde(default, rename = "option")]
    pub(crate) options: Vec<Row>,
}

/// One option. `options/server.toml` explains the fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) help: String,
    #[serde(default)]
    pub(crate) more: String,
    kind: Option<Kind>,
    #[serde(default)]
    pub(crate) unit: String,
    #[serde(default)]
    range: Vec<u64>,
    #[serde(default)]
    pub(crate) values: Vec<Value>,
    pub(crate) item: Option<Item>,
    placeholder: Option<String>,
    pub(crate) default: Option<Value>,
    #[serde(default)]
    pub(crate) unset: String,
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    ways: Option<Vec<Way>>,
    variable: Option<String>,
    example: Option<Value>,
    #[serde(default)]
    pub(crate) rust: String,
    #[serde(default)]
    pub(crate) typescript: String,
    typescript_default: Option<Value>,
    #[serde(default)]
    pub(crate) typescript_unset: String,
    #[serde(default)]
    pub(crate) python: String,
    flag: Option<String>,
    #[serde(default)]
    pub(crate) short: String,
    #[serde(default)]
    pub(crate) excludes: Vec<String>,
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Integer,
    Boolean,
    Choice,
    Text,
    /// A number from 0 to 1.
    Ratio,
    Secret,
    File,
    Address,
    List,
    Counts,
    /// Names, each with a text.
    Texts,
    /// The same, and a name may come twice.
    Headers,
    /// Any number from 0 on.
    Number,
    Stages,
    Statuses,
    Precision,
    Reply,
    Json,
    Rules,
}

/// The kind of the items of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Item {
    Path,
    Origin,
    Host,
    Network,
    Name,
    Glob,
    Pattern,
    Text,
    Address,
    Rule,
    Expectation,
}

/// How an option can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    Flag,
    Variable,
    File,
    Keyword,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    version: u32,
    #[serde(default, rename = "group")]
    groups: Vec<Group>,
    #[serde(default, rename = "rule_key")]
    rule_keys: Vec<Row>,
}

impl Table {
    /// Adds what one file holds.
    pub(crate) fn add(&mut self, text: &str) -> anyhow::Result<()> {
        let source: Source = toml::from_str(text)?;
        ensure!(
            source.version == 1,
            "version {} is not known",
            source.version
        );
        self.groups.extend(source.groups);
        self.rule_keys.extend(source.rule_keys);
        Ok(())
    }

    /// A text in which each name of an option in backticks is spelled anew. `quote` takes the place of every backtick.
    pub(crate) fn spelled(
        &self,
        text: &str,
        quote: &str,
        spell: impl Fn(&Row) -> String,
    ) -> String {
        let parts = text.split('`').enumerate().map(|(index, part)| {
            let mut rows = self.options().chain(&self.rule_keys);
            let named = rows.find(|row| index % 2 == 1 && row.name == part);
            named.map_or_else(|| part.to_owned(), &spell)
        });
        parts.collect::<Vec<_>>().join(quote)
    }

    pub(crate) fn options(&self) -> impl Iterator<Item = &Row> {
        self.groups.iter().flat_map(|group| &group.options)
    }

    /// Checks everything that the format of the file does not.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let (mut names, mut variables) = (BTreeSet::new(), BTreeSet::new());
        for option in self.options() {
            let name = &option.name;
            ensure!(names.insert(name.as_str()), "{name} comes twice");
            if let Some(variable) = option.variable() {
                ensure!(
                    variables.insert(variable),
                    "the variable of {name} comes twice"
                );
            }
        }
        for option in self.options() {
            option.check().with_context(|| option.name.clone())?;
            let mut others = option.needs.iter().chain(&option.excludes);
            if let Some(unknown) = others.find(|other| !names.contains(other.as_str())) {
                bail!("{} names {unknown}, which is no option", option.name);
            }
        }
        for key in &self.rule_keys {
            key.check()
                .with_context(|| format!("the key {} of a rule", key.name))?;
        }
        Ok(())
    }
}

impl Row {
    pub(crate) fn kind(&self) -> Kind {
        self.kind.unwrap_or(Kind::Integer)
    }

    /// The smallest and the largest value of an integer.
    pub(crate) fn range(&self) -> (u64, u64) {
        let smallest = self.range.first().copied().unwrap_or(0);
        (smallest, self.range.get(1).copied().unwrap_or(u64::MAX))
    }

    pub(crate) fn has(&self, way: Way) -> bool {
        self.ways.as_ref().is_none_or(|ways| ways.contains(&way))
    }

    /// Such as `--message-bytes-max`.
    pub(crate) fn flag(&self) -> Option<String> {
        let name = || self.name.replace('_', "-");
        let flag = || format!("--{}", self.flag.clone().unwrap_or_else(name));
        self.has(Way::Flag).then(flag)
    }

    /// Such as `TIDEWIRE_MESSAGE_BYTES_MAX`.
    pub(crate) fn variable(&self) -> Option<String> {
        let usual = || format!("TIDEWIRE_{}", self.name.to_ascii_uppercase());
        self.has(Way::Variable)
            .then(|| self.variable.clone().unwrap_or_else(usual))
    }

    /// The placeholder for the value in the help of a flag.
    pub(crate) fn placeholder(&self) -> String {
        if let Some(placeholder) = &self.placeholder {
            return placeholder.clone();
        }
        if self.kind() == Kind::Choice {
            let values: Vec<String> = self.values.iter().map(Value::as_text).collect();
            return values.join("|");
        }
        let placeholder = match (self.kind(), self.unit.as_str()) {
            (Kind::Integer, "ms" | "ms/s") => "MS",
            (Kind::Integer, "s") => "S",
            (Kind::Integer, "bytes") => "BYTES",
            (Kind::Integer, _) => "N",
            (Kind::Boolean, _) => "BOOL",
            (Kind::Choice | Kind::Text, _) => "TEXT",
            (Kind::Ratio, _) => "RATIO",
            (Kind::Secret, _) => "SECRET",
            (Kind::File, _) => "FILE",
            (Kind::Address, _) => "ADDRESS",
            (Kind::Counts, _) => "PATTERN=COUNT",
            (Kind::Texts, _) => "NAME=TEXT",
            (Kind::Headers, _) => "HEADER",
            (Kind::Number, "s") => "S",
            (Kind::Number, _) => "N",
            (Kind::Stages, _) => "STAGES",
            (Kind::Statuses, _) => "STATUSES",
            (Kind::Precision, _) => "FIGURE",
            (Kind::Reply, _) => "HOW",
            (Kind::Json, _) => "JSON",
            (Kind::Rules, _) => "RULES",
            (Kind::List, _) => match self.item {
                Some(Item::Path) => "PATH",
                Some(Item::Origin) => "ORIGIN",
                Some(Item::Host) => "HOST",
                Some(Item::Network) => "NETWORK",
                Some(Item::Glob) => "GLOB",
                Some(Item::Pattern) => "PATTERN",
                Some(Item::Text) => "TEXT",
                Some(Item::Address) => "ADDRESS",
                Some(Item::Rule) => "RULE",
                Some(Item::Expectation) => "EXPECTATION",
                Some(Item::Name) | None => "NAME",
            },
        };
        placeholder.to_owned()
    }

    /// A default in bytes in its largest unit, such as `16 MiB`.
    pub(crate) fn size(&self) -> Option<String> {
        match &self.default {
            Some(Value::Integer(bytes)) if self.unit == "bytes" => value::binary(*bytes),
            _ => None,
        }
    }

    /// The default in TypeScript: one of its own, or that of the other languages.
    pub(crate) fn typescript_default(&self) -> Option<&Value> {
        let common = || {
            self.default
                .as_ref()
                .filter(|_| self.typescript_unset.is_empty())
        };
        let is_there = !self.typescript.is_empty();
        self.typescript_default
            .as_ref()
            .or_else(common)
            .filter(|_| is_there)
    }

    /// A value that is not the default: the one given, or one that follows from kind and default.
    pub(crate) fn example(&self) -> Option<Value> {
        if self.example.is_some() {
            return self.example.clone();
        }
        match (self.kind(), &self.default) {
            (Kind::Integer | Kind::Choice, default) if !self.values.is_empty() => {
                let others = self.values.iter().rev();
                others
                    .into_iter()
                    .find(|&value| Some(value) != default.as_ref())
                    .cloned()
            }
            (Kind::Integer, Some(Value::Integer(default))) => Some(Value::Integer(default + 1)),
            (Kind::Boolean, Some(Value::Boolean(default))) => Some(Value::Boolean(!default)),
            _ => None,
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        ensure!(
            !self.name.is_empty() && self.name.bytes().all(is_name),
            "the name is not in lower case with underscores"
        );
        ensure!(
            !self.help.is_empty() && !self.help.ends_with('.'),
            "the help is empty or ends in a full stop"
        );
        ensure!(
            self.more.is_empty() || self.more.ends_with('.'),
            "`more` is not a sentence"
        );
        self.check_unit()?;
        let (smallest, largest) = self.range();
        ensure!(
            smallest <= largest && self.range.len() <= 2,
            "the range is empty"
        );
        ensure!(
            (self.kind() == Kind::Choice) <= !self.values.is_empty(),
            "a choice needs `values`"
        );
        ensure!(
            matches!(self.kind(), Kind::List | Kind::Counts) == self.item.is_some(),
            "a list needs `item`, and nothing else has it"
        );
        ensure!(
            self.default.is_some() == self.unset.is_empty(),
            "give either `default` or `unset`"
        );
        if let Some(default) = &self.default {
            check_value(self, default).context("default")?;
        }
        let example = self.example().context("an `example` is needed")?;
        check_value(self, &example).context("example")?;
        ensure!(
            self.default.as_ref() != Some(&example),
            "the example is the default"
        );
        Ok(())
    }

    /// The end of a name says what an integer counts.
    fn check_unit(&self) -> anyhow::Result<()> {
        ensure!(
            matches!(self.kind(), Kind::Integer | Kind::Number) != self.unit.is_empty(),
            "numbers, and nothing else, have a `unit`"
        );
        ensure!(
            self.kind() == Kind::Integer || self.range.is_empty(),
            "only an integer has a `range`"
        );
        let unit = self.unit.as_str();
        for (ends, expected) in [
            (&["_per_s"][..], unit.ends_with("/s")),
            (&["_ms"], unit == "ms"),
            (&["_bytes", "_bytes_max"], unit == "bytes"),
            (&["_s"], unit == "s"),
        ] {
            if ends.iter().any(|end| self.name.ends_with(end)) && self.kind() == Kind::Integer {
                ensure!(expected, "the name does not end as the unit {unit} wants");
                break;
            }
        }
        Ok(())
    }
}

/// Fails unless a value is one of the option's kind and in its range.
fn check_value(row: &Row, value: &Value) -> anyhow::Result<()> {
    if !row.values.is_empty() {
        let known: Vec<String> = row.values.iter().map(Value::as_text).collect();
        ensure!(
            row.values.contains(value),
            "{} is not one of {}",
            value.as_text(),
            known.join(", ")
        );
        return Ok(());
    }
    match (row.kind(), value) {
        (Kind::Integer, Value::Integer(number)) => {
            let (smallest, largest) = row.range();
            ensure!(
                (smallest..=largest).contains(number),
                "{number} is not in {smallest} to {largest}"
            );
        }
        (Kind::Number, Value::Text(text)) => {
            ensure!(text.parse::<f64>().is_ok(), "{text} is not a number");
        }
        (Kind::Ratio, Value::Text(text)) => {
            let ratio = text.parse().ok();
            let is_in_range = ratio.is_some_and(|ratio: f64| (0.0..=1.0).contains(&ratio));
            ensure!(is_in_range, "{text} is not a number from 0 to 1");
        }
        (Kind::Boolean, Value::Boolean(_))
        | (
            Kind::Text
            | Kind::Secret
            | Kind::File
            | Kind::Address
            | Kind::Stages
            | Kind::Statuses
            | Kind::Precision
            | Kind::Reply
            | Kind::Json,
            Value::Text(_),
        ) => {}
        (Kind::List, Value::List(items)) => {
            let is_text = |item: &Value| matches!(item, Value::Text(_));
            ensure!(items.iter().all(is_text), "the items are not texts");
        }
        (Kind::Counts | Kind::Texts | Kind::Headers, Value::Map(_))
        | (Kind::Rules, Value::List(_)) => {}
        (Kind::Integer, _) => bail!("expected a whole number"),
        (kind, _) => bail!("the value is not of the kind {kind:?}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, TABLE};
    use super::*;

    #[test]
    fn names_follow_from_the_name() {
        let table = samples::table();
        let [wait, mode, path, key] = &table.groups[0].options[..] else {
            panic!("four options");
        };
        assert_eq!(wait.flag().as_deref(), Some("--wait-ms"));
        assert_eq!(wait.variable().as_deref(), Some("TIDEWIRE_WAIT_MS"));
        assert_eq!((mode.flag(), mode.variable()), (None, None));
        assert_eq!(key.variable().as_deref(), Some("TIDEWIRE_KEY"));
        let placeholders = [wait, mode, path].map(Row::placeholder);
        assert_eq!(placeholders, ["MS", "off|on", "PATH"]);
        assert_eq!(wait.example(), Some(Value::Integer(8)));
        assert_eq!(mode.example(), Some(Value::Text("on".to_owned())));
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, words) in [
            ("version = 1", "version = 2", "version 2"),
            ("\"mode\"\nkind", "\"wait_ms\"\nkind", "comes twice"),
            ("\"wait_ms\"", "\"wait-ms\"", "lower case"),
            ("default = 7", "default = 10", "1 to 9"),
            ("default = 7", "default = \"7\"", "whole number"),
            ("default = 7\n", "", "either"),
            ("unit = \"ms\"", "unit = \"s\"", "the unit s"),
            ("unit = \"ms\"\n", "", "`unit`"),
            ("\"Whether to wait\"", "\"Whether.\"", "full stop"),
            ("values = [\"off\", \"on\"]\n", "", "`values`"),
            ("default = \"off\"", "default = \"of\"", "off, on"),
            ("item = \"path\"\n", "", "`item`"),
            ("example = [\"/a\"]\n", "", "`example`"),
            (
                "example = [\"/a\"]",
                "example = [\"/ws\", \"/wse\"]",
                "the default",
            ),
            ("needs = [\"mode\"]", "needs = [\"mood\"]", "mood"),
            ("help = \"Paths\"", "helps = \"Paths\"", "helps"),
        ] {
            let changed = TABLE.replacen(from, to, 1);
            assert_ne!(changed, TABLE, "{from}");
            let mut table = Table::default();
            let read = table.add(&changed).and_then(|()| table.check());
            let error = format!("{:#}", read.unwrap_err());
            assert!(error.contains(words), "{from}: {error}");
        }
    }
}
