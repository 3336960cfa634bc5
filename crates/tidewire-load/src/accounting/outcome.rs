//! Outcomes of connecting and of a phase: counts, times and latencies of one worker, merged into
//! those of all.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::accounting::failure::Failures;
use crate::accounting::fan_out::FanOutCounts;
use crate::accounting::recorder::Recorder;
use crate::accounting::waits::Waits;
use crate::report::model::ReplyFaults;
use crate::verdict::evidence::PaceKept;

/// The outcome of opening connections.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// Connection attempts.
    pub attempted: u64,
    /// Connections that are ready.
    pub connected: u64,
    /// Connections that are not.
    pub failures: Failures,
    /// From the start of TCP to readiness, of the ready connections.
    pub latency: Recorder,
    /// The start of the first and the readiness of the last, in nanoseconds since the epoch.
    pub span_ns: Option<(u64, u64)>,
    /// Processor time of the workers' threads.
    pub cpu: CpuTime,
    /// Their waits for a core.
    pub waits: Waits,
    /// The server's information about itself.
    pub facts: ServerFacts,
    /// The run was interrupted before all attempts.
    pub interrupted: bool,
    /// Connections without an attempt, because the run was interrupted or this machine can open no
    /// more.
    pub untried: u64,
    /// Sentences for the report, of things that no figure shows.
    pub notes: Vec<String>,
}

impl Opened {
    /// Seconds from the first start to the last readiness.
    #[must_use]
    pub fn duration_s(&self) -> f64 {
        seconds(self.span_ns)
    }

    /// Handshakes per second of this many connections; `None` if there are none.
    #[must_use]
    pub fn rate_per_s(&self, connections: u64) -> Option<f64> {
        let duration_s = self.duration_s();
        (connections > 0 && duration_s > 0.0).then(|| connections as f64 / duration_s)
    }

    /// Adds the connections of another worker, or of a later order.
    pub fn merge(&mut self, other: &Self) {
        self.attempted += other.attempted;
        self.connected += other.connected;
        self.failures.merge(&other.failures);
        self.latency.merge(&other.latency);
        self.span_ns = joined(self.span_ns, other.span_ns);
        self.cpu.merge(other.cpu);
        self.waits.merge(&other.waits);
        self.interrupted |= other.interrupted;
        self.untried += other.untried;
        add_notes(&mut self.notes, &other.notes);
        if other.facts != ServerFacts::default() {
            self.facts = other.facts.clone();
        }
    }
}

/// The outcome of a phase.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    /// Whether the phase sends messages.
    pub sends: bool,
    /// Whether each message needs an answer of its own.
    pub answered: bool,
    /// At full speed: the most unconfirmed bytes that a connection could have in flight.
    pub unconfirmed_bytes_max: u64,
    /// Connections that were members of the phase.
    pub members: u64,
    /// Those of them that broke.
    pub broken: Failures,
    /// Connections that had broken since the previous phase and were not members of this one.
    pub broken_before: Failures,
    /// Whole messages written.
    pub offered: u64,
    /// Messages that the server has read, as a pong or a reply proves, including those that it has
    /// refused.
    pub confirmed: u64,
    /// The errors of the replies.
    pub replies: ReplyFaults,
    /// Pongs that answered no open ping, also before the phase.
    pub pongs_strange: u64,
    /// How well a given rate was kept; only when paced.
    pub pace: Option<PaceKept>,
    /// From the time a message was due until it was written to its socket; only when paced.
    pub late: Recorder,
    /// Messages that a version 1 server has refused with `RATE_LIMITED`, by its own reports.
    pub rate_limited: u64,
    /// Messages that it has refused with other codes, by code.
    pub errors: BTreeMap<String, u64>,
    /// Pings sent, of either kind, including those that only confirm.
    pub pings_sent: u64,
    /// Answers to latency pings.
    pub pongs: u64,
    /// Pings that were never answered.
    pub pongs_lost: u64,
    /// Messages received that answer nothing.
    pub unsolicited: u64,
    /// Latency from the planned time of a message.
    pub latency: Recorder,
    /// Of the same messages from the time at which the operating system received them; only when
    /// paced.
    pub latency_sent: Recorder,
    /// The first start and the last confirmation, in nanoseconds since the epoch.
    pub span_ns: Option<(u64, u64)>,
    /// The time of the first confirmation, in nanoseconds since the epoch.
    pub first_confirmed_ns: Option<u64>,
    /// The end of sending, in nanoseconds since the epoch: as planned, or earlier.
    pub stopped_ns: Option<u64>,
    /// Processor time of the workers' threads.
    pub cpu: CpuTime,
    /// Their waits for a core.
    pub waits: Waits,
    /// The outcome of a fan-out, if this was one: its `offered` and `confirmed` count deliveries.
    pub fan_out: Option<Box<FanOutCounts>>,
    /// Confirmed messages and round trips in each whole [`WINDOW`] before the phase's end.
    pub windows: Vec<u64>,
    /// The server's information about itself.
    pub facts: ServerFacts,
    /// The rate of each worker; only where they are processes.
    pub per_worker: Vec<f64>,
    /// The run was interrupted before the phase's own end.
    pub interrupted: bool,
    /// Sentences for the report, of things that no figure shows.
    pub notes: Vec<String>,
}

impl Ran {
    /// Seconds from the start to the end of the sending or to the last confirmation, whichever is later.
    #[must_use]
    pub fn duration_s(&self) -> f64 {
        let sending = self.span_ns.zip(self.stopped_ns);
        let sending_s = seconds(sending.map(|((start, _), stopped)| (start, stopped)));
        seconds(self.span_ns).max(sending_s)
    }

    /// The seconds of a rate. In a closed loop they are [`Ran::duration_s`]. At a given rate they are the
    /// planned time, or one interval per message if that is more. If the messages or their confirmations
    /// needed longer, their time counts instead, without the time before the first one, which is latency.
    #[must_use]
    pub fn rate_s(&self) -> f64 {
        let Some(pace) = self.pace else {
            return self.duration_s();
        };
        let last_ns = self.span_ns.map(|(_, last)| last);
        // A pong confirms all messages before it, so that the time before the first pong is not
        // latency.
        let confirming_s = match self.answered {
            true => seconds(self.first_confirmed_ns.zip(last_ns)) + 1.0 / pace.planned_per_s,
            false => seconds(self.span_ns),
        };
        pace.window_s.max(pace.least_s()).max(confirming_s)
    }

    /// Confirmed messages, or round trips of a phase that sends none, per second.
    #[must_use]
    pub fn rate_per_s(&self) -> f64 {
        let seconds = self.rate_s();
        let done = if self.offered > 0 {
            self.confirmed
        } else {
            self.pongs
        };
        if seconds > 0.0 {
            done as f64 / seconds
        } else {
            0.0
        }
    }

    /// The reasons for which open connections did not live to the end of the phase.
    #[must_use]
    pub fn broken_since_opened(&self) -> Failures {
        let mut failures = self.broken_before.clone();
        failures.merge(&self.broken);
        failures
    }

    /// Messages that the server has refused, by its own reports.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.rate_limited + self.errors.values().sum::<u64>()
    }

    /// Confirmations per second in each whole second.
    #[must_use]
    pub fn per_second(&self) -> Vec<f64> {
        let seconds = self.windows.chunks_exact(WINDOWS_PER_S);
        seconds
            .map(|windows| windows.iter().sum::<u64>() as f64)
            .collect()
    }

    /// Adds the outcome of another worker at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.unconfirmed_bytes_max = self.unconfirmed_bytes_max.max(other.unconfirmed_bytes_max);
        self.members += other.members;
        self.answered |= other.answered;
        self.broken.merge(&other.broken);
        self.broken_before.merge(&other.broken_before);
        self.offered += other.offered;
        self.confirmed += other.confirmed;
        self.replies.merge(&other.replies);
        self.pongs_strange += other.pongs_strange;
        self.late.merge(&other.late);
        match (&mut self.pace, &other.pace) {
            (Some(pace), Some(other)) => pace.merge(other),
            (pace, other) => *pace = pace.or(*other),
        }
        self.rate_limited += other.rate_limited;
        for (code, count) in &other.errors {
            *self.errors.entry(code.clone()).or_default() += count;
        }
        self.pings_sent += other.pings_sent;
        self.pongs += other.pongs;
        self.pongs_lost += other.pongs_lost;
        self.unsolicited += other.unsolicited;
        self.latency.merge(&other.latency);
        self.latency_sent.merge(&other.latency_sent);
        self.span_ns = joined(self.span_ns, other.span_ns);
        self.first_confirmed_ns = match (self.first_confirmed_ns, other.first_confirmed_ns) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        self.stopped_ns = self.stopped_ns.max(other.stopped_ns);
        self.cpu.merge(other.cpu);
        self.waits.merge(&other.waits);
        if other.facts != ServerFacts::default() {
            self.facts = other.facts.clone();
        }
        add_notes(&mut self.notes, &other.notes);
        if let Some(other) = &other.fan_out {
            self.fan_out.get_or_insert_default().merge(other);
        }
        // The shorter series is complete up to its end; a worker without connections contributes
        // nothing.
        if self.windows.is_empty() {
            self.windows.clone_from(&other.windows);
        } else if !other.windows.is_empty() {
            self.windows.truncate(other.windows.len());
            for (sum, one) in self.windows.iter_mut().zip(&other.windows) {
                *sum += one;
            }
        }
    }
}

/// The processor time of the workers' threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Used", into = "Used")]
pub struct CpuTime {
    /// Processor time of all of them.
    pub total: Duration,
    /// Of the busiest thread. It limits a generator: idle threads do not help it.
    pub busiest: Duration,
    /// Time of all of them in a wait loop before the next message's time, which is in `total` and
    /// not in `busiest`: it is not work.
    pub spun: Duration,
    /// Time in which a thread was ready to run and had no core, of the thread that waited longest;
    /// `None` if the system does not provide it.
    pub waited: Option<Duration>,
}

/// The same in the form that travels.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
struct Used {
    total_ns: u64,
    busiest_ns: u64,
    spun_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ns: Option<u64>,
}

impl From<CpuTime> for Used {
    fn from(cpu: CpuTime) -> Self {
        let ns = |time: Duration| time.as_nanos() as u64;
        Self {
            total_ns: ns(cpu.total),
            busiest_ns: ns(cpu.busiest),
            spun_ns: ns(cpu.spun),
            waited_ns: cpu.waited.map(ns),
        }
    }
}

impl From<Used> for CpuTime {
    fn from(used: Used) -> Self {
        Self {
            total: Duration::from_nanos(used.total_ns),
            busiest: Duration::from_nanos(used.busiest_ns),
            spun: Duration::from_nanos(used.spun_ns),
            waited: used.waited_ns.map(Duration::from_nanos),
        }
    }
}

impl CpuTime {
    /// Of one thread.
    #[must_use]
    pub fn of_thread(time: Duration, spun: Duration, waited: Option<Duration>) -> Self {
        Self {
            total: time,
            busiest: time.saturating_sub(spun),
            spun: spun.min(time),
            waited,
        }
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: Self) {
        self.total += other.total;
        self.busiest = self.busiest.max(other.busiest);
        self.spun += other.spun;
        self.waited = self.waited.max(other.waited);
    }
}

/// The information that a server has given about itself; each field is absent until it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its `Server` header.
    pub server: Option<String>,
    /// Its version, from `server_ready`.
    pub version: Option<String>,
    /// Messages that one connection may send at once, from `server_hello`.
    pub rate_limit_capacity: Option<u64>,
    /// Messages that one connection may send per second, from `server_hello`.
    pub rate_limit_refill_per_s: Option<u64>,
}

/// Adds sentences of another worker, each once and not more than a reader wants.
fn add_notes(notes: &mut Vec<String>, more: &[String]) {
    for note in more {
        if notes.len() < NOTES_MAX && !notes.contains(note) {
            notes.push(note.clone());
        }
    }
}

const NOTES_MAX: usize = 20;

fn joined(a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (known, None) | (None, known) => known,
    }
}

fn seconds(span_ns: Option<(u64, u64)>) -> f64 {
    span_ns.map_or(0.0, |(start, end)| end.saturating_sub(start) as f64 / 1e9)
}

/// The time over which confirmations are counted to measure the steadiness of a rate.
pub const WINDOW: Duration = Duration::from_millis(250);

const WINDOWS_PER_S: usize = 4;
