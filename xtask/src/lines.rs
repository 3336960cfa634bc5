//! Rules for the text of files, which `xtask/lines.toml` lists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use regex::Regex;
use serde::Deserialize;

use crate::finding::Finding;
use crate::tree::Tree;

/// The rules, as the table has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rule: Vec<Rule>,
    share: Vec<Share>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    files: Pattern,
    except: Option<Pattern>,
    unless: Option<Pattern>,
    finds: Option<Pattern>,
    must: Option<Pattern>,
    needs: Option<Pattern>,
    lines_max: Option<usize>,
    says: String,
}

/// What is at fault only if a folder has much of it: `files` captures the folder.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    files: Pattern,
    unless: Pattern,
    of: Pattern,
    finds: Pattern,
    per_cent_max: usize,
    says: String,
}

/// A regular expression in which `^` and `$` are the ends of a line.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Pattern(Regex);

impl TryFrom<String> for Pattern {
    type Error = regex::Error;

    fn try_from(text: String) -> Result<Self, regex::Error> {
        Regex::new(&format!("(?m){text}")).map(Self)
    }
}

/// The findings in every text file. Fails if the table is wrong.
pub(crate) fn check(tree: &Tree, table: &str) -> anyhow::Result<Vec<Finding>> {
    let cargo = tree.text(Path::new("Cargo.toml")).unwrap_or_default();
    let cargo: toml::Table = toml::from_str(&cargo)?;
    let package = cargo
        .get("workspace")
        .and_then(|workspace| workspace.get("package"));
    let version = package
        .and_then(|package| package["version"].as_str())
        .context("Cargo.toml: no version")?;
    let table: Table = toml::from_str(&table.replace("{version}", &regex::escape(version)))?;
    let mut findings = Vec::new();
    for path in &tree.paths {
        if let Some(text) = tree.text(path) {
            for rule in &table.rule {
                let found = rule.found(&path.to_string_lossy(), &text).into_iter();
                findings.extend(found.map(|line| Finding::new(path, line, &rule.says)));
            }
        }
    }
    for share in &table.share {
        findings.extend(share.found(tree));
    }
    Ok(findings)
}

impl Share {
    /// Each line at fault in the folders that have more of them than `per_cent_max`.
    fn found(&self, tree: &Tree) -> Vec<Finding> {
        let mut folders: BTreeMap<String, (usize, Vec<(PathBuf, usize)>)> = BTreeMap::new();
        for path in &tree.paths {
            let folder = self.files.0.captures(path.to_str().unwrap_or_default());
            let Some(folder) = folder.map(|found| found[1].to_owned()) else {
                continue;
            };
            let text = tree.text(path).unwrap_or_default();
            if self.unless.0.is_match(&text) {
                continue;
            }
            let (lines, faults) = folders.entry(folder).or_default();
            let of = (1..)
                .zip(text.lines())
                .filter(|(_, line)| self.of.0.is_match(line));
            for (number, line) in of {
                *lines += 1;
                if self.finds.0.is_match(line) {
                    faults.push((path.clone(), number));
                }
            }
        }
        let of_folder = |(lines, faults): (usize, Vec<(PathBuf, usize)>)| {
            let count = faults.len();
            let is_much = count * 100 > lines * self.per_cent_max;
            let says = format!("{} ({count} of {lines} lines here)", self.says);
            faults
                .into_iter()
                .filter(move |_| is_much)
                .map(move |(path, line)| Finding::new(&path, line, says.clone()))
        };
        folders.into_values().flat_map(of_folder).collect()
    }
}

impl Rule {
    /// The lines at which a file breaks the rule.
    fn found(&self, path: &str, text: &str) -> Vec<usize> {
        let has = |text: &str, pattern: &Option<Pattern>| {
            pattern
                .as_ref()
                .is_some_and(|pattern| pattern.0.is_match(text))
        };
        if !self.files.0.is_match(path) || has(path, &self.except) || has(text, &self.unless) {
            return Vec::new();
        }
        let found = self.finds.iter().flat_map(|finds| finds.0.find_iter(text));
        let faults = found.filter(|found| !has(found.as_str(), &self.must));
        let lines_before = |end: usize| text[..end].matches('\n').count();
        let mut lines: Vec<_> = faults.map(|found| 1 + lines_before(found.end())).collect();
        if let Some(max) = self.lines_max
            && text.lines().nth(max).is_some()
        {
            lines.push(max + 1);
        }
        if self.needs.is_some() && !has(text, &self.needs) {
            lines.push(1);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;

    /// The lines that the rules of the repository find in one file.
    fn found(path: &str, text: &str) -> Vec<usize> {
        let cargo = "[workspace.package]\nversion = \"1.2.3\"\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        let (_folder, tree) = samples::tree(&[("Cargo.toml", cargo), (path, text)]);
        let findings = check(&tree, include_str!("../lines.toml")).unwrap();
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn each_rule_finds_its_fault_and_nothing_else() {
        let marker = concat!("TO", "DO");
        let text = format!(
            "//! What is sent.\n//! So many.\nlet a = \"{marker}\"; \r\n// {marker}S in `so many`\n"
        );
        assert_eq!(found("a.rs", &text), [3, 3, 1, 2]);
        assert_eq!(found("a.rs", "//! Whatever is sent.\n"), [0; 0]);
        assert_eq!(
            found("a.md", "# A\n\nOne `so many` in\nthere and back.\n"),
            [4]
        );
        assert_eq!(found("a.py", &"x\n".repeat(601)), [601]);
        assert_eq!(found("a.json", &"x\n".repeat(601)), [0; 0]);
    }

    #[test]
    fn worn_words_are_at_fault_where_they_are_many() {
        let comments = |worn: usize, plain: usize| {
            "/// Tells more.\nlet told = 1;\n".repeat(worn) + &"// Reads more.\n".repeat(plain)
        };
        assert_eq!(found("crates/a/src/b.rs", &comments(2, 98)), [0; 0]);
        assert_eq!(found("crates/a/src/b.rs", &comments(2, 97)), [1, 3]);
        let generated = format!("// Generated from x.\n{}", comments(9, 0));
        assert_eq!(found("crates/a/src/b.rs", &generated), [0; 0]);
    }

    #[test]
    fn locks_name_the_public_registries() {
        let text = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n\
             source = \"registry+https://mirror.example/index\"\nsource = \"git+https://host.example/x#1\"\n";
        assert_eq!(found("fuzz/Cargo.lock", text), [2, 3]);
        let text = "\"resolved\": \"https://registry.npmjs.org/ws.tgz\",\n\"resolved\": \"packages/client\",\n\
             \"resolved\": \"http://mirror.example/ws.tgz\"\n";
        assert_eq!(found("bench/package-lock.json", text), [3]);
        assert_eq!(
            found(
                "requirements-dev.txt",
                "# http://a\na==1\n-i https://b\nc @ git+https://d\n"
            ),
            [3, 4]
        );
    }

    #[test]
    fn every_package_has_the_version_and_the_lints_of_the_workspace() {
        let good = "\"version\": \"1.2.3\",\n\"@tidewire/client\": \"1.2.3\",\n\"ws\": \"8.0.0\"\n";
        let old = good.replace("1.2.3", "1.2.2");
        assert_eq!(found("packages/react/package.json", good), [0; 0]);
        assert_eq!(found("bindings/node/package.json", &old), [1, 2]);
        assert_eq!(
            found(
                "packages/x/package.json",
                &format!("\"private\": true, {old}")
            ),
            [0; 0]
        );
        let names = "a = \"tidewire-ts/1.2.3\";\nb = \"tidewire-ts/1.2.4\";\nc = `x-ts/${V}`;\nexport const VERSION = \"1.0.0\";\n";
        assert_eq!(found("packages/client/src/options.ts", names), [2, 4]);
        assert_eq!(
            found(
                "bindings/python/pyproject.toml",
                "dynamic = [\"version\"]\n"
            ),
            [0; 0]
        );
        assert_eq!(
            found("bindings/python/pyproject.toml", "version = \"1.2.3\"\n"),
            [1]
        );
        assert_eq!(
            found(
                "crates/a/Cargo.toml",
                "[package]\n\n[lints]\nworkspace = true\n"
            ),
            [0; 0]
        );
        assert_eq!(found("crates/a/Cargo.toml", "[package]\n"), [1]);
    }

    #[test]
    fn the_changelog_has_its_form() {
        let good = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A.\n\n## [1.2.3] - 2026-01-31\n\n### Fixed\n";
        assert_eq!(found("CHANGELOG.md", good), [0; 0]);
        let bad = "## [1.2.2] - 2026-01-31\n\n### New\n\n## 1.0.0 (old)\n\n## [Unreleased]\n";
        assert_eq!(found("CHANGELOG.md", bad), [5, 7, 3, 1]);
    }
}
