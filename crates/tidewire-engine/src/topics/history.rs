//! Histories: the newest publications of each topic, so that a subscriber that was away can catch up.
//!
//! A [`HistoryStore`] keeps the newest publications of many topics under one budget of memory.
//! Every publication has a [`Position`]: the topic's epoch and an offset that counts from 1. As
//! long as the epoch is the same, offsets are consecutive and mean the same publications; whenever
//! the store forgets a topic's counter, the topic's next life has another epoch. So a recovery
//! either returns every publication after the requested position, or reports that it cannot.
//!
//! Memory: the rings of publications share a budget in bytes. When it is used up, the owner with
//! the most gives way: its topic that was used least recently loses its ring as a whole, but not
//! its position, so that those who missed nothing can still prove it. The number of topics has a
//! limit too: beyond it a topic is forgotten, those without publications first. A topic without
//! publications costs 100 to 150 bytes, besides its name; this is not in the budget, nor are the
//! free places of a ring, of which there are at most three times as many as publications.

mod kept;
mod ring;

pub(crate) use self::kept::KeptTopic;
pub use self::ring::HistoryLimits;
use self::ring::Ring;
use super::lru::{ENTRIES_MAX, List, Slots};
use crate::limits::fair::Shares;
use crate::limits::owner::OwnerId;
use crate::model::Position;
use crate::topics::rates::TopicRates;
use std::collections::HashMap;
use std::sync::Arc;

/// The recent publications of many topics. `T` is a stored publication, cheap to clone.
///
/// Every operation is O(1), except for copying publications out and dropping older ones.
#[derive(Debug)]
pub(crate) struct HistoryStore<T> {
    topics: Slots<Topic<T>>,
    index: HashMap<Arc<str>, u32>,
    /// The topics of each owner.
    shelves: HashMap<OwnerId, Shelf>,
    /// The bytes and the topics of each owner.
    byte_shares: Shares,
    topic_shares: Shares,
    bytes: usize,
    bytes_max: usize,
    topics_max: usize,
    /// Where the next sweep goes on.
    swept: u32,
    counters: HistoryCounters,
    /// For somebody who looks at the topics.
    rates: TopicRates,
}

/// The topics of one owner: the lists [`BARE`] and [`KEPT`].
#[derive(Debug)]
struct Shelf([List; 2]);

impl Default for Shelf {
    fn default() -> Self {
        Self([List::EMPTY; 2])
    }
}

/// The drops of the store since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HistoryCounters {
    /// Topics that lost their publications to the budget of bytes.
    pub(crate) rings_evicted: u64,
    /// Publications that were dropped for the budget of bytes.
    pub(crate) publications_evicted: u64,
    /// Publications that became too old.
    pub(crate) publications_expired: u64,
    /// Publications that were too large to be kept at all.
    pub(crate) publications_oversized: u64,
    /// Topics that were forgotten because there were too many; each has another epoch when it is used again.
    pub(crate) topics_forgotten: u64,
}

/// The answer to a subscriber that asks for the publications it missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recovery<T> {
    /// The position of the topic: later publications have a greater offset, or another epoch.
    pub(crate) position: Position,
    /// How many publications are kept: the newest ones, without a hole.
    pub(crate) kept: u64,
    /// Whether everything after the position that was asked for is there. False without one.
    pub(crate) complete: bool,
    /// The first of the missed publications in order; empty unless complete.
    pub(crate) publications: Vec<T>,
}

/// A part of a topic's history, for someone who looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page<T> {
    /// Where the topic stands; `None` for a topic that is not known.
    pub(crate) position: Option<Position>,
    /// The offset of the oldest publication that is kept; the next one's if none is kept.
    pub(crate) oldest: u64,
    /// The publications in the order that was asked for.
    pub(crate) publications: Vec<T>,
    /// Whether there are more publications in this direction.
    pub(crate) more: bool,
}

#[derive(Debug)]
struct Topic<T> {
    name: Arc<str>,
    /// Never an empty one. Boxed, because most topics may have none.
    ring: Option<Box<Ring<T>>>,
    /// The offset of the newest publication.
    newest: u64,
    epoch: u32,
    /// The publications before the oldest kept one were dropped because of their age.
    has_expired: bool,
    /// The owner that created it.
    owner: OwnerId,
}

impl<T: Clone> HistoryStore<T> {
    /// A store without topics, for at most `bytes_max` bytes of publications and `topics_max`
    /// topics (at least one).
    pub(crate) fn new(bytes_max: usize, topics_max: usize) -> Self {
        Self {
            topics: Slots::new(),
            index: HashMap::new(),
            shelves: HashMap::new(),
            byte_shares: Shares::new(BYTE_GRANULE),
            topic_shares: Shares::new(1),
            bytes: 0,
            bytes_max,
            topics_max: topics_max.clamp(1, ENTRIES_MAX),
            swept: 0,
            counters: HistoryCounters::default(),
            rates: TopicRates::default(),
        }
    }

    /// Appends a publication, which `make` builds for its position.
    ///
    /// `bytes` is the memory that the publication holds. One that is larger than the limits gets
    /// its position, but is not kept, and all older publications are dropped: nothing could be
    /// recovered across it. `random_epoch` is the epoch if the topic is not known.
    pub(crate) fn append(
        &mut self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        now_ms: u64,
        (random_epoch, owner): (u32, OwnerId),
        bytes: usize,
        make: impl FnOnce(Position) -> T,
    ) -> (Position, T) {
        let at = self.used(topic, random_epoch, owner);
        self.topics[at].newest += 1;
        let position = self.topics[at].position();
        let publication = make(position);
        let charge = Ring::<T>::charge(bytes);
        let alone = charge.saturating_add(Ring::<T>::BYTES_FIXED);
        if limits.publications_max == 0 || charge > limits.bytes_max || alone > self.bytes_max {
            self.counters.publications_oversized += 1;
            self.change(at, Ring::clear);
        } else {
            self.keep(at, publication.clone(), now_ms, charge);
            self.trim(at, limits, now_ms);
            self.keep_budget(at);
        }
        (position, publication)
    }

    /// Sets the position of a topic whose publications are counted elsewhere. If the position
    /// changes, the kept publications are dropped.
    pub(crate) fn stand(&mut self, topic: &Arc<str>, head: Position, owner: OwnerId) {
        let at = self.used(topic, head.epoch, owner);
        if self.topics[at].position() != head {
            self.change(at, Ring::clear);
            self.topics[at].epoch = head.epoch;
            self.topics[at].newest = head.offset;
            self.topics[at].has_expired = false;
        }
    }

    /// The number that is kept before the oldest publication of a topic that stands here: the least offset to
    /// recover from.
    pub(crate) fn before_oldest(&self, topic: &str, head: Position) -> u64 {
        let at = self.index.get(topic).map(|at| &self.topics[*at]);
        let known = at.filter(|topic| topic.position() == head);
        known.map_or(head.offset, Topic::before_oldest)
    }

    /// The offset up to which everything of a topic that stands here is known to be too old.
    pub(crate) fn expired(&self, topic: &str, head: Position) -> u64 {
        let at = self.index.get(topic).map(|at| &self.topics[*at]);
        let known = at.filter(|topic| topic.position() == head);
        let expired = known.filter(|topic| topic.has_expired);
        expired.map_or(0, Topic::before_oldest)
    }

    /// All that is kept of a topic that stands here, and the time of each.
    pub(crate) fn newest_of(&self, topic: &str, head: Position) -> Vec<(T, u64)> {
        let at = self.index.get(topic).map(|at| &self.topics[*at]);
        let known = at.filter(|topic| topic.position() == head);
        let ring = known.and_then(|topic| topic.ring.as_ref());
        ring.map_or_else(Vec::new, |ring| ring.all())
    }

    /// Replaces the kept publications of a topic that stands here: the newest ones without a hole,
    /// each with the memory that it holds and its time.
    pub(crate) fn restore(
        &mut self,
        topic: &Arc<str>,
        head: Position,
        publications: impl Iterator<Item = (T, usize, u64)>,
        limits: &HistoryLimits,
        now_ms: u64,
    ) {
        self.stand(topic, head, OwnerId::SERVER);
        let at = self.used(topic, head.epoch, OwnerId::SERVER);
        self.change(at, Ring::clear);
        for (publication, bytes, at_ms) in publications {
            self.keep(at, publication, at_ms, Ring::<T>::charge(bytes));
        }
        self.trim(at, limits, now_ms);
        self.keep_budget(at);
    }

    /// Where the topic stands; makes it known if it is not.
    #[cfg(test)]
    pub(crate) fn position(&mut self, topic: &Arc<str>, random_epoch: u32) -> Position {
        let at = self.used(topic, random_epoch, OwnerId::SERVER);
        self.topics[at].position()
    }

    /// The publications after `since`, if all of them are there still: the first `limit`
    /// publications.
    ///
    /// Without `since` it gives only the position. Makes the topic known if it is not.
    pub(crate) fn recover(
        &mut self,
        topic: &Arc<str>,
        (since, limit): (Option<Position>, usize),
        limits: &HistoryLimits,
        now_ms: u64,
        (random_epoch, owner): (u32, OwnerId),
    ) -> Recovery<T> {
        let at = self.used(topic, random_epoch, owner);
        self.trim(at, limits, now_ms);
        let topic = &self.topics[at];
        let position = topic.position();
        let complete = since.is_some_and(|since| {
            since.epoch == topic.epoch
                && since.offset <= topic.newest
                && since.offset >= topic.before_oldest()
        });
        let publications = match since {
            Some(since) if complete => {
                let limit = u64::try_from(limit).unwrap_or(u64::MAX);
                let end = topic.newest.min(since.offset.saturating_add(limit));
                topic.between(since.offset, end)
            }
            _ => Vec::new(),
        };
        Recovery {
            position,
            kept: topic.newest - topic.before_oldest(),
            complete,
            publications,
        }
    }

    /// The topic's newest publication, if it is kept.
    pub(crate) fn newest(&mut self, topic: &str, limits: &HistoryLimits, now_ms: u64) -> Option<T> {
        let at = *self.index.get(topic)?;
        self.trim(at, limits, now_ms);
        self.topics[at].ring.as_ref()?.newest()
    }

    /// At most `limit` of the publications that are kept.
    ///
    /// They are those after `since_offset` (or from the oldest) in order, or, in `reverse`, those
    /// before `since_offset` (or from the newest) with the newest first. Does not count as a use of
    /// the topic.
    pub(crate) fn page(
        &mut self,
        topic: &str,
        since_offset: Option<u64>,
        limit: usize,
        reverse: bool,
        limits: &HistoryLimits,
        now_ms: u64,
    ) -> Page<T> {
        let Some(&at) = self.index.get(topic) else {
            return Page {
                position: None,
                oldest: 1,
                publications: Vec::new(),
                more: false,
            };
        };
        self.trim(at, limits, now_ms);
        let topic = &self.topics[at];
        let (low, high) = (topic.before_oldest(), topic.newest);
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        let (publications, more) = if reverse {
            let end = since_offset.map_or(high, |since| since.saturating_sub(1).clamp(low, high));
            let start = low.max(end.saturating_sub(limit));
            let mut publications = topic.between(start, end);
            publications.reverse();
            (publications, start > low)
        } else {
            let start = since_offset.unwrap_or(low).clamp(low, high);
            let end = high.min(start.saturating_add(limit));
            (topic.between(start, end), end < high)
        };
        Page {
            position: Some(topic.position()),
            oldest: low + 1,
            publications,
            more,
        }
    }

    /// Forgets a topic and its publications. Returns whether it was known. It has another epoch
    /// when it is used again.
    pub(crate) fn remove(&mut self, topic: &str) -> bool {
        let Some(&at) = self.index.get(topic) else {
            return false;
        };
        self.forget(at);
        true
    }

    /// Looks at the next `at_most` topics for publications that are too old, and gives how many it
    /// dropped.
    pub(crate) fn sweep(
        &mut self,
        now_ms: u64,
        limits_of: impl Fn(&str) -> HistoryLimits,
        at_most: usize,
    ) -> usize {
        let before = self.counters.publications_expired;
        let end = self.topics.index_end();
        for _ in 0..at_most.min(end as usize) {
            let at = if self.swept < end { self.swept } else { 0 };
            self.swept = at + 1;
            let has_ring = |topic: &&Topic<T>| topic.ring.is_some();
            if let Some(topic) = self.topics.at(at).filter(has_ring) {
                let limits = limits_of(&topic.name);
                self.trim(at, &limits, now_ms);
            }
        }
        usize::try_from(self.counters.publications_expired - before).unwrap_or(usize::MAX)
    }

    /// The charge for the kept publications and their rings, in bytes: at most the budget.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many topics are known, with publications or without.
    pub(crate) fn topics(&self) -> usize {
        self.topics.len()
    }

    /// The drops so far.
    pub(crate) fn counters(&self) -> HistoryCounters {
        self.counters
    }

    /// The topic's index, with the topic made the most recently used one of its list.
    fn used(&mut self, topic: &Arc<str>, random_epoch: u32, owner: OwnerId) -> u32 {
        if let Some(&at) = self.index.get(topic) {
            let list = self.topics[at].list();
            self.relink(at, list, list);
            return at;
        }
        if self.topics.len() >= self.topics_max {
            let yielding = self.topic_shares.first_to_yield(owner);
            let shelf = yielding.and_then(|owner| self.shelves.get(&owner));
            if let Some(Shelf([bare, kept])) = shelf
                && let Some(oldest) = bare.oldest().or(kept.oldest())
            {
                self.counters.topics_forgotten += 1;
                self.forget(oldest);
            }
        }
        let at = self.topics.insert(Topic {
            name: Arc::clone(topic),
            ring: None,
            newest: 0,
            epoch: random_epoch,
            has_expired: false,
            owner,
        });
        let Shelf(lists) = self.shelves.entry(owner).or_default();
        self.topics.link(&mut lists[BARE], at);
        self.topic_shares.add(owner, 1);
        self.index.insert(Arc::clone(topic), at);
        at
    }

    fn keep(&mut self, at: u32, publication: T, now_ms: u64, charge: usize) {
        let topic = &mut self.topics[at];
        let (list, owner) = (topic.list(), topic.owner);
        let fixed = match topic.ring {
            Some(_) => 0,
            None => Ring::<T>::BYTES_FIXED,
        };
        let ring = topic.ring.get_or_insert_with(|| Box::new(Ring::new()));
        ring.push(publication, now_ms, charge);
        self.bytes += charge + fixed;
        self.byte_shares.add(owner, charge + fixed);
        self.relink(at, list, KEPT);
    }

    /// Drops what the topic's limits no longer allow.
    fn trim(&mut self, at: u32, limits: &HistoryLimits, now_ms: u64) {
        let mut expired = 0;
        self.change(at, |ring| {
            let shortened = ring.shorten(limits);
            expired = ring.expire(limits, now_ms);
            shortened + expired
        });
        if expired > 0 {
            self.counters.publications_expired += expired as u64;
            self.topics[at].has_expired = true;
        }
    }

    /// Drops other publications until the budget is kept: those of the owner with the most, the
    /// least recently used topic first, and in the end the oldest ones of this topic. The topic was
    /// used just now and its newest publication fits.
    fn keep_budget(&mut self, at: u32) {
        while self.bytes > self.bytes_max {
            let yielding = self.byte_shares.first_to_yield(self.topics[at].owner);
            let shelf = yielding.and_then(|owner| self.shelves.get(&owner));
            match shelf.and_then(|Shelf(lists)| lists[KEPT].oldest()) {
                Some(other) if other != at => {
                    self.counters.rings_evicted += 1;
                    self.counters.publications_evicted += self.change(other, Ring::clear);
                }
                _ => self.counters.publications_evicted += self.change(at, Ring::drop_oldest),
            }
        }
    }

    /// Changes a ring by a function that gives how many publications it dropped; 0 if there is no
    /// ring.
    fn change(&mut self, at: u32, drop_some: impl FnOnce(&mut Ring<T>) -> usize) -> u64 {
        let Some(ring) = &mut self.topics[at].ring else {
            return 0;
        };
        let before = ring.bytes();
        let dropped = drop_some(ring);
        let mut freed = before - ring.bytes();
        let is_empty = ring.len() == 0;
        if is_empty {
            self.topics[at].ring = None;
            freed += Ring::<T>::BYTES_FIXED;
        }
        if freed > 0 {
            self.topics[at].has_expired = false;
            self.bytes -= freed;
            self.byte_shares.sub(self.topics[at].owner, freed);
        }
        if is_empty {
            self.relink(at, KEPT, BARE);
        }
        dropped as u64
    }

    fn relink(&mut self, at: u32, from: usize, to: usize) {
        let owner = self.topics[at].owner;
        let Shelf(lists) = self.shelves.entry(owner).or_default();
        self.topics.unlink(&mut lists[from], at);
        self.topics.link(&mut lists[to], at);
    }

    fn forget(&mut self, at: u32) {
        self.change(at, Ring::clear);
        let owner = self.topics[at].owner;
        if let Some(Shelf(lists)) = self.shelves.get_mut(&owner) {
            self.topics.unlink(&mut lists[BARE], at);
            if lists[BARE].oldest().is_none() && lists[KEPT].oldest().is_none() {
                self.shelves.remove(&owner);
            }
        }
        self.topic_shares.sub(owner, 1);
        if let Some(topic) = self.topics.remove(at) {
            self.index.remove(&topic.name);
        }
    }
}

impl<T: Clone> Topic<T> {
    fn position(&self) -> Position {
        Position {
            epoch: self.epoch,
            offset: self.newest,
        }
    }

    /// The list that it is in.
    fn list(&self) -> usize {
        if self.ring.is_some() { KEPT } else { BARE }
    }

    /// The offset just before the oldest publication that is kept: the least to recover from.
    fn before_oldest(&self) -> u64 {
        self.newest - self.ring.as_ref().map_or(0, |ring| ring.len() as u64)
    }

    /// The publications after the offset `start` up to `end`, all of which are kept.
    fn between(&self, start: u64, end: u64) -> Vec<T> {
        let base = self.before_oldest();
        let place = |offset: u64| usize::try_from(offset - base).unwrap_or(usize::MAX);
        match &self.ring {
            Some(ring) if start < end => ring.copies(place(start)..place(end)),
            _ => Vec::new(),
        }
    }
}

/// Owners are compared by this many bytes of history.
const BYTE_GRANULE: usize = 4 * 1024;

/// The list of the topics of which only the position is known.
const BARE: usize = 0;

/// The list of the topics that have a ring.
const KEPT: usize = 1;

#[cfg(test)]
mod tests;
