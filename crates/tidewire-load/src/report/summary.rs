//! Summary of a report: its verdict as a sentence, the machine and the plan.

use super::facts::{best, facts, trusted};
use super::model::{self, Bottleneck, INTERRUPTED, Machine, Report, TestResult, Verdict};
use super::service;
use super::table;
use crate::report::number;

/// The verdict of a run: a word and its meaning.
pub(super) struct Headline {
    /// The verdict, or `interrupted`.
    pub(super) word: &'static str,
    /// A style name: `valid`, `warn` or `failed`.
    pub(super) tone: &'static str,
    /// One or two sentences.
    pub(super) text: String,
}

/// The verdict in words: the worst verdict of the results with the [`facts`], so that a doubt about another row is not the
/// headline. A failed result anywhere makes it `failed`. The text of an interrupted run begins with the interruption.
pub(super) fn headline(report: &Report) -> Headline {
    if let [result] = report.results.as_slice()
        && service::is_load(result)
        && !report.partial
    {
        return load_headline(report, result);
    }
    let worst = report.verdict();
    let facts = facts(report);
    let of_facts = facts.iter().map(|fact| fact.bound.verdict()).max();
    let verdict = match of_facts {
        Some(of_facts) if worst != Verdict::Failed => of_facts,
        _ => worst,
    };
    let mut text = verdict_text(report, worst);
    if worst != Verdict::Valid
        && worst != Verdict::Failed
        && let Some(trusted) = trusted(&facts)
    {
        text = format!("{trusted} {text}");
    }
    let broken = broken(report);
    if !broken.is_empty() {
        let what = number::plural(broken.len() as u64, "expectation is", "expectations are");
        text = format!(
            "{} {what} broken: {}. {text}",
            broken.len(),
            broken.join(", ")
        );
    }
    if report.is_slower() {
        text = format!("It is slower than the baseline. {text}");
    }
    if report.partial {
        let reason = report.partial_reason.as_deref().unwrap_or(INTERRUPTED);
        let text = match report.results.len() {
            0 => format!("Nothing was complete: {reason}."),
            n => format!(
                "{n} complete {}: {reason}. {text}",
                number::plural(n as u64, "result", "results")
            ),
        };
        let tone = if verdict == Verdict::Failed {
            "failed"
        } else {
            "warn"
        };
        return Headline {
            word: "interrupted",
            tone,
            text,
        };
    }
    let tone = match verdict {
        Verdict::Valid => "valid",
        Verdict::GeneratorBound | Verdict::Noisy => "warn",
        Verdict::Failed => "failed",
    };
    Headline {
        word: table::verdict_word(verdict),
        tone,
        text,
    }
}

/// The headline of a load: first the expectations, the baseline and the found rate, then the failures of the
/// service, then whether the measurement is reliable. A broken expectation or a slower figure that fails the
/// run is the banner.
fn load_headline(report: &Report, result: &TestResult) -> Headline {
    let broken = broken_with_figures(result);
    let is_slower = report.is_slower();
    let must_keep_up = report
        .baseline
        .as_ref()
        .is_some_and(|baseline| baseline.fail_if_slower);
    let mut parts = Vec::new();
    if !broken.is_empty() {
        let what = number::plural(broken.len() as u64, "expectation is", "expectations are");
        let all = broken.join(", ");
        parts.push(format!("{} {what} broken: {all}.", broken.len()));
    }
    if is_slower {
        parts.push("It is slower than the baseline.".to_owned());
    }
    parts.extend(
        result
            .load
            .found_rate
            .as_ref()
            .map(|found| found.text.clone()),
    );
    parts.extend(service::failures(result));
    let measurement = result.load.measurement.unwrap_or(result.verdict);
    let reasons = result.verdict == Verdict::Failed && parts.is_empty();
    parts.extend(reasons.then(|| verdict_text(report, Verdict::Failed)));
    parts.push(measurement_text(measurement).to_owned());
    let (word, tone) = match result.verdict {
        Verdict::Failed => ("failed", "failed"),
        _ if !broken.is_empty() => ("broken", "failed"),
        _ if is_slower && must_keep_up => ("slower", "failed"),
        Verdict::Valid => ("valid", "valid"),
        verdict => (table::verdict_word(verdict), "warn"),
    };
    Headline {
        word,
        tone,
        text: parts.join(" "),
    }
}

/// Whether the figures of a load can be relied on, whatever the service did.
fn measurement_text(measurement: Verdict) -> &'static str {
    match measurement {
        Verdict::Valid => "The measurement is valid: the generator kept up.",
        Verdict::Noisy => {
            "The measurement is noisy: the notes say which figures are uncertain, and by how much."
        }
        Verdict::GeneratorBound => {
            "The generator was the limit: rates are lower bounds, and latencies upper bounds. The notes say why."
        }
        Verdict::Failed => "The notes say what failed.",
    }
}

/// Broken expectations with the figures that were measured.
fn broken_with_figures(result: &TestResult) -> Vec<String> {
    let broken = result.load.expectations.iter().filter(|one| !one.kept);
    broken
        .map(|one| match (&one.seen, &one.reason) {
            (Some(seen), _) => format!("{} ({seen})", one.text),
            (None, Some(reason)) => format!("{} ({reason})", one.text),
            (None, None) => one.text.clone(),
        })
        .collect()
}

fn verdict_text(report: &Report, verdict: Verdict) -> String {
    let all = report.results.len();
    let count = report
        .results
        .iter()
        .filter(|result| result.verdict == verdict)
        .count();
    let of = format!(
        "{count} of {all} {}",
        number::plural(all as u64, "result", "results")
    );
    match verdict {
        _ if all == 0 => "The report has no results.".into(),
        Verdict::Valid => {
            "Everything offered was accounted for by the server, and no figure was limited by the \
             generator alone."
                .into()
        }
        Verdict::GeneratorBound => format!(
            "In {of} the generator was the limit: read those rates as lower bounds. \
             Nothing was lost."
        ),
        Verdict::Noisy => format!(
            "In {of} the rate varied too much to be relied on. \
             Nothing was lost."
        ),
        Verdict::Failed if all == 1 && !failures_of_all(report).is_empty() => {
            failures_of_all(report)
        }
        Verdict::Failed => format!(
            "In {of} messages or connections were lost or failed: do not use those figures. The notes give the reason."
        ),
    }
}

/// What the service of a load did wrong.
fn failures_of_all(report: &Report) -> String {
    let loads = report.results.iter().filter(|one| service::is_load(one));
    let all: Vec<String> = loads.flat_map(service::failures).collect();
    all.join(" ")
}

/// The limit of the throughput, in words; `None` without a test that saturates.
pub(super) fn bottleneck(report: &Report) -> Option<&'static str> {
    let result = best(report, model::THROUGHPUT)?;
    Some(match result.bottleneck {
        Bottleneck::Server => "The server's processor time",
        Bottleneck::Client => "The load generator's processor time",
        Bottleneck::Both => "Server and generator, both saturated",
        Bottleneck::None => "Neither side's processor time",
    })
}

/// The machine in one line; empty when nothing is known.
pub(super) fn machine(machine: &Machine) -> String {
    let cores = machine
        .cores
        .map(|n| format!("{n} {}", number::plural(n.into(), "core", "cores")));
    let kernel = machine
        .kernel
        .as_ref()
        .map(|kernel| format!("kernel {kernel}"));
    let memory = machine
        .memory_bytes
        .map(|bytes| number::bytes(bytes as f64));
    let parts = [
        machine.cpu.clone(),
        cores,
        memory,
        machine.os.clone(),
        kernel,
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The server in one line.
pub(super) fn server(report: &Report) -> String {
    let target = &report.target;
    let name = target
        .server
        .as_ref()
        .map(|name| format!("{name} at "))
        .unwrap_or_default();
    let embedded = if target.embedded {
        ", started by the lab"
    } else {
        ""
    };
    format!("{name}{}{embedded}", target.url)
}

/// The plan, as names and values.
pub(super) fn plan(report: &Report) -> Vec<(&'static str, String)> {
    let Some(plan) = &report.plan else {
        return Vec::new();
    };
    let list = |items: Vec<String>| (!items.is_empty()).then(|| items.join(", "));
    let tiers = plan
        .connection_tiers
        .iter()
        .map(|&n| number::grouped(n))
        .collect();
    let rows = [
        ("Tests", list(plan.tests.clone())),
        ("Connections", list(tiers)),
        ("Profile", plan.profile.clone()),
        ("Pace", plan.pace.clone()),
        ("Measured for", plan.duration_s.map(number::seconds)),
        ("Held for", plan.hold_s.map(number::seconds)),
        (
            "Pings per connection",
            plan.pings_per_connection.map(number::grouped),
        ),
        ("Repeats", plan.repeats.map(number::grouped)),
        ("Generator threads", plan.threads.map(|n| n.to_string())),
        (
            "Source addresses",
            plan.source_addresses.map(|n| n.to_string()),
        ),
        ("Command", plan.command.clone()),
    ];
    rows.into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// The earlier report with which this one was compared, and the results that one of them lacks, in
/// sentences.
pub(super) fn baseline(report: &Report) -> Vec<String> {
    let Some(baseline) = &report.baseline else {
        return Vec::new();
    };
    let when = baseline
        .started_at
        .as_ref()
        .map(|when| format!(" of {when}"));
    let source = format!(
        "Compared with {}{}.",
        baseline.file,
        when.unwrap_or_default()
    );
    std::iter::once(source)
        .chain(baseline.unmatched.iter().cloned())
        .collect()
}

/// Broken expectations, as they were given; with several results with the name of their test.
fn broken(report: &Report) -> Vec<String> {
    let is_alone = report.results.len() == 1;
    let of_one = |result: &TestResult| {
        let test = match is_alone {
            true => String::new(),
            false => format!("{}: ", result.test),
        };
        let broken = result.load.expectations.iter().filter(|one| !one.kept);
        let named = broken.map(move |one| format!("{test}{}", one.text));
        named.collect::<Vec<_>>()
    };
    report.results.iter().flat_map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Target;

    fn report(verdicts: &[Verdict]) -> Report {
        let target = Target {
            url: "ws://h/".into(),
            server: None,
            embedded: false,
        };
        let mut report = Report::new(Machine::default(), target);
        report.results.extend(
            verdicts
                .iter()
                .enumerate()
                .map(|(index, &verdict)| TestResult {
                    verdict,
                    rate_per_s: Some(index as f64 + 1.0),
                    ..TestResult::new(model::THROUGHPUT, 1)
                }),
        );
        report
    }

    #[test]
    fn the_headline_counts_the_results_with_the_worst_verdict() {
        let headline = headline(&report(&[Verdict::Valid, Verdict::Failed, Verdict::Noisy]));
        assert_eq!((headline.word, headline.tone), ("failed", "failed"));
        assert!(
            headline.text.contains("1 of 3 results"),
            "{}",
            headline.text
        );
    }

    #[test]
    fn a_doubt_about_a_row_that_is_no_headline_figure_does_not_set_the_tone() {
        // The best throughput is that of the last row.
        let seen = headline(&report(&[Verdict::Noisy, Verdict::Valid, Verdict::Valid]));
        assert_eq!((seen.word, seen.tone), ("valid", "valid"));
        let start = "Throughput is exact. In 1 of 3 results the rate varied";
        assert!(seen.text.starts_with(start), "{}", seen.text);
        let seen = headline(&report(&[Verdict::Valid, Verdict::Valid, Verdict::Noisy]));
        assert_eq!((seen.word, seen.tone), ("noisy", "warn"));
        let start = "Throughput varied. In 1 of 3 results";
        assert!(seen.text.starts_with(start), "{}", seen.text);
        // Tests without a figure in the summary are judged together.
        let mut other = report(&[Verdict::Noisy, Verdict::Valid]);
        for result in &mut other.results {
            result.test = "another".to_owned();
        }
        assert_eq!(headline(&other).tone, "warn");
        assert_eq!(headline(&report(&[])).tone, "failed");
    }

    #[test]
    fn an_interrupted_run_says_so_first() {
        let mut partial = report(&[Verdict::Valid]);
        partial.partial = true;
        partial.partial_reason = Some("stopped with Ctrl-C".into());
        let headline = headline(&partial);
        assert_eq!((headline.word, headline.tone), ("interrupted", "warn"));
        assert!(
            headline
                .text
                .starts_with("1 complete result: stopped with Ctrl-C.")
        );
    }

    #[test]
    fn unknown_parts_of_the_machine_are_left_out() {
        let known = Machine {
            cores: Some(1),
            kernel: Some("6.1".into()),
            ..Machine::default()
        };
        assert_eq!(machine(&known), "1 core, kernel 6.1");
        assert_eq!(machine(&Machine::default()), "");
    }
}
