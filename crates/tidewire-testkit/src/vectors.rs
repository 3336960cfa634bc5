//! The protocol's test vectors: their names, their content, and the check against their schemas.

pub mod deflate;
pub mod dialogue;
pub mod frames;
pub mod handshake;
pub mod http;
pub mod liveness;
pub mod messages;
pub mod scalars;
pub mod secure;

use crate::schema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The cases of the file called `name`, without its extension, in their order.
///
/// # Panics
/// If there is no such file, or it is not what `C` expects.
#[must_use]
pub fn load<C: DeserializeOwned>(name: &str) -> Vec<C> {
    #[derive(Deserialize)]
    struct File<C> {
        cases: Vec<C>,
    }
    let file: File<C> = serde_json::from_str(&text(&path(name)))
        .unwrap_or_else(|error| panic!("{name}.json: {error}"));
    assert!(!file.cases.is_empty(), "{name}.json has no cases");
    file.cases
}

/// The names of all files, without their extension.
///
/// # Panics
/// If the folder cannot be read.
#[must_use]
pub fn names() -> BTreeSet<String> {
    json_files(&folder())
}

/// The names of all schemas, without their extensions.
///
/// # Panics
/// If the folder cannot be read.
#[must_use]
pub fn schema_names() -> BTreeSet<String> {
    let names = json_files(&folder().join("schema"));
    let name = |name: String| {
        let name = name
            .strip_suffix(".schema")
            .expect("a schema ends in .schema.json");
        name.to_owned()
    };
    names.into_iter().map(name).collect()
}

/// The name of the schema of the file called `name`: the one that its `$schema` names, or else the one
/// of the same name.
///
/// # Panics
/// If the file is not JSON or names its schema in another way.
#[must_use]
pub fn schema_of(name: &str) -> String {
    match json(&path(name)).get("$schema") {
        None => name.to_owned(),
        Some(schema) => {
            let schema = schema
                .as_str()
                .and_then(|schema| schema.strip_prefix("schema/"));
            let schema = schema.and_then(|schema| schema.strip_suffix(".schema.json"));
            schema.expect("a schema beside the vectors").to_owned()
        }
    }
}

/// The rules of its schema that the file called `name` breaks, and every name that two of its cases share.
///
/// # Panics
/// If either of the two cannot be read, or the schema uses what [`schema`] does not know.
#[must_use]
pub fn violations(name: &str) -> Vec<String> {
    let file = format!("schema/{}.schema", schema_of(name));
    let vectors = json(&path(name));
    let mut found = schema::violations(&json(&path(&file)), &vectors);
    let mut seen = BTreeSet::new();
    for case in vectors["cases"].as_array().into_iter().flatten() {
        if !seen.insert(case["name"].as_str()) {
            found.push(format!("two cases are called {}", case["name"]));
        }
    }
    found
}

/// Bytes that stand in a vector as lower-case hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl std::ops::Deref for Hex {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let byte = |index| {
            let digits = text.get(index..index + 2)?;
            u8::from_str_radix(digits, 16).ok()
        };
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
        bytes
            .map(Self)
            .ok_or_else(|| D::Error::custom("no hexadecimal digits"))
    }
}

/// The bytes of a text of which each character stands for one byte (ISO 8859-1).
///
/// # Panics
/// If a character stands for none.
#[must_use]
pub fn latin_1(text: &str) -> Vec<u8> {
    let byte = |character: char| u8::try_from(u32::from(character)).expect("one byte a character");
    text.chars().map(byte).collect()
}

/// Keeps a field that is null apart from one that is not there: the first is `Some(None)`.
///
/// # Errors
/// The value that the field's own type does not accept.
pub(crate) fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

fn json_files(folder: &Path) -> BTreeSet<String> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("the folder can be read").file_name();
        let name = name.to_str().expect("names are ASCII").to_owned();
        name.strip_suffix(".json").map(str::to_owned)
    };
    entries.filter_map(name).collect()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&text(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn path(name: &str) -> PathBuf {
    folder().join(format!("{name}.json"))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/vectors")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_keeps_to_its_schema() {
        let names = names();
        assert!(!names.is_empty());
        for name in names {
            let found = violations(&name);
            assert!(found.is_empty(), "{name}.json:\n{}", found.join("\n"));
        }
    }

    #[test]
    fn every_schema_is_used() {
        let used: BTreeSet<_> = names().iter().map(|name| schema_of(name)).collect();
        assert_eq!(used, schema_names());
    }

    #[test]
    fn hexadecimal_digits() {
        let hex = |text: &str| serde_json::from_str::<Hex>(text).ok().map(|hex| hex.0);
        assert_eq!(hex("\"00ff10\""), Some(vec![0, 255, 16]));
        assert_eq!(hex("\"\""), Some(vec![]));
        for wrong in ["\"0\"", "\"0g\"", "\"é\"", "5"] {
            assert_eq!(hex(wrong), None, "{wrong}");
        }
        assert_eq!(latin_1("a\u{ff}"), [b'a', 0xff]);
    }
}
