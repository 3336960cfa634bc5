//! The table as it stands in the file, and the rules that it keeps.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

/// Everything that `codes.toml` says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    version: u32,
    /// In the order of the protocol document.
    #[serde(rename = "error")]
    pub(crate) errors: Vec<ErrorRow>,
    /// By number.
    #[serde(rename = "close")]
    pub(crate) closes: Vec<CloseRow>,
    /// By number, without a gap.
    #[serde(rename = "range")]
    pub(crate) ranges: Vec<RangeRow>,
}

/// One error code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorRow {
    pub(crate) spelling: String,
    pub(crate) meaning: String,
    pub(crate) advice: String,
    pub(crate) fault: Fault,
    pub(crate) recoverable: bool,
    retry: Word,
    after: Option<Condition>,
}

/// One close code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CloseRow {
    pub(crate) name: String,
    pub(crate) number: u16,
    #[serde(default = "yes")]
    pub(crate) on_wire: bool,
    pub(crate) meaning: String,
    pub(crate) advice: String,
    pub(crate) fault: Fault,
    reconnect: Word,
    after: Option<Condition>,
}

/// The meaning of a close code that is not in the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RangeRow {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) meaning: String,
    reconnect: Word,
    after: Option<Condition>,
}

/// The party at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    Peer,
    Caller,
    Server,
    None,
}

/// Whether to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Retry {
    No,
    Yes,
    After(Condition),
}

/// The condition of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Condition {
    Delay,
    NewToken,
    KeyExchange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    No,
    Yes,
    After,
}

impl Table {
    /// Reads and checks a table. Fails with what is wrong in it and where.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let table: Self = toml::from_str(text)?;
        ensure!(table.version == 1, "version {} is not known", table.version);
        table.check_errors()?;
        table.check_closes()?;
        table.check_ranges()?;
        Ok(table)
    }

    fn check_errors(&self) -> anyhow::Result<()> {
        let mut spellings = BTreeSet::new();
        for row in &self.errors {
            let of = || row.spelling.clone();
            ensure!(spellings.insert(&row.spelling), "{} comes twice", of());
            ensure!(is_constant(&row.spelling), "{} is not in capitals", of());
            ensure!(row.fault != Fault::None, "{} is nobody's fault", of());
            check_meaning(&row.meaning).with_context(of)?;
            check_advice(&row.advice).with_context(of)?;
            policy(row.retry, row.after).with_context(of)?;
        }
        Ok(())
    }

    fn check_closes(&self) -> anyhow::Result<()> {
        let mut names = BTreeSet::new();
        let mut before = 0;
        for row in &self.closes {
            let of = || row.number.to_string();
            ensure!(row.number > before, "{} is out of order", row.number);
            before = row.number;
            ensure!(names.insert(&row.name), "{} comes twice", row.name);
            ensure!(is_constant(&row.name), "{} is not in capitals", row.name);
            check_meaning(&row.meaning).with_context(of)?;
            check_advice(&row.advice).with_context(of)?;
            policy(row.reconnect, row.after).with_context(of)?;
            ensure!(
                may_be_on_wire(row.number) == row.on_wire,
                "on_wire of {} is not what RFC 6455 says",
                row.number
            );
        }
        Ok(())
    }

    fn check_ranges(&self) -> anyhow::Result<()> {
        let mut next = 1000;
        for row in &self.ranges {
            let of = || format!("range {}", row.first);
            ensure!(
                row.first == next && row.last >= row.first,
                "the range {} leaves a gap or is empty",
                row.first
            );
            next = row.last + 1;
            check_meaning(&row.meaning).with_context(of)?;
            policy(row.reconnect, row.after).with_context(of)?;
        }
        ensure!(next == 5000, "the ranges end before 4999 or after it");
        Ok(())
    }
}

impl ErrorRow {
    pub(crate) fn retry(&self) -> Retry {
        policy(self.retry, self.after).expect("checked when the table was read")
    }
}

impl CloseRow {
    pub(crate) fn reconnect(&self) -> Retry {
        policy(self.reconnect, self.after).expect("checked when the table was read")
    }
}

impl RangeRow {
    pub(crate) fn reconnect(&self) -> Retry {
        policy(self.reconnect, self.after).expect("checked when the table was read")
    }
}

fn policy(word: Word, after: Option<Condition>) -> anyhow::Result<Retry> {
    Ok(match (word, after) {
        (Word::No, None) => Retry::No,
        (Word::Yes, None) => Retry::Yes,
        (Word::After, Some(condition)) => Retry::After(condition),
        (Word::After, None) => bail!("`after` is missing"),
        (_, Some(_)) => bail!("`after` says what is not awaited"),
    })
}

/// RFC 6455, section 7.4.1: numbers that stand for a code but never travel.
fn may_be_on_wire(number: u16) -> bool {
    !matches!(number, 1004 | 1005 | 1006 | 1015)
}

fn check_meaning(meaning: &str) -> anyhow::Result<()> {
    ensure!(
        !meaning.is_empty() && !meaning.ends_with('.') && meaning.len() <= MEANING_BYTES_MAX,
        "the meaning is empty, ends in a full stop or has more than {MEANING_BYTES_MAX} bytes"
    );
    Ok(())
}

/// Advice is a cell of a table of Markdown.
fn check_advice(text: &str) -> anyhow::Result<()> {
    ensure!(
        text.ends_with('.') && !text.contains(['\n', '|']),
        "the advice is no sentences on one line, without |"
    );
    Ok(())
}

fn is_constant(name: &str) -> bool {
    let allowed = |byte: u8| byte == b'_' || byte.is_ascii_uppercase() || byte.is_ascii_digit();
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.bytes().all(allowed)
}

fn yes() -> bool {
    true
}

/// A meaning stands on one line of each language's documentation.
const MEANING_BYTES_MAX: usize = 84;

#[cfg(test)]
pub(crate) mod samples {
    /// A small table.
    pub(crate) const TABLE: &str = r#"
version = 1
[[error]]
spelling = "AUTH_FAILED"
meaning = "no token"
advice = "Log in."
fault = "peer"
recoverable = false
retry = "after"
after = "new_token"
[[error]]
spelling = "SERVER_ERROR"
meaning = "the server failed"
advice = "Wait."
fault = "server"
recoverable = true
retry = "no"
[[close]]
name = "NORMAL"
number = 1000
meaning = "over and out"
advice = "Nothing."
fault = "none"
reconnect = "no"
[[close]]
name = "ABNORMAL"
number = 1006
on_wire = false
meaning = "lost"
advice = "Connect again."
fault = "none"
reconnect = "yes"
[[close]]
name = "DRAINING"
number = 4300
meaning = "draining"
advice = "Go elsewhere."
fault = "server"
reconnect = "yes"
[[range]]
first = 1000
last = 3999
meaning = "others"
reconnect = "after"
after = "delay"
[[range]]
first = 4000
last = 4999
meaning = "ours"
reconnect = "yes"
"#;
}

#[cfg(test)]
mod tests {
    use super::samples::TABLE;
    use super::*;

    #[test]
    fn the_sample_is_read() {
        let table = Table::parse(TABLE).unwrap();
        assert_eq!(table.errors[0].retry(), Retry::After(Condition::NewToken));
        assert_eq!(table.closes[1].reconnect(), Retry::Yes);
        assert!(!table.closes[1].on_wire && table.closes[2].on_wire);
        assert_eq!(table.ranges[1].first, 4000);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (from, to, words) in [
            ("version = 1", "version = 2", "version 2"),
            ("\"SERVER_ERROR\"", "\"AUTH_FAILED\"", "comes twice"),
            ("\"SERVER_ERROR\"", "\"server_error\"", "capitals"),
            ("\"server\"", "\"none\"", "nobody"),
            ("\"server\"", "\"weather\"", "weather"),
            ("after = \"new_token\"\n", "", "missing"),
            ("retry = \"after\"", "retry = \"no\"", "not awaited"),
            ("number = 4300", "number = 1003", "out of order"),
            ("\"DRAINING\"", "\"NORMAL\"", "comes twice"),
            ("on_wire = false\n", "", "on_wire of 1006"),
            ("number = 1000", "number = 1004", "on_wire of 1004"),
            ("\"over and out\"", "\"over.\"", "full stop"),
            ("\"Log in.\"", "\"Log in\"", "advice"),
            ("\"Log in.\"", "\"a | b.\"", "advice"),
            ("first = 4000", "first = 4001", "gap"),
            ("last = 4999", "last = 4998", "4999"),
            ("meaning = \"no token\"", "means = \"x\"", "means"),
        ] {
            let changed = TABLE.replacen(from, to, 1);
            assert_ne!(changed, TABLE, "{from}");
            let error = format!("{:#}", Table::parse(&changed).unwrap_err());
            assert!(error.contains(words), "{from}: {error}");
        }
    }
}
