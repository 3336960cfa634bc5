//! Rates of publications per topic, since the last look.

use crate::topics::item::Slot;

/// The counts at the last request for rates. They use memory from the first request on.
#[derive(Debug, Default)]
pub(crate) struct TopicRates(Vec<TopicRate>);

#[derive(Debug, Clone, Copy, Default)]
struct TopicRate {
    publications: u64,
    at_ms: u64,
    per_s: f64,
}

impl TopicRates {
    /// Publications a second of the topic in a slot, since the last look that was a second ago or
    /// more.
    pub(crate) fn rate(&mut self, slot: Slot, publications: u64, now_ms: u64) -> f64 {
        let index = slot as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, TopicRate::default());
        }
        let mark = &mut self.0[index];
        if publications < mark.publications {
            // The slot has another topic now.
            (mark.publications, mark.per_s) = (0, 0.0);
        }
        let passed_ms = now_ms.saturating_sub(mark.at_ms);
        if passed_ms >= RATE_MS_MIN {
            let grown = (publications - mark.publications) as f64;
            let per_s = grown * 1000.0 / passed_ms as f64;
            *mark = TopicRate {
                publications,
                at_ms: now_ms,
                // Hundredths are enough to look at.
                per_s: (per_s * 100.0).round() / 100.0,
            };
        }
        mark.per_s
    }
}

/// The shortest time over which a rate is measured, in milliseconds.
const RATE_MS_MIN: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_over_a_second_at_least_and_starts_again_for_another_topic() {
        let mut marks = TopicRates::default();
        assert_eq!(marks.rate(3, 500, 10_000), 50.0);
        assert_eq!(marks.rate(3, 600, 10_999), 50.0);
        assert_eq!(marks.rate(3, 600, 11_000), 100.0);
        assert_eq!(marks.rate(3, 600, 13_000), 0.0);
        assert_eq!(marks.rate(3, 20, 13_500), 0.0);
        assert_eq!(marks.rate(3, 40, 15_000), 20.0);
    }
}
