//! Data files of a scenario: CSV, or JSON Lines.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::options::OptionError;
use crate::worker::inputs;
use crate::worker::template::Feed;

/// A data file in a scenario: its path, or more about it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum DataFile {
    /// The path.
    Path(PathBuf),
    /// The path, and who reads the rows.
    Table(DataTable),
}

/// A data file with what its users may do with it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DataTable {
    /// The path.
    file: PathBuf,
    /// Each user has a row of its own, for the whole load.
    #[serde(default)]
    unique: bool,
}

impl DataFile {
    pub(super) fn path_mut(&mut self) -> &mut PathBuf {
        match self {
            Self::Path(path) => path,
            Self::Table(table) => &mut table.file,
        }
    }

    pub(super) fn read(&self) -> Result<Feed, OptionError> {
        match self {
            Self::Path(path) => read_feed(path),
            Self::Table(table) => Ok(Feed {
                is_unique: table.unique,
                ..read_feed(&table.file)?
            }),
        }
    }
}

/// Reads a data file: CSV with the columns' names in its first line, or JSON Lines with one object
/// per line.
fn read_feed(path: &Path) -> Result<Feed, OptionError> {
    let wrong = |error: &dyn std::fmt::Display| {
        OptionError::new(format_args!("{}: {error}", path.display()))
    };
    let feed = if has_ending(path, &["jsonl", "ndjson"]) {
        let text = inputs::read_to_string(path).map_err(|error| wrong(&error))?;
        feed_of_lines(&text).map_err(|error| wrong(&error))?
    } else {
        let bytes = inputs::read(path).map_err(|error| wrong(&error))?;
        feed_of_csv(&bytes).map_err(|error| wrong(&error))?
    };
    match feed.rows.is_empty() {
        true => Err(wrong(&"it has no row")),
        false => Ok(Feed {
            name: path.display().to_string(),
            ..feed
        }),
    }
}

fn feed_of_csv(bytes: &[u8]) -> Result<Feed, csv::Error> {
    let mut reader = csv::Reader::from_reader(bytes);
    let columns = reader.headers()?.iter().map(|name| name.trim().to_owned());
    let columns = columns.collect();
    let rows = reader.byte_records().map(|record| {
        let values: Vec<Vec<u8>> = record?.iter().map(<[u8]>::to_vec).collect();
        Ok::<_, csv::Error>(values)
    });
    Ok(Feed {
        columns,
        rows: rows.collect::<Result<_, _>>()?,
        ..Feed::default()
    })
}

fn feed_of_lines(text: &str) -> Result<Feed, String> {
    let mut feed = Feed::default();
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    for (number, line) in lines {
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        if feed.columns.is_empty() {
            feed.columns = object.keys().cloned().collect();
        }
        let value = |column: &String| match object.get(column) {
            None | Some(serde_json::Value::Null) => Err(format!("line {number}: no `{column}`")),
            Some(serde_json::Value::String(text)) => Ok(text.clone().into_bytes()),
            Some(other) => Ok(other.to_string().into_bytes()),
        };
        let row: Result<Vec<Vec<u8>>, String> = feed.columns.iter().map(value).collect();
        feed.rows.push(row?);
    }
    Ok(feed)
}

pub(super) fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| endings.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_may_be_json_lines() {
        let feed = feed_of_lines("{\"id\":1,\"n\":\"x\"}\n{\"n\":\"y\",\"id\":2}\n").unwrap();
        let id = feed.columns.iter().position(|c| c == "id").unwrap();
        assert_eq!(feed.rows[1][id], b"2");
        let error = feed_of_lines("{\"id\":1}\n{\"n\":2}").unwrap_err();
        assert!(error.contains("line 2: no `id`"), "{error}");
    }
}
