//! A measured phase: the counts of both sides, and the account of its messages.

use crate::accounting::generator::{GeneratorCores, Moment};
use crate::accounting::outcome::{Opened, Ran};
use crate::accounting::server::{ServerSample, ServerWatch};
use crate::accounting::stats::ServerCounts;
use crate::plan::sides::both_sides;
use crate::report::model::GeneratorHealth;
use crate::report::{ConfirmedBy, ResourceSample, TestResult};
use crate::verdict::account::Accounting;
use crate::verdict::evidence::{DeliveryFaults, RATE_LIMIT};
use crate::verdict::usage::Usage;

/// A phase and the server's figures for it.
pub(crate) struct Measured {
    pub(crate) ran: Ran,
    /// Processor time of all of the server's processes and of its busiest thread, in seconds.
    server_s: Option<(f64, f64)>,
    pub(crate) rss_bytes: Option<(u64, u64)>,
    /// The most memory of the server that was seen, ten times a second.
    pub(crate) rss_bytes_peak: Option<u64>,
    /// Processor and memory of both sides, once per second.
    pub(crate) resources: Vec<ResourceSample>,
    pub(crate) counts: Option<ServerCounts>,
    /// The reason why the requested counters did not arrive.
    pub(crate) counts_error: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) health: GeneratorHealth,
}

impl Measured {
    /// A phase, with the server before and after it.
    pub(super) fn new(ran: Ran, server: Option<(&ServerSample, &ServerSample)>) -> Self {
        Self {
            ran,
            server_s: server.map(|(before, after)| {
                let (all, busiest) = (after.cpu_since(before), after.busiest_since(before));
                (all.as_secs_f64(), busiest.as_secs_f64())
            }),
            rss_bytes: server.map(|(before, after)| (before.rss_bytes, after.rss_bytes)),
            rss_bytes_peak: None,
            resources: Vec::new(),
            counts: None,
            counts_error: None,
            usage: Usage::default(),
            health: GeneratorHealth::default(),
        }
    }

    /// Notes what both sides have had of the processor.
    pub(super) fn look_at_both(
        &mut self,
        cores: &GeneratorCores,
        server: &ServerWatch,
        started: &Moment,
        ended: &Moment,
    ) {
        let ran = &self.ran;
        (self.usage, self.health) = both_sides(
            ran.cpu,
            ran.duration_s(),
            self.server_s,
            (cores, server),
            (started, ended),
            (&ran.waits, &ran.late),
        );
    }

    /// Shows the round trips of a test whose pings are its measurement.
    pub(super) fn show_round_trips(&self, result: &mut TestResult) {
        let (pongs, duration_s) = (self.ran.pongs, self.ran.duration_s());
        result.rate_per_s = (pongs > 0 && duration_s > 0.0).then(|| pongs as f64 / duration_s);
        result.rate_series = self.ran.per_second();
    }

    /// Connections that were members of the phase and lived to its end.
    pub(super) fn living(&self) -> u64 {
        self.ran.members.saturating_sub(self.ran.broken.total())
    }

    pub(super) fn account(&self, opened: &Opened) -> Accounting {
        let ran = &self.ran;
        // Those that were not opened, that broke before this phase, and that broke in it.
        let failed = opened.attempted.saturating_sub(ran.members) + ran.broken.total();
        let account = Accounting {
            sends: ran.sends,
            offered: ran.offered,
            connections_attempted: opened.attempted,
            connections_failed: failed,
            pings_sent: ran.pings_sent,
            pongs_lost: ran.pongs_lost,
            ..Accounting::default()
        };
        if ran.fan_out.is_some() {
            // One of deliveries: N publications to N subscribers.
            return Accounting {
                sends: true,
                confirmed: ran.confirmed,
                delivered: self.counts.as_ref().and_then(|counts| counts.deliveries),
                pings_sent: 0,
                pongs_lost: 0,
                ..account
            };
        }
        let counts = self.counts.as_ref().filter(|_| ran.offered > 0);
        // Without its counters, only the server's reports to each connection are known.
        let told = Some(ran.refused()).filter(|&refused| refused > 0 && ran.offered > 0);
        let refused = counts.map(ServerCounts::refused).or(told);
        // A pong proves that refused messages were read as well; a reply proves nothing about a refused one.
        let not_delivered = if ran.answered { told } else { refused };
        Accounting {
            confirmed: ran.confirmed.saturating_sub(not_delivered.unwrap_or(0)),
            delivered: counts.map(|counts| counts.delivered),
            refused,
            ..account
        }
    }

    /// Messages refused, by the names of the server's counters and by the error codes that it sent.
    pub(super) fn refused_by(&self) -> std::collections::BTreeMap<String, u64> {
        let ran = &self.ran;
        if ran.offered == 0 || ran.fan_out.is_some() {
            return std::collections::BTreeMap::new();
        }
        let counted = self.counts.as_ref().map(|counts| counts.refused_by.clone());
        let mut refused_by =
            counted.unwrap_or_else(|| [(RATE_LIMIT.to_owned(), ran.rate_limited)].into());
        let told = ran.errors.iter();
        refused_by.extend(told.map(|(code, count)| (code.clone(), *count)));
        refused_by.retain(|_, count| *count > 0);
        refused_by
    }

    pub(super) fn confirmed_by(&self) -> Vec<ConfirmedBy> {
        let ran = &self.ran;
        let is_answered = ran.answered || ran.fan_out.is_some();
        let own = match is_answered {
            true => ConfirmedBy::Reply,
            false => ConfirmedBy::Pong,
        };
        let is_counted = ran.sends && self.counts.is_some();
        let counters = is_counted.then_some(ConfirmedBy::Counters);
        std::iter::once(own).chain(counters).collect()
    }

    pub(super) fn deliveries(&self) -> DeliveryFaults {
        let Some(counts) = &self.ran.fan_out else {
            return DeliveryFaults::default();
        };
        DeliveryFaults {
            gaps: counts.gaps,
            duplicates: counts.duplicates,
            wrong: counts.wrong,
            unheard: self.ran.confirmed == 0 && counts.published > 0,
        }
    }
}
