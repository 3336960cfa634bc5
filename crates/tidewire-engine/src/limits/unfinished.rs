//! Messages that have begun and not ended: their bytes are charged to owners, with a limit for each and for all.
//!
//! A peer may send a large message but for its last byte, and keep the connection alive. Beyond a limit the owner with
//! the most loses the oldest message that it has not finished, with its connection; the others keep theirs.

use crate::limits::fair::Shares;
use crate::limits::owner::OwnerId;
use crate::model::inbox::Inbox;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tidewire_net::{ConnectionId, Waker};

/// The unfinished messages of a server.
#[derive(Debug)]
pub(crate) struct Unfinished {
    table: Mutex<Table>,
    total: AtomicUsize,
    owner_bytes_max: usize,
    bytes_max: usize,
    /// For each shard the messages that are to end.
    evicted: Box<[Inbox<Evicted>]>,
}

/// The charge for the unfinished message of a connection.
#[derive(Debug)]
pub(crate) struct Charge {
    owner: OwnerId,
    number: u64,
}

/// A message that its connection loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) connection: ConnectionId,
    number: u64,
}

#[derive(Debug)]
struct Table {
    /// The messages of each owner, the oldest first.
    owners: HashMap<OwnerId, BTreeMap<u64, Held>>,
    shares: Shares,
    total: usize,
    next_number: u64,
}

#[derive(Debug)]
struct Held {
    bytes: usize,
    shard: u32,
    connection: ConnectionId,
}

impl Charge {
    /// Whether this is the message that has to end. It may have been finished meanwhile.
    pub(crate) fn is(&self, evicted: Evicted) -> bool {
        self.number == evicted.number
    }
}

impl Unfinished {
    /// One message always has room.
    pub(crate) fn new(
        owner_bytes_max: usize,
        bytes_max: usize,
        message_bytes_max: usize,
        shards: usize,
    ) -> Self {
        // A buffer grows by doubling.
        let least = message_bytes_max.saturating_mul(2);
        Self {
            table: Mutex::new(Table {
                owners: HashMap::new(),
                shares: Shares::new(1),
                total: 0,
                next_number: 0,
            }),
            total: AtomicUsize::new(0),
            owner_bytes_max: owner_bytes_max.max(least),
            bytes_max: bytes_max.max(least),
            evicted: (0..shards).map(|_| Inbox::default()).collect(),
        }
    }

    /// Lets evictions wake a shard.
    pub(crate) fn connect(&self, shard: usize, waker: Waker) {
        self.evicted[shard].connect(waker);
    }

    /// Charges a connection of a shard for what it has of a message now.
    pub(crate) fn charge(
        &self,
        charge: &mut Option<Box<Charge>>,
        owner: OwnerId,
        (shard, connection): (u32, ConnectionId),
        bytes: usize,
    ) {
        if bytes < UNCHARGED_BYTES {
            return self.release(charge.take());
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        match charge {
            Some(charge) => table.change(charge, bytes),
            None => {
                let held = Held {
                    bytes,
                    shard,
                    connection,
                };
                *charge = Some(Box::new(table.add(owner, held)));
            }
        }
        while table.shares.of(owner) > self.owner_bytes_max {
            self.evict(&mut table, owner);
        }
        while table.total > self.bytes_max
            && let Some(first) = table.shares.first_to_yield(owner)
        {
            self.evict(&mut table, first);
        }
        self.total.store(table.total, Ordering::Relaxed);
    }

    /// Releases a charge.
    pub(crate) fn release(&self, charge: Option<Box<Charge>>) {
        let Some(charge) = charge else { return };
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.remove(charge.owner, charge.number);
        self.total.store(table.total, Ordering::Relaxed);
    }

    /// Whether a shard has messages to end.
    pub(crate) fn is_due(&self, shard: usize) -> bool {
        self.evicted[shard].is_filled()
    }

    /// The messages that a shard has to end.
    pub(crate) fn take_evicted(&self, shard: usize) -> VecDeque<Evicted> {
        self.evicted[shard].take(usize::MAX)
    }

    /// The bytes of all unfinished messages that are charged.
    pub(crate) fn bytes(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Evicts the oldest message of an owner that has some.
    fn evict(&self, table: &mut Table, owner: OwnerId) {
        let oldest = table.owners.get(&owner).and_then(BTreeMap::first_key_value);
        let Some((number, _)) = oldest else { return };
        let number = *number;
        if let Some(held) = table.remove(owner, number) {
            self.evicted[held.shard as usize].push(Evicted {
                connection: held.connection,
                number,
            });
        }
    }
}

impl Table {
    fn add(&mut self, owner: OwnerId, held: Held) -> Charge {
        let number = self.next_number;
        self.next_number += 1;
        self.shares.add(owner, held.bytes);
        self.total += held.bytes;
        self.owners.entry(owner).or_default().insert(number, held);
        Charge { owner, number }
    }

    /// A message that was evicted is charged no more.
    fn change(&mut self, charge: &Charge, bytes: usize) {
        let messages = self.owners.get_mut(&charge.owner);
        let held = messages.and_then(|messages| messages.get_mut(&charge.number));
        let Some(held) = held else { return };
        let before = std::mem::replace(&mut held.bytes, bytes);
        self.shares.sub(charge.owner, before);
        self.shares.add(charge.owner, bytes);
        self.total = self.total - before + bytes;
    }

    fn remove(&mut self, owner: OwnerId, number: u64) -> Option<Held> {
        let messages = self.owners.get_mut(&owner)?;
        let held = messages.remove(&number)?;
        if messages.is_empty() {
            self.owners.remove(&owner);
        }
        self.shares.sub(owner, held.bytes);
        self.total -= held.bytes;
        Some(held)
    }
}

/// Less of a message than this is not charged, so that ordinary messages that arrive in two reads need no
/// look-up.
pub(crate) const UNCHARGED_BYTES: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: OwnerId = OwnerId(1);
    const BOB: OwnerId = OwnerId(2);
    const KIB: usize = 1024;

    fn unfinished() -> Unfinished {
        Unfinished::new(100 * KIB, 150 * KIB, 10 * KIB, 1)
    }

    fn hold(
        unfinished: &Unfinished,
        owner: OwnerId,
        connection: u64,
        bytes: usize,
    ) -> Option<Box<Charge>> {
        let mut charge = None;
        let place = (0, ConnectionId::from_u64(connection));
        unfinished.charge(&mut charge, owner, place, bytes);
        charge
    }

    fn evicted(unfinished: &Unfinished) -> Vec<u64> {
        let evicted = unfinished.take_evicted(0).into_iter();
        evicted.map(|evicted| evicted.connection.to_u64()).collect()
    }

    #[test]
    fn beyond_its_limit_an_owner_loses_its_oldest() {
        let unfinished = unfinished();
        let charges: Vec<_> = (0..4)
            .map(|connection| hold(&unfinished, ANN, connection, 30 * KIB))
            .collect();
        assert_eq!(evicted(&unfinished), [0]);
        assert_eq!(unfinished.bytes(), 90 * KIB);
        for charge in charges {
            unfinished.release(charge);
        }
        assert_eq!(unfinished.bytes(), 0);
        let table = unfinished.table.lock().unwrap();
        assert!(table.owners.is_empty() && table.shares.of(ANN) == 0);
    }

    #[test]
    fn beyond_the_limit_of_all_who_has_most_loses_its_oldest() {
        let unfinished = unfinished();
        let _first = hold(&unfinished, ANN, 1, 50 * KIB);
        let _second = hold(&unfinished, ANN, 2, 50 * KIB);
        let _other = hold(&unfinished, BOB, 3, 40 * KIB);
        assert!(!unfinished.is_due(0));
        let _more = hold(&unfinished, BOB, 4, 20 * KIB);
        assert_eq!(evicted(&unfinished), [1]);
    }

    #[test]
    fn a_message_that_grows_is_charged_and_a_small_one_is_not() {
        let unfinished = unfinished();
        let mut charge = hold(&unfinished, ANN, 1, UNCHARGED_BYTES - 1);
        assert!(charge.is_none());
        let place = (0, ConnectionId::from_u64(1));
        for (bytes, charged) in [(50 * KIB, 50 * KIB), (90 * KIB, 90 * KIB), (1, 0)] {
            unfinished.charge(&mut charge, ANN, place, bytes);
            assert_eq!(unfinished.bytes(), charged);
        }
        assert!(charge.is_none());
    }

    #[test]
    fn one_that_was_evicted_is_charged_no_more() {
        let unfinished = unfinished();
        let mut first = hold(&unfinished, ANN, 1, 60 * KIB);
        let _second = hold(&unfinished, ANN, 2, 60 * KIB);
        let gone = unfinished.take_evicted(0)[0];
        assert!(first.as_ref().unwrap().is(gone));
        unfinished.charge(&mut first, ANN, (0, gone.connection), 70 * KIB);
        assert_eq!(unfinished.bytes(), 60 * KIB);
        unfinished.release(first);
        assert_eq!(unfinished.bytes(), 60 * KIB);
    }
}
