//! The result of a measurement: the evidence, the verdict over it, and the figures.

use crate::accounting::outcome::{Opened, Ran, ServerFacts};
use crate::plan::sides::add_verdict;
use crate::report::model::ReplyFaults;
use crate::report::number;
use crate::report::{LatencyOrigin, Pings, Processes, TestResult};
use crate::verdict::evidence::{Aim, Evidence, PaceCause};
use crate::verdict::expectation::{Figures, Part};

use super::kind::TestKind;
use super::measure::Bench;
use super::measured::Measured;

impl Bench<'_> {
    /// Adds the figures of a phase and the verdict over it.
    pub(crate) fn judge(
        &self,
        result: &mut TestResult,
        opened: &Opened,
        measured: &Measured,
        aim: Aim,
    ) {
        let ran = &measured.ran;
        let account = measured.account(opened);
        result.connected = Some(ran.members);
        result.failed = Some(account.connections_failed);
        result.duration_s = Some(ran.duration_s());
        result.messages = account.messages();
        if account.offered > 0 {
            result.rate_per_s = account.rate_per_s(ran.rate_s());
            // When a message was refused is not known, so its second would count it as confirmed.
            if account.refused.unwrap_or(0) == 0 {
                result.rate_series = ran.per_second();
            }
        }
        let origin = match ran.latency_sent.count() {
            0 => LatencyOrigin::Sent,
            _ => LatencyOrigin::Intended,
        };
        result.latency_us = ran.latency.summary(origin);
        result.latency_other_us = ran.latency_sent.summary(LatencyOrigin::Sent);
        result.memory = measured
            .rss_bytes
            .map(|(_, bytes)| self.memory(bytes, ran.members, &measured.resources));
        if self.options.memory {
            result
                .load
                .resources_over_time
                .clone_from(&measured.resources);
        }
        result.confirmed_by = measured.confirmed_by();
        result.refused_by = measured.refused_by();
        let replies = ReplyFaults {
            // Those that were refused were passed over, too.
            missing: ran.replies.missing.min(account.lost()),
            ..ran.replies
        };
        result.replies = ran.answered.then_some(replies);
        result.processes = processes(&ran.per_worker);
        let evidence = Evidence {
            connections_ended: Vec::new(),
            unanswered: 0,
            requests_failed: None,
            pace_cause: PaceCause::default(),
            aim,
            account,
            replies,
            deliveries: measured.deliveries(),
            pongs_strange: ran.pongs_strange,
            refused_by: result.refused_by.clone(),
            refusals_in_doubt: ran.rate_limited > 0
                && measured.counts.is_none()
                && are_refusals_in_doubt(ran, &self.facts),
            counters_error: measured.counts_error.clone(),
            interrupted: ran.interrupted || opened.interrupted,
            pace: ran.pace,
            generator: measured.health,
            usage: measured.usage,
            windows: ran.windows.clone(),
            latency_p99_us: result.latency_us.as_ref().map(|latency| latency.p99),
        };
        self.conclude(result, &evidence, ran.cpu);
        self.add_notes(result, ran);
    }

    /// Adds the verdict, and what it rests on.
    pub(super) fn conclude(
        &self,
        result: &mut TestResult,
        evidence: &Evidence,
        cpu: crate::accounting::outcome::CpuTime,
    ) {
        let account = &evidence.account;
        result.pings = (account.pings_sent > 0 || evidence.pongs_strange > 0).then_some(Pings {
            sent: account.pings_sent,
            lost: account.pongs_lost,
            strange: evidence.pongs_strange,
        });
        add_verdict(result, evidence, cpu, self.server.remarks());
    }

    /// Adds the expectations of a finished result, and whether it keeps them.
    pub(super) fn expect(&self, result: &mut TestResult, opened: &Opened, ran: Option<&Ran>) {
        let Some(test) = TestKind::parse(&result.test) else {
            return;
        };
        let is_paced = self.options.rate_per_s.is_some();
        let figures = figures(result, opened, ran);
        let expectations = self.options.expectations.iter();
        let outcomes = expectations
            .filter(|expectation| expectation.applies_to(test, is_paced))
            .map(|expectation| expectation.result(&figures));
        result.load.expectations = outcomes.collect();
        if let Some(text) = &self.aborted_by {
            result.end_early_by(text);
        }
    }

    fn add_notes(&self, result: &mut TestResult, ran: &Ran) {
        let mut note = |text: String| result.notes.push(text);
        for text in &ran.notes {
            note(text.clone());
        }
        if let Some(words) = ran.broken_before.in_words() {
            note(format!("Connections that broke before the test: {words}."));
        }
        if let Some(words) = ran.broken.in_words() {
            note(format!("Connections that broke during the test: {words}."));
        }
        if ran.unsolicited > 0 {
            note(format!(
                "{} messages arrived that answer nothing.",
                number::grouped(ran.unsolicited)
            ));
        }
        let ServerFacts {
            rate_limit_refill_per_s,
            rate_limit_capacity,
            ..
        } = &self.facts;
        if let Some((refill, capacity)) = rate_limit_refill_per_s.zip(*rate_limit_capacity)
            && ran.rate_limited > 0
        {
            note(format!(
                "RATE_LIMITED: the server allows each connection {refill} messages per second and \
                 {capacity} at once."
            ));
        }
    }
}

/// How the rate is divided among workers that are processes.
fn processes(rates_per_s: &[f64]) -> Option<Processes> {
    let count = rates_per_s.len();
    (count > 0).then(|| Processes {
        count: count as u64,
        rates_per_s: rates_per_s.to_vec(),
        mean_per_s: rates_per_s.iter().sum::<f64>() / count as f64,
        ..Processes::default()
    })
}

/// The figures of which something can be expected.
fn figures<'a>(result: &TestResult, opened: &'a Opened, ran: Option<&'a Ran>) -> Figures<'a> {
    let part = |count: Option<u64>| {
        count.map(|count| Part {
            count,
            of: result.connections,
        })
    };
    let messages = result.messages.map(|messages| Part {
        count: messages.offered.saturating_sub(messages.confirmed),
        of: messages.offered,
    });
    let pings = result.pings.map(|pings| Part {
        count: pings.lost,
        of: pings.sent,
    });
    let stable = result.limit.as_ref().map(|limit| limit.largest_stable);
    Figures {
        latency: Some(ran.map_or(&opened.latency, |ran| &ran.latency)),
        service: ran
            .map(|ran| &ran.latency_sent)
            .filter(|sent| sent.count() > 0)
            .map(|sent| sent as _),
        connect: Some(&opened.latency),
        late: ran.map(|ran| &ran.late as _),
        rate_per_s: result.rate_per_s,
        bytes_per_s: result.bytes_per_s,
        errors: messages.or(pings),
        connected: part(stable.or(result.connected)),
        failed: part(result.failed),
        ..Figures::default()
    }
}

/// Whether the server may have refused more messages than it reported to the connections: a connection broke
/// before it received the last report, the limit is not known, or the limit allows less than the server
/// claims to have accepted.
fn are_refusals_in_doubt(ran: &Ran, facts: &ServerFacts) -> bool {
    let limit = facts.rate_limit_capacity.zip(facts.rate_limit_refill_per_s);
    let Some((capacity, refill_per_s)) = limit else {
        return true;
    };
    // One second more than the phase lasted, because the server's clock may count in steps.
    let refilled = refill_per_s as f64 * (ran.duration_s() + 1.0);
    let allowed = (capacity as f64 + refilled) * ran.members as f64;
    let refused_min = ran.offered as f64 - allowed;
    ran.broken.total() > 0 || (ran.refused() as f64) < refused_min
}
