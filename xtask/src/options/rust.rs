//! The table for the engine and the program, one line for each option.

use std::fmt::Write as _;

use super::table::{Group, Kind, Row, Table, Way};
use super::value::Value;

/// The static tables `GROUPS`, `OPTIONS` and `RULE_KEYS`.
pub(crate) fn table(table: &Table) -> String {
    let mut out = String::from(HEADER);
    for group in &table.groups {
        let Group {
            name, title, about, ..
        } = group;
        line(
            &mut out,
            &format!("GroupSpec {{ name: {name:?}, title: {title:?}, about: {about:?} }},"),
        );
    }
    out.push_str(OPTIONS);
    for group in &table.groups {
        for option in &group.options {
            line(&mut out, &format!("{},", spec(&group.name, option)));
        }
    }
    out.push_str(RULE_KEYS);
    for key in &table.rule_keys {
        line(&mut out, &format!("{},", spec("rule", key)));
    }
    out.push_str("];\n");
    out
}

fn spec(group: &str, row: &Row) -> String {
    let (name, unit, placeholder) = (&row.name, &row.unit, row.placeholder());
    let (help, unset) = (&row.help, &row.unset);
    let default = row.default.as_ref().map(Value::as_text);
    let (flag, variable) = (row.has(Way::Flag), row.variable());
    let (file, keyword) = (row.has(Way::File), row.has(Way::Keyword));
    let kind = kind(row);
    format!(
        "OptionSpec {{ name: {name:?}, group: {group:?}, kind: Kind::{kind}, unit: {unit:?}, \
         placeholder: {placeholder:?}, default: {default:?}, unset: {unset:?}, help: {help:?}, \
         flag: {flag}, variable: {variable:?}, file: {file}, keyword: {keyword} }}"
    )
}

fn kind(row: &Row) -> String {
    let values: Vec<String> = row.values.iter().map(Value::as_text).collect();
    match row.kind() {
        Kind::Integer if !values.is_empty() => format!("Numbers(&[{}])", values.join(", ")),
        Kind::Integer => match row.range() {
            (smallest, u64::MAX) => {
                format!("Integer {{ smallest: {smallest}, largest: u64::MAX }}")
            }
            (smallest, largest) => {
                format!("Integer {{ smallest: {smallest}, largest: {largest} }}")
            }
        },
        Kind::Choice => format!("Choice(&{values:?})"),
        kind @ (Kind::List | Kind::Counts) => match row.item {
            Some(item) if kind == Kind::List => format!("List(Item::{item:?})"),
            _ => "Counts".to_owned(),
        },
        kind => format!("{kind:?}"),
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "    {text}").expect("a String takes every write");
}

const HEADER: &str = "//! Generated from `options/*.toml` by `cargo xtask options`. Do not edit.

use super::spec::{GroupSpec, Item, Kind, OptionSpec};

/// The groups of options, in the order of the reference.
#[rustfmt::skip]
pub static GROUPS: &[GroupSpec] = &[
";

const OPTIONS: &str = "];

/// Every option of a server, group by group.
#[rustfmt::skip]
pub static OPTIONS: &[OptionSpec] = &[
";

const RULE_KEYS: &str = "];

/// The keys of a rule of topics: `[[topics.rule]]` of the configuration file, `topic_rules` of a binding.
#[rustfmt::skip]
pub static RULE_KEYS: &[OptionSpec] = &[
";

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_sample() {
        let text = table(&samples::table());
        for expected in [
            "    GroupSpec { name: \"limits\", title: \"Limits\", about: \"\" },\n",
            "kind: Kind::Integer { smallest: 1, largest: 9 }, unit: \"ms\", placeholder: \"MS\", default: Some(\"7\")",
            "kind: Kind::Choice(&[\"off\", \"on\"])",
            "flag: false, variable: None, file: false, keyword: true }",
            "kind: Kind::List(Item::Path), unit: \"\", placeholder: \"PATH\", default: Some(\"/ws,/wse\")",
            "default: None, unset: \"no file\"",
            "variable: Some(\"TIDEWIRE_KEY\")",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
