//! Values of options: defaults, examples and choices.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

use super::table::{Kind, Row};

/// A value as TOML and JSON have it; the keys of a map are sorted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Boolean(bool),
    Integer(u64),
    Text(String),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
}

impl Value {
    /// The value as the text of a flag.
    pub(crate) fn as_text(&self) -> String {
        match self {
            Self::Boolean(yes) => yes.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::as_text).collect();
                items.join(",")
            }
            Self::Map(fields) => {
                let pairs = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={}", value.as_text()));
                pairs.collect::<Vec<_>>().join(",")
            }
        }
    }
}

/// Fails unless a value is one of the option's kind and in its range.
pub(crate) fn check(row: &Row, value: &Value) -> anyhow::Result<()> {
    if !row.values.is_empty() {
        let known: Vec<String> = row.values.iter().map(Value::as_text).collect();
        ensure!(
            row.values.contains(value),
            "{} is not one of {}",
            value.as_text(),
            known.join(", ")
        );
        return Ok(());
    }
    match (row.kind(), value) {
        (Kind::Integer, Value::Integer(number)) => {
            let (smallest, largest) = row.range();
            ensure!(
                (smallest..=largest).contains(number),
                "{number} is not in {smallest} to {largest}"
            );
        }
        (Kind::Boolean, Value::Boolean(_))
        | (Kind::Text | Kind::Secret | Kind::File | Kind::Address, Value::Text(_)) => {}
        (Kind::List, Value::List(items)) => {
            let is_text = |item: &Value| matches!(item, Value::Text(_));
            ensure!(items.iter().all(is_text), "the items are not texts");
        }
        (Kind::Counts | Kind::Texts, Value::Map(_)) | (Kind::Rules, Value::List(_)) => {}
        (Kind::Integer, _) => bail!("expected a whole number"),
        (kind, _) => bail!("the value is not of the kind {kind:?}"),
    }
    Ok(())
}

/// A size in the largest unit of which it is a multiple.
pub(crate) fn binary(bytes: u64) -> Option<String> {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let (shift, unit) = units
        .into_iter()
        .find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift))?;
    Some(format!("{} {unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_where_they_can_be() {
        let sizes = [0, 1000, 4096, 16 << 20, 3 << 30].map(binary);
        let expected = [None, None, Some("4 KiB"), Some("16 MiB"), Some("3 GiB")];
        assert_eq!(sizes, expected.map(|text| text.map(str::to_owned)));
    }
}
