//! Values of options: defaults, examples and choices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
