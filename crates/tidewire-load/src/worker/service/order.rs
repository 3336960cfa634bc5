//! Orders of a service load: the shared state of its workers, their commands, and their answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidewire_net::Address;

use crate::accounting::tally::Tally;
use crate::worker::jar::CookieOrigin;
use crate::worker::messages::MessagesSetup;
use crate::worker::pace::Share;
use crate::worker::script::Script;
use crate::worker::target::TargetTls;

/// The state that all workers of a service load share.
#[derive(Debug, Clone)]
pub struct ServiceSetup {
    /// The servers: first that of the URL, then the other hosts of a scenario. A user has at most one connection to
    /// each.
    pub targets: Vec<ServiceTarget>,
    /// The requests, and the checks of their answers.
    pub script: Arc<Script>,
    /// Users: each has one connection at a time to a server.
    pub users: usize,
    /// The threads among which they are divided.
    pub workers: usize,
    /// The start of each user.
    pub growth: Growth,
    /// Whether a connection is reused. Otherwise each request has one of its own.
    pub keeps_alive: bool,
    /// A connection is replaced after this many requests.
    pub requests_per_connection: Option<u64>,
    /// Requests in flight on each connection.
    pub in_flight: u32,
    /// Whether a connection that has ended, or that could not be opened, is replaced. HTTP needs it: a
    /// service may end a connection after any response.
    pub reconnects: bool,
    /// Whether an idempotent request is sent again when its reused connection is closed before the first
    /// byte of the response.
    pub retries: bool,
    /// Redirects to follow per request.
    pub redirects_max: u32,
    /// Timeouts.
    pub timeouts: ServiceTimeouts,
    /// Connections that are opened at the same time, over all workers.
    pub handshakes_in_flight_max: usize,
    /// Source addresses in turn; empty for the system's choice.
    pub sources: Arc<[IpAddr]>,
    /// The seed of random choices.
    pub seed: u64,
    /// The zero of every time in nanoseconds.
    pub epoch: Instant,
}

impl ServiceSetup {
    /// Nanoseconds since the epoch.
    #[must_use]
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// The server of the URL.
    #[must_use]
    pub fn own(&self) -> &ServiceTarget {
        &self.targets[0]
    }

    /// The sessions of the first server that speaks WebSocket.
    #[must_use]
    pub fn messages(&self) -> Option<&MessagesSetup> {
        self.targets
            .iter()
            .find_map(|target| match &target.dialogue {
                DialogueKind::Messages(messages) => Some(&**messages),
                DialogueKind::Http | DialogueKind::Http2 => None,
            })
    }

    /// Whether a server answers requests, as all do that speak HTTP.
    #[must_use]
    pub fn has_http(&self) -> bool {
        let mut targets = self.targets.iter();
        targets.any(|target| !matches!(target.dialogue, DialogueKind::Messages(_)))
    }

    /// The users that belong to the threads with these numbers.
    #[must_use]
    pub fn members(&self, threads: std::ops::Range<usize>) -> u64 {
        let each = threads.map(|number| (number..self.users).step_by(self.workers.max(1)));
        each.map(|users| users.len() as u64).sum()
    }

    /// The connections that the users of these threads may have open at the same time.
    #[must_use]
    pub fn connections_of(&self, threads: std::ops::Range<usize>) -> u64 {
        self.members(threads) * self.targets.len() as u64
    }

    /// The connections that may be open at the same time.
    #[must_use]
    pub fn connections_max(&self) -> u64 {
        self.connections_of(0..self.workers.max(1))
    }
}

/// A server, and how users speak to it.
#[derive(Debug, Clone)]
pub struct ServiceTarget {
    /// Host and port as the URL has them.
    pub authority: String,
    /// Its name in the scenario; empty for that of the URL.
    pub name: String,
    /// For a proxy that forwards its requests.
    pub forwarding: Forwarding,
    /// The destination of the connections.
    pub endpoint: Endpoint,
    /// The protocol.
    pub dialogue: DialogueKind,
    /// Whose cookies come back with later requests of the same user; `None` if none do.
    pub cookies: Option<CookieOrigin>,
}

impl ServiceTarget {
    /// The scheme of its requests over HTTP.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.endpoint.tls {
            Some(_) => "https",
            None => "http",
        }
    }
}

/// The protocol between users and a service.
#[derive(Debug, Clone)]
pub enum DialogueKind {
    /// HTTP/1.1.
    Http,
    /// HTTP/2, with a stream for each request.
    Http2,
    /// WebSocket.
    Messages(Arc<MessagesSetup>),
}

/// The additions to requests that a proxy forwards; empty without such a proxy.
#[derive(Debug, Clone, Default)]
pub struct Forwarding {
    /// The text before the path.
    pub prefix: String,
    /// Lines of headers that only the proxy gets.
    pub headers: Vec<u8>,
}

/// The destination of connections, and their start.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The address.
    pub address: Address,
    /// The time that the resolver needed for it; `None` if nothing had to be resolved.
    pub resolver_time: Option<Duration>,
    /// TLS; `None` for plain TCP.
    pub tls: Option<TargetTls>,
    /// The request to a proxy before TLS or the first request: a complete CONNECT request.
    pub tunnel: Option<Arc<[u8]>>,
}

/// The start of each user, counted from the start of the phase.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Growth {
    /// All of them before the phase begins.
    #[default]
    Before,
    /// This number per second.
    PerS(f64),
    /// Towards one number of users after another, each in its time, in a straight line.
    Stages(Arc<[(Duration, usize)]>),
}

impl Growth {
    /// The number of users that should be connected this long after the start.
    #[must_use]
    pub fn users_at(&self, elapsed: Duration, most: usize) -> usize {
        match self {
            Self::Before => most,
            Self::PerS(per_s) => ((elapsed.as_secs_f64() * per_s) as usize + 1).min(most),
            Self::Stages(stages) => {
                let (mut from, mut left) = (0, elapsed);
                for &(duration, to) in stages.iter() {
                    if left < duration {
                        let part = left.as_secs_f64() / duration.as_secs_f64();
                        let users = from as f64 + (to as f64 - from as f64) * part;
                        return (users.ceil() as usize).min(most);
                    }
                    left -= duration;
                    from = to;
                }
                from.min(most)
            }
        }
    }

    /// Whether all users exist from the beginning.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        *self == Self::Before
    }

    /// The next time to check the number of users, `elapsed` after the start.
    pub(crate) fn next_look(&self, elapsed: Duration, most: usize) -> Option<Duration> {
        match self {
            Self::Before => None,
            Self::PerS(per_s) => {
                let next = self.users_at(elapsed, most);
                (next < most).then(|| Duration::from_secs_f64(next as f64 / per_s))
            }
            Self::Stages(stages) => {
                let whole: Duration = stages.iter().map(|stage| stage.0).sum();
                (elapsed < whole).then_some(elapsed + STAGE_STEP)
            }
        }
    }
}

/// The timeouts of a service load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceTimeouts {
    /// For a connection, with TLS and the opening handshake. Default 10 s.
    pub connect_ms: u64,
    /// For a complete response, from the time of sending. Default 30 s.
    pub request_ms: u64,
    /// After the end of sending, for requests in flight. Default 2 s.
    pub drain_ms: u64,
}

impl Default for ServiceTimeouts {
    fn default() -> Self {
        Self {
            connect_ms: 10_000,
            request_ms: 30_000,
            drain_ms: 2_000,
        }
    }
}

/// The times at which requests leave.
#[derive(Debug, Clone)]
pub enum Tempo {
    /// The next when the previous one is answered.
    Closed,
    /// At given times, each on a connection that is free.
    Open(Share),
    /// At given times on each connection.
    Each {
        /// Requests per second on one connection.
        per_s: f64,
    },
}

/// The remaining requests, over all workers.
#[derive(Debug)]
pub struct Budget(AtomicU64);

impl Budget {
    /// This number.
    #[must_use]
    pub fn new(requests: u64) -> Self {
        Self(AtomicU64::new(requests))
    }

    /// Removes one request from the budget; false if none is left.
    pub(crate) fn take(&self) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok()
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// One phase, in the form for each worker.
#[derive(Debug, Clone)]
pub struct ServicePhase {
    /// The times at which requests leave.
    pub tempo: Tempo,
    /// The common start, in nanoseconds since the epoch.
    pub start_ns: u64,
    /// Time from the start to the end of sending.
    pub longest: Option<Duration>,
    /// Users whose connection has ended before begin again.
    pub revives: bool,
    /// Requests of all workers together.
    pub budget: Option<Arc<Budget>>,
    /// The load is over: users send only the steps of their teardown.
    pub is_teardown: bool,
}

impl ServicePhase {
    /// The time at which the request of this number, counted from 0, is due, in nanoseconds since
    /// the epoch; `u64::MAX` if it has no time of its own, or there is no such request.
    pub(crate) fn due_ns(&self, number: u64) -> u64 {
        match &self.tempo {
            Tempo::Open(share) => self.start_ns.saturating_add(share.intended_ns(number)),
            Tempo::Closed | Tempo::Each { .. } => u64::MAX,
        }
    }
}

/// A command to a worker of a service load.
#[derive(Debug)]
pub(crate) enum ServiceCommand {
    /// Opens the connections of all users and answers when each is ready or has failed.
    Connect,
    Run(Box<ServicePhase>),
    /// Ends sending as if its time were over.
    Stop,
    /// Ends everything at once.
    Abandon,
    /// Ends all connections.
    Close,
    Quit,
}

/// The answer of a worker to a completed command.
#[derive(Debug)]
pub(crate) enum ServiceReport {
    Connected(Box<Tally>),
    Done(Box<Tally>),
    Closed(Box<Tally>),
    /// The event loop failed.
    Died(std::io::Error),
    /// A worker that is a process has ended.
    Ended {
        name: String,
        reason: String,
    },
}

/// The interval at which the number of users is checked while it changes.
const STAGE_STEP: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn users_begin_at_their_rate() {
        let growth = Growth::PerS(10.0);
        let at = |seconds| growth.users_at(s(seconds), 25);
        assert_eq!((at(0.0), at(0.95), at(1.0), at(9.0)), (1, 10, 11, 25));
        assert_eq!(growth.next_look(s(0.95), 25), Some(s(1.0)));
        assert_eq!(growth.next_look(s(9.0), 25), None);
    }

    #[test]
    fn stages_lead_from_one_number_to_the_next() {
        let growth = Growth::Stages([(s(10.0), 100), (s(5.0), 100), (s(10.0), 0)].into());
        let at = |seconds| growth.users_at(s(seconds), 1000);
        assert_eq!((at(0.0), at(5.0), at(10.0), at(12.0)), (0, 50, 100, 100));
        assert_eq!((at(20.0), at(25.0), at(99.0)), (50, 0, 0));
        assert_eq!(growth.users_at(s(10.0), 30), 30);
    }

    #[test]
    fn a_budget_is_spent_once() {
        let budget = Budget::new(2);
        assert!(budget.take() && !budget.is_spent() && budget.take());
        assert!(budget.is_spent() && !budget.take());
    }
}
