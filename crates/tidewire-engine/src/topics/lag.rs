//! What waits for a subscription that lags, when it is not to end its connection.

use super::history::Position;
use super::local::Slot;
use super::publication::Publication;
use std::collections::VecDeque;
use std::sync::Arc;
use tidewire_wire::session::{GapRange, GapReason, Overload, PublicationGap};

/// A subscription with a policy of its own. While its connection keeps up nothing waits here.
#[derive(Debug)]
pub(crate) struct Careful {
    pub(crate) slot: Slot,
    topic: Arc<str>,
    conflates: bool,
    waiting: VecDeque<Arc<Publication>>,
    waiting_bytes: usize,
    gap: Option<PublicationGap>,
}

/// What may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LagLimits {
    pub(crate) publications_max: usize,
    pub(crate) bytes_max: usize,
}

/// What the subscriber gets next.
#[derive(Debug)]
pub(crate) enum Next {
    Gap(PublicationGap),
    Publication(Arc<Publication>),
}

impl Careful {
    /// `None` for the policy that ends the connection.
    pub(crate) fn new(slot: Slot, topic: Arc<str>, overload: Overload) -> Option<Self> {
        let conflates = match overload {
            Overload::Disconnect => return None,
            Overload::Conflate => true,
            Overload::DropOldest => false,
        };
        Some(Self {
            slot,
            topic,
            conflates,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            gap: None,
        })
    }

    /// Takes over what waited for the subscription that this one replaces.
    pub(crate) fn adopt(&mut self, before: Self) {
        self.waiting = before.waiting;
        self.waiting_bytes = before.waiting_bytes;
        self.gap = before.gap;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.gap.is_none()
    }

    /// Lets a publication wait; how many others it takes the place of.
    pub(crate) fn push(&mut self, publication: Arc<Publication>, limits: LagLimits) -> u64 {
        let mut dropped = 0;
        if self.conflates
            && !publication.is_event()
            && let Some(index) = self.find_older(&publication)
        {
            dropped += self.drop_at(index, GapReason::Conflated);
        }
        self.waiting_bytes += publication.cost();
        self.waiting.push_back(publication);
        while self.waiting.len() > limits.publications_max.max(1)
            || (self.waiting_bytes > limits.bytes_max && self.waiting.len() > 1)
        {
            dropped += self.drop_at(0, GapReason::Dropped);
        }
        dropped
    }

    /// What the subscriber gets next. A gap comes before what follows it.
    pub(crate) fn pop(&mut self) -> Option<Next> {
        if let Some(gap) = self.gap.take() {
            return Some(Next::Gap(gap));
        }
        let publication = self.waiting.pop_front()?;
        self.waiting_bytes -= publication.cost();
        Some(Next::Publication(publication))
    }

    /// Where a waiting publication is that this one replaces.
    fn find_older(&self, publication: &Publication) -> Option<usize> {
        self.waiting.iter().rposition(|waiting| {
            let is_about_the_same =
                waiting.key == publication.key && waiting.topic == publication.topic;
            is_about_the_same && !waiting.is_event()
        })
    }

    fn drop_at(&mut self, index: usize, reason: GapReason) -> u64 {
        let Some(publication) = self.waiting.remove(index) else {
            return 0;
        };
        self.waiting_bytes -= publication.cost();
        self.note(&publication, reason);
        1
    }

    /// Remembers that a publication is not sent.
    pub(crate) fn note(&mut self, publication: &Publication, reason: GapReason) {
        // A pattern has publications of many topics, whose offsets do not compare.
        let position = publication
            .position
            .filter(|_| publication.topic.as_ref() == Some(&self.topic));
        let place = position.map(Position::as_range);
        let gap = self.gap.get_or_insert_with(|| PublicationGap {
            topic: self.topic.to_string(),
            reason,
            count: 0,
            range: place,
        });
        gap.count += 1;
        if reason == GapReason::Dropped {
            gap.reason = reason;
        }
        gap.range = match (gap.range, place) {
            (Some(range), Some(newer)) if range.epoch == newer.epoch => Some(GapRange {
                epoch: range.epoch,
                from: range.from.min(newer.from),
                to: range.to.max(newer.to),
            }),
            (range, place) => place.or(range),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::publication::{NewPublication, Placed};

    const LIMITS: LagLimits = LagLimits {
        publications_max: 3,
        bytes_max: 1 << 20,
    };

    fn publication(offset: u64, key: &str) -> Arc<Publication> {
        let topic: Arc<str> = "a".into();
        let new = NewPublication::new("t", offset.to_string()).with_key(key);
        let position = Position { epoch: 7, offset };
        Arc::new(new.draft().place(&Placed {
            topic: Some(&topic),
            position: Some(position),
            priority: tidewire_wire::envelope::Priority::Normal,
            unix_ms: 0,
        }))
    }

    fn drain(careful: &mut Careful) -> (Vec<PublicationGap>, Vec<u64>) {
        let (mut gaps, mut offsets) = (Vec::new(), Vec::new());
        while let Some(next) = careful.pop() {
            match next {
                Next::Gap(gap) => gaps.push(gap),
                Next::Publication(publication) => {
                    offsets.push(publication.position.unwrap().offset);
                }
            }
        }
        (gaps, offsets)
    }

    fn gap(reason: GapReason, count: u64, from: u64, to: u64) -> PublicationGap {
        let range = Some(GapRange { epoch: 7, from, to });
        let topic = "a".to_owned();
        PublicationGap {
            topic,
            reason,
            count,
            range,
        }
    }

    #[test]
    fn the_oldest_go_and_the_gap_names_them() {
        let mut careful = Careful::new(0, "a".into(), Overload::DropOldest).unwrap();
        let dropped: u64 = (1..=5)
            .map(|offset| careful.push(publication(offset, "k"), LIMITS))
            .sum();
        assert_eq!(dropped, 2);
        let gap = gap(GapReason::Dropped, 2, 1, 2);
        assert_eq!(drain(&mut careful), (vec![gap], vec![3, 4, 5]));
        assert!(careful.is_empty());
    }

    #[test]
    fn of_each_key_the_newest_is_kept() {
        let mut careful = Careful::new(0, "a".into(), Overload::Conflate).unwrap();
        for (offset, key) in [(1, "x"), (2, "y"), (3, "x"), (4, "x")] {
            careful.push(publication(offset, key), LIMITS);
        }
        let gap = gap(GapReason::Conflated, 2, 1, 3);
        assert_eq!(drain(&mut careful), (vec![gap], vec![2, 4]));
    }

    #[test]
    fn one_that_is_larger_than_the_limit_waits_alone() {
        let mut careful = Careful::new(0, "a".into(), Overload::DropOldest).unwrap();
        let limits = LagLimits {
            publications_max: 3,
            bytes_max: 1,
        };
        careful.push(publication(1, "k"), limits);
        careful.push(publication(2, "k"), limits);
        assert_eq!(drain(&mut careful).1, [2]);
    }
}
