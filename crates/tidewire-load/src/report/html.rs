//! A report as one self-contained page: no script, no external resources, charts as inline SVG, for
//! light and dark screens and for paper.

use std::fmt::{Arguments, Write};

use super::chart::Figure;
use super::escape::{escape, parts};
use super::load_tables;
use super::model::Report;
use super::notes;
use super::plots;
use super::summary;
use super::table::Section;

/// Renders a report as an HTML page. All text of the report is escaped.
pub fn render(report: &Report) -> String {
    let mut page = Page::default();
    let sections = Section::all(report);
    header(&mut page, report);
    facts(&mut page, report);
    circumstances(&mut page, report);
    if sections.len() > 1 {
        page.put(format_args!("<nav aria-label=\"Tests\">"));
        for (index, section) in sections.iter().enumerate() {
            page.put(format_args!(
                "<a href=\"#test-{index}\">{}</a>",
                escape(section.test)
            ));
        }
        page.put(format_args!("</nav>\n"));
    }
    for (index, section) in sections.iter().enumerate() {
        test(&mut page, index, section);
    }
    notes(&mut page, &summary::baseline(report));
    preflight(&mut page, report);
    let tool = &report.tool;
    page.put(format_args!(
        "<footer>Measured by {} {} ({}), format <code>{}</code>. Rates count only what the server \
         has accounted for.</footer>\n",
        escape(&tool.name),
        escape(&tool.version),
        escape(&tool.language),
        escape(&report.schema),
    ));
    page.finish(&format!("Load report: {}", report.target.url))
}

/// The body of a page under construction.
#[derive(Default)]
pub(super) struct Page {
    body: String,
}

impl Page {
    /// Appends HTML; the caller escapes.
    pub(super) fn put(&mut self, html: Arguments<'_>) {
        self.body
            .write_fmt(html)
            .expect("writing to a string does not fail");
    }

    /// Appends a table; cells are escaped here. Verdicts become badges.
    pub(super) fn table<T: AsRef<str>>(
        &mut self,
        caption: &str,
        header: &[T],
        rows: &[Vec<String>],
    ) {
        self.put(format_args!("<div class=\"scroll\"><table>"));
        if !caption.is_empty() {
            self.put(format_args!("<caption>{}</caption>", escape(caption)));
        }
        self.put(format_args!("<thead><tr>"));
        for name in header {
            self.put(format_args!(
                "<th scope=\"col\">{}</th>",
                escape(name.as_ref())
            ));
        }
        self.put(format_args!("</tr></thead><tbody>\n"));
        for row in rows {
            self.put(format_args!("<tr>"));
            for (name, cell) in header.iter().zip(row) {
                let text = escape(cell);
                if BADGES.contains(&name.as_ref()) {
                    let tone = tone(cell);
                    self.put(format_args!(
                        "<td><span class=\"badge {tone}\">{text}</span></td>"
                    ));
                } else {
                    self.put(format_args!("<td>{text}</td>"));
                }
            }
            self.put(format_args!("</tr>\n"));
        }
        self.put(format_args!("</tbody></table></div>\n"));
    }

    /// Appends charts with their captions.
    pub(super) fn figures(&mut self, figures: &[Figure]) {
        if figures.is_empty() {
            return;
        }
        self.put(format_args!("<div class=\"figures\">\n"));
        figures.iter().for_each(|one| figure(self, one));
        self.put(format_args!("</div>\n"));
    }

    /// Appends sentences as a list.
    pub(super) fn list(&mut self, sentences: &[String]) {
        notes(self, sentences);
    }

    /// The whole document.
    pub(super) fn finish(self, title: &str) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{}</main>\n\
             </body>\n</html>\n",
            escape(title),
            self.body
        )
    }
}

fn header(page: &mut Page, report: &Report) {
    page.put(format_args!("<header><h1>Load report</h1>"));
    let started = report.started_at.as_deref().unwrap_or_default();
    page.put(format_args!(
        "<p class=\"when\">{}</p></header>\n",
        escape(started)
    ));
    let headline = summary::headline(report);
    page.put(format_args!(
        "<section class=\"verdict {}\" aria-label=\"Verdict\"><h2>{}</h2><p>{}</p></section>\n",
        headline.tone,
        escape(headline.word),
        with_code(&headline.text),
    ));
}

fn facts(page: &mut Page, report: &Report) {
    let facts = super::facts::facts(report);
    if facts.is_empty() {
        return;
    }
    page.put(format_args!("<ul class=\"facts\">\n"));
    for fact in facts {
        page.put(format_args!(
            "<li><span class=\"name\">{}</span><strong>{}</strong>\
             <span class=\"detail\">{}</span></li>\n",
            escape(&fact.name),
            escape(&fact.value),
            escape(&fact.detail),
        ));
    }
    page.put(format_args!("</ul>\n"));
}

fn circumstances(page: &mut Page, report: &Report) {
    let limit = summary::bottleneck(report).unwrap_or_default();
    let mut rows = vec![
        ("Server", summary::server(report)),
        ("Machine", summary::machine(&report.machine)),
        ("Bottleneck", limit.to_owned()),
    ];
    rows.extend(summary::plan(report));
    page.put(format_args!("<dl>\n"));
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let class = if value.chars().count() > SHORT_VALUE_CHARS {
            " class=\"wide\""
        } else {
            ""
        };
        let (name, value) = (escape(name), escape(value));
        page.put(format_args!(
            "<div{class}><dt>{name}</dt><dd>{value}</dd></div>\n"
        ));
    }
    page.put(format_args!("</dl>\n"));
}

fn test(page: &mut Page, index: usize, section: &Section<'_>) {
    let name = escape(section.test);
    page.put(format_args!(
        "<section class=\"test\" id=\"test-{index}\"><h2>{name}</h2>\n"
    ));
    let about = [Some(section.about), section.latency_note()];
    let about: Vec<&str> = about
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .collect();
    if !about.is_empty() {
        page.put(format_args!(
            "<p class=\"about\">{}</p>\n",
            escape(&about.join(" "))
        ));
    }
    let figures = plots::figures(section);
    page.figures(&figures);
    let figures = section.figures();
    page.table(figures.title, &figures.header, &figures.rows);
    for block in load_tables::blocks(&section.results) {
        page.table(&block.title, &block.header, &block.rows);
    }
    if let Some(resources) = section.resources() {
        let open = if resources.rows.len() <= ROWS_OPEN_MAX {
            " open"
        } else {
            ""
        };
        page.put(format_args!(
            "<details{open}><summary>{}</summary>\n",
            resources.title
        ));
        page.table("", &resources.header, &resources.rows);
        page.put(format_args!("</details>\n"));
    }
    notes(page, &notes::told(&section.results));
    page.put(format_args!("</section>\n"));
}

fn notes(page: &mut Page, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    page.put(format_args!("<ul class=\"notes\">\n"));
    for note in notes {
        page.put(format_args!("<li>{}</li>\n", with_code(note)));
    }
    page.put(format_args!("</ul>\n"));
}

/// Escaped text in which what stands between backticks is code.
fn with_code(text: &str) -> String {
    let show = |(part, is_code)| match is_code {
        true => format!("<code>{}</code>", escape(part)),
        false => escape(part),
    };
    parts(text).into_iter().map(show).collect()
}

fn figure(page: &mut Page, figure: &Figure) {
    page.put(format_args!(
        "<figure><figcaption>{}",
        escape(&figure.caption)
    ));
    if !figure.legend.is_empty() {
        page.put(format_args!("<ul class=\"legend\">"));
        for (index, name) in figure.legend.iter().enumerate() {
            page.put(format_args!("<li class=\"s{index}\">{}</li>", escape(name)));
        }
        page.put(format_args!("</ul>"));
    }
    page.put(format_args!("</figcaption>{}</figure>\n", figure.svg));
}

fn preflight(page: &mut Page, report: &Report) {
    if report.preflight.is_empty() {
        return;
    }
    let row = |finding: &super::model::Finding| {
        let state = if finding.ok { "ok" } else { "too low" };
        let (name, value) = (finding.name.clone(), finding.value.clone());
        vec![name, value, finding.wanted.clone(), state.to_owned()]
    };
    let rows: Vec<Vec<String>> = report.preflight.iter().map(row).collect();
    page.put(format_args!(
        "<section class=\"test\"><h2>Before the run</h2>\n"
    ));
    page.table("", &["Check", "Found", "Wanted", "State"], &rows);
    let hints = report
        .preflight
        .iter()
        .filter_map(|f| Some((&f.name, f.hint.as_ref()?)));
    let hints: Vec<_> = hints.collect();
    if !hints.is_empty() {
        page.put(format_args!("<ul class=\"notes\">\n"));
        for (name, hint) in hints {
            page.put(format_args!(
                "<li>{}: {}</li>\n",
                escape(name),
                with_code(hint)
            ));
        }
        page.put(format_args!("</ul>\n"));
    }
    page.put(format_args!("</section>\n"));
}

fn tone(verdict: &str) -> &'static str {
    match verdict {
        "valid" | "ok" | "kept" | "faster" | "excellent" | "good" => "valid",
        "failed" | "broken" | "slower" | "poor" => "failed",
        _ => "warn",
    }
}

/// Columns whose words have a colour.
const BADGES: [&str; 4] = ["Verdict", "State", "Finding", "Grade"];
/// A longer table of resources is folded away on the screen, never on paper.
const ROWS_OPEN_MAX: usize = 6;
/// A longer value gets a line of its own.
const SHORT_VALUE_CHARS: usize = 20;
const STYLE: &str = include_str!("style.css");
