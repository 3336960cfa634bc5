//! Judgement of figures: whether a figure is reliable, and why not. Pure functions of the evidence.

pub mod account;
mod doubt;
pub mod evidence;
pub mod expectation;
pub mod usage;

pub use doubt::Doubt;

use crate::report::model::{Bottleneck, EndedConnections, Verdict, ended_in_words};
use crate::report::number;
use crate::verdict::evidence::{Aim, Evidence, RATE_LIMIT};
use crate::verdict::usage::SATURATED_SHARE;

/// A verdict and its reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The verdict of the worst doubt; valid without any.
    pub verdict: Verdict,
    /// All doubts about the figures.
    pub doubts: Vec<Doubt>,
    /// The doubts and further information for readers, in sentences.
    pub notes: Vec<String>,
}

impl Judgement {
    /// Whether the measurement is reliable, apart from what the service did: the worst of the doubts
    /// about the generator and about noise.
    #[must_use]
    pub fn measurement(&self) -> Verdict {
        let verdicts = self.doubts.iter().map(Doubt::verdict);
        let own = verdicts.filter(|verdict| *verdict != Verdict::Failed);
        own.max().unwrap_or_default()
    }
}

/// Judges the evidence. A figure is valid if and only if there is no doubt about it.
#[must_use]
pub fn judge(evidence: &Evidence) -> Judgement {
    let doubts = doubts(evidence);
    let verdict = doubts.iter().map(Doubt::verdict).max().unwrap_or_default();
    let is_held_back = doubts.iter().any(Doubt::holds_generator_back);
    // Its cause and its advice are those of another doubt.
    let is_told = |doubt: &&Doubt| !(is_held_back && matches!(doubt, Doubt::GeneratorNoise { .. }));
    let told = doubts.iter().filter(is_told);
    let mut notes: Vec<String> = told.map(ToString::to_string).collect();
    notes.extend(remarks(evidence, is_held_back));
    Judgement {
        verdict,
        doubts,
        notes,
    }
}

/// Every doubt that the evidence raises.
fn doubts(evidence: &Evidence) -> Vec<Doubt> {
    let mut found: Vec<Doubt> = Vec::new();
    found.extend(evidence.interrupted.then_some(Doubt::Interrupted));
    found.extend(
        evidence
            .account
            .discrepancies()
            .into_iter()
            .map(Doubt::Account),
    );
    found.extend(ended_doubt(evidence));
    let failed = evidence.requests_failed.clone();
    found.extend(failed.map(Doubt::RequestsFailed));
    let unanswered = evidence.unanswered;
    found.extend((unanswered > 0).then_some(Doubt::RequestsUnanswered(unanswered)));
    content_doubts(evidence, &mut found);
    refusal_doubts(evidence, &mut found);
    found.extend(pace_doubt(evidence));
    generator_doubts(evidence, &mut found);
    found.extend(noise_doubt(evidence));
    found
}

/// Connections that were ready and ended, however few messages were lost with them.
fn ended_doubt(evidence: &Evidence) -> Option<Doubt> {
    let ready = |one: &&EndedConnections| one.was_ready;
    let ended: Vec<EndedConnections> = evidence
        .connections_ended
        .iter()
        .filter(ready)
        .cloned()
        .collect();
    let count = ended.iter().map(|one| one.count).sum();
    (count > 0).then(|| Doubt::ConnectionsEnded {
        count,
        how: ended_in_words(&ended),
    })
}

fn content_doubts(evidence: &Evidence, found: &mut Vec<Doubt>) {
    let (replies, deliveries) = (&evidence.replies, &evidence.deliveries);
    let counted = [
        (replies.wrong, Doubt::RepliesWrong as fn(u64) -> Doubt),
        (replies.missing, Doubt::RepliesMissing),
        (replies.doubled, Doubt::RepliesDoubled),
        (replies.reordered, Doubt::RepliesReordered),
        (replies.unsent, Doubt::RepliesUnsent),
        (evidence.pongs_strange, Doubt::PongsStrange),
        (deliveries.gaps, Doubt::PublicationsMissed),
        (deliveries.duplicates, Doubt::PublicationsDoubled),
        (deliveries.wrong, Doubt::PublicationsWrong),
    ];
    let raised = counted.into_iter().filter(|(count, _)| *count > 0);
    found.extend(raised.map(|(count, doubt)| doubt(count)));
    found.extend(deliveries.unheard.then_some(Doubt::PublicationsUnheard));
}

fn refusal_doubts(evidence: &Evidence, found: &mut Vec<Doubt>) {
    for (reason, &count) in &evidence.refused_by {
        if reason != RATE_LIMIT && count > 0 {
            let reason = reason.clone();
            found.push(Doubt::MessagesRefused { reason, count });
        }
    }
    if evidence.refusals_in_doubt {
        let told = evidence.account.refused.unwrap_or(0);
        found.push(Doubt::RefusalsUntold { told });
    }
    if let Some(error) = &evidence.counters_error {
        found.push(Doubt::CountersUnreadable(error.clone()));
    }
}

fn pace_doubt(evidence: &Evidence) -> Option<Doubt> {
    let pace = evidence.pace?;
    if pace.is_kept_by(pace.offered, pace.offered_s) {
        return None;
    }
    let (planned, offered) = (pace.planned_per_s, pace.offered_per_s());
    Some(if pace.is_kept_by(pace.released, pace.released_s) {
        Doubt::PaceNotTaken {
            planned,
            offered,
            cause: evidence.pace_cause,
        }
    } else {
        Doubt::PaceMissed { planned, offered }
    })
}

fn generator_doubts(evidence: &Evidence, found: &mut Vec<Doubt>) {
    let (health, usage) = (&evidence.generator, &evidence.usage);
    let duration_s = usage.duration_s;
    if duration_s <= 0.0 {
        return;
    }
    let is_much = |seconds: f64, share: f64| seconds >= (duration_s * share).max(DISTURBED_S_MIN);
    if let Some(waited_s) = health.waited_for_others_s
        && is_much(waited_s, WAITED_SHARE_MAX)
    {
        found.push(Doubt::GeneratorStarved {
            waited_s,
            duration_s,
        });
    }
    if let Some(throttled_s) = health.throttled_s
        && is_much(throttled_s, THROTTLED_SHARE_MAX)
    {
        found.push(Doubt::GeneratorThrottled { throttled_s });
    }
    if is_much(health.stopped_s, STOPPED_SHARE_MAX) {
        let stopped_s = health.stopped_s;
        found.push(Doubt::GeneratorStopped { stopped_s });
    }
    if let Some(late) = health.late_us {
        let p99_us = late.p99;
        let latency_p99_us = evidence.latency_p99_us;
        if p99_us >= late_us_max(latency_p99_us) {
            found.push(Doubt::GeneratorLate {
                p99_us,
                latency_p99_us,
            });
        }
    }
    found.extend(error_doubt(evidence));
    if evidence.aim != Aim::Keep && usage.bottleneck() == Bottleneck::Client {
        let share = usage.client_share();
        found.push(Doubt::GeneratorSaturated {
            share,
            aim: evidence.aim,
        });
    }
}

/// The generator's part of the 99th percentile, if its threads waited for their cores. The same in the
/// delay of sending has a doubt of its own.
fn error_doubt(evidence: &Evidence) -> Option<Doubt> {
    let health = &evidence.generator;
    let waited_s = health.waited_for_others_s?;
    let (bound_us, latency_us) = (health.error_us?.p99, evidence.latency_p99_us?);
    let late_us = health.late_us.map_or(0.0, |late| late.p99);
    let is_much = bound_us > (latency_us * ERROR_PART_MAX).max(LATE_US_MIN);
    (is_much && waited_s >= DISTURBED_S_MIN && bound_us > late_us).then_some(
        Doubt::GeneratorNoise {
            bound_us,
            latency_us,
        },
    )
}

/// The lateness from which a latency is mostly the generator's, or from which a rate without
/// latencies was not the planned one.
fn late_us_max(latency_p99_us: Option<f64>) -> f64 {
    match latency_p99_us {
        Some(latency_us) => (latency_us * LATE_PART_MAX).max(LATE_US_MIN),
        None => LATE_US_MAX,
    }
}

fn noise_doubt(evidence: &Evidence) -> Option<Doubt> {
    let noise = coefficient_of_variation(&evidence.windows)?;
    (evidence.aim == Aim::Saturate && noise > NOISE_MAX).then_some(Doubt::Noisy(noise))
}

/// Further information about the figures. If something held the generator back, that was the limit of the rate, and no other is
/// named.
fn remarks(evidence: &Evidence, is_held_back: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    let limited = evidence.refused_by.get(RATE_LIMIT).copied().unwrap_or(0);
    if limited > 0 {
        remarks.push(format!(
            "{} of {} offered messages were refused by the server's rate limit and are not in the rate. \
             Raise its rate limit to measure without it.",
            number::grouped(limited),
            number::grouped(evidence.account.offered)
        ));
    }
    if evidence.aim == Aim::Saturate && !is_held_back {
        remarks.extend(limit_remark(evidence));
    }
    remarks.extend(late_remark(evidence));
    remarks.extend(stall_remark(evidence));
    remarks
}

/// The limit of a rate, if it was not one side's processor time.
fn limit_remark(evidence: &Evidence) -> Option<String> {
    let usage = &evidence.usage;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let (client, server) = (usage.client_share(), usage.server_share());
    match usage.bottleneck() {
        Bottleneck::Server | Bottleneck::Client => None,
        Bottleneck::Both => {
            let server = percent(server.unwrap_or(0.0));
            let shared = if usage.shared_cores > 0.0 {
                format!(
                    " They share {} of their cores and compete for them: the figure is a lower bound. Give each \
                     cores of its own, for example with `taskset`.",
                    number::si(usage.shared_cores)
                )
            } else {
                " With more cores for the generator the server may reach a slightly higher figure."
                    .to_owned()
            };
            Some(format!(
                "The generator used {} of its available processor time, and the server {server}.{shared}",
                percent(client)
            ))
        }
        Bottleneck::None => Some(format!(
            "Neither side used {} of its available processor time (the generator {}, the server {}): the \
             network, waiting, or work outside both processes was the limit. Try more connections.",
            percent(SATURATED_SHARE),
            percent(client),
            server.map_or_else(|| "is not known".to_owned(), percent)
        )),
    }
}

/// A remark about latencies whose highest percentiles are the generator's own.
fn late_remark(evidence: &Evidence) -> Option<String> {
    let late = evidence.generator.late_us?;
    let latency_us = evidence.latency_p99_us?;
    // If the doubt is raised, it contains more than this remark.
    let is_late_above = late.p99 < late_us_max(Some(latency_us)) && late.p99_9 >= latency_us;
    is_late_above.then(|| {
        format!(
            "Above the 99th percentile the latencies contain the generator's own delay: one message in a \
             thousand left {} or more after its planned time.",
            number::us(late.p99_9)
        )
    })
}

/// A closed loop sends nothing while it waits, so that a stall is one value among many.
fn stall_remark(evidence: &Evidence) -> Option<String> {
    let is_closed = evidence.pace.is_none() && evidence.aim != Aim::Keep;
    if !is_closed || evidence.latency_p99_us.is_none() {
        return None;
    }
    let stalls = stalled_windows(&evidence.windows);
    (stalls > 0).then(|| {
        format!(
            "In {stalls} of {} quarters of a second next to nothing was answered. A closed loop sends nothing \
             while it waits, so that its percentiles hold few values of a stall (coordinated omission): with \
             --rate-per-s every message that was due meanwhile counts.",
            evidence.windows.len()
        )
    })
}

/// Windows with less than a quarter of the usual count. The first window contains the start of the
/// test.
fn stalled_windows(windows: &[u64]) -> usize {
    let counts = windows.get(1..).unwrap_or_default();
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
    if counts.len() < STALL_WINDOWS_MIN || usual < STALL_COUNT_MIN {
        return 0;
    }
    counts.iter().filter(|&&count| count * 4 < usual).count()
}

/// Standard deviation of the counts in windows of equal length, divided by the mean.
///
/// Pass whole windows only. The first one is left out, because it contains the start of the test.
/// `None` for fewer than five windows or when nothing was counted.
#[must_use]
pub fn coefficient_of_variation(windows: &[u64]) -> Option<f64> {
    let counts = windows.get(1..).unwrap_or_default();
    if counts.len() < VERDICT_WINDOWS_MIN {
        return None;
    }
    let n = counts.len() as f64;
    let mean = counts.iter().sum::<u64>() as f64 / n;
    let squares = counts.iter().map(|&count| (count as f64 - mean).powi(2));
    let variance = squares.sum::<f64>() / (n - 1.0);
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

/// Coefficient of variation of the confirmed messages per quarter of a second above which a figure
/// is noisy. A few per cent are usual between quarters of an undisturbed second; other work that
/// uses half of a core for half of the time causes about a third.
pub const NOISE_MAX: f64 = 0.25;

/// Part of the time that the generator may wait for a core that another program uses.
pub const WAITED_SHARE_MAX: f64 = 0.10;

/// Part of the time that a quota may hold the generator back.
pub const THROTTLED_SHARE_MAX: f64 = 0.02;

/// Part of the time that the generator may be stopped: at 1 % it affects the 99th percentile of a
/// latency.
pub const STOPPED_SHARE_MAX: f64 = 0.02;

/// Seconds below which a disturbance of a short test raises no doubt.
const DISTURBED_S_MIN: f64 = 0.02;

/// Part of a 99th percentile that may be the same percentile of the generator's own lateness.
pub const LATE_PART_MAX: f64 = ERROR_PART_MAX;

/// From this part on the figure is that of the generator.
pub const LATE_PART_BOUND: f64 = 0.5;

/// Part of a percentile that may be the generator's own error.
pub const ERROR_PART_MAX: f64 = 0.1;

/// An error of the generator below which there is no doubt, in microseconds.
pub const LATE_US_MIN: f64 = 200.0;

/// Lateness from which messages without answers were not sent as planned, in microseconds.
pub const LATE_US_MAX: f64 = 10_000.0;

/// With fewer windows of a quarter of a second, without the first, the variation is not known: a
/// test of 1.5 s has five.
const VERDICT_WINDOWS_MIN: usize = 4;

/// With fewer windows, or a lower count, a stall cannot be detected.
const STALL_WINDOWS_MIN: usize = 2;
const STALL_COUNT_MIN: u64 = 20;

#[cfg(test)]
mod tests;
