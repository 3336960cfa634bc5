//! The list of topics that keep publications, for somebody who looks at the server.

use super::HistoryStore;
use std::sync::Arc;

/// A topic that keeps publications.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeptTopic {
    pub(crate) name: Arc<str>,
    /// Publications since its epoch began.
    pub(crate) publications: u64,
    /// How many of them are kept.
    pub(crate) kept: u64,
    /// Publications a second since the last look, at least a second ago.
    pub(crate) per_s: f64,
}

impl<T: Clone> HistoryStore<T> {
    /// Looks at the next `at_most` places from `from` on. Gives the topics among them that keep publications and whose
    /// names are wanted, in no order, and where to go on if these were not all places. Does not count as a use of the
    /// topics.
    pub(crate) fn kept_topics(
        &mut self,
        (from, at_most): (u32, u32),
        now_ms: u64,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> (Vec<KeptTopic>, Option<u32>) {
        let places = self.topics.index_end();
        let end = places.min(from.saturating_add(at_most));
        let mut found = Vec::new();
        for at in from..end {
            let Some(topic) = self.topics.at(at) else {
                continue;
            };
            let kept = topic.newest - topic.before_oldest();
            if kept > 0 && is_wanted(&topic.name) {
                found.push(KeptTopic {
                    name: Arc::clone(&topic.name),
                    publications: topic.newest,
                    kept,
                    per_s: self.rates.rate(at, topic.newest, now_ms),
                });
            }
        }
        (found, (end < places).then_some(end))
    }
}
