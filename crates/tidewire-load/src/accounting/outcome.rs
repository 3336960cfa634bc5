//! What came of connecting and of a phase: counts, times and latencies of one worker, merged into those of all.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::accounting::failure::Failures;
use crate::accounting::fan_out::FanOutCounts;
use crate::accounting::recorder::Recorder;
use crate::report::model::ReplyFaults;
use crate::verdict::evidence::PaceKept;

/// What came of opening connections.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// Connections that were tried.
    pub attempted: u64,
    /// Those that are ready.
    pub connected: u64,
    /// Those that are not.
    pub failures: Failures,
    /// From the start of TCP to readiness, for those that are ready.
    pub latency: Recorder,
    /// When the first began and the last was ready, in nanoseconds since the epoch.
    pub span_ns: Option<(u64, u64)>,
    /// Processor time of the workers' threads.
    pub cpu: CpuTime,
    /// What the server said about itself.
    pub facts: ServerFacts,
    /// The run was interrupted before all were tried.
    pub interrupted: bool,
    /// Connections that were not tried, as the run was interrupted or this machine can start no more.
    pub untried: u64,
}

impl Opened {
    /// Seconds from the first start to the last readiness.
    #[must_use]
    pub fn duration_s(&self) -> f64 {
        seconds(self.span_ns)
    }

    /// Adds what another worker, or a later order, has opened.
    pub fn merge(&mut self, other: &Self) {
        self.attempted += other.attempted;
        self.connected += other.connected;
        self.failures.merge(&other.failures);
        self.latency.merge(&other.latency);
        self.span_ns = joined(self.span_ns, other.span_ns);
        self.cpu.merge(other.cpu);
        self.interrupted |= other.interrupted;
        self.untried += other.untried;
        if other.facts != ServerFacts::default() {
            self.facts = other.facts.clone();
        }
    }
}

/// What came of a phase.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    /// Whether messages were to be sent.
    pub sends: bool,
    /// Whether each message was to have an answer of its own.
    pub answered: bool,
    /// At full speed: what a connection could have on its way unconfirmed, in bytes.
    pub unconfirmed_bytes_max: u64,
    /// Connections that took part.
    pub members: u64,
    /// Those of them that broke.
    pub broken: Failures,
    /// Connections that had broken since the phase before and took no part.
    pub broken_before: Failures,
    /// Whole messages written.
    pub offered: u64,
    /// Messages that a pong or a reply has proven read, those that the server has refused among them.
    pub confirmed: u64,
    /// What was wrong with replies.
    pub replies: ReplyFaults,
    /// Pongs that answered no open ping, also before the phase.
    pub pongs_strange: u64,
    /// How a given rate was kept; only when paced.
    pub pace: Option<PaceKept>,
    /// From the time a message was due until it was handed to its socket; only when paced.
    pub late: Recorder,
    /// Messages that a version 1 server has refused with `RATE_LIMITED`, as it says itself.
    pub rate_limited: u64,
    /// Messages that it has refused with other codes, by code.
    pub errors: BTreeMap<&'static str, u64>,
    /// Pings sent, of either kind, those that only confirm among them.
    pub pings_sent: u64,
    /// Answers to latency pings.
    pub pongs: u64,
    /// Pings that were never answered.
    pub pongs_lost: u64,
    /// Messages received that answer nothing.
    pub unsolicited: u64,
    /// Latency from the time a message was meant to leave.
    pub latency: Recorder,
    /// Of the same messages from the time they were handed to the operating system; only when paced.
    pub latency_sent: Recorder,
    /// The first start and the last confirmation, in nanoseconds since the epoch.
    pub span_ns: Option<(u64, u64)>,
    /// When the first confirmation came, in nanoseconds since the epoch.
    pub first_confirmed_ns: Option<u64>,
    /// When the sending ended, in nanoseconds since the epoch: as planned, or before.
    pub stopped_ns: Option<u64>,
    /// Processor time of the workers' threads.
    pub cpu: CpuTime,
    /// What came of a fan-out, if this was one: its `offered` and `confirmed` count deliveries.
    pub fan_out: Option<Box<FanOutCounts>>,
    /// What was confirmed, messages and round trips, in each whole [`WINDOW`] before the phase's end.
    pub windows: Vec<u64>,
    /// What the server has said about itself.
    pub facts: ServerFacts,
    /// The run was interrupted before the phase's own end.
    pub interrupted: bool,
}

impl Ran {
    /// Seconds from the start to the end of the sending or to the last confirmation, whichever is later.
    #[must_use]
    pub fn duration_s(&self) -> f64 {
        let sending = self.span_ns.zip(self.stopped_ns);
        let sending_s = seconds(sending.map(|((start, _), stopped)| (start, stopped)));
        seconds(self.span_ns).max(sending_s)
    }

    /// The seconds that a rate is over. In a closed loop that is [`Ran::duration_s`]. At a given rate it is
    /// the time planned, or one interval for each message if that is more; if the messages or their
    /// confirmations took longer than that, it is how long they took, without the time before the first,
    /// which is latency.
    #[must_use]
    pub fn rate_s(&self) -> f64 {
        let Some(pace) = self.pace else {
            return self.duration_s();
        };
        let last_ns = self.span_ns.map(|(_, last)| last);
        // A pong confirms all messages before it, so that the time before the first is not latency.
        let confirming_s = match self.answered {
            true => seconds(self.first_confirmed_ns.zip(last_ns)) + 1.0 / pace.planned_per_s,
            false => seconds(self.span_ns),
        };
        pace.window_s.max(pace.least_s()).max(confirming_s)
    }

    /// Why connections that had been opened did not live to the end of the phase.
    #[must_use]
    pub fn broken_since_opened(&self) -> Failures {
        let mut failures = self.broken_before.clone();
        failures.merge(&self.broken);
        failures
    }

    /// Messages that the server has refused, as it says itself.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.rate_limited + self.errors.values().sum::<u64>()
    }

    /// What was confirmed a second in each whole second.
    #[must_use]
    pub fn per_second(&self) -> Vec<f64> {
        let seconds = self.windows.chunks_exact(WINDOWS_PER_S);
        seconds
            .map(|windows| windows.iter().sum::<u64>() as f64)
            .collect()
    }

    /// Adds what another worker has done at the same time.
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
            *self.errors.entry(code).or_default() += count;
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
        if other.facts != ServerFacts::default() {
            self.facts = other.facts.clone();
        }
        if let Some(other) = &other.fan_out {
            self.fan_out.get_or_insert_default().merge(other);
        }
        // What ends first is complete up to there; a worker without connections has no part in it.
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

/// What the workers' threads had of the processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Processor time of all of them.
    pub total: Duration,
    /// Of the one that worked most. It is what limits a generator: others that idle do not help it.
    pub busiest: Duration,
    /// Time of all of them in a loop before the next message's time, which is in `total` and not in
    /// `busiest`: it is no work.
    pub spun: Duration,
    /// Time in which the one that waited longest was ready to run and had no core; `None` where the system
    /// does not tell.
    pub waited: Option<Duration>,
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

/// What a server has said about itself; each field absent until it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its `Server` header.
    pub server: Option<String>,
    /// Its version, from `server_ready`.
    pub version: Option<String>,
    /// Messages one connection may send at once, from `server_hello`.
    pub rate_limit_capacity: Option<u64>,
    /// Messages one connection may send each second, from `server_hello`.
    pub rate_limit_refill_per_s: Option<u64>,
}

fn joined(a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (known, None) | (None, known) => known,
    }
}

fn seconds(span_ns: Option<(u64, u64)>) -> f64 {
    span_ns.map_or(0.0, |(start, end)| end.saturating_sub(start) as f64 / 1e9)
}

/// The time over which confirmations are counted to see how steady a rate is.
pub const WINDOW: Duration = Duration::from_millis(250);

const WINDOWS_PER_S: usize = 4;
