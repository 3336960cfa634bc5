//! The figures of a load for its expectations: those of the whole load, of its connections, and of each
//! request that an expectation names.

use std::collections::BTreeMap;

use super::Loading;
use super::conclude::results_of;
use crate::accounting::connect_times::ConnectTimes;
use crate::accounting::ended::EndedCounts;
use crate::accounting::recorder::Recorder;
use crate::accounting::tally::{StepTally, Tally};
use crate::report::TestResult;
use crate::verdict::expectation::{ConnectPart, Expectation, Figures, Part};

/// The counts of the requests of one name.
struct OfName {
    counts: StepTally,
    latency: Recorder,
    statuses: BTreeMap<u16, u64>,
}

impl OfName {
    /// `each_per_s` is the rate that one success stands for.
    fn figures(&self, each_per_s: f64) -> Figures<'_> {
        let requests = &self.counts.requests;
        Figures {
            latency: Some(&self.latency),
            succeeded: Some(&self.counts.latency),
            rate_per_s: Some(requests.succeeded as f64 * each_per_s),
            errors: Some(Part {
                count: requests.unsuccessful(),
                of: requests.due(),
            }),
            statuses: Some(&self.statuses),
            ..Figures::default()
        }
    }
}

impl Loading<'_> {
    /// Compares each expectation with its figure.
    pub(super) fn judge_expectations(
        &self,
        result: &mut TestResult,
        tally: &Tally,
        expectations: &[Expectation],
    ) {
        let statuses: BTreeMap<u16, u64> = tally.statuses.iter().collect();
        let connect = self.connect_times(tally);
        let latency = tally.all_latencies();
        let rate_per_s = result.rate_per_s.unwrap_or(0.0);
        let each_per_s = result.each_per_s().unwrap_or(0.0);
        let named = self.of_names(tally, expectations);
        let scopes = named
            .iter()
            .map(|(name, counts)| (name.clone(), counts.figures(each_per_s)))
            .collect();
        let figures = Figures {
            rate_per_s: Some(rate_per_s),
            scopes: Some(&scopes),
            ..self.figures(tally, &statuses, (&latency, &connect))
        };
        result.load.expectations = results_of(expectations, &figures);
    }

    /// The counts of each request that an expectation names. Requests of the same name are one.
    fn of_names(&self, tally: &Tally, expectations: &[Expectation]) -> BTreeMap<String, OfName> {
        let mut named = BTreeMap::new();
        for name in expectations.iter().filter_map(Expectation::scope) {
            if named.contains_key(name) {
                continue;
            }
            let counts = self.counts_of(tally, name);
            let latency = counts.all_latencies();
            let statuses = counts.statuses.iter().collect();
            let one = OfName {
                counts,
                latency,
                statuses,
            };
            named.insert(name.to_owned(), one);
        }
        named
    }

    fn counts_of(&self, tally: &Tally, name: &str) -> StepTally {
        // A single request is not counted apart from the load.
        if tally.steps.is_empty() {
            return StepTally {
                requests: tally.requests,
                statuses: tally.statuses.clone(),
                latency: tally.latency.clone(),
                unsuccessful: tally.unsuccessful.clone(),
                series: tally.series.clone(),
            };
        }
        let mut sum = StepTally::default();
        let steps = self.plan.setup.script.steps.iter().zip(&tally.steps);
        for (_, counts) in steps.filter(|(step, _)| step.name == name) {
            sum.merge(counts);
        }
        sum
    }

    /// True if the expectations allow every failure: a kept expectation covers all requests, or each
    /// request that failed has a kept one of its own.
    pub(super) fn are_errors_allowed(
        &self,
        result: &TestResult,
        tally: &Tally,
        expectations: &[Expectation],
    ) -> bool {
        let outcomes = expectations.iter().zip(&result.load.expectations);
        let allowing =
            outcomes.filter(|(expectation, outcome)| expectation.allows_errors() && outcome.kept);
        let scopes: Vec<Option<&str>> = allowing
            .map(|(expectation, _)| expectation.scope())
            .collect();
        if scopes.contains(&None) {
            return true;
        }
        let not_of_a_request = tally.requests.unsent + tally.not_opened + self.ended(tally).ready();
        if scopes.is_empty() || not_of_a_request + self.connected.not_opened > 0 {
            return false;
        }
        let failed = |name: &str| self.counts_of(tally, name).requests.unsuccessful() > 0;
        let mut names = self.plan.setup.script.steps.iter().map(|step| &*step.name);
        names.all(|name| scopes.contains(&Some(name)) || !failed(name))
    }

    /// The times of the connections that were opened before the phase and in it.
    pub(super) fn connect_times(&self, tally: &Tally) -> ConnectTimes {
        let mut connect = self.connect_times_before();
        connect.merge(&tally.connect);
        connect
    }

    /// The time of the resolver, and those of the connections that were opened before the phase.
    pub(super) fn connect_times_before(&self) -> ConnectTimes {
        let mut connect = self.connected.connect.clone();
        if let Some(time) = self.plan.setup.own().endpoint.resolver_time {
            let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            connect.record_part(ConnectPart::Dns, time_ns);
        }
        connect
    }

    /// The connections that ended before the phase and in it.
    pub(super) fn ended(&self, tally: &Tally) -> EndedCounts {
        let mut ended = self.connected.ended.clone();
        ended.merge(&tally.ended);
        ended
    }

    /// The figures of the whole load, without its rate.
    pub(super) fn figures<'t>(
        &self,
        tally: &'t Tally,
        statuses: &'t BTreeMap<u16, u64>,
        (latency, connect): (&'t Recorder, &'t ConnectTimes),
    ) -> Figures<'t> {
        let duration_s = tally.duration().as_secs_f64();
        let per_s = |count: u64| (duration_s > 0.0).then(|| count as f64 / duration_s);
        let ended = self.ended(tally).ready();
        let opened = self.connected.opened + tally.opened;
        let peak = tally.peak.max(self.connected.peak);
        let failed = self.connected.not_opened + tally.not_opened + ended;
        Figures {
            latency: Some(latency),
            succeeded: Some(&tally.latency),
            service: Some(&tally.service),
            connect: Some(&connect.ready),
            connect_parts: connect.parts(),
            first_byte: Some(&tally.first_byte),
            late: Some(&tally.late),
            // The caller knows it.
            rate_per_s: None,
            bytes_per_s: per_s(tally.traffic.received.wire),
            errors: Some(Part {
                count: tally.requests.unsuccessful() + ended,
                of: tally.requests.due() + ended,
            }),
            statuses: Some(statuses),
            connected: Some(self.part_of_users(peak.min(opened.saturating_sub(ended)))),
            failed: Some(self.part_of_users(failed)),
            // The caller knows them.
            scopes: None,
        }
    }

    pub(super) fn part_of_users(&self, count: u64) -> Part {
        Part {
            count,
            of: self.plan.setup.users as u64,
        }
    }
}
