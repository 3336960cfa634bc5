//! The TypeScript constants of the client for pages and Node, laid out as its formatter would.
//!
//! The text that runs is small, because every page loads it: it has only what the client decides on, and of close codes
//! only those that differ from their range. The names of the codes are objects of their own, which a bundler leaves out
//! where nobody uses them.

use super::table::{Condition, Fault, Retry, Table};
use crate::generated::push;

/// The codes, their types and the lookups of their policies.
pub(crate) fn codes(table: &Table) -> String {
    let mut out = String::from(HEADER);
    names(
        &mut out,
        "ErrorCode",
        "Every error code of protocol version 1: the field `code` of an `error`.",
        table.errors.iter().map(|row| {
            let value = format!("\"{}\"", row.spelling);
            (row.spelling.as_str(), row.meaning.clone(), value)
        }),
    );
    names(
        &mut out,
        "CloseCode",
        "Every close code that the protocol names, with those that only stand for how a connection ended.",
        table.closes.iter().map(|row| {
            let meaning = format!("{}: {}", row.number, row.meaning);
            (row.name.as_str(), meaning, row.number.to_string())
        }),
    );
    push(&mut out, FAULTS);
    for fault in ["client", "server"] {
        let rows = table.errors.iter().filter(|row| {
            let is_servers = matches!(row.fault, Fault::Caller | Fault::Server);
            is_servers == (fault == "server")
        });
        let codes: Vec<&str> = rows.map(|row| row.spelling.as_str()).collect();
        push(&mut out, &format!("const {fault}Faults ="));
        push(&mut out, &format!("  /^({})$/;", codes.join("|")));
    }
    out.push('\n');
    push(&mut out, CLOSES);
    for row in &table.closes {
        let policy = policy(row.fault, row.reconnect());
        if policy != of_range(table, row.number) {
            push(&mut out, &format!("  {}: {policy},", row.number));
        }
    }
    push(&mut out, "};\n");
    let refusing = table.ranges.iter();
    let refusing = refusing.filter(|row| policy(Fault::None, row.reconnect()) == 0);
    let bounds = refusing.map(|row| format!("{}, {}", row.first, row.last));
    let bounds = bounds.collect::<Vec<_>>().join(", ");
    push(&mut out, RANGES);
    push(
        &mut out,
        &format!("const closedRanges: readonly number[] = [{bounds}];\n"),
    );
    out.push_str(FUNCTIONS);
    out
}

/// An object with one member for each code, and the type of its values.
fn names<'a>(
    out: &mut String,
    name: &str,
    about: &str,
    rows: impl Iterator<Item = (&'a str, String, String)>,
) {
    push(out, &format!("/** {about} */"));
    push(out, &format!("export const {name} = {{"));
    for (member, meaning, value) in rows {
        push(out, &format!("  /** {meaning}. */"));
        push(out, &format!("  {member}: {value},"));
    }
    push(out, "} as const;");
    push(
        out,
        &format!("export type {name} = (typeof {name})[keyof typeof {name}];\n"),
    );
}

/// What the client does after a close code: 0 ends it, 1 connects again, 2 connects with another token; 3 more if the
/// server is at fault. There is no key that a page could change, so that a wait for one ends it, too.
fn policy(fault: Fault, reconnect: Retry) -> u32 {
    let reconnect = match reconnect {
        Retry::No | Retry::After(Condition::KeyExchange) => 0,
        Retry::Yes | Retry::After(Condition::Delay) => 1,
        Retry::After(Condition::NewToken) => 2,
    };
    reconnect + if fault == Fault::Server { 3 } else { 0 }
}

/// The same for a code that only its range is known of.
fn of_range(table: &Table, number: u16) -> u32 {
    let mut ranges = table.ranges.iter();
    let range = ranges.find(|row| (row.first..=row.last).contains(&number));
    range.map_or(1, |row| policy(Fault::None, row.reconnect()))
}

const HEADER: &str =
    "// Generated from protocol/codes.toml by `cargo xtask codes`. Do not edit.\n\n";

const FAULTS: &str = "\
/** Errors by who is to blame, as this client sees it: the server's part is also that of its application. */";

const CLOSES: &str = "\
/**
 * What follows a close code, where it is not what follows its range: 0 nothing, 1 a new connection, 2 one with another
 * token; 3 more if the server is to blame.
 */
const closes: Readonly<Record<number, number>> = {";

const RANGES: &str = "\
/** The first and the last code of each range after which there is no new connection. */";

const FUNCTIONS: &str = r#"/** Who caused an error of the server; `application` for a code that the protocol does not have. */
export function faultOf(code: string): "client" | "server" | "application" {
  if (clientFaults.test(code)) return "client";
  return serverFaults.test(code) ? "server" : "application";
}

/** What follows a close code: see {@link closes}. */
function policyOf(code: number): number {
  const isClosed = closedRanges.some(
    (from, at) => at % 2 < 1 && from <= code && code <= closedRanges[at + 1]!,
  );
  return closes[code] ?? (isClosed ? 0 : 1);
}

/** Whether a new connection may follow a close code; `new_token` if it needs another token. */
export function reconnectAfter(code: number): boolean | "new_token" {
  const policy = policyOf(code) % 3;
  return policy > 1 ? "new_token" : policy > 0;
}

/** Whether the server is to blame for the end of a connection. */
export function isServersFault(code: number): boolean {
  return policyOf(code) > 2;
}
"#;

#[cfg(test)]
mod tests {
    use super::super::table::samples::TABLE;
    use super::*;

    #[test]
    fn the_sample() {
        let text = codes(&Table::parse(TABLE).unwrap());
        for expected in [
            "  /** no token. */\n  AUTH_FAILED: \"AUTH_FAILED\",\n",
            "  /** 1000: over and out. */\n  NORMAL: 1000,\n",
            "  ABNORMAL: 1006,\n",
            "  4300: 4,\n",
            "export type CloseCode = (typeof CloseCode)[keyof typeof CloseCode];\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
