//! Judgement of a report: verdict, bottleneck, errors of replies, and the health of the generator.

use serde::{Deserialize, Serialize};

/// Whether a figure is reliable; ordered from best to worst.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything was accounted for and the generator was not the limit.
    #[default]
    Valid,
    /// The rate varied too much.
    Noisy,
    /// The generator determined the figures: they are bounds of the server's capacity.
    GeneratorBound,
    /// Messages or connections were lost or failed.
    Failed,
}

impl Verdict {
    /// The value in a report.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::GeneratorBound => "generator_bound",
            Self::Noisy => "noisy",
            Self::Failed => "failed",
        }
    }

    /// Exit code of a run with this verdict: 0 valid, 1 failed, 3 generator bound, 4 noisy.
    /// [`EXIT_USAGE`], [`EXIT_BROKEN`] and [`EXIT_INTERRUPTED`] belong to no verdict.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Valid => 0,
            Self::Failed => 1,
            Self::GeneratorBound => 3,
            Self::Noisy => 4,
        }
    }
}

/// Which side was the limit of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The server's processor time.
    Server,
    /// The generator's processor time.
    Client,
    /// Both sides were saturated.
    Both,
    /// Neither side was saturated, or it is not known.
    #[default]
    None,
}

impl Bottleneck {
    /// The value in a report.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Both => "both",
            Self::None => "none",
        }
    }
}

/// Replies that an echo does not send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplyFaults {
    /// Replies whose kind or content matches no message in flight.
    pub wrong: u64,
    /// Messages without a reply, although the reply to a later one arrived.
    pub missing: u64,
    /// Replies to messages that had been answered before.
    pub doubled: u64,
    /// Replies that arrived after the reply to a later message.
    pub reordered: u64,
    /// Replies to messages that had not been sent.
    pub unsent: u64,
}

impl ReplyFaults {
    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.wrong += other.wrong;
        self.missing += other.missing;
        self.doubled += other.doubled;
        self.reordered += other.reordered;
        self.unsent += other.unsent;
    }
}

/// Whether the generator had the processor and sent in time. A value that the system does not
/// provide is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GeneratorHealth {
    /// Seconds in which a thread was ready to run and had no core, of the thread that waited
    /// longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_s: Option<f64>,
    /// The part of `waited_s` in which programs other than the server used the cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_for_others_s: Option<f64>,
    /// Seconds in which a processor quota held the process back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_s: Option<f64>,
    /// Seconds in which the whole process did not run although it was not waiting for a core.
    pub stopped_s: f64,
    /// The most by which the percentiles of a load's latency can be the generator's own, because its
    /// threads waited for their cores or sent late; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_us: Option<ErrorBounds>,
    /// How late messages of a given rate left the generator; absent in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_us: Option<Lateness>,
}

/// A bound for each percentile, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorBounds {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
}

/// The delay from the planned time of messages until they were written to their sockets, in
/// microseconds. It does not include the time in which a socket accepts nothing, which the server
/// causes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lateness {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// Largest value.
    pub max: f64,
    /// Number of values.
    pub count: u64,
}

/// Exit code for a mistake in the command line or the configuration, and for a load that is impossible here.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of a run with a broken expectation, or with a figure that is slower than the
/// baseline's where this fails the run.
pub const EXIT_BROKEN: u8 = 5;
/// Exit code of a run that was interrupted.
pub const EXIT_INTERRUPTED: u8 = 130;
/// The reason of a partial report whose run was interrupted.
pub const INTERRUPTED: &str = "the run was interrupted";

/// The exit code of a program if several apply: an interruption counts before an impossible load,
/// then a failure, a generator that was the limit, a broken expectation, and noise. 0 without any.
#[must_use]
pub fn exit_code_of(codes: impl IntoIterator<Item = u8>) -> u8 {
    let rank = |code: &u8| EXIT_ORDER.iter().position(|known| known == code);
    let codes = codes.into_iter().filter(|&code| code != 0);
    codes
        .min_by_key(|code| rank(code).unwrap_or(EXIT_ORDER.len()))
        .unwrap_or(0)
}

const EXIT_ORDER: [u8; 6] = [EXIT_INTERRUPTED, EXIT_USAGE, 1, 3, EXIT_BROKEN, 4];
