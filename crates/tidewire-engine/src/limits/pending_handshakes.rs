//! Pending handshakes: the connections that have not finished the opening handshake, limited for
//! each source and in all, so that one source cannot keep the others out.
//!
//! Every connection is accepted at once, because only then is its address known. It is *admitted*,
//! that is read, if its source and the shard have room for one more. If not, it is *parked*: not
//! read, so that it costs no TLS and no memory but its own entry, until one of its source leaves. A
//! client that works sends its request at once, so an admitted handshake that has had its fair time
//! gives way when a parked one waits for it. If the shard has no room, the source with the most
//! admitted handshakes gives way to one that has fewer, so that each of `n` sources has at least an
//! `n`th of the room.
//!
//! This module decides; the shard pauses, resumes and aborts connections as [`poll_decision`] returns. Time
//! is an argument.
//!
//! [`poll_decision`]: PendingHandshakes::poll_decision

mod list;
#[cfg(test)]
mod tests;

use crate::limits::source::Source;
use list::{Linked, Links, List};
use slab::Slab;
use std::collections::{BTreeSet, HashMap, VecDeque};
use tidewire_net::ConnectionId;

/// The pending handshakes of one shard.
#[derive(Debug)]
pub(crate) struct PendingHandshakes {
    limits: PendingLimits,
    entries: Slab<Entry>,
    /// By the index of the connection: its entry.
    keys: Vec<Option<u32>>,
    sources: Slab<SourceEntry>,
    source_keys: HashMap<Source, usize>,
    admitted: usize,
    parked: usize,
    /// The sources by the number of their admitted handshakes, those without any left out.
    by_admitted: Ranking,
    /// The same by their parked handshakes.
    by_parked: Ranking,
    /// Sources with a parked handshake that lacks nothing but room in the shard.
    turns: BTreeSet<Rank>,
    next_turn: u64,
    decisions: VecDeque<Decision>,
    now_ms: u64,
    sweep_ms: u64,
}

/// How many handshakes may be pending on one shard; each at least 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingLimits {
    /// Admitted, in all.
    pub(crate) admitted_max: usize,
    /// Admitted, of one source.
    pub(crate) admitted_per_source_max: usize,
    /// Parked, in all.
    pub(crate) parked_max: usize,
}

/// A decision about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It was parked and is to be read.
    Admit(ConnectionId),
    /// It is to be aborted, and is not pending any more.
    Evict(ConnectionId),
}

#[derive(Debug)]
struct Entry {
    id: ConnectionId,
    source: usize,
    is_parked: bool,
    /// Since when it has been as it is: admitted or parked.
    since_ms: u64,
    links: Links,
}

#[derive(Debug)]
struct SourceEntry {
    source: Source,
    /// Oldest first.
    admitted: List,
    parked: List,
    /// Its place in `turns`.
    turn: Option<Rank>,
}

/// A source that waits for room in the shard. The source with the fewest admitted handshakes is first, then
/// the one that has waited for the longest time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    admitted: usize,
    number: u64,
    source: usize,
}

/// Sources in the order of a number.
type Ranking = BTreeSet<(usize, usize)>;

impl Linked for Entry {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl PendingHandshakes {
    pub(crate) fn new(limits: PendingLimits) -> Self {
        Self {
            limits,
            entries: Slab::new(),
            keys: Vec::new(),
            sources: Slab::new(),
            source_keys: HashMap::new(),
            admitted: 0,
            parked: 0,
            by_admitted: Ranking::new(),
            by_parked: Ranking::new(),
            turns: BTreeSet::new(),
            next_turn: 0,
            decisions: VecDeque::new(),
            now_ms: 0,
            sweep_ms: 0,
        }
    }

    /// Handshakes that are being read.
    pub(crate) fn admitted(&self) -> usize {
        self.admitted
    }

    /// Handshakes that wait.
    pub(crate) fn parked(&self) -> usize {
        self.parked
    }

    /// Adds a connection, or moves it to the source that has proved to be its own. Whether it is to
    /// be read; if not, it is parked.
    pub(crate) fn handle_source(&mut self, id: ConnectionId, source: Source, now_ms: u64) -> bool {
        self.now_ms = now_ms;
        self.remove(id);
        let source = self.source_key(source);
        let key = self.entries.insert(Entry {
            id,
            source,
            is_parked: true,
            since_ms: now_ms,
            links: Links::NONE,
        });
        if self.keys.len() <= id.index() {
            self.keys.resize(id.index() + 1, None);
        }
        self.keys[id.index()] = Some(key as u32);
        // Those that wait already have priority.
        let is_admitted = self.sources[source].parked.is_empty()
            && self.has_room_for(source)
            && self.make_room_for(source);
        if is_admitted {
            self.admit(key);
        } else {
            self.park(key);
        }
        self.fill();
        is_admitted
    }

    /// Whether a pending handshake is to be read.
    pub(crate) fn is_admitted(&self, id: ConnectionId) -> bool {
        let key = self.keys.get(id.index()).copied().flatten();
        let entry = key.and_then(|key| self.entries.get(key as usize));
        entry.is_some_and(|entry| entry.id == id && !entry.is_parked)
    }

    /// A connection is not pending any more, well or not.
    pub(crate) fn handle_end(&mut self, id: ConnectionId, now_ms: u64) {
        self.now_ms = now_ms;
        self.remove(id);
        self.fill();
    }

    /// Lets those that have had their fair time give way to those that wait. Every turn.
    pub(crate) fn handle_timeout(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        if self.parked == 0 || now_ms < self.sweep_ms {
            return;
        }
        self.sweep_ms = now_ms + SWEEP_INTERVAL_MS;
        let parking: Vec<usize> = self.by_parked.iter().map(|(_, source)| *source).collect();
        for source in parking {
            while self.is_parking(source)
                && let Some(oldest) = self.oldest_due(source)
            {
                self.evict(oldest);
                self.fill();
            }
        }
        while let Some(oldest) = self.oldest_due_for_others() {
            self.evict(oldest);
            self.fill();
        }
    }

    /// The time from the last time argument until [`handle_timeout`](Self::handle_timeout) may have something
    /// to do, in milliseconds; `None` if nothing waits.
    pub(crate) fn poll_timeout_ms(&self) -> Option<u64> {
        (self.parked > 0).then_some(self.sweep_ms.saturating_sub(self.now_ms))
    }

    /// The next decision about a connection other than the one that was just added.
    pub(crate) fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    /// Whether one more connection may be accepted: it can be admitted or parked, though another
    /// that has waited for its fair time may have to go for it.
    pub(crate) fn may_accept(&self) -> bool {
        self.parked < self.limits.parked_max
            || self
                .first_parked()
                .is_some_and(|key| self.is_due(&self.entries[key]))
    }

    /// Ends the parked handshake that is of the least use. Whether there was one.
    pub(crate) fn drop_parked(&mut self) -> bool {
        let oldest = self.first_parked();
        if let Some(key) = oldest {
            self.evict(key);
        }
        oldest.is_some()
    }

    /// The oldest parked handshake of the source that has the most.
    fn first_parked(&self) -> Option<usize> {
        let (_, source) = self.by_parked.last()?;
        self.sources[*source].parked.first()
    }

    fn is_due(&self, entry: &Entry) -> bool {
        entry.since_ms + FAIR_TIME_MS <= self.now_ms
    }

    fn oldest_due(&self, source: usize) -> Option<usize> {
        let oldest = self.sources[source].admitted.first()?;
        self.is_due(&self.entries[oldest]).then_some(oldest)
    }

    /// The oldest handshake that has had its fair time and whose source has more than the one whose
    /// turn it is.
    fn oldest_due_for_others(&self) -> Option<usize> {
        let Rank { admitted, .. } = self.turns.first()?;
        let greedier = self.by_admitted.range((admitted + 1, 0)..);
        let due = greedier.filter_map(|(_, source)| self.oldest_due(*source));
        due.min_by_key(|key| self.entries[*key].since_ms)
    }

    fn is_parking(&self, source: usize) -> bool {
        let source = self.sources.get(source);
        source.is_some_and(|source| !source.parked.is_empty())
    }

    fn has_room_for(&self, source: usize) -> bool {
        let source = &self.sources[source];
        let limit = match source.source {
            // It will report the addresses of the clients, and then their own limits hold.
            Source::Proxy(_) => self.limits.admitted_max,
            _ => self.limits.admitted_per_source_max,
        };
        source.admitted.len() < limit
    }

    /// Whether the shard has room for one more of this source, if need be in place of one of a
    /// source that has more.
    fn make_room_for(&mut self, source: usize) -> bool {
        if self.admitted < self.limits.admitted_max {
            return true;
        }
        let fair = self.sources[source].admitted.len() + 1;
        let Some((most, greediest)) = self.by_admitted.last().copied() else {
            return false;
        };
        match self.sources[greediest].admitted.first() {
            Some(oldest) if most > fair => {
                self.evict(oldest);
                true
            }
            _ => false,
        }
    }

    /// Admits parked handshakes, one of each source in turn, while there is room.
    fn fill(&mut self) {
        while let Some(Rank { source, .. }) = self.turns.first().copied() {
            let Some(key) = self.sources[source].parked.first() else {
                return;
            };
            if !self.make_room_for(source) {
                return;
            }
            self.decisions
                .push_back(Decision::Admit(self.entries[key].id));
            self.unlink(key);
            // Its next one waits behind those of the other sources.
            if let Some(turn) = self.sources[source].turn.take() {
                self.turns.remove(&turn);
            }
            self.admit(key);
        }
    }

    /// Gives a source its place among those that wait for room in the shard, if it does.
    fn update_turn(&mut self, key: usize) {
        let source = &self.sources[key];
        let old = source.turn;
        let waits = !source.parked.is_empty() && self.has_room_for(key);
        let new = waits.then(|| Rank {
            admitted: source.admitted.len(),
            number: old.map_or(self.next_turn, |turn| turn.number),
            source: key,
        });
        if new == old {
            return;
        }
        if let Some(old) = old {
            self.turns.remove(&old);
        }
        if let Some(new) = new {
            self.turns.insert(new);
            self.next_turn += u64::from(old.is_none());
        }
        self.sources[key].turn = new;
    }

    fn admit(&mut self, key: usize) {
        let entry = &mut self.entries[key];
        entry.is_parked = false;
        entry.since_ms = self.now_ms;
        let source = entry.source;
        let list = &mut self.sources[source].admitted;
        list.push_back(&mut self.entries, key);
        rank(&mut self.by_admitted, source, list.len() - 1, list.len());
        self.admitted += 1;
        self.update_turn(source);
    }

    fn park(&mut self, key: usize) {
        if self.parked == 0 {
            self.sweep_ms = self.now_ms;
        }
        let is_full = self.parked >= self.limits.parked_max;
        let oldest = self.first_parked().filter(|_| is_full);
        let source = self.entries[key].source;
        let list = &mut self.sources[source].parked;
        list.push_back(&mut self.entries, key);
        rank(&mut self.by_parked, source, list.len() - 1, list.len());
        self.parked += 1;
        self.update_turn(source);
        if let Some(oldest) = oldest {
            self.evict(oldest);
        }
    }

    /// Removes an entry from the queue of its source.
    fn unlink(&mut self, key: usize) {
        let Entry {
            source, is_parked, ..
        } = self.entries[key];
        let entry = &mut self.sources[source];
        let (list, ranking, count) = if is_parked {
            (&mut entry.parked, &mut self.by_parked, &mut self.parked)
        } else {
            let admitted = &mut self.admitted;
            (&mut entry.admitted, &mut self.by_admitted, admitted)
        };
        list.remove(&mut self.entries, key);
        rank(ranking, source, list.len() + 1, list.len());
        *count -= 1;
    }

    fn evict(&mut self, key: usize) {
        let id = self.entries[key].id;
        self.decisions.push_back(Decision::Evict(id));
        self.remove(id);
    }

    fn remove(&mut self, id: ConnectionId) {
        let Some(place) = self.keys.get_mut(id.index()) else {
            return;
        };
        let Some(key) = place.map(|key| key as usize) else {
            return;
        };
        if self.entries[key].id != id {
            return;
        }
        *place = None;
        self.unlink(key);
        let entry = self.entries.remove(key);
        self.update_turn(entry.source);
        self.forget_if_empty(entry.source);
    }

    fn source_key(&mut self, source: Source) -> usize {
        *self.source_keys.entry(source).or_insert_with(|| {
            self.sources.insert(SourceEntry {
                source,
                admitted: List::EMPTY,
                parked: List::EMPTY,
                turn: None,
            })
        })
    }

    fn forget_if_empty(&mut self, key: usize) {
        let entry = &self.sources[key];
        if entry.admitted.is_empty() && entry.parked.is_empty() {
            let entry = self.sources.remove(key);
            self.source_keys.remove(&entry.source);
        }
    }
}

/// Moves a source from one place of a ranking to another; 0 is no place.
fn rank(ranking: &mut Ranking, source: usize, before: usize, after: usize) {
    if after > 0 {
        ranking.insert((after, source));
    }
    if before > 0 {
        ranking.remove(&(before, source));
    }
}

/// How long a handshake keeps its place when others of its source wait for it, in milliseconds:
/// more than a round trip around the world, so that TLS and the request get through.
pub(crate) const FAIR_TIME_MS: u64 = 500;

/// How often those that have had their fair time are looked for while somebody waits, in
/// milliseconds.
const SWEEP_INTERVAL_MS: u64 = 20;
