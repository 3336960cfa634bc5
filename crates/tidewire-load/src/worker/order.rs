//! Orders: commands to workers, and their answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::accounting::outcome::{Opened, Ran};
use crate::worker::pace::Share;
use crate::worker::target::Target;
use crate::worker::websocket::fan_out::{FanOut, Tempo};
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::payload::Encoding;
use crate::worker::websocket::profile::Profile;
use crate::worker::websocket::ring::FrameRing;

/// The state that all workers of a fleet share.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The destination of the connections.
    pub target: Target,
    /// The protocol of a session.
    pub profile: Profile,
    /// The layer of the messages. Default [`Layer::Plain`]. Activities need rings of the same
    /// layer.
    pub layer: Layer,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Connections that are opened at the same time, over all workers. Default 256.
    pub handshakes_in_flight_max: usize,
    /// Source addresses in turn; empty for the system's choice.
    pub sources: Arc<[IpAddr]>,
    /// The seed of masks, keys and pings.
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

/// The timeouts of the lab.
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

/// The activity of the open connections in a phase.
#[derive(Debug, Clone)]
pub enum Activity {
    /// Each connection sends an occasional ping, spread over the interval.
    Hold {
        /// Milliseconds between two pings of a connection.
        ping_every_ms: u64,
    },
    /// Each connection sends pings, the next when the previous one is answered.
    Pings {
        /// Pings of each connection; `u64::MAX` to continue until the phase is stopped.
        per_connection: u64,
    },
    /// Each connection sends frames as fast as the socket accepts them. Pings between the frames
    /// confirm them.
    Blast {
        /// The frames.
        ring: Arc<FrameRing>,
        /// Frames of each connection; `u64::MAX` to continue until the phase is stopped.
        per_connection: u64,
    },
    /// Frames at given times, on one connection after the other.
    Paced {
        /// The frames.
        ring: Arc<FrameRing>,
        /// The times, and the share of the messages that belongs to this worker.
        pace: Share,
        /// Whether the server answers each with a message, which confirms it and gives its latency.
        replies: bool,
    },
    /// Each connection keeps this number of messages in flight; every reply confirms one and
    /// releases the next.
    Window {
        /// The frames.
        ring: Arc<FrameRing>,
        /// Messages in flight on each connection.
        in_flight: u32,
        /// Messages of each connection; `u64::MAX` to continue until the phase is stopped.
        per_connection: u64,
    },
    /// Version 1: each connection but one subscribes to the topic of a fan-out; the remaining one
    /// will publish.
    Subscribe {
        /// The number of the publishing connection.
        publisher: usize,
    },
    /// One connection publishes, and the others receive.
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
            Self::Blast { ring, .. } | Self::Paced { ring, .. } | Self::Window { ring, .. } => {
                Some(ring)
            }
        }
    }

    /// The largest number of frames that a connection sends.
    #[must_use]
    pub fn frames_max(&self) -> u64 {
        match self {
            Self::Blast { per_connection, .. } | Self::Window { per_connection, .. } => {
                *per_connection
            }
            _ => u64::MAX,
        }
    }

    /// The number of frames that a connection may still send.
    #[inline]
    #[must_use]
    pub fn frames_left(&self, sent: u64) -> u64 {
        self.frames_max().saturating_sub(sent)
    }

    /// Whether the activity sends messages that must be accounted for.
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
    Connect(ConnectOrder),
    Run(Box<PhaseOrder>),
    /// Ends the current activity early, as if its time were over.
    Stop,
    /// Ends it at once, whatever is in flight.
    Abandon,
    Close,
    Quit,
}

#[derive(Debug)]
pub(crate) struct ConnectOrder {
    /// Numbers of the connections to open, in steps of the number of workers.
    pub(crate) numbers: Numbers,
    pub(crate) in_flight_max: usize,
    /// The format of the messages that the connections will send, for client libraries that agree on one.
    pub(crate) encoding: Encoding,
    /// Each connection is closed when it is ready, and opened again.
    pub(crate) again: Option<Again>,
}

/// Numbers of connections at equal distances. It is not a list, which would need memory for each connection
/// of a plan that no machine can carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The next one.
    pub first: usize,
    /// The end, which is not one of them.
    pub end: usize,
    /// From one to the next; at least 1.
    pub step: usize,
}

impl Numbers {
    /// How many are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end.saturating_sub(self.first).div_ceil(self.step)
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of part `index`, if `parts` parts receive the numbers in turn.
    #[must_use]
    pub fn part(&self, index: usize, parts: usize) -> Self {
        let first = self.first.saturating_add(index.saturating_mul(self.step));
        Self {
            first: first.min(self.end),
            end: self.end,
            step: self.step.saturating_mul(parts.max(1)),
        }
    }
}

impl Iterator for Numbers {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let next = self.first;
        (next < self.end).then(|| {
            self.first = next.saturating_add(self.step);
            next
        })
    }
}

/// How often connections are opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Again {
    /// How often each is opened; `None` until the time is over.
    pub rounds: Option<u64>,
    /// The time after which none is opened again.
    pub longest: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct PhaseOrder {
    pub(crate) activity: Activity,
    /// Time from the start of the phase to its end.
    pub(crate) longest: Option<Duration>,
    /// At full speed: the limit of the unconfirmed bytes that a connection may have in flight.
    pub(crate) unconfirmed_bytes_max: u64,
    /// The open connections of each worker, and the index of this worker among them.
    pub(crate) members: Arc<[u64]>,
    pub(crate) index: usize,
    /// Whether this worker has the publisher of a fan-out.
    pub(crate) publishes: bool,
}

/// The report of a worker about a completed command.
#[derive(Debug)]
pub(crate) enum WorkerReport {
    Opened(Box<Opened>),
    Ran(Box<Ran>),
    Closed,
    /// The event loop failed.
    Died(std::io::Error),
    /// A process has ended, or is as good as ended. The other workers go on.
    Ended {
        name: String,
        reason: String,
    },
}

/// Connections that are opened at the same time, if nothing else is asked for.
pub(crate) const HANDSHAKES_IN_FLIGHT_MAX: usize = 256;
