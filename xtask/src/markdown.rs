//! Rules for Markdown pages: tables with equal columns, links and anchors that lead somewhere, plain
//! words.

mod links;
mod page;
mod tables;

use std::path::Path;

use crate::finding::Finding;
use crate::phrases;
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
        findings.extend(phrases_in(path, page));
        findings.extend(links::check(path, page, &pages, &tree.paths));
    }
    findings
}

/// One finding for each phrase outside code that plain English does without.
fn phrases_in(path: &Path, page: &Page<'_>) -> Vec<Finding> {
    let lines = page.prose.lines().enumerate();
    lines
        .flat_map(|(index, line)| {
            phrases::find(line).map(move |message| Finding::new(path, index + 1, message))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_in_a_page_is_not_prose() {
        let lines = |text: &str| phrases_in(Path::new("a.md"), &Page::parse(text)).len();
        assert_eq!(lines("`so many`\n```\nso many\n```\n"), 0);
        assert_eq!(lines("so many\n"), 1);
    }
}
