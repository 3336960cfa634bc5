//! Orders: what workers are told to do, and what they answer with.

use std::iter::StepBy;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::accounting::outcome::{Opened, Ran};
use crate::worker::pace::Share;
use crate::worker::target::Target;
use crate::worker::websocket::fan_out::{FanOut, Tempo};
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::profile::Profile;
use crate::worker::websocket::ring::FrameRing;

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
    /// At full speed: what a connection may have on its way unconfirmed.
    pub(crate) unconfirmed_bytes_max: u64,
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

const HANDSHAKES_IN_FLIGHT_MAX: usize = 256;
