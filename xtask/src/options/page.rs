//! The reference page of the options of a server.

use std::fmt::Write as _;

use super::table::{Group, Kind, Row, Table, Way};
use super::value::Value;
use crate::generated::{push, row};

/// The text of `docs/options.md`.
pub(crate) fn reference(table: &Table) -> String {
    let mut out = String::from(HEADER);
    push(&mut out, &links(table));
    for group in &table.groups {
        section(&mut out, group);
    }
    out.push_str(RULES);
    for key in &table.rule_keys {
        let cells = [
            format!("`{}`", key.name),
            or_dash(&key.unit),
            default(key),
            range(key),
            meaning(key),
        ];
        push(&mut out, &row(&cells));
    }
    out
}

/// Links to the headings of all groups.
pub(super) fn links(table: &Table) -> String {
    let links = table.groups.iter().map(|group| {
        let title = &group.title;
        format!("[{title}](#{})", anchor(title))
    });
    links.collect::<Vec<_>>().join(" · ")
}

fn section(out: &mut String, group: &Group) {
    push(out, &format!("\n## {}\n", group.title));
    if !group.about.is_empty() {
        push(out, &format!("{}\n", group.about));
    }
    out.push_str("| option | flag | variable | unit | default | range | meaning |\n");
    out.push_str("|---|---|---|---|---|---|---|\n");
    for option in &group.options {
        let flag = option.flag().map(|flag| match option.kind() {
            Kind::Boolean => flag,
            _ => format!("{flag} {}", option.placeholder()),
        });
        let code = |text: Option<String>| text.map_or("–".to_owned(), |text| format!("`{text}`"));
        let cells = [
            format!("`{}`", option.name),
            code(flag),
            code(option.variable()),
            or_dash(&option.unit),
            default(option),
            range(option),
            meaning(option) + ways(option),
        ];
        push(out, &row(&cells));
    }
}

pub(super) fn default(option: &Row) -> String {
    match &option.default {
        None => option.unset.clone(),
        Some(Value::Integer(number)) => match option.size() {
            Some(size) => format!("`{number}` ({size})"),
            None => format!("`{number}`"),
        },
        Some(Value::List(items)) if items.is_empty() => "none".to_owned(),
        Some(Value::List(items)) => {
            let items = items.iter().map(|item| format!("`{}`", item.as_text()));
            items.collect::<Vec<_>>().join(", ")
        }
        Some(value) => format!("`{}`", value.as_text()),
    }
}

pub(super) fn range(option: &Row) -> String {
    if !option.values.is_empty() {
        let values = option.values.iter();
        let values = values.map(|value| format!("`{}`", value.as_text()));
        return values.collect::<Vec<_>>().join(", ");
    }
    match option.kind() {
        Kind::Integer => match option.range() {
            (smallest, u64::MAX) => format!("from {smallest}"),
            (smallest, largest) => format!("{smallest} to {largest}"),
        },
        Kind::Boolean => "`true`, `false`".to_owned(),
        Kind::Choice => String::new(),
        Kind::Text | Kind::Secret => "a text".to_owned(),
        Kind::Ratio => "0 to 1".to_owned(),
        Kind::File => "a path".to_owned(),
        Kind::Address => "`HOST:PORT`".to_owned(),
        Kind::List => "a list".to_owned(),
        Kind::Counts => "patterns with numbers".to_owned(),
        Kind::Texts | Kind::Headers => "names with texts".to_owned(),
        Kind::Number => "from 0".to_owned(),
        Kind::Stages => "`TIME:NUMBER,…`".to_owned(),
        Kind::Statuses => "statuses".to_owned(),
        Kind::Precision => "`FIGURE:SHARE%`".to_owned(),
        Kind::Reply => {
            "`pong`, `order`, `field:NAME`, `regex:EXPRESSION`, `seq:FROM..TO`".to_owned()
        }
        Kind::Json => "any value".to_owned(),
        Kind::Rules => "a list of [rules](#rules-of-topics)".to_owned(),
    }
}

pub(super) fn meaning(option: &Row) -> String {
    let mut text = option.help.clone();
    if !option.more.is_empty() {
        write!(text, ". {}", option.more.trim_end_matches('.'))
            .expect("a String takes every write");
    }
    text
}

/// The ways that an option does not have.
fn ways(option: &Row) -> &'static str {
    match [Way::Flag, Way::Variable, Way::File, Way::Keyword].map(|way| option.has(way)) {
        [true, true, true, false] => ". Not in the bindings",
        [true, true, false, false] => ". On the command line and in the environment only",
        [false, false, false, true] => ". In the bindings only",
        _ => "",
    }
}

pub(super) fn or_dash(text: &str) -> String {
    if text.is_empty() { "–" } else { text }.to_owned()
}

/// The name that Markdown gives to a heading.
fn anchor(title: &str) -> String {
    let letters = title.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '\'' | ',' => None,
        _ => Some(letter.to_ascii_lowercase()),
    });
    letters.collect()
}

const HEADER: &str = "\
<!-- Generated from options/*.toml by `cargo xtask options`. Do not edit. -->

# Options of a server

Every option of a Tidewire server, each with one name in four spellings:

| where | spelling |
|---|---|
| command line of [`tidewire serve`](cli.md#tidewire-serve) | the flag: `--message-bytes-max 65536` |
| environment | the variable: `TIDEWIRE_MESSAGE_BYTES_MAX=65536` |
| configuration file (`--config`), TOML | the name: `message_bytes_max = 65_536` |
| [`tidewire.Server`](python.md#options), Python | the name: `message_bytes_max=65536` |

A flag overrides a variable, a variable overrides the file, and the file overrides the default. Lists are given several
times or with commas on the command line, with commas in the environment, and as arrays in the file. Switches take `true` or
`false`; a flag alone means `true`, and `--no-auth=false` means `false`. An unknown name is an error that names the nearest
option; in the environment it is only a warning, because other programs set names of their own.

";

const RULES: &str = "
## Rules of topics

The keys of a `[[topics.rule]]` in the configuration file, and of a dict in `topic_rules` in Python. The first rule whose
pattern matches a topic applies.

| key | unit | default | range | meaning |
|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_sample() {
        let text = reference(&samples::table());
        for expected in [
            "| `wait_ms` | `--wait-ms MS` | `TIDEWIRE_WAIT_MS` | ms | `7` | 1 to 9 | Time to wait, unless `mode` is `off` |\n",
            "| `mode` | – | – | – | `off` | `off`, `on` | Whether to wait. In the bindings only |\n",
            "| – | `/ws`, `/wse` | a list | Paths |\n",
            "| no file | a path | A file, or a\\|b |\n",
            "| `pattern` | – | required | a text | A pattern. ",
        ] {
            let expected = expected.trim_end_matches(". ");
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
