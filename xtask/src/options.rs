//! Everything that is generated from the tables of options in `options/`.
//!
//! Another language is one more line in [`made`] and one more writer beside [`python`].

mod client_page;
mod json;
mod load;
mod node;
mod page;
mod python;
mod rust;
#[cfg(test)]
mod samples;
mod table;
mod template;
mod value;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::finding::Finding;
use crate::generated::{self, Made};
use crate::tree::Tree;
use table::Table;

/// Writes the generated files that are not current and returns their paths.
///
/// # Errors
/// A table is wrong, or a file cannot be written.
pub(crate) fn write(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let made = made(|source| {
        let path = root.join(source);
        std::fs::read_to_string(path).context(source)
    })?;
    generated::write(root, made)
}

/// One finding for a wrong table, or one for each generated file that is not current.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let made = made(|source| {
        let missing = || format!("{source} is missing or not UTF-8");
        tree.text(Path::new(source)).with_context(missing)
    });
    match made {
        Ok(made) => generated::check(tree, made, "options/*.toml", "cargo xtask options"),
        Err(error) => vec![Finding::new(Path::new(SERVER[0]), 1, format!("{error:#}"))],
    }
}

/// All generated files.
fn made(text_of: impl Fn(&'static str) -> anyhow::Result<String>) -> anyhow::Result<Vec<Made>> {
    let read = |sources: &[&'static str]| {
        let mut table = Table::default();
        for source in sources {
            table.add(&text_of(source)?).context(*source)?;
        }
        table.check()?;
        Ok::<_, anyhow::Error>(table)
    };
    let (server, client, load) = (read(SERVER)?, read(CLIENT)?, read(LOAD)?);
    Ok(vec![
        (
            "crates/tidewire-engine/src/settings/table.rs",
            rust::table(&server),
        ),
        (
            "bindings/python/python/tidewire/_options.py",
            python::options(&server),
        ),
        ("bindings/node/server-options.d.ts", node::options(&server)),
        ("docs/options.md", page::reference(&server)),
        ("options/server.json", json::text(&server)),
        (
            "crates/tidewire-cli/src/init/tidewire.toml",
            template::file(&server),
        ),
        (
            "bindings/python/python/tidewire/_client_types.py",
            python::client_options(&client),
        ),
        ("docs/client-options.md", client_page::reference(&client)),
        ("options/client.json", json::text(&client)),
        (
            "crates/tidewire-load/src/options/table.rs",
            load::table(&load),
        ),
        (
            "bindings/python/python/tidewire/_load_types.py",
            python::load_options(&load),
        ),
        ("bindings/node/load-options.d.ts", node::load_options(&load)),
        ("docs/load-options.md", load::reference(&load)),
        ("options/load.json", json::text(&load)),
    ])
}

/// The tables of a server, in the order of the reference.
const SERVER: &[&str] = &[
    "options/server.toml",
    "options/limits.toml",
    "options/topics.toml",
];

/// The tables of the clients.
const CLIENT: &[&str] = &["options/client.toml", "options/client_queue.toml"];

/// The table of a load.
const LOAD: &[&str] = &["options/load.toml"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples as trees;

    #[test]
    fn what_is_written_is_current_until_the_table_changes() {
        let (folder, tree) = trees::tree(&[
            (SERVER[0], samples::TABLE),
            (SERVER[1], "version = 1\n"),
            (SERVER[2], "version = 1\n"),
            (CLIENT[0], samples::CLIENT),
            (CLIENT[1], "version = 1\n"),
            (LOAD[0], samples::LOAD),
        ]);
        let made = made(|source| Ok(tree.text(Path::new(source)).unwrap())).unwrap();
        let targets: Vec<PathBuf> = made.iter().map(|(target, _)| target.into()).collect();
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

        let changed = samples::TABLE.replace("default = 7", "default = 8");
        std::fs::write(folder.path().join(SERVER[0]), changed).unwrap();
        assert_eq!(stale(), targets[..6]);
    }

    #[test]
    fn a_missing_or_wrong_table_is_found() {
        let (_folder, tree) = trees::tree(&[]);
        assert_eq!(check(&tree)[0].path, Path::new(SERVER[0]));
        assert!(write(&tree.root).is_err());
    }
}
