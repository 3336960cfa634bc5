//! Counts in the words of another process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer};

/// The name of an error that another process has sent. It has the names of this program; if it invents more than
/// [`NAMES_MAX`], all further ones are `other`.
pub(crate) fn error_name(name: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = known.get(name) {
        return name;
    }
    if known.len() >= NAMES_MAX || name.len() > NAME_BYTES_MAX {
        return "other";
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    known.insert(name);
    name
}

/// Numbers of errors by their names.
pub(crate) fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<&'static str, u64>, D::Error> {
    let mut counts = BTreeMap::new();
    for (name, count) in BTreeMap::<String, u64>::deserialize(deserializer)? {
        *counts.entry(error_name(&name)).or_default() += count;
    }
    Ok(counts)
}

/// Numbers of responses by their statuses, which are texts in JSON.
pub(crate) fn by_status<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u16, u64>, D::Error> {
    let counts = BTreeMap::<String, u64>::deserialize(deserializer)?;
    let counts = counts.into_iter();
    counts
        .map(|(status, count)| {
            let status = status.parse().map_err(serde::de::Error::custom)?;
            Ok((status, count))
        })
        .collect()
}

const NAMES_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_no_flood_of_names_fills_the_memory() {
        assert!(std::ptr::eq(error_name("a-test"), error_name("a-test")));
        for number in 0..2 * NAMES_MAX {
            error_name(&format!("a-test-{number}"));
        }
        assert_eq!(error_name("one-more"), "other");
        assert_eq!(error_name(&"x".repeat(NAME_BYTES_MAX + 1)), "other");
        assert_eq!(error_name("a-test"), "a-test");
    }
}
