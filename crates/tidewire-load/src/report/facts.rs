//! The most important figures of a report, and what each of them bounds.

use super::model::{self, Report, StoppedBy, TestResult, Verdict};
use super::number;
use super::table;

/// One figure with its name and the conditions of its measurement.
pub(super) struct Fact {
    pub(super) name: String,
    /// The figure, with the words of its bound.
    pub(super) value: String,
    pub(super) detail: String,
    pub(super) bound: Bound,
}

/// How a figure relates to what the server can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// It is the server's.
    Exact,
    /// The server's is the same or more: the generator was the limit.
    AtLeast,
    /// The same, because the plan or this machine ended the test: the measurement is valid.
    Reached,
    /// The server's is the same or less: the generator's own delays are in it.
    AtMost,
    /// It varied while it was measured.
    Varied,
}

impl Bound {
    /// The bound of a rate.
    fn of_rate(verdict: Verdict) -> Self {
        match verdict {
            Verdict::GeneratorBound => Self::AtLeast,
            Verdict::Noisy => Self::Varied,
            Verdict::Valid | Verdict::Failed => Self::Exact,
        }
    }

    /// The bound of a latency.
    fn of_latency(verdict: Verdict) -> Self {
        match Self::of_rate(verdict) {
            Self::AtLeast => Self::AtMost,
            other => other,
        }
    }

    /// The verdict of a figure with this bound.
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::Exact | Self::Reached => Verdict::Valid,
            Self::AtLeast | Self::AtMost => Verdict::GeneratorBound,
            Self::Varied => Verdict::Noisy,
        }
    }

    fn with(self, value: &str) -> String {
        match self {
            Self::Exact | Self::Varied => value.to_owned(),
            Self::AtLeast | Self::Reached => format!("at least {value}"),
            Self::AtMost => format!("at most {value}"),
        }
    }
}

/// Sentences that state which figures are exact and which are bounds; `None` without figures.
pub(super) fn trusted(facts: &[Fact]) -> Option<String> {
    let sentence = |bounds: &[Bound], one: &str, many: &str| {
        let facts = facts.iter().filter(|fact| bounds.contains(&fact.bound));
        let names: Vec<&str> = facts.map(|fact| fact.name.as_str()).collect();
        let (last, others) = names.split_last()?;
        Some(match others.is_empty() {
            true => format!("{last} {one}."),
            false => format!("{} and {last} {many}.", others.join(", ")),
        })
    };
    let sentences = [
        sentence(&[Bound::Exact], "is exact", "are exact"),
        sentence(
            &[Bound::AtLeast, Bound::Reached],
            "is a lower bound of the server's",
            "are lower bounds of the server's",
        ),
        sentence(
            &[Bound::AtMost],
            "is an upper bound of the server's",
            "are upper bounds of the server's",
        ),
        sentence(&[Bound::Varied], "varied", "varied"),
    ];
    let sentences: Vec<String> = sentences.into_iter().flatten().collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The most important figures, each from its best result that did not fail. A latency in a figure's detail is that of
/// the same result; the latency of pings is measured with the connections of the best throughput, if it was measured
/// with these.
pub(super) fn facts(report: &Report) -> Vec<Fact> {
    let facts = [
        rate(report, model::THROUGHPUT, "Throughput"),
        rate(report, model::FAN_OUT, "Deliveries"),
        rate(report, model::CONNECTION_STORM, "Handshakes"),
        ping(report),
        limit(report),
        memory(report),
        hold(report),
    ];
    facts.into_iter().flatten().collect()
}

fn fact(name: &str, bound: Bound, value: &str, detail: String) -> Fact {
    Fact {
        name: name.to_owned(),
        value: bound.with(value),
        detail,
        bound,
    }
}

fn rate(report: &Report, test: &str, name: &str) -> Option<Fact> {
    let result = best(report, test)?;
    let bound = Bound::of_rate(result.verdict);
    let per_s = |rate: f64| format!("{}/s", number::si(rate));
    let latency = result.latency_us.as_ref().map(|latency| {
        let p99 = Bound::of_latency(result.verdict).with(&number::us(latency.p99));
        format!("; p99 {p99}{}", own_part(result))
    });
    let range = match bound {
        Bound::Varied => range_of(&result.rate_series)
            .map(|(least, most)| format!("; {} to {} by second", per_s(least), per_s(most))),
        _ => None,
    };
    let detail = format!(
        "confirmed; {}{}{}{}",
        table::label(result),
        latency.unwrap_or_default(),
        range.unwrap_or_default(),
        spare(result, bound).unwrap_or_default()
    );
    Some(fact(name, bound, &per_s(result.rate_per_s?), detail))
}

/// The generator's part of a 99th percentile, if it can be seen in the figure.
fn own_part(result: &TestResult) -> String {
    let bounds = result.generator.and_then(|generator| generator.error_us);
    let bound_us = bounds.map_or(0.0, |bounds| bounds.p99);
    let seen_us = result
        .latency_us
        .as_ref()
        .map_or(0.0, |latency| latency.p99);
    match bound_us >= seen_us * VISIBLE_PART && bound_us > 0.0 {
        true => format!(
            ", of which the generator's at most {}",
            number::us(bound_us.min(seen_us))
        ),
        false => String::new(),
    }
}

/// The processor time that the server used while the generator was the limit.
fn spare(result: &TestResult, bound: Bound) -> Option<String> {
    let percent = result.cpu.as_ref()?.server_share? * 100.0;
    (bound == Bound::AtLeast)
        .then(|| format!("; the server used {percent:.0} % of its processor time"))
}

/// The least and the most of some values.
fn range_of(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some((least, most))
}

fn ping(report: &Report) -> Option<Fact> {
    let busiest = best(report, model::THROUGHPUT).map(|result| result.connections);
    let measured = || usable(report, model::PING_LATENCY).filter(|one| one.latency_us.is_some());
    let beside = measured().find(|result| Some(result.connections) == busiest);
    let result = beside.or_else(|| measured().max_by_key(|result| result.connections))?;
    let latency = result.latency_us.as_ref()?;
    let name = format!("Ping p99 at {}", number::grouped(result.connections));
    let detail = format!(
        "pings alone; {}; median {}{}",
        table::label(result),
        number::us(latency.p50),
        own_part(result)
    );
    let bound = Bound::of_latency(result.verdict);
    Some(fact(&name, bound, &number::us(latency.p99), detail))
}

fn limit(report: &Report) -> Option<Fact> {
    let mut usable = usable(report, model::CONNECTION_LIMIT);
    let limit = usable.find_map(|result| result.limit.as_ref())?;
    // Whatever else stopped the test, the server would have held more.
    let bound = match limit.stopped_by {
        StoppedBy::Server => Bound::Exact,
        StoppedBy::OpenFiles | StoppedBy::Ports | StoppedBy::Memory | StoppedBy::Plan => {
            Bound::Reached
        }
    };
    let value = number::grouped(limit.largest_stable);
    let detail = format!("stopped by {}", table::stopped_by(limit.stopped_by));
    Some(fact("Stable connections", bound, &value, detail))
}

/// Memory and survival do not depend on the speed of the generator.
fn memory(report: &Report) -> Option<Fact> {
    // With more connections the measurement's own error is smaller.
    let known = |result: &&TestResult| result.memory?.per_connection_bytes;
    let usable = report
        .results
        .iter()
        .filter(|result| result.verdict != Verdict::Failed);
    let result = usable
        .filter(|r| known(r).is_some())
        .max_by_key(|result| result.connections)?;
    let value = number::bytes(known(&result)?);
    let detail = format!("{}, {}", result.test, table::label(result));
    Some(fact("Memory/connection", Bound::Exact, &value, detail))
}

fn hold(report: &Report) -> Option<Fact> {
    let result = usable(report, model::SUSTAINED_HOLD).max_by_key(|result| result.connections)?;
    let held = result
        .duration_s
        .map(|s| format!(" for {}", number::seconds(s)));
    let value = number::percent(result.survival?.percent);
    let detail = format!("{}{}", table::label(result), held.unwrap_or_default());
    Some(fact("Survival", Bound::Exact, &value, detail))
}

fn usable<'a>(report: &'a Report, test: &'a str) -> impl Iterator<Item = &'a TestResult> {
    let of_test = report
        .results
        .iter()
        .filter(move |result| result.test == test);
    of_test.filter(|result| result.verdict != Verdict::Failed)
}

/// The result of a test with the highest rate that did not fail.
pub(super) fn best<'a>(report: &'a Report, test: &'a str) -> Option<&'a TestResult> {
    let rated = usable(report, test).filter(|result| result.rate_per_s.is_some());
    rated.max_by(|a, b| {
        a.rate_per_s
            .unwrap_or(0.0)
            .total_cmp(&b.rate_per_s.unwrap_or(0.0))
    })
}

/// The smallest part of a percentile that is worth a word.
const VISIBLE_PART: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Cpu, ErrorBounds, GeneratorHealth, Latency, Machine, Target};

    fn report(results: Vec<TestResult>) -> Report {
        let target = Target {
            url: "ws://h/".into(),
            server: None,
            embedded: false,
        };
        let mut report = Report::new(Machine::default(), target);
        report.results = results;
        report
    }

    fn row(test: &str, connections: u64, rate: f64, p99: f64) -> TestResult {
        TestResult {
            rate_per_s: Some(rate),
            latency_us: Some(Latency {
                p99,
                ..Latency::default()
            }),
            ..TestResult::new(test, connections)
        }
    }

    fn shown(report: &Report) -> Vec<[String; 3]> {
        let facts = facts(report).into_iter();
        facts
            .map(|fact| [fact.name, fact.value, fact.detail])
            .collect()
    }

    #[test]
    fn a_latency_is_that_of_the_rate_beside_it_or_names_its_connections() {
        let mut report = report(vec![
            row(model::PING_LATENCY, 100, 9e4, 200.0),
            row(model::PING_LATENCY, 10_000, 9e4, 90_000.0),
            row(model::THROUGHPUT, 100, 2e6, 3_000.0),
            row(model::THROUGHPUT, 10_000, 1e6, 400_000.0),
        ]);
        let expected = [
            [
                "Throughput",
                "2 M/s",
                "confirmed; 100 connections; p99 3 ms",
            ],
            [
                "Ping p99 at 100",
                "200 µs",
                "pings alone; 100 connections; median 0 µs",
            ],
        ];
        assert_eq!(shown(&report), expected.map(|row| row.map(str::to_owned)));
        // Without pings at the best rate's connections, those of the most.
        report.results.remove(0);
        assert_eq!(shown(&report)[1][0], "Ping p99 at 10,000");
    }

    #[test]
    fn a_failed_result_is_never_a_headline_figure() {
        let mut failed = row(model::THROUGHPUT, 1, 2.0, 1.0);
        failed.verdict = Verdict::Failed;
        let facts = facts(&report(vec![row(model::THROUGHPUT, 1, 1.0, 1.0), failed]));
        assert_eq!(facts.len(), 1);
        assert_eq!(facts[0].value, "1/s");
    }

    #[test]
    fn each_figure_says_what_it_bounds() {
        let bound = |mut row: TestResult, verdict| {
            row.verdict = verdict;
            row
        };
        let mut throughput = bound(
            row(model::THROUGHPUT, 100, 2e6, 3_000.0),
            Verdict::GeneratorBound,
        );
        throughput.cpu = Some(Cpu {
            server_share: Some(0.55),
            ..Cpu::default()
        });
        let mut fan_out = bound(row(model::FAN_OUT, 10, 1e6, 500.0), Verdict::Noisy);
        fan_out.rate_series = vec![8e5, 1.2e6];
        let mut storm = row(model::CONNECTION_STORM, 10, 1e4, 500.0);
        storm.generator = Some(GeneratorHealth {
            error_us: Some(ErrorBounds {
                p99: 40.0,
                ..ErrorBounds::default()
            }),
            ..GeneratorHealth::default()
        });
        storm.memory = Some(model::Memory {
            per_connection_bytes: Some(2048.0),
            ..model::Memory::default()
        });
        storm = bound(storm, Verdict::GeneratorBound);
        let ping = bound(
            row(model::PING_LATENCY, 100, 9e4, 200.0),
            Verdict::GeneratorBound,
        );
        let report = report(vec![throughput, fan_out, storm, ping]);
        let expected = [
            [
                "Throughput",
                "at least 2 M/s",
                "confirmed; 100 connections; p99 at most 3 ms; the server used 55 % of its processor time",
            ],
            [
                "Deliveries",
                "1 M/s",
                "confirmed; 10 connections; p99 500 µs; 800 k/s to 1.20 M/s by second",
            ],
            [
                "Handshakes",
                "at least 10 k/s",
                "confirmed; 10 connections; p99 at most 500 µs, of which the generator's at most 40 µs",
            ],
            [
                "Ping p99 at 100",
                "at most 200 µs",
                "pings alone; 100 connections; median 0 µs",
            ],
            [
                "Memory/connection",
                "2 KiB",
                "connection-storm, 10 connections",
            ],
        ];
        assert_eq!(shown(&report), expected.map(|row| row.map(str::to_owned)));
        assert_eq!(
            trusted(&facts(&report)).unwrap_or_default(),
            "Memory/connection is exact. Throughput and Handshakes are lower bounds of the server's. \
             Ping p99 at 100 is an upper bound of the server's. Deliveries varied."
        );
    }
}
