//! The page of error and close codes for people.

use std::fmt::Write as _;

use super::table::{Condition, Fault, Retry, Table};

/// The page: one table for errors, one for close codes, one for the ranges of all other close codes.
pub(crate) fn page(table: &Table) -> String {
    let mut out = String::from(HEADER);
    for row in &table.errors {
        let session = if row.recoverable { "continues" } else { "ends" };
        let again = retry(row.retry(), "with the next `client_hello`, which has a key");
        let cells = format!("{session} | {again} | {}", row.advice);
        line(
            &mut out,
            &format!(
                "| `{}` | {} | {} | {cells} |",
                row.spelling,
                row.meaning,
                fault(row.fault, "client")
            ),
        );
    }
    out.push_str(CLOSES);
    for row in &table.closes {
        let wire = if row.on_wire {
            ""
        } else {
            "; never in a close frame"
        };
        let cells = format!("{} | {}", retry(row.reconnect(), "with a key"), row.advice);
        let fault = fault(row.fault, "who receives it");
        line(
            &mut out,
            &format!(
                "| {} | `{}` | {}{wire} | {fault} | {cells} |",
                row.number, row.name, row.meaning
            ),
        );
    }
    out.push_str(RANGES);
    for row in &table.ranges {
        let again = retry(row.reconnect(), "with a key");
        line(
            &mut out,
            &format!(
                "| {} to {} | {} | {again} |",
                row.first, row.last, row.meaning
            ),
        );
    }
    out
}

/// The party at fault; `peer` names the one that receives the code.
fn fault(fault: Fault, peer: &'static str) -> &'static str {
    match fault {
        Fault::Peer => peer,
        Fault::Caller => "application of the server",
        Fault::Server => "server",
        Fault::None => "nobody",
    }
}

fn retry(retry: Retry, with_key: &'static str) -> &'static str {
    match retry {
        Retry::No => "no",
        Retry::Yes => "yes",
        Retry::After(Condition::Delay) => "after a delay",
        Retry::After(Condition::NewToken) => "with a new token",
        Retry::After(Condition::KeyExchange) => with_key,
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a String takes every write");
}

const HEADER: &str = "\
<!-- Generated from protocol/codes.toml by `cargo xtask codes`. Do not edit. -->

# Error and close codes

Find the code of your log or of an error in the first column; the last column names what to do. An error answers one message:
`error.code` in TypeScript and Python, `error.code()` in Rust. A close code ends the connection: `closeCode` in TypeScript,
`close_code` in Python. Names in `this font` in the last column are [options of the server](options.md).

Each client has further codes of its own: [TypeScript](typescript.md#errors), [Python](python-client.md), [Rust](client.md). Those of
the HTTP API are on [its page](http-api.md).

## Errors

| code | meaning | whose fault | the session | send it again? | what to do |
|---|---|---|---|---|---|
";

const CLOSES: &str = "
## Close codes

| code | name | meaning | whose fault | reconnect? | what to do |
|---|---|---|---|---|---|
";

const RANGES: &str = "
## Other close codes

An application closes a connection with a code from 4000 to 4299. A code that is in no table above is handled as its range.

| codes | meaning | reconnect? |
|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::super::table::samples::TABLE;
    use super::*;

    #[test]
    fn the_sample() {
        let text = page(&Table::parse(TABLE).unwrap());
        for expected in [
            "| `AUTH_FAILED` | no token | client | ends | with a new token | Log in. |\n",
            "| `SERVER_ERROR` | the server failed | server | continues | no | Wait. |\n",
            "| 1006 | `ABNORMAL` | lost; never in a close frame | nobody | yes | Connect again. |\n",
            "| 1000 to 3999 | others | after a delay |\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
