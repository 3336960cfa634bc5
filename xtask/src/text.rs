//! Rules for any text file: length, trailing whitespace, markers of unfinished work.

use std::path::Path;

use crate::finding::Finding;
use crate::tree::has_extension;

/// The findings in one file.
pub(crate) fn check(path: &Path, text: &str) -> Vec<Finding> {
    let is_code = has_extension(path, CODE_EXTENSIONS);
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if is_code && lines > FILE_LINES_MAX && !LISTS.iter().any(|list| path == Path::new(list)) {
        let message = format!("{lines} lines, split the file: the budget is {FILE_LINES_MAX}");
        findings.push(Finding::new(path, FILE_LINES_MAX + 1, message));
    }
    // Not `lines`, which takes a carriage return for a part of the line's end.
    for (index, line) in text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(
                path,
                index + 1,
                "trailing whitespace, remove it",
            ));
        }
        if is_code && let Some(marker) = MARKERS.iter().find(|marker| has_word(line, marker)) {
            let message = format!("{marker}, do it now or file an issue");
            findings.push(Finding::new(path, index + 1, message));
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    line.match_indices(word).any(|(start, _)| {
        let before = line.as_bytes()[..start].last();
        let after = line.as_bytes().get(start + word.len());
        !before.is_some_and(|&byte| is_part(byte)) && !after.is_some_and(|&byte| is_part(byte))
    })
}

/// A longer file usually hides two.
const FILE_LINES_MAX: usize = 600;

/// Generated files with one entry for each of something, which nothing can hide in.
const LISTS: &[&str] = &["crates/tidewire-cli/src/init/tidewire.toml"];

const CODE_EXTENSIONS: &[&str] = &[
    "css", "js", "mjs", "py", "rs", "sh", "toml", "ts", "tsx", "yaml", "yml",
];

/// Written in two pieces, so that this file does not carry them itself.
const MARKERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let findings = check(Path::new(path), text);
        findings
            .into_iter()
            .map(|finding| (finding.line, finding.message))
            .collect()
    }

    #[test]
    fn a_code_file_past_the_budget_is_found() {
        let fits = "x\n".repeat(FILE_LINES_MAX);
        assert_eq!(found("a.rs", &fits), []);
        let too_long = fits + "x\n";
        assert_eq!(found("a.rs", &too_long)[0].0, FILE_LINES_MAX + 1);
        assert_eq!(found("tests/a.py", &too_long).len(), 1);
        assert_eq!(found("vectors.json", &too_long), []);
    }

    #[test]
    fn trailing_whitespace_is_found_in_any_text() {
        for (path, text) in [
            ("a.md", "a\nb \n"),
            ("Makefile", "a\nb\t\n"),
            ("a.rs", "a\nb\r\n"),
        ] {
            let lines: Vec<usize> = found(path, text).iter().map(|(line, _)| *line).collect();
            assert_eq!(lines, [2], "{path}");
        }
        assert_eq!(found("a.rs", "a\n\n  b\n"), []);
    }

    #[test]
    fn markers_are_found_as_whole_words_in_code_only() {
        for marker in MARKERS {
            assert_eq!(found("a.rs", &format!("// {marker}: later\n")).len(), 1);
            assert_eq!(found("a.py", &format!("# ({marker})\n")).len(), 1);
            assert_eq!(
                found(
                    "a.rs",
                    &format!("let A{marker}S = 1;\nlet {marker}_X = 2;\n")
                ),
                []
            );
            assert_eq!(found("a.md", &format!("the {marker} list\n")), []);
        }
    }
}
