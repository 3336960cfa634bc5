//! Problems: states of the broker that an operator has to end, each with a name and a text that contains the
//! remedy.

use crate::connection::{ErrorKind, ServerError};
use crate::link::Link;
use crate::link::options::Now;
use std::collections::BTreeMap;

/// A fault of the broker although its connections work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Problem {
    /// The terms of this node differ from those of the cluster: it does not join.
    DoesNotAgree,
    /// The memory of Redis is full.
    Full,
    /// Redis has fewer replicas than it wants for a write.
    TooFewReplicas,
    /// Redis cannot write to its disk.
    DiskFails,
    /// The ACL refuses commands or keys.
    CommandsRefused,
    /// The ACL refuses channels of topics, users or patterns.
    ChannelsRefused,
    /// The rules of topics, the limits, or what an operator has changed differ from those of other nodes.
    SettingsDiffer,
    /// A publication of another program or a newer server was not understood.
    Unreadable,
    /// The key of a topic holds something that is no stream.
    WrongKey,
}

impl Problem {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::DoesNotAgree,
        Self::Full,
        Self::TooFewReplicas,
        Self::DiskFails,
        Self::CommandsRefused,
        Self::ChannelsRefused,
        Self::SettingsDiffer,
        Self::Unreadable,
        Self::WrongKey,
    ];

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DoesNotAgree => "does_not_agree",
            Self::Full => "full",
            Self::TooFewReplicas => "too_few_replicas",
            Self::DiskFails => "disk_fails",
            Self::CommandsRefused => "commands_refused",
            Self::ChannelsRefused => "channels_refused",
            Self::SettingsDiffer => "settings_differ",
            Self::Unreadable => "unreadable",
            Self::WrongKey => "wrong_key",
        }
    }

    /// Whether a server with this problem should receive no clients.
    #[must_use]
    pub fn is_fatal(self) -> bool {
        match self {
            Self::DoesNotAgree | Self::Full | Self::TooFewReplicas => true,
            Self::DiskFails | Self::CommandsRefused | Self::Unreadable => true,
            Self::ChannelsRefused | Self::SettingsDiffer | Self::WrongKey => false,
        }
    }

    /// Of an error with which Redis refuses writes.
    fn of_refused_write(kind: ErrorKind) -> Option<Self> {
        match kind {
            ErrorKind::OutOfMemory => Some(Self::Full),
            ErrorKind::NoReplicas => Some(Self::TooFewReplicas),
            ErrorKind::Misconfigured => Some(Self::DiskFails),
            ErrorKind::NoPermission => Some(Self::CommandsRefused),
            _ => None,
        }
    }
}

/// The problems of now, with the text of each.
pub type Problems = BTreeMap<Problem, String>;

impl Link {
    pub(super) fn begin_problem(&mut self, problem: Problem, text: String) {
        let known = self.health.problems.entry(problem).or_default();
        if *known != text {
            *known = text;
        }
    }

    pub(super) fn end_problem(&mut self, problem: Problem) {
        self.health.problems.remove(&problem);
    }

    /// Redis refused a script that writes.
    pub(super) fn note_refused_write(&mut self, error: &ServerError) {
        if let Some(problem) = Problem::of_refused_write(error.kind) {
            self.begin_problem(problem, error.to_string());
        }
    }

    /// Redis accepts writes: the script of the lease, which writes each second, was done.
    pub(super) fn end_refused_writes(&mut self) {
        if self.health.problems.is_empty() {
            return;
        }
        for problem in [Problem::Full, Problem::TooFewReplicas, Problem::DiskFails] {
            self.end_problem(problem);
        }
        // The lease may be allowed and publications not; without one that waits nobody knows.
        if !self.publishing.is_denied || self.publishing.bytes == 0 {
            self.end_problem(Problem::CommandsRefused);
        }
    }

    /// A publication or an entry of a stream was not understood.
    pub(super) fn begin_unreadable(&mut self, topic: &str, why: &str, now: Now) {
        self.counters.unreadable += 1;
        let until_ms = now.ms + LASTS_MS;
        self.timed_problems.insert(Problem::Unreadable, until_ms);
        let text = format!(
            "a publication of topic {topic} in the broker is not understood: {why}; update this server, or end \
             the program that writes to its keys"
        );
        self.begin_problem(Problem::Unreadable, text);
    }

    /// The key of a topic holds something that no server wrote.
    pub(super) fn begin_wrong_key(&mut self, topic: &str, now: Now) {
        let until_ms = now.ms + LASTS_MS;
        self.timed_problems.insert(Problem::WrongKey, until_ms);
        let text = format!("the key of topic {topic} in Redis is no stream; delete it");
        self.health.reason = Some(text.clone());
        self.begin_problem(Problem::WrongKey, text);
    }

    pub(super) fn tick_problems(&mut self, now: Now) {
        while let Some((problem, at_ms)) = self.first_timed()
            && at_ms <= now.ms
        {
            self.timed_problems.remove(&problem);
            self.end_problem(problem);
        }
    }

    fn first_timed(&self) -> Option<(Problem, u64)> {
        let all = self.timed_problems.iter();
        all.min_by_key(|(_, at_ms)| **at_ms)
            .map(|(problem, at_ms)| (*problem, *at_ms))
    }

    pub(super) fn problems_deadline_ms(&self) -> Option<u64> {
        self.first_timed().map(|(_, at_ms)| at_ms)
    }
}

/// How long a problem that is seen in a single publication lasts after the last of them, in milliseconds.
const LASTS_MS: u64 = 60_000;
