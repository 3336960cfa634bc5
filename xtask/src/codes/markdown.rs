//! The page of error and close codes for people.

use super::table::{Condition, Fault, Retry, Table};
use crate::generated::{push, row};

/// The page: one table for errors, one for close codes, one for the ranges of all other close codes.
pub(crate) fn page(table: &Table) -> String {
    let mut out = String::from(HEADER);
    for error in &table.errors {
        let session = if error.recoverable {
            "continues"
        } else {
            "ends"
        };
        push(
            &mut out,
            &row(&[
                format!("`{}`", error.spelling),
                error.meaning.clone(),
                fault(error.fault, "client").to_owned(),
                session.to_owned(),
                retry(error.retry()).to_owned(),
                error.advice.clone(),
            ]),
        );
    }
    out.push_str(CLOSES);
    for close in &table.closes {
        let wire = if close.on_wire {
            ""
        } else {
            "; never in a close frame"
        };
        push(
            &mut out,
            &row(&[
                close.number.to_string(),
                format!("`{}`", close.name),
                close.meaning.clone() + wire,
                fault(close.fault, "who receives it").to_owned(),
                retry(close.reconnect()).to_owned(),
                close.advice.clone(),
            ]),
        );
    }
    out.push_str(RANGES);
    for range in &table.ranges {
        let codes = format!("{} to {}", range.first, range.last);
        push(
            &mut out,
            &row(&[
                codes,
                range.meaning.clone(),
                retry(range.reconnect()).to_owned(),
            ]),
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

fn retry(retry: Retry) -> &'static str {
    match retry {
        Retry::No => "no",
        Retry::Yes => "yes",
        Retry::After(Condition::Delay) => "after a delay",
        Retry::After(Condition::NewToken) => "with a new token",
        Retry::After(Condition::KeyExchange) => "with a public key in the next `client_hello`",
    }
}

const HEADER: &str = "\
<!-- Generated from protocol/codes.toml by `cargo xtask codes`. Do not edit. -->

# Error and close codes

Find the code of an error or of a log line in the first column. The last column states what to do. An error answers one message:
`error.code` in TypeScript and Python, `error.code()` in Rust. A close code ends the connection: `closeCode` in TypeScript,
`close_code` in Python. Names such as `errors_max` in the last column are [options of the server](options.md).

An example: a page reports `closeCode` 4401. The row [4401](#close-codes) names the cause, a token that is missing, wrong or expired. It
also says that the client reconnects with a new token, and what to do if that fails.

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

An application closes a connection with a code of its own, from 4000 to 4299, or with another that a close frame may carry. A code that is in no table above is handled as its range.

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
