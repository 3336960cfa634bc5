//! The board: figures and tables, as text.

use super::sample::{Broker, Sample};
use std::fmt;
use std::time::Duration;

/// All figures of one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Board {
    /// The server and its uptime.
    pub(crate) title: String,
    /// Lines of figures with their names.
    pub(crate) figures: Vec<(&'static str, String)>,
    /// Names of the columns, then rows.
    pub(crate) topics: Vec<[String; 5]>,
    /// Names of the columns, then rows.
    pub(crate) slow: Vec<[String; 3]>,
    /// Names of the columns, then the servers that share a broker. Empty without one.
    pub(crate) nodes: Vec<[String; 5]>,
}

impl Board {
    /// Rates are over the time since `before`; without it they are missing.
    pub(crate) fn new(url: String, sample: &Sample, before: Option<(Duration, &Sample)>) -> Self {
        // A new process starts new counters.
        let before = before.filter(|(_, before)| before.process_id == sample.process_id);
        let rates = Rates { sample, before };
        let state = if sample.ready { "ready" } else { "draining" };
        let up = duration(sample.uptime_s);
        let Sample {
            version,
            process_id,
            shards,
            ..
        } = sample;
        Self {
            title: format!(
                "tidewire {version} at {url}, process {process_id}, {shards} shards, up {up}, {state}"
            ),
            figures: rates.figures(),
            topics: topics_of(sample),
            slow: slow_of(sample),
            nodes: nodes_of(sample),
        }
    }
}

struct Rates<'a> {
    sample: &'a Sample,
    before: Option<(Duration, &'a Sample)>,
}

impl Rates<'_> {
    fn figures(&self) -> Vec<(&'static str, String)> {
        let mut figures = vec![
            ("process", self.figures_of_process()),
            ("latency", self.figures_of_latency()),
        ];
        figures.extend(self.figures_of_work());
        figures.extend(self.figures_of_trouble());
        if let Some(broker) = &self.sample.broker {
            figures.push(("broker", self.figures_of_broker(broker)));
        }
        figures
    }

    fn figures_of_process(&self) -> String {
        let cpu = self.cpu_percent();
        let cpu = cpu.map_or("-".to_owned(), |percent| format!("{percent:.0} %"));
        let memory = self.sample.resident_bytes;
        let memory = memory.map_or("-".to_owned(), |bytes| format!("{}B", short(bytes as f64)));
        format!("{cpu} of a core, {memory} of memory")
    }

    /// The share of a core that the process has used; 200 are two cores.
    fn cpu_percent(&self) -> Option<f64> {
        let (passed, before) = self.before?;
        let used_s = self.sample.cpu_s? - before.cpu_s?;
        Some((used_s / passed.as_secs_f64().max(0.001) * 100.0).max(0.0))
    }

    /// The bounds that 99 of 100 durations stayed below.
    fn figures_of_latency(&self) -> String {
        let most = |name: &str| {
            let bound = self
                .before
                .map(|(_, before)| self.sample.bound_of_most(name, before));
            bound.flatten().map_or("-".to_owned(), within)
        };
        format!(
            "99 % of deliveries {}, handshakes {}, turns {}",
            most("publication_delivery_duration"),
            most("handshake_duration"),
            most("turn_duration"),
        )
    }

    fn figures_of_broker(&self, broker: &Broker) -> String {
        match broker.is_connected {
            true => format!("{} answers, {} servers", broker.version, broker.nodes.len()),
            false => format!("does not answer: {}", broker.reason),
        }
    }

    /// The activity of the server.
    fn figures_of_work(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "connections",
                format!(
                    "{} open, {}/s new",
                    self.now("connections_open"),
                    self.rate("handshakes_completed"),
                ),
            ),
            (
                "handshakes",
                format!(
                    "{}/s refused, {}/s timed out, {}/s failed in all",
                    self.rate_of(&REFUSALS),
                    self.rate("handshake_timeouts"),
                    self.rate("handshakes_failed"),
                ),
            ),
            (
                "messages",
                format!(
                    "{}/s in, {}/s out, {}B/s in, {}B/s out",
                    self.rate("messages_received"),
                    self.rate("messages_sent"),
                    self.rate("bytes_received"),
                    self.rate("bytes_sent"),
                ),
            ),
            (
                "topics",
                format!(
                    "{} with {} subscriptions, {}/s publications of clients, {}/s deliveries",
                    self.now("topics"),
                    self.now("subscriptions"),
                    self.rate("publications_received"),
                    self.rate("deliveries"),
                ),
            ),
            (
                "history",
                format!(
                    "{} topics, {}B, {} evicted, {}/s replayed",
                    self.usage("history_topics"),
                    self.usage("history_bytes"),
                    self.usage("histories_evicted"),
                    self.rate("publications_replayed"),
                ),
            ),
        ]
    }

    /// Waiting, dropped and refused messages.
    fn figures_of_trouble(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "waiting",
                format!(
                    "{}B to be delivered, {}/s pauses for slow readers",
                    self.usage("publication_backlog_bytes"),
                    self.rate("reading_pauses"),
                ),
            ),
            (
                "dropped",
                format!(
                    "{} ({}/s) of lagging subscriptions in {} gaps, {} expired, {} slow connections ended",
                    self.now("publications_dropped"),
                    self.rate("publications_dropped"),
                    self.now("gaps_reported"),
                    self.now("publications_expired"),
                    self.now("outbox_overflows"),
                ),
            ),
            (
                "refused",
                format!(
                    "{}/s by the rate limit, {}/s invalid, {}/s publications",
                    self.rate("messages_refused_rate"),
                    self.rate("messages_refused_invalid"),
                    self.rate("publications_refused"),
                ),
            ),
        ]
    }

    /// The current value of a counter.
    fn now(&self, name: &str) -> String {
        short(self.sample.total(name) as f64)
    }

    fn usage(&self, name: &str) -> String {
        short(self.sample.usage(name) as f64)
    }

    /// The rate of a counter, as text.
    fn rate(&self, name: &str) -> String {
        self.per_s(name).map_or("-".to_owned(), short)
    }

    /// The rate of several counters together, as text.
    fn rate_of(&self, names: &[&str]) -> String {
        let rates = names.iter().map(|name| self.per_s(name));
        rates.sum::<Option<f64>>().map_or("-".to_owned(), short)
    }

    fn per_s(&self, name: &str) -> Option<f64> {
        let (passed, before) = self.before?;
        let grown = self.sample.total(name).saturating_sub(before.total(name));
        Some(grown as f64 / passed.as_secs_f64().max(0.001))
    }
}

fn topics_of(sample: &Sample) -> Vec<[String; 5]> {
    let head = ["TOPIC", "PER S", "SUBSCRIBERS", "KEPT", "TOTAL"].map(str::to_owned);
    let rows = sample.topics.iter().map(|topic| {
        [
            topic.name.clone(),
            short(topic.per_s),
            short(topic.subscribers as f64),
            topic.kept.map_or("-".to_owned(), |kept| short(kept as f64)),
            short(topic.publications as f64),
        ]
    });
    std::iter::once(head).chain(rows).collect()
}

fn slow_of(sample: &Sample) -> Vec<[String; 3]> {
    let head = ["SLOW CONNECTION", "WAITING", "TOPICS"].map(str::to_owned);
    let rows = sample.slow.iter().map(|slow| {
        [
            slow.connection.clone(),
            format!("{}B", short(slow.queued_bytes as f64)),
            slow.topics.to_string(),
        ]
    });
    std::iter::once(head).chain(rows).collect()
}

fn nodes_of(sample: &Sample) -> Vec<[String; 5]> {
    let Some(broker) = &sample.broker else {
        return Vec::new();
    };
    let head = ["SERVER", "VERSION", "CONNECTIONS", "TOPICS", "PER S"];
    let rows = broker.nodes.iter().map(|node| {
        [
            match node.address.as_str() {
                "" => node.name.clone(),
                address => address.to_owned(),
            },
            node.version.clone(),
            short(node.connections as f64),
            short(node.topics as f64),
            short(node.publications_per_s as f64),
        ]
    });
    std::iter::once(head.map(str::to_owned))
        .chain(rows)
        .collect()
}

impl fmt::Display for Board {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.title)?;
        for (name, figures) in &self.figures {
            writeln!(out, "{name:<12} {figures}")?;
        }
        writeln!(out)?;
        for [topic, per_s, subscribers, kept, total] in &self.topics {
            writeln!(
                out,
                "{topic:<22} {per_s:>8} {subscribers:>11} {kept:>7} {total:>8}"
            )?;
        }
        if self.slow.len() > 1 {
            writeln!(out)?;
            for [connection, waiting, topics] in &self.slow {
                writeln!(out, "{connection:<40} {waiting:>10} {topics:>8}")?;
            }
        }
        if !self.nodes.is_empty() {
            writeln!(out)?;
        }
        for [server, version, connections, topics, per_s] in &self.nodes {
            writeln!(
                out,
                "{server:<21} {version:<8} {connections:>11} {topics:>8} {per_s:>8}"
            )?;
        }
        Ok(())
    }
}

/// Three digits or so, with k, M or G.
pub(crate) fn short(number: f64) -> String {
    for (size, letter) in [(1e9, "G"), (1e6, "M"), (1e4, "k")] {
        if number >= size {
            let scale = if letter == "k" { 1e3 } else { size };
            return format!("{:.1}{letter}", number / scale);
        }
    }
    if number >= 100.0 || number.fract() < 0.05 {
        format!("{number:.0}")
    } else {
        format!("{number:.1}")
    }
}

/// A bound of a histogram, in seconds.
fn within(bound_s: f64) -> String {
    if bound_s.is_infinite() {
        return "over 10 s".to_owned();
    }
    let micros = bound_s * 1e6;
    let (number, unit) = match micros {
        ..1e3 => (micros, "µs"),
        1e3..1e6 => (micros / 1e3, "ms"),
        _ => (bound_s, "s"),
    };
    format!("{} {unit}", short(number))
}

/// Days, hours and minutes, or seconds.
fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, _) => format!("{minutes} min {rest} s"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Counters of handshakes that the server refused. Others fail because the peer goes, is too slow or violates a protocol.
const REFUSALS: [&str; 4] = [
    "connections_rejected_full",
    "host_rejections",
    "origin_rejections",
    "auth_failures",
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A server after `deliveries` of them.
    pub(crate) fn sample(process_id: u64, deliveries: u64) -> Sample {
        let body = format!(
            r#"{{"server":"tidewire","version":"1.2.3","process_id":{process_id},"uptime_s":3725.5,"ready":true,
                "shards":[{{}},{{}}],
                "resident_bytes":123400000,"cpu_seconds":{deliveries}e-3,
                "timings":{{"bounds_s":[0.00025,0.0025],"handshake_duration":{{"counts":[0,{deliveries},0]}},
                  "publication_delivery_duration":{{"counts":[{deliveries},0,0]}},
                  "turn_duration":{{"counts":[0,0,{deliveries}]}}}},
                "total":{{"connections_open":12345,"deliveries":{deliveries},"handshake_timeouts":{deliveries},
                  "auth_failures":{deliveries},"origin_rejections":{deliveries}}},
                "usage":{{"history_bytes":2500000}},
                "topics":[{{"topic":"orders.eu\u001b[2J","subscribers":7,"publications":9,"per_s":3.25}},
                  {{"topic":"nobody.listens","subscribers":0,"publications":4711,"per_s":2,"kept":64}}],
                "slow_connections":[{{"connection":"0-17","queued_bytes":70000,"topics":2}}],
                "broker":{{"is_connected":true,"version":"7.0.15","reason":null,"nodes":[
                  {{"node":"00000000000000aa","address":"10.0.0.1:5006","version":"1.2.3","connections":12,"topics":3,
                    "publications_received":99,"publications_per_s":17}},
                  {{"node":"00000000000000bb","address":"10.0.0.2:5006\u001b","version":"1.2.3","connections":40500,
                    "topics":3,"publications_received":99,"publications_per_s":23456}}]}}}}"#
        );
        Sample::parse(&body).unwrap()
    }

    #[test]
    fn rates_are_over_the_time_that_has_passed() {
        let (before, after) = (sample(1, 1_000), sample(1, 5_000));
        let passed = Duration::from_secs(2);
        let text = Board::new("URL".to_owned(), &after, Some((passed, &before))).to_string();
        for words in [
            "tidewire 1.2.3 at URL, process 1, 2 shards, up 1 h 2 min, ready\n",
            "12.3k open",
            "2000/s deliveries",
            "2.5MB",
            "0-17",
            "70.0kB",
            "7.0.15 answers, 2 servers",
            "process      200 % of a core, 123.4MB of memory\n",
            "latency      99 % of deliveries 250 µs, handshakes 2.5 ms, turns over 10 s\n",
            "handshakes   4000/s refused, 2000/s timed out, 0/s failed in all\n",
            "nobody.listens                2           0      64     4711\n",
            "10.0.0.1:5006         1.2.3 ",
            "40.5k",
            "23.5k",
        ] {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        assert!(
            text.contains("orders.eu\\u{1b}[2J"),
            "letters that steer the terminal: {text:?}"
        );
        assert!(!text.contains('\u{1b}'));
        let place = |words: &str| text.find(words).expect("a server");
        assert!(
            place("10.0.0.2:5006") < place("10.0.0.1:5006"),
            "the busiest is first"
        );
    }

    #[test]
    fn without_a_look_before_and_after_a_restart_there_are_no_rates() {
        let (before, after) = (sample(1, 1_000), sample(2, 5_000));
        let passed = Duration::from_secs(2);
        for before in [None, Some((passed, &before))] {
            let text = Board::new("URL".to_owned(), &after, before).to_string();
            for words in [
                "-/s deliveries",
                "process      - of a core",
                "deliveries -, handshakes -",
            ] {
                assert!(text.contains(words), "no {words:?} in {text}");
            }
        }
    }

    #[test]
    fn another_server_is_not_read() {
        assert_eq!(Sample::parse("{}"), None);
        assert_eq!(Sample::parse("<html>"), None);
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.25, "0.2"),
            (7.0, "7"),
            (999.9, "1000"),
            (9_999.0, "9999"),
            (12_345.0, "12.3k"),
            (1_500_000.0, "1.5M"),
            (2.5e9, "2.5G"),
        ];
        for (number, expected) in cases {
            assert_eq!(short(number), expected, "{number}");
        }
        assert_eq!(
            (duration(59.9), duration(90_000.0)),
            ("59 s".to_owned(), "1 d 1 h".to_owned())
        );
    }
}
