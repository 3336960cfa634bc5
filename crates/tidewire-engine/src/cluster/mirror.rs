//! Mirrors: what this server has of the topics that it shares with others.
//!
//! The mirror of a topic with history has the newest publications of the broker's stream, without a
//! hole, up to where the link has delivered. So most subscriptions and recoveries need no question
//! to the broker. What a mirror lacks is read from the broker once, for all who wait for it.

use crate::limits::owner::OwnerId;
use crate::model::Position;
use crate::topics::broker::{Missed, PageQuery, Prepare, Refusal, Ticket};
use crate::topics::history::{HistoryLimits, HistoryStore, Page, Recovery};
use crate::topics::publication::Publication;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The mirrors of all shared topics, under one lock.
#[derive(Debug)]
pub(crate) struct Mirrors {
    pub(crate) topics: HashMap<Arc<str>, Mirror>,
    store: HistoryStore<Arc<Publication>>,
    /// Readings of streams so far.
    fillings: u64,
    /// The largest size of all histories together, in bytes.
    bytes_max: usize,
}

/// The mirror of one topic.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// The history that the topic's rule keeps.
    pub(crate) limits: Option<HistoryLimits>,
    /// The link delivers everything from here on.
    pub(crate) is_live: bool,
    /// Where the topic stands; `None` without history, or before it is live.
    pub(crate) head: Option<Position>,
    /// Nothing before this offset is in the broker's stream, as of the last time it was read.
    floor: u64,
    /// It is being read.
    pub(crate) filling: Option<Filling>,
    /// It is read when others have been.
    pub(crate) waits_to_fill: bool,
    /// The link has been asked for it and has not looked at it since.
    pub(crate) is_asked_for: bool,
    /// The jobs that wait for it, with their deadlines on the link's clock.
    pub(crate) waiting: Vec<Waiting>,
    /// Its subscribers learn who is there.
    pub(crate) follows_presence: bool,
    /// It is known who is there.
    pub(crate) has_presence: bool,
    /// This server has subscribers of it.
    pub(crate) has_interest: bool,
    /// It is removed at this time, unless somebody wants it again. On the link's clock.
    pub(crate) idle_at_ms: Option<u64>,
}

/// Somebody who waits for a topic.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) wanted: Prepare,
    pub(crate) ticket: Ticket,
    /// Set by the link when it is notified.
    pub(crate) until_ms: Option<u64>,
}

/// A stream that is being read from its oldest publication on.
#[derive(Debug)]
pub(crate) struct Filling {
    /// Which reading it is: answers to an earlier one are of no use.
    number: u64,
    /// The newest publications read so far, and when each was published: what the topic may keep.
    entries: VecDeque<(Position, Arc<Publication>, u64)>,
    bytes: usize,
}

impl Filling {
    /// Appends the next publication, and drops the oldest ones beyond the limits.
    fn push(
        &mut self,
        topic: &str,
        (position, publication, published_ms): (Position, Arc<Publication>, u64),
        limits: &HistoryLimits,
    ) {
        let follows = self.entries.back().is_none_or(|(last, _, _)| {
            last.epoch == position.epoch && last.offset + 1 == position.offset
        });
        if !follows {
            self.entries.clear();
            self.bytes = 0;
        }
        self.bytes += kept_bytes(topic, &publication);
        self.entries
            .push_back((position, publication, published_ms));
        while self.bytes > limits.bytes_max || self.entries.len() > limits.publications_max {
            let Some((_, oldest, _)) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= kept_bytes(topic, &oldest);
        }
    }
}

impl Mirror {
    /// The link delivers everything, and it is known who is there, if it should be.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_live && (self.has_presence || !self.follows_presence)
    }
}

impl Mirrors {
    pub(crate) fn new(history_bytes_max: usize, history_topics_max: usize) -> Self {
        Self {
            topics: HashMap::new(),
            store: HistoryStore::new(history_bytes_max, history_topics_max),
            fillings: 0,
            bytes_max: history_bytes_max,
        }
    }

    /// Whether the mirror of a topic can answer the request now.
    pub(crate) fn is_ready(&mut self, topic: &Arc<str>, wanted: Prepare) -> bool {
        let Some(mirror) = self.topics.get(topic).filter(|mirror| mirror.is_complete()) else {
            return false;
        };
        let (Some(limits), Some(head)) = (mirror.limits, mirror.head) else {
            return true;
        };
        let before_oldest = self.store.before_oldest(topic, head);
        let kept_most = u64::try_from(limits.publications_max).unwrap_or(u64::MAX);
        // Older ones are not in the stream either, or too old.
        let gone = mirror.floor.max(self.store.expired(topic, head));
        let least = gone.max(head.offset.saturating_sub(kept_most));
        let newest_from = head.offset.saturating_sub(wanted.newest);
        let wanted_from = match wanted.since {
            Some(since) if since.epoch == head.epoch && since.offset <= head.offset => {
                since.offset.min(newest_from)
            }
            _ => newest_from,
        };
        before_oldest <= wanted_from.max(least)
    }

    /// The topic stands here. All older publications are unknown, unless the topic stood here before.
    pub(crate) fn stand(&mut self, topic: &Arc<str>, head: Position) {
        let Some(mirror) = self.topics.get_mut(topic) else {
            return;
        };
        if mirror.head != Some(head) {
            mirror.head = Some(head);
            mirror.floor = 0;
            mirror.filling = None;
        }
        self.store.stand(topic, head, OwnerId::SERVER);
    }

    /// The topic stands here if this begins an epoch that is not known yet.
    pub(crate) fn stand_in_new_epoch(&mut self, topic: &Arc<str>, head: Position) {
        let known = self.topics.get(topic).and_then(|mirror| mirror.head);
        if known.is_some_and(|known| known.epoch < head.epoch) {
            self.stand(topic, head);
        }
    }

    /// Appends the next publication of a topic; false if it is not the next one. `now_ms` is when it was published.
    pub(crate) fn append(
        &mut self,
        topic: &Arc<str>,
        position: Position,
        publication: &Arc<Publication>,
        now_ms: u64,
    ) -> bool {
        let Some(mirror) = self.topics.get_mut(topic) else {
            return false;
        };
        let Some(limits) = mirror.limits else {
            return true;
        };
        let is_next = mirror
            .head
            .is_some_and(|head| head.epoch == position.epoch && head.offset + 1 == position.offset);
        if let (Some(head), true) = (mirror.head, is_next) {
            self.store.stand(topic, head, OwnerId::SERVER);
            let bytes = kept_bytes(topic, publication);
            let owner = (position.epoch, OwnerId::SERVER);
            let make = |_| Arc::clone(publication);
            self.store
                .append(topic, &limits, now_ms, owner, bytes, make);
        }
        mirror.head = Some(position);
        is_next
    }

    /// Begins to read the stream of a topic, and gives the number of this reading; `None` if the
    /// stream is being read.
    pub(crate) fn begin_filling(&mut self, topic: &str) -> Option<u64> {
        let mirror = self.topics.get_mut(topic)?;
        if mirror.filling.is_some() {
            return None;
        }
        self.fillings += 1;
        mirror.filling = Some(Filling {
            number: self.fillings,
            entries: VecDeque::new(),
            bytes: 0,
        });
        Some(self.fillings)
    }

    /// The largest size of a reading of a topic's stream, in bytes.
    pub(crate) fn filling_bytes_max(&self, topic: &str) -> usize {
        let limits = self.topics.get(topic).and_then(|mirror| mirror.limits);
        limits.map_or(0, |limits| limits.bytes_max.min(self.bytes_max))
    }

    /// The stream of a topic is to be read when there is room; false if that is known.
    pub(crate) fn wait_to_fill(&mut self, topic: &str) -> bool {
        let mirror = self.topics.get_mut(topic);
        mirror.is_some_and(|mirror| !std::mem::replace(&mut mirror.waits_to_fill, true))
    }

    /// Adds entries that were read from a stream. Returns whether this reading still counts. Of entries that
    /// do not follow each other only the last ones are of use.
    pub(crate) fn fill(
        &mut self,
        topic: &str,
        number: u64,
        read: impl Iterator<Item = (Position, Arc<Publication>, u64)>,
    ) -> bool {
        let Some(mirror) = self.topics.get_mut(topic) else {
            return false;
        };
        let filling = mirror.filling.as_mut();
        let Some(filling) = filling.filter(|filling| filling.number == number) else {
            return false;
        };
        if let Some(limits) = mirror.limits {
            let bytes_max = limits.bytes_max.min(self.bytes_max);
            let limits = HistoryLimits {
                bytes_max,
                ..limits
            };
            read.for_each(|read| filling.push(topic, read, &limits));
        }
        true
    }

    /// A reading has failed.
    pub(crate) fn stop_filling(&mut self, topic: &str, number: u64) {
        if let Some(mirror) = self.topics.get_mut(topic) {
            mirror.filling.take_if(|filling| filling.number == number);
        }
    }

    /// The stream of a topic has been read to its end: entries older than the mirror go in front.
    pub(crate) fn finish_filling(&mut self, topic: &Arc<str>, now_ms: u64) {
        let Some(mirror) = self.topics.get_mut(topic) else {
            return;
        };
        let (Some(filling), Some(limits), Some(head)) =
            (mirror.filling.take(), mirror.limits, mirror.head)
        else {
            return;
        };
        let own = self.store.newest_of(topic, head);
        let own_from = head.offset - own.len() as u64;
        let older = filling
            .entries
            .into_iter()
            .filter(|(position, _, _)| position.epoch == head.epoch && position.offset <= own_from);
        let older: Vec<_> = older.collect();
        // The entries are of use only if they end where the mirror begins.
        let joins = older.last().map_or(own_from, |(last, _, _)| last.offset) == own_from;
        if joins {
            let older = older
                .into_iter()
                .map(|(_, publication, ms)| (publication, ms));
            let all = older.chain(own).map(|(publication, published_ms)| {
                let bytes = kept_bytes(topic, &publication);
                (publication, bytes, published_ms)
            });
            self.store.restore(topic, head, all, &limits, now_ms);
        }
        // Reading again would bring no more, also if there was no room for all.
        mirror.floor = self.store.before_oldest(topic, head);
    }

    /// Returns the jobs that need not wait for a topic any more, because it is ready.
    pub(crate) fn take_ready(&mut self, topic: &Arc<str>) -> Vec<Ticket> {
        let waiting = match self.topics.get_mut(topic) {
            Some(mirror) if mirror.is_complete() => std::mem::take(&mut mirror.waiting),
            _ => return Vec::new(),
        };
        let (ready, waiting): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|waiting| self.is_ready(topic, waiting.wanted));
        if let Some(mirror) = self.topics.get_mut(topic) {
            mirror.waiting = waiting;
        }
        ready.into_iter().map(|waiting| waiting.ticket).collect()
    }

    /// Everybody who waits for any topic.
    pub(crate) fn take_all_waiting(&mut self) -> Vec<Ticket> {
        let waiting = self.topics.values_mut();
        let waiting = waiting.flat_map(|mirror| std::mem::take(&mut mirror.waiting));
        waiting.map(|waiting| waiting.ticket).collect()
    }

    /// Returns the jobs that have waited for a topic until their deadline, and with `None` all that wait for it.
    pub(crate) fn take_overdue(&mut self, topic: &str, now_ms: Option<u64>) -> Vec<Ticket> {
        let Some(mirror) = self.topics.get_mut(topic) else {
            return Vec::new();
        };
        let is_over = |waiting: &&Waiting| {
            let until_ms = waiting.until_ms.unwrap_or(u64::MAX);
            now_ms.is_none_or(|now_ms| until_ms <= now_ms)
        };
        // They are in the order of their deadlines.
        let count = mirror.waiting.iter().take_while(is_over).count();
        let over = mirror.waiting.drain(..count);
        over.map(|waiting| waiting.ticket).collect()
    }

    /// See [`Broker::recover`](crate::topics::broker::Broker::recover).
    pub(crate) fn recover(
        &mut self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        now_ms: u64,
        missed: Missed,
    ) -> Option<Recovery<Arc<Publication>>> {
        let head = self.head(topic)?;
        self.store.stand(topic, head, OwnerId::SERVER);
        let owner = (head.epoch, OwnerId::SERVER);
        let wanted = (missed.since, missed.limit);
        let mut recovery = self.store.recover(topic, wanted, limits, now_ms, owner);
        if missed.or_newest && !recovery.complete {
            recovery.publications = Vec::from_iter(self.store.newest(topic, limits, now_ms));
        }
        Some(recovery)
    }

    /// See [`Broker::page`](crate::topics::broker::Broker::page).
    pub(crate) fn page(
        &mut self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        now_ms: u64,
        query: PageQuery,
    ) -> Option<Page<Arc<Publication>>> {
        let head = self.head(topic)?;
        self.store.stand(topic, head, OwnerId::SERVER);
        let PageQuery {
            since,
            limit,
            newest_first,
        } = query;
        let page = self
            .store
            .page(topic, since, limit, newest_first, limits, now_ms);
        Some(page)
    }

    pub(crate) fn sweep(&mut self, now_ms: u64, limits_of: &dyn Fn(&str) -> HistoryLimits) {
        self.store.sweep(now_ms, limits_of, SWEPT_AT_A_TIME);
    }

    /// Bytes, topics and evictions of the histories.
    pub(crate) fn usage(&self) -> (usize, usize, u64) {
        let evicted = self.store.counters().rings_evicted;
        (self.store.bytes(), self.store.topics(), evicted)
    }

    /// Where a topic that is live stands.
    fn head(&self, topic: &str) -> Option<Position> {
        let mirror = self.topics.get(topic).filter(|mirror| mirror.is_live)?;
        mirror.head
    }
}

/// Settles the tickets of waiting requests with a refusal.
pub(crate) fn refuse(tickets: Vec<Ticket>, refusal: Refusal) {
    for ticket in tickets {
        ticket.settle(Err(refusal));
    }
}

/// The size of a publication in a mirror, in bytes.
fn kept_bytes(topic: &str, publication: &Publication) -> usize {
    publication.cost() + topic.len() + KEPT_BYTES
}

/// The size of a publication besides its text, in bytes.
const KEPT_BYTES: usize = 192;

/// Topics looked at in one sweep, so that a sweep is no longer than some turns of a loop.
const SWEPT_AT_A_TIME: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::excluded::Excluded;
    use crate::topics::publication::{Draft, Placed};
    use tidewire_wire::envelope::{Category, Priority};

    const LIMITS: HistoryLimits = HistoryLimits {
        publications_max: 100,
        bytes_max: 64 * 1024,
        age_max_ms: 1_000,
    };

    fn at(offset: u64) -> Position {
        Position { epoch: 7, offset }
    }

    fn publication(topic: &Arc<str>, offset: u64) -> Arc<Publication> {
        let payload = format!("\"{}\"", "x".repeat(8 * 1024));
        let draft = Draft {
            t: "x",
            payload: payload.as_bytes(),
            is_binary: false,
            category: Category::Update,
            priority: None,
            id: None,
            key: None,
            exclude: &Excluded::Nobody,
            ttl_ms: None,
            is_volatile: false,
            unique: None,
        };
        Arc::new(draft.place(&Placed {
            topic: Some(topic),
            position: Some(at(offset)),
            priority: Priority::Normal,
            unix_ms: 0,
        }))
    }

    /// Mirrors with a topic that stands at an offset and has no older publications.
    fn standing(topic: &Arc<str>, offset: u64) -> Mirrors {
        let mut mirrors = Mirrors::new(1 << 20, 10);
        let mirror = mirrors.topics.entry(Arc::clone(topic)).or_default();
        (mirror.is_live, mirror.limits) = (true, Some(LIMITS));
        mirrors.stand(topic, at(offset));
        mirrors
    }

    fn kept(mirrors: &mut Mirrors, topic: &Arc<str>, now_ms: u64) -> Vec<u64> {
        let query = PageQuery {
            since: None,
            limit: 1_000,
            newest_first: false,
        };
        let page = mirrors.page(topic, &LIMITS, now_ms, query).expect("live");
        let offsets = page.publications.iter();
        offsets
            .map(|publication| publication.position.expect("a position").offset)
            .collect()
    }

    #[test]
    fn a_reading_holds_no_more_than_the_topic_keeps() {
        let topic: Arc<str> = "a".into();
        let mut mirrors = standing(&topic, 1_000);
        let filling = mirrors.begin_filling(&topic).expect("none before");
        for offset in 1..=1_000 {
            let read = (at(offset), publication(&topic, offset), 5);
            assert!(mirrors.fill(&topic, filling, [read].into_iter()));
            let held = mirrors.topics[&topic].filling.as_ref().expect("it goes on");
            let bytes = held.entries.iter().map(|(_, it, _)| kept_bytes(&topic, it));
            assert!(bytes.sum::<usize>() <= LIMITS.bytes_max);
        }
        mirrors.finish_filling(&topic, 10);
        let kept = kept(&mut mirrors, &topic, 10);
        assert!(kept.len() > 4 && kept.len() < 8, "{kept:?}");
        assert_eq!(kept.last(), Some(&1_000));
        assert!(kept.is_sorted());
    }

    #[test]
    fn what_is_read_is_as_old_as_its_publication() {
        let topic: Arc<str> = "a".into();
        let mut mirrors = standing(&topic, 3);
        mirrors.append(&topic, at(4), &publication(&topic, 4), 5_900);
        let filling = mirrors.begin_filling(&topic).expect("none before");
        let published_ms = [4_500, 5_200, 5_800];
        let read = published_ms.into_iter().zip(1..);
        let read = read.map(|(ms, offset)| (at(offset), publication(&topic, offset), ms));
        assert!(mirrors.fill(&topic, filling, read));
        mirrors.finish_filling(&topic, 6_000);
        assert_eq!(kept(&mut mirrors, &topic, 6_000), [2, 3, 4]);
        assert_eq!(kept(&mut mirrors, &topic, 6_500), [3, 4]);
        assert_eq!(kept(&mut mirrors, &topic, 6_850), [4]);
    }
}
