//! The constants of error and close codes and their page, generated from `protocol/codes.toml`.
//!
//! Another language is one more line in [`TARGETS`] and one more writer beside [`rust`] and [`typescript`].

mod markdown;
mod rust;
mod table;
mod typescript;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::finding::Finding;
use crate::generated::{self, Made};
use crate::tree::Tree;
use table::Table;

/// Writes the generated files that are not current and returns their paths. Fails if the table is
/// wrong or a file cannot be written.
pub(crate) fn write(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string(root.join(SOURCE)).context(SOURCE)?;
    let table = Table::parse(&text).context(SOURCE)?;
    generated::write(root, made(&table))
}

/// One finding for a wrong table, or one for each generated file that is not current.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let source = Path::new(SOURCE);
    let Some(text) = tree.text(source) else {
        let message = "the table of codes is missing or not UTF-8";
        return vec![Finding::new(source, 1, message)];
    };
    let table = match Table::parse(&text) {
        Ok(table) => table,
        Err(error) => return vec![Finding::new(source, 1, format!("{error:#}"))],
    };
    generated::check(tree, made(&table), SOURCE, "cargo xtask codes")
}

fn made(table: &Table) -> Vec<Made> {
    let made = |(target, generate): &(&'static str, Generate)| (*target, generate(table));
    TARGETS.iter().map(made).collect()
}

type Generate = fn(&Table) -> String;

const SOURCE: &str = "protocol/codes.toml";

/// The generated files and what makes their text.
const TARGETS: &[(&str, Generate)] = &[
    (
        "crates/tidewire-wire/src/codes/generated.rs",
        rust::error_codes,
    ),
    (
        "crates/tidewire-wire/src/close/generated.rs",
        rust::close_codes,
    ),
    ("packages/client/src/codes.ts", typescript::codes),
    ("docs/codes.md", markdown::page),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;

    fn sample() -> (tempfile::TempDir, Tree) {
        let (folder, tree) = samples::tree(&[
            (SOURCE, table::samples::TABLE),
            (TARGETS[0].0, ""),
            (TARGETS[1].0, ""),
            (TARGETS[2].0, ""),
            (TARGETS[3].0, ""),
        ]);
        (folder, tree)
    }

    #[test]
    fn what_is_written_is_current_until_the_table_changes() {
        let (folder, tree) = sample();
        let stale: Vec<_> = check(&tree).into_iter().map(|found| found.path).collect();
        assert_eq!(
            stale,
            TARGETS
                .iter()
                .map(|(target, _)| PathBuf::from(target))
                .collect::<Vec<_>>()
        );

        assert_eq!(write(folder.path()).unwrap(), stale);
        assert_eq!(check(&tree), []);
        assert_eq!(write(folder.path()).unwrap().len(), 0);

        let changed = table::samples::TABLE.replace("over and out", "over");
        std::fs::write(folder.path().join(SOURCE), changed).unwrap();
        let stale: Vec<_> = check(&tree).into_iter().map(|found| found.path).collect();
        assert_eq!(
            stale,
            [TARGETS[1].0, TARGETS[2].0, TARGETS[3].0].map(PathBuf::from)
        );
    }

    #[test]
    fn a_missing_or_wrong_table_is_found() {
        let (_folder, tree) = samples::tree(&[]);
        assert_eq!(check(&tree)[0].path, Path::new(SOURCE));
        let (_folder, tree) = samples::tree(&[(SOURCE, "version = 2\n")]);
        assert_eq!(check(&tree).len(), 1);
        assert!(write(&tree.root).is_err());
    }
}
