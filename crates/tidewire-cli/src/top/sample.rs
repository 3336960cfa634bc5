//! Samples: the statistics of a server at one moment.

use serde_json::{Map, Value};

/// One answer of `/stats`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) version: String,
    pub(crate) process_id: u64,
    pub(crate) uptime_s: f64,
    pub(crate) ready: bool,
    pub(crate) shards: usize,
    /// The counters of all shards, by name.
    total: Map<String, Value>,
    usage: Map<String, Value>,
    /// The busiest topics, busiest first.
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

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Text from another machine, without control characters for the terminal.
fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}
