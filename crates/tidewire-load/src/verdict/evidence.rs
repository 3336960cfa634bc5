//! The evidence for a verdict: everything that was counted and measured of one test, as plain values.
//!
//! A lab in another language fills it in and has it judged by the same rules, so it can be read from JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::model::{GeneratorHealth, ReplyFaults};
use crate::verdict::account::Accounting;
use crate::verdict::usage::Usage;

/// What one test has shown.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Evidence {
    /// What the test is for.
    pub aim: Aim,
    /// What both sides have counted.
    pub account: Accounting,
    /// What was wrong with the replies.
    pub replies: ReplyFaults,
    /// What was wrong with the deliveries of a fan-out.
    pub deliveries: DeliveryFaults,
    /// Pongs that answered no open ping.
    pub pongs_strange: u64,
    /// Messages that the server has refused, by its reason; [`RATE_LIMIT`] is the one that is accepted.
    pub refused_by: BTreeMap<String, u64>,
    /// More messages may have been refused than the server has reported to the connections.
    pub refusals_in_doubt: bool,
    /// Why the server's counters could not be compared.
    pub counters_error: Option<String>,
    /// The test ended before its plan was done.
    pub interrupted: bool,
    /// How a given rate was kept; `None` in a closed loop.
    pub pace: Option<PaceKept>,
    /// Whether the generator could do its work.
    pub generator: GeneratorHealth,
    /// Processor time of both sides.
    pub usage: Usage,
    /// What was confirmed in each whole quarter of a second.
    pub windows: Vec<u64>,
    /// The 99th percentile of the latency that is shown, in microseconds, if there is one.
    pub latency_p99_us: Option<f64>,
}

/// What a test is for, which decides what spoils it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// The highest rate: a generator without processor time left is the limit, and a rate that varies is
    /// no figure.
    Saturate,
    /// The time of round trips in a closed loop: a generator without processor time left adds to each.
    RoundTrips,
    /// A given rate, or connections that are held.
    #[default]
    Keep,
}

/// Deliveries of a fan-out that are not what was published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeliveryFaults {
    /// Publications that a subscriber missed though it got a later one.
    pub gaps: u64,
    /// Publications that came again, or after a later one.
    pub duplicates: u64,
    /// Messages with another content than was published.
    pub wrong: u64,
    /// Something was published, and no subscriber got anything.
    pub unheard: bool,
}

/// How a given rate was kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PaceKept {
    /// Messages a second that were asked for.
    pub planned_per_s: f64,
    /// At random times, and not evenly.
    pub poisson: bool,
    /// Messages that were due in the time of the test.
    pub planned: u64,
    /// Messages that were due and that the generator had handed on, whether the socket took them or not.
    pub released: u64,
    /// Messages that were written.
    pub offered: u64,
    /// The time of the test.
    pub window_s: f64,
    /// From the start until the last message was handed on.
    pub released_s: f64,
    /// From the start until the last message was written.
    pub offered_s: f64,
}

impl PaceKept {
    /// Messages written in a second, over the time in which they were written or were to be.
    #[must_use]
    pub fn offered_per_s(&self) -> f64 {
        let span_s = self.window_s.max(self.offered_s).max(self.least_s());
        if span_s > 0.0 {
            self.offered as f64 / span_s
        } else {
            0.0
        }
    }

    /// The least time that so many messages stand for: an interval for each of an even pace. So many at random
    /// times are so many by chance, but less than one interval is no time.
    #[must_use]
    pub fn least_s(&self) -> f64 {
        let intervals = if self.poisson { 1 } else { self.offered };
        intervals as f64 / self.planned_per_s
    }

    /// Whether so many of the messages, the last after so long, are what was asked for.
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

/// The reason of refusals that a plan may provoke on purpose: they are left out of the rate.
pub const RATE_LIMIT: &str = "rate";

/// A rate is missed when more than this part of the messages was not offered, or when the last was later
/// than by this part of the time and [`PACE_LATE_S_MAX`].
pub const PACE_MISSED_MAX: f64 = 0.02;

/// What the last message of a plan may be late besides, in seconds: a busy machine needs it for a short test.
pub const PACE_LATE_S_MAX: f64 = 0.05;
