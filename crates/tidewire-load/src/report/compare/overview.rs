//! One line per report: the program that wrote it, and the highest figures of its generator and
//! server together.

use crate::report::model::{
    CONNECTION_STORM, FORMAT_COMPARISON, Report, SUSTAINED_THROUGHPUT, THROUGHPUT, TestResult,
    Verdict,
};
use crate::report::{number, table};

/// The columns.
pub(super) const HEADER: [&str; 7] = [
    "Report",
    "Language",
    "Threads, processes",
    "Connections/s",
    "JSON msgs/s",
    "Binary msgs/s",
    "Most connections",
];

/// The columns with text.
pub(super) const TEXT_COLUMNS: usize = 2;

/// The lines; none for a single report, and none if no report has a figure of this table.
pub(super) fn rows(reports: &[(String, Report)]) -> Vec<Vec<String>> {
    let lines: Vec<Vec<String>> = reports
        .iter()
        .map(|(name, report)| line(name, report))
        .collect();
    let has_figure = |line: &Vec<String>| line[FIRST_FIGURE..].iter().any(|cell| cell != NOTHING);
    if reports.len() < 2 || !lines.iter().any(has_figure) {
        return Vec::new();
    }
    lines
}

fn line(name: &str, report: &Report) -> Vec<String> {
    let threads = report.plan.as_ref().and_then(|plan| plan.threads);
    let of_format = |wanted: &'static str| {
        move |result: &TestResult| {
            SENDING.contains(&result.test.as_str()) && result.format.as_deref() == Some(wanted)
        }
    };
    vec![
        name.to_owned(),
        report.tool.language.clone(),
        threads.map_or_else(|| NOTHING.to_owned(), |threads| threads.to_string()),
        highest_rate(report, |result| result.test == CONNECTION_STORM),
        highest_rate(report, of_format("json")),
        highest_rate(report, of_format("msgpack")),
        most_connections(report),
    ]
}

/// The highest rate of some results, and its number of connections. A failed result counts only if
/// there is no other.
fn highest_rate(report: &Report, is_wanted: impl Fn(&TestResult) -> bool) -> String {
    let results = report.results.iter().filter(|result| is_wanted(result));
    let rates = results.filter_map(|result| Some((result.rate_per_s?, result)));
    let best = rates.max_by(|(one, of_one), (other, of_other)| {
        let rank = |result: &TestResult| result.verdict != Verdict::Failed;
        rank(of_one).cmp(&rank(of_other)).then(one.total_cmp(other))
    });
    best.map_or_else(
        || NOTHING.to_owned(),
        |(rate, result)| {
            let size = result.payload_bytes.map_or_else(String::new, |bytes| {
                format!(" of {}", number::bytes(bytes as f64))
            });
            let shown = format!(
                "{}{size} at {}",
                number::si(rate),
                number::grouped(result.connections)
            );
            match result.verdict {
                Verdict::Valid => shown,
                verdict => format!("[{shown}, {}]", table::verdict_word(verdict)),
            }
        },
    )
}

/// The largest number of open connections in a test that did not fail.
fn most_connections(report: &Report) -> String {
    let passed = report
        .results
        .iter()
        .filter(|result| result.verdict != Verdict::Failed);
    let open = passed.filter_map(|result| {
        let searched = result.limit.as_ref().map(|limit| limit.largest_stable);
        searched.max(result.connected)
    });
    open.max()
        .map_or_else(|| NOTHING.to_owned(), number::grouped)
}

/// Tests that send as much as they can.
const SENDING: [&str; 3] = [THROUGHPUT, SUSTAINED_THROUGHPUT, FORMAT_COMPARISON];
const FIRST_FIGURE: usize = 3;
const NOTHING: &str = "–";
