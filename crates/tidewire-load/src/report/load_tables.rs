//! The tables that only a load has: outcomes, windows, offered rates, requests of a scenario,
//! expectations, the baseline and the assessment. Each exists only if a result has its figures.

use std::collections::BTreeMap;

use super::model::{
    AssessmentThreshold, BaselineFigure, Connecting, ExpectationResult, Latency, RateStep, Spread,
    TargetFigures, TestResult,
};
use super::number;
use super::probes;
use super::table::{self, ABSENT, Block};

/// The tables of all results of a test. With several results each title names its result.
pub(super) fn blocks(results: &[&TestResult]) -> Vec<Block> {
    let is_alone = results.len() == 1;
    let of_one = |result: &&TestResult| {
        let whose = (!is_alone).then(|| table::label(result));
        let named = move |mut block: Block| {
            if let Some(whose) = &whose {
                block.title = format!("{}, {whose}", block.title);
            }
            block
        };
        all_of(result).into_iter().map(named).collect::<Vec<_>>()
    };
    let mut blocks = vec![expectations(results)];
    blocks.extend(results.iter().flat_map(of_one));
    let header = ["Time", "Min", "Mean", "p50", "p95", "p99", "Max"];
    blocks.push(of_each(results, "Other times", &header, 1, times));
    blocks.push(probes::table(results));
    blocks.push(memory(results));
    blocks.retain(|block| !block.rows.is_empty());
    blocks
}

/// The order of the blocks: first the comparison with the baseline, then the measured figures.
fn all_of(result: &TestResult) -> Vec<Block> {
    let load = &result.load;
    let blocks = [
        baseline(&load.baseline),
        assessment(result),
        outcomes(result),
        windows(result),
        by_rate(&load.latency_by_rate),
        targets(&load.targets),
    ];
    blocks.into()
}

/// All expectations of a test in one table.
fn expectations(results: &[&TestResult]) -> Block {
    let row = |one: &ExpectationResult| {
        let state = if one.kept { "kept" } else { "broken" };
        vec![
            one.text.clone(),
            shown(one.seen.clone()),
            state.to_owned(),
            one.reason.clone().unwrap_or_default(),
        ]
    };
    let rows = |result: &TestResult| result.load.expectations.iter().map(row).collect();
    let header = ["Expected", "Seen", "State", "Why"];
    without_empty(of_each(
        results,
        "Expectations",
        &header,
        header.len(),
        rows,
    ))
}

/// The memory of both sides, of the results that measured it.
fn memory(results: &[&TestResult]) -> Block {
    let rows = |result: &TestResult| {
        let Some(memory) = result
            .memory
            .filter(|memory| memory.client_rss_bytes.is_some())
        else {
            return Vec::new();
        };
        let bytes = |bytes: Option<u64>| shown(bytes.map(|bytes| number::bytes(bytes as f64)));
        let each = |bytes: Option<f64>| shown(bytes.map(number::bytes));
        vec![
            vec![
                "server".to_owned(),
                bytes(Some(memory.server_rss_bytes)),
                each(memory.per_connection_bytes),
                bytes(memory.server_rss_min_bytes),
                bytes(memory.server_rss_peak_bytes),
                bytes(memory.server_rss_closed_bytes),
            ],
            vec![
                "generator".to_owned(),
                bytes(memory.client_rss_bytes),
                each(memory.client_per_connection_bytes),
                bytes(memory.client_rss_min_bytes),
                bytes(memory.client_rss_peak_bytes),
                bytes(memory.client_rss_closed_bytes),
            ],
        ]
    };
    let header = [
        "Side",
        "All connections open",
        "Per connection",
        "Lowest",
        "Highest",
        "After closing",
    ];
    of_each(results, "Memory", &header, 1, rows)
}

/// One table of rows of all results of a test; with several results each row names its result.
fn of_each(
    results: &[&TestResult],
    title: &str,
    header: &[&'static str],
    text_columns: usize,
    rows: impl Fn(&TestResult) -> Vec<Vec<String>>,
) -> Block {
    let whose = (results.len() > 1).then_some("Result");
    let named = |result: &&TestResult| {
        let label = whose.map(|_| table::label(result));
        let rows = rows(result).into_iter();
        let named = rows.map(|row| label.clone().into_iter().chain(row).collect());
        named.collect::<Vec<Vec<String>>>()
    };
    Block {
        title: title.to_owned(),
        header: whose.into_iter().chain(header.iter().copied()).collect(),
        rows: results.iter().flat_map(named).collect(),
        text_columns: text_columns + usize::from(whose.is_some()),
    }
}

pub(super) fn baseline(all: &[BaselineFigure]) -> Block {
    let row = |one: &BaselineFigure| {
        let value = |value: f64| match one.figure.as_str() {
            "rate" => format!("{}/s", number::si(value)),
            _ => number::us(value),
        };
        let interval = one
            .interval
            .map(|(low, high)| format!("{} to {}", change(low), change(high)));
        vec![
            one.figure.clone(),
            one.finding.as_str().to_owned(),
            value(one.before),
            value(one.after),
            change(one.change),
            shown(interval),
            one.reason.clone().unwrap_or_default(),
        ]
    };
    without_empty(Block {
        title: "Against the baseline".to_owned(),
        header: vec![
            "Figure",
            "Finding",
            "Before",
            "Now",
            "Change",
            "95 % interval",
            "Why",
        ],
        rows: all.iter().map(row).collect(),
        text_columns: 2,
    })
}

fn assessment(result: &TestResult) -> Block {
    let thresholds = result
        .load
        .assessment
        .as_ref()
        .map(|assessment| assessment.thresholds.as_slice());
    let row = |one: &AssessmentThreshold| {
        let value = |value: f64| match one.unit.as_str() {
            "" => number::si(value),
            "ms" => number::us(value * 1e3),
            unit => format!("{} {unit}", number::si(value)),
        };
        vec![
            one.figure.clone(),
            one.word.as_str().to_owned(),
            value(one.seen),
            value(one.excellent),
            value(one.good),
            value(one.degraded),
        ]
    };
    let title = result.load.assessment.as_ref().map(|assessment| {
        let capacity = assessment.capacity.as_deref().unwrap_or_default();
        format!("Assessment: {}. {capacity}", assessment.word.as_str())
    });
    Block {
        title: title.unwrap_or_default().trim_end().to_owned(),
        header: vec![
            "Figure",
            "Grade",
            "Seen",
            "Excellent up to",
            "Good up to",
            "Degraded up to",
        ],
        rows: thresholds.unwrap_or_default().iter().map(row).collect(),
        text_columns: 2,
    }
}

/// The outcomes of the requests, each status and each error, with its share of all.
fn outcomes(result: &TestResult) -> Block {
    let load = &result.load;
    let mut rows: Vec<Vec<String>> = Vec::new();
    if let Some(requests) = load.requests {
        let sent = requests.sent;
        let always = [
            ("sent", sent),
            ("succeeded", requests.succeeded),
            ("failed", requests.failed),
        ];
        let sometimes = [
            ("of them timed out", requests.timeouts),
            ("unanswered at the end", requests.unfinished),
            ("due and not sent", requests.unsent),
            ("sent again", requests.retried),
            ("redirects", requests.redirects),
        ];
        let sometimes = sometimes.into_iter().filter(|(_, count)| *count > 0);
        let all = always.into_iter().chain(sometimes);
        rows.extend(all.map(|(name, count)| counted(name.to_owned(), count, sent)));
    }
    let of = load.requests.map_or(0, |requests| requests.sent);
    let statuses = load.statuses.iter();
    rows.extend(statuses.map(|(status, count)| counted(format!("status {status}"), *count, of)));
    let errors = load.errors.iter();
    rows.extend(errors.map(|(name, count)| counted(format!("error {name}"), *count, of)));
    if let Some(connecting) = &load.connecting {
        let all = [
            ("connections opened", connecting.opened),
            ("connections open at once", connecting.peak),
            ("connections failed", connecting.failed),
            ("connections ended early", connecting.ended),
            ("connections replaced", connecting.reconnected),
        ];
        let known = all.into_iter().filter(|(_, count)| *count > 0);
        rows.extend(known.map(|(name, count)| counted(name.to_owned(), count, 0)));
    }
    if let Some(received) = load.received {
        rows.push(counted(
            "messages received".to_owned(),
            received.messages,
            0,
        ));
        if received.unsolicited > 0 {
            let name = "of them unsolicited".to_owned();
            rows.push(counted(name, received.unsolicited, received.messages));
        }
    }
    if let Some(bytes) = load.bytes {
        let sides = [
            ("bytes sent", bytes.sent),
            ("bytes received", bytes.received),
        ];
        rows.extend(sides.map(|(name, side)| {
            let wire = number::bytes(side.wire as f64);
            vec![name.to_owned(), wire, ABSENT.to_owned()]
        }));
    }
    Block {
        title: "Outcomes".to_owned(),
        header: vec!["Outcome", "Count", "Share"],
        rows,
        text_columns: 1,
    }
}

fn counted(name: String, count: u64, of: u64) -> Vec<String> {
    let share = (of > 0).then(|| number::percent(count as f64 / of as f64 * 100.0));
    vec![name, number::grouped(count), shown(share)]
}

/// Times that are not latencies of a request.
fn times(result: &TestResult) -> Vec<Vec<String>> {
    let load = &result.load;
    let connecting = load.connecting.as_ref();
    let connect = connecting.and_then(|connecting| connecting.latency_us.as_ref());
    let parts = connecting.into_iter().flat_map(Connecting::parts);
    // One part alone is all of the time.
    let parts: Vec<_> = parts.map(|(name, latency)| (name, Some(latency))).collect();
    let parts = parts.into_iter().filter(|_| is_parted(connecting));
    let others = [
        ("message age", load.message_age_us.as_ref()),
        ("first byte", load.first_byte_us.as_ref()),
        ("succeeded", load.succeeded_latency_us.as_ref()),
        ("failed with a response", load.failed_latency_us.as_ref()),
    ];
    let all = std::iter::once(("connect", connect)).chain(parts);
    let all = all.chain(others);
    let rows = dns_row(connecting)
        .into_iter()
        .chain(all.filter_map(latency_row));
    rows.chain(error_row(result)).collect()
}

/// True if connecting had several parts, so that the table shows each.
fn is_parted(connecting: Option<&Connecting>) -> bool {
    connecting.is_some_and(|connecting| connecting.parts().count() > 1)
}

/// The time of the resolver, which is one value.
fn dns_row(connecting: Option<&Connecting>) -> Option<Vec<String>> {
    let time = number::us(connecting?.dns_us?);
    let absent = (0..5).map(|_| ABSENT.to_owned());
    let row = std::iter::once("DNS".to_owned()).chain(absent);
    Some(row.chain([time]).collect())
}

fn latency_row((name, latency): (&str, Option<&Latency>)) -> Option<Vec<String>> {
    let latency = latency?;
    let values = [
        latency.min,
        latency.mean,
        latency.p50,
        latency.p95,
        latency.p99,
        latency.max,
    ];
    let cells = values.into_iter().map(number::us);
    Some(std::iter::once(name.to_owned()).chain(cells).collect())
}

/// The most that the generator itself can have added to each percentile of the latency.
fn error_row(result: &TestResult) -> Option<Vec<String>> {
    let bounds = result.generator?.error_us?;
    let absent = || ABSENT.to_owned();
    (bounds.p99_9 > 0.0).then(|| {
        vec![
            "of the latency the generator's, at most".to_owned(),
            absent(),
            absent(),
            number::us(bounds.p50),
            number::us(bounds.p95),
            number::us(bounds.p99),
            absent(),
        ]
    })
}

fn windows(result: &TestResult) -> Block {
    let row = |name: &str, spread: &Spread, text: fn(f64) -> String| {
        let values = [
            spread.min,
            spread.p1,
            spread.p2_5,
            spread.p50,
            spread.p97_5,
            spread.mean,
            spread.stdev,
        ];
        std::iter::once(name.to_owned())
            .chain(values.into_iter().map(text))
            .collect()
    };
    let windows = result.load.windows.as_ref();
    let rows = windows.map(|windows| {
        let requests = row("requests/s", &windows.requests_per_s, number::si);
        let bytes = &windows.bytes_per_s;
        // Pongs have no bytes of their own.
        let bytes = (bytes.max > 0.0).then(|| row("bytes/s", bytes, number::decimal_bytes));
        std::iter::once(requests).chain(bytes).collect()
    });
    let title = windows.map_or_else(String::new, |windows| {
        let count = windows.requests_per_s.count;
        let windows_of = if count == 1 { "window" } else { "windows" };
        let seconds = number::seconds(windows.window_s);
        format!("{} {windows_of} of {seconds}", number::grouped(count))
    });
    Block {
        title,
        header: vec![
            "In a window",
            "Min",
            "1 %",
            "2.5 %",
            "50 %",
            "97.5 %",
            "Mean",
            "Std dev",
        ],
        rows: rows.unwrap_or_default(),
        text_columns: 1,
    }
}

fn by_rate(steps: &[RateStep]) -> Block {
    let row = |step: &RateStep| {
        let held = step
            .held
            .map(|held| if held { "yes" } else { "no" }.to_owned());
        vec![
            format!("{}/s", number::si(step.offered_per_s)),
            format!("{}/s", number::si(step.achieved_per_s)),
            shown(step.p50.map(number::us)),
            shown(step.p99.map(number::us)),
            number::grouped(step.errors),
            number::seconds(step.duration_s),
            shown(held),
            step.reason.clone().unwrap_or_default(),
        ]
    };
    without_empty(Block {
        title: "Latency by offered rate".to_owned(),
        header: vec![
            "Offered", "Achieved", "p50", "p99", "Errors", "Time", "Held", "Why",
        ],
        rows: steps.iter().map(row).collect(),
        text_columns: 1,
    })
}

fn targets(targets: &[TargetFigures]) -> Block {
    let row = |target: &TargetFigures| {
        let latency = target.latency_us.as_ref();
        vec![
            target.name.clone(),
            statuses(&target.statuses),
            number::grouped(target.requests.sent),
            number::grouped(target.requests.failed),
            shown(target.rate_per_s.map(number::si)),
            shown(latency.map(|latency| number::us(latency.p50))),
            shown(latency.map(|latency| number::us(latency.p99))),
            shown(latency.map(|latency| number::us(latency.max))),
        ]
    };
    Block {
        title: "Requests of the scenario".to_owned(),
        header: vec![
            "Request", "Statuses", "Sent", "Failed", "Rate/s", "p50", "p99", "Max",
        ],
        rows: targets.iter().map(row).collect(),
        text_columns: 2,
    }
}

fn statuses(counts: &BTreeMap<u16, u64>) -> String {
    let each = counts
        .iter()
        .map(|(status, count)| format!("{status}: {}", number::grouped(*count)));
    let text = each.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        ABSENT.to_owned()
    } else {
        text
    }
}

/// `+2.1 %`, `-0.3 %`.
fn change(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

fn shown(text: Option<String>) -> String {
    text.unwrap_or_else(|| ABSENT.to_owned())
}

/// Removes a last column without content.
fn without_empty(mut block: Block) -> Block {
    let last = block.header.len() - 1;
    if block.rows.iter().all(|row| row[last].is_empty()) {
        block.header.pop();
        block.rows.iter_mut().for_each(|row| row.truncate(last));
        block.text_columns = block.text_columns.min(last);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{LoadFigures, Memory, Requests, Windows};

    fn with(load: LoadFigures) -> TestResult {
        TestResult {
            load,
            ..TestResult::new("http", 10)
        }
    }

    #[test]
    fn only_figures_that_exist_have_a_table() {
        assert!(blocks(&[&with(LoadFigures::default())]).is_empty());
        let result = with(LoadFigures {
            statuses: [(200, 5)].into(),
            ..LoadFigures::default()
        });
        let blocks = blocks(&[&result]);
        assert_eq!(blocks.len(), 1);
        assert_eq!(blocks[0].rows, [["status 200", "5", ABSENT]]);
    }

    #[test]
    fn outcomes_are_shares_of_what_was_sent() {
        let result = with(LoadFigures {
            requests: Some(Requests {
                sent: 100_000,
                succeeded: 99_999,
                failed: 1,
                timeouts: 1,
                ..Requests::default()
            }),
            errors: [("timeout".to_owned(), 1)].into(),
            ..LoadFigures::default()
        });
        let rows = &blocks(&[&result])[0].rows;
        assert_eq!(rows[1], ["succeeded", "99,999", "99.99 %"]);
        assert_eq!(rows[3], ["of them timed out", "1", "0.0010 %"]);
        assert_eq!(rows[4][0], "error timeout");
        assert_eq!(rows.len(), 5);
    }

    #[test]
    fn several_results_are_told_apart_and_empty_reasons_left_out() {
        let result = with(LoadFigures {
            expectations: vec![ExpectationResult {
                text: "p99<1s".into(),
                seen: Some("3 ms".into()),
                kept: true,
                reason: None,
            }],
            ..LoadFigures::default()
        });
        let both = blocks(&[&result, &result]);
        assert_eq!((both.len(), both[0].title.as_str()), (1, "Expectations"));
        assert_eq!(both[0].header, ["Result", "Expected", "Seen", "State"]);
        assert_eq!(
            both[0].rows[1],
            ["10 connections", "p99<1s", "3 ms", "kept"]
        );
        let alone = blocks(&[&result]);
        assert_eq!(alone[0].header, ["Expected", "Seen", "State"]);
        assert_eq!(alone[0].rows[0], ["p99<1s", "3 ms", "kept"]);
    }

    #[test]
    fn memory_has_a_table_if_it_was_measured() {
        let mut result = with(LoadFigures::default());
        result.memory = Some(Memory {
            server_rss_bytes: 3 << 20,
            server_rss_closed_bytes: Some(2 << 20),
            ..Memory::default()
        });
        assert!(blocks(&[&result]).is_empty());
        if let Some(memory) = &mut result.memory {
            memory.client_rss_bytes = Some(4 << 20);
            memory.client_rss_min_bytes = Some(1 << 20);
            memory.client_rss_peak_bytes = Some(5 << 20);
            memory.client_rss_closed_bytes = Some(2 << 20);
        }
        let blocks = blocks(&[&result]);
        assert_eq!(blocks[0].title, "Memory");
        let server = ["server", "3 MiB", ABSENT, ABSENT, ABSENT, "2 MiB"];
        assert_eq!(blocks[0].rows[0], server);
        let generator = ["generator", "4 MiB", ABSENT, "1 MiB", "5 MiB", "2 MiB"];
        assert_eq!(blocks[0].rows[1], generator);
    }

    #[test]
    fn a_row_without_bytes_is_left_out() {
        let mut windows = Windows {
            window_s: 1.0,
            ..Windows::default()
        };
        windows.requests_per_s.count = 1;
        let block = |windows| {
            let load = LoadFigures {
                windows: Some(windows),
                ..LoadFigures::default()
            };
            blocks(&[&with(load)]).remove(0)
        };
        let without = block(windows);
        assert_eq!(
            (without.title.as_str(), without.rows.len()),
            ("1 window of 1 s", 1)
        );
        windows.bytes_per_s.max = 5.0;
        assert_eq!(block(windows).rows[1][0], "bytes/s");
    }
}
