//! Phrases that plain English does without: each costs a reader time, and each has a usual word.

use std::path::Path;

use super::page::Page;
use crate::finding::Finding;

/// One finding for each line with such a phrase outside code.
pub(super) fn check(path: &Path, page: &Page<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in page.prose.lines().enumerate() {
        let line = line.to_lowercase();
        for (phrase, plain) in PHRASES {
            if has_phrase(&line, phrase) {
                let message = format!("\"{phrase}\", write {plain}");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    findings
}

fn has_phrase(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + phrase.len()..].chars().next();
        let is_part = |mark: Option<char>| mark.is_some_and(char::is_alphanumeric);
        !is_part(before) && !is_part(after)
    })
}

/// The phrase in lower case, and what to write.
const PHRASES: &[(&str, &str)] = &[
    ("in silence", "\"without a report\""),
    ("let go of", "\"release\""),
    ("may nothing", "what is not permitted"),
    (
        "newcomer",
        "\"new client\", \"new connection\" or \"new subscriber\"",
    ),
    (
        "newcomers",
        "\"new clients\", \"new connections\" or \"new subscribers\"",
    ),
    ("none of which", "a sentence of its own"),
    ("so many", "the name of the number"),
    ("takes no more", "\"accepts no more\""),
    ("there and back", "\"round trip\""),
    ("throw away", "\"discard\""),
    ("throws away", "\"discards\""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let findings = check(Path::new("a.md"), &Page::parse(text));
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_phrase_is_found_in_any_case() {
        assert_eq!(lines("It drops\nSo many messages in silence.\n"), [2, 2]);
        assert_eq!(lines("Newcomers wait.\n"), [1]);
    }

    #[test]
    fn other_words_and_code_are_left_alone() {
        assert_eq!(lines("also many, so manyfold\n"), [0; 0]);
        assert_eq!(lines("`so many`\n```\nso many\n```\n"), [0; 0]);
    }
}
