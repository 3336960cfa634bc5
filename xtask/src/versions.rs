//! One version: that of the workspace in `Cargo.toml`, which the other packages repeat; and the form of the changelog.

use std::path::Path;

use crate::finding::Finding;
use crate::tree::Tree;

/// One finding for each place whose version is another, and for each heading of the changelog out of form.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let workspace = tree.text(Path::new("Cargo.toml")).unwrap_or_default();
    let Some(version) = version_of(&workspace) else {
        // A repository without a workspace, as in the tests of the other rules.
        return Vec::new();
    };
    let mut findings = Vec::new();
    for path in &tree.paths {
        let Some(text) = tree.text(path).filter(|_| has_version(path)) else {
            continue;
        };
        findings.extend(match path.file_name().and_then(|name| name.to_str()) {
            Some("package.json") => manifest(path, &text, version),
            Some("pyproject.toml") => project(path, &text),
            Some("CHANGELOG.md") => changelog(path, &text, version),
            _ => names(path, &text, version),
        });
    }
    findings
}

/// The version of the workspace's packages.
fn version_of(cargo: &str) -> Option<&str> {
    let (_, package) = cargo.split_once("[workspace.package]")?;
    let line = package
        .lines()
        .take_while(|line| !line.starts_with('['))
        .find_map(|line| line.strip_prefix("version = \""))?;
    line.split('"').next()
}

fn has_version(path: &Path) -> bool {
    let is_source = |folder: &&str| {
        path.starts_with(folder) && path.extension().is_some_and(|extension| extension == "ts")
    };
    let listed = [
        "CHANGELOG.md",
        "bindings/node/package.json",
        "bindings/python/pyproject.toml",
    ];
    let is_package = path.starts_with("packages")
        && path.ends_with("package.json")
        && path.components().count() == 3;
    is_package
        || listed.iter().any(|known| path == Path::new(known))
        || ["packages/client/src", "packages/bench/src"]
            .iter()
            .any(is_source)
}

/// The version of an npm package, and of the packages of the same repository that it needs.
fn manifest(path: &Path, text: &str, version: &str) -> Vec<Finding> {
    if text.contains("\"private\": true") {
        return Vec::new();
    }
    let is_own = |line: &str| {
        let line = line.trim_start();
        line.starts_with("\"version\":") || line.starts_with("\"@tidewire/")
    };
    let wanted = format!("\"{version}\"");
    lines(text)
        .filter(|(_, line)| is_own(line) && !line.contains(&wanted))
        .map(|(number, _)| another(path, number, version))
        .collect()
}

/// A Python package takes its version from the workspace when it is built.
fn project(path: &Path, text: &str) -> Vec<Finding> {
    let is_dynamic = text.lines().any(|line| line == "dynamic = [\"version\"]");
    let message = "the version comes from Cargo.toml, write dynamic = [\"version\"]";
    let own = lines(text).find(|(_, line)| line.starts_with("version ="));
    match own {
        Some((number, _)) => vec![Finding::new(path, number, message)],
        None if !is_dynamic => vec![Finding::new(path, 1, message)],
        None => Vec::new(),
    }
}

/// The version in the names that programs give themselves, such as `tidewire-ts/0.1.0`.
fn names(path: &Path, text: &str, version: &str) -> Vec<Finding> {
    let said = |line: &str| {
        let after_name = line.split_once("-ts/").map(|(_, after)| after);
        let constant = line.strip_prefix("export const VERSION = \"");
        let said = after_name.or(constant)?.split('"').next()?;
        said.starts_with(|first: char| first.is_ascii_digit())
            .then(|| said.to_owned())
    };
    lines(text)
        .filter(|(_, line)| said(line).is_some_and(|said| said != version))
        .map(|(number, _)| another(path, number, version))
        .collect()
}

/// The headings of [Keep a Changelog](https://keepachangelog.com/en/1.1.0/).
fn changelog(path: &Path, text: &str, version: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut newest = None;
    for (number, line) in lines(text) {
        if let Some(release) = line.strip_prefix("## ") {
            let is_first = newest.is_none();
            newest = newest.or_else(|| released(release));
            let is_known = release == "[Unreleased]" || released(release).is_some();
            if !is_known || (release == "[Unreleased]" && !is_first) {
                let message =
                    "a release is ## [Unreleased], at the top, or ## [1.2.3] - 2026-01-31";
                findings.push(Finding::new(path, number, message));
            } else if is_first && newest.is_some_and(|newest| newest != version) {
                findings.push(another(path, number, version));
            }
        } else if let Some(kind) = line.strip_prefix("### ")
            && !KINDS.contains(&kind)
        {
            let message = format!("changes are {}", KINDS.join(", "));
            findings.push(Finding::new(path, number, message));
        }
    }
    findings
}

/// The version of a heading such as `[1.2.3] - 2026-01-31`.
fn released(heading: &str) -> Option<&str> {
    let (version, date) = heading.strip_prefix('[')?.split_once("] - ")?;
    let is_date = date.len() == 10
        && date.bytes().enumerate().all(|(index, byte)| match index {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let is_version =
        version.split('.').count() >= 3 && version.starts_with(|c: char| c.is_ascii_digit());
    (is_date && is_version).then_some(version)
}

fn another(path: &Path, line: usize, version: &str) -> Finding {
    let message = format!("the version of the workspace is {version}, write the same here");
    Finding::new(path, line, message)
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

const KINDS: [&str; 6] = [
    "Added",
    "Changed",
    "Deprecated",
    "Removed",
    "Fixed",
    "Security",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;

    const CARGO: &str =
        "[workspace]\n[workspace.package]\nversion = \"1.2.3\"\n[workspace.dependencies]\n";

    fn places(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![("Cargo.toml", CARGO)];
        all.extend(files);
        let (_folder, tree) = samples::tree(&all);
        check(&tree)
            .iter()
            .map(|finding| format!("{}:{}", finding.path.display(), finding.line))
            .collect()
    }

    #[test]
    fn packages_have_the_version_of_the_workspace() {
        let good = "{\n  \"version\": \"1.2.3\",\n  \"@tidewire/client\": \"1.2.3\",\n  \"ws\": \"8.0.0\"\n}\n";
        let old = good.replace("1.2.3", "1.2.2");
        assert_eq!(places(&[("packages/react/package.json", good)]), [""; 0]);
        assert_eq!(
            places(&[
                ("packages/react/package.json", &old),
                ("bindings/node/package.json", good)
            ]),
            [
                "packages/react/package.json:2",
                "packages/react/package.json:3"
            ]
        );
        let private = format!("{{\n  \"private\": true,{old}");
        assert_eq!(
            places(&[
                ("packages/x/package.json", &private),
                ("examples/a/package.json", &old)
            ]),
            [""; 0]
        );
    }

    #[test]
    fn programs_name_the_version_of_the_workspace() {
        let text = "const a = \"tidewire-ts/1.2.3\";\nconst b = \"tidewire-ts/1.2.4\";\n\
                    export const VERSION = \"1.0.0\";\nconst c = `tidewire-ts/${VERSION}`;\n";
        let path = "packages/client/src/options.ts";
        assert_eq!(
            places(&[(path, text)]),
            [format!("{path}:2"), format!("{path}:3")]
        );
    }

    #[test]
    fn a_python_package_has_no_version_of_its_own() {
        let path = "bindings/python/pyproject.toml";
        assert_eq!(
            places(&[(path, "[project]\ndynamic = [\"version\"]\n")]),
            [""; 0]
        );
        assert_eq!(
            places(&[(path, "[project]\nversion = \"1.2.3\"\n")]),
            [format!("{path}:2")]
        );
        assert_eq!(places(&[(path, "[project]\n")]), [format!("{path}:1")]);
    }

    #[test]
    fn the_changelog_has_its_form() {
        let path = "CHANGELOG.md";
        let good = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A.\n\n## [1.2.3] - 2026-01-31\n\n### Fixed\n";
        assert_eq!(places(&[(path, good)]), [""; 0]);
        let bad = "# Changelog\n\n## [1.2.2] - 2026-01-31\n\n### New\n\n## 1.0.0 (old)\n\n## [Unreleased]\n";
        assert_eq!(
            places(&[(path, bad)]),
            [3, 5, 7, 9].map(|line| format!("{path}:{line}"))
        );
    }
}
