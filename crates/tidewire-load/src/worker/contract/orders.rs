//! Orders: the lines that a controller sends to a worker.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::load::{Load, Send};
use crate::worker::order::{self, Command, ConnectOrder, PhaseOrder, Setup};
use crate::worker::target::TokenPlace;
use crate::worker::websocket::fan_out::Tempo;
use crate::worker::websocket::ring::FrameRing;

/// A line from the controller.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Order {
    /// Asks for the worker's clock; answered at once with the same number. It is also the sign of life of
    /// the controller, once a second.
    Clock {
        /// The number of the question.
        id: u64,
    },
    /// The terms of a test, before its first connection. Not answered.
    Begin(Box<Begin>),
    /// Opens connections; answered with `opened`.
    Open(Open),
    /// Opens and closes connections again and again; answered with `opened`.
    Reconnect(Reconnect),
    /// Runs an activity on the open connections; answered with `ran`.
    Run(Box<Run>),
    /// During a fan-out, to the worker with the publisher: what all subscribers of the other workers
    /// have received.
    Progress {
        /// The number of the newest publication that all of them have.
        received: u64,
    },
    /// During a fan-out, to the workers without the publisher: nothing more will be published.
    Published {
        /// The number of the last publication.
        publications: u64,
    },
    /// The terms of a service load, before its first connection. Not answered.
    Load(Box<Load>),
    /// Opens the connections of all users of the load; answered with `counted`.
    Connect,
    /// Sends the requests of the load; answered with `counted`.
    Send(Box<Send>),
    /// Ends the current order early, as if its time were over; it is then answered as usual.
    Stop,
    /// Ends it at once, whatever is in flight.
    Abandon,
    /// Closes all connections; answered with `closed`.
    Close,
    /// Ends the worker.
    Quit,
}

/// The terms of a test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin {
    /// The version of the contract.
    pub contract: u32,
    /// The worker's clock at the zero of all times of the test, in nanoseconds; it may be negative.
    pub zero_clock_ns: i64,
    /// The server's URL with all that it may contain.
    pub url: String,
    /// The protocol of a session: `v1` or `raw`.
    pub profile: String,
    /// The layer of the messages: `plain`, `deflate` or `encryption`.
    pub layer: String,
    /// The name of the cookie that carries the token; without it the token is a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie_name: Option<String>,
    /// For `wss`: the certificate authorities to trust, in PEM; without them any certificate is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities_pem: Option<String>,
    /// Source addresses in turn over the numbers of connections; empty for the system's choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<std::net::IpAddr>,
    /// The seed of messages and random times.
    pub seed: u64,
    /// For a connection, from TCP until it is ready.
    pub connect_timeout_ms: u64,
    /// For the answer to a latency ping.
    pub pong_timeout_ms: u64,
    /// For the confirmation of everything sent, after the last message.
    pub barrier_timeout_ms: u64,
    /// For the answer to a close frame.
    pub close_timeout_ms: u64,
}

/// Connections to open.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Open {
    /// The number of the first.
    pub first: usize,
    /// The end of the numbers, which is not one of them.
    pub end: usize,
    /// The distance from one number to the next.
    pub step: usize,
    /// Connections that are opened at the same time.
    pub in_flight: usize,
    /// The format of the messages that the connections will send: `json`, `msgpack` or `zlib`.
    pub encoding: String,
    /// The token of each number, in order; empty for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<String>,
}

/// Connections that are closed as soon as they are ready.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Reconnect {
    /// The numbers of the connections, which are open at the same time, and their tokens.
    #[serde(flatten)]
    pub open: Open,
    /// How often each is opened; without it, until the time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// The time after which none is opened again, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<u64>,
}

/// An activity of the open connections.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// The time at which it begins.
    pub begin_ns: u64,
    /// From then to its end; without it, until its count is reached or it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<u64>,
    /// At full speed: the limit of the unconfirmed bytes that a connection may have in flight.
    pub unconfirmed_bytes_max: u64,
    /// The open connections of each worker.
    pub members: Vec<u64>,
    /// The index of this worker among them.
    pub index: usize,
    /// What the connections do.
    #[serde(flatten)]
    pub activity: Activity,
}

/// What the open connections do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "activity", rename_all = "snake_case")]
pub enum Activity {
    /// An occasional ping of each connection, spread over the interval.
    Hold {
        /// Between two pings of a connection.
        ping_every_ms: u64,
    },
    /// Pings, the next when the previous one is answered.
    Pings {
        /// Pings of each connection; without it, until the time is over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        per_connection: Option<u64>,
    },
    /// Messages as fast as the server accepts them, with pings between them that confirm them.
    Blast {
        /// The messages.
        message: Message,
        /// Messages of each connection; without it, until the time is over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        per_connection: Option<u64>,
    },
    /// Messages at given times, on one connection after the other.
    Paced {
        /// The messages.
        message: Message,
        /// Messages per second of all workers together.
        per_s: f64,
        /// At random times, not evenly.
        poisson: bool,
        /// The server answers each with the same message.
        replies: bool,
    },
    /// Messages that the server answers, each of which releases the next.
    Window {
        /// The messages.
        message: Message,
        /// Messages in flight on each connection.
        in_flight: u32,
        /// Messages of each connection; without it, until the time is over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        per_connection: Option<u64>,
    },
    /// Each connection but the publisher subscribes to the topic of a fan-out.
    Subscribe {
        /// The number of the publisher's connection.
        publisher: usize,
    },
    /// One connection publishes, the others receive.
    FanOut {
        /// Bytes of a publication.
        message_bytes: usize,
        /// The number of the publisher's connection.
        publisher: usize,
        /// Subscribers of all workers.
        subscribers: u64,
        /// Whether this worker has the publisher.
        publishes: bool,
        /// The number of each publication of which the spread over all subscribers is measured is a multiple
        /// of this one.
        milestone_every: u64,
        /// At full speed: publications that may be ahead of the slowest subscriber.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_flight: Option<u64>,
        /// At a given rate: publications per second.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        per_s: Option<f64>,
        /// At random times, not evenly.
        #[serde(default)]
        poisson: bool,
    },
}

/// The messages of an activity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// Bytes of the JSON form.
    pub json_bytes: usize,
    /// The form on the wire: `json`, `msgpack` or `zlib`.
    pub encoding: String,
    /// `trade`, or `trades`, which compress as real messages do.
    pub content: String,
}

impl Begin {
    /// The terms of a fleet. `zero_clock_ns` is the worker's clock at the zero of the fleet.
    #[must_use]
    pub fn of(setup: &Setup, zero_clock_ns: i64) -> Self {
        let (target, timeouts) = (&setup.target, setup.timeouts);
        Self {
            contract: super::CONTRACT,
            zero_clock_ns,
            url: target.whole_url(),
            profile: setup.profile.as_str().to_owned(),
            layer: setup.layer.as_str().to_owned(),
            cookie_name: match &target.token_place {
                TokenPlace::Bearer => None,
                TokenPlace::Cookie(name) => Some(name.clone()),
            },
            authorities_pem: target
                .tls
                .as_ref()
                .and_then(|tls| tls.authorities_pem.as_deref())
                .map(str::to_owned),
            sources: setup.sources.to_vec(),
            seed: setup.seed,
            connect_timeout_ms: timeouts.connect_ms,
            pong_timeout_ms: timeouts.pong_ms,
            barrier_timeout_ms: timeouts.barrier_ms,
            close_timeout_ms: timeouts.close_ms,
        }
    }
}

impl Order {
    /// A command in the form that travels.
    pub(crate) fn of(command: Command, setup: &Setup) -> Self {
        match command {
            Command::Connect(order) => Self::connect(&order, setup),
            Command::Run(order) => Self::Run(Box::new(Run::of(&order, setup))),
            Command::Stop => Self::Stop,
            Command::Abandon => Self::Abandon,
            Command::Close => Self::Close,
            Command::Quit => Self::Quit,
        }
    }

    fn connect(order: &ConnectOrder, setup: &Setup) -> Self {
        let numbers = order.numbers;
        let tokens = numbers.map_while(|number| setup.target.token.token(number));
        let open = Open {
            first: numbers.first,
            end: numbers.end,
            step: numbers.step,
            in_flight: order.in_flight_max,
            encoding: order.encoding.as_str().to_owned(),
            tokens: tokens.collect(),
        };
        match order.again {
            None => Self::Open(open),
            Some(again) => Self::Reconnect(Reconnect {
                open,
                rounds: again.rounds,
                longest_ms: again.longest.map(whole_ms),
            }),
        }
    }
}

impl Run {
    fn of(order: &PhaseOrder, setup: &Setup) -> Self {
        let head_start = match order.activity {
            order::Activity::FanOut(_) => FAN_OUT_HEAD_START,
            _ => HEAD_START,
        };
        Self {
            begin_ns: setup.now_ns() + head_start.as_nanos() as u64,
            longest_ms: order.longest.map(whole_ms),
            unconfirmed_bytes_max: order.unconfirmed_bytes_max,
            members: order.members.to_vec(),
            index: order.index,
            activity: Activity::of(order),
        }
    }
}

/// A number of each connection, unless it has no limit.
fn limited(per_connection: u64) -> Option<u64> {
    Some(per_connection).filter(|count| *count < u64::MAX)
}

impl Activity {
    fn of(order: &PhaseOrder) -> Self {
        match &order.activity {
            order::Activity::Hold { ping_every_ms } => Self::Hold {
                ping_every_ms: *ping_every_ms,
            },
            order::Activity::Pings { per_connection } => Self::Pings {
                per_connection: limited(*per_connection),
            },
            order::Activity::Blast {
                ring,
                per_connection,
            } => Self::Blast {
                message: Message::of(ring),
                per_connection: limited(*per_connection),
            },
            order::Activity::Paced {
                ring,
                pace,
                replies,
            } => Self::Paced {
                message: Message::of(ring),
                per_s: pace.per_s(),
                poisson: pace.is_poisson(),
                replies: *replies,
            },
            order::Activity::Window {
                ring,
                in_flight,
                per_connection,
            } => Self::Window {
                message: Message::of(ring),
                in_flight: *in_flight,
                per_connection: limited(*per_connection),
            },
            order::Activity::Subscribe { publisher } => Self::Subscribe {
                publisher: *publisher,
            },
            order::Activity::FanOut(plan) => {
                let (in_flight, per_s, poisson) = match &plan.tempo {
                    Tempo::Window(window) => (Some(*window), None, false),
                    Tempo::Paced { pace, per_s } => (None, Some(*per_s), pace.is_random()),
                };
                Self::FanOut {
                    message_bytes: plan.template.message_bytes(),
                    publisher: plan.publisher,
                    subscribers: plan.subscribers,
                    publishes: order.publishes,
                    milestone_every: plan.stride,
                    in_flight,
                    per_s,
                    poisson,
                }
            }
        }
    }
}

impl Message {
    fn of(ring: &FrameRing) -> Self {
        let payload = ring.payload();
        Self {
            json_bytes: payload.json_bytes,
            encoding: payload.encoding.as_str().to_owned(),
            content: payload.content.as_str().to_owned(),
        }
    }
}

fn whole_ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// All workers begin together: this long after the order is written.
const HEAD_START: Duration = Duration::from_millis(50);

/// The subscribers of a fan-out are ready before the publisher begins.
const FAN_OUT_HEAD_START: Duration = Duration::from_millis(200);
