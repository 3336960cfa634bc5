//! Acknowledged publishing: which of a producer's numbered messages were accepted, across its
//! connections.
//!
//! A producer is a user and a name that the user chose. It numbers its messages 1, 2, 3 and so on,
//! and sends unacknowledged ones again after its connection broke. The engine accepts each number
//! once and only in turn, and acknowledges all up to the last accepted one.
//!
//! The engine forgets a producer in the end: a while after its last connection has closed, when too
//! many others followed it, and when the process ends. Then nobody knows whether its last messages
//! were accepted. So that a message is neither accepted twice nor lost without a report, two rules hold:
//!
//! - A producer has an **epoch**, drawn when the engine first sees it. Every opening returns the
//!   epoch. If it differs from that of the opening before, the producer was forgotten: its
//!   unacknowledged messages may or may not have been accepted, and the producer's side must report
//!   this to its application instead of sending them again by itself.
//! - The first number of an epoch is 1. Any other one is a [`ProducerVerdict::Gap`] and is not
//!   accepted, so a producer that goes on counting without having looked at the epoch is stopped by
//!   its first message.
//!
//! A producer that kept no state of its own goes on after the last number that the opening gives.

use std::collections::HashMap;
use std::sync::Arc;

use super::broker::ProducerPlace;
use super::lru::{ENTRIES_MAX, List, Slots};
use crate::limits::fair::Shares;
use crate::limits::owner::OwnerId;
use tidewire_wire::session::ProducerAttempt;

/// The last numbers of many producers, each O(1) to find and to change.
///
/// A producer with an open connection is never forgotten. The others are, in the order of their
/// closing, when their time is over or when there are too many. One needs 80 to 150 bytes, besides
/// its names.
#[derive(Debug)]
pub(crate) struct Producers {
    producers: Slots<Producer>,
    index: HashMap<Name, u32>,
    /// Those without a connection, in the order of their closing.
    closed: List,
    /// The number of those that each owner has.
    closed_shares: Shares,
    producers_max: usize,
    closed_max_ms: u64,
    serial: u64,
}

/// One opening of a producer, to be kept with the connection that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProducerHandle {
    at: u32,
    /// Never the same for two openings.
    serial: u64,
}

/// The answer to an opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    /// For the later calls.
    pub(crate) handle: ProducerHandle,
    /// The epoch of the producer's numbers: if it differs from last time, the producer was forgotten.
    pub(crate) epoch: u32,
    /// The last number that was accepted; 0 for none.
    pub(crate) last: u64,
}

/// The decision about a numbered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProducerVerdict {
    /// The application receives it.
    Take,
    /// It was accepted before: drop it, and acknowledge.
    Repeat,
    /// A message before it is missing: refuse it.
    Gap {
        /// The only number that would be accepted.
        expected: u64,
    },
    /// A newer connection has opened the producer: refuse it, whatever its number.
    Superseded,
}

/// Why a connection cannot speak for a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpeningRefused {
    /// There is no room for another producer with an open connection. A later try may succeed.
    TooMany,
    /// A later connection of the same client speaks for it already.
    Superseded,
}

/// User and producer.
type Name = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct Producer {
    name: Name,
    owner: OwnerId,
    epoch: u32,
    last: u64,
    /// The opening whose messages are accepted.
    serial: u64,
    /// Which of a client's connections that was, if the client has stated it.
    attempt: Option<ProducerAttempt>,
    /// When its last connection closed; `None` while it is open, and then it is not in the list.
    closed_at_ms: Option<u64>,
}

impl Producers {
    /// How many producers are remembered unless something else is configured.
    pub(crate) const PRODUCERS_MAX_DEFAULT: usize = 10_000;

    /// How long a producer without a connection is remembered unless something else is configured,
    /// in milliseconds: an hour.
    pub(crate) const CLOSED_MAX_MS_DEFAULT: u64 = 3_600_000;

    /// Remembers at most `producers_max` producers (at least one), and one without a connection for
    /// `closed_max_ms`.
    pub(crate) fn new(producers_max: usize, closed_max_ms: u64) -> Self {
        Self {
            producers: Slots::new(),
            index: HashMap::new(),
            closed: List::EMPTY,
            closed_shares: Shares::new(1),
            producers_max: producers_max.clamp(1, ENTRIES_MAX),
            closed_max_ms,
            serial: 0,
        }
    }

    /// A connection speaks for a producer from now on; one that did so before is refused from now
    /// on.
    ///
    /// `random_epoch` is the epoch if the producer is not known. The caller bounds the length of
    /// the names and how many producers a connection may open.
    pub(crate) fn open(
        &mut self,
        (user, owner): (&Arc<str>, OwnerId),
        (producer, attempt): (&Arc<str>, Option<ProducerAttempt>),
        now_ms: u64,
        random_epoch: u32,
    ) -> Result<Opened, OpeningRefused> {
        let name = (Arc::clone(user), Arc::clone(producer));
        let known = self.index.get(&name).copied();
        let known = known.filter(|at| !self.is_over(*at, now_ms));
        let at = match known {
            Some(at) if is_before(attempt, self.producers[at].attempt) => {
                return Err(OpeningRefused::Superseded);
            }
            Some(at) => at,
            None => self.add(name, owner, random_epoch)?,
        };
        self.serial += 1;
        let producer = &mut self.producers[at];
        (producer.serial, producer.attempt) = (self.serial, attempt);
        if producer.closed_at_ms.take().is_some() {
            let owner = producer.owner;
            self.producers.unlink(&mut self.closed, at);
            self.closed_shares.sub(owner, 1);
        }
        let producer = &self.producers[at];
        Ok(Opened {
            handle: ProducerHandle {
                at,
                serial: producer.serial,
            },
            epoch: producer.epoch,
            last: producer.last,
        })
    }

    /// Sets a producer that was just opened to the broker's epoch and last number. The same epoch
    /// may have gone further here than the broker knows.
    pub(crate) fn adopt(&mut self, opened: Opened, place: ProducerPlace) -> Opened {
        let producer = &mut self.producers[opened.handle.at];
        producer.last = match producer.epoch == place.epoch {
            true => producer.last.max(place.last),
            false => place.last,
        };
        producer.epoch = place.epoch;
        Opened {
            epoch: producer.epoch,
            last: producer.last,
            ..opened
        }
    }

    /// The decision of [`Producers::accept`], without counting the number as accepted: for a
    /// message that may yet be refused for another reason.
    pub(crate) fn verdict(&self, handle: ProducerHandle, number: u64) -> ProducerVerdict {
        let Some(producer) = self.opened(handle) else {
            return ProducerVerdict::Superseded;
        };
        let expected = producer.last.saturating_add(1);
        if number == expected {
            ProducerVerdict::Take
        } else if (1..expected).contains(&number) {
            ProducerVerdict::Repeat
        } else {
            ProducerVerdict::Gap { expected }
        }
    }

    /// Judges a message by its number, and counts it as accepted if the verdict is [`ProducerVerdict::Take`].
    pub(crate) fn accept(&mut self, handle: ProducerHandle, number: u64) -> ProducerVerdict {
        let verdict = self.verdict(handle, number);
        if verdict == ProducerVerdict::Take {
            self.producers[handle.at].last = number;
        }
        verdict
    }

    /// The last accepted number, which acknowledges all before it; `None` if the opening was superseded.
    pub(crate) fn last(&self, handle: ProducerHandle) -> Option<u64> {
        self.opened(handle).map(|producer| producer.last)
    }

    /// The connection speaks for the producer no more. Ignored if the opening was superseded.
    pub(crate) fn close(&mut self, handle: ProducerHandle, now_ms: u64) {
        if self.opened(handle).is_none() {
            return;
        }
        let producer = &mut self.producers[handle.at];
        producer.closed_at_ms = Some(now_ms);
        self.closed_shares.add(producer.owner, 1);
        self.producers.link(&mut self.closed, handle.at);
    }

    /// Forgets at most `at_most` of the producers whose time is over, and gives how many it forgot.
    pub(crate) fn sweep(&mut self, now_ms: u64, at_most: usize) -> usize {
        let mut forgotten = 0;
        while forgotten < at_most
            && let Some(oldest) = self.closed.oldest()
            && self.is_over(oldest, now_ms)
        {
            self.forget(oldest);
            forgotten += 1;
        }
        forgotten
    }

    /// How many producers are remembered, open or not.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.producers.len()
    }

    /// The producer of an opening that is neither closed nor superseded.
    fn opened(&self, handle: ProducerHandle) -> Option<&Producer> {
        let producer = self.producers.at(handle.at)?;
        let is_open = producer.serial == handle.serial && producer.closed_at_ms.is_none();
        is_open.then_some(producer)
    }

    fn is_over(&self, at: u32, now_ms: u64) -> bool {
        self.producers[at]
            .closed_at_ms
            .is_some_and(|closed_at_ms| now_ms.saturating_sub(closed_at_ms) >= self.closed_max_ms)
    }

    /// Makes a producer known with a new epoch, in the place of its own past if that is over.
    fn add(&mut self, name: Name, owner: OwnerId, epoch: u32) -> Result<u32, OpeningRefused> {
        if let Some(&past) = self.index.get(&name) {
            self.forget(past);
        } else if self.producers.len() >= self.producers_max {
            let yielding = self.to_forget(owner).ok_or(OpeningRefused::TooMany)?;
            self.forget(yielding);
        }
        let at = self.producers.insert(Producer {
            name: name.clone(),
            owner,
            epoch,
            last: 0,
            serial: 0,
            attempt: None,
            closed_at_ms: None,
        });
        self.index.insert(name, at);
        Ok(at)
    }

    /// Which of the closed producers goes for a new one: the oldest of the owner with the most of
    /// them.
    fn to_forget(&self, newcomer: OwnerId) -> Option<u32> {
        let owner = self.closed_shares.first_to_yield(newcomer)?;
        let mut next = self.closed.oldest();
        while let Some(at) = next {
            if self.producers[at].owner == owner {
                return Some(at);
            }
            next = self.producers.newer(at);
        }
        None
    }

    /// Forgets a closed producer.
    fn forget(&mut self, at: u32) {
        self.closed_shares.sub(self.producers[at].owner, 1);
        self.producers.unlink(&mut self.closed, at);
        if let Some(producer) = self.producers.remove(at) {
            self.index.remove(&producer.name);
        }
    }
}

/// Whether a client has opened `known` after `attempt`, in whatever order they have arrived.
fn is_before(attempt: Option<ProducerAttempt>, known: Option<ProducerAttempt>) -> bool {
    attempt.zip(known).is_some_and(|(attempt, known)| {
        attempt.instance == known.instance && attempt.number < known.number
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> Arc<str> {
        Arc::from(text)
    }

    fn open(producers: &mut Producers, name: &str, now_ms: u64, epoch: u32) -> Opened {
        let (user, producer) = (text("user"), text(name));
        producers
            .open((&user, OwnerId(1)), (&producer, None), now_ms, epoch)
            .unwrap()
    }

    #[test]
    fn numbers_are_taken_once_and_in_turn() {
        let mut producers = Producers::new(10, 1_000);
        let opened = open(&mut producers, "a", 0, 7);
        assert_eq!((opened.epoch, opened.last), (7, 0));
        let handle = opened.handle;
        assert_eq!(
            producers.accept(handle, 0),
            ProducerVerdict::Gap { expected: 1 }
        );
        assert_eq!(
            producers.accept(handle, 2),
            ProducerVerdict::Gap { expected: 1 }
        );
        assert_eq!(producers.verdict(handle, 1), ProducerVerdict::Take);
        assert_eq!(producers.accept(handle, 1), ProducerVerdict::Take);
        assert_eq!(producers.accept(handle, 1), ProducerVerdict::Repeat);
        assert_eq!(producers.accept(handle, 2), ProducerVerdict::Take);
        assert_eq!(
            producers.accept(handle, 0),
            ProducerVerdict::Gap { expected: 3 }
        );
        assert_eq!(
            producers.accept(handle, u64::MAX),
            ProducerVerdict::Gap { expected: 3 }
        );
        assert_eq!(producers.last(handle), Some(2));
    }

    #[test]
    fn the_newest_connection_takes_over() {
        let mut producers = Producers::new(10, 1_000);
        let first = open(&mut producers, "a", 0, 7).handle;
        producers.accept(first, 1);
        let second = open(&mut producers, "a", 5, 8);
        assert_eq!((second.epoch, second.last), (7, 1));
        assert_eq!(producers.accept(first, 2), ProducerVerdict::Superseded);
        assert_eq!(producers.accept(first, 1), ProducerVerdict::Superseded);
        assert_eq!(producers.last(first), None);
        // The late end of the older connection does not close the newer one.
        producers.close(first, 6);
        assert_eq!(producers.accept(second.handle, 2), ProducerVerdict::Take);
        producers.close(second.handle, 7);
        assert_eq!(
            producers.accept(second.handle, 3),
            ProducerVerdict::Superseded
        );
    }

    #[test]
    fn the_broker_says_where_a_shared_producer_stands() {
        let mut producers = Producers::new(10, 1_000);
        let place = |epoch, last| ProducerPlace {
            epoch,
            last,
            opening: 1,
        };
        let first = open(&mut producers, "a", 0, 7);
        let first = producers.adopt(first, place(3, 5));
        assert_eq!((first.epoch, first.last), (3, 5));
        assert_eq!(producers.accept(first.handle, 6), ProducerVerdict::Take);
        let again = open(&mut producers, "a", 1, 8);
        let again = producers.adopt(again, place(3, 5));
        assert_eq!((again.epoch, again.last), (3, 6), "6 was accepted here");
        let forgotten = open(&mut producers, "a", 2, 9);
        let forgotten = producers.adopt(forgotten, place(4, 0));
        assert_eq!((forgotten.epoch, forgotten.last), (4, 0));
        assert_eq!(producers.accept(forgotten.handle, 1), ProducerVerdict::Take);
    }

    #[test]
    fn a_late_connection_of_a_client_does_not_replace_a_newer_one() {
        let mut producers = Producers::new(10, 1_000);
        let (ann, name) = (text("ann"), text("a"));
        let mut open = |instance, number| {
            let attempt = ProducerAttempt { instance, number };
            producers.open((&ann, OwnerId(1)), (&name, Some(attempt)), 0, 1)
        };
        let newer = open(7, 2).unwrap().handle;
        assert_eq!(open(7, 1), Err(OpeningRefused::Superseded));
        // The same connection again, another client, and one that does not count.
        let again = open(7, 2).unwrap().handle;
        let other = open(8, 1).unwrap().handle;
        assert_eq!(producers.accept(newer, 1), ProducerVerdict::Superseded);
        assert_eq!(producers.accept(again, 1), ProducerVerdict::Superseded);
        assert_eq!(producers.accept(other, 1), ProducerVerdict::Take);
        let uncounted = producers.open((&ann, OwnerId(1)), (&name, None), 0, 1);
        assert_eq!(uncounted.map(|opened| opened.last), Ok(1));
    }

    #[test]
    fn a_user_cannot_speak_for_another() {
        let mut producers = Producers::new(10, 1_000);
        let (ann, bob, name) = (text("ann"), text("bob"), text("a"));
        let first = producers
            .open((&ann, OwnerId(1)), (&name, None), 0, 1)
            .unwrap();
        producers.accept(first.handle, 1);
        let other = producers
            .open((&bob, OwnerId(2)), (&name, None), 0, 2)
            .unwrap();
        assert_eq!((other.epoch, other.last), (2, 0));
        assert_eq!(producers.accept(first.handle, 2), ProducerVerdict::Take);
    }

    #[test]
    fn closed_ones_are_forgotten_in_time_and_open_ones_never() {
        let mut producers = Producers::new(10, 1_000);
        let kept = open(&mut producers, "open", 0, 1).handle;
        for (name, at_ms) in [("a", 10), ("b", 20), ("c", 30)] {
            let handle = open(&mut producers, name, 0, 2).handle;
            producers.accept(handle, 1);
            producers.close(handle, at_ms);
        }
        assert_eq!(producers.sweep(1_009, 10), 0);
        assert_eq!(producers.sweep(1_030, 2), 2);
        assert_eq!(open(&mut producers, "c", 1_029, 3).last, 1);
        assert_eq!(producers.sweep(1_000_000, 10), 0);
        assert_eq!(producers.accept(kept, 1), ProducerVerdict::Take);
        assert_eq!(producers.len(), 2);
        // One whose time is over is forgotten even without a sweep.
        producers.close(kept, 2_000);
        let again = open(&mut producers, "open", 3_000, 4);
        assert_eq!((again.epoch, again.last), (4, 0));
        assert_eq!(producers.accept(kept, 2), ProducerVerdict::Superseded);
    }

    #[test]
    fn too_many_forget_the_one_closed_first_and_then_refuse() {
        let mut producers = Producers::new(3, 1_000);
        let handles = ["a", "b", "c"].map(|name| open(&mut producers, name, 0, 1).handle);
        for handle in handles {
            producers.accept(handle, 1);
        }
        producers.close(handles[1], 5);
        producers.close(handles[0], 6);
        assert_eq!(open(&mut producers, "d", 7, 2).last, 0);
        assert_eq!(producers.len(), 3);
        assert_eq!(open(&mut producers, "a", 7, 2).last, 1);
        let refused = producers.open((&text("user"), OwnerId(1)), (&text("b"), None), 8, 2);
        assert_eq!(refused, Err(OpeningRefused::TooMany));
        assert_eq!(producers.accept(handles[2], 2), ProducerVerdict::Take);
        assert_eq!(producers.len(), 3);
    }

    proptest! {
        /// Every message of a client that follows the rules is accepted once, in order, however
        /// often its connection breaks before or after the acknowledgement; unless it learns of
        /// another epoch.
        #[test]
        fn taken_once_across_reconnections(
            steps in prop::collection::vec((0u8..6, any::<bool>(), 0u64..300), 1..200),
        ) {
            let mut producers = Producers::new(2, 500);
            let mut epoch_next = 0;
            let mut now_ms = 0;
            let mut connection: Option<ProducerHandle> = None;
            let (mut epoch, mut acknowledged) = (None, 0);
            let mut taken: Vec<u64> = Vec::new();
            for (kind, tells, wait_ms) in steps {
                now_ms += wait_ms;
                epoch_next += 1;
                match (kind, connection) {
                    (0, Some(handle)) => {
                        // The server may learn of the end late, or never.
                        if tells {
                            producers.close(handle, now_ms);
                        }
                        connection = None;
                    }
                    (1, _) => {
                        let other = open(&mut producers, &format!("other {epoch_next}"), now_ms, 0);
                        producers.close(other.handle, now_ms);
                    }
                    (_, None) => {
                        let opened = open(&mut producers, "a", now_ms, epoch_next);
                        if epoch != Some(opened.epoch) {
                            prop_assert_eq!(opened.last, 0);
                            taken.clear();
                            epoch = Some(opened.epoch);
                        }
                        prop_assert_eq!(opened.last, taken.len() as u64);
                        acknowledged = if tells { opened.last } else { acknowledged.min(opened.last) };
                        connection = Some(opened.handle);
                    }
                    (_, Some(handle)) => {
                        let number = acknowledged + 1;
                        match producers.accept(handle, number) {
                            ProducerVerdict::Take => taken.push(number),
                            ProducerVerdict::Repeat => {}
                            refused => prop_assert!(false, "{:?}", refused),
                        }
                        let last = producers.last(handle);
                        prop_assert_eq!(last, Some(taken.len() as u64));
                        if tells {
                            acknowledged = number;
                        }
                    }
                }
                prop_assert!(producers.len() <= 2);
                let in_turn: Vec<u64> = (1..=taken.len() as u64).collect();
                prop_assert_eq!(&taken, &in_turn);
            }
        }
    }

    #[test]
    fn who_opens_many_producers_loses_its_own() {
        let mut producers = Producers::new(10, 1_000);
        let mut open_and_close = |owner: u64, name: &str, epoch| {
            let user = text(&owner.to_string());
            let opened = producers.open((&user, OwnerId(owner)), (&text(name), None), 0, epoch);
            let opened = opened.unwrap();
            producers.close(opened.handle, 0);
            opened.epoch
        };
        assert_eq!(open_and_close(1, "ann", 7), 7);
        for number in 0..1_000 {
            open_and_close(2, &format!("bob {number}"), number);
        }
        assert_eq!(open_and_close(1, "ann", 8), 7, "it is remembered");
        assert!(producers.len() <= 10);
    }
}
