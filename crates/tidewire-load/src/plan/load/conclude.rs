//! Conclusion of a load: from counts to a result with figures, evidence, verdict and expectations.

use std::time::Duration;

use super::Loading;
use super::watch::Seen;
use crate::accounting::connect_times::ConnectTimes;
use crate::accounting::generator::Moment;
use crate::accounting::server::ServerSample;
use crate::accounting::tally::{SURPLUS, StepTally, Tally};
use crate::accounting::texts::Texts;
use crate::plan::sides::{add_verdict, both_sides};
use crate::report::{
    self, Bottleneck, ConfirmedBy, Connecting, ExpectationResult, LatencyOrigin, LatencyOverTime,
    Memory, Received, ReplyFaults, TargetFigures, TestResult, model::ended_in_words, number,
};
use crate::verdict::account::Accounting;
use crate::verdict::evidence::{Aim, Evidence, PaceCause, PaceKept};
use crate::verdict::expectation::{ConnectPart, Expectation, Figures};
use crate::verdict::judge;
use crate::verdict::usage::Usage;
use crate::worker::messages::Matching;
use crate::worker::rhythm::Rhythm;

/// A finished phase, and the resources that both sides have used.
pub(super) struct Concluding {
    pub(super) tally: Tally,
    pub(super) rhythm: Rhythm,
    /// The planned time, without a number of requests that could end it before.
    pub(super) planned: Option<Duration>,
    pub(super) started: Moment,
    pub(super) ended: Moment,
    pub(super) server: Option<(ServerSample, ServerSample)>,
    pub(super) samples: Seen,
    pub(super) interrupted: bool,
}

impl Loading<'_> {
    /// Fills in a result, and returns the counts.
    pub(super) fn conclude(
        &self,
        result: &mut TestResult,
        seen: Concluding,
        expectations: &[Expectation],
    ) -> Tally {
        let tally = &seen.tally;
        self.fill_in(result, &seen);
        self.judge_expectations(result, tally, expectations);
        if let Some(text) = &seen.samples.aborted {
            result.end_early_by(text);
        }
        let are_errors_allowed = self.are_errors_allowed(result, tally, expectations);
        let evidence = self.evidence(result, &seen, are_errors_allowed);
        add_verdict(result, &evidence, tally.cpu, self.server.remarks());
        result.load.measurement = Some(judge(&evidence).measurement());
        result.load.service = report::failures_of(result);
        result.memory = self.server.rss_bytes().map(|server_rss_bytes| Memory {
            server_rss_bytes,
            ..Memory::default()
        });
        self.add_notes(result, &seen);
        seen.tally
    }

    fn fill_in(&self, result: &mut TestResult, seen: &Concluding) {
        let tally = &seen.tally;
        let duration_s = tally.duration().as_secs_f64();
        let succeeded = tally.requests.succeeded;
        let all_opened = self.connected.opened + tally.opened;
        let all_failed = self.connected.not_opened + tally.not_opened;
        let ended = self.ended(tally);
        result.connected = Some(tally.peak.max(self.connected.peak));
        result.failed = Some(all_failed + ended.ready());
        result.duration_s = Some(duration_s);
        let rate_s = duration_s.max(planned_s(seen));
        result.rate_per_s = (succeeded > 0 && rate_s > 0.0).then(|| succeeded as f64 / rate_s);
        result.bytes_per_s = (duration_s > 0.0)
            .then(|| tally.traffic.received.wire as f64 / duration_s)
            .filter(|rate| *rate > 0.0);
        result.rate_series = per_second(&tally.whole_quarters());
        result.pace = Some(self.pace_of(&seen.rhythm));
        let origin = fill_in_latencies(result, tally, &seen.rhythm);
        result.confirmed_by = self.confirmed_by(succeeded);
        if let Some(messages) = self.plan.setup.messages() {
            let names = messages.layer.extensions().iter();
            result.extensions = names.map(|&name| name.to_owned()).collect();
            result.encryption_version = messages.layer.encryption_version();
        }
        let sending = tally.sending();
        let load = &mut result.load;
        load.requests = Some(tally.requests);
        load.statuses = tally.statuses.iter().collect();
        let errors = tally.errors.iter().chain(&self.connected.errors);
        for (name, count) in errors {
            *load.errors.entry((*name).to_owned()).or_default() += count;
        }
        load.bytes = Some(tally.traffic);
        let connect = self.connect_times(tally);
        load.connecting = Some(Connecting {
            opened: all_opened,
            failed: all_failed,
            peak: tally.peak.max(self.connected.peak),
            ended: ended.ready(),
            ended_by: ended.report(),
            reconnected: match self.plan.setup.messages() {
                None => 0,
                Some(_) => tally.reconnected,
            },
            ..times(&connect)
        });
        load.received = (tally.received > 0).then(|| Received {
            messages: tally.received,
            per_s: tally.received as f64 / duration_s.max(f64::MIN_POSITIVE),
            unsolicited: match self.is_confirmed_by_pongs() {
                true => 0,
                false => tally.unsolicited,
            },
        });
        load.message_age_us = tally.message_age.summary(LatencyOrigin::Sent);
        load.first_byte_us = tally.first_byte.summary(LatencyOrigin::Sent);
        load.failed_latency_us = tally.failed_latency.summary(origin);
        load.windows = tally.series.spread(sending);
        load.latency_over_time = tally.series.over_time(sending);
        load.histogram = tally.series.histogram();
        load.resources_over_time.clone_from(&seen.samples.samples);
        result.load.targets = self.targets(tally, origin, result.each_per_s());
    }

    /// The figures of each request of a scenario; `each_per_s` is the rate that one success stands for.
    pub(super) fn targets(
        &self,
        tally: &Tally,
        origin: LatencyOrigin,
        each_per_s: Option<f64>,
    ) -> Vec<TargetFigures> {
        let names = self.plan.setup.script.steps.iter().map(|step| &step.name);
        let least = least_sent_for_charts(&tally.steps);
        names
            .zip(&tally.steps)
            .map(|(name, step)| TargetFigures {
                name: name.clone(),
                requests: step.requests,
                rate_per_s: each_per_s.map(|each| each * step.requests.succeeded as f64),
                statuses: step.statuses.iter().collect(),
                latency_us: step.all_latencies().summary(origin),
                latency_over_time: (step.requests.sent >= least)
                    .then(|| step.series.over_time(tally.sending()))
                    .flatten()
                    .map(LatencyOverTime::without_histograms),
            })
            .collect()
    }

    /// The evidence that was seen: without a success there is none.
    fn confirmed_by(&self, succeeded: u64) -> Vec<ConfirmedBy> {
        if succeeded == 0 {
            return Vec::new();
        }
        let by_pongs = self.is_confirmed_by_pongs();
        let ways = [
            (self.plan.setup.has_http() || !by_pongs).then_some(ConfirmedBy::Reply),
            by_pongs.then_some(ConfirmedBy::Pong),
        ];
        ways.into_iter().flatten().collect()
    }

    /// Whether pongs confirm messages. The load then does not know which messages of the server are answers.
    fn is_confirmed_by_pongs(&self) -> bool {
        let messages = self.plan.setup.messages();
        messages.is_some_and(|messages| messages.matching == Matching::None)
    }

    /// The pace in a report: its rate is that of all connections together.
    fn pace_of(&self, rhythm: &Rhythm) -> report::Pace {
        let setup = &self.plan.setup;
        let mut pace = rhythm.report(Some(setup.in_flight.into()));
        if let Rhythm::Each { per_s } = rhythm {
            pace.planned_per_s = Some(per_s * setup.users as f64);
        }
        pace
    }

    /// The evidence for the verdict. Failures do not invalidate a result whose expectations allow
    /// them.
    fn evidence(
        &self,
        result: &TestResult,
        seen: &Concluding,
        are_errors_allowed: bool,
    ) -> Evidence {
        let tally = &seen.tally;
        let requests = &tally.requests;
        let connections_failed = self.connected.not_opened + tally.not_opened;
        // The outcomes of the requests have doubts of their own, in the words of the protocol. This account
        // only shows whether there were any requests.
        let all = requests.due();
        let server_s = seen.server.as_ref().map(|(before, after)| {
            let (all, busiest) = (after.cpu_since(before), after.busiest_since(before));
            (all.as_secs_f64(), busiest.as_secs_f64())
        });
        let (usage, generator) = both_sides(
            tally.cpu,
            tally.duration().as_secs_f64(),
            server_s,
            (&self.cores, &self.server),
            (&seen.started, &seen.ended),
            (&tally.waits, &tally.late),
        );
        let waits = self.plan.setup.script.steps.iter();
        let thinks = waits.into_iter().any(|step| step.think.is_some());
        Evidence {
            aim: match seen.rhythm {
                Rhythm::Closed if !thinks => Aim::Saturate,
                _ => Aim::Keep,
            },
            account: Accounting {
                sends: !matches!(seen.rhythm, Rhythm::Each { per_s } if per_s <= 0.0),
                offered: all,
                confirmed: all,
                connections_attempted: self.connected.attempted + tally.attempted,
                connections_failed: if are_errors_allowed {
                    0
                } else {
                    connections_failed
                },
                ..Accounting::default()
            },
            requests_failed: match are_errors_allowed {
                true => None,
                false => report::failed_requests(result),
            },
            pace_cause: self.pace_cause(seen),
            unanswered: match are_errors_allowed {
                true => 0,
                false => requests.unfinished,
            },
            connections_ended: match are_errors_allowed {
                true => Vec::new(),
                false => self.ended(tally).report(),
            },
            // An unsolicited message is not a failed request, and not reliable as a confirmation.
            replies: ReplyFaults {
                unsent: tally.errors.get(SURPLUS).copied().unwrap_or(0),
                ..ReplyFaults::default()
            },
            interrupted: seen.interrupted,
            pace: self.pace_kept(seen, &usage),
            generator,
            usage,
            windows: tally.whole_quarters(),
            latency_p99_us: result.latency_us.as_ref().map(|latency| latency.p99),
            ..Evidence::default()
        }
    }

    /// Why requests that were due had no connection that was free.
    fn pace_cause(&self, seen: &Concluding) -> PaceCause {
        let tally = &seen.tally;
        let are_missing = self.ended(tally).ready() + tally.not_opened > 0;
        match seen.rhythm {
            _ if are_missing => PaceCause::ConnectionsGone,
            Rhythm::Each { .. } => PaceCause::OwnWaiting,
            _ => PaceCause::AllWaiting,
        }
    }

    /// How well a rate was kept. The server is responsible for requests without a free connection,
    /// unless the generator had no processor time left to read the responses; the generator is
    /// responsible for requests that were due while a connection was free.
    fn pace_kept(&self, seen: &Concluding, usage: &Usage) -> Option<PaceKept> {
        let tally = &seen.tally;
        let window_s = tally.sending().as_secs_f64();
        let (planned_per_s, poisson) = match &seen.rhythm {
            Rhythm::Closed => return None,
            Rhythm::Open { pace, per_s } => (*per_s, pace.is_random()),
            Rhythm::Each { .. } if tally.due == 0 || window_s <= 0.0 => return None,
            Rhythm::Each { per_s } if self.plan.setup.growth.is_constant() => {
                (per_s * self.plan.setup.users as f64, false)
            }
            // While the load grows, the rate grows with it.
            Rhythm::Each { .. } => (tally.due as f64 / window_s, false),
        };
        let since_start = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(tally.start_ns));
        let sent = tally.requests.sent;
        let last_s = since_start(tally.last_sent_ns).as_secs_f64();
        let waited = match usage.bottleneck() {
            Bottleneck::Client => 0,
            _ => tally.starved,
        };
        Some(PaceKept {
            planned_per_s,
            poisson,
            planned: tally.due,
            released: sent + waited,
            offered: sent,
            window_s,
            released_s: last_s,
            offered_s: last_s,
        })
    }

    fn add_notes(&self, result: &mut TestResult, seen: &Concluding) {
        let requests = &seen.tally.requests;
        let notes = &mut result.notes;
        notes.extend(seen.samples.precision.clone());
        if let Some(after) = seen.samples.nobody_left {
            notes.push(format!(
                "The load ended after {}, because no connection was left. With --reconnect it replaces them.",
                number::seconds(after.as_secs_f64())
            ));
        }
        if requests.retried > 0 {
            notes.push(format!(
                "{} requests were sent again, because their connection was closed before the first byte of the response.",
                number::grouped(requests.retried)
            ));
        }
        let others = self.plan.setup.targets.iter().skip(1);
        let others: Vec<&str> = others.map(|target| target.name.as_str()).collect();
        if !others.is_empty() {
            notes.push(format!(
                "Users also spoke to {}. Processor and memory of the server are those of the host of the URL alone.",
                others.join(", ")
            ));
        }
        if let Some(messages) = self.plan.setup.messages()
            && let Some(field) = &messages.stamp
            && seen.tally.received > 0
            && seen.tally.message_age.count() == 0
        {
            notes.push(format!(
                "No message of the server had a time in the field `{field}`, so that their age is not known. \
                 Give --timestamp-field a field with seconds, milliseconds, microseconds or nanoseconds since 1970."
            ));
        }
        let mut refusals = self.connected.refusals.clone();
        refusals.merge(&seen.tally.refusals);
        notes.extend(refused_in_words(&refusals));
        if let Some(words) = seen.tally.counted.in_words() {
            notes.push(format!("Messages of the server by their rules: {words}."));
        }
        let has_missed = result.doubts.iter().any(|doubt| doubt == "pace_missed");
        notes.extend(unsent_in_words(seen, has_missed));
    }

    /// The result of a load that never began.
    pub(super) fn nobody_connected(&self) -> TestResult {
        let mut result = TestResult::new(self.plan.test, self.plan.setup.users as u64);
        let failed = self.connected.not_opened;
        result.connected = Some(0);
        result.failed = Some(failed);
        result.verdict = report::Verdict::Failed;
        for (name, count) in &self.connected.errors {
            result.load.errors.insert((*name).to_owned(), *count);
        }
        let ended_by = self.connected.ended.report();
        let how = ended_in_words(&ended_by);
        let connect = self.connect_times_before();
        result.load.connecting = Some(Connecting {
            failed,
            ended_by,
            ..times(&connect)
        });
        let words: Vec<String> = self
            .connected
            .errors
            .iter()
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        let figures = Figures {
            connected: Some(self.part_of_users(0)),
            failed: Some(self.part_of_users(failed)),
            connect_parts: connect.parts(),
            ..Figures::default()
        };
        result.load.expectations = results_of(&self.plan.expectations, &figures);
        result.doubts.push("not_connected".to_owned());
        let refused = refused_in_words(&self.connected.refusals);
        result.notes.extend(refused);
        result.notes.push(match words.is_empty() {
            true if !self.is_interrupted() => {
                "The workers ended before a connection was ready.".to_owned()
            }
            true => "The load was interrupted before a connection was ready.".to_owned(),
            false if how.is_empty() => format!(
                "No connection could be opened: {}. Check the URL, and whether the server runs.",
                words.join(", ")
            ),
            false => format!(
                "No connection could be opened: {} ({how}). Check what the server requires, such as a token.",
                words.join(", ")
            ),
        });
        result
    }
}

fn refused_in_words(refusals: &Texts) -> Option<String> {
    let words = refusals.in_words();
    words.map(|words| format!("The server refused: {words}."))
}

/// Fills in the latencies; returns where their clock starts.
fn fill_in_latencies(result: &mut TestResult, tally: &Tally, rhythm: &Rhythm) -> LatencyOrigin {
    let is_paced = !matches!(rhythm, Rhythm::Closed);
    let origin = match is_paced {
        true => LatencyOrigin::Intended,
        false => LatencyOrigin::Sent,
    };
    result.latency_us = tally.all_latencies().summary(origin);
    if tally.unsuccessful.count() > 0 {
        result.load.succeeded_latency_us = tally.latency.summary(origin);
    }
    if is_paced {
        result.latency_other_us = tally.service.summary(LatencyOrigin::Sent);
    }
    origin
}

/// The time of a plan with given times: that of its stages, or one interval for each request.
fn planned_s(seen: &Concluding) -> f64 {
    let Rhythm::Open { pace, per_s } = &seen.rhythm else {
        return 0.0;
    };
    let intervals_s = seen.tally.due as f64 / per_s;
    match (&seen.planned, pace.is_random()) {
        // Stages may end in a pause, in which nothing is due.
        (Some(planned), _) if !seen.interrupted && seen.samples.ended_by_itself() => {
            planned.as_secs_f64()
        }
        (_, true) => 0.0,
        _ => intervals_s,
    }
}

/// The requests that were due and were not sent. The generator is responsible if it has missed the
/// pace.
fn unsent_in_words(seen: &Concluding, has_missed: bool) -> Option<String> {
    let tally = &seen.tally;
    let (due, sent) = (tally.due, tally.requests.sent);
    if has_missed && due > sent {
        return Some(format!(
            "{} requests were due, {} were sent, and {} were not: the generator fell behind.",
            number::grouped(due),
            number::grouped(sent),
            number::grouped(due - sent)
        ));
    }
    let cause = match seen.rhythm {
        Rhythm::Each { .. } => "their connection waited for a response",
        _ => "no connection was free",
    };
    (tally.starved > 0).then(|| {
        format!(
            "{} requests were due while {cause}, and were not sent.",
            number::grouped(tally.starved)
        )
    })
}

/// Successes in each whole second.
fn per_second(quarters: &[u64]) -> Vec<f64> {
    let seconds = quarters.chunks_exact(4);
    seconds
        .map(|quarters| quarters.iter().sum::<u64>() as f64)
        .collect()
}

/// The times of connecting in the form of a report.
fn times(connect: &ConnectTimes) -> Connecting {
    Connecting {
        latency_us: connect.ready.summary(LatencyOrigin::Sent),
        // It is one time.
        dns_us: connect.summary(ConnectPart::Dns).map(|dns| dns.max),
        tcp_us: connect.summary(ConnectPart::Tcp),
        proxy_us: connect.summary(ConnectPart::Proxy),
        tls_us: connect.summary(ConnectPart::Tls),
        upgrade_us: connect.summary(ConnectPart::Upgrade),
        ..Connecting::default()
    }
}

/// The state of each expectation. One whose figure is not known is broken.
pub(super) fn results_of(
    expectations: &[Expectation],
    figures: &Figures<'_>,
) -> Vec<ExpectationResult> {
    let expectations = expectations.iter();
    expectations.map(|one| one.result(figures)).collect()
}

/// A request of a scenario has figures over time if it was sent at least this often: it is then one of the most frequent. All of
/// them would make a report of many megabytes, and a request alone has the figures of the result.
fn least_sent_for_charts(steps: &[StepTally]) -> u64 {
    let mut sent: Vec<u64> = steps.iter().map(|step| step.requests.sent).collect();
    sent.sort_unstable_by(|a, b| b.cmp(a));
    match sent.len() {
        0 | 1 => u64::MAX,
        count => sent[count.min(REQUESTS_OVER_TIME_MAX) - 1].max(1),
    }
}

const REQUESTS_OVER_TIME_MAX: usize = 20;
