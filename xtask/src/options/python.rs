//! The keyword arguments of `tidewire.Server` with their types, laid out as its formatter would.

use std::fmt::Write as _;

use super::table::{Kind, Row, Table, Way};
use super::value::Value;
use crate::generated::wrapped;

/// The text of `_options.py`.
pub(crate) fn options(table: &Table) -> String {
    let mut out = String::from(HEADER);
    for key in &table.rule_keys {
        field(&mut out, key);
    }
    out.push_str(SERVER_OPTIONS);
    for option in table.options().filter(|option| option.has(Way::Keyword)) {
        field(&mut out, option);
    }
    out
}

/// The text of `_client_types.py`.
pub(crate) fn client_options(table: &Table) -> String {
    let mut out = String::from(CLIENT_OPTIONS);
    for option in table.options().filter(|option| option.has(Way::Keyword)) {
        field(&mut out, option);
    }
    out
}

/// The text of `_load_types.py`.
pub(crate) fn load_options(table: &Table) -> String {
    let mut out = String::from(LOAD_OPTIONS);
    for option in table.options().filter(|option| option.has(Way::Keyword)) {
        field(&mut out, option);
    }
    out
}

fn field(out: &mut String, row: &Row) {
    let default = match &row.default {
        None => row.unset.clone(),
        Some(value) => match row.size() {
            Some(size) => format!("{} ({size})", literal(value)),
            None => literal(value),
        },
    };
    let mut comment = format!("{}. ", row.help);
    match row.default {
        None if row.unset == "required" => comment.push_str("Required."),
        _ => write!(comment, "Default: {default}.").expect(WRITTEN),
    }
    for line in wrapped(&comment, COMMENT_BYTES_MAX) {
        writeln!(out, "    #: {line}").expect(WRITTEN);
    }
    writeln!(out, "    {}: {}", row.name, annotation(row)).expect(WRITTEN);
}

fn annotation(row: &Row) -> String {
    if !row.python.is_empty() {
        return row.python.clone();
    }
    match row.kind() {
        Kind::Integer => "int".to_owned(),
        Kind::Ratio | Kind::Number => "float".to_owned(),
        Kind::Boolean => "bool".to_owned(),
        Kind::Choice => {
            let values: Vec<String> = row.values.iter().map(literal).collect();
            format!("Literal[{}]", values.join(", "))
        }
        Kind::Text | Kind::Secret | Kind::Address => "str".to_owned(),
        Kind::Stages | Kind::Statuses | Kind::Precision | Kind::Reply => "str".to_owned(),
        Kind::File => "Path".to_owned(),
        Kind::List => "str | Sequence[str]".to_owned(),
        Kind::Counts => "Mapping[str, int] | Sequence[str]".to_owned(),
        Kind::Texts => "Mapping[str, str]".to_owned(),
        Kind::Headers => "Mapping[str, str] | Sequence[tuple[str, str]]".to_owned(),
        Kind::Json => "object".to_owned(),
        Kind::Rules => "Sequence[TopicRule]".to_owned(),
    }
}

/// A value as Python writes it.
fn literal(value: &Value) -> String {
    match value {
        Value::Boolean(true) => "True".to_owned(),
        Value::Boolean(false) => "False".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => format!("\"{text}\""),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| format!("\"{name}\": {}", literal(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Comments end at column 100, and `    #: ` begins them.
const COMMENT_BYTES_MAX: usize = 93;

const WRITTEN: &str = "a String takes every write";

const HEADER: &str = r#"# Generated from options/*.toml by `cargo xtask options`. Do not edit.
"""The options of a server."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]


class TopicRule(TypedDict, total=False):
    """The history and other rules of the topics that match a pattern."""

"#;

const SERVER_OPTIONS: &str = r#"

class ServerOptions(TypedDict, total=False):
    """The options of a server, with the names and units of `tidewire serve`. `None` is the default of each.

    Protocol version 1 needs a key to check tokens with (such as `jwt_secret_file`, `jwt_public_key` or
    `jwt_jwks_url`), or `no_auth=True`. Limits hold per connection unless their description says otherwise.
    """

"#;

const CLIENT_OPTIONS: &str = r#"# Generated from options/client*.toml by `cargo xtask options`. Do not edit.
"""The options of a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypedDict

from ._options import Path

Token = str | Callable[[], str] | Callable[[], Awaitable[str]]
Secret = str | bytes


class ClientOptions(TypedDict, total=False):
    """The options of `connect`. `None` is the default of each."""

"#;

const LOAD_OPTIONS: &str = r#"# Generated from options/load.toml by `cargo xtask options`. Do not edit.
"""The options of a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from ._options import Path


class LoadOptions(TypedDict, total=False):
    """The options of `load`, with the names and units of `tidewire load`. `None` is the default of each."""

"#;

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_sample() {
        let text = options(&samples::table());
        for expected in [
            "    #: Time to wait, unless `mode` is `off`. Default: 7.\n    wait_ms: int\n",
            "    mode: Literal[\"off\", \"on\"]\n",
            "    #: Paths. Default: [\"/ws\", \"/wse\"].\n    path: str | Sequence[str]\n",
            "    #: A pattern. Required.\n    pattern: str\n",
            "Default: no file.\n    key_file: Path\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }

    #[test]
    fn the_sample_of_the_clients() {
        let text = client_options(&samples::client());
        assert!(
            text.contains("    #: A token. Default: none.\n    token: Token\n"),
            "{text}"
        );
        assert!(!text.contains("marks"), "{text}");
    }

    #[test]
    fn comments_are_wrapped() {
        let text = "word ".repeat(40);
        let lines = wrapped(&text, COMMENT_BYTES_MAX);
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= COMMENT_BYTES_MAX));
    }
}
