//! The table as JSON, for programs that read no TOML.

use serde::Serialize;

use super::table::{Kind, Row, Table, Way};
use super::value::Value;

#[derive(Serialize)]
struct TableText<'a> {
    version: u32,
    groups: Vec<GroupText<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rule_keys: Vec<RowText<'a>>,
}

#[derive(Serialize)]
struct GroupText<'a> {
    name: &'a str,
    title: &'a str,
    about: &'a str,
    options: Vec<RowText<'a>>,
}

/// Parts that a way does not have, or that do not apply to a kind, are left out.
#[derive(Serialize)]
struct RowText<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    flag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variable: Option<String>,
    file: bool,
    keyword: bool,
    kind: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    smallest: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    largest: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    values: &'a [Value],
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<&'a Value>,
    #[serde(skip_serializing_if = "str::is_empty")]
    unset: &'a str,
    help: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    more: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    needs: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    example: Option<Value>,
    #[serde(skip_serializing_if = "str::is_empty")]
    rust: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    typescript: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    typescript_default: Option<&'a Value>,
}

/// The options of a server, or those of the clients.
pub(crate) fn text(table: &Table) -> String {
    let groups = table.groups.iter().map(|group| GroupText {
        name: &group.name,
        title: &group.title,
        about: &group.about,
        options: group.options.iter().map(row).collect(),
    });
    let text = TableText {
        version: 1,
        groups: groups.collect(),
        rule_keys: table.rule_keys.iter().map(row).collect(),
    };
    let text = serde_json::to_string_pretty(&text);
    text.expect("texts, numbers and lists have a form in JSON") + "\n"
}

fn row(row: &Row) -> RowText<'_> {
    let is_range = row.kind() == Kind::Integer && row.values.is_empty();
    let (smallest, largest) = row.range();
    RowText {
        name: &row.name,
        flag: row.flag(),
        variable: row.variable(),
        file: row.has(Way::File),
        keyword: row.has(Way::Keyword),
        kind: format!("{:?}", row.kind()).to_ascii_lowercase(),
        unit: &row.unit,
        smallest: is_range.then_some(smallest),
        largest: is_range
            .then_some(largest)
            .filter(|&largest| largest != u64::MAX),
        values: &row.values,
        item: row
            .item
            .map(|item| format!("{item:?}").to_ascii_lowercase()),
        default: row.default.as_ref(),
        unset: &row.unset,
        help: &row.help,
        more: &row.more,
        needs: &row.needs,
        example: row.example(),
        rust: &row.rust,
        typescript: &row.typescript,
        typescript_default: row.typescript_default(),
    }
}
