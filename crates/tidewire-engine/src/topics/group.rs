//! A queue group: its members share the messages, and each message goes to one of them.

mod queue;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use self::queue::{Held, Waiting};

/// The members of one group of one topic, and the messages that none of them has finished.
///
/// `M` names a member, `P` is a message, cheap to clone. A message is waiting, or unacknowledged at
/// one member, or done: with the acknowledgement, or with the delivery itself to a member that does
/// not acknowledge. Messages are assigned in the order of their arrival; the unacknowledged ones of
/// a member that leaves go back to the front, in that same order.
///
/// Steps are O(log n) in the number of members and of messages. Waiting messages are bounded in
/// number, unacknowledged ones by the windows of their members, and both together in bytes.
#[derive(Debug)]
pub(crate) struct QueueGroup<M, P> {
    members: HashMap<M, Member<P>>,
    /// The members with room, least busy first and then in turn.
    ready: BTreeSet<(usize, u64, M)>,
    waiting: Waiting<P>,
    waiting_max: usize,
    bytes_max: usize,
    /// The charge for all messages here, in bytes.
    bytes: usize,
    /// The windows of the members together, and the members that have none.
    windows: usize,
    windowless: usize,
    unacknowledged: usize,
    redelivered: u64,
    id_next: u64,
    turn_next: u64,
}

/// A message for one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery<P> {
    /// Names the message in this group, to acknowledge it: from 1 in the order of arrival, and the
    /// same one when the message is delivered again.
    pub(crate) id: u64,
    /// Whether a member that has left had it before, and perhaps worked on it.
    pub(crate) redelivered: bool,
    /// The message.
    pub(crate) message: P,
}

/// The group holds as many messages or bytes as it may; nothing was changed. It helps to try again
/// later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue group is full")]
pub(crate) struct Full;

/// How the group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupCounts {
    /// How many members there are.
    pub(crate) members: usize,
    /// Messages that no member has.
    pub(crate) waiting: usize,
    /// Messages that a member has and has not acknowledged.
    pub(crate) unacknowledged: usize,
    /// The size of these messages together, in bytes.
    pub(crate) bytes: usize,
    /// How often a message was delivered again since the group was made.
    pub(crate) redelivered: u64,
}

#[derive(Debug)]
struct Member<P> {
    /// At most N unacknowledged messages; `None` for a member that does not acknowledge.
    window: Option<usize>,
    unacknowledged: BTreeMap<u64, Held<P>>,
    /// When it was served last: the smaller, the sooner it is its turn.
    turn: u64,
}

impl<M: Copy + Eq + Hash + Ord, P: Clone> QueueGroup<M, P> {
    /// A group without members, for at most `waiting_max` waiting messages, and `bytes_max` bytes
    /// of waiting and unacknowledged ones together.
    pub(crate) fn new(waiting_max: usize, bytes_max: usize) -> Self {
        Self {
            members: HashMap::new(),
            ready: BTreeSet::new(),
            waiting: Waiting::new(),
            waiting_max,
            bytes_max,
            bytes: 0,
            windows: 0,
            windowless: 0,
            unacknowledged: 0,
            redelivered: 0,
            id_next: 1,
            turn_next: 0,
        }
    }

    /// Adds a member. Returns false if it is a member already; it then stays unchanged.
    ///
    /// One that acknowledges (`acks`) has at most `window` unacknowledged messages, at least one.
    /// One that does not counts as never busy.
    pub(crate) fn join(&mut self, member: M, window: usize, acks: bool) -> bool {
        if self.members.contains_key(&member) {
            return false;
        }
        let turn = self.take_turn();
        let window = acks.then_some(window.max(1));
        self.windows += window.unwrap_or(0);
        self.windowless += usize::from(window.is_none());
        self.members.insert(
            member,
            Member {
                window,
                unacknowledged: BTreeMap::new(),
                turn,
            },
        );
        self.ready.insert((0, turn, member));
        true
    }

    /// Removes a member and gives how many unacknowledged messages it gave back; 0 for an unknown
    /// one.
    pub(crate) fn leave(&mut self, member: M) -> usize {
        let Some(left) = self.members.remove(&member) else {
            return 0;
        };
        let count = left.unacknowledged.len();
        self.windows -= left.window.unwrap_or(0);
        self.windowless -= usize::from(left.window.is_none());
        self.ready.remove(&(count, left.turn, member));
        self.unacknowledged -= count;
        self.waiting.give_back(left.unacknowledged);
        count
    }

    /// Adds a message behind those that are waiting. `bytes` is the memory that it holds.
    pub(crate) fn push(&mut self, message: P, bytes: usize) -> Result<(), Full> {
        let within = self.bytes.saturating_add(bytes) <= self.bytes_max;
        if self.waiting.len() >= self.waiting_max || !within {
            return Err(Full);
        }
        self.bytes += bytes;
        let id = self.id_next;
        self.id_next += 1;
        self.waiting.push(id, Held::new(message, bytes));
        Ok(())
    }

    /// Adds a message whatever the limits are. If a member elsewhere may have had it, it goes
    /// before the waiting messages that no member has had.
    pub(crate) fn push_taken(&mut self, message: P, bytes: usize, was_delivered: bool) {
        self.bytes += bytes;
        let id = self.id_next;
        self.id_next += 1;
        let mut held = Held::new(message, bytes);
        if was_delivered {
            held.was_delivered = true;
            self.waiting.give_back(BTreeMap::from([(id, held)]));
        } else {
            self.waiting.push(id, held);
        }
    }

    /// How many more messages the members have room for; many if one of them does not acknowledge.
    pub(crate) fn room(&self) -> usize {
        let taken = self.unacknowledged + self.waiting.len();
        let room = self.windows.saturating_sub(taken);
        if self.windowless > 0 {
            room.max(ROOM)
        } else {
            room
        }
    }

    /// Removes and returns the waiting messages.
    pub(crate) fn take_waiting(&mut self) -> Vec<P> {
        let mut taken = Vec::new();
        while let Some((_, held)) = self.waiting.take_first() {
            self.bytes -= held.bytes;
            taken.push(held.message);
        }
        taken
    }

    /// Drops the messages that have waited longest until there is room for one of `bytes` bytes, as
    /// far as that helps; returns how many it dropped. Messages at members stay.
    pub(crate) fn make_room(&mut self, bytes: usize) -> u64 {
        let mut dropped = 0;
        while self.waiting.len() >= self.waiting_max
            || self.bytes.saturating_add(bytes) > self.bytes_max
        {
            let Some((_, oldest)) = self.waiting.take_first() else {
                break;
            };
            self.bytes -= oldest.bytes;
            dropped += 1;
        }
        dropped
    }

    /// Assigns the first waiting message to the least busy member, if there is a message and a
    /// member with room. To be called until it gives `None`, after every other step.
    pub(crate) fn next(&mut self) -> Option<(M, Delivery<P>)> {
        if self.waiting.len() == 0 {
            return None;
        }
        let (_, _, name) = self.ready.pop_first()?;
        let turn = self.take_turn();
        let member = self.members.get_mut(&name)?;
        member.turn = turn;
        let (id, mut held) = self.waiting.take_first()?;
        let delivery = Delivery {
            id,
            redelivered: held.was_delivered,
            message: held.message.clone(),
        };
        self.redelivered += u64::from(held.was_delivered);
        if member.window.is_some() {
            held.was_delivered = true;
            member.unacknowledged.insert(id, held);
            self.unacknowledged += 1;
        } else {
            self.bytes -= held.bytes;
        }
        if member.has_room() {
            self.ready.insert((member.unacknowledged.len(), turn, name));
        }
        Some((name, delivery))
    }

    /// [`acknowledge_each`](Self::acknowledge_each) for those who count only.
    #[cfg(test)]
    pub(crate) fn acknowledge(&mut self, member: M, ids: impl IntoIterator<Item = u64>) -> usize {
        self.acknowledge_each(member, ids, |_| {})
    }

    /// A member has finished these messages; gives how many of them were its own and
    /// unacknowledged, and each to `end`. The others are ignored.
    pub(crate) fn acknowledge_each(
        &mut self,
        member: M,
        ids: impl IntoIterator<Item = u64>,
        mut end: impl FnMut(P),
    ) -> usize {
        let Some(owner) = self.members.get_mut(&member) else {
            return 0;
        };
        let before = owner.unacknowledged.len();
        for id in ids {
            if let Some(done) = owner.unacknowledged.remove(&id) {
                self.bytes -= done.bytes;
                end(done.message);
            }
        }
        let after = owner.unacknowledged.len();
        self.unacknowledged -= before - after;
        let turn = owner.turn;
        if before != after {
            self.ready.remove(&(before, turn, member));
            self.ready.insert((after, turn, member));
        }
        before - after
    }

    /// How the group stands.
    pub(crate) fn counts(&self) -> GroupCounts {
        GroupCounts {
            members: self.members.len(),
            waiting: self.waiting.len(),
            unacknowledged: self.unacknowledged,
            bytes: self.bytes,
            redelivered: self.redelivered,
        }
    }

    fn take_turn(&mut self) -> u64 {
        self.turn_next += 1;
        self.turn_next
    }
}

/// The room of a member that does not acknowledge, in messages.
const ROOM: usize = 256;

impl<P> Member<P> {
    fn has_room(&self) -> bool {
        self.window
            .is_none_or(|window| self.unacknowledged.len() < window)
    }
}

#[cfg(test)]
mod tests;
