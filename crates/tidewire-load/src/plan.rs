//! What workers are told to do, and what they report.

use std::collections::BTreeMap;
use std::iter::StepBy;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::evidence::{PaceKept, ReplyFaults};
use crate::failure::Failures;
use crate::fan_out::{FanOut, FanOutCounts, Tempo};
use crate::layer::Layer;
use crate::pace::Share;
use crate::profile::{Profile, ServerFacts};
use crate::recorder::Recorder;
use crate::ring::FrameRing;
use crate::target::Target;

/// What all workers of a fleet share.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where the connections go.
    pub target: Target,
    /// What a session says.
    pub profile: Profile,
    /// What is done to messages. Default [`Layer::Plain`]. Activities need rings of the same layer.
    pub layer: Layer,
    /// How long to wait for what.
    pub timeouts: Timeouts,
    /// Connections being opened at once, over all workers. Default 256.
    pub handshakes_in_flight_max: usize,
    /// Source addresses in turn; empty for the system's choice.
    pub sources: Arc<[IpAddr]>,
    /// What masks, keys and pings are drawn from.
    pub seed: u64,
    /// The zero of every time in nanoseconds.
    pub epoch: Instant,
}

impl Setup {
    /// The defaults for a target.
    #[must_use]
    pub fn new(target: Target, profile: Profile) -> Self {
        Self {
            target,
            profile,
            layer: Layer::Plain,
            timeouts: Timeouts::default(),
            handshakes_in_flight_max: HANDSHAKES_IN_FLIGHT_MAX,
            sources: Arc::new([]),
            seed: 0,
            epoch: Instant::now(),
        }
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

/// How long the lab waits before it gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, from TCP to the upgrade and `server_ready`. Default 10 s.
    pub connect_ms: u64,
    /// For the answer to a latency ping. Default 10 s.
    pub pong_ms: u64,
    /// For the confirmation of everything sent, after the last message. Default 30 s.
    pub barrier_ms: u64,
    /// For the answer to a close frame. Default 2 s.
    pub close_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect_ms: 10_000,
            pong_ms: 10_000,
            barrier_ms: 30_000,
            close_ms: 2_000,
        }
    }
}

/// What the open connections do in a phase.
#[derive(Debug, Clone)]
pub enum Activity {
    /// Each sends a ping now and then, spread over the interval.
    Hold {
        /// Milliseconds between two pings of a connection.
        ping_every_ms: u64,
    },
    /// Each sends pings, the next when the one before is answered.
    Pings {
        /// Pings of each connection; `u64::MAX` to go on until the phase is stopped.
        per_connection: u64,
    },
    /// Each sends frames as fast as the socket takes them. Pings between the frames confirm them.
    Blast {
        /// The frames.
        ring: Arc<FrameRing>,
    },
    /// Frames at given times, on one connection after the other.
    Paced {
        /// The frames.
        ring: Arc<FrameRing>,
        /// When, and which of the messages are this worker's.
        pace: Share,
        /// Whether the server answers each with a message, which confirms it and gives its latency.
        replies: bool,
    },
    /// Each keeps so many messages on their way; every reply confirms one and releases the next.
    Window {
        /// The frames.
        ring: Arc<FrameRing>,
        /// Messages on their way on each connection.
        in_flight: u32,
    },
    /// Version 1: each connection but one subscribes to the topic of a fan-out; that one will publish.
    Subscribe {
        /// The number of the connection that does not.
        publisher: usize,
    },
    /// One connection publishes, and the others get it.
    FanOut(Arc<FanOut>),
}

impl Activity {
    /// The frames that are sent, if any are.
    #[must_use]
    pub fn ring(&self) -> Option<&Arc<FrameRing>> {
        match self {
            Self::Hold { .. } | Self::Pings { .. } | Self::Subscribe { .. } | Self::FanOut(_) => {
                None
            }
            Self::Blast { ring } | Self::Paced { ring, .. } | Self::Window { ring, .. } => {
                Some(ring)
            }
        }
    }

    /// Whether messages are to be sent that have to be accounted for.
    #[must_use]
    pub fn sends(&self) -> bool {
        self.ring().is_some() || matches!(self, Self::FanOut(_))
    }

    /// Whether messages leave at given times.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        match self {
            Self::Paced { .. } => true,
            Self::FanOut(fan_out) => matches!(fan_out.tempo, Tempo::Paced { .. }),
            _ => false,
        }
    }

    /// Whether the server answers each message with one of its own.
    #[must_use]
    pub fn expects_replies(&self) -> bool {
        matches!(
            self,
            Self::Window { .. } | Self::Paced { replies: true, .. }
        )
    }
}

/// A command to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    Open(OpenOrder),
    Run(Box<PhaseOrder>),
    /// Ends what is being done early, as if its time had come.
    Stop,
    /// Ends it at once, whatever is on its way.
    Abandon,
    Close,
    Quit,
}

#[derive(Debug)]
pub(crate) struct OpenOrder {
    /// Numbers of the connections to open, in steps of the number of workers. Not a list, which for a plan
    /// that no machine can carry out would take memory for each.
    pub(crate) numbers: StepBy<Range<usize>>,
    pub(crate) in_flight_max: usize,
}

#[derive(Debug)]
pub(crate) struct PhaseOrder {
    pub(crate) activity: Activity,
    /// Time from the start of the phase to its end.
    pub(crate) longest: Option<Duration>,
}

/// What a worker reports when a command is done.
#[derive(Debug)]
pub(crate) enum Outcome {
    Opened(Box<Opened>),
    Ran(Box<Ran>),
    Closed,
    /// The event loop failed.
    Died(std::io::Error),
}

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

const HANDSHAKES_IN_FLIGHT_MAX: usize = 256;
