//! A report as Markdown, for a commit, an issue or a page.

use std::fmt::Write;

use super::escape::parts;
use super::grid::grids;
use super::load_tables;
use super::model::{self, Report};
use super::notes;
use super::summary;
use super::table::{ABSENT, Section, Table};

/// Renders a report as Markdown with pipe tables. All text of the report is escaped.
pub fn render(report: &Report) -> String {
    let mut out = String::from("# Load report\n\n");
    let headline = summary::headline(report);
    push(
        &mut out,
        format_args!("**{}**: {}\n\n", headline.word, with_code(&headline.text)),
    );
    facts(&mut out, report);
    circumstances(&mut out, report);
    for section in Section::all(report) {
        push(&mut out, format_args!("\n## {}\n\n", escape(section.test)));
        for text in [Some(section.about), section.latency_note()]
            .into_iter()
            .flatten()
        {
            if !text.is_empty() {
                push(&mut out, format_args!("{text}\n\n"));
            }
        }
        table(&mut out, &section.figures());
        if section.test == model::SIZE_MATRIX {
            matrix(&mut out, &section);
        }
        for block in load_tables::blocks(&section.results) {
            push(&mut out, format_args!("\n{}:\n\n", escape(&block.title)));
            rows(&mut out, &block.header, &block.rows, block.text_columns);
        }
        if let Some(resources) = section.resources() {
            push(&mut out, format_args!("\n{}:\n\n", resources.title));
            table(&mut out, &resources);
        }
        list(&mut out, &notes::told(&section.results));
    }
    list(&mut out, &summary::baseline(report));
    preflight(&mut out, report);
    out
}

/// Renders one table.
pub(super) fn table(out: &mut String, table: &Table) {
    rows(out, &table.header, &table.rows, 1);
}

/// The figures of the size matrix with a row for each number of connections and a column for each size. One row would only
/// repeat the results.
fn matrix(out: &mut String, section: &Section<'_>) {
    for grid in grids(&section.results) {
        if grid.rows.len() < 2 {
            return;
        }
        push(out, format_args!("\n{}:\n\n", grid.caption));
        let mut header = vec!["Connections".to_owned()];
        header.extend(grid.columns);
        let cell = |cell: &Option<f64>| cell.map_or_else(|| ABSENT.to_owned(), grid.text);
        let row = |(name, cells): (String, &Vec<Option<f64>>)| {
            std::iter::once(name)
                .chain(cells.iter().map(cell))
                .collect()
        };
        let lines: Vec<Vec<String>> = grid.rows.into_iter().zip(&grid.cells).map(row).collect();
        rows(out, &header, &lines, 0);
    }
}

/// Renders rows under a header; the first `text_columns` are left aligned, the others right.
pub(super) fn rows<T: AsRef<str>>(
    out: &mut String,
    header: &[T],
    rows: &[Vec<String>],
    text_columns: usize,
) {
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<String> = cells.map(escape).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    out.push_str(&line(&mut header.iter().map(AsRef::as_ref)));
    out.push('|');
    out.push_str(&":---|".repeat(text_columns.min(header.len())));
    out.push_str(&"---:|".repeat(header.len().saturating_sub(text_columns)));
    out.push('\n');
    for row in rows {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
}

/// Text that Markdown shows as it is, on one line.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                escaped.push('\\');
                escaped.push(character);
            }
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

fn facts(out: &mut String, report: &Report) {
    for fact in super::facts::facts(report) {
        let (value, detail) = (escape(&fact.value), escape(&fact.detail));
        push(
            out,
            format_args!("- {}: **{value}** ({detail})\n", fact.name),
        );
    }
}

fn circumstances(out: &mut String, report: &Report) {
    let tool = &report.tool;
    let mut lines = vec![
        ("Server", summary::server(report)),
        ("Machine", summary::machine(&report.machine)),
        (
            "Limit of the throughput",
            summary::bottleneck(report).unwrap_or_default().into(),
        ),
        (
            "Measured by",
            format!("{} {} ({})", tool.name, tool.version, tool.language),
        ),
        ("Started", report.started_at.clone().unwrap_or_default()),
    ];
    lines.extend(summary::plan(report));
    out.push('\n');
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        push(out, format_args!("- {name}: {}\n", escape(value)));
    }
}

fn preflight(out: &mut String, report: &Report) {
    if report.preflight.is_empty() {
        return;
    }
    out.push_str("\n## Before the run\n\n");
    let cells = report.preflight.iter().map(|finding| {
        let state = if finding.ok { "ok" } else { "too low" };
        let hint = finding.hint.clone().unwrap_or_default();
        vec![
            finding.name.clone(),
            finding.value.clone(),
            finding.wanted.clone(),
            state.into(),
            hint,
        ]
    });
    rows(
        out,
        &["Check", "Found", "Wanted", "State", "What to do"],
        &cells.collect::<Vec<_>>(),
        5,
    );
}

fn list(out: &mut String, items: &[String]) {
    if !items.is_empty() {
        out.push('\n');
    }
    for item in items {
        push(out, format_args!("- {}\n", with_code(item)));
    }
}

/// Escaped text in which what stands between backticks is code.
fn with_code(text: &str) -> String {
    let show = |(part, is_code): (&str, bool)| match is_code {
        true => format!("`{}`", part.replace(char::is_control, " ")),
        false => escape(part),
    };
    parts(text).into_iter().map(show).collect()
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_in_its_cell() {
        let mut out = String::new();
        rows(
            &mut out,
            &["a", "b"],
            &[vec!["x|y\n# z".into(), "<img src=x>`c`".into()]],
            1,
        );
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[1], "|:---|---:|");
        assert_eq!(lines[2], r"| x\|y \# z | &lt;img src=x&gt;\`c\` |");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn code_in_a_note_is_code() {
        let mut out = String::new();
        list(
            &mut out,
            &["Try `a_b --c` [now]".into(), "one ` alone".into()],
        );
        assert_eq!(out, "\n- Try `a_b --c` \\[now\\]\n- one \\` alone\n");
    }
}
