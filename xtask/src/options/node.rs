//! The options of the Node package's `Server` with their types, laid out as its formatter would.

use std::fmt::Write as _;

use super::table::{Kind, Row, Table, Way};
use super::value::Value;
use crate::generated::wrapped;

/// The text of `server-options.d.ts`.
pub(crate) fn options(table: &Table) -> String {
    let mut out = String::from(HEADER);
    for key in &table.rule_keys {
        field(&mut out, table, key);
    }
    out.push_str(ENGINE_OPTIONS);
    for option in table.options().filter(|option| option.has(Way::Keyword)) {
        field(&mut out, table, option);
    }
    out.push_str("}\n");
    out
}

/// The text of `load-options.d.ts`.
pub(crate) fn load_options(table: &Table) -> String {
    let mut out = String::from(LOAD_OPTIONS);
    for option in table.options().filter(|option| option.has(Way::Keyword)) {
        field(&mut out, table, option);
    }
    out.push_str("}\n");
    out
}

fn field(out: &mut String, table: &Table, row: &Row) {
    let default = match &row.default {
        None => row.unset.clone(),
        Some(value) => match row.size() {
            Some(size) => format!("{} ({size})", literal(value)),
            None => literal(value),
        },
    };
    let is_required = row.default.is_none() && row.unset == "required";
    let help = table.spelled(&row.help, "`", |row| camel_case(&row.name));
    let comment = match is_required {
        true => format!("{help}."),
        false => format!("{help}. Default: {default}."),
    };
    if comment.len() <= LINE_BYTES_MAX {
        writeln!(out, "  /** {comment} */").expect(WRITTEN);
    } else {
        writeln!(out, "  /**").expect(WRITTEN);
        for line in wrapped(&comment, LINE_BYTES_MAX) {
            writeln!(out, "   * {line}").expect(WRITTEN);
        }
        writeln!(out, "   */").expect(WRITTEN);
    }
    let (name, kind) = (camel_case(&row.name), annotation(row));
    match is_required {
        true => writeln!(out, "  {name}: {kind};"),
        false => writeln!(out, "  {name}?: {kind} | null;"),
    }
    .expect(WRITTEN);
}

fn annotation(row: &Row) -> String {
    let values = || {
        let values: Vec<String> = row.values.iter().map(literal).collect();
        values.join(" | ")
    };
    match row.kind() {
        Kind::Integer if !row.values.is_empty() => values(),
        Kind::Integer | Kind::Ratio | Kind::Number => "number".to_owned(),
        Kind::Boolean => "boolean".to_owned(),
        Kind::Choice => values(),
        Kind::Text | Kind::Secret | Kind::Address | Kind::File => "string".to_owned(),
        Kind::Stages | Kind::Statuses | Kind::Precision | Kind::Reply => "string".to_owned(),
        Kind::List => "string | string[]".to_owned(),
        Kind::Counts => "Record<string, number> | string[]".to_owned(),
        Kind::Texts => "Record<string, string>".to_owned(),
        Kind::Headers => "Record<string, string> | [name: string, value: string][]".to_owned(),
        Kind::Json => "unknown".to_owned(),
        Kind::Rules => "TopicRule[]".to_owned(),
    }
}

/// A value as JavaScript writes it.
fn literal(value: &Value) -> String {
    match value {
        Value::Boolean(value) => value.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => format!("\"{text}\""),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| format!("\"{name}\": {}", literal(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(word.len().min(1));
        camel.push_str(&first.to_ascii_uppercase());
        camel.push_str(rest);
    }
    camel
}

/// Comments end at column 100, and `  /** ` begins them and ` */` ends them.
const LINE_BYTES_MAX: usize = 91;

const WRITTEN: &str = "a String takes every write";

const HEADER: &str = "\
// Generated from options/*.toml by `cargo xtask options`. Do not edit.

/** The history and other rules of the topics that match a pattern. */
export interface TopicRule {
";

const ENGINE_OPTIONS: &str = "}

/**
 * The options of the engine, with the names and units of `tidewire serve` in camelCase. `null` is the default of each.
 *
 * Protocol version 1 needs a key to check tokens with (`jwtSecret`, `jwtSecretFile` or `jwtPublicKey`), or `noAuth: true`.
 * Limits hold per connection unless their description says otherwise.
 */
export interface EngineOptions {
";

const LOAD_OPTIONS: &str = "\
// Generated from options/load.toml by `cargo xtask options`. Do not edit.

/** The options of a load, with the names and units of `tidewire load` in camelCase. `null` is the default of each. */
export interface LoadSettings {
";

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_sample() {
        let text = options(&samples::table());
        for expected in [
            "  /** Time to wait, unless `mode` is `off`. Default: 7. */\n  waitMs?: number | null;\n",
            "  mode?: \"off\" | \"on\" | null;\n",
            "  path?: string | string[] | null;\n",
            "  /** A pattern. */\n  pattern: string;\n",
            "  keyFile?: string | null;\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }

    #[test]
    fn names_are_in_camel_case() {
        assert_eq!(camel_case("message_bytes_max"), "messageBytesMax");
        assert_eq!(camel_case("port"), "port");
    }
}
