//! Fair shares: many owners fill one bounded store, and when it is full, the one with the most in
//! it gives way. So an owner with less than its share loses nothing to another.

use crate::limits::owner::OwnerId;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

/// How much each owner holds of something, and who holds the most.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Amounts are compared in units of this, so that most changes need no new rank.
    granule: usize,
    held: HashMap<OwnerId, usize>,
    /// By rank; of several with the same any may be the last.
    ranks: BTreeSet<(usize, OwnerId)>,
}

impl Shares {
    pub(crate) fn new(granule: usize) -> Self {
        Self {
            granule,
            held: HashMap::new(),
            ranks: BTreeSet::new(),
        }
    }

    /// How much an owner holds.
    pub(crate) fn of(&self, owner: OwnerId) -> usize {
        self.held.get(&owner).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, owner: OwnerId, amount: usize) {
        let before = self.of(owner);
        self.set(owner, before, before + amount);
    }

    pub(crate) fn sub(&mut self, owner: OwnerId, amount: usize) {
        let before = self.of(owner);
        self.set(owner, before, before.saturating_sub(amount));
    }

    fn set(&mut self, owner: OwnerId, before: usize, after: usize) {
        let (old, new) = (self.rank(owner, before), self.rank(owner, after));
        if after == 0 {
            self.held.remove(&owner);
        } else {
            self.held.insert(owner, after);
        }
        if before > 0 && after > 0 && old == new {
            return;
        }
        self.ranks.remove(&(old, owner));
        if after > 0 {
            self.ranks.insert((new, owner));
        }
    }

    /// The owner that gives way if `newcomer` is to have more: the owner with the most, and `newcomer` if it
    /// has as much.
    pub(crate) fn first_to_yield(&self, newcomer: OwnerId) -> Option<OwnerId> {
        let (most, owner) = *self.ranks.last()?;
        let own = self.of(newcomer);
        Some(if own > 0 && self.rank(newcomer, own) >= most {
            newcomer
        } else {
            owner
        })
    }

    /// The weight of an amount in comparison: the server's own, of the application and the operators,
    /// weighs less.
    fn rank(&self, owner: OwnerId, amount: usize) -> usize {
        let weight = if owner == OwnerId::SERVER {
            SERVER_WEIGHT
        } else {
            1
        };
        amount / (weight * self.granule)
    }
}

/// The server gives way to clients only when it has this many times as much as any of them.
const SERVER_WEIGHT: usize = 16;

/// Keys in the order in which they were pushed, each of an owner, at most a fixed number in all.
#[derive(Debug)]
pub(crate) struct FairQueue<K> {
    queues: HashMap<OwnerId, VecDeque<K>>,
    shares: Shares,
    len: usize,
    max: usize,
}

impl<K: Copy + Eq + Hash> FairQueue<K> {
    /// A queue for at most `max` keys.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            queues: HashMap::new(),
            shares: Shares::new(1),
            len: 0,
            max,
        }
    }

    /// Appends a key, unless there is no room at all; the key that had to go for it: the oldest of
    /// the owner with the most.
    pub(crate) fn push(&mut self, owner: OwnerId, key: K) -> Option<K> {
        if self.max == 0 {
            return Some(key);
        }
        let evicted = if self.len >= self.max {
            self.evict(owner)
        } else {
            None
        };
        self.queues.entry(owner).or_default().push_back(key);
        self.shares.add(owner, 1);
        self.len += 1;
        evicted
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn evict(&mut self, newcomer: OwnerId) -> Option<K> {
        let owner = self.shares.first_to_yield(newcomer)?;
        let queue = self.queues.get_mut(&owner)?;
        let oldest = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&owner);
        }
        self.shares.sub(owner, 1);
        self.len -= 1;
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: OwnerId = OwnerId(1);
    const BOB: OwnerId = OwnerId(2);

    #[test]
    fn who_has_most_gives_way() {
        let mut queue = FairQueue::new(10);
        for key in 0..4 {
            assert_eq!(queue.push(ANN, key), None);
        }
        let evicted: Vec<_> = (100..200).filter_map(|key| queue.push(BOB, key)).collect();
        // Ann keeps all of hers, and Bob loses his own, the oldest first.
        assert_eq!(evicted, (100..194).collect::<Vec<_>>());
        assert_eq!(queue.push(ANN, 4), Some(194));
        assert_eq!(queue.len(), 10);
        // With as much as the other she loses her own.
        assert_eq!(queue.push(ANN, 5), Some(0));
    }

    #[test]
    fn the_server_weighs_less_than_clients() {
        let mut shares = Shares::new(1);
        shares.add(OwnerId::SERVER, 100);
        shares.add(ANN, 10);
        assert_eq!(shares.first_to_yield(BOB), Some(ANN));
        shares.add(OwnerId::SERVER, 100);
        assert_eq!(shares.first_to_yield(BOB), Some(OwnerId::SERVER));
        shares.sub(OwnerId::SERVER, 200);
        shares.sub(ANN, 10);
        assert_eq!(shares.first_to_yield(BOB), None);
    }

    #[test]
    fn nothing_fits_into_nothing() {
        assert_eq!(FairQueue::new(0).push(ANN, 1), Some(1));
    }
}
