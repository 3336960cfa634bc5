//! Problems: states of the broker that an operator has to end, each with a name and a text that says what to do.

use crate::link::Link;
use std::collections::BTreeMap;

/// What is wrong with the broker although its connections work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Problem {
    /// The ACL refuses channels of topics, users or patterns.
    ChannelsRefused,
}

impl Problem {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::ChannelsRefused];

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ChannelsRefused => "channels_refused",
        }
    }

    /// Whether a server with this problem should receive no clients.
    #[must_use]
    pub fn is_fatal(self) -> bool {
        match self {
            Self::ChannelsRefused => false,
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
}
