//! The rules together.

use crate::arrows;
use crate::circles;
use crate::codes;
use crate::comments;
use crate::dead_files;
use crate::finding::Finding;
use crate::locks;
use crate::markdown;
use crate::options;
use crate::rooms;
use crate::sources;
use crate::text;
use crate::tree::Tree;
use crate::versions;
use crate::workspace::Workspace;

/// Every finding, by path and line.
pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = arrows::check(tree, workspace);
    findings.extend(codes::check(tree));
    findings.extend(options::check(tree));
    findings.extend(circles::check(tree, workspace));
    findings.extend(dead_files::check(tree, workspace));
    findings.extend(markdown::check(tree));
    findings.extend(versions::check(tree));
    for path in &tree.paths {
        if let Some(text) = tree.text(path) {
            findings.extend(comments::check(path, &text));
            findings.extend(text::check(path, &text));
            findings.extend(locks::check(path, &text));
            findings.extend(rooms::check(path, &text));
            findings.extend(sources::check(path, &text));
        }
    }
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;
    use crate::workspace::Package;
    use std::path::PathBuf;

    #[test]
    fn every_rule_reports_its_place() {
        let (_folder, tree) = samples::tree(&[
            (
                "crates/tidewire-net/Cargo.toml",
                "[dependencies]\ntidewire-engine.workspace = true\n",
            ),
            ("crates/tidewire-net/src/lib.rs", "//! A crate. \n"),
            ("crates/tidewire-net/src/lost.rs", "fn f() { unsafe {} }\n"),
            (
                "Cargo.lock",
                "source = \"registry+https://mirror.example/index\"\n",
            ),
            ("README.md", "[a page](none.md)\n"),
        ]);
        let mut package =
            Package::sample("tidewire-net", "crates/tidewire-net", &["tidewire-engine"]);
        package
            .roots
            .push(PathBuf::from("crates/tidewire-net/src/lib.rs"));
        let workspace = Workspace {
            packages: vec![package],
        };

        let places: Vec<String> = check(&tree, &workspace)
            .iter()
            .map(|finding| format!("{}:{}", finding.path.display(), finding.line))
            .collect();

        assert_eq!(
            places,
            [
                "Cargo.lock:1",
                "README.md:1",
                "crates/tidewire-net/Cargo.toml:2",
                "crates/tidewire-net/src/lib.rs:1",
                // Of no module, in no room, and with `unsafe`.
                "crates/tidewire-net/src/lost.rs:1",
                "crates/tidewire-net/src/lost.rs:1",
                "crates/tidewire-net/src/lost.rs:1",
                // The sample has no table of options or codes.
                "options/server.toml:1",
                "protocol/codes.toml:1",
            ]
        );
    }
}
