//! A report as plain text for a terminal or a log.

use comfy_table::{CellAlignment, ContentArrangement, TableComponent, presets};

use super::load_tables;
use super::model::Report;
use super::notes;
use super::printable::{printable, printable_line};
use super::summary;
use super::table::Section;

/// Renders the verdict, the circumstances and one table per test. No colours and no control
/// characters, whatever the report contains; ends with a line feed.
pub fn render(report: &Report) -> String {
    render_within(report, None)
}

/// The same with tables of at most this number of characters per line: a wider table is cut into
/// several, each of which begins with the first column.
pub fn render_within(report: &Report, width: Option<usize>) -> String {
    printable(&unchecked(report, width)).into_owned()
}

fn unchecked(report: &Report, width: Option<usize>) -> String {
    let headline = summary::headline(report);
    let mut out = String::new();
    line(&mut out, &format!("Server   {}", summary::server(report)));
    let machine = summary::machine(&report.machine);
    if !machine.is_empty() {
        line(&mut out, &format!("Machine  {machine}"));
    }
    for section in Section::all(report) {
        out.push('\n');
        line(&mut out, section.test);
        let table = section.figures();
        out.push_str(&rows_within(&table.header, &table.rows, 1, width));
        for block in load_tables::blocks(&section.results) {
            out.push('\n');
            line(&mut out, &block.title);
            out.push_str(&rows_within(
                &block.header,
                &block.rows,
                block.text_columns,
                width,
            ));
        }
        for note in notes::told(&section.results) {
            wrapped(&mut out, "  ! ", &note, width);
        }
    }
    for text in summary::baseline(report) {
        wrapped(&mut out, "  ! ", &text, width);
    }
    for finding in report.preflight.iter().filter(|finding| !finding.ok) {
        let hint = finding.hint.as_deref().unwrap_or("");
        out.push('\n');
        line(
            &mut out,
            &format!(
                "{}: {}, wanted {}",
                finding.name, finding.value, finding.wanted
            ),
        );
        wrapped(&mut out, "  ! ", hint, width);
    }
    out.push('\n');
    if let Some(limit) = summary::bottleneck(report) {
        wrapped(&mut out, "Limit    ", limit, width);
    }
    let verdict = format!("{}: {}", headline.word, headline.text);
    wrapped(&mut out, "Verdict  ", &verdict, width);
    out
}

/// Aligned columns: the first `text_columns` to the left, the others to the right.
pub(super) fn rows<T: AsRef<str>>(
    header: &[T],
    rows: &[Vec<String>],
    text_columns: usize,
) -> String {
    rows_within(header, rows, text_columns, None)
}

/// The same, in the number of tables that the width needs.
fn rows_within<T: AsRef<str>>(
    header: &[T],
    rows: &[Vec<String>],
    text_columns: usize,
    width: Option<usize>,
) -> String {
    let columns: Vec<usize> = (0..header.len()).collect();
    let Some(width) = width else {
        return table(header, rows, text_columns, &columns, None);
    };
    let widths: Vec<usize> = columns
        .iter()
        .map(|&column| column_width(header, rows, column))
        .collect();
    let parts = parts(&widths, width);
    let tables = parts
        .iter()
        .map(|columns| table(header, rows, text_columns, columns, Some(width)));
    tables.collect::<Vec<_>>().join("\n")
}

/// The columns of each table: the first column, and the others that fit.
fn parts(widths: &[usize], width: usize) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut used = usize::MAX;
    for (column, &needed) in widths.iter().enumerate().skip(1) {
        if used.saturating_add(needed) > width {
            parts.push(vec![0]);
            used = widths[0];
        }
        if let Some(part) = parts.last_mut() {
            part.push(column);
        }
        used = used.saturating_add(needed);
    }
    if parts.is_empty() && !widths.is_empty() {
        parts.push(vec![0]);
    }
    parts
}

/// Characters of the widest cell, with a space on each side and one between columns.
fn column_width<T: AsRef<str>>(header: &[T], rows: &[Vec<String>], column: usize) -> usize {
    let cells = rows
        .iter()
        .filter_map(|row| row.get(column))
        .map(String::as_str);
    let all = cells.chain([header[column].as_ref()]);
    all.map(|text| text.chars().count()).max().unwrap_or(0) + 3
}

fn table<T: AsRef<str>>(
    header: &[T],
    rows: &[Vec<String>],
    text_columns: usize,
    columns: &[usize],
    width: Option<usize>,
) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    match width.and_then(|width| u16::try_from(width).ok()) {
        // A single cell that is too long is wrapped.
        Some(width) => {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(width);
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    table.set_header(
        columns
            .iter()
            .map(|&column| printable_line(header[column].as_ref()).into_owned()),
    );
    for row in rows {
        let cells = columns.iter().filter_map(|&column| row.get(column));
        table.add_row(cells.map(|cell| printable_line(cell).into_owned()));
    }
    for (column, drawn) in columns.iter().zip(table.column_iter_mut()) {
        if *column >= text_columns {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    for row in table.lines() {
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

fn line(out: &mut String, text: &str) {
    out.push_str(&printable_line(text));
    out.push('\n');
}

/// A text behind a label. Its further lines begin below its first word.
fn wrapped(out: &mut String, label: &str, text: &str, width: Option<usize>) {
    let mut row = label.to_owned();
    let indent = label.chars().count();
    let mut is_empty = true;
    for word in text.split(' ') {
        let chars = row.chars().count() + 1 + word.chars().count();
        if !is_empty && width.is_some_and(|width| chars > width) {
            line(out, row.trim_end());
            row = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            row.push(' ');
        }
        row.push_str(word);
        is_empty = false;
    }
    line(out, &row);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_table_is_cut_and_every_part_begins_with_the_first_column() {
        let header: Vec<String> = (0..12).map(|n| format!("column {n}")).collect();
        let cells: Vec<String> = (0..12).map(|n| format!("value {n}")).collect();
        let text = rows_within(&header, &[cells], 1, Some(60));
        assert!(
            text.lines().all(|line| line.chars().count() <= 60),
            "{text}"
        );
        let parts: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(parts.len(), 3, "{text}");
        assert!(
            parts
                .iter()
                .all(|part| part.contains("column 0") && part.contains("value 0"))
        );
        for n in 1..12 {
            let name = format!("column {n}");
            let cells = text.lines().flat_map(|line| line.split("  "));
            let found = cells.filter(|cell| cell.trim() == name);
            assert_eq!(found.count(), 1, "{name} in\n{text}");
        }
        let long = rows_within(
            &["a", "b"],
            &[vec!["x".into(), "word ".repeat(40)]],
            1,
            Some(40),
        );
        assert!(
            long.lines().all(|line| line.chars().count() <= 40),
            "{long}"
        );
        assert_eq!(long.matches("word").count(), 40, "{long}");
        assert!(rows_within(&["alone"], &[vec!["x".into()]], 1, Some(3)).contains('x'));
    }

    #[test]
    fn a_long_text_is_cut_between_words() {
        let mut out = String::new();
        wrapped(&mut out, "  ! ", "one two three four", Some(12));
        assert_eq!(out, "  ! one two\n    three\n    four\n");
        let mut out = String::new();
        wrapped(&mut out, "Verdict  ", "valid: nothing  was lost", None);
        assert_eq!(out, "Verdict  valid: nothing  was lost\n");
        let mut out = String::new();
        wrapped(&mut out, "  ! ", "unbreakable", Some(5));
        assert_eq!(out, "  ! unbreakable\n");
    }

    #[test]
    fn columns_are_aligned_and_control_characters_removed() {
        let text = rows(
            &["name", "n"],
            &[vec!["\u{1b}[31mred".into(), "1".into()]],
            1,
        );
        assert!(!text.contains('\u{1b}'));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].chars().all(|c| c == '─'), "{text}");
        assert_eq!(lines[0].chars().count(), lines[2].chars().count(), "{text}");
    }
}
