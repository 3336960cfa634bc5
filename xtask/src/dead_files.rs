//! Rust files that no `mod` declaration reaches: they look alive and are never compiled.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::finding::Finding;
use crate::lexer::{Kind, Token, tokens};
use crate::tree::{Tree, has_extension};
use crate::workspace::{Package, Workspace};

/// One finding for each file of a package's source folders that none of its roots reaches.
pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let reached = reached_files(tree, package);
        let is_source = |path: &Path| {
            SOURCE_FOLDERS
                .iter()
                .any(|folder| path.starts_with(package.folder.join(folder)))
                && has_extension(path, &["rs"])
        };
        for path in &tree.paths {
            if is_source(path) && !reached.contains(path) {
                let message = "no mod declaration reaches this file, declare it or remove it";
                findings.push(Finding::new(path, 1, message));
            }
        }
    }
    findings
}

fn reached_files(tree: &Tree, package: &Package) -> BTreeSet<PathBuf> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<Module> = package
        .roots
        .iter()
        .map(|root| Module {
            path: root.clone(),
            owns_folder: true,
        })
        .collect();
    while let Some(module) = waiting.pop() {
        let Some(text) = tree.text(&module.path) else {
            continue;
        };
        if reached.insert(module.path.clone()) {
            let tokens = tokens(&text);
            waiting.extend(Walk::new(&module).modules(&tokens));
        }
    }
    reached
}

/// A file that a declaration may mean; it need not exist.
struct Module {
    path: PathBuf,
    /// Whether its modules stand beside it, as those of `lib.rs` and `mod.rs` do, and not in a folder of
    /// its own name.
    owns_folder: bool,
}

/// The walk over the tokens of one file.
struct Walk<'a> {
    /// The folder of the file.
    folder: &'a Path,
    /// The folder of the file's own modules.
    modules_folder: PathBuf,
    /// The inline modules around the current token: the depth of each, and its part of the path.
    inline: Vec<(usize, String)>,
    depth: usize,
    /// The value of the last `#[path = "…"]`, until its item is seen.
    path_attribute: Option<&'a str>,
}

impl<'a> Walk<'a> {
    fn new(module: &'a Module) -> Self {
        let folder = module.path.parent().unwrap_or(Path::new(""));
        let modules_folder = match module.path.file_stem() {
            Some(stem) if !module.owns_folder => folder.join(stem),
            _ => folder.to_owned(),
        };
        Self {
            folder,
            modules_folder,
            inline: Vec::new(),
            depth: 0,
            path_attribute: None,
        }
    }

    fn modules(mut self, tokens: &[Token<'a>]) -> Vec<Module> {
        let mut modules = Vec::new();
        for (index, token) in tokens.iter().enumerate() {
            let ahead = |count: usize| tokens.get(index + count).map(|token| token.kind);
            match (token.kind, ahead(1), ahead(2), ahead(3)) {
                (Kind::Word("mod"), Some(Kind::Word(name)), Some(Kind::Mark(b';')), _) => {
                    modules.extend(self.declared(name));
                }
                (Kind::Word("mod"), Some(Kind::Word(name)), Some(Kind::Mark(b'{')), _) => {
                    let part = self.path_attribute.take().unwrap_or(plain(name)).to_owned();
                    self.inline.push((self.depth + 1, part));
                }
                (
                    Kind::Word("include"),
                    Some(Kind::Mark(b'!')),
                    Some(Kind::Mark(b'(' | b'[' | b'{')),
                    Some(Kind::Text(file)),
                ) => modules.push(Module {
                    path: normal(&self.folder.join(file)),
                    owns_folder: true,
                }),
                (Kind::Word("path"), Some(Kind::Mark(b'=')), Some(Kind::Text(file)), _) => {
                    self.path_attribute = Some(file);
                }
                (Kind::Mark(mark), ..) => self.count(mark),
                _ => {}
            }
        }
        modules
    }

    fn declared(&mut self, name: &str) -> Vec<Module> {
        let inside = |base: &Path| {
            self.inline
                .iter()
                .fold(base.to_owned(), |folder, (_, part)| folder.join(part))
        };
        if let Some(file) = self.path_attribute {
            let base = if self.inline.is_empty() {
                self.folder
            } else {
                &self.modules_folder
            };
            return vec![Module {
                path: normal(&inside(base).join(file)),
                owns_folder: true,
            }];
        }
        let folder = inside(&self.modules_folder);
        let name = plain(name);
        vec![
            Module {
                path: normal(&folder.join(format!("{name}.rs"))),
                owns_folder: false,
            },
            Module {
                path: normal(&folder.join(name).join("mod.rs")),
                owns_folder: true,
            },
        ]
    }

    fn count(&mut self, mark: u8) {
        match mark {
            b'{' => self.depth += 1,
            b'}' => {
                if self
                    .inline
                    .last()
                    .is_some_and(|(depth, _)| *depth == self.depth)
                {
                    self.inline.pop();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b';' => {}
            _ => return,
        }
        self.path_attribute = None;
    }
}

/// A name without the mark of a raw identifier, as the file system has it.
fn plain(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}

/// The path without `.` and `..`, so that it compares with a listed one.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// The folders of a package whose files cargo compiles.
const SOURCE_FOLDERS: &[&str] = &["src", "tests", "benches", "examples"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;

    fn dead(files: &[(&str, &str)], roots: &[&str]) -> Vec<String> {
        let (_folder, tree) = samples::tree(files);
        let mut package = Package::sample("a", "crates/a", &[]);
        package.roots = roots.iter().map(PathBuf::from).collect();
        let findings = check(
            &tree,
            &Workspace {
                packages: vec![package],
            },
        );
        findings
            .into_iter()
            .map(|finding| finding.path.display().to_string())
            .collect()
    }

    #[test]
    fn files_are_reached_through_each_way_to_declare_them() {
        let root = "mod flat;\npub(crate) mod deep;\nmod r#type;\n#[path = \"odd/name.rs\"]\nmod other;\n\
             mod inline { pub mod leaf; #[path = \"far.rs\"] mod distant; }\ninclude!(\"made.rs\");\n\
             #[cfg_attr(unix, path = \"unix.rs\")]\n#[allow(dead_code)]\nmod system;\n";
        let files = [
            ("crates/a/src/lib.rs", root),
            ("crates/a/src/flat.rs", "mod below;"),
            ("crates/a/src/flat/below.rs", ""),
            ("crates/a/src/deep/mod.rs", "mod below;"),
            ("crates/a/src/deep/below.rs", ""),
            ("crates/a/src/type.rs", ""),
            ("crates/a/src/odd/name.rs", "mod beside;"),
            ("crates/a/src/odd/beside.rs", ""),
            ("crates/a/src/inline/leaf.rs", ""),
            ("crates/a/src/inline/far.rs", ""),
            ("crates/a/src/made.rs", ""),
            ("crates/a/src/unix.rs", ""),
            ("crates/a/tests/face.rs", "mod common;"),
            ("crates/a/tests/common/mod.rs", ""),
        ];
        assert_eq!(
            dead(&files, &["crates/a/src/lib.rs", "crates/a/tests/face.rs"]),
            [""; 0]
        );
    }

    #[test]
    fn a_file_that_only_a_comment_or_a_string_names_is_dead() {
        let files = [
            (
                "crates/a/src/lib.rs",
                "// mod lost;\nconst A: &str = \"mod gone;\";\nmod kept {}\n",
            ),
            ("crates/a/src/lost.rs", ""),
            ("crates/a/src/gone.rs", "mod child;"),
            ("crates/a/src/gone/child.rs", ""),
            ("crates/a/src/kept.rs", ""),
        ];
        let expected = [
            "crates/a/src/lost.rs",
            "crates/a/src/gone.rs",
            "crates/a/src/gone/child.rs",
            "crates/a/src/kept.rs",
        ];
        assert_eq!(dead(&files, &["crates/a/src/lib.rs"]), expected);
    }

    #[test]
    fn a_declaration_means_one_place_only() {
        let files = [
            (
                "crates/a/src/lib.rs",
                "mod flat;\nmod inline { mod leaf; }\n",
            ),
            ("crates/a/src/flat.rs", "mod leaf;"),
            ("crates/a/src/leaf.rs", ""),
        ];
        assert_eq!(
            dead(&files, &["crates/a/src/lib.rs"]),
            ["crates/a/src/leaf.rs"]
        );
    }
}
