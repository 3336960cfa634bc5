//! Counts of a fan-out, of one worker or of all.

use serde::{Deserialize, Serialize};

/// The outcome of a fan-out measurement on one or all workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FanOutCounts {
    /// Subscribers at the start.
    pub subscribers: u64,
    /// Publications written.
    pub published: u64,
    /// Publications that a subscriber had not received when it received a later one, over all
    /// subscribers.
    pub gaps: u64,
    /// Publications that a subscriber received again, or after a later one.
    pub duplicates: u64,
    /// Messages that differ from every publication.
    pub wrong: u64,
    /// For each milestone, the times at which the first and the last subscriber received it, in
    /// nanoseconds since the epoch, as far as all have received it.
    pub spans_ns: Vec<(u64, u64)>,
}

impl FanOutCounts {
    /// Adds the counts of another worker at the same time.
    pub fn merge(&mut self, other: &Self) {
        if self.subscribers == 0 {
            self.spans_ns.clone_from(&other.spans_ns);
        } else if other.subscribers > 0 {
            self.spans_ns.truncate(other.spans_ns.len());
            for (span, one) in self.spans_ns.iter_mut().zip(&other.spans_ns) {
                *span = (span.0.min(one.0), span.1.max(one.1));
            }
        }
        self.subscribers += other.subscribers;
        self.published += other.published;
        self.gaps += other.gaps;
        self.duplicates += other.duplicates;
        self.wrong += other.wrong;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(subscribers: u64, spans_ns: &[(u64, u64)]) -> FanOutCounts {
        FanOutCounts {
            subscribers,
            spans_ns: spans_ns.to_vec(),
            ..FanOutCounts::default()
        }
    }

    #[test]
    fn the_span_of_a_publication_reaches_over_all_workers() {
        let mut all = FanOutCounts::default();
        for one in [
            counts(3, &[(10, 20), (30, 40)]),
            counts(0, &[]),
            counts(2, &[(12, 25)]),
        ] {
            all.merge(&one);
        }
        assert_eq!((all.subscribers, &all.spans_ns[..]), (5, &[(10, 25)][..]));
    }
}
