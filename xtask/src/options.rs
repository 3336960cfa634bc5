//! Everything that is generated from the tables of options in `options/`.
//!
//! Another language is one more line in [`made`] and one more writer beside [`python`].

mod json;
mod page;
mod python;
mod rust;
mod table;
mod value;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::generated::{self, Made};
use crate::tidy::Finding;
use crate::tree::Tree;
use table::Table;

/// Writes the generated files that are not current and returns their paths.
///
/// # Errors
/// A table is wrong, or a file cannot be written.
pub(crate) fn write(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let table = read(|source| {
        let path = root.join(source);
        std::fs::read_to_string(path).context(source)
    })?;
    generated::write(root, made(&table))
}

/// One finding for a wrong table, or one for each generated file that is not current.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let table = read(|source| {
        let missing = || format!("{source} is missing or not UTF-8");
        tree.text(Path::new(source)).with_context(missing)
    });
    match table {
        Ok(table) => generated::check(tree, made(&table), "options/*.toml", "cargo xtask options"),
        Err(error) => vec![Finding::new(Path::new(SOURCES[0]), 1, format!("{error:#}"))],
    }
}

/// The table that the sources make together.
fn read(text_of: impl Fn(&'static str) -> anyhow::Result<String>) -> anyhow::Result<Table> {
    let mut table = Table::default();
    for source in SOURCES {
        table.add(&text_of(source)?).context(*source)?;
    }
    table.check()?;
    Ok(table)
}

fn made(table: &Table) -> Vec<Made> {
    vec![
        (
            "crates/tidewire-engine/src/settings/table.rs",
            rust::table(table),
        ),
        (
            "bindings/python/python/tidewire/_options.py",
            python::options(table),
        ),
        ("docs/options.md", page::reference(table)),
        ("options/server.json", json::server(table)),
    ]
}

/// The tables of options, in the order of the reference.
const SOURCES: &[&str] = &[
    "options/server.toml",
    "options/limits.toml",
    "options/topics.toml",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;

    #[test]
    fn what_is_written_is_current_until_the_table_changes() {
        let (folder, tree) = samples::tree(&[
            (SOURCES[0], table::samples::TABLE),
            (SOURCES[1], "version = 1\n"),
            (SOURCES[2], "version = 1\n"),
        ]);
        let targets = made(&read(|source| Ok(tree.text(Path::new(source)).unwrap())).unwrap());
        let targets: Vec<PathBuf> = targets.iter().map(|(target, _)| target.into()).collect();
        let stale = || {
            check(&tree)
                .into_iter()
                .map(|found| found.path)
                .collect::<Vec<_>>()
        };
        assert_eq!(stale(), targets);
        assert_eq!(write(folder.path()).unwrap(), targets);
        assert_eq!(stale(), Vec::<PathBuf>::new());
        assert_eq!(write(folder.path()).unwrap().len(), 0);

        let changed = table::samples::TABLE.replace("default = 7", "default = 8");
        std::fs::write(folder.path().join(SOURCES[0]), changed).unwrap();
        assert_eq!(stale(), targets);
    }

    #[test]
    fn a_missing_or_wrong_table_is_found() {
        let (_folder, tree) = samples::tree(&[]);
        assert_eq!(check(&tree)[0].path, Path::new(SOURCES[0]));
        assert!(write(&tree.root).is_err());
    }
}
