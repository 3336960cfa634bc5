//! Circles of files inside a crate: files that import each other, over however many others.
//!
//! A module may use its own submodules, and they may use it: what it declares is a part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::finding::Finding;
use crate::imports::{InlineTests, imports};
use crate::tree::{Tree, has_extension};
use crate::workspace::Workspace;

/// One finding for each circle of files that [`CIRCLES`] does not allow.
pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let sources = package.folder.join("src");
        for circle in circles(&Graph::of(tree, &sources)) {
            let is_allowed = |allowed: &&[&str]| {
                let is_in = |file: &PathBuf| allowed.iter().any(|path| file == Path::new(path));
                circle.iter().all(is_in)
            };
            if !CIRCLES.iter().any(is_allowed) {
                let names: Vec<_> = circle
                    .iter()
                    .filter_map(|file| file.strip_prefix(&sources).ok())
                    .map(|file| file.display().to_string())
                    .collect();
                let message = format!(
                    "files import each other in a circle: {}; move what they share into a file below them",
                    names.join(", ")
                );
                findings.push(Finding::new(&circle[0], 1, message));
            }
        }
    }
    findings
}

/// The files of a crate, and which files each of them imports.
struct Graph {
    imported: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
}

impl Graph {
    fn of(tree: &Tree, sources: &Path) -> Self {
        let mut files = BTreeMap::new();
        for path in &tree.paths {
            if let Ok(inside) = path.strip_prefix(sources)
                && has_extension(path, &["rs"])
                && let Some(module) = module_of(inside)
            {
                files.insert(module, path.clone());
            }
        }
        let imported = files
            .iter()
            .map(|(module, path)| (path.clone(), imported_by(tree, &files, module, path)))
            .collect();
        Self { imported }
    }

    /// The files that one reaches over its imports; the file itself only if it is in a circle.
    fn reached_from(&self, file: &Path) -> BTreeSet<&Path> {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![file];
        while let Some(next) = waiting.pop() {
            for imported in self.imported.get(next).into_iter().flatten() {
                if reached.insert(imported.as_path()) {
                    waiting.push(imported);
                }
            }
        }
        reached
    }
}

fn imported_by(
    tree: &Tree,
    files: &BTreeMap<Vec<String>, PathBuf>,
    module: &[String],
    path: &Path,
) -> BTreeSet<PathBuf> {
    let text = tree.text(path).unwrap_or_default();
    let file_of = |names: &[String]| {
        let mut lengths = (1..=names.len()).rev();
        lengths.find_map(|length| files.get_key_value(&names[..length]))
    };
    imports(&text, module, InlineTests::Skipped)
        .iter()
        .filter_map(|import| file_of(&import.path))
        .filter(|(other, _)| !other.starts_with(module))
        .map(|(_, imported)| imported.clone())
        .collect()
}

/// The module of a file below the sources; `None` for the roots of a crate and for files of tests.
fn module_of(inside: &Path) -> Option<Vec<String>> {
    let is_tests = inside.file_stem()?.to_string_lossy().ends_with("tests");
    module_path(inside).filter(|_| !is_tests)
}

/// The path of the module in a file below the sources; `None` for the roots of a crate.
pub(crate) fn module_path(inside: &Path) -> Option<Vec<String>> {
    let mut names: Vec<String> = inside
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let last = names.last()?;
    if names.len() == 1 && (last == "lib" || last == "main") {
        return None;
    }
    if last == "mod" {
        names.pop();
    }
    Some(names)
}

/// The files of each circle, in order.
fn circles(graph: &Graph) -> Vec<Vec<PathBuf>> {
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = graph
        .imported
        .keys()
        .map(|file| (file.as_path(), graph.reached_from(file)))
        .collect();
    let mut known: BTreeSet<&Path> = BTreeSet::new();
    let mut circles = Vec::new();
    for (file, others) in &reached {
        if !others.contains(file) || known.contains(file) {
            continue;
        }
        let is_back = |other: &&&Path| reached.get(*other).is_some_and(|back| back.contains(file));
        let circle: Vec<&Path> = others.iter().filter(is_back).copied().collect();
        known.extend(&circle);
        circles.push(circle.into_iter().map(Path::to_owned).collect());
    }
    circles
}

/// Circles that stay, each with the reason.
const CIRCLES: &[&[&str]] = &[
    // Python classes that return each other: a message has its connection, a connection makes messages.
    &[
        "bindings/python/src/server/batch.rs",
        "bindings/python/src/server/connection.rs",
        "bindings/python/src/server/core.rs",
        "bindings/python/src/server/message.rs",
        "bindings/python/src/server/publishing.rs",
    ],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;
    use crate::workspace::Package;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let (_folder, tree) = samples::tree(files);
        let packages = vec![Package::sample("tidewire-net", "net", &[])];
        let findings = check(&tree, &Workspace { packages });
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_circle_is_found_over_other_files() {
        let found = messages(&[
            ("net/src/lib.rs", "mod a; mod b; mod c;"),
            ("net/src/a.rs", "use crate::b::B;"),
            ("net/src/b/mod.rs", "use super::c::C;"),
            ("net/src/c.rs", "fn f() { crate::a::f() }"),
            ("net/src/d.rs", "use crate::a::f;"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with(
                "net/src/a.rs:1: files import each other in a circle: a.rs, b/mod.rs, c.rs;"
            ),
            "{found:?}"
        );
    }

    #[test]
    fn a_module_and_its_submodules_are_one_but_two_submodules_are_not() {
        let parent = ("net/src/a.rs", "mod b; mod c; use crate::a::b::B;");
        let child = ("net/src/a/b.rs", "use super::A; use super::c::C;");
        let other = ("net/src/a/c.rs", "use super::A;");
        assert!(messages(&[parent, child, other]).is_empty());
        let back = ("net/src/a/c.rs", "use crate::a::b::B;");
        assert_eq!(messages(&[parent, child, back]).len(), 1);
    }

    #[test]
    fn tests_are_in_no_circle() {
        let found = messages(&[
            ("net/src/a.rs", "use crate::b::B;"),
            (
                "net/src/b.rs",
                "#[cfg(test)] mod tests { use crate::a::A; }",
            ),
            ("net/src/b/tests.rs", "use crate::a::A;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
