//! Rust files that no `mod` declaration reaches: they look alive and are never compiled.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::finding::Finding;
use crate::modules::{Declaration, Sources};
use crate::workspace::Workspace;

/// One finding for each file that no root of a package reaches.
pub(crate) fn check(sources: &Sources, workspace: &Workspace) -> Vec<Finding> {
    let targets = workspace
        .packages
        .iter()
        .flat_map(|package| &package.targets);
    let roots = targets.map(|target| target.src_path.clone());
    // The modules of a root and of `mod.rs` are beside it, those of any other file in a folder with its name.
    let mut waiting: Vec<(PathBuf, bool)> = roots.map(|root| (root, true)).collect();
    let mut reached = BTreeSet::new();
    while let Some((path, owns_folder)) = waiting.pop() {
        let Some(source) = sources.get(&path).filter(|_| reached.insert(path.clone())) else {
            continue;
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let modules = if owns_folder {
            folder.to_owned()
        } else {
            path.with_extension("")
        };
        for declared in &source.files {
            match declared {
                Declaration::Path(file) => waiting.push((normal(&folder.join(file)), true)),
                Declaration::Module(names) => {
                    let file = names
                        .iter()
                        .fold(modules.clone(), |path, name| path.join(name));
                    waiting.push((file.join("mod.rs"), true));
                    waiting.push((file.with_extension("rs"), false));
                }
            }
        }
    }
    let dead = sources.keys().filter(|path| !reached.contains(*path));
    let message = "no mod declaration reaches this file, declare it or remove it";
    dead.map(|path| Finding::new(path, 1, message)).collect()
}

/// The path without `.` and `..`, so that it compares with a listed one.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(normal.pop()),
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules;
    use crate::tree::samples;
    use crate::workspace::{Package, Target};

    fn dead(files: &[(&str, &str)]) -> Vec<PathBuf> {
        let (_folder, tree) = samples::tree(files);
        let mut package = Package::sample("a", "a", &[]);
        package.targets = ["a/src/lib.rs", "a/tests/face.rs"]
            .map(|path| Target {
                src_path: path.into(),
            })
            .into();
        let (sources, _) = modules::read(&tree, &[Path::new("a")]);
        let workspace = Workspace {
            packages: vec![package],
            target_directory: PathBuf::new(),
        };
        check(&sources, &workspace)
            .into_iter()
            .map(|finding| finding.path)
            .collect()
    }

    #[test]
    fn declared_files_are_reached_and_others_are_found() {
        let files = [
            (
                "a/src/lib.rs",
                "mod b; mod c { mod d; } #[path = \"../other/e.rs\"] mod e;",
            ),
            ("a/src/b.rs", "mod f; include!(\"b/made.rs\");"),
            ("a/src/b/f.rs", "// mod lost;"),
            ("a/src/b/made.rs", ""),
            ("a/src/c/d/mod.rs", "mod g;"),
            ("a/src/c/d/g.rs", ""),
            ("a/other/e.rs", ""),
            ("a/tests/face.rs", "mod common;"),
            ("a/tests/common/mod.rs", ""),
            ("a/src/b/lost.rs", ""),
            ("a/tests/common/lost.rs", "mod b;"),
        ];
        assert_eq!(
            dead(&files),
            ["a/src/b/lost.rs", "a/tests/common/lost.rs"].map(PathBuf::from)
        );
    }
}
