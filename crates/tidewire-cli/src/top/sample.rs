//! Samples: the statistics of a server at one moment.

use serde_json::{Map, Value};
use tidewire_load::report::printable::printable_line;

/// One answer of `/stats`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) version: String,
    pub(crate) process_id: u64,
    pub(crate) uptime_s: f64,
    pub(crate) ready: bool,
    pub(crate) shards: usize,
    /// The memory of the process, in bytes; `None` where the system does not report it.
    pub(crate) resident_bytes: Option<u64>,
    /// The time of processors that it has used; `None` where the system does not report it.
    pub(crate) cpu_s: Option<f64>,
    /// The bounds of all histograms, in seconds.
    bounds_s: Vec<f64>,
    /// The counts of each histogram, by its name.
    timings: Map<String, Value>,
    /// The counters of all shards, by name.
    total: Map<String, Value>,
    usage: Map<String, Value>,
    /// The busiest topics with or without subscribers, busiest first.
    pub(crate) topics: Vec<Topic>,
    /// The connections with the most waiting bytes, the largest first.
    pub(crate) slow: Vec<Slow>,
    /// The broker that it shares with other servers.
    pub(crate) broker: Option<Broker>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Broker {
    pub(crate) is_connected: bool,
    pub(crate) version: String,
    pub(crate) reason: String,
    /// The servers that share it, those with the most publications first.
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) version: String,
    pub(crate) connections: u64,
    pub(crate) topics: u64,
    pub(crate) publications_per_s: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) subscribers: u64,
    pub(crate) publications: u64,
    pub(crate) per_s: f64,
    /// The publications that its history keeps; `None` without one.
    pub(crate) kept: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Slow {
    pub(crate) connection: String,
    pub(crate) queued_bytes: u64,
    pub(crate) topics: u64,
}

impl Sample {
    /// Reads the body of an answer; `None` if it is not from a Tidewire server. Fields that an older
    /// server does not send are empty or zero.
    pub(crate) fn parse(body: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(body).ok()?;
        let total = value["total"]
            .as_object()
            .filter(|_| value["server"] == "tidewire")?;
        let list = |name: &str| value[name].as_array().cloned().unwrap_or_default();
        let topics = list("topics").iter().map(topic).collect();
        let slow = list("slow_connections").iter().map(slow).collect();
        Some(Self {
            version: text(&value["version"]),
            process_id: number(&value["process_id"]),
            uptime_s: value["uptime_s"].as_f64().unwrap_or_default(),
            ready: value["ready"] == true,
            shards: list("shards").len(),
            resident_bytes: value["resident_bytes"].as_u64(),
            cpu_s: value["cpu_seconds"].as_f64(),
            bounds_s: bounds(&value["timings"]["bounds_s"]),
            timings: value["timings"].as_object().cloned().unwrap_or_default(),
            total: total.clone(),
            usage: value["usage"].as_object().cloned().unwrap_or_default(),
            topics,
            slow,
            broker: value["broker"]
                .is_object()
                .then(|| broker(&value["broker"])),
        })
    }

    /// A counter of all shards.
    pub(crate) fn total(&self, name: &str) -> u64 {
        self.total.get(name).map_or(0, number)
    }

    /// The bound in seconds below which 99 of 100 durations of a histogram were since an earlier sample: infinite if that
    /// is above all bounds, `None` if there were no durations.
    pub(crate) fn bound_of_most(&self, name: &str, earlier: &Self) -> Option<f64> {
        let before = earlier.counts(name);
        let grown = self.counts(name).zip(before.chain(std::iter::repeat(0)));
        let grown: Vec<u64> = grown.map(|(now, then)| now.saturating_sub(then)).collect();
        let all: u64 = grown.iter().sum();
        let wanted = all - all / 100;
        let mut sum = 0;
        let place = grown.iter().position(|count| {
            sum += count;
            sum >= wanted && all > 0
        })?;
        Some(self.bounds_s.get(place).copied().unwrap_or(f64::INFINITY))
    }

    fn counts(&self, name: &str) -> impl Iterator<Item = u64> {
        let counts = self.timings.get(name).map(|timing| &timing["counts"]);
        let counts = counts.and_then(Value::as_array).into_iter().flatten();
        counts.map(number)
    }

    /// The memory of the topics.
    pub(crate) fn usage(&self, name: &str) -> u64 {
        self.usage.get(name).map_or(0, number)
    }
}

fn topic(value: &Value) -> Topic {
    Topic {
        name: text(&value["topic"]),
        subscribers: number(&value["subscribers"]),
        publications: number(&value["publications"]),
        per_s: value["per_s"].as_f64().unwrap_or_default(),
        kept: value["kept"].as_u64(),
    }
}

fn slow(value: &Value) -> Slow {
    Slow {
        connection: text(&value["connection"]),
        queued_bytes: number(&value["queued_bytes"]),
        topics: number(&value["topics"]),
    }
}

fn broker(value: &Value) -> Broker {
    let nodes = value["nodes"].as_array().into_iter().flatten();
    let mut nodes: Vec<Node> = nodes.map(node).collect();
    nodes.sort_by(|a, b| {
        let busiest = b.publications_per_s.cmp(&a.publications_per_s);
        busiest.then_with(|| a.name.cmp(&b.name))
    });
    Broker {
        is_connected: value["is_connected"] == true,
        version: text(&value["version"]),
        reason: text(&value["reason"]),
        nodes,
    }
}

fn node(value: &Value) -> Node {
    Node {
        name: text(&value["node"]),
        address: text(&value["address"]),
        version: text(&value["version"]),
        connections: number(&value["connections"]),
        topics: number(&value["topics"]),
        publications_per_s: number(&value["publications_per_s"]),
    }
}

fn bounds(value: &Value) -> Vec<f64> {
    let bounds = value.as_array().into_iter().flatten();
    bounds.filter_map(Value::as_f64).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Text from another machine, without characters that change the terminal or cannot be seen.
fn text(value: &Value) -> String {
    printable_line(value.as_str().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(counts: &str) -> Sample {
        let body = format!(
            r#"{{"server":"tidewire","total":{{}},"timings":{{"bounds_s":[0.001,0.01],"turn_duration":{{"counts":{counts}}}}}}}"#
        );
        Sample::parse(&body).unwrap()
    }

    #[test]
    fn a_bound_holds_for_99_of_100_durations_since_the_earlier_sample() {
        let before = sample("[500,0,9]");
        let bound = |counts| sample(counts).bound_of_most("turn_duration", &before);
        assert_eq!(bound("[500,0,9]"), None);
        assert_eq!(bound("[599,1,9]"), Some(0.001));
        assert_eq!(bound("[598,2,9]"), Some(0.01));
        assert_eq!(bound("[500,0,10]"), Some(f64::INFINITY));
        // A server of an earlier version has no histograms.
        assert_eq!(before.bound_of_most("other", &before), None);
        let older = Sample::parse(r#"{"server":"tidewire","total":{}}"#).unwrap();
        assert_eq!(older.bound_of_most("turn_duration", &older), None);
        assert_eq!((older.cpu_s, older.resident_bytes), (None, None));
    }
}
