//! The tables of a report, independent of their rendering: one pair per test, with a column for
//! every figure that at least one of its results has.

use super::model::{
    self, Bottleneck, FanOut, Latency, LatencyOrigin, Report, StoppedBy, TestResult,
};
use crate::report::number;

/// All results of one test.
pub(super) struct Section<'a> {
    /// The test's name.
    pub(super) test: &'a str,
    /// One sentence about the test; empty for a test that this version does not know.
    pub(super) about: &'static str,
    /// Its results, in the order they ran.
    pub(super) results: Vec<&'a TestResult>,
}

/// Cells of text under named columns.
pub(super) struct Table {
    /// The title of the table.
    pub(super) title: &'static str,
    /// Column names.
    pub(super) header: Vec<&'static str>,
    /// Rows with one cell per column.
    pub(super) rows: Vec<Vec<String>>,
}

/// A table with its title.
pub(super) struct Block {
    pub(super) title: String,
    pub(super) header: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    /// The first columns are text, the others numbers.
    pub(super) text_columns: usize,
}

impl<'a> Section<'a> {
    /// The report's tests in order of first appearance.
    pub(super) fn all(report: &'a Report) -> Vec<Self> {
        let mut sections: Vec<Self> = Vec::new();
        for result in &report.results {
            match sections
                .iter_mut()
                .find(|section| section.test == result.test)
            {
                Some(section) => section.results.push(result),
                None => sections.push(Self {
                    test: &result.test,
                    about: about(&result.test),
                    results: vec![result],
                }),
            }
        }
        sections
    }

    /// Rates, latencies and the verdict.
    pub(super) fn figures(&self) -> Table {
        let mut columns = key_columns();
        columns.push((self.rate_name(), |r| r.rate_per_s.map(number::si)));
        columns.extend(FIGURES.iter().copied());
        self.table("Results", &columns)
    }

    /// The things that `rate_per_s` counts: the requests of a load of a service.
    pub(super) fn rate_name(&self) -> &'static str {
        match self
            .results
            .iter()
            .any(|result| result.load.requests.is_some())
        {
            true => "Requests/s",
            false => rate_name(self.test),
        }
    }

    /// The account of the messages and its cost; `None` when nothing of it is known.
    pub(super) fn resources(&self) -> Option<Table> {
        // This table is wide: a format or payload that all results share is in the other table.
        let distinguishes = |(index, column): &(usize, Column)| {
            let first = self.results.first().map(|result| column.1(result));
            let differs = |result: &&TestResult| Some(column.1(result)) != first;
            *index == 0 || self.results.iter().any(differs)
        };
        let keys = key_columns().into_iter().enumerate().filter(distinguishes);
        let keys: Vec<Column> = keys.map(|(_, column)| column).collect();
        let key_count = keys.len();
        let columns: Vec<Column> = keys.into_iter().chain(RESOURCES.iter().copied()).collect();
        let table = self.table("Account and resources", &columns);
        (table.header.len() > key_count).then_some(table)
    }

    /// The start of the latencies' clock, as a sentence, when there are latencies.
    pub(super) fn latency_note(&self) -> Option<&'static str> {
        let latency = self
            .results
            .iter()
            .find_map(|result| result.latency_us.as_ref())?;
        Some(match latency.origin {
            LatencyOrigin::Sent => "Latency counts from the moment a message was written.",
            LatencyOrigin::FirstReceived => {
                "Latency counts from the moment the first receiver had a message."
            }
            LatencyOrigin::Intended => {
                "Latency counts from the moment a message was due, so that waiting to be written \
                 counts as well."
            }
        })
    }

    fn table(&self, title: &'static str, columns: &[Column]) -> Table {
        let used: Vec<&Column> = columns
            .iter()
            .filter(|(_, cell)| self.results.iter().any(|result| cell(result).is_some()))
            .collect();
        let row = |result: &&TestResult| {
            used.iter()
                .map(|(_, cell)| cell(result).unwrap_or_else(|| ABSENT.into()))
                .collect()
        };
        Table {
            title,
            header: used.iter().map(|(name, _)| *name).collect(),
            rows: self.results.iter().map(row).collect(),
        }
    }
}

/// The properties that distinguish a result from the others of its test: `1,000 connections, json,
/// 175 B`.
pub(super) fn label(result: &TestResult) -> String {
    number::connections(result.connections) + &variation(result)
}

/// The properties of a result apart from its number of connections: `, json, 175 B`.
pub(super) fn variation(result: &TestResult) -> String {
    let mut text = String::new();
    if let Some(format) = &result.format {
        text.push_str(", ");
        text.push_str(format);
    }
    if let Some(bytes) = result.payload_bytes {
        text.push_str(", ");
        text.push_str(&number::bytes(bytes as f64));
    }
    if let Some(speed) = speed(result) {
        text.push_str(", ");
        text.push_str(&speed);
    }
    text
}

/// The planned speed of a test: a given rate, a number of messages in flight, or as fast as
/// possible.
pub(super) fn speed(result: &TestResult) -> Option<String> {
    let given = |rate: f64| format!("{}/s", number::si(rate));
    // In older reports only a fan-out has its pace.
    let fan_out = result.fan_out.as_ref();
    let Some(pace) = &result.pace else {
        let rate = fan_out?.publications_per_s;
        return Some(rate.map_or_else(|| FULL_SPEED.to_owned(), given));
    };
    match (pace.planned_per_s, pace.in_flight) {
        (Some(rate), _) if pace.poisson => Some(format!("{}, Poisson", given(rate))),
        (Some(rate), _) => Some(given(rate)),
        (None, _) if fan_out.is_some() => Some(FULL_SPEED.to_owned()),
        (None, Some(in_flight)) => Some(format!("{} in flight", number::grouped(in_flight))),
        (None, None) => None,
    }
}

/// The unit that `rate_per_s` of a test counts. A load uses the words of its protocol; a bench test counts
/// handshakes, round trips, deliveries or confirmed messages.
pub(super) fn rate_name(test: &str) -> &'static str {
    match test {
        model::CONNECTION_STORM | model::CONNECT_LATENCY | model::RAPID_RECONNECT => "Handshakes/s",
        model::PING_LATENCY | model::SUSTAINED_HOLD => "Round trips/s",
        model::FAN_OUT => "Deliveries/s",
        "http" | "http2" => "Requests/s",
        "websocket" => "Messages/s",
        _ => "Confirmed msgs/s",
    }
}

/// The reason for the end of a search for more connections, in words.
pub(super) fn stopped_by(reason: StoppedBy) -> &'static str {
    match reason {
        StoppedBy::Server => "the server",
        StoppedBy::OpenFiles => "open files",
        StoppedBy::Ports => "source ports",
        StoppedBy::Memory => "memory",
        StoppedBy::Plan => "the plan's maximum",
    }
}

/// A verdict as shown: without the underscore of the data format.
pub(super) fn verdict_word(verdict: model::Verdict) -> &'static str {
    match verdict {
        model::Verdict::GeneratorBound => "generator bound",
        other => other.as_str(),
    }
}

/// A column's name and its value for a result.
type Column = (&'static str, fn(&TestResult) -> Option<String>);

fn key_columns() -> Vec<Column> {
    vec![
        ("Connections", |r| Some(number::grouped(r.connections))),
        ("Format", |r| r.format.clone()),
        ("Layer", layer),
        ("Payload", |r| {
            r.payload_bytes.map(|bytes| number::bytes(bytes as f64))
        }),
        ("Speed", speed),
    ]
}

/// The layer of the messages, if there is one.
pub(super) fn layer(result: &TestResult) -> Option<String> {
    let encryption = result
        .encryption_version
        .map(|version| format!("encryption {version}"));
    let layers: Vec<String> = result
        .extensions
        .iter()
        .cloned()
        .chain(encryption)
        .collect();
    (!layers.is_empty()).then(|| layers.join(", "))
}

const FIGURES: &[Column] = &[
    ("Repeats", |r| Some(number::grouped(r.repeats?.count))),
    ("Rate, min–max", |r| {
        range(r.repeats?.rate_per_s, number::si)
    }),
    ("p99, min–max", |r| range(r.repeats?.p99_us, number::us)),
    ("Stable, min–max", |r| {
        range(r.repeats?.largest_stable, number::si)
    }),
    ("Offered of planned", offered_of_planned),
    ("Confirmed bytes/s", |r| {
        r.bytes_per_s.map(number::byte_rate)
    }),
    ("Per connection/s", per_connection),
    ("On the wire", |r| r.wire_bytes.map(number::bytes)),
    ("Ratio to JSON", |r| r.ratio_to_json.map(number::ratio)),
    ("Survived", |r| {
        r.survival.map(|s| number::percent(s.percent))
    }),
    ("Largest stable", |r| {
        r.limit.as_ref().map(|l| number::grouped(l.largest_stable))
    }),
    ("Stopped by", |r| {
        r.limit
            .as_ref()
            .map(|l| stopped_by(l.stopped_by).to_owned())
    }),
    ("Min", |r| latency(r, |l| l.min)),
    ("p50", |r| latency(r, |l| l.p50)),
    ("p90", |r| latency(r, |l| l.p90)),
    ("p95", |r| latency(r, |l| l.p95)),
    ("p99", |r| latency(r, |l| l.p99)),
    ("p99.9", |r| latency(r, |l| l.p99_9)),
    ("p99.99", |r| latency(r, |l| l.p99_99)),
    ("Max", |r| latency(r, |l| l.max)),
    ("Skew p50", |r| skew(r, |l| l.p50)),
    ("Skew p99", |r| skew(r, |l| l.p99)),
    ("Skew max", |r| skew(r, |l| l.max)),
    ("Gaps", |r| found(r, |f| f.gaps)),
    ("Duplicates", |r| found(r, |f| f.duplicates)),
    ("Confirmed by", confirmed_by),
    ("Failed", |r| {
        // Those of a load have a table of their own, beside the requests that failed.
        let failed = r.failed.filter(|&n| n > 0 || r.load.requests.is_none())?;
        Some(number::grouped(failed))
    }),
    ("Lost", |r| r.messages.map(|m| number::grouped(m.lost))),
    ("Bottleneck", |r| {
        (r.bottleneck != Bottleneck::None).then(|| r.bottleneck.as_str().into())
    }),
    ("Verdict", |r| Some(verdict_word(r.verdict).into())),
];

/// The smallest and the largest value of a figure.
fn range(range: Option<model::Range>, text: fn(f64) -> String) -> Option<String> {
    let model::Range { min, max } = range?;
    Some(format!("{}–{}", text(min), text(max)))
}

const RESOURCES: &[Column] = &[
    ("Connected", |r| r.connected.map(number::grouped)),
    ("Time", |r| r.duration_s.map(number::seconds)),
    ("Publications", |r| {
        r.fan_out
            .as_ref()
            .map(|fan_out| number::grouped(fan_out.publications))
    }),
    ("Offered", |r| {
        r.messages.map(|m| number::grouped(m.offered))
    }),
    ("Confirmed", |r| {
        r.messages.map(|m| number::grouped(m.confirmed))
    }),
    ("Delivered", |r| {
        r.messages.and_then(|m| m.delivered).map(number::grouped)
    }),
    ("Refused", |r| {
        r.messages.and_then(|m| m.refused).map(number::grouped)
    }),
    ("Pings", |r| r.pings.map(|p| number::grouped(p.sent))),
    ("Pings lost", |r| r.pings.map(|p| number::grouped(p.lost))),
    ("Mean latency", |r| latency(r, |l| l.mean)),
    ("p50, other origin", |r| {
        r.latency_other_us.as_ref().map(|l| number::us(l.p50))
    }),
    ("p99, other origin", |r| {
        r.latency_other_us.as_ref().map(|l| number::us(l.p99))
    }),
    ("Client load", |r| share(r.cpu?.client_share)),
    ("Server load", |r| share(r.cpu?.server_share)),
    ("Shared cores", |r| r.cpu?.shared_cores.map(number::si)),
    ("Late p99", |r| Some(number::us(r.generator?.late_us?.p99))),
    ("Waited for others", |r| {
        let waited_s = r.generator?.waited_for_others_s?;
        (waited_s >= 0.001).then(|| number::seconds(waited_s))
    }),
    ("Client CPU", |r| {
        r.cpu.map(|cpu| number::seconds(cpu.client_s))
    }),
    ("Server CPU", |r| {
        r.cpu.and_then(|cpu| cpu.server_s).map(number::seconds)
    }),
    ("Client CPU each", |r| {
        r.cpu.and_then(|cpu| cpu_each(r, cpu.client_s))
    }),
    ("Server CPU each", |r| {
        r.cpu.and_then(|cpu| cpu_each(r, cpu.server_s?))
    }),
    ("Server memory", |r| {
        r.memory.map(|m| number::bytes(m.server_rss_bytes as f64))
    }),
    ("Memory peak", |r| {
        let peak = r.memory?.server_rss_peak_bytes?;
        Some(number::bytes(peak as f64))
    }),
    ("Per connection", |r| {
        r.memory
            .and_then(|m| m.per_connection_bytes)
            .map(number::bytes)
    }),
    ("Memory drift", |r| {
        r.memory
            .and_then(|m| m.drift_bytes)
            .map(|d| number::bytes(d as f64))
    }),
];

pub(super) const ABSENT: &str = "–";
const FULL_SPEED: &str = "full speed";

/// The offered part of the plan. It is not a throughput, so it has no column of its own.
fn offered_of_planned(result: &TestResult) -> Option<String> {
    let pace = result.pace.as_ref()?;
    let (offered, planned) = (pace.offered_per_s?, pace.planned_per_s?);
    Some(format!(
        "{} of {}/s",
        number::si(offered),
        number::si(planned)
    ))
}

/// The evidence of the confirmations: a sink that only answers pings offers no other evidence.
fn confirmed_by(result: &TestResult) -> Option<String> {
    let names: Vec<&str> = result.confirmed_by.iter().map(|by| by.as_str()).collect();
    (!names.is_empty()).then(|| names.join(" + "))
}

/// A share of the available processor time of a side.
fn share(share: Option<f64>) -> Option<String> {
    share.map(|share| format!("{:.0} %", share * 100.0))
}

fn latency(result: &TestResult, of: fn(&Latency) -> f64) -> Option<String> {
    result
        .latency_us
        .as_ref()
        .map(|latency| number::us(of(latency)))
}

fn skew(result: &TestResult, of: fn(&Latency) -> f64) -> Option<String> {
    let skew = result.fan_out.as_ref()?.skew_us.as_ref()?;
    Some(number::us(of(skew)))
}

/// A count that should be zero, if it is not.
fn found(result: &TestResult, of: fn(&FanOut) -> u64) -> Option<String> {
    let count = result.fan_out.as_ref().map(of)?;
    (count > 0).then(|| number::grouped(count))
}

fn per_connection(result: &TestResult) -> Option<String> {
    let streams = result.test == model::THROUGHPUT && result.connections > 0;
    let rate = result.rate_per_s.filter(|_| streams)?;
    Some(number::si(rate / result.connections as f64))
}

/// Processor time per confirmed message, or per connection if no messages were sent.
fn cpu_each(result: &TestResult, cpu_s: f64) -> Option<String> {
    Some(number::seconds(cpu_s / events(result)?))
}

/// The things on which the processor time of a result was spent: its confirmed messages, or its
/// handshakes.
pub(super) fn events(result: &TestResult) -> Option<f64> {
    let storm = result.test == model::CONNECTION_STORM;
    let connected = result.connected.filter(|_| storm);
    let count = result.messages.map(|m| m.confirmed).or(connected)?;
    (count > 0).then_some(count as f64)
}

fn about(test: &str) -> &'static str {
    match test {
        model::CONNECTION_STORM => {
            "Opens all connections as fast as possible; each counts once the server is ready for it."
        }
        model::CONNECT_LATENCY => {
            "From connect to ready, one connection after another in one process."
        }
        model::RAPID_RECONNECT => "Connects, authenticates and disconnects repeatedly.",
        model::PING_LATENCY => {
            "Every connection sends application pings, one after another, all connections at once."
        }
        model::THROUGHPUT => {
            "Every connection sends as fast as it can; a message counts once the server has \
             accounted for it."
        }
        model::SUSTAINED_THROUGHPUT => {
            "Throughput over a longer time, with the rate of each second."
        }
        model::SIZE_MATRIX => "Throughput for a range of payload sizes.",
        model::FORMAT_COMPARISON => "The same logical message in each wire format.",
        model::SUSTAINED_HOLD => "Holds the connections open, each with an occasional ping.",
        model::CONNECTION_LIMIT => {
            "Doubles the number of connections until one fails, then narrows the limit down."
        }
        model::FAN_OUT => {
            "One connection publishes, the others subscribe and check every publication that they receive."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Cpu, Machine, Messages, Target};

    fn section<'a>(results: &'a [TestResult], test: &'a str) -> Section<'a> {
        Section {
            test,
            about: "",
            results: results.iter().collect(),
        }
    }

    #[test]
    fn columns_without_a_value_are_left_out_and_single_gaps_marked() {
        let results = [
            TestResult {
                rate_per_s: Some(2e6),
                ..TestResult::new("throughput", 100)
            },
            TestResult::new("throughput", 1000),
        ];
        let table = section(&results, "throughput").figures();
        assert_eq!(
            table.header,
            [
                "Connections",
                "Confirmed msgs/s",
                "Per connection/s",
                "Verdict"
            ]
        );
        assert_eq!(table.rows[0], ["100", "2 M", "20 k", "valid"]);
        assert_eq!(table.rows[1], ["1,000", "–", "–", "valid"]);
        assert!(section(&results, "throughput").resources().is_none());
    }

    #[test]
    fn an_offered_count_is_never_shown_as_a_rate() {
        let result = TestResult {
            messages: Some(Messages {
                offered: 777,
                confirmed: 500,
                lost: 277,
                ..Default::default()
            }),
            duration_s: Some(1.0),
            cpu: Some(Cpu {
                client_s: 1.0,
                server_s: Some(0.5),
                ..Cpu::default()
            }),
            ..TestResult::new("throughput", 1)
        };
        let results = [result];
        let figures = section(&results, "throughput").figures();
        assert!(
            !figures.rows[0].contains(&"777".to_owned()),
            "{:?}",
            figures.rows
        );
        assert_eq!(figures.header, ["Connections", "Lost", "Verdict"]);
        let resources = section(&results, "throughput").resources().unwrap();
        let cell = |name| {
            let column = resources
                .header
                .iter()
                .position(|header| *header == name)
                .unwrap();
            resources.rows[0][column].as_str()
        };
        assert_eq!(cell("Offered"), "777");
        assert_eq!(cell("Server CPU each"), "1 ms");
        assert_eq!(cell("Client CPU each"), "2 ms");
    }

    #[test]
    fn sections_keep_the_order_of_the_run() {
        let target = Target {
            url: "ws://h/".into(),
            server: None,
            embedded: false,
        };
        let mut report = Report::new(Machine::default(), target);
        for test in ["b", "a", "b"] {
            report.results.push(TestResult::new(test, 1));
        }
        let sections = Section::all(&report);
        let names: Vec<_> = sections.iter().map(|s| (s.test, s.results.len())).collect();
        assert_eq!(names, [("b", 2), ("a", 1)]);
    }
}
