//! Producers: Redis knows which opening holds each, and the number of its last accepted message.
//!
//! An opening may be repeated: the next one is greater. Numbers are sent until Redis has them, in one call at
//! a time, so that an older number of a producer never replaces a newer one.

use crate::connection::{ErrorKind, ServerError};
use crate::link::Link;
use crate::link::event::{Event, Refusal};
use crate::link::options::{Now, Slot};
use crate::link::state::{Keeping, Opening, Tag};
use crate::resp::Value;
use crate::script::{Attempt, Fenced, KeepCall, KeepItem, KeepReply, OpenCall, OpenReply};
use std::collections::{HashMap, VecDeque};

/// Openings and numbers that wait for a call.
#[derive(Debug, Default)]
pub(super) struct Producers {
    openings: VecDeque<Opening>,
    keeps: Keeps,
    /// Numbers are on their way.
    is_keeping: bool,
    /// Openings without a reply.
    flights: usize,
    hold_until_ms: u64,
}

/// Numbers that wait for a call: at most one for each producer, so that any number of connections leaves few of them.
#[derive(Debug, Default)]
struct Keeps {
    order: VecDeque<Vec<u8>>,
    by_key: HashMap<Vec<u8>, Keeping>,
}

impl Keeps {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds one as the last; gives the one that Redis would refuse because of it.
    fn add(&mut self, keeping: Keeping) -> Option<Keeping> {
        self.merge(keeping, VecDeque::push_back)
    }

    fn add_first(&mut self, keeping: Keeping) -> Option<Keeping> {
        self.merge(keeping, VecDeque::push_front)
    }

    fn merge(
        &mut self,
        keeping: Keeping,
        place: impl FnOnce(&mut VecDeque<Vec<u8>>, Vec<u8>),
    ) -> Option<Keeping> {
        let Some(waiting) = self.by_key.get_mut(&keeping.key) else {
            place(&mut self.order, keeping.key.clone());
            self.by_key.insert(keeping.key.clone(), keeping);
            return None;
        };
        let (older, newer) = if waiting.opened.opening <= keeping.opened.opening {
            (std::mem::replace(waiting, keeping), waiting)
        } else {
            (keeping, waiting)
        };
        if older.opened.opening < newer.opened.opening {
            return Some(older);
        }
        // Of one opening the larger number includes the smaller one.
        newer.opened.last = newer.opened.last.max(older.opened.last);
        newer.numbers.extend(older.numbers);
        None
    }

    fn take(&mut self, at_most: usize) -> Vec<Keeping> {
        let count = self.order.len().min(at_most);
        let keys = self.order.drain(..count);
        keys.filter_map(|key| self.by_key.remove(&key)).collect()
    }
}

impl Link {
    pub(super) fn enqueue_opening(
        &mut self,
        number: u64,
        (user, producer): (&str, &str),
        attempt: Option<Attempt>,
        epoch: u32,
        now: Now,
    ) {
        if self.producers.openings.len() >= OPENINGS_MAX {
            let outcome = Err(Refusal::Busy);
            self.events
                .push_back(Event::ProducerOpened { number, outcome });
            return;
        }
        self.producers.openings.push_back(Opening {
            number,
            key: self.names.layout.producer(user, producer),
            epoch,
            attempt,
            asked_ms: now.ms,
            give_up_ms: now.ms + self.options.broker_wait_ms,
        });
    }

    pub(super) fn enqueue_keeping(
        &mut self,
        number: u64,
        (user, producer): (&str, &str),
        opened: OpenReply,
    ) {
        let keeping = Keeping {
            numbers: vec![number],
            key: self.names.layout.producer(user, producer),
            opened,
        };
        let superseded = self.producers.keeps.add(keeping);
        self.refuse_keeping(superseded);
    }

    pub(super) fn tick_producers(&mut self, now: Now) {
        if self.producers.hold_until_ms <= now.ms {
            self.producers.hold_until_ms = 0;
        }
        self.expire_openings(now);
        let is_held = self.producers.hold_until_ms != 0 || !self.fencing.is_fenced;
        let Some(fence) = self.fencing.fence.clone().filter(|_| !is_held) else {
            return;
        };
        let deadline_ms = now.ms + self.options.command_ms;
        let (hashes, keep_ms) = (&self.hashes, self.options.producer_ttl_ms.max(1));
        let (producers, fence_key) = (&mut self.producers, &*self.names.fence);
        let Some(connection) = self.slots.ready(Slot::Command) else {
            return;
        };
        if !producers.is_keeping && !producers.keeps.is_empty() {
            let keeps = producers.keeps.take(KEPT_AT_A_TIME);
            let items: Vec<_> = keeps
                .iter()
                .map(|keeping| KeepItem {
                    key: &keeping.key,
                    opened: keeping.opened,
                })
                .collect();
            let mut command = Vec::new();
            let call = KeepCall {
                fence_key,
                fence: &fence,
                keep_ms,
                producers: &items,
            };
            call.write(hashes, &mut command);
            producers.is_keeping = true;
            connection.send(Tag::KeepProducers(keeps), deadline_ms, |out| {
                out.append(&mut command);
            });
        }
        while producers.flights < OPENINGS_IN_FLIGHT
            && let Some(opening) = producers.openings.pop_front()
        {
            let mut command = Vec::new();
            let call = OpenCall {
                fence_key,
                fence: &fence,
                producer_key: &opening.key,
                epoch: opening.epoch,
                keep_ms,
                waited_ms: now.ms.saturating_sub(opening.asked_ms),
                attempt: opening.attempt,
            };
            call.write(hashes, &mut command);
            producers.flights += 1;
            connection.send(Tag::OpenProducer(opening), deadline_ms, |out| {
                out.append(&mut command);
            });
        }
    }

    fn expire_openings(&mut self, now: Now) {
        while let Some(opening) = self.producers.openings.pop_front() {
            if opening.give_up_ms > now.ms {
                self.producers.openings.push_front(opening);
                break;
            }
            self.events.push_back(Event::ProducerOpened {
                number: opening.number,
                outcome: Err(Refusal::Unavailable),
            });
        }
    }

    pub(super) fn handle_opened(
        &mut self,
        opening: Opening,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        self.producers.flights = self.producers.flights.saturating_sub(1);
        match result.map(OpenReply::read) {
            Ok(Ok(Fenced::Done(reply))) => {
                let outcome = Ok(Some(reply).filter(|reply| reply.opening != 0));
                let number = opening.number;
                self.events
                    .push_back(Event::ProducerOpened { number, outcome });
            }
            undone => {
                self.producers.openings.push_front(opening);
                self.hold_producers(undone.map(|reply| reply.map(|_| ())), now);
            }
        }
    }

    pub(super) fn handle_kept(
        &mut self,
        keeps: Vec<Keeping>,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        self.producers.is_keeping = false;
        match result.map(KeepReply::read) {
            Ok(Ok(Fenced::Done(KeepReply(held)))) if held.len() == keeps.len() => {
                for (keeping, is_held) in keeps.into_iter().zip(held) {
                    self.tell_kept(keeping, is_held);
                }
            }
            undone => {
                self.keep_again(keeps);
                self.hold_producers(undone.map(|reply| reply.map(|_| ())), now);
            }
        }
    }

    /// Nothing was done: it is tried again after a short time.
    fn hold_producers<E>(&mut self, undone: Result<Result<(), E>, ServerError>, now: Now) {
        match undone {
            // Another process, or another least epoch.
            Ok(Ok(())) => self.lose_fence(),
            Ok(Err(_)) => self.counters.malformed += 1,
            Err(error) if error.kind == ErrorKind::NoScript => {
                self.load_scripts(Slot::Command, now);
            }
            Err(error) if error.is_wrong_server() => self.give_up_all(&error.to_string(), now),
            Err(error) => self.health.reason = Some(error.to_string()),
        }
        self.producers.hold_until_ms = now.ms + HOLD_MS;
    }

    fn keep_again(&mut self, keeps: Vec<Keeping>) {
        for keeping in keeps.into_iter().rev() {
            let superseded = self.producers.keeps.add_first(keeping);
            self.refuse_keeping(superseded);
        }
    }

    /// Answers what Redis would refuse, without asking it.
    fn refuse_keeping(&mut self, superseded: Option<Keeping>) {
        if let Some(superseded) = superseded {
            self.tell_kept(superseded, false);
        }
    }

    fn tell_kept(&mut self, keeping: Keeping, is_held: bool) {
        for number in keeping.numbers {
            self.events
                .push_back(Event::ProducerKept { number, is_held });
        }
    }

    /// The connection for commands is gone: its calls are sent again.
    pub(super) fn lose_producers(&mut self, tags: Vec<Tag>) {
        self.producers.is_keeping = false;
        self.producers.flights = 0;
        self.producers.hold_until_ms = 0;
        for tag in tags.into_iter().rev() {
            match tag {
                Tag::OpenProducer(opening) => self.producers.openings.push_front(opening),
                Tag::KeepProducers(keeps) => self.keep_again(keeps),
                _ => {}
            }
        }
    }

    pub(super) fn producers_deadline_ms(&self) -> Option<u64> {
        let opening = self.producers.openings.front();
        let give_up = opening.map(|opening| opening.give_up_ms);
        let hold = Some(self.producers.hold_until_ms).filter(|at| *at != 0);
        give_up.into_iter().chain(hold).min()
    }
}

/// Openings that may wait.
const OPENINGS_MAX: usize = 10_000;

/// Openings without a reply, so that they leave room for batches.
const OPENINGS_IN_FLIGHT: usize = 64;

/// Producers of one call.
const KEPT_AT_A_TIME: usize = 256;

/// The pause after a refusal, in milliseconds.
const HOLD_MS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::{Keeping, Keeps, OpenReply};

    fn keeping(number: u64, opening: u64, last: u64) -> Keeping {
        let opened = OpenReply {
            epoch: 7,
            last,
            opening,
        };
        Keeping {
            numbers: vec![number],
            key: b"p".to_vec(),
            opened,
        }
    }

    #[test]
    fn of_one_producer_the_newest_opening_waits_and_the_others_are_refused() {
        let mut keeps = Keeps::default();
        assert!(keeps.add(keeping(1, 10, 5)).is_none());
        let refused = keeps.add(keeping(2, 11, 6)).expect("the older opening");
        assert_eq!(refused.numbers, [1]);
        // It is added again after a failure, behind those that arrived meanwhile.
        let refused = keeps.add_first(keeping(3, 10, 4)).expect("an older one");
        assert_eq!(refused.numbers, [3]);
        // The same opening: both are answered by the larger number.
        assert!(keeps.add_first(keeping(4, 11, 5)).is_none());
        let told = keeps.take(10);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].opened.opening, told[0].opened.last), (11, 6));
        assert_eq!(told[0].numbers, [4, 2]);
        assert!(keeps.is_empty());
    }
}
