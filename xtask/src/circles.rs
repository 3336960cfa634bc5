//! Circles of files inside a crate: files that import each other, over however many others. A module and its submodules
//! are files as any other.
//!
//! A name that a file only passes on (`pub use`) is looked up where it comes from, so that a module may name the parts
//! of its face.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::finding::Finding;
use crate::layers::{Layers, SOURCE};
use crate::modules::{Sources, Use, module_path};
use crate::workspace::Workspace;

/// One finding for each circle that the table does not have, and for each of the table that is gone.
pub(crate) fn check(sources: &Sources, workspace: &Workspace, layers: &Layers) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_known = vec![false; layers.circles.len()];
    for package in &workspace.packages {
        let folder = package.folder().join("src");
        for circle in Graph::of(sources, &folder).circles() {
            let has_all = |known: &[PathBuf]| {
                circle
                    .iter()
                    .all(|&file| known.iter().any(|other| other == file))
            };
            if let Some(index) = layers
                .circles
                .iter()
                .position(|known| has_all(&known.files))
            {
                is_known[index] |= circle.len() == layers.circles[index].files.len();
                continue;
            }
            let inside = |file: &&Path| {
                file.strip_prefix(&folder)
                    .unwrap_or(file)
                    .display()
                    .to_string()
            };
            let names: Vec<_> = circle.iter().map(inside).collect();
            let message = format!(
                "files import each other in a circle: {}; move what they share into a file below them",
                names.join(", ")
            );
            findings.push(Finding::new(circle[0], 1, message));
        }
    }
    for (known, _) in layers
        .circles
        .iter()
        .zip(is_known)
        .filter(|(_, is_known)| !is_known)
    {
        let message = format!(
            "the circle of {} is gone or smaller, correct the list",
            known.files[0].display()
        );
        findings.push(Finding::new(Path::new(SOURCE), 1, message));
    }
    findings
}

/// The files of a crate, and which files each of them imports.
struct Graph<'a> {
    imported: BTreeMap<&'a Path, BTreeSet<&'a Path>>,
}

impl<'a> Graph<'a> {
    fn of(sources: &'a Sources, folder: &Path) -> Self {
        let inside = sources.iter().filter(|(path, _)| path.starts_with(folder));
        let files: BTreeMap<_, _> = inside
            .map(|(path, source)| (module_path(path), (path, source)))
            .collect();
        let find = |mut names: Vec<String>| {
            // A name may be passed on several times; a circle of names would have no end.
            for _ in 0..PASSED_ON_MAX {
                let mut lengths = (0..=names.len()).rev();
                let (length, (path, source)) =
                    lengths.find_map(|length| Some((length, files.get(&names[..length])?)))?;
                let name = names.get(length);
                let passed_on = source
                    .uses
                    .iter()
                    .find(|used| name.is_some() && used.name.as_ref() == name);
                match passed_on {
                    Some(Use { path, .. }) if path[0] == "crate" => {
                        names = path[1..]
                            .iter()
                            .chain(&names[length + 1..])
                            .cloned()
                            .collect();
                    }
                    Some(_) => return None,
                    None => return Some(path.as_path()),
                }
            }
            None
        };
        let imported =
            files
                .iter()
                .filter(|(module, _)| !module.is_empty())
                .map(|(_, (path, source))| {
                    let inside =
                        |used: &&Use| used.path[0] == "crate" && !used.is_test && !used.is_export;
                    let used = source
                        .uses
                        .iter()
                        .filter(inside)
                        .filter_map(|used| find(used.path[1..].to_vec()));
                    (path.as_path(), used.filter(|other| other != path).collect())
                });
        Self {
            imported: imported.collect(),
        }
    }

    /// The files that one reaches over its imports; the file itself only if it is in a circle.
    fn reached_from(&self, file: &Path) -> BTreeSet<&'a Path> {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![file];
        while let Some(next) = waiting.pop() {
            for &imported in self.imported.get(next).into_iter().flatten() {
                if reached.insert(imported) {
                    waiting.push(imported);
                }
            }
        }
        reached
    }

    /// The files of each circle, in order.
    fn circles(&self) -> BTreeSet<Vec<&'a Path>> {
        let reached: BTreeMap<_, _> = self
            .imported
            .keys()
            .map(|&file| (file, self.reached_from(file)))
            .collect();
        let circle = |(file, others): (&&'a Path, &BTreeSet<&'a Path>)| -> Vec<&'a Path> {
            let back =
                |other: &&&Path| reached.get(**other).is_some_and(|back| back.contains(file));
            others.iter().filter(back).copied().collect()
        };
        reached
            .iter()
            .map(circle)
            .filter(|circle| !circle.is_empty())
            .collect()
    }
}

const PASSED_ON_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules;
    use crate::tree::samples;
    use crate::workspace::Package;

    fn messages(files: &[(&str, &str)], known: &str) -> Vec<String> {
        let (_folder, tree) = samples::tree(files);
        let (sources, _) = modules::read(&tree, &[Path::new("net/src")]);
        let packages = vec![Package::sample("tidewire-net", "net", &[])];
        let workspace = Workspace {
            packages,
            target_directory: PathBuf::new(),
        };
        let mut layers = Layers::own();
        layers.circles = Layers::parse(&format!("{OTHER}{known}")).unwrap().circles;
        let findings = check(&sources, &workspace, &layers);
        findings.iter().map(ToString::to_string).collect()
    }

    const OTHER: &str = "arrows = {}\nhouse = []\nbinding_libraries = []\n\
         protocol = { crates = [], libraries = [], modules = [], types = [] }\n";

    const CIRCLE: &[(&str, &str)] = &[
        ("net/src/lib.rs", "mod a; mod b; mod c;"),
        ("net/src/a.rs", "use crate::b::B;"),
        ("net/src/b/mod.rs", "use super::c::C;"),
        ("net/src/c.rs", "fn f() { crate::a::f() }"),
        ("net/src/d.rs", "use crate::a::f;"),
    ];

    #[test]
    fn a_circle_is_found_over_other_files_unless_the_table_has_it() {
        let found = messages(CIRCLE, "");
        let start = "net/src/a.rs:1: files import each other in a circle: a.rs, b/mod.rs, c.rs;";
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
        let known = |files| format!("[[circle]]\nreason = \"\"\nfiles = {files}\n");
        let own = known("[\"net/src/a.rs\", \"net/src/b/mod.rs\", \"net/src/c.rs\"]");
        assert_eq!(messages(CIRCLE, &own), [""; 0]);
        assert_eq!(
            messages(&CIRCLE[..2], &own).len(),
            1,
            "a circle that is gone"
        );
        let larger = messages(CIRCLE, &known("[\"net/src/a.rs\", \"net/src/b/mod.rs\"]"));
        assert_eq!(larger.len(), 2, "a circle that has grown: {larger:?}");
    }

    #[test]
    fn a_module_and_what_is_below_it_are_in_a_circle_if_each_uses_the_other() {
        let child = ("net/src/a/b.rs", "use super::A; pub struct B;");
        let uses = ("net/src/a.rs", "mod b; use self::b::B;");
        assert_eq!(messages(&[uses, child], "").len(), 1);
        let passes_on = (
            "net/src/a.rs",
            "mod b; mod c; pub use b::B; pub use crate::a::c::A;",
        );
        let other = ("net/src/a/c.rs", "pub struct A;");
        assert_eq!(messages(&[passes_on, child, other], ""), [""; 0]);
        // The name is passed on, and leads back.
        let back = ("net/src/a/c.rs", "use super::B; pub struct A;");
        let found = messages(&[passes_on, child, back], "");
        assert!(
            found.len() == 1 && found[0].contains(": a/b.rs, a/c.rs;"),
            "{found:?}"
        );
    }

    #[test]
    fn tests_are_in_no_circle() {
        let files = [
            ("net/src/a.rs", "use crate::b::B;"),
            (
                "net/src/b.rs",
                "#[cfg(test)] mod tests { use crate::a::A; }",
            ),
            ("net/src/b/tests.rs", "use crate::a::A;"),
        ];
        assert_eq!(messages(&files, ""), [""; 0]);
    }
}
