//! Sequencer: puts the messages of topics in order, drops duplicates, and reports gaps.
//!
//! Time is an argument; nothing here waits by itself.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Puts the messages of many topics in order by their positions, drops duplicates, and reports gaps.
///
/// A message that arrives early is held until those before it have arrived, until the time of the window is over, or
/// until too many messages are held. Then the missing messages are reported as a [`Gap`], and the held ones follow.
///
/// ```
/// use tidewire_client::sequencer::{SequencerOutcome, Position, Sequenced, Sequencer, SequencerLimits};
///
/// let mut sequencer = Sequencer::new(SequencerLimits::default());
/// let mut out = Vec::new();
/// let at = |offset| Position { epoch: 1, offset };
/// sequencer.handle("orders", at(1), "a", 0, &mut out);
/// assert_eq!(sequencer.handle("orders", at(1), "a", 0, &mut out), SequencerOutcome::Duplicate);
/// assert_eq!(sequencer.handle("orders", at(3), "c", 0, &mut out), SequencerOutcome::Held);
/// sequencer.handle("orders", at(2), "b", 5, &mut out);
/// assert_eq!(out, [Sequenced::Message("a"), Sequenced::Message("b"), Sequenced::Message("c")]);
/// ```
#[derive(Debug)]
pub struct Sequencer<T> {
    limits: SequencerLimits,
    topics: HashMap<Arc<str>, Topic<T>>,
    /// Topics in the order in which they were first seen, including some that were forgotten.
    order: VecDeque<(u64, Arc<str>)>,
    next_serial: u64,
    /// Topics with held messages, by the end of their wait.
    waiting: BTreeSet<(u64, Arc<str>)>,
    held: usize,
}

/// The position of a message: its number `offset`, counted from 1, in the history `epoch` of its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The history. Another number means that the offsets started again.
    pub epoch: u32,
    /// The number of the message; 0 is the position before the first one.
    pub offset: u64,
}

/// The limits of a [`Sequencer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencerLimits {
    /// The maximum number of topics; with a further one, the one that was seen first is forgotten. Default 10,000.
    pub topics_max: usize,
    /// The maximum number of held messages of all topics together. Default 1,024.
    pub held_messages_max: usize,
    /// The time for which a message is held, in milliseconds; 0 to hold none. Default 1,000.
    pub window_ms: u64,
}

/// The output of a sequencer, in the order for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sequenced<T> {
    /// The next message of its topic.
    Message(T),
    /// Missing messages.
    Gap(Gap),
}

/// Missing messages of a topic: those from `from` to `to`, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The topic.
    pub topic: Arc<str>,
    /// The epoch of its history.
    pub epoch: u32,
    /// The first missing offset.
    pub from: u64,
    /// The last missing offset.
    pub to: u64,
}

/// The result for the current message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequencerOutcome {
    /// It was delivered.
    Delivered,
    /// It is held, and waits for those before it.
    Held,
    /// It was dropped, because it arrived before or was reported as missing.
    Duplicate,
    /// It was delivered as the first message of a new history of its topic. Messages before it may be missing.
    NewEpoch,
}

impl Default for SequencerLimits {
    fn default() -> Self {
        Self {
            topics_max: 10_000,
            held_messages_max: 1_024,
            window_ms: 1_000,
        }
    }
}

impl<T> Sequencer<T> {
    /// A sequencer without topics.
    #[must_use]
    pub fn new(limits: SequencerLimits) -> Self {
        Self {
            limits,
            topics: HashMap::new(),
            order: VecDeque::new(),
            next_serial: 0,
            waiting: BTreeSet::new(),
            held: 0,
        }
    }

    /// Receives a message, and appends to `out` what can be delivered now. `now_ms` is on a monotonic clock. The first
    /// message of an unknown topic is delivered, whatever its position.
    pub fn handle(
        &mut self,
        topic: &str,
        position: Position,
        message: T,
        now_ms: u64,
        out: &mut Vec<Sequenced<T>>,
    ) -> SequencerOutcome {
        if self.pass(topic, position, out) {
            out.push(Sequenced::Message(message));
            return SequencerOutcome::Delivered;
        }
        let Some((name, known)) = self.topics.get_key_value(topic) else {
            return SequencerOutcome::Duplicate;
        };
        if known.last.epoch != position.epoch {
            let name = name.clone();
            self.release(&name, out);
            self.set_last(&name, position);
            out.push(Sequenced::Message(message));
            return SequencerOutcome::NewEpoch;
        }
        if position.offset <= known.last.offset || known.held.contains_key(&position.offset) {
            return SequencerOutcome::Duplicate;
        }
        let name = name.clone();
        if position.offset == known.last.offset + 1 {
            out.push(Sequenced::Message(message));
            self.set_last(&name, position);
            self.drain(&name, now_ms, out);
            return SequencerOutcome::Delivered;
        }
        self.hold(&name, position, message, now_ms, out)
    }

    /// The fast path: the next position of a topic without held messages, and the first position of a new topic.
    fn pass(&mut self, topic: &str, position: Position, out: &mut Vec<Sequenced<T>>) -> bool {
        let Some(known) = self.topics.get_mut(topic) else {
            self.insert(topic, position, out);
            return true;
        };
        let is_next = known.last.epoch == position.epoch
            && known.last.offset.checked_add(1) == Some(position.offset)
            && known.held.is_empty();
        if is_next {
            known.last = position;
        }
        is_next
    }

    /// Records that the messages of `topic` up to `position` are known. The answer to a subscription has such a
    /// position, and so has the answer to a publication. Appends to `out` the messages that need not wait any more.
    pub fn advance(
        &mut self,
        topic: &str,
        position: Position,
        now_ms: u64,
        out: &mut Vec<Sequenced<T>>,
    ) {
        if self.pass(topic, position, out) {
            return;
        }
        let Some((name, known)) = self.topics.get_key_value(topic) else {
            return;
        };
        let (name, last) = (name.clone(), known.last);
        if last.epoch != position.epoch {
            self.release(&name, out);
            self.set_last(&name, position);
        } else if last.offset < position.offset {
            let passed = self.passed(&name, position.offset);
            out.extend(passed.into_iter().map(Sequenced::Message));
            self.set_last(&name, position);
            self.drain(&name, now_ms, out);
        }
    }

    /// Records that the server will not send the messages of `topic` from `from` to `to` of `epoch`, so that those
    /// after them need not wait. Messages of this range that arrive nevertheless are delivered.
    pub fn skip(
        &mut self,
        topic: &str,
        epoch: u32,
        from: u64,
        to: u64,
        now_ms: u64,
        out: &mut Vec<Sequenced<T>>,
    ) {
        let Some(known) = self.topics.get(topic) else {
            return;
        };
        let joins = known.last.epoch == epoch && from <= known.last.offset.saturating_add(1);
        if joins && to > known.last.offset {
            self.advance(topic, Position { epoch, offset: to }, now_ms, out);
        }
    }

    /// The position of the last delivered message of `topic`; `None` for an unknown topic.
    #[must_use]
    pub fn position(&self, topic: &str) -> Option<Position> {
        self.topics.get(topic).map(|topic| topic.last)
    }

    /// Whether messages of `topic` are held.
    #[must_use]
    pub fn is_waiting(&self, topic: &str) -> bool {
        self.topics
            .get(topic)
            .is_some_and(|topic| !topic.held.is_empty())
    }

    /// Forgets a topic. Its held messages are delivered first, with the gaps between them.
    pub fn forget(&mut self, topic: &str, out: &mut Vec<Sequenced<T>>) {
        if let Some((name, _)) = self.topics.get_key_value(topic) {
            let name = name.clone();
            self.release(&name, out);
            self.topics.remove(&name);
            self.compact();
        }
    }

    /// The number of known topics.
    #[must_use]
    pub fn topics(&self) -> usize {
        self.topics.len()
    }

    /// The number of held messages.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// The time of the next call of [`Self::handle_timeout`], if one is needed.
    #[must_use]
    pub fn poll_deadline_ms(&self) -> Option<u64> {
        self.waiting.first().map(|(deadline_ms, _)| *deadline_ms)
    }

    /// Ends the waits whose time is over: appends the gaps and the messages after them to `out`.
    pub fn handle_timeout(&mut self, now_ms: u64, out: &mut Vec<Sequenced<T>>) {
        while let Some((deadline_ms, name)) = self.waiting.first() {
            if *deadline_ms > now_ms {
                return;
            }
            let name = name.clone();
            self.give_up(&name, out);
            self.drain(&name, now_ms, out);
        }
    }

    fn hold(
        &mut self,
        name: &Arc<str>,
        position: Position,
        message: T,
        now_ms: u64,
        out: &mut Vec<Sequenced<T>>,
    ) -> SequencerOutcome {
        let Some(topic) = self.topics.get_mut(name) else {
            return SequencerOutcome::Duplicate;
        };
        topic.held.insert(position.offset, message);
        self.held += 1;
        if self.limits.window_ms > 0 && self.held <= self.limits.held_messages_max {
            if topic.deadline_ms.is_none() {
                let deadline_ms = now_ms.saturating_add(self.limits.window_ms);
                topic.deadline_ms = Some(deadline_ms);
                self.waiting.insert((deadline_ms, name.clone()));
            }
            return SequencerOutcome::Held;
        }
        self.give_up(name, out);
        self.drain(name, now_ms, out);
        if self
            .position(name)
            .is_some_and(|last| last.offset >= position.offset)
        {
            SequencerOutcome::Delivered
        } else {
            SequencerOutcome::Held
        }
    }

    /// Reports the first gap of a topic, so that the messages after it can be delivered.
    fn give_up(&mut self, name: &Arc<str>, out: &mut Vec<Sequenced<T>>) {
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        if let Some((first, _)) = topic.held.first_key_value() {
            let (from, to) = (topic.last.offset + 1, first - 1);
            out.push(Sequenced::Gap(Gap {
                topic: name.clone(),
                epoch: topic.last.epoch,
                from,
                to,
            }));
            topic.last.offset = to;
        }
    }

    /// Delivers the messages that follow the last one without a gap, and sets the timeout for the rest.
    fn drain(&mut self, name: &Arc<str>, now_ms: u64, out: &mut Vec<Sequenced<T>>) {
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        if topic.deadline_ms.is_none() && topic.held.is_empty() {
            return;
        }
        while let Some(entry) = topic.held.first_entry() {
            if *entry.key() != topic.last.offset + 1 {
                break;
            }
            topic.last.offset += 1;
            self.held -= 1;
            out.push(Sequenced::Message(entry.remove()));
        }
        if let Some(deadline_ms) = topic.deadline_ms.take() {
            self.waiting.remove(&(deadline_ms, name.clone()));
        }
        if !topic.held.is_empty() {
            let deadline_ms = now_ms.saturating_add(self.limits.window_ms);
            topic.deadline_ms = Some(deadline_ms);
            self.waiting.insert((deadline_ms, name.clone()));
        }
    }

    /// Delivers all held messages of a topic, with the gaps between them.
    fn release(&mut self, name: &Arc<str>, out: &mut Vec<Sequenced<T>>) {
        while self.is_waiting(name) {
            self.give_up(name, out);
            self.drain(name, 0, out);
        }
    }

    /// The held messages of a topic up to `offset`, in order.
    fn passed(&mut self, name: &Arc<str>, offset: u64) -> Vec<T> {
        let Some(topic) = self.topics.get_mut(name) else {
            return Vec::new();
        };
        let later = topic.held.split_off(&offset.saturating_add(1));
        let passed = std::mem::replace(&mut topic.held, later);
        self.held -= passed.len();
        passed.into_values().collect()
    }

    fn set_last(&mut self, name: &Arc<str>, position: Position) {
        if let Some(topic) = self.topics.get_mut(name) {
            topic.last = position;
        }
    }

    fn insert(&mut self, topic: &str, last: Position, out: &mut Vec<Sequenced<T>>) {
        while self.topics.len() >= self.limits.topics_max.max(1) {
            let Some((serial, oldest)) = self.order.pop_front() else {
                break;
            };
            if self.topics.get(&oldest).map(|topic| topic.serial) == Some(serial) {
                self.release(&oldest, out);
                self.topics.remove(&oldest);
            }
        }
        let name: Arc<str> = topic.into();
        let serial = self.next_serial;
        self.next_serial += 1;
        self.order.push_back((serial, name.clone()));
        let topic = Topic {
            serial,
            last,
            held: BTreeMap::new(),
            deadline_ms: None,
        };
        self.topics.insert(name, topic);
    }

    /// Removes forgotten topics from the order, so that it does not grow.
    fn compact(&mut self) {
        if self.order.len() > 2 * self.topics.len() + 16 {
            let topics = &self.topics;
            self.order.retain(|(serial, name)| {
                topics.get(name).map(|topic| topic.serial) == Some(*serial)
            });
        }
    }
}

#[derive(Debug)]
struct Topic<T> {
    serial: u64,
    last: Position,
    held: BTreeMap<u64, T>,
    /// The end of its wait; `None` if nothing is held.
    deadline_ms: Option<u64>,
}
