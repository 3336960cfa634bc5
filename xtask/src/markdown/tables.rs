//! Tables: each row has as many columns as the header.

use std::path::Path;

use super::page::Page;
use crate::finding::Finding;

/// One finding for each row with another number of columns than the header of its table, and for each
/// row that belongs to no table.
pub(super) fn check(path: &Path, page: &Page<'_>) -> Vec<Finding> {
    let lines = &page.lines;
    let mut findings = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let (header, delimiter) = (lines[index], lines.get(index + 1).copied().flatten());
        index += 1;
        let Some(header) = header else { continue };
        if !delimiter.is_some_and(is_delimiter) {
            if is_row(header) {
                let message = "a row of no table, put a header and a line of --- above it";
                findings.push(Finding::new(path, index, message));
            }
            continue;
        }
        let wanted = columns(header);
        // GitHub ends a table at an empty line: text directly below a row is a row as well.
        while let Some(row) = lines
            .get(index)
            .copied()
            .flatten()
            .filter(|row| !row.trim().is_empty())
        {
            let found = columns(row);
            index += 1;
            if found != wanted {
                let message = format!(
                    "a row of {found} columns in a table of {wanted}, \
                     write \\| for a bar inside a cell, also inside a code span"
                );
                findings.push(Finding::new(path, index, message));
            }
        }
    }
    findings
}

fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// Whether a line separates a header from its rows, as `|---|:--:|` does.
fn is_delimiter(line: &str) -> bool {
    let line = line.trim();
    line.contains('|') && line.contains('-') && line.bytes().all(|byte| b"|-: ".contains(&byte))
}

/// The number of cells of a row. GitHub divides a row at each bar without a backslash before it, even
/// inside a code span.
fn columns(row: &str) -> usize {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let mut bars = 0;
    let mut is_escaped = false;
    let mut ends_in_bar = false;
    for byte in row.bytes() {
        ends_in_bar = byte == b'|' && !is_escaped;
        bars += usize::from(ends_in_bar);
        is_escaped = byte == b'\\' && !is_escaped;
    }
    bars + usize::from(!ends_in_bar)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let findings = check(Path::new("a.md"), &Page::parse(text));
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_row_with_fewer_or_more_columns_is_found() {
        let table = "| a | b |\n|---|---|\n| 1 | 2 |\n| 1 |\n| 1 | 2 | 3 |\n\ntext\n";
        assert_eq!(lines(table), [4, 5]);
        assert_eq!(lines("| a | b |\n|---|\n| 1 | 2 |\n"), [2]);
    }

    #[test]
    fn a_row_that_was_broken_into_two_lines_is_found() {
        let table = "| a | b |\n|---|---|\n| one | a cell that goes on\nhere | two | three |\n";
        assert_eq!(lines(table), [4]);
    }

    #[test]
    fn a_bar_with_a_backslash_divides_nothing_and_one_in_a_code_span_does() {
        assert_eq!(
            lines("| a | b |\n|---|---|\n| `x\\|y` | 2 |\n| \\\\| 2 |\n"),
            [0; 0]
        );
        assert_eq!(lines("| a | b |\n|---|---|\n| `x|y` | 2 |\n"), [3]);
    }

    #[test]
    fn bars_at_the_ends_and_indents_are_optional() {
        assert_eq!(lines("a | b\n--|--\n1 | 2\n"), [0; 0]);
        assert_eq!(
            lines("1. item\n\n   | a | b |\n   |:--|--:|\n   | 1 | |\n"),
            [0; 0]
        );
    }

    #[test]
    fn a_row_without_a_header_is_found_outside_code_only() {
        assert_eq!(lines("text\n\n| 1 | 2 |\n"), [3]);
        assert_eq!(lines("```\n| 1 | 2 |\n```\n"), [0; 0]);
    }
}
