//! The outcome of an order in the form that travels.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::accounting::failure::{Failure, Failures};
use crate::accounting::fan_out::FanOutCounts;
use crate::accounting::outcome::{CpuTime, Opened, Ran, ServerFacts};
use crate::accounting::recorder::Recorder;
use crate::accounting::waits::Waits;
use crate::report::model::ReplyFaults;
use crate::verdict::evidence::PaceKept;

/// Latencies: a value in nanoseconds and how often it was measured, for each bucket that has any.
///
/// A value up to 2,047 is a bucket of its own. Above, each doubling has 1,024 buckets of equal width, so
/// that all values with the same leading eleven binary digits share a bucket. Any value of a bucket may
/// stand for it.
pub type Histogram = Vec<(u64, u64)>;

/// Failed connections of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// The kind, by the name in `docs/worker-contract.md`; another name counts as `other`.
    pub kind: String,
    /// The close code or HTTP status, where the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// Their number.
    pub count: u64,
}

/// The facts that the server has reported about itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Its `Server` header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Messages that one connection may send at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit_capacity: Option<u64>,
    /// Messages that one connection may send per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit_refill_per_s: Option<u64>,
}

/// The figures of one worker at one moment of an order.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveFigures {
    /// Connections that are open now.
    pub connected: u64,
    /// Connections that failed so far, in all orders.
    pub failed: u64,
    /// Messages written in this order, or connection attempts.
    pub offered: u64,
    /// Messages, round trips or connections that have been confirmed in this order.
    pub confirmed: u64,
    /// The 99th percentile of the latency so far, in nanoseconds; 0 while nothing is known.
    pub latency_p99_ns: u64,
    /// The time for which the process has not run since its start, though it wanted to, in nanoseconds.
    pub stopped_ns: u64,
    /// The process's processor time since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// The process's resident memory.
    pub rss_bytes: u64,
}

/// The outcome of opening connections. Times count from the run's zero.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenedFigures {
    /// Connection attempts.
    pub attempted: u64,
    /// Connections that are ready, or were.
    pub connected: u64,
    /// The others.
    pub failures: Vec<FailureCount>,
    /// From the start of TCP to readiness.
    pub latency: Histogram,
    /// The start of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_ns: Option<u64>,
    /// The readiness of the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// Processor time during the order.
    pub used: CpuTime,
    /// Waits for a core, in microseconds, each of a piece of about 50 ms.
    pub waits_us: Vec<u32>,
    /// The length of all those pieces.
    pub observed_ns: u64,
    /// The server.
    pub facts: Facts,
    /// The order was ended early.
    pub interrupted: bool,
    /// Connections without an attempt.
    pub untried: u64,
    /// Sentences for the report, of things that no figure shows.
    pub notes: Vec<String>,
    /// The worker's figures after the order.
    pub live: LiveFigures,
}

/// The outcome of an activity. Times count from the run's zero.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RanFigures {
    /// Whether each message needs an answer of its own.
    pub answered: bool,
    /// At full speed: the most unconfirmed bytes that a connection could have in flight.
    pub unconfirmed_bytes_max: u64,
    /// Connections that were members of the phase.
    pub members: u64,
    /// Those of them that broke.
    pub broken: Vec<FailureCount>,
    /// Connections that had broken since the previous order and were not members of this phase.
    pub broken_before: Vec<FailureCount>,
    /// Whole messages written.
    pub offered: u64,
    /// Messages that a pong or a reply has confirmed.
    pub confirmed: u64,
    /// The faults of the replies.
    pub replies: ReplyFaults,
    /// Pongs that answered no open ping.
    pub pongs_strange: u64,
    /// How a given rate was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<PaceKept>,
    /// From the time a message was due until it was written.
    pub late: Histogram,
    /// Messages that the server has refused, by the code of its error.
    pub refused: BTreeMap<String, u64>,
    /// Pings sent, also those that only confirm.
    pub pings_sent: u64,
    /// Answers to latency pings.
    pub pongs: u64,
    /// Pings without an answer.
    pub pongs_lost: u64,
    /// Messages received that answer nothing.
    pub unsolicited: u64,
    /// Latency from the planned time of a message.
    pub latency: Histogram,
    /// The same messages from the time at which they were written; only at a given rate.
    pub latency_sent: Histogram,
    /// The start of the activity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_ns: Option<u64>,
    /// The first confirmation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_confirmed_ns: Option<u64>,
    /// The last confirmation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_confirmed_ns: Option<u64>,
    /// The end of sending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_ns: Option<u64>,
    /// Confirmed messages and round trips in each whole quarter of a second from the start.
    pub windows: Vec<u64>,
    /// Of a fan-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fan_out: Option<FanOutCounts>,
    /// Processor time during the activity.
    pub used: CpuTime,
    /// Waits for a core, in microseconds, each of a piece of about 50 ms.
    pub waits_us: Vec<u32>,
    /// The length of all those pieces.
    pub observed_ns: u64,
    /// The server.
    pub facts: Facts,
    /// The activity was ended early by an interruption.
    pub interrupted: bool,
    /// Sentences for the report, of things that no figure shows.
    pub notes: Vec<String>,
    /// The worker's figures after the activity.
    pub live: LiveFigures,
}

impl From<&Opened> for OpenedFigures {
    fn from(opened: &Opened) -> Self {
        Self {
            attempted: opened.attempted,
            connected: opened.connected,
            failures: failures_out(&opened.failures),
            latency: opened.latency.buckets(),
            began_ns: opened.span_ns.map(|(began, _)| began),
            ended_ns: opened.span_ns.map(|(_, ended)| ended),
            used: opened.cpu,
            waits_us: opened.waits.pieces_us().to_vec(),
            observed_ns: opened.waits.observed_ns(),
            facts: opened.facts.clone().into(),
            interrupted: opened.interrupted,
            untried: opened.untried,
            notes: opened.notes.clone(),
            live: LiveFigures::default(),
        }
    }
}

impl From<OpenedFigures> for Opened {
    fn from(figures: OpenedFigures) -> Self {
        Self {
            attempted: figures.attempted,
            connected: figures.connected,
            failures: failures_in(&figures.failures),
            latency: Recorder::of_buckets(&figures.latency),
            span_ns: figures.began_ns.zip(figures.ended_ns),
            cpu: figures.used,
            waits: Waits::of(figures.waits_us, figures.observed_ns),
            facts: figures.facts.into(),
            interrupted: figures.interrupted,
            untried: figures.untried,
            notes: figures.notes,
        }
    }
}

impl From<&Ran> for RanFigures {
    fn from(ran: &Ran) -> Self {
        let mut refused: BTreeMap<String, u64> = ran.errors.clone();
        if ran.rate_limited > 0 {
            refused.insert(RATE_LIMITED.to_owned(), ran.rate_limited);
        }
        Self {
            answered: ran.answered,
            unconfirmed_bytes_max: ran.unconfirmed_bytes_max,
            members: ran.members,
            broken: failures_out(&ran.broken),
            broken_before: failures_out(&ran.broken_before),
            offered: ran.offered,
            confirmed: ran.confirmed,
            replies: ran.replies,
            pongs_strange: ran.pongs_strange,
            pace: ran.pace,
            late: ran.late.buckets(),
            refused,
            pings_sent: ran.pings_sent,
            pongs: ran.pongs,
            pongs_lost: ran.pongs_lost,
            unsolicited: ran.unsolicited,
            latency: ran.latency.buckets(),
            latency_sent: ran.latency_sent.buckets(),
            began_ns: ran.span_ns.map(|(began, _)| began),
            first_confirmed_ns: ran.first_confirmed_ns,
            last_confirmed_ns: ran.span_ns.map(|(_, last)| last),
            stopped_ns: ran.stopped_ns,
            windows: ran.windows.clone(),
            fan_out: ran.fan_out.as_deref().cloned(),
            used: ran.cpu,
            waits_us: ran.waits.pieces_us().to_vec(),
            observed_ns: ran.waits.observed_ns(),
            facts: ran.facts.clone().into(),
            interrupted: ran.interrupted,
            notes: ran.notes.clone(),
            live: LiveFigures::default(),
        }
    }
}

impl From<RanFigures> for Ran {
    fn from(figures: RanFigures) -> Self {
        let mut errors = figures.refused;
        let rate_limited = errors.remove(RATE_LIMITED).unwrap_or(0);
        Self {
            // The fleet knows it.
            sends: false,
            answered: figures.answered,
            unconfirmed_bytes_max: figures.unconfirmed_bytes_max,
            members: figures.members,
            broken: failures_in(&figures.broken),
            broken_before: failures_in(&figures.broken_before),
            offered: figures.offered,
            confirmed: figures.confirmed,
            replies: figures.replies,
            pongs_strange: figures.pongs_strange,
            pace: figures.pace,
            late: Recorder::of_buckets(&figures.late),
            rate_limited,
            errors,
            pings_sent: figures.pings_sent,
            pongs: figures.pongs,
            pongs_lost: figures.pongs_lost,
            unsolicited: figures.unsolicited,
            latency: Recorder::of_buckets(&figures.latency),
            latency_sent: Recorder::of_buckets(&figures.latency_sent),
            span_ns: figures.began_ns.zip(figures.last_confirmed_ns),
            first_confirmed_ns: figures.first_confirmed_ns,
            stopped_ns: figures.stopped_ns,
            cpu: figures.used,
            waits: Waits::of(figures.waits_us, figures.observed_ns),
            fan_out: figures.fan_out.map(Box::new),
            windows: figures.windows,
            facts: figures.facts.into(),
            per_worker: Vec::new(),
            interrupted: figures.interrupted,
            notes: figures.notes,
        }
    }
}

impl From<ServerFacts> for Facts {
    fn from(facts: ServerFacts) -> Self {
        Self {
            server: facts.server,
            version: facts.version,
            rate_limit_capacity: facts.rate_limit_capacity,
            rate_limit_refill_per_s: facts.rate_limit_refill_per_s,
        }
    }
}

impl From<Facts> for ServerFacts {
    fn from(facts: Facts) -> Self {
        Self {
            server: facts.server,
            version: facts.version,
            rate_limit_capacity: facts.rate_limit_capacity,
            rate_limit_refill_per_s: facts.rate_limit_refill_per_s,
        }
    }
}

fn failures_out(failures: &Failures) -> Vec<FailureCount> {
    let count = |(failure, count): (Failure, u64)| FailureCount {
        kind: failure.name().to_owned(),
        code: failure.code(),
        count,
    };
    failures.iter().map(count).collect()
}

fn failures_in(counts: &[FailureCount]) -> Failures {
    let mut failures = Failures::default();
    for one in counts {
        failures.add_many(Failure::of_name(&one.kind, one.code), one.count);
    }
    failures
}

/// The code of messages beyond a connection's rate.
const RATE_LIMITED: &str = "RATE_LIMITED";
