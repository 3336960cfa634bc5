//! Lossy queues: what waits for a lagging subscription that conflates or drops.

use super::publication::Publication;
use crate::model::Position;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tidewire_wire::session::{GapRange, GapReason, Overload, PublicationGap};

/// A subscription whose overload policy is to conflate or to drop. While its connection keeps up nothing waits here.
#[derive(Debug)]
pub(crate) struct Lossy {
    topic: Arc<str>,
    conflates: bool,
    waiting: VecDeque<Option<Arc<Publication>>>,
    /// The number of publications in `waiting`: its other places are vacant.
    len: usize,
    /// The number of the first place.
    first: u64,
    /// The place of the newest publication of each key and topic, if it conflates.
    newest: HashMap<Subject, u64>,
    waiting_bytes: usize,
    gap: Option<PublicationGap>,
}

/// The key of a publication.
type Subject = (Option<Arc<str>>, Option<Box<str>>);

/// The limits of the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LagLimits {
    pub(crate) publications_max: usize,
    pub(crate) bytes_max: usize,
}

/// The next item for the subscriber.
#[derive(Debug)]
pub(crate) enum Next {
    Gap(PublicationGap),
    Publication(Arc<Publication>),
}

impl Lossy {
    /// `None` for the policy that ends the connection.
    pub(crate) fn new(topic: Arc<str>, overload: Overload) -> Option<Self> {
        let conflates = match overload {
            Overload::Disconnect => return None,
            Overload::Conflate => true,
            Overload::DropOldest => false,
        };
        Some(Self {
            topic,
            conflates,
            waiting: VecDeque::new(),
            len: 0,
            first: 0,
            newest: HashMap::new(),
            waiting_bytes: 0,
            gap: None,
        })
    }

    /// Adopts the waiting publications and the gap of the subscription that this one replaces.
    pub(crate) fn adopt(&mut self, before: Self) {
        *self = Self {
            topic: Arc::clone(&self.topic),
            conflates: self.conflates,
            newest: HashMap::new(),
            ..before
        };
        self.close_ranks();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0 && self.gap.is_none()
    }

    /// The bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Adds a waiting publication. Returns how many others are dropped for it.
    pub(crate) fn push(&mut self, publication: Arc<Publication>, limits: LagLimits) -> u64 {
        let mut dropped = 0;
        let place = self.first + self.waiting.len() as u64;
        if self.conflates && !publication.is_event() {
            let subject = (publication.topic.clone(), publication.key.clone());
            if let Some(older) = self.newest.insert(subject, place) {
                dropped += self.drop_at(older, GapReason::Conflated);
            }
        }
        self.waiting_bytes += publication.cost();
        self.waiting.push_back(Some(publication));
        self.len += 1;
        // With no room at all not even one may wait.
        let is_too_long = |lossy: &Self| {
            lossy.waiting_bytes > limits.bytes_max && (lossy.len > 1 || limits.bytes_max == 0)
        };
        while self.len > limits.publications_max.max(1) || is_too_long(self) {
            self.pass_vacant();
            dropped += self.drop_at(self.first, GapReason::Dropped);
        }
        self.pass_vacant();
        if self.waiting.len() > 2 * self.len + VACANT_MAX {
            self.close_ranks();
        }
        dropped
    }

    /// Removes and returns the next item for the subscriber. A gap precedes the publication that follows it.
    pub(crate) fn pop(&mut self) -> Option<Next> {
        if let Some(gap) = self.gap.take() {
            return Some(Next::Gap(gap));
        }
        self.pass_vacant();
        let publication = self.waiting.pop_front()??;
        self.first += 1;
        self.len -= 1;
        self.waiting_bytes -= publication.cost();
        if self.len == 0 {
            self.waiting = VecDeque::new();
            self.newest = HashMap::new();
        }
        Some(Next::Publication(publication))
    }

    /// Drops the vacant places at the front.
    fn pass_vacant(&mut self) {
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            self.first += 1;
        }
    }

    /// Drops all vacant places.
    fn close_ranks(&mut self) {
        self.waiting.retain(Option::is_some);
        self.newest.clear();
        let waiting = self.waiting.iter().flatten().enumerate();
        for (index, publication) in waiting.filter(|_| self.conflates) {
            if !publication.is_event() {
                let subject = (publication.topic.clone(), publication.key.clone());
                self.newest.insert(subject, self.first + index as u64);
            }
        }
    }

    /// Drops what waits at a place, if it still does.
    fn drop_at(&mut self, place: u64, reason: GapReason) -> u64 {
        let index = place.checked_sub(self.first);
        let place = index.and_then(|index| self.waiting.get_mut(usize::try_from(index).ok()?));
        let Some(publication) = place.and_then(Option::take) else {
            return 0;
        };
        self.len -= 1;
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

/// Vacant places that are kept.
const VACANT_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::new_publication::NewPublication;
    use crate::topics::publication::Placed;

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

    fn drain(lossy: &mut Lossy) -> (Vec<PublicationGap>, Vec<u64>) {
        let (mut gaps, mut offsets) = (Vec::new(), Vec::new());
        while let Some(next) = lossy.pop() {
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
        let mut lossy = Lossy::new("a".into(), Overload::DropOldest).unwrap();
        let dropped: u64 = (1..=5)
            .map(|offset| lossy.push(publication(offset, "k"), LIMITS))
            .sum();
        assert_eq!(dropped, 2);
        let gap = gap(GapReason::Dropped, 2, 1, 2);
        assert_eq!(drain(&mut lossy), (vec![gap], vec![3, 4, 5]));
        assert!(lossy.is_empty());
    }

    #[test]
    fn of_each_key_the_newest_is_kept() {
        let mut lossy = Lossy::new("a".into(), Overload::Conflate).unwrap();
        for (offset, key) in [(1, "x"), (2, "y"), (3, "x"), (4, "x")] {
            lossy.push(publication(offset, key), LIMITS);
        }
        let gap = gap(GapReason::Conflated, 2, 1, 3);
        assert_eq!(drain(&mut lossy), (vec![gap], vec![2, 4]));
    }

    #[test]
    fn a_thousand_keys_conflate_in_their_order() {
        let limits = LagLimits {
            publications_max: 10_000,
            bytes_max: 1 << 30,
        };
        let mut lossy = Lossy::new("a".into(), Overload::Conflate).unwrap();
        for offset in 1..=5_000 {
            lossy.push(publication(offset, &(offset % 1_000).to_string()), limits);
        }
        assert!(lossy.waiting.len() <= 2 * 1_000 + VACANT_MAX);
        let (gaps, offsets) = drain(&mut lossy);
        assert_eq!(gaps, [gap(GapReason::Conflated, 4_000, 1, 4_000)]);
        assert_eq!(offsets, (4_001..=5_000).collect::<Vec<_>>());
        assert_eq!(lossy.bytes(), 0);
    }

    #[test]
    fn without_room_nothing_waits() {
        let mut lossy = Lossy::new("a".into(), Overload::DropOldest).unwrap();
        let limits = LagLimits {
            publications_max: 3,
            bytes_max: 0,
        };
        assert_eq!(lossy.push(publication(1, "k"), limits), 1);
        assert_eq!(
            drain(&mut lossy),
            (vec![gap(GapReason::Dropped, 1, 1, 1)], vec![])
        );
    }

    #[test]
    fn one_that_is_larger_than_the_limit_waits_alone() {
        let mut lossy = Lossy::new("a".into(), Overload::DropOldest).unwrap();
        let limits = LagLimits {
            publications_max: 3,
            bytes_max: 1,
        };
        lossy.push(publication(1, "k"), limits);
        lossy.push(publication(2, "k"), limits);
        assert_eq!(drain(&mut lossy).1, [2]);
    }
}
