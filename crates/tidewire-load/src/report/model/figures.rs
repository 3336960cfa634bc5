//! The figures of a test, in groups.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Messages counted on both sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// Written by the generator.
    pub offered: u64,
    /// Read by the server, as a pong or an answer proves, and not refused.
    pub confirmed: u64,
    /// Passed to the application, by the server's own counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<u64>,
    /// Refused with a reason, by the server's own counter or otherwise by its reports to the
    /// connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    /// Offered and neither confirmed nor refused.
    pub lost: u64,
}

/// How the messages of a test were paced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Whether a message waits for the answer to another, or for its time.
    #[serde(rename = "loop")]
    pub kind: LoopKind,
    /// Closed loop with replies: messages in flight on each connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Closed loop at full speed: the most unconfirmed bytes that a connection could have in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed_bytes_max: Option<u64>,
    /// Open loop: planned messages per second, over all connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_per_s: Option<f64>,
    /// Open loop: written messages per second. This figure describes the generator; it is not a
    /// throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_per_s: Option<f64>,
    /// Open loop: at random times, as independent users send.
    #[serde(default)]
    pub poisson: bool,
}

/// The event for which a message waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopKind {
    /// Room: an answer or a confirmation.
    #[default]
    Closed,
    /// Its planned time.
    Open,
}

/// The evidence of a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmedBy {
    /// A pong that the server sent after it had read the message.
    Pong,
    /// A reply with the content of the message, compared by the generator.
    Reply,
    /// The server's own counters, compared with the messages written.
    Counters,
}

impl ConfirmedBy {
    /// The value in a report.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pong => "pong",
            Self::Reply => "reply",
            Self::Counters => "counters",
        }
    }
}

/// Pings written, of the application or of WebSocket, and their results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pings {
    /// Pings written.
    pub sent: u64,
    /// Pings that were never answered.
    pub lost: u64,
    /// Pongs that answered no open ping.
    pub strange: u64,
}

/// Where a latency's clock starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencyOrigin {
    /// When the message was written.
    #[default]
    Sent,
    /// When the message was due, so that a stall of the generator's own queue counts.
    Intended,
    /// When the first of all receivers had received it.
    FirstReceived,
}

/// A latency distribution; every time in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Where the clock starts.
    pub origin: LatencyOrigin,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// 99.99th percentile; with fewer than 10,000 values it is the maximum.
    pub p99_99: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub stdev: f64,
    /// Number of values.
    pub count: u64,
    /// `[percentile from 0 to 100, microseconds]`, ascending, for a plot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<(f64, f64)>,
}

/// How a rate is divided among the processes of a generator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Processes {
    /// The number of processes.
    pub count: u64,
    /// The rate of each.
    pub rates_per_s: Vec<f64>,
    /// Their mean.
    pub mean_per_s: f64,
    /// The rate of the run with one process, in a comparison of several numbers of processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_per_s: Option<f64>,
    /// The rate as a percentage of `count` times `alone_per_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_percent: Option<f64>,
}

/// The connections that survived a hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Survival {
    /// Connections still open and answering at the end.
    pub survived: u64,
    /// The same as a percentage of those that were opened, 0 to 100.
    pub percent: f64,
}

/// Outcome of the search for the largest number of connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionLimit {
    /// The largest number that was opened and held without a failure.
    pub largest_stable: u64,
    /// The failure beyond it.
    pub stopped_by: StoppedBy,
    /// Every number that was tried, in order; empty in reports of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<LimitProbe>,
}

/// One number of connections that a search for their limit has tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitProbe {
    /// How the search chose it.
    pub phase: LimitPhase,
    /// Requested connections.
    pub connections: u64,
    /// Connections that were opened.
    pub connected: u64,
    /// True if every connection was opened, was held and answered a ping.
    pub stable: bool,
    /// Handshakes per second. Absent if no connection was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Connections that could not be opened or were lost, by the name of the failure.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// Addresses that the connections came from.
    pub source_addresses: u32,
}

/// How a search for the limit of connections chooses the next number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitPhase {
    /// Twice the last one, as long as nothing has failed.
    Doubling,
    /// The middle between the largest stable one and the smallest that failed.
    Narrowing,
}

/// The reason for the end of the search for more connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoppedBy {
    /// The server refused, closed or did not answer.
    Server,
    /// The limit of open files, of either side.
    OpenFiles,
    /// No source port was left.
    Ports,
    /// Memory ran short.
    Memory,
    /// Nothing failed: the plan's own maximum was reached.
    Plan,
}

/// The publications of a fan-out and the errors that its subscribers found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FanOut {
    /// Publications due per second; absent at full speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publications_per_s: Option<f64>,
    /// Publications that could be ahead of the slowest subscriber; only at full speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Publications written.
    pub publications: u64,
    /// Publications that a subscriber had not received when it received a later one, over all
    /// subscribers.
    pub gaps: u64,
    /// Publications that a subscriber received again, or after a later one.
    pub duplicates: u64,
    /// Messages whose content differs from the publication, or whose offset is not consecutive.
    pub wrong: u64,
    /// From the first to the last subscriber of a publication; at full speed, of a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew_us: Option<Latency>,
}

/// Processor time, user and system together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Seconds used by the generator's threads.
    pub client_s: f64,
    /// The part of `client_s` that was spent in a loop before the next message's time, which is not
    /// work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_spin_s: Option<f64>,
    /// The used share of the generator's available processor time, from 0 to about 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_share: Option<f64>,
    /// Cores that the generator may use, fewer if a quota limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cores: Option<f64>,
    /// Seconds used by the server's processes, when they run on the same machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_s: Option<f64>,
    /// The used share of the server's available processor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_share: Option<f64>,
    /// Cores that the server may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cores: Option<f64>,
    /// Cores that both may use, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_cores: Option<f64>,
}

/// Memory of both sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident memory with all connections open.
    pub server_rss_bytes: u64,
    /// The highest resident memory during the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_rss_peak_bytes: Option<u64>,
    /// Growth over the server without connections, divided by the number of connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_connection_bytes: Option<f64>,
    /// Resident memory at the end of a hold minus that at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_bytes: Option<i64>,
    /// The lowest resident memory during the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_rss_min_bytes: Option<u64>,
    /// Resident memory after all connections were closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_rss_closed_bytes: Option<u64>,
    /// Resident memory of the generator with all connections open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_rss_bytes: Option<u64>,
    /// Growth of the generator over itself without connections, divided by the number of connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_per_connection_bytes: Option<f64>,
    /// The highest resident memory of the generator during the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_rss_peak_bytes: Option<u64>,
    /// The lowest resident memory of the generator during the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_rss_min_bytes: Option<u64>,
    /// Resident memory of the generator after all connections were closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_rss_closed_bytes: Option<u64>,
}
