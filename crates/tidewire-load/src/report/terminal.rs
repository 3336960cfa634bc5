//! A report as plain text for a terminal or a log.

use comfy_table::{CellAlignment, ContentArrangement, TableComponent, presets};

use super::model::Report;
use super::summary;
use super::table::Section;

/// Renders the verdict, the circumstances and one table for each test. No colours and no control
/// characters, whatever the report contains; ends with a line feed.
pub fn render(report: &Report) -> String {
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
        out.push_str(&rows(&table.header, &table.rows, 1));
        for note in section.notes() {
            line(&mut out, &format!("  ! {note}"));
        }
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
        line(&mut out, &format!("  ! {hint}"));
    }
    out.push('\n');
    if let Some(limit) = summary::bottleneck(report) {
        line(&mut out, &format!("Limit    {limit}"));
    }
    line(
        &mut out,
        &format!("Verdict  {}: {}", headline.word, headline.text),
    );
    out
}

/// Aligned columns: the first `text_columns` to the left, the others to the right.
pub(super) fn rows<T: AsRef<str>>(
    header: &[T],
    rows: &[Vec<String>],
    text_columns: usize,
) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|name| plain(name.as_ref())));
    for row in rows {
        table.add_row(row.iter().map(|cell| plain(cell)));
    }
    for column in table.column_iter_mut().skip(text_columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = String::new();
    for row in table.lines() {
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

fn line(out: &mut String, text: &str) {
    out.push_str(&plain(text));
    out.push('\n');
}

/// Text without control characters, which could move a terminal's cursor or change its colours.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
