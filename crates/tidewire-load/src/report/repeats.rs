//! Repeats of a run: one report with the median run of each result, and the spread.

use super::model::{Range, Repeats, Report, TestResult};
use super::notes;
use super::table;
use std::collections::HashSet;

/// Makes one report of several runs of one plan. `None` without a run.
///
/// All figures of a result belong to one run: the run with the median rate, or with the median largest number
/// of connections if there is no rate. An even number of runs has two in the middle; the smaller one counts.
/// The verdict is the worst of all runs. Doubts and notes are those of all runs; of notes with the same words
/// and other numbers one stays, that of the run with the figures if it has one. Machine, plan and time are
/// those of the first run.
#[must_use]
pub fn merged(runs: Vec<Report>) -> Option<Report> {
    let count = runs.len() as u64;
    let mut groups: Vec<(String, Vec<TestResult>)> = Vec::new();
    let mut first: Option<Report> = None;
    for mut run in runs {
        let mut seen: Vec<String> = Vec::new();
        for result in std::mem::take(&mut run.results) {
            let name = name_of(&result);
            let before = seen.iter().filter(|one| **one == name).count();
            let key = format!("{name} {before}");
            seen.push(name);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, results)) => results.push(result),
                None => groups.push((key, vec![result])),
            }
        }
        match &mut first {
            Some(first) => {
                if run.partial && !first.partial {
                    first.partial = true;
                    first.partial_reason = run.partial_reason;
                }
                first.target.server = first.target.server.take().or(run.target.server);
            }
            None => first = Some(run),
        }
    }
    let mut report = first?;
    if let (Some(plan), true) = (&mut report.plan, count > 1) {
        plan.repeats = Some(count);
    }
    let results = groups.into_iter().filter_map(|(_, results)| match count {
        1 => results.into_iter().next(),
        _ => median(results),
    });
    report.results = results.collect();
    Some(report)
}

/// The properties that distinguish a result from the others of its run.
fn name_of(result: &TestResult) -> String {
    let layer = table::layer(result).unwrap_or_default();
    format!("{} {} {layer}", result.test, table::label(result))
}

/// The median result, with the spread of all.
fn median(mut results: Vec<TestResult>) -> Option<TestResult> {
    results.sort_by(|left, right| figure(left).total_cmp(&figure(right)));
    let range = |of: fn(&TestResult) -> Option<f64>| Range::of(results.iter().filter_map(of));
    let repeats = Repeats {
        count: results.len() as u64,
        rate_per_s: range(|result| result.rate_per_s),
        p50_us: range(|result| result.latency_us.as_ref().map(|latency| latency.p50)),
        p99_us: range(|result| result.latency_us.as_ref().map(|latency| latency.p99)),
        largest_stable: range(|result| Some(result.limit.as_ref()?.largest_stable as f64)),
    };
    let verdict = results.iter().map(|result| result.verdict).max()?;
    let doubts = distinct(results.iter().flat_map(|result| &result.doubts));
    let middle = (results.len() - 1) / 2;
    // Those of the chosen run have the figures that its row has.
    let chosen_first = results[middle..].iter().chain(&results[..middle]);
    let notes = distinct(chosen_first.flat_map(|result| &result.notes));
    let chosen = results.into_iter().nth(middle)?;
    Some(TestResult {
        repeats: Some(repeats),
        verdict,
        doubts,
        notes,
        ..chosen
    })
}

/// The figure by which results are ordered; one that measured nothing is the first.
fn figure(result: &TestResult) -> f64 {
    let limit = || Some(result.limit.as_ref()?.largest_stable as f64);
    result
        .rate_per_s
        .or_else(limit)
        .unwrap_or(f64::NEG_INFINITY)
}

/// The texts in their order. If two differ only in their numbers, the first one stays.
fn distinct<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut known = HashSet::new();
    let new = texts.filter(|text| known.insert(notes::shape(text)));
    new.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{
        self, ConnectionLimit, Latency, Machine, Plan, StoppedBy, Target, Verdict,
    };
    use crate::report::{html, markdown, terminal};

    fn run(results: Vec<TestResult>) -> Report {
        let target = Target {
            url: "ws://h/".to_owned(),
            server: None,
            embedded: false,
        };
        Report {
            plan: Some(Plan::default()),
            results,
            ..Report::new(Machine::default(), target)
        }
    }

    fn row(rate: f64, p99: f64) -> TestResult {
        TestResult {
            rate_per_s: Some(rate),
            latency_us: Some(Latency {
                p99,
                ..Latency::default()
            }),
            notes: vec!["the same".to_owned()],
            ..TestResult::new(model::THROUGHPUT, 100)
        }
    }

    #[test]
    fn a_result_is_that_of_the_median_run_with_the_spread_of_all() {
        let noisy = TestResult {
            verdict: Verdict::Noisy,
            doubts: vec!["noise".to_owned()],
            notes: ["the same", "it varied", "97.5 % were used"]
                .map(str::to_owned)
                .into(),
            ..row(3e6, 200.0)
        };
        let middle = TestResult {
            notes: vec!["80 % were used".to_owned()],
            ..row(2e6, 900.0)
        };
        let limit = |largest_stable| TestResult {
            limit: Some(ConnectionLimit {
                largest_stable,
                stopped_by: StoppedBy::Plan,
                probes: Vec::new(),
            }),
            ..TestResult::new(model::CONNECTION_LIMIT, 10)
        };
        let runs = vec![
            run(vec![middle, limit(300)]),
            run(vec![noisy, limit(100)]),
            // Interrupted before the second test.
            Report {
                partial: true,
                partial_reason: Some("interrupted".to_owned()),
                ..run(vec![row(1e6, 400.0)])
            },
        ];
        let merged = merged(runs).unwrap();
        assert!(merged.partial && merged.partial_reason.is_some());
        assert_eq!(merged.plan.as_ref().unwrap().repeats, Some(3));
        let [throughput, limit] = &merged.results[..] else {
            panic!("{:?}", merged.results);
        };
        let latency = throughput.latency_us.as_ref().unwrap();
        assert_eq!((throughput.rate_per_s, latency.p99), (Some(2e6), 900.0));
        let repeats = throughput.repeats.unwrap();
        let range = |min, max| Some(Range { min, max });
        assert_eq!((repeats.count, repeats.rate_per_s), (3, range(1e6, 3e6)));
        assert_eq!(
            (repeats.p99_us, repeats.largest_stable),
            (range(200.0, 900.0), None)
        );
        assert_eq!(throughput.verdict, Verdict::Noisy);
        assert_eq!(throughput.doubts, ["noise"]);
        assert_eq!(
            throughput.notes,
            ["80 % were used", "the same", "it varied"]
        );
        // Of two runs the smaller one is shown.
        assert_eq!(limit.limit.as_ref().unwrap().largest_stable, 100);
        assert_eq!(limit.repeats.unwrap().largest_stable, range(100.0, 300.0));
        for text in [
            terminal::render(&merged),
            markdown::render(&merged),
            html::render(&merged),
        ] {
            for words in ["Repeats", "1 M–3 M", "200 µs–900 µs", "100–300"] {
                assert!(text.contains(words), "no {words:?} in {text}");
            }
        }
    }

    #[test]
    fn one_run_is_as_it_is_and_equal_rows_stay_apart() {
        let alone = run(vec![row(1.0, 1.0), row(2.0, 1.0)]);
        assert_eq!(merged(vec![alone.clone()]), Some(alone.clone()));
        let both = merged(vec![alone.clone(), alone]).unwrap();
        let rates: Vec<_> = both.results.iter().map(|one| one.rate_per_s).collect();
        assert_eq!(rates, [Some(1.0), Some(2.0)]);
        assert_eq!(merged(Vec::new()), None);
    }
}
