//! Connections that ended before the plan ended them: how, with which code, and for which reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counts::error_name;
use crate::report::model::EndedConnections;

/// One way in which a connection ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ended {
    /// The name of the error, such as `closed-by-server`.
    pub how: &'static str,
    /// The code of a close frame.
    pub code: Option<u16>,
    /// The reason of a close frame, or nothing.
    pub reason: String,
    /// The connection was ready before it ended.
    pub was_ready: bool,
}

/// Numbers of ended connections by the way in which they ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<EndedConnections>", into = "Vec<EndedConnections>")]
pub struct EndedCounts(BTreeMap<Ended, u64>);

impl From<Vec<EndedConnections>> for EndedCounts {
    fn from(all: Vec<EndedConnections>) -> Self {
        let mut counts = Self::default();
        for one in all {
            let ended = Ended {
                how: error_name(&one.how),
                code: one.code,
                reason: one.reason.unwrap_or_default(),
                was_ready: one.was_ready,
            };
            counts.add_many(ended, one.count);
        }
        counts
    }
}

impl From<EndedCounts> for Vec<EndedConnections> {
    fn from(counts: EndedCounts) -> Self {
        counts.report()
    }
}

impl EndedCounts {
    /// Counts one. The server chooses codes and reasons, so their number is limited: a new end beyond
    /// [`KINDS_MAX`] counts without its reason, and beyond twice that number without its code.
    pub fn add(&mut self, ended: Ended) {
        self.add_many(ended, 1);
    }

    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Self) {
        for (ended, count) in &other.0 {
            self.add_many(ended.clone(), *count);
        }
    }

    /// Connections that were ready before they ended.
    #[must_use]
    pub fn ready(&self) -> u64 {
        let ready = self.0.iter().filter(|(ended, _)| ended.was_ready);
        ready.map(|(_, count)| count).sum()
    }

    /// All of them for a report, the most frequent first.
    #[must_use]
    pub fn report(&self) -> Vec<EndedConnections> {
        let mut all: Vec<EndedConnections> = self
            .0
            .iter()
            .map(|(ended, &count)| EndedConnections {
                how: ended.how.to_owned(),
                code: ended.code,
                reason: (!ended.reason.is_empty()).then(|| ended.reason.clone()),
                was_ready: ended.was_ready,
                count,
            })
            .collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.count));
        all
    }

    /// Counts several that ended in the same way.
    pub fn add_many(&mut self, mut ended: Ended, count: u64) {
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&ended) {
            ended.reason.clear();
            if self.0.len() >= 2 * KINDS_MAX && !self.0.contains_key(&ended) {
                ended.code = None;
            }
        }
        *self.0.entry(ended).or_default() += count;
    }
}

/// The number of different ends with a reason of their own; codes are kept up to twice this number.
const KINDS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(code: u16, reason: &str, was_ready: bool) -> Ended {
        Ended {
            how: "closed-by-server",
            code: Some(code),
            reason: reason.to_owned(),
            was_ready,
        }
    }

    #[test]
    fn ends_are_told_apart_and_added_up() {
        let mut all = EndedCounts::default();
        all.add(closed(4000, "bye", true));
        all.add(closed(1008, "", false));
        let mut others = EndedCounts::default();
        others.add(closed(4000, "bye", true));
        all.merge(&others);
        assert_eq!(all.ready(), 2);
        let report = all.report();
        assert_eq!((report[0].code, report[0].count), (Some(4000), 2));
        assert_eq!(report[0].reason.as_deref(), Some("bye"));
        assert_eq!((report[1].code, report[1].was_ready), (Some(1008), false));
        assert_eq!(report[1].reason, None);
    }

    #[test]
    fn a_server_that_invents_reasons_and_codes_fills_no_memory() {
        let mut all = EndedCounts::default();
        for number in 0..5_000u16 {
            all.add(closed(
                3000 + number % 1_000,
                &format!("reason {number}"),
                true,
            ));
        }
        assert_eq!(all.ready(), 5_000);
        assert!(all.report().len() <= 2 * KINDS_MAX + 1);
    }
}
