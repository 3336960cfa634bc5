//! Rules for comments in code: module headers that name a thing, and plain words.

use std::path::Path;

use crate::finding::Finding;
use crate::phrases;
use crate::tree::has_extension;

/// The findings in one file.
pub(crate) fn check(path: &Path, text: &str) -> Vec<Finding> {
    if !has_extension(path, EXTENSIONS) || LEFT_OUT.iter().any(|own| path.starts_with(own)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if has_extension(path, &["rs"])
        && let Some(word) = riddle(text)
    {
        let message = format!("the module's header begins with \"{word}\", name the thing instead");
        findings.push(Finding::new(path, 1, message));
    }
    for (index, line) in text.lines().enumerate() {
        if let Some(comment) = comment(line) {
            let prose = without_code(comment);
            let found = phrases::find(&prose);
            findings.extend(found.map(|message| Finding::new(path, index + 1, message)));
        }
    }
    findings
}

/// The first word of a module's documentation, if it begins a question.
fn riddle(text: &str) -> Option<&str> {
    let first = text.lines().next()?.strip_prefix("//! ")?;
    let word = first.split([' ', ',']).next()?;
    QUESTIONS.contains(&word).then_some(word)
}

/// The comment that is alone on a line.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ["//", "/*", "* ", "# ", "#: "]
        .iter()
        .find_map(|mark| line.strip_prefix(mark))
}

/// A comment without what stands in backticks.
fn without_code(comment: &str) -> String {
    comment.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

const EXTENSIONS: &[&str] = &["js", "mjs", "py", "rs", "toml", "ts", "tsx"];

const QUESTIONS: &[&str] = &[
    "How", "What", "Where", "Whether", "Who", "Whom", "Whose", "Why",
];

/// The file that shows the phrases, and the client for pages, whose comments were not read yet.
const LEFT_OUT: &[&str] = &["xtask/src/phrases.rs"];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let findings = check(Path::new(path), text);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_module_is_named_and_not_asked_for() {
        assert_eq!(found("a.rs", "//! What is sent.\n"), [1]);
        assert_eq!(found("a.rs", "//! Whatever is sent.\n"), [0; 0]);
        assert_eq!(
            found("a.rs", "//! Outbox.\n//!\n//! What is sent.\n"),
            [0; 0]
        );
    }

    #[test]
    fn phrases_are_found_in_comments_alone() {
        assert_eq!(found("a.rs", "fn a() {}\n    /// Lets go of it.\n"), [2]);
        assert_eq!(found("a.rs", "let a = \"lets go of it\";\n"), [0; 0]);
        assert_eq!(found("a.rs", "/// The `newcomer`.\n"), [0; 0]);
        assert_eq!(found("a.py", "    # So many.\n"), [1]);
        assert_eq!(found("a.ts", " * So many.\n"), [1]);
        assert_eq!(found("a.md", "# So many.\n"), [0; 0]);
    }
}
