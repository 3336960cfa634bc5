//! Evidence for a verdict: all counts and measurements of one test, as plain values.
//!
//! A lab in another language fills it in and receives a judgement by the same rules; therefore it
//! can be read from JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::model::{EndedConnections, GeneratorHealth, ReplyFaults};
use crate::verdict::account::Accounting;
use crate::verdict::usage::Usage;

/// The evidence of one test.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Evidence {
    /// The purpose of the test.
    pub aim: Aim,
    /// The counts of both sides.
    pub account: Accounting,
    /// The errors of the replies.
    pub replies: ReplyFaults,
    /// The errors of the deliveries of a fan-out.
    pub deliveries: DeliveryFaults,
    /// Pongs that answered no open ping.
    pub pongs_strange: u64,
    /// Messages that the server has refused, by its reason; [`RATE_LIMIT`] is the accepted reason.
    pub refused_by: BTreeMap<String, u64>,
    /// More messages may have been refused than the server has reported to the connections.
    pub refusals_in_doubt: bool,
    /// Why the server's counters could not be compared.
    pub counters_error: Option<String>,
    /// Connections that ended before the plan ended them, of a load.
    pub connections_ended: Vec<EndedConnections>,
    /// Requests of a load that had no answer when the time for the last answers was over.
    pub unanswered: u64,
    /// What failed of the requests of a load, in a sentence, if anything did.
    pub requests_failed: Option<String>,
    /// Why a service handled less than the planned rate.
    pub pace_cause: PaceCause,
    /// The test ended before its plan was complete.
    pub interrupted: bool,
    /// How well a given rate was kept; `None` in a closed loop.
    pub pace: Option<PaceKept>,
    /// Disturbances of the generator.
    pub generator: GeneratorHealth,
    /// Processor time of both sides.
    pub usage: Usage,
    /// Confirmed messages in each whole quarter of a second.
    pub windows: Vec<u64>,
    /// The 99th percentile of the reported latency, in microseconds, if there is one.
    pub latency_p99_us: Option<f64>,
}

/// The purpose of a test, which decides what makes its figure invalid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// The highest rate: a generator without processor time left is the limit, and a rate that
    /// varies is not a figure.
    Saturate,
    /// The time of round trips in a closed loop: a generator without processor time left adds to
    /// each of them.
    RoundTrips,
    /// A given rate, or connections that are held.
    #[default]
    Keep,
}

/// Deliveries of a fan-out that differ from the publications.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeliveryFaults {
    /// Publications that a subscriber missed although it received a later one.
    pub gaps: u64,
    /// Publications that arrived again, or after a later one.
    pub duplicates: u64,
    /// Messages whose content differs from the publication.
    pub wrong: u64,
    /// There were publications, and no subscriber received anything.
    pub unheard: bool,
}

/// Why requests that were due were not sent, although the generator was ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaceCause {
    /// The sockets accepted nothing more.
    #[default]
    SocketsFull,
    /// Every connection waited for a response.
    AllWaiting,
    /// The connection of each waited for a response.
    OwnWaiting,
    /// Connections had ended or could not be opened.
    ConnectionsGone,
}

impl PaceCause {
    /// The cause in words, and what to do.
    #[must_use]
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::SocketsFull => (
                "its sockets accepted no more",
                "Plan a lower rate to find one that it keeps.",
            ),
            Self::AllWaiting => (
                "every connection waited for a response",
                "Give more connections, or plan a lower rate.",
            ),
            Self::OwnWaiting => (
                "the connections waited for responses",
                "Allow more of them with --in-flight, or plan a lower rate.",
            ),
            Self::ConnectionsGone => (
                "connections had ended or could not be opened",
                "Look for the reason in the server's log.",
            ),
        }
    }
}

/// How well a given rate was kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PaceKept {
    /// Planned messages per second.
    pub planned_per_s: f64,
    /// At random times, not evenly.
    pub poisson: bool,
    /// Messages that were due in the time of the test.
    pub planned: u64,
    /// Messages that were due and that the generator had written to its queue, whether the socket
    /// accepted them or not.
    pub released: u64,
    /// Messages that were written.
    pub offered: u64,
    /// The time of the test.
    pub window_s: f64,
    /// From the start until the last message was written to the generator's queue.
    pub released_s: f64,
    /// From the start until the socket accepted the last message.
    pub offered_s: f64,
}

impl PaceKept {
    /// Messages written per second, over the time in which they were written or were due.
    #[must_use]
    pub fn offered_per_s(&self) -> f64 {
        let span_s = self.window_s.max(self.offered_s).max(self.least_s());
        if span_s > 0.0 {
            self.offered as f64 / span_s
        } else {
            0.0
        }
    }

    /// The shortest time for which a number of messages stands: one interval for each of an even
    /// pace. At random times the number is a matter of chance, but the time is at least one
    /// interval.
    #[must_use]
    pub fn least_s(&self) -> f64 {
        let intervals = if self.poisson { 1 } else { self.offered };
        intervals as f64 / self.planned_per_s
    }

    /// Whether this number of messages, the last one after this time, fulfils the plan.
    #[must_use]
    pub fn is_kept_by(&self, messages: u64, last_s: f64) -> bool {
        let enough = self.planned as f64 * (1.0 - PACE_MISSED_MAX);
        let late_s = self.window_s * PACE_MISSED_MAX + PACE_LATE_S_MAX;
        messages as f64 >= enough && last_s <= self.window_s + late_s
    }

    /// Adds another worker's part of the same test.
    pub fn merge(&mut self, other: &Self) {
        self.planned += other.planned;
        self.released += other.released;
        self.offered += other.offered;
        self.window_s = self.window_s.max(other.window_s);
        self.released_s = self.released_s.max(other.released_s);
        self.offered_s = self.offered_s.max(other.offered_s);
    }
}

/// The reason of refusals that a plan may provoke intentionally: the rate does not include them.
pub const RATE_LIMIT: &str = "rate";

/// A rate is missed when more than this part of the messages was not offered, or when the last one
/// was later than by this part of the time and [`PACE_LATE_S_MAX`].
pub const PACE_MISSED_MAX: f64 = 0.02;

/// The additional allowance for the last message of a plan, in seconds: a busy machine needs it for
/// a short test.
pub const PACE_LATE_S_MAX: f64 = 0.05;
