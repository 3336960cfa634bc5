//! A report as CSV (RFC 4180) for spreadsheets and scripts: a header, and a line for each result, each
//! request of a scenario and each offered rate.
//!
//! Numbers have the units of the columns' names and six decimals at most. A cell is empty if the
//! figure does not exist.

use super::model::{Connecting, Latency, RateStep, Report, Requests, TargetFigures, TestResult};
use super::table;

/// The report as CSV in UTF-8, lines ended by a line feed.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    for result in &report.results {
        rows.push(line(report, result, of_result(result)));
        let targets = result.load.targets.iter();
        rows.extend(targets.map(|target| line(report, result, of_target(target))));
        let steps = result.load.latency_by_rate.iter();
        rows.extend(steps.map(|step| line(report, result, of_step(step))));
    }
    for row in rows {
        writer.write_record(row).expect("a vector takes every byte");
    }
    let bytes = writer.into_inner().expect("a vector takes every byte");
    String::from_utf8(bytes).expect("it was made of text")
}

/// Cells by the name of their column.
type Cells = Vec<(&'static str, String)>;

/// The cells of a line in the order of the columns, with those that all lines of a result share.
fn line(report: &Report, result: &TestResult, mut cells: Cells) -> Vec<String> {
    cells.extend([
        ("test", result.test.clone()),
        ("connections", result.connections.to_string()),
        ("url", report.target.url.clone()),
    ]);
    put(&mut cells, "format", result.format.clone());
    put(&mut cells, "payload_bytes", result.payload_bytes);
    put(&mut cells, "pace", table::speed(result));
    put(&mut cells, "started_at", report.started_at.clone());
    let cell = |name: &str| {
        let found = cells.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| plain(text)).unwrap_or_default()
    };
    COLUMNS.iter().map(|name| cell(name)).collect()
}

/// Spreadsheets read a text with such a first character as a formula; the name of a request must not become
/// one.
fn plain(text: &str) -> String {
    let is_number = text.parse::<f64>().is_ok();
    match text.chars().next() {
        Some('=' | '+' | '-' | '@' | '\t' | '\r') if !is_number => format!("'{text}"),
        _ => text.to_owned(),
    }
}

fn of_result(result: &TestResult) -> Cells {
    let load = &result.load;
    let mut cells = vec![
        ("row", "result".to_owned()),
        ("verdict", result.verdict.as_str().to_owned()),
        ("doubts", result.doubts.join(" ")),
    ];
    put(
        &mut cells,
        "measurement",
        load.measurement.map(|verdict| verdict.as_str()),
    );
    let pace = result.pace.as_ref();
    put(
        &mut cells,
        "offered_per_s",
        pace.and_then(|pace| pace.offered_per_s),
    );
    put(&mut cells, "duration_s", result.duration_s);
    put(&mut cells, "rate_per_s", result.rate_per_s);
    put(&mut cells, "bytes_per_s", result.bytes_per_s);
    match (&load.requests, &result.messages) {
        (Some(requests), _) => put_requests(&mut cells, requests),
        (None, Some(messages)) => {
            put(&mut cells, "sent", Some(messages.offered));
            put(&mut cells, "succeeded", Some(messages.confirmed));
            put(&mut cells, "failed", Some(messages.lost));
        }
        (None, None) => {}
    }
    put_latency(&mut cells, result.latency_us.as_ref());
    put(&mut cells, "connected", result.connected);
    put(&mut cells, "connections_failed", result.failed);
    if let Some(connecting) = &load.connecting {
        put_connecting(&mut cells, connecting);
    }
    let first_byte = load.first_byte_us.as_ref();
    put(
        &mut cells,
        "first_byte_p50_us",
        first_byte.map(|latency| latency.p50),
    );
    put(
        &mut cells,
        "first_byte_p99_us",
        first_byte.map(|latency| latency.p99),
    );
    if !load.expectations.is_empty() {
        let broken = load.expectations.iter().filter(|one| !one.kept);
        let texts: Vec<&str> = broken.map(|one| one.text.as_str()).collect();
        cells.push(("expectations", load.expectations.len().to_string()));
        cells.push(("broken", texts.join("; ")));
    }
    cells
}

fn of_target(target: &TargetFigures) -> Cells {
    let mut cells = vec![
        ("row", "request".to_owned()),
        ("request", target.name.clone()),
    ];
    put(&mut cells, "rate_per_s", target.rate_per_s);
    put_requests(&mut cells, &target.requests);
    put_latency(&mut cells, target.latency_us.as_ref());
    cells
}

fn of_step(step: &RateStep) -> Cells {
    let mut cells = vec![("row", "rate".to_owned())];
    put(&mut cells, "offered_per_s", Some(step.offered_per_s));
    put(&mut cells, "duration_s", Some(step.duration_s));
    put(&mut cells, "rate_per_s", Some(step.achieved_per_s));
    put(&mut cells, "failed", Some(step.errors));
    put(&mut cells, "p50_us", step.p50);
    put(&mut cells, "p99_us", step.p99);
    put(&mut cells, "held", step.held);
    cells
}

fn put_requests(cells: &mut Cells, requests: &Requests) {
    for (name, count) in [
        ("sent", requests.sent),
        ("succeeded", requests.succeeded),
        ("failed", requests.failed),
        ("timeouts", requests.timeouts),
        ("unfinished", requests.unfinished),
        ("unsent", requests.unsent),
    ] {
        put(cells, name, Some(count));
    }
}

fn put_latency(cells: &mut Cells, latency: Option<&Latency>) {
    let Some(latency) = latency else { return };
    for (name, time) in [
        ("min_us", latency.min),
        ("mean_us", latency.mean),
        ("p50_us", latency.p50),
        ("p90_us", latency.p90),
        ("p95_us", latency.p95),
        ("p99_us", latency.p99),
        ("p99_9_us", latency.p99_9),
        ("max_us", latency.max),
    ] {
        put(cells, name, Some(time));
    }
}

fn put_connecting(cells: &mut Cells, connecting: &Connecting) {
    let p99 = |latency: &Option<Latency>| latency.as_ref().map(|latency| latency.p99);
    put(cells, "connect_p99_us", p99(&connecting.latency_us));
    put(cells, "dns_us", connecting.dns_us);
    put(cells, "tcp_p99_us", p99(&connecting.tcp_us));
    put(cells, "proxy_p99_us", p99(&connecting.proxy_us));
    put(cells, "tls_p99_us", p99(&connecting.tls_us));
    put(cells, "upgrade_p99_us", p99(&connecting.upgrade_us));
}

fn put(cells: &mut Cells, name: &'static str, value: Option<impl ToString>) {
    cells.extend(value.map(|value| (name, neat(value.to_string()))));
}

/// A number has six decimals at most: a report that was read again differs from the first in the last
/// binary digit.
fn neat(text: String) -> String {
    match text.parse::<f64>() {
        Ok(number) if text.contains('.') => ((number * 1e6).round() / 1e6).to_string(),
        _ => text,
    }
}

/// The columns. New ones go to the end, so that scripts that count columns continue to work.
const COLUMNS: [&str; 43] = [
    "row",
    "test",
    "connections",
    "format",
    "payload_bytes",
    "pace",
    "request",
    "offered_per_s",
    "duration_s",
    "rate_per_s",
    "bytes_per_s",
    "sent",
    "succeeded",
    "failed",
    "timeouts",
    "unfinished",
    "unsent",
    "min_us",
    "mean_us",
    "p50_us",
    "p90_us",
    "p95_us",
    "p99_us",
    "p99_9_us",
    "max_us",
    "connected",
    "connections_failed",
    "connect_p99_us",
    "dns_us",
    "tcp_p99_us",
    "proxy_p99_us",
    "tls_p99_us",
    "upgrade_p99_us",
    "first_byte_p50_us",
    "first_byte_p99_us",
    "held",
    "verdict",
    "measurement",
    "doubts",
    "expectations",
    "broken",
    "url",
    "started_at",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{ExpectationResult, Machine, Target};

    fn report() -> Report {
        let target = Target {
            url: "http://h/?a=1,2".to_owned(),
            server: None,
            embedded: false,
        };
        let mut report = Report::new(Machine::default(), target);
        let mut result = TestResult {
            rate_per_s: Some(12.5),
            latency_us: Some(Latency {
                p99: 1_234.5,
                ..Latency::default()
            }),
            ..TestResult::new("http", 10)
        };
        result.load.targets = vec![TargetFigures {
            name: "=SUM(A1), \"quoted\"\nsecond".to_owned(),
            requests: Requests {
                sent: 7,
                ..Requests::default()
            },
            rate_per_s: Some(3.5),
            ..TargetFigures::default()
        }];
        result.load.latency_by_rate = vec![RateStep {
            offered_per_s: 100.0,
            held: Some(false),
            ..RateStep::default()
        }];
        result.load.expectations = vec![ExpectationResult {
            text: "p99<1ms".to_owned(),
            ..ExpectationResult::default()
        }];
        report.results.push(result);
        report
    }

    #[test]
    fn a_reader_of_csv_finds_each_figure_under_its_name() {
        let text = render(&report());
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().expect("it has a header").clone();
        let rows: Vec<_> = reader
            .records()
            .map(|row| row.expect("it is CSV"))
            .collect();
        assert_eq!(rows.len(), 3);
        let cell = |row: usize, name: &str| {
            let at = header.iter().position(|column| column == name);
            rows[row][at.unwrap_or_else(|| panic!("there is no column {name}"))].to_owned()
        };
        let kinds = [0, 1, 2].map(|row| cell(row, "row"));
        assert_eq!(kinds, ["result", "request", "rate"]);
        assert_eq!(
            (cell(0, "rate_per_s"), cell(0, "p99_us")),
            ("12.5".into(), "1234.5".into())
        );
        assert_eq!(
            (cell(0, "expectations"), cell(0, "broken")),
            ("1".into(), "p99<1ms".into())
        );
        assert_eq!(cell(0, "url"), "http://h/?a=1,2");
        assert_eq!(cell(1, "request"), "'=SUM(A1), \"quoted\"\nsecond");
        assert_eq!(
            (cell(1, "sent"), cell(1, "rate_per_s")),
            ("7".into(), "3.5".into())
        );
        assert_eq!(
            (cell(2, "offered_per_s"), cell(2, "held")),
            ("100".into(), "false".into())
        );
        assert_eq!(
            cell(2, "url"),
            "http://h/?a=1,2",
            "each line says what it is of"
        );
    }

    #[test]
    fn every_cell_has_a_column() {
        let report = report();
        let result = &report.results[0];
        let all = [
            of_result(result),
            of_target(&result.load.targets[0]),
            of_step(&result.load.latency_by_rate[0]),
        ];
        for (name, _) in all.iter().flatten() {
            assert!(COLUMNS.contains(name), "{name}");
        }
    }
}
