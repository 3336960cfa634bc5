//! Delivery times: when the publications that a shard has received from its outlet were published.

use std::collections::VecDeque;
use std::time::Instant;

/// Publications that a shard has received and not delivered yet, by the turn of their receipt.
#[derive(Debug, Default)]
pub(crate) struct DeliveryTimes {
    turns: VecDeque<TakenPublications>,
    publications: usize,
}

/// The delivery times of a shard in one turn.
#[derive(Debug)]
struct TakenPublications {
    /// When the oldest was published.
    since: Instant,
    publications: usize,
}

impl DeliveryTimes {
    /// The shard has received publications, at least one.
    pub(crate) fn add(&mut self, since: Instant, publications: usize) {
        self.publications += publications;
        self.turns.push_back(TakenPublications {
            since,
            publications,
        });
    }

    /// The shard has delivered all but the `left` newest: calls `record` with the oldest time and
    /// the number of publications of each turn of which nothing is left.
    pub(crate) fn settle(&mut self, left: usize, mut record: impl FnMut(Instant, usize)) {
        while let Some(turn) = self.turns.front()
            && self.publications - turn.publications >= left
        {
            record(turn.since, turn.publications);
            self.publications -= turn.publications;
            self.turns.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_turn_is_recorded_when_all_of_it_is_delivered() {
        let mut times = DeliveryTimes::default();
        let first = Instant::now();
        let second = first + Duration::from_millis(1);
        times.add(first, 3);
        times.add(second, 2);
        let mut settled = |left| {
            let mut recorded = Vec::new();
            times.settle(left, |since, count| recorded.push((since, count)));
            recorded
        };
        assert_eq!(settled(5), []);
        assert_eq!(settled(3), []);
        assert_eq!(settled(1), [(first, 3)]);
        assert_eq!(settled(0), [(second, 2)]);
        assert_eq!(settled(0), []);
    }
}
