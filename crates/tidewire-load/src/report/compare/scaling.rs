//! The growth of a rate with the processes of the generator: the same test with several numbers of them.

use std::collections::BTreeMap;

use crate::report::model::{Processes, Report, SUSTAINED_HOLD, TestResult};
use crate::report::{number, table};

/// The columns.
pub(super) const HEADER: [&str; 8] = [
    "Result",
    "Processes",
    "Ready",
    "Sum/s",
    "Mean/s",
    "Slowest/s",
    "Fastest/s",
    "Scaling",
];

/// The columns with text.
pub(super) const TEXT_COLUMNS: usize = 1;

/// Adds the rate of one process to each result with several, and how much of its multiple they reach together. The reports are
/// those of one client; without a report of one process nothing is known.
pub fn scale(reports: &mut [(String, Report)]) {
    let results = reports.iter().flat_map(|(_, report)| &report.results);
    let alone = results.filter(|result| count(result) == Some(1));
    let rates: BTreeMap<String, f64> = alone
        .filter_map(|result| Some((name(result), result.rate_per_s?)))
        .collect();
    for (_, report) in reports {
        for result in &mut report.results {
            let alone_per_s = rates.get(&name(result)).copied();
            add_scaling(result, alone_per_s);
        }
    }
}

fn add_scaling(result: &mut TestResult, alone_per_s: Option<f64>) {
    // A planned rate is the same with any number of processes.
    let is_planned = result.test == SUSTAINED_HOLD
        || result
            .pace
            .as_ref()
            .is_some_and(|pace| pace.planned_per_s.is_some());
    let rates = alone_per_s.zip(result.rate_per_s);
    let Some((processes, (alone_per_s, rate_per_s))) = result.processes.as_mut().zip(rates) else {
        return;
    };
    if processes.count > 1 && alone_per_s > 0.0 && !is_planned {
        let multiple = processes.count as f64 * alone_per_s;
        processes.alone_per_s = Some(alone_per_s);
        processes.scaling_percent = Some(rate_per_s / multiple * 100.0);
    }
}

/// A line for each result and number of processes; none unless the reports differ in that number.
pub(super) fn rows(reports: &[(String, Report)]) -> Vec<Vec<String>> {
    let mut results: Vec<&TestResult> = reports
        .iter()
        .flat_map(|(_, report)| &report.results)
        .collect();
    let counts: Vec<u64> = results.iter().filter_map(|result| count(result)).collect();
    if counts.iter().all(|count| Some(count) == counts.first()) {
        return Vec::new();
    }
    // Together what is compared, in the order in which it ran first.
    let names: Vec<String> = results.iter().map(|result| name(result)).collect();
    let place = |result: &&TestResult| names.iter().position(|name_of| *name_of == name(result));
    results.sort_by_key(place);
    results.into_iter().filter_map(line).collect()
}

fn line(result: &TestResult) -> Option<Vec<String>> {
    let processes = result.processes.as_ref()?;
    let rates = || processes.rates_per_s.iter().copied();
    let rate = |rate: Option<f64>| rate.map_or_else(|| table::ABSENT.to_owned(), number::si);
    let scaling = processes.scaling_percent;
    Some(vec![
        name(result),
        number::grouped(processes.count),
        // A process that has ended confirms nothing.
        number::grouped(rates().filter(|&rate| rate > 0.0).count() as u64),
        rate(result.rate_per_s),
        rate(Some(processes.mean_per_s)),
        rate(rates().reduce(f64::min)),
        rate(rates().reduce(f64::max)),
        scaling.map_or_else(|| table::ABSENT.to_owned(), number::percent),
    ])
}

fn count(result: &TestResult) -> Option<u64> {
    result
        .processes
        .as_ref()
        .map(|Processes { count, .. }| *count)
}

fn name(result: &TestResult) -> String {
    format!("{}, {}", result.test, table::label(result))
}
