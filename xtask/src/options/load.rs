//! The table of a load's options for the lab and the program, and its reference page.

use std::fmt::Write as _;

use super::page::{default, links, meaning, or_dash, range};
use super::table::{Item, Kind, Row, Table, Way};
use super::value::Value;
use crate::generated::{push, row};

/// The static tables `GROUPS` and `OPTIONS`, and the form in which programs give the options.
pub(crate) fn table(table: &Table) -> String {
    let mut out = String::from(HEADER);
    for group in &table.groups {
        line(&mut out, &format!("({:?}, {:?}),", group.name, group.title));
    }
    out.push_str(OPTIONS);
    for group in &table.groups {
        for option in &group.options {
            let spec = spec(table, &group.name, option);
            line(&mut out, &format!("{spec},"));
        }
    }
    out.push_str(WRITTEN);
    for option in table.options() {
        let name = &option.name;
        line(&mut out, &format!("pub(super) {name}: {},", field(option)));
    }
    out.push_str("}\n");
    out
}

fn spec(table: &Table, group: &str, row: &Row) -> String {
    let as_flags = |text: &str| {
        table.spelled(text, "", |row| {
            row.flag().unwrap_or_else(|| row.name.clone())
        })
    };
    let (name, help, placeholder) = (&row.name, as_flags(&row.help), row.placeholder());
    let default = match &row.default {
        Some(Value::Boolean(_)) => String::new(),
        Some(value) => value.as_text(),
        None if row.unset == "none" => String::new(),
        None => as_flags(&row.unset),
    };
    let flag = row.flag();
    let flag = flag.as_deref().map(|flag| flag.trim_start_matches('-'));
    let short = row.short.chars().next();
    let (needs, excludes) = (&row.needs, &row.excludes);
    let (kind, keyword) = (kind(row), row.has(Way::Keyword));
    format!(
        "OptionSpec {{ name: {name:?}, group: {group:?}, kind: Kind::{kind}, placeholder: {placeholder:?}, \
         default: {default:?}, help: {help:?}, flag: {flag:?}, short: {short:?}, needs: &{needs:?}, \
         excludes: &{excludes:?}, keyword: {keyword} }}"
    )
}

fn kind(row: &Row) -> String {
    let values: Vec<String> = row.values.iter().map(Value::as_text).collect();
    match (row.kind(), row.item) {
        (Kind::Integer, _) => {
            let (smallest, largest) = row.range();
            format!("Integer {{ smallest: {smallest}, largest: {largest} }}")
        }
        (Kind::Number, _) if row.unit == "s" => "Seconds".to_owned(),
        (Kind::Boolean, _) => format!("Boolean({})", is_true(row)),
        (Kind::Choice, _) => format!("Choice(&{values:?})"),
        (Kind::List, Some(Item::Expectation)) => "Expectations".to_owned(),
        (Kind::List, Some(Item::Address)) => "Addresses".to_owned(),
        (Kind::Secret | Kind::File | Kind::Json, _) => "Text".to_owned(),
        (kind, _) => format!("{kind:?}"),
    }
}

/// The type of a field of the form in which programs give the options.
fn field(row: &Row) -> &'static str {
    match row.kind() {
        Kind::Integer if row.range().1 <= u64::from(u32::MAX) => "Option<u32>",
        Kind::Integer => "Option<u64>",
        Kind::Number => "Option<f64>",
        Kind::Boolean if is_true(row) => "Option<bool>",
        Kind::Boolean => "bool",
        Kind::File => "Option<PathBuf>",
        Kind::List => "Texts",
        Kind::Texts | Kind::Headers => "Option<Pairs>",
        Kind::Json => "Option<serde_json::Value>",
        _ => "Option<String>",
    }
}

fn is_true(row: &Row) -> bool {
    row.default == Some(Value::Boolean(true))
}

/// The text of `docs/load-options.md`.
pub(crate) fn reference(table: &Table) -> String {
    let mut out = String::from(PAGE);
    push(&mut out, &links(table));
    for group in &table.groups {
        push(&mut out, &format!("\n## {}\n", group.title));
        out.push_str("| name | flag | unit | default | range | meaning |\n");
        out.push_str("|---|---|---|---|---|---|\n");
        for option in &group.options {
            let keyword = option.has(Way::Keyword).then_some(&option.name);
            let cells = [
                keyword.map_or_else(|| or_dash(""), |name| format!("`{name}`")),
                flag(option),
                or_dash(&option.unit),
                default(option),
                range(option),
                format!("{}{}", meaning(option), others(option)),
            ];
            push(&mut out, &row(&cells));
        }
    }
    out
}

fn flag(row: &Row) -> String {
    let Some(flag) = row.flag() else {
        return or_dash("");
    };
    let placeholder = match row.kind() {
        Kind::Boolean => String::new(),
        _ => format!(" {}", row.placeholder()),
    };
    match row.short.as_str() {
        "" => format!("`{flag}{placeholder}`"),
        short => format!("`-{short}`, `{flag}{placeholder}`"),
    }
}

/// The options that an option needs, and those that it excludes.
fn others(row: &Row) -> String {
    let listed = |words: &str, names: &[String]| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        match names.is_empty() {
            true => String::new(),
            false => format!(". {words} {}", names.join(", ")),
        }
    };
    listed("Needs", &row.needs) + &listed("Not together with", &row.excludes)
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "    {text}").expect("a String takes every write");
}

const HEADER: &str = "//! Generated from `options/load.toml` by `cargo xtask options`. Do not edit.

use std::path::PathBuf;

use serde::Deserialize;

use super::spec::{Kind, OptionSpec, Pairs, Texts};

/// The groups of options, in the order of the reference: their names, and their titles.
#[rustfmt::skip]
pub static GROUPS: &[(&str, &str)] = &[
";

const OPTIONS: &str = "];

/// Every option of a load, group by group.
#[rustfmt::skip]
pub static OPTIONS: &[OptionSpec] = &[
";

const WRITTEN: &str = "];

/// The options as programs give them.
#[rustfmt::skip]
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Written {
";

const PAGE: &str = "\
<!-- Generated from options/load.toml by `cargo xtask options`. Do not edit. -->

# Options of a load

`tidewire load` has the flags. `tidewire.load` in Python has the names as keyword arguments, `load` in Node has them in
camelCase, and a JSON object has them for `LoadOptions::from_json` in Rust. All four check a value alike. One load in three of them:

```text
tidewire load http://127.0.0.1:8080/ --rate-per-s 500                       # the program
tidewire.load(\"http://127.0.0.1:8080/\", rate_per_s=500)                     # Python
await load(\"http://127.0.0.1:8080/\", { ratePerS: 500 })                     // Node
```

On the command line a number may end in k, M or G, and a time in ms, s, m or h. A flag of a list is written once for each
item. Programs give numbers, and for a list a text or a list of texts.

";

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_sample() {
        let (table, page) = (table(&samples::load()), reference(&samples::load()));
        for expected in [
            "(\"plan\", \"Plan\"),",
            "kind: Kind::Integer { smallest: 1, largest: 9 }, placeholder: \"N\", default: \"5\"",
            "flag: Some(\"users\"), short: Some('u'), needs: &[], excludes: &[], keyword: true }",
            "kind: Kind::Expectations, placeholder: \"EXPECTATION\", default: \"\"",
            "excludes: &[\"users\"]",
            "kind: Kind::Boolean(true)",
            "flag: Some(\"no-keep\"), short: None",
            "pub(super) users: Option<u32>,\n    pub(super) expect: Texts,\n    pub(super) keep: Option<bool>,",
        ] {
            assert!(table.contains(expected), "{expected}\n{table}");
        }
        for expected in [
            "| `users` | `-u`, `--users N` | users | `5` | 1 to 9 | Users, unless `expect` is given |",
            "| `keep` | `--no-keep` | – | `true` | `true`, `false` | Keep it |",
            "What must hold. Not together with `users` |",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
    }
}
