//! Rules for Markdown pages: tables with equal columns, links and anchors that lead somewhere, plain
//! words.

mod links;
mod page;
mod phrases;
mod tables;

use std::path::Path;

use crate::finding::Finding;
use crate::tree::{Tree, has_extension};
use page::Page;

/// The findings in every Markdown file of the repository.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let is_page = |path: &&Path| has_extension(path, &["md"]);
    let paths = tree.paths.iter().map(AsRef::as_ref).filter(is_page);
    let texts: Vec<(&Path, String)> = paths
        .filter_map(|path| Some((path, tree.text(path)?)))
        .collect();
    let pages: Vec<(&Path, Page<'_>)> = texts
        .iter()
        .map(|(path, text)| (*path, Page::parse(text)))
        .collect();
    let mut findings = Vec::new();
    for (path, page) in &pages {
        findings.extend(tables::check(path, page));
        findings.extend(phrases::check(path, page));
        findings.extend(links::check(path, page, &pages, &tree.paths));
    }
    findings
}
