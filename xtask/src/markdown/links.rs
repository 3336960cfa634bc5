//! Links inside the repository: the file exists, and so does the anchor.

use std::path::{Component, Path, PathBuf};

use super::page::Page;
use crate::finding::Finding;

/// One finding for each relative link of a page whose file or anchor does not exist.
pub(super) fn check(
    path: &Path,
    page: &Page<'_>,
    pages: &[(&Path, Page<'_>)],
    files: &[PathBuf],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in targets(&page.prose) {
        if let Err(message) = resolve(path, page, pages, files, target) {
            findings.push(Finding::new(path, line, message));
        }
    }
    findings
}

fn resolve(
    path: &Path,
    page: &Page<'_>,
    pages: &[(&Path, Page<'_>)],
    files: &[PathBuf],
    target: &str,
) -> Result<(), String> {
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let (name, page) = if file.is_empty() {
        (path.to_owned(), Some(page))
    } else {
        let name = relative(path, file)
            .ok_or_else(|| format!("{target} leads out of the repository, link to a file of it"))?;
        if !files.iter().any(|other| other.starts_with(&name)) {
            let name = name.display();
            return Err(format!(
                "there is no file {name}, correct the link {target}"
            ));
        }
        let found = pages.iter().find(|(other, _)| **other == name);
        (name, found.map(|(_, page)| page))
    };
    // An anchor in a file that is no Markdown, such as a line of a source, cannot be checked.
    let (Some(anchor), Some(page)) = (anchor, page) else {
        return Ok(());
    };
    if page.anchors.iter().any(|known| known == anchor) {
        return Ok(());
    }
    let name = name.display();
    Err(format!(
        "{name} has no heading for #{anchor}, correct the link {target}"
    ))
}

/// The path of a link from the root of the repository; `None` if it leads out of it.
fn relative(page: &Path, file: &str) -> Option<PathBuf> {
    let mut path = page.parent()?.to_owned();
    for part in Path::new(file).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir if !path.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// The line and the target of each relative link: `[text](target)` and `[name]: target`.
fn targets(prose: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in prose.lines().enumerate() {
        // The text of a link may begin on an earlier line; `](` stands with the target.
        for (start, _) in line.match_indices("](") {
            found.push((index + 1, destination(&line[start + 2..])));
        }
        if let Some((name, rest)) = line.split_once("]: ")
            && name.starts_with('[')
        {
            found.push((index + 1, destination(rest)));
        }
    }
    found.retain(|(_, target)| !target.is_empty() && !has_scheme(target));
    found
}

/// A target without the parenthesis that ends it and without a title.
fn destination(text: &str) -> &str {
    let text = text.trim_start();
    let end = text
        .find(|mark: char| mark == ')' || mark.is_whitespace())
        .unwrap_or(text.len());
    text[..end].trim_start_matches('<').trim_end_matches('>')
}

fn has_scheme(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::tree::samples;

    /// The findings of a small repository, as lines by page.
    fn findings(files: &[(&str, &str)]) -> BTreeMap<String, Vec<usize>> {
        let (_folder, tree) = samples::tree(files);
        let mut lines: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for finding in super::super::check(&tree) {
            let path = finding.path.display().to_string();
            lines.entry(path).or_default().push(finding.line);
        }
        lines
    }

    fn found_in_first(text: &str) -> Vec<usize> {
        let files = [
            ("docs/a.md", text),
            ("docs/b.md", "# Top\n\n## A heading\n"),
            ("crates/x/src/lib.rs", "//! x\n"),
        ];
        findings(&files).remove("docs/a.md").unwrap_or_default()
    }

    #[test]
    fn links_to_files_folders_and_headings_are_good() {
        let text = "# Here\n[b](b.md) [c](b.md#a-heading) [d](../crates/x) [e](../crates/x/src/lib.rs#L1)\n\
             [f](#here) [g](https://example.org/none.md#x) [h](mailto:a@example.org)\n\n[i]: b.md#top\n";
        assert_eq!(found_in_first(text), [0; 0]);
    }

    #[test]
    fn a_link_to_no_file_is_found() {
        assert_eq!(
            found_in_first("x\n[b](none.md)\n![c](d.png)\n[e]: gone.md\n"),
            [2, 3, 4]
        );
        assert_eq!(
            found_in_first("[b](../../outside.md) [c](/docs/b.md)\n"),
            [1, 1]
        );
    }

    #[test]
    fn a_link_to_no_heading_is_found() {
        assert_eq!(
            found_in_first("[b](b.md#none)\n[c](#none)\n[d](b.md#A-heading)\n"),
            [1, 2, 3]
        );
    }

    #[test]
    fn a_link_whose_text_is_broken_into_lines_is_read() {
        assert_eq!(found_in_first("[a long\ntext](b.md#none) here\n"), [2]);
        assert_eq!(
            found_in_first("[`code`\nand text](b.md \"a title\") here\n"),
            [0; 0]
        );
    }

    #[test]
    fn code_has_no_links() {
        assert_eq!(
            found_in_first("`[b](none.md)`\n```\n[b](none.md)\n```\n"),
            [0; 0]
        );
    }
}
