//! The TypeScript constants of the client for pages and Node, laid out as its formatter would.
//!
//! The text that runs is small, because every page loads it: a policy is one number, and what it means is decoded when
//! somebody asks. The names of the codes are objects of their own, which a bundler leaves out where nobody uses them.

use std::fmt::Write as _;

use super::table::{Condition, Fault, Retry, Table};

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
    out.push_str(TYPES);
    numbers(
        &mut out,
        "errorPolicies",
        table.errors.iter().map(|row| {
            let policy = 2 * policy(row.fault, row.retry()) + u32::from(row.recoverable);
            (row.spelling.clone(), policy)
        }),
    );
    numbers(
        &mut out,
        "closePolicies",
        table.closes.iter().map(|row| {
            let policy = policy(row.fault, row.reconnect());
            (row.number.to_string(), policy)
        }),
    );
    out.push_str("/** The last code of each range, from 1000 on, and whether to reconnect. */\n");
    out.push_str("const closeRanges: readonly number[] = [\n  ");
    let ranges = table.ranges.iter();
    let pairs = ranges.map(|row| format!("{}, {}", row.last, retry(row.reconnect())));
    out.push_str(&pairs.collect::<Vec<_>>().join(", "));
    out.push_str(",\n];\n\n");
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
    line(out, &format!("/** {about} */"));
    line(out, &format!("export const {name} = {{"));
    for (member, meaning, value) in rows {
        line(out, &format!("  /** {meaning}. */"));
        line(out, &format!("  {member}: {value},"));
    }
    line(out, "} as const;");
    line(
        out,
        &format!("export type {name} = (typeof {name})[keyof typeof {name}];\n"),
    );
}

fn numbers(out: &mut String, name: &str, rows: impl Iterator<Item = (String, u32)>) {
    line(
        out,
        &format!("const {name}: Readonly<Record<string, number>> = {{"),
    );
    for (member, value) in rows {
        line(out, &format!("  {member}: {value},"));
    }
    line(out, "};\n");
}

/// Fault and retry in one number, as the functions below decode it.
fn policy(fault: Fault, retry: Retry) -> u32 {
    let fault = match fault {
        Fault::None => 0,
        Fault::Peer => 1,
        Fault::Caller => 2,
        Fault::Server => 3,
    };
    fault * 5 + self::retry(retry)
}

/// The index in `retries`.
fn retry(retry: Retry) -> u32 {
    match retry {
        Retry::No => 0,
        Retry::Yes => 1,
        Retry::After(Condition::Delay) => 2,
        Retry::After(Condition::NewToken) => 3,
        Retry::After(Condition::KeyExchange) => 4,
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a String takes every write");
}

const HEADER: &str =
    "// Generated from protocol/codes.toml by `cargo xtask codes`. Do not edit.\n\n";

const TYPES: &str = r#"/** Who is at fault: who receives the code, the application that embeds the server, the server, or nobody. */
export type Fault = "none" | "peer" | "caller" | "server";

/**
 * Whether to send the refused message again, or to open a new connection: no; yes, soon; or once a delay is over, the
 * application has given another token, or the next hello offers a public key.
 */
export type Retry = "no" | "yes" | "delay" | "new_token" | "key_exchange";

/** What `codes.toml` says of an error code. */
export interface ErrorPolicy {
  readonly fault: Fault;
  /** Whether the session goes on after it. */
  readonly recoverable: boolean;
  readonly retry: Retry;
}

/** What `codes.toml` says of a close code. */
export interface ClosePolicy {
  /** Whose fault the end was; `none` for a code that is not known. */
  readonly fault: Fault;
  readonly reconnect: Retry;
}

const faults: readonly Fault[] = ["none", "peer", "caller", "server"];
const retries: readonly Retry[] = ["no", "yes", "delay", "new_token", "key_exchange"];

/** Retry plus 5 times fault, twice, plus 1 if recoverable. */
"#;

const FUNCTIONS: &str = r#"/** The policy of an error code; `undefined` for one that is not known, which counts as recoverable. */
export function errorPolicy(code: string): ErrorPolicy | undefined {
  const policy = errorPolicies[code];
  if (typeof policy !== "number") return undefined;
  const half = policy >> 1;
  return {
    fault: faults[(half / 5) | 0] as Fault,
    recoverable: policy % 2 === 1,
    retry: retries[half % 5] as Retry,
  };
}

/** The policy of a close code: its own, or that of its range. A number outside 1000 to 4999 reconnects after a delay. */
export function closePolicy(code: number): ClosePolicy {
  const own = closePolicies[code];
  if (typeof own === "number") {
    return { fault: faults[(own / 5) | 0] as Fault, reconnect: retries[own % 5] as Retry };
  }
  let at = 0;
  while (at < closeRanges.length - 2 && code > (closeRanges[at] as number)) at += 2;
  return { fault: "none", reconnect: retries[closeRanges[at + 1] as number] as Retry };
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
            // Peer, new token, not recoverable; server, no retry, recoverable.
            "  AUTH_FAILED: 16,\n",
            "  4300: 16,\n",
            "const closeRanges: readonly number[] = [\n  3999, 2, 4999, 1,\n];\n",
            "export type CloseCode = (typeof CloseCode)[keyof typeof CloseCode];\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }

    #[test]
    fn every_pair_of_fault_and_retry_has_its_number() {
        let faults = [Fault::None, Fault::Peer, Fault::Caller, Fault::Server];
        let retries = [
            Retry::No,
            Retry::Yes,
            Retry::After(Condition::Delay),
            Retry::After(Condition::NewToken),
            Retry::After(Condition::KeyExchange),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for fault in faults {
            for retry in retries {
                assert!(seen.insert(policy(fault, retry)));
            }
        }
        assert_eq!(seen.len(), 20);
    }
}
