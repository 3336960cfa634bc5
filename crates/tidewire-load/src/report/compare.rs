//! Comparison of several reports: each figure of the same test with the same plan, with its ratio
//! to the first report's.
//!
//! Results have the same plan when everything agrees that affects a figure: connections, format,
//! payload, layer, profile, and the pace with its rate or its messages in flight. The other
//! differences between the reports are listed above the figures.

mod metric;
mod overview;
mod plan;
mod scaling;

pub use metric::Metric;
pub use scaling::scale;

use super::model::{LatencyOrigin, Report, TestResult, Verdict};
use super::printable::printable;
use super::{html, markdown, table, terminal};
use crate::report::number;

/// Reports matched figure by figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The names of the columns, one per report.
    pub names: Vec<String>,
    /// A line per report: its language, its threads or processes, and its highest figures.
    pub overview: Vec<Vec<String>>,
    /// A line per result and number of processes, if the reports differ in it.
    pub scaling: Vec<Vec<String>>,
    /// Tests in the order of their first appearance, all figures of one set-up together.
    pub rows: Vec<Row>,
    /// The differences between the reports that are not part of a row's set-up.
    pub differences: Vec<Difference>,
}

/// A property in which reports differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The property.
    pub name: &'static str,
    /// One value per report; empty if it is not known.
    pub values: Vec<String>,
}

/// A table above the figures.
struct Leading<'a> {
    title: &'static str,
    header: Vec<&'a str>,
    rows: Vec<Vec<String>>,
    text_columns: usize,
}

/// One figure in all reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The test's name.
    pub test: String,
    /// Connections, format and payload, in words.
    pub setup: String,
    /// The figure.
    pub metric: Metric,
    /// One value per report; `None` if it has no such figure.
    pub cells: Vec<Option<Cell>>,
}

/// A figure of one report: the median when the report has several results of the same set-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// In the metric's unit.
    pub value: f64,
    /// `value` divided by the first report's; `None` when that has no such figure, it is zero, or
    /// its clock starts at another moment.
    pub ratio: Option<f64>,
    /// The worst verdict of the results behind the figure.
    pub verdict: Verdict,
    /// The verdict of the first report's figure, if there is a ratio.
    pub base_verdict: Verdict,
    /// Where the clock of a latency starts.
    pub origin: Option<LatencyOrigin>,
}

impl Comparison {
    /// Matches `reports`, each with the name of its column.
    pub fn new(reports: &[(String, Report)]) -> Self {
        let mut keys: Vec<Key> = Vec::new();
        let all = reports.iter().flat_map(|(_, report)| {
            let results = report.results.iter();
            results.map(move |result| Key::of(report, result))
        });
        for key in all {
            if !keys.contains(&key) {
                // Next to the other set-ups of the same test, even when the first report lacks it.
                let after = keys.iter().rposition(|known| known.test == key.test);
                keys.insert(after.map_or(keys.len(), |index| index + 1), key);
            }
        }
        let rows = keys.iter().flat_map(|key| {
            let of_key = all_of(reports, key);
            let metrics = Metric::all_of(&of_key).into_iter();
            metrics.filter_map(|metric| row(reports, key, metric))
        });
        let requests = keys.iter().flat_map(|key| request_rows(reports, key));
        let rows = rows.chain(requests);
        Self {
            names: reports.iter().map(|(name, _)| name.clone()).collect(),
            overview: overview::rows(reports),
            scaling: scaling::rows(reports),
            rows: rows.collect(),
            differences: plan::differences(reports),
        }
    }

    /// As a Markdown document.
    pub fn markdown(&self) -> String {
        let mut out = String::from("# Comparison of load reports\n\n");
        self.put_markdown(&mut out);
        out
    }

    /// Appends the tables as Markdown.
    pub(super) fn put_markdown(&self, out: &mut String) {
        for leading in self.leading() {
            out.push_str(&format!("{}:\n\n", leading.title));
            markdown::rows(out, &leading.header, &leading.rows, leading.text_columns);
            out.push('\n');
        }
        markdown::rows(out, &self.header(), &self.text(), TEXT_COLUMNS);
        out.push_str(&format!("\n{}\n", self.explanation()));
    }

    /// As plain text.
    pub fn terminal(&self) -> String {
        let mut out = String::new();
        self.put_terminal(&mut out);
        printable(&out).into_owned()
    }

    /// Appends the tables as plain text.
    pub(super) fn put_terminal(&self, out: &mut String) {
        for leading in self.leading() {
            out.push_str(&terminal::rows(
                &leading.header,
                &leading.rows,
                leading.text_columns,
            ));
            out.push('\n');
        }
        out.push_str(&terminal::rows(&self.header(), &self.text(), TEXT_COLUMNS));
        out.push_str(self.explanation());
        out.push('\n');
    }

    /// As a self-contained HTML page.
    pub fn html(&self) -> String {
        let mut page = html::Page::default();
        page.put(format_args!(
            "<header><h1>Comparison of load reports</h1></header>\n"
        ));
        page.put(format_args!("<section class=\"test compare\">\n"));
        self.put_page(&mut page);
        page.put(format_args!("</section>\n"));
        page.finish("Comparison of load reports")
    }

    /// Appends the tables to a page.
    pub(super) fn put_page(&self, page: &mut html::Page) {
        page.put(format_args!(
            "<p class=\"about\">{}</p>\n",
            self.explanation()
        ));
        for leading in self.leading() {
            page.table(leading.title, &leading.header, &leading.rows);
        }
        page.table("", &self.header(), &self.text());
    }

    /// The tables above the figures, without the empty ones.
    fn leading(&self) -> Vec<Leading<'_>> {
        let overview = Leading {
            title: "Overview",
            header: overview::HEADER.to_vec(),
            rows: self.overview.clone(),
            text_columns: overview::TEXT_COLUMNS,
        };
        let scaling = Leading {
            title: "Scaling",
            header: scaling::HEADER.to_vec(),
            rows: self.scaling.clone(),
            text_columns: scaling::TEXT_COLUMNS,
        };
        let differences = Leading {
            title: "Differences",
            header: self.difference_header(),
            rows: self.difference_text(),
            text_columns: 1,
        };
        let mut all = vec![overview, scaling, differences];
        all.retain(|table| !table.rows.is_empty());
        all
    }

    fn header(&self) -> Vec<&str> {
        let fixed = ["Test", "Set-up", "Figure"];
        fixed
            .into_iter()
            .chain(self.names.iter().map(String::as_str))
            .collect()
    }

    fn difference_header(&self) -> Vec<&str> {
        let names = self.names.iter().map(String::as_str);
        std::iter::once("Differs").chain(names).collect()
    }

    fn difference_text(&self) -> Vec<Vec<String>> {
        let row = |difference: &Difference| {
            let shown = |value: &String| match value.as_str() {
                "" => "–".to_owned(),
                value => value.to_owned(),
            };
            let name = std::iter::once(difference.name.to_owned());
            name.chain(difference.values.iter().map(shown)).collect()
        };
        self.differences.iter().map(row).collect()
    }

    fn text(&self) -> Vec<Vec<String>> {
        let mut rows: Vec<Vec<String>> = self.rows.iter().map(Row::text).collect();
        // A value that equals that of the previous line is left blank.
        for (cells, pair) in rows.iter_mut().skip(1).zip(self.rows.windows(2)) {
            let same = pair[0].test == pair[1].test;
            if same && pair[0].setup == pair[1].setup {
                cells[1].clear();
            }
            if same {
                cells[0].clear();
            }
        }
        rows
    }

    fn explanation(&self) -> &'static str {
        "Ratios are to the first report. What is not valid stands in brackets: a figure with its verdict, and a ratio \
         to such a figure. Figures are in one row only if their plans are the same."
    }
}

impl Row {
    fn text(&self) -> Vec<String> {
        let name = match self.metric {
            Metric::Rate => table::rate_name(&self.test).to_owned(),
            other => other.name(),
        };
        let cell = |cell: &Option<Cell>| {
            cell.map_or_else(|| "–".to_owned(), |cell| cell.text(self.metric))
        };
        let fixed = [self.test.clone(), self.setup.clone(), name];
        // The first report's ratio to itself has no meaning.
        let first = self
            .cells
            .first()
            .map(|first| cell(&first.map(|c| Cell { ratio: None, ..c })));
        fixed
            .into_iter()
            .chain(first)
            .chain(self.cells.iter().skip(1).map(cell))
            .collect()
    }
}

impl Cell {
    fn text(&self, metric: Metric) -> String {
        let value = metric.format(self.value);
        let is_base_valid = self.base_verdict == Verdict::Valid;
        let ratio = self.ratio.map(number::ratio);
        let ratio = match ratio {
            Some(ratio) if is_base_valid || self.verdict != Verdict::Valid => format!(" ({ratio})"),
            Some(ratio) => format!(" [{ratio}]"),
            None => String::new(),
        };
        match self.verdict {
            Verdict::Valid => format!("{value}{ratio}"),
            verdict => format!("[{value}{ratio} {}]", table::verdict_word(verdict)),
        }
    }
}

/// The columns before the reports: test, set-up and figure.
const TEXT_COLUMNS: usize = 3;

/// The properties that two comparable results share.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    test: String,
    /// A search for the limit is one set-up, whatever was requested.
    connections: u64,
    format: Option<String>,
    payload_bytes: Option<u64>,
    extensions: Vec<String>,
    encryption_version: Option<u32>,
    profile: Option<String>,
    pace: Option<String>,
}

impl Key {
    pub(super) fn of(report: &Report, result: &TestResult) -> Self {
        let is_search = result.limit.is_some();
        Self {
            test: result.test.clone(),
            connections: if is_search { 0 } else { result.connections },
            format: result.format.clone(),
            payload_bytes: result.payload_bytes,
            extensions: result.extensions.clone(),
            encryption_version: result.encryption_version,
            profile: report.plan.as_ref().and_then(|plan| plan.profile.clone()),
            pace: plan::pace(report, result),
        }
    }

    /// Connections, format, payload, pace and the rest, in words.
    fn label(&self, sample: &TestResult) -> String {
        let mut parts = vec![match sample.limit {
            Some(_) => "search".to_owned(),
            None => table::label(sample),
        }];
        // A label contains the pace of results that state theirs.
        let has_pace = table::speed(sample).is_some();
        parts.extend(self.pace.clone().filter(|_| !has_pace));
        parts.extend(table::layer(sample));
        parts.extend(self.profile.clone());
        parts.join(", ")
    }
}

fn row(reports: &[(String, Report)], wanted: &Key, metric: Metric) -> Option<Row> {
    let results: Vec<Vec<&TestResult>> = reports
        .iter()
        .map(|(_, report)| of_key(report, wanted).collect())
        .collect();
    let cells = cells(&results, metric)?;
    let setup = wanted.label(results.iter().flatten().next()?);
    Some(Row {
        test: wanted.test.clone(),
        setup,
        metric,
        cells,
    })
}

/// The results of a report with these properties.
fn of_key<'r>(report: &'r Report, wanted: &'r Key) -> impl Iterator<Item = &'r TestResult> {
    let results = report.results.iter();
    results.filter(move |result| Key::of(report, result) == *wanted)
}

fn all_of<'r>(reports: &'r [(String, Report)], wanted: &'r Key) -> Vec<&'r TestResult> {
    let all = reports.iter().map(|(_, report)| of_key(report, wanted));
    all.flatten().collect()
}

/// Rows of each request of a scenario that several reports have, or one: its rate, its latencies, its errors.
fn request_rows(reports: &[(String, Report)], wanted: &Key) -> Vec<Row> {
    let mut names: Vec<&str> = Vec::new();
    for result in all_of(reports, wanted) {
        for target in &result.load.targets {
            if !names.contains(&target.name.as_str()) {
                names.push(&target.name);
            }
        }
    }
    let mut rows = Vec::new();
    for name in names {
        let alone: Vec<Vec<TestResult>> = reports
            .iter()
            .map(|(_, report)| {
                let results = of_key(report, wanted);
                results
                    .filter_map(|result| of_request(result, name))
                    .collect()
            })
            .collect();
        let alone: Vec<Vec<&TestResult>> = alone.iter().map(|one| one.iter().collect()).collect();
        let metrics = Metric::all_of(&alone.concat()).into_iter();
        rows.extend(metrics.filter_map(|metric| {
            Some(Row {
                test: wanted.test.clone(),
                setup: name.to_owned(),
                metric,
                cells: cells(&alone, metric)?,
            })
        }));
    }
    rows
}

/// The figures of one request of a scenario as a result of its own.
fn of_request(result: &TestResult, name: &str) -> Option<TestResult> {
    let mut targets = result.load.targets.iter();
    let target = targets.find(|target| target.name == name)?;
    // Reports of before have no rate of a request.
    let of_successes = |each_per_s: f64| each_per_s * target.requests.succeeded as f64;
    let mut alone = TestResult {
        rate_per_s: result.each_per_s().map(of_successes),
        latency_us: target.latency_us.clone(),
        verdict: result.verdict,
        ..TestResult::new(&result.test, result.connections)
    };
    alone.load.requests = Some(target.requests);
    alone.load.statuses.clone_from(&target.statuses);
    Some(alone)
}

/// The figure in the results of each report; `None` if no report has it.
fn cells(results: &[Vec<&TestResult>], metric: Metric) -> Option<Vec<Option<Cell>>> {
    let mut cells: Vec<Option<Cell>> = results.iter().map(|of_one| cell(of_one, metric)).collect();
    let base = cells.first().copied().flatten();
    for cell in cells.iter_mut().flatten() {
        let base = base.filter(|base| base.value > 0.0 && base.origin == cell.origin);
        cell.ratio = base.map(|base| cell.value / base.value);
        cell.base_verdict = base.map_or(Verdict::Valid, |base| base.verdict);
    }
    cells.iter().any(Option::is_some).then_some(cells)
}

fn cell(results: &[&TestResult], metric: Metric) -> Option<Cell> {
    let results = || results.iter().copied();
    let mut values: Vec<f64> = results().filter_map(|result| metric.of(result)).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let value = match values.len() {
        0 => return None,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    };
    let verdict = results().map(|result| result.verdict).max()?;
    let mut latencies = results().filter_map(|result| result.latency_us.as_ref());
    Some(Cell {
        value,
        ratio: None,
        verdict,
        base_verdict: Verdict::Valid,
        origin: latencies
            .next()
            .map(|latency| latency.origin)
            .filter(|_| metric.is_latency()),
    })
}

#[cfg(test)]
mod tests;
