//! The Rust constants, laid out as rustfmt would.

use std::fmt::Write as _;

use super::table::{ErrorRow, Fault, Retry, Table};

/// The enum `ErrorCode` with its spellings and policies.
pub(crate) fn error_codes(table: &Table) -> String {
    let mut out = String::from(HEADER);
    out.push_str("use super::{Condition, Fault, Retry};\n\n");
    out.push_str(
        "/// Every error code of protocol version 1. Its spelling on the wire is [`ErrorCode::as_str`].\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\npub enum ErrorCode {\n",
    );
    for row in &table.errors {
        let variant = variant(&row.spelling);
        line(
            &mut out,
            1,
            &format!("/// `{}`: {}.", row.spelling, row.meaning),
        );
        line(&mut out, 1, &format!("{variant},"));
    }
    out.push_str("}\n\nimpl ErrorCode {\n");
    line(&mut out, 1, "/// All codes, in the order of the table.");
    let count = table.errors.len();
    line(&mut out, 1, &format!("pub const ALL: [Self; {count}] = ["));
    for row in &table.errors {
        line(&mut out, 2, &format!("Self::{},", variant(&row.spelling)));
    }
    line(&mut out, 1, "];\n");
    line(&mut out, 1, "/// The spelling on the wire.");
    let spellings = |row: &ErrorRow| format!("\"{}\"", row.spelling);
    error_function(&mut out, table, "as_str(self) -> &'static str", spellings);
    line(&mut out, 1, "/// Whose fault it is.");
    error_function(&mut out, table, "fault(self) -> Fault", |row| {
        fault(row.fault)
    });
    line(
        &mut out,
        1,
        "/// Whether the session goes on after it, so that a later or a corrected message can succeed.",
    );
    let recoverable = |row: &ErrorRow| row.recoverable.to_string();
    error_function(&mut out, table, "recoverable(self) -> bool", recoverable);
    line(
        &mut out,
        1,
        "/// Whether the refused message may be sent again.",
    );
    error_function(&mut out, table, "retry(self) -> Retry", |row| {
        retry(row.retry())
    });
    // The last function ends the block, without an empty line.
    out.pop();
    out.push_str("}\n");
    out
}

/// The constants of `CloseCode` and their policies.
pub(crate) fn close_codes(table: &Table) -> String {
    let mut out = String::from(HEADER);
    out.push_str(
        "use super::CloseCode;\nuse crate::codes::{Condition, Fault, Retry};\n\nimpl CloseCode {\n",
    );
    let on_wire = || table.closes.iter().filter(|row| row.on_wire);
    for row in on_wire() {
        let (name, number) = (&row.name, row.number);
        line(&mut out, 1, &format!("/// {number}: {}.", row.meaning));
        line(
            &mut out,
            1,
            &format!("pub const {name}: Self = Self({number});"),
        );
    }
    out.push('\n');
    line(
        &mut out,
        1,
        "/// Whose fault the end was; `None` if it was nobody's or the code is not known.",
    );
    let faults = on_wire()
        .filter(|row| row.fault != Fault::None)
        .map(|row| (row.number.to_string(), some(row.fault)));
    number_function(
        &mut out,
        "fault(self) -> Option<Fault>",
        &arms(faults),
        "None",
    );
    line(
        &mut out,
        1,
        "/// Whether to open a new connection. What the code itself does not say, its range says.",
    );
    let codes = on_wire().map(|row| (row.number.to_string(), retry(row.reconnect())));
    let (last, ranges) = table.ranges.split_last().expect("the ranges reach 4999");
    let ranges = ranges.iter().map(|row| {
        (
            format!("{}..={}", row.first, row.last),
            retry(row.reconnect()),
        )
    });
    // An arm for a code comes before the range around it.
    let rows = [arms(codes), arms(ranges)].concat();
    let otherwise = retry(last.reconnect());
    number_function(&mut out, "reconnect(self) -> Retry", &rows, &otherwise);
    out.pop();
    out.push_str("}\n");
    out
}

/// One arm for each value, in the order in which the values appear first.
fn arms(rows: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut arms: Vec<(String, String)> = Vec::new();
    for (pattern, value) in rows {
        match arms.iter_mut().find(|(_, known)| *known == value) {
            Some((patterns, _)) => *patterns += &format!(" | {pattern}"),
            None => arms.push((pattern, value)),
        }
    }
    arms
}

fn error_function(
    out: &mut String,
    table: &Table,
    signature: &str,
    value: impl Fn(&ErrorRow) -> String,
) {
    line(out, 1, &format!("pub const fn {signature} {{"));
    line(out, 2, "match self {");
    for row in &table.errors {
        line(
            out,
            3,
            &format!("Self::{} => {},", variant(&row.spelling), value(row)),
        );
    }
    line(out, 2, "}");
    line(out, 1, "}\n");
}

fn number_function(out: &mut String, signature: &str, rows: &[(String, String)], otherwise: &str) {
    line(out, 1, "#[must_use]");
    line(out, 1, &format!("pub const fn {signature} {{"));
    line(out, 2, "match self.0 {");
    for (pattern, value) in rows {
        arm(out, pattern, value);
    }
    line(out, 3, &format!("_ => {otherwise},"));
    line(out, 2, "}");
    line(out, 1, "}\n");
}

/// An arm as the formatter would have it: one that is too long for its line gets a block, and patterns that are too
/// long for theirs fill several.
fn arm(out: &mut String, pattern: &str, value: &str) {
    let room = LINE_BYTES_MAX - 3 * INDENT.len();
    let text = format!("{pattern} => {value},");
    if text.len() <= room {
        return line(out, 3, &text);
    }
    let opening = format!("{pattern} => {{");
    if opening.len() <= room {
        line(out, 3, &opening);
        line(out, 4, value);
        return line(out, 3, "}");
    }
    let mut filled = String::new();
    for (index, part) in pattern.split(" | ").enumerate() {
        let next = if index == 0 {
            part.to_owned()
        } else {
            format!(" | {part}")
        };
        if filled.len() + next.len() + " => {".len() > room {
            line(out, 3, &filled);
            filled = next.trim_start().to_owned();
        } else {
            filled += &next;
        }
    }
    line(out, 3, &format!("{filled} => {value},"));
}

fn line(out: &mut String, indent: usize, text: &str) {
    writeln!(out, "{}{text}", INDENT.repeat(indent)).expect("a String takes every write");
}

/// `AUTH_FAILED` as `AuthFailed`.
fn variant(spelling: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_owned() + &rest.to_ascii_lowercase()
    };
    spelling
        .split('_')
        .filter(|part| !part.is_empty())
        .map(word)
        .collect()
}

fn fault(fault: Fault) -> String {
    format!("Fault::{fault:?}")
}

fn some(fault: Fault) -> String {
    format!("Some({})", self::fault(fault))
}

fn retry(retry: Retry) -> String {
    match retry {
        Retry::No => "Retry::No".to_owned(),
        Retry::Yes => "Retry::Yes".to_owned(),
        Retry::After(condition) => format!("Retry::After(Condition::{condition:?})"),
    }
}

const HEADER: &str =
    "//! Generated from `protocol/codes.toml` by `cargo xtask codes`. Do not edit.\n\n";

const INDENT: &str = "    ";

/// As in `rustfmt.toml`.
const LINE_BYTES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::super::table::samples::TABLE;
    use super::*;

    #[test]
    fn error_codes_of_the_sample() {
        let text = error_codes(&Table::parse(TABLE).unwrap());
        for expected in [
            "    /// `AUTH_FAILED`: no token.\n    AuthFailed,\n",
            "pub const ALL: [Self; 2] = [\n        Self::AuthFailed,\n        Self::ServerError,\n    ];",
            "            Self::AuthFailed => \"AUTH_FAILED\",\n",
            "            Self::ServerError => Fault::Server,\n",
            "            Self::AuthFailed => false,\n",
            "            Self::AuthFailed => Retry::After(Condition::NewToken),\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }

    #[test]
    fn close_codes_of_the_sample() {
        let text = close_codes(&Table::parse(TABLE).unwrap());
        for expected in [
            "    /// 1000: over and out.\n    pub const NORMAL: Self = Self(1000);\n",
            "            4300 => Some(Fault::Server),\n            _ => None,\n",
            "            1000 => Retry::No,\n            4300 => Retry::Yes,\n",
            "            1000..=3999 => Retry::After(Condition::Delay),\n            _ => Retry::Yes,\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert!(!text.contains("ABNORMAL"), "it is never on the wire");
    }

    #[test]
    fn a_long_arm_gets_a_block_or_several_lines() {
        let mut out = String::new();
        let numbers = |count| vec!["4000"; count].join(" | ");
        arm(&mut out, &numbers(11), "Some(Fault::Peer)");
        arm(&mut out, "4300", "Some(Fault::Server)");
        arm(&mut out, &numbers(13), "Some(Fault::Peer)");
        let expected = format!(
            "            {} => {{\n                Some(Fault::Peer)\n            }}\n            \
             4300 => Some(Fault::Server),\n            \
             {}\n            | 4000 => Some(Fault::Peer),\n",
            numbers(11),
            numbers(12)
        );
        assert_eq!(out, expected);
    }
}
