//! Each message of a topic once and in order, and what is missing between them told.
//!
//! Time is an argument; nothing here waits by itself.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Puts the messages of many topics in order by their positions, drops those that come twice, and tells gaps.
///
/// A message that comes before its turn is held until those before it have come, until the window's time is
/// over, or until too many are held; then what is still missing is a [`Gap`], and the held ones follow it.
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
    /// Topics by when they were first seen, with some that are gone.
    order: VecDeque<(u64, Arc<str>)>,
    next_serial: u64,
    /// Topics that hold messages, by when they give up.
    waiting: BTreeSet<(u64, Arc<str>)>,
    held: usize,
}

/// Where a message stands: the count `offset`, from 1, in the history `epoch` of its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Which history: another number means that counting began anew.
    pub epoch: u32,
    /// Which message of it; 0 is the place before the first.
    pub offset: u64,
}

/// What a [`Sequencer`] remembers at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencerLimits {
    /// Topics; the one that was seen first is forgotten for a further one. Default 10,000.
    pub topics_max: usize,
    /// Messages that are held because others are missing, of all topics together. Default 1,024.
    pub held_messages_max: usize,
    /// For how long a message waits for those before it, in milliseconds; 0 to hold none. Default 1,000.
    pub window_ms: u64,
}

/// What a sequencer lets through, in the order in which the application should see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sequenced<T> {
    /// The next message of its topic.
    Message(T),
    /// Messages that have not come.
    Gap(Gap),
}

/// Messages of a topic that have not come: those from `from` to `to`, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The topic.
    pub topic: Arc<str>,
    /// The epoch of its history.
    pub epoch: u32,
    /// The first offset that is missing.
    pub from: u64,
    /// The last one.
    pub to: u64,
}

/// What became of the message at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequencerOutcome {
    /// It was let through.
    Delivered,
    /// It waits for those before it.
    Held,
    /// It has come before, or its place was told as a gap; it is gone.
    Duplicate,
    /// It was let through, as the first of another history of its topic. What lies between is not known.
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
    /// A sequencer that knows no topic.
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

    /// Takes a message, and appends to `out` what can be let through now. `now_ms` is on a clock that never
    /// goes back. The first message of an unknown topic is let through, wherever it stands.
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

    /// Takes what nearly always comes, the next position of a topic of which nothing waits, and a new topic's first.
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

    /// Takes note that the messages of `topic` up to `position` have been seen, whoever delivered them: the
    /// answer to a subscription tells one, and a publisher knows that of its own message. Appends to `out` what
    /// no longer has to wait.
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

    /// Takes note that the messages of `topic` from `from` to `to` of `epoch` will not come, as the server says,
    /// so that those behind them need not wait. What of them has come, or still comes first, is let through.
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

    /// The last message of `topic` that was let through; `None` if nothing is known of it.
    #[must_use]
    pub fn position(&self, topic: &str) -> Option<Position> {
        self.topics.get(topic).map(|topic| topic.last)
    }

    /// Whether messages of `topic` wait for others.
    #[must_use]
    pub fn is_waiting(&self, topic: &str) -> bool {
        self.topics
            .get(topic)
            .is_some_and(|topic| !topic.held.is_empty())
    }

    /// Forgets a topic. Messages that were held are let through first, and the gaps between them told.
    pub fn forget(&mut self, topic: &str, out: &mut Vec<Sequenced<T>>) {
        if let Some((name, _)) = self.topics.get_key_value(topic) {
            let name = name.clone();
            self.release(&name, out);
            self.topics.remove(&name);
            self.compact();
        }
    }

    /// How many topics are known.
    #[must_use]
    pub fn topics(&self) -> usize {
        self.topics.len()
    }

    /// How many messages are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// When [`Self::handle_timeout`] wants to be called, if ever.
    #[must_use]
    pub fn poll_deadline_ms(&self) -> Option<u64> {
        self.waiting.first().map(|(deadline_ms, _)| *deadline_ms)
    }

    /// Gives up waiting where the time is over: appends the gaps and the messages behind them to `out`.
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

    /// Tells the first gap of a topic, so that what is behind it can go.
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

    /// Lets through what follows the last message without a gap, and sets the time for the rest.
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

    /// Lets through all that a topic holds, with the gaps between.
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

    /// Keeps the order from growing with topics that come and go.
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
    /// When it gives up; `None` if nothing is held.
    deadline_ms: Option<u64>,
}
