//! Doubts: each reason for which a figure is not valid, with its name, its verdict and its text.

use std::fmt;

use super::{LATE_PART_BOUND, NOISE_MAX, Verdict};
use crate::report::number::{grouped, seconds, si, us};
use crate::verdict::account::Discrepancy;
use crate::verdict::evidence::{Aim, PaceCause};

/// One reason for which a figure is not valid. Its text states what happened and what to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Doubt {
    /// The counts of both sides do not balance.
    Account(Discrepancy),
    /// The test ended before its plan was complete.
    Interrupted,
    /// Connections ended before the plan ended them.
    ConnectionsEnded {
        /// Their number.
        count: u64,
        /// How they ended, in words.
        how: String,
    },
    /// Requests of a load failed, in a sentence.
    RequestsFailed(String),
    /// Requests had no answer when the time for the last answers was over.
    RequestsUnanswered(u64),
    /// Replies that match no message in flight.
    RepliesWrong(u64),
    /// Messages without a reply, although the reply to a later message arrived.
    RepliesMissing(u64),
    /// Replies to messages that had been answered before.
    RepliesDoubled(u64),
    /// Replies after the reply to a later message.
    RepliesReordered(u64),
    /// Replies to messages that had not been sent.
    RepliesUnsent(u64),
    /// Pongs that answered no open ping.
    PongsStrange(u64),
    /// Messages refused for a reason other than a rate limit.
    MessagesRefused {
        /// The server's name for the reason.
        reason: String,
        /// Their number.
        count: u64,
    },
    /// More may have been refused than the server has reported.
    RefusalsUntold {
        /// Refusals that it has reported.
        told: u64,
    },
    /// The server's counters could not be compared, for this reason.
    CountersUnreadable(String),
    /// Publications that subscribers missed.
    PublicationsMissed(u64),
    /// Publications that arrived again, or after later ones.
    PublicationsDoubled(u64),
    /// Deliveries whose content differs from the publication.
    PublicationsWrong(u64),
    /// No subscriber received anything.
    PublicationsUnheard,
    /// The server did not accept the planned rate.
    PaceNotTaken {
        /// Planned messages per second.
        planned: f64,
        /// Written messages per second.
        offered: f64,
        /// Why.
        cause: PaceCause,
    },
    /// The generator did not keep the planned rate.
    PaceMissed {
        /// Planned messages per second.
        planned: f64,
        /// Written messages per second.
        offered: f64,
    },
    /// Messages left the generator late.
    GeneratorLate {
        /// 99th percentile of their lateness.
        p99_us: f64,
        /// 99th percentile of the reported latency.
        latency_p99_us: Option<f64>,
    },
    /// Threads of the generator waited for their cores, which the 99th percentile may contain.
    GeneratorNoise {
        /// The most of it.
        bound_us: f64,
        /// The 99th percentile of the reported latency.
        latency_us: f64,
    },
    /// Other programs used the generator's cores.
    GeneratorStarved {
        /// Seconds of waiting.
        waited_s: f64,
        /// Seconds of the test.
        duration_s: f64,
    },
    /// A quota held the generator back.
    GeneratorThrottled {
        /// The duration in seconds.
        throttled_s: f64,
    },
    /// The generator's process did not run.
    GeneratorStopped {
        /// The duration in seconds.
        stopped_s: f64,
    },
    /// The generator had no processor time left, and the server had.
    GeneratorSaturated {
        /// The used share of its available processor time.
        share: f64,
        /// The purpose of the test.
        aim: Aim,
    },
    /// The rate varied by this coefficient of variation.
    Noisy(f64),
}

impl Doubt {
    /// The name in a report.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Account(discrepancy) => discrepancy.name(),
            Self::Interrupted => "interrupted",
            Self::ConnectionsEnded { .. } => "connections_ended",
            Self::RequestsFailed(_) => "requests_failed",
            Self::RequestsUnanswered(_) => "requests_unanswered",
            Self::RepliesWrong(_) => "replies_wrong",
            Self::RepliesMissing(_) => "replies_missing",
            Self::RepliesDoubled(_) => "replies_doubled",
            Self::RepliesReordered(_) => "replies_reordered",
            Self::RepliesUnsent(_) => "replies_unsent",
            Self::PongsStrange(_) => "pongs_strange",
            Self::MessagesRefused { .. } => "messages_refused",
            Self::RefusalsUntold { .. } => "refusals_untold",
            Self::CountersUnreadable(_) => "counters_unreadable",
            Self::PublicationsMissed(_) => "publications_missed",
            Self::PublicationsDoubled(_) => "publications_doubled",
            Self::PublicationsWrong(_) => "publications_wrong",
            Self::PublicationsUnheard => "publications_unheard",
            Self::PaceNotTaken { .. } => "pace_not_taken",
            Self::PaceMissed { .. } => "pace_missed",
            Self::GeneratorLate { .. } => "generator_late",
            Self::GeneratorNoise { .. } => "generator_noise",
            Self::GeneratorStarved { .. } => "generator_starved",
            Self::GeneratorThrottled { .. } => "generator_throttled",
            Self::GeneratorStopped { .. } => "generator_stopped",
            Self::GeneratorSaturated { .. } => "generator_saturated",
            Self::Noisy(_) => "noisy",
        }
    }

    /// True if something outside the generator kept it from working.
    #[must_use]
    pub fn holds_generator_back(&self) -> bool {
        matches!(
            self,
            Self::GeneratorStarved { .. }
                | Self::GeneratorThrottled { .. }
                | Self::GeneratorStopped { .. }
        )
    }

    /// The verdict over a figure with this doubt alone.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::GeneratorLate {
                p99_us,
                latency_p99_us: Some(latency_us),
            } if *p99_us < latency_us * LATE_PART_BOUND => Verdict::Noisy,
            Self::PaceMissed { .. }
            | Self::GeneratorLate { .. }
            | Self::GeneratorStarved { .. }
            | Self::GeneratorThrottled { .. }
            | Self::GeneratorStopped { .. }
            | Self::GeneratorSaturated { .. } => Verdict::GeneratorBound,
            Self::Noisy(_) | Self::GeneratorNoise { .. } => Verdict::Noisy,
            _ => Verdict::Failed,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(discrepancy) => discrepancy.fmt(f),
            Self::PaceNotTaken { .. }
            | Self::PaceMissed { .. }
            | Self::GeneratorLate { .. }
            | Self::GeneratorNoise { .. }
            | Self::GeneratorStarved { .. }
            | Self::GeneratorThrottled { .. }
            | Self::GeneratorStopped { .. }
            | Self::GeneratorSaturated { .. }
            | Self::Noisy(_) => f.write_str(&self.generator_words()),
            _ => f.write_str(&self.content_words()),
        }
    }
}

impl Doubt {
    /// Texts about the behaviour of the server.
    fn content_words(&self) -> String {
        match self {
            Self::Interrupted => {
                "The test was interrupted before its end: its figures cover only a part of the plan."
                    .to_owned()
            }
            Self::ConnectionsEnded { count, how } => format!(
                "{} connections ended before the load ended them: {how}.",
                grouped(*count)
            ),
            Self::RequestsFailed(text) => text.clone(),
            Self::RequestsUnanswered(count) => format!(
                "{} requests had no answer when the load ended; the latencies include them at their age. If the \
                 service may take longer, give it more time with --drain-ms.",
                grouped(*count)
            ),
            Self::RepliesWrong(count) => format!(
                "{} replies match no message in flight by kind or content: this server does not echo.",
                grouped(*count)
            ),
            Self::RepliesMissing(count) => format!(
                "{} messages received no reply, although the reply to a later message arrived.",
                grouped(*count)
            ),
            Self::RepliesDoubled(count) => format!(
                "{} replies arrived for messages that had been answered before.",
                grouped(*count)
            ),
            Self::RepliesReordered(count) => format!(
                "{} replies arrived after the reply to a later message.",
                grouped(*count)
            ),
            Self::RepliesUnsent(count) => format!(
                "{} replies arrived that answer nothing that had been sent: do not trust the answers of this server.",
                grouped(*count)
            ),
            Self::PongsStrange(count) => format!(
                "{} pongs answered no open ping: do not trust the confirmations of this server.",
                grouped(*count)
            ),
            Self::MessagesRefused { reason, count } => format!(
                "The server refused {} messages with {reason}.",
                grouped(*count)
            ),
            Self::RefusalsUntold { told } => format!(
                "The server reported {} refused messages, and may have refused more. Name its own counters with \
                 --stats-url, or raise its rate limit.",
                grouped(*told)
            ),
            Self::CountersUnreadable(error) => {
                format!("The server's counters could not be compared: {error}.")
            }
            Self::PublicationsMissed(count) => format!(
                "Subscribers missed {} publications and received later ones: the server dropped them, or changed \
                 their order.",
                grouped(*count)
            ),
            Self::PublicationsDoubled(count) => format!(
                "{} publications arrived again, or after later ones.",
                grouped(*count)
            ),
            Self::PublicationsWrong(count) => format!(
                "{} messages differ from their publication, or their offsets are not consecutive.",
                grouped(*count)
            ),
            _ => "No subscriber received anything. A server must send the messages of one connection to all \
                  others or, with protocol version 1, allow clients to use the topic fan-out."
                .to_owned(),
        }
    }

    /// Texts about the behaviour of the generator and its machine.
    fn generator_words(&self) -> String {
        match self {
            Self::PaceNotTaken {
                planned,
                offered,
                cause,
            } => {
                let (why, advice) = cause.words();
                format!(
                    "The server accepted {}/s of the planned {}/s: {why}. {advice}",
                    rate(*offered),
                    rate(*planned)
                )
            }
            Self::PaceMissed { planned, offered } => format!(
                "The generator offered {}/s of the planned {}/s. Give it more threads and cores, or plan a lower \
                 rate.",
                rate(*offered),
                rate(*planned)
            ),
            Self::GeneratorLate {
                p99_us,
                latency_p99_us,
            } => {
                let of = latency_p99_us.map_or_else(String::new, |latency_us| {
                    format!(
                        ", out of {} shown as the 99th percentile of the latency",
                        us(latency_us)
                    )
                });
                format!(
                    "One message in a hundred left the generator {} or more after its planned time{of}: the \
                     generator was late, not the server. Give it cores of its own, or plan a lower rate.",
                    us(*p99_us)
                )
            }
            Self::GeneratorNoise {
                bound_us,
                latency_us,
            } => format!(
                "Up to {} of the 99th percentile of {} may be the generator's own: its threads waited for cores that \
                 other programs used. Stop them, or give the generator cores of its own.",
                us(*bound_us),
                us(*latency_us)
            ),
            _ => self.disturbance_words(),
        }
    }

    /// Texts about disturbances of the generator and its limits.
    fn disturbance_words(&self) -> String {
        match self {
            Self::GeneratorStarved {
                waited_s,
                duration_s,
            } => format!(
                "A thread of the generator was ready to run for {} of {} while other programs used its cores. Stop \
                 them, or give the generator cores of its own.",
                seconds(*waited_s),
                seconds(*duration_s)
            ),
            Self::GeneratorThrottled { throttled_s } => format!(
                "A processor quota held the generator back for {}. Raise the quota of its control group or \
                 container.",
                seconds(*throttled_s)
            ),
            Self::GeneratorStopped { stopped_s } => format!(
                "The generator's process did not run for {}: it or its machine was stopped. Run it where nothing \
                 suspends it.",
                seconds(*stopped_s)
            ),
            Self::GeneratorSaturated { share, aim } => {
                let means = match aim {
                    Aim::RoundTrips => "the latencies are upper bounds",
                    Aim::Saturate | Aim::Keep => "the figure is a lower bound",
                };
                format!(
                    "The generator used {:.0} % of its available processor time and the server had time left: \
                     {means}. Give the generator more threads or a machine of its own.",
                    share * 100.0
                )
            }
            Self::Noisy(noise) => format!(
                "The rate varied by {:.0} % between quarters of a second (at most {:.0} % is accepted). Stop other \
                 work on the machine or measure for longer.",
                noise * 100.0,
                NOISE_MAX * 100.0
            ),
            _ => self.content_words(),
        }
    }
}

/// A rate for readers: whole from ten on.
fn rate(per_s: f64) -> String {
    if per_s >= 10.0 {
        grouped(per_s.round() as u64)
    } else {
        si(per_s)
    }
}
