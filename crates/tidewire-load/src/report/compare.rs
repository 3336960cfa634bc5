//! Several reports side by side: each figure of the same test at the same connections, format and
//! payload, with its ratio to the first report's.

use super::model::{Report, TestResult, Verdict};
use super::{html, markdown, number, table, terminal};

/// Reports matched figure by figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What the columns are called, one for each report.
    pub names: Vec<String>,
    /// Tests in the order of their first appearance, all figures of one set-up together.
    pub rows: Vec<Row>,
}

/// One figure in all reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The test's name.
    pub test: String,
    /// Connections, format and payload, in words.
    pub setup: String,
    /// What the figure is.
    pub metric: Metric,
    /// One for each report; `None` where it has no such figure.
    pub cells: Vec<Option<Cell>>,
}

/// A figure of one report: the median when the report has several results of the same set-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// In the metric's unit.
    pub value: f64,
    /// `value` divided by the first report's; `None` when that has no such figure or it is zero.
    pub ratio: Option<f64>,
    /// The worst verdict of the results it comes from.
    pub verdict: Verdict,
}

/// A figure that reports are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Confirmed messages, round trips or handshakes in a second.
    Rate,
    /// Median latency in microseconds.
    LatencyP50,
    /// 99th percentile of the latency in microseconds.
    LatencyP99,
    /// Median skew of a fan-out in microseconds.
    SkewP50,
    /// 99th percentile of the skew in microseconds.
    SkewP99,
    /// Server processor time for one message or handshake, in microseconds.
    ServerCpu,
    /// Server memory for one connection, in bytes.
    Memory,
    /// The most memory of the server during a fan-out, in bytes.
    MemoryPeak,
    /// The largest stable number of connections.
    LargestStable,
}

impl Comparison {
    /// Matches `reports`, each with the name of its column.
    pub fn new(reports: &[(String, Report)]) -> Self {
        let mut keys: Vec<Key> = Vec::new();
        for result in reports.iter().flat_map(|(_, report)| &report.results) {
            if !keys.contains(&key(result)) {
                // Next to the other set-ups of the same test, even when the first report lacks it.
                let after = keys.iter().rposition(|known| known.0 == result.test);
                keys.insert(after.map_or(keys.len(), |index| index + 1), key(result));
            }
        }
        let rows = keys.iter().flat_map(|key| {
            Metric::ALL
                .iter()
                .filter_map(|&metric| row(reports, key, metric))
        });
        Self {
            names: reports.iter().map(|(name, _)| name.clone()).collect(),
            rows: rows.collect(),
        }
    }

    /// As a Markdown document.
    pub fn markdown(&self) -> String {
        let mut out = String::from("# Load reports side by side\n\n");
        markdown::rows(&mut out, &self.header(), &self.text(), TEXT_COLUMNS);
        out.push_str(&format!("\n{}\n", self.explanation()));
        out
    }

    /// As plain text.
    pub fn terminal(&self) -> String {
        format!(
            "{}{}\n",
            terminal::rows(&self.header(), &self.text(), TEXT_COLUMNS),
            self.explanation()
        )
    }

    /// As a self-contained HTML page.
    pub fn html(&self) -> String {
        let mut page = html::Page::default();
        page.put(format_args!(
            "<header><h1>Load reports side by side</h1></header>\n"
        ));
        page.put(format_args!(
            "<p class=\"about\">{}</p>\n",
            self.explanation()
        ));
        page.put(format_args!("<section class=\"test compare\">\n"));
        page.table("", &self.header(), &self.text());
        page.put(format_args!("</section>\n"));
        page.finish("Load reports side by side")
    }

    fn header(&self) -> Vec<&str> {
        let fixed = ["Test", "Set-up", "Figure"];
        fixed
            .into_iter()
            .chain(self.names.iter().map(String::as_str))
            .collect()
    }

    fn text(&self) -> Vec<Vec<String>> {
        let mut rows: Vec<Vec<String>> = self.rows.iter().map(Row::text).collect();
        // What the line above says already is left blank.
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
        "Ratios are to the first report. A figure whose verdict is not valid carries it in brackets."
    }
}

impl Row {
    fn text(&self) -> Vec<String> {
        let name = match self.metric {
            Metric::Rate => table::rate_name(&self.test),
            other => other.name(),
        };
        let cell = |cell: &Option<Cell>| {
            cell.map_or_else(|| "–".to_owned(), |cell| cell.text(self.metric))
        };
        let fixed = [self.test.clone(), self.setup.clone(), name.to_owned()];
        // The first report's ratio to itself says nothing.
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
        let mut text = metric.format(self.value);
        if let Some(ratio) = self.ratio {
            text.push_str(&format!(" ({})", number::ratio(ratio)));
        }
        if self.verdict != Verdict::Valid {
            text.push_str(&format!(" [{}]", table::verdict_word(self.verdict)));
        }
        text
    }
}

impl Metric {
    const ALL: &[Self] = &[
        Self::Rate,
        Self::LatencyP50,
        Self::LatencyP99,
        Self::SkewP50,
        Self::SkewP99,
        Self::ServerCpu,
        Self::Memory,
        Self::MemoryPeak,
        Self::LargestStable,
    ];

    fn of(self, result: &TestResult) -> Option<f64> {
        match self {
            Self::Rate => result.rate_per_s,
            Self::LatencyP50 => result.latency_us.as_ref().map(|latency| latency.p50),
            Self::LatencyP99 => result.latency_us.as_ref().map(|latency| latency.p99),
            Self::SkewP50 => Some(result.fan_out.as_ref()?.skew_us.as_ref()?.p50),
            Self::SkewP99 => Some(result.fan_out.as_ref()?.skew_us.as_ref()?.p99),
            Self::ServerCpu => Some(result.cpu?.server_s? * 1e6 / table::events(result)?),
            Self::Memory => result.memory?.per_connection_bytes,
            Self::MemoryPeak => Some(result.memory?.server_rss_peak_bytes? as f64),
            Self::LargestStable => result.limit.map(|limit| limit.largest_stable as f64),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rate => "Rate",
            Self::LatencyP50 => "Latency, median",
            Self::LatencyP99 => "Latency, p99",
            Self::SkewP50 => "Skew, median",
            Self::SkewP99 => "Skew, p99",
            Self::MemoryPeak => "Server memory, peak",
            Self::ServerCpu => "Server CPU each",
            Self::Memory => "Memory per connection",
            Self::LargestStable => "Largest stable",
        }
    }

    fn format(self, value: f64) -> String {
        match self {
            Self::Rate => number::si(value),
            Self::LatencyP50
            | Self::LatencyP99
            | Self::SkewP50
            | Self::SkewP99
            | Self::ServerCpu => number::us(value),
            Self::Memory | Self::MemoryPeak => number::bytes(value),
            Self::LargestStable => number::grouped(value as u64),
        }
    }
}

/// Test, set-up and figure come before the reports.
const TEXT_COLUMNS: usize = 3;

/// Test, connections, format, payload, speed. A search for the limit is one set-up whatever it was asked for.
type Key = (String, u64, Option<String>, Option<u64>, Option<String>);

fn key(result: &TestResult) -> Key {
    let connections = if result.limit.is_some() {
        0
    } else {
        result.connections
    };
    (
        result.test.clone(),
        connections,
        result.format.clone(),
        result.payload_bytes,
        table::speed(result),
    )
}

fn row(reports: &[(String, Report)], wanted: &Key, metric: Metric) -> Option<Row> {
    let mut cells: Vec<Option<Cell>> = reports
        .iter()
        .map(|(_, report)| cell(report, wanted, metric))
        .collect();
    let base = cells.first().copied().flatten().map(|cell| cell.value);
    for cell in cells.iter_mut().flatten() {
        cell.ratio = base
            .filter(|&base| base > 0.0)
            .map(|base| cell.value / base);
    }
    let mut results = reports.iter().flat_map(|(_, report)| &report.results);
    let sample = results.find(|result| key(result) == *wanted)?;
    let setup = if sample.limit.is_some() {
        "search".into()
    } else {
        table::label(sample)
    };
    let found = cells.iter().any(Option::is_some);
    found.then(|| Row {
        test: wanted.0.clone(),
        setup,
        metric,
        cells,
    })
}

fn cell(report: &Report, wanted: &Key, metric: Metric) -> Option<Cell> {
    let results = || {
        report
            .results
            .iter()
            .filter(|result| key(result) == *wanted)
    };
    let mut values: Vec<f64> = results().filter_map(|result| metric.of(result)).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let value = match values.len() {
        0 => return None,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    };
    let verdict = results().map(|result| result.verdict).max()?;
    Some(Cell {
        value,
        ratio: None,
        verdict,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Cpu, Machine, Messages, THROUGHPUT, Target};

    fn report(rates: &[(u64, f64)]) -> Report {
        let target = Target {
            url: "ws://h/".into(),
            server: None,
            embedded: false,
        };
        let mut report = Report::new(Machine::default(), target);
        report
            .results
            .extend(rates.iter().map(|&(connections, rate)| TestResult {
                rate_per_s: Some(rate),
                ..TestResult::new(THROUGHPUT, connections)
            }));
        report
    }

    #[test]
    fn figures_of_the_same_set_up_meet_in_a_row_with_ratios_to_the_first() {
        let reports = [
            ("a".into(), report(&[(10, 100.0)])),
            ("b".into(), report(&[(10, 250.0), (99, 1.0)])),
        ];
        let compared = Comparison::new(&reports);
        assert_eq!(compared.rows.len(), 2);
        let second = compared.rows[0].cells[1].unwrap();
        assert_eq!((second.value, second.ratio), (250.0, Some(2.5)));
        assert_eq!(compared.rows[1].cells[0], None);
        assert_eq!(compared.rows[1].cells[1].unwrap().ratio, None);
        assert!(
            compared.markdown().contains("| 100 | 250 (2.50×) |"),
            "{}",
            compared.markdown()
        );
    }

    #[test]
    fn repeated_results_give_their_median_and_worst_verdict() {
        let mut repeated = report(&[(10, 900.0), (10, 100.0), (10, 200.0)]);
        repeated.results[0].verdict = Verdict::Noisy;
        let compared = Comparison::new(&[("a".into(), repeated)]);
        let cell = compared.rows[0].cells[0].unwrap();
        assert_eq!((cell.value, cell.verdict), (200.0, Verdict::Noisy));
        assert!(
            compared.terminal().contains("200 [noisy]"),
            "{}",
            compared.terminal()
        );
        let even = Comparison::new(&[("a".into(), report(&[(1, 1.0), (1, 3.0)]))]);
        assert_eq!(even.rows[0].cells[0].unwrap().value, 2.0);
    }

    #[test]
    fn server_time_is_for_one_confirmed_message() {
        let mut costly = report(&[(10, 1.0)]);
        costly.results[0].cpu = Some(Cpu {
            client_s: 1.0,
            server_s: Some(2.0),
        });
        costly.results[0].messages = Some(Messages {
            offered: 1_000_000,
            confirmed: 1_000_000,
            ..Messages::default()
        });
        let compared = Comparison::new(&[("a".into(), costly)]);
        assert_eq!(compared.rows[1].metric, Metric::ServerCpu);
        assert_eq!(compared.rows[1].cells[0].unwrap().value, 2.0);
    }

    #[test]
    fn hostile_column_names_are_escaped() {
        let compared = Comparison::new(&[("<script>".into(), report(&[(1, 1.0)]))]);
        assert!(!compared.html().contains("<script>"));
        assert!(!compared.markdown().contains("<script>"));
        assert_eq!(Comparison::new(&[]).rows, []);
    }
}
