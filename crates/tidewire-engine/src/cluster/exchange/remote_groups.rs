//! Queue groups between the link and the members on this server.

use super::{Exchange, UNREADABLE};
use crate::cluster::commands::GroupKey;
use crate::cluster::convert;
use crate::topics::broker::{Done, Refusal, Ticket};
use crate::topics::groups::{EndedWork, SharedWork};
use std::collections::{HashMap, VecDeque};
use tidewire_redis as redis;
use tidewire_redis::Now;

/// The groups that this server asks for.
#[derive(Debug, Default)]
pub(super) struct GroupsInUse {
    /// The jobs that wait for a group, with their deadlines.
    waiting: HashMap<GroupKey, Vec<(u64, Ticket)>>,
    /// Groups that somebody waits for, in the order of their time.
    awaited: VecDeque<(u64, GroupKey)>,
    /// Groups that are left then, if they have no members here.
    idle: VecDeque<(u64, GroupKey)>,
    /// How often a topic had as many groups as it may have.
    pub(super) refused: u64,
}

impl GroupsInUse {
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        let first = |queue: &VecDeque<(u64, GroupKey)>| queue.front().map(|(at_ms, _)| *at_ms);
        let deadlines = [first(&self.awaited), first(&self.idle)];
        deadlines.into_iter().flatten().min()
    }
}

impl Exchange {
    /// Somebody waits for a group.
    pub(super) fn join_group(&mut self, key: GroupKey, ticket: Ticket, now: Now) {
        let until_ms = now.ms + self.interest.wait_ms;
        self.link.join_group(&key.0, &key.1);
        let waiting = self.groups.waiting.entry(key.clone()).or_default();
        waiting.push((until_ms, ticket));
        self.groups.awaited.push_back((until_ms, key));
    }

    /// This server is in a group, or cannot be.
    pub(super) fn note_group(&mut self, key: &GroupKey, can_join: bool, now: Now) {
        if !can_join {
            self.groups.refused += 1;
        }
        self.broker.groups().insert(key.clone(), can_join);
        for (_, ticket) in self.groups.waiting.remove(key).unwrap_or_default() {
            ticket.settle(Ok(Done::Prepared));
        }
        let at_ms = now.ms + IDLE_MS;
        self.groups.idle.push_back((at_ms, key.clone()));
        self.note_members(key);
    }

    /// The members of a group are others, or have done something.
    pub(super) fn change_group(&mut self, key: &GroupKey, ended: &EndedWork) {
        self.end_work(key, ended);
        if !self.note_members(key) {
            self.leave_group(key);
        }
    }

    /// Gives work to the members.
    pub(super) fn take_work(
        &mut self,
        key: &GroupKey,
        works: Vec<redis::Work>,
        mut lost: Option<u64>,
        now: Now,
    ) {
        let Some(hub) = self.hub.upgrade() else {
            return;
        };
        let (node, mut unreadable) = (self.link.node(), EndedWork::default());
        let mut taken = Vec::new();
        for work in works {
            let id = convert::position(work.id);
            let to_unix_ms = |ms| self.link.to_unix_ms(ms);
            let made = convert::publication(node, &key.0, work.position, &work.record, to_unix_ms);
            match made {
                Some(publication) => taken.push(SharedWork {
                    id,
                    is_again: work.is_again,
                    publication,
                }),
                // It has been logged, and no server can read it.
                None => {
                    self.link.note_unreadable(&key.0, UNREADABLE, now);
                    unreadable.done.push(id);
                    lost = lost.map(|lost| lost.saturating_add(1));
                }
            }
        }
        let (room, ended) = hub.take_work(&key.0, &key.1, taken, lost);
        self.end_work(key, &unreadable);
        self.end_work(key, &ended);
        self.link.set_group_room(&key.0, &key.1, room.unwrap_or(0));
    }

    /// Reports the room of the members to the link. Returns whether there are any members.
    fn note_members(&mut self, key: &GroupKey) -> bool {
        let Some(hub) = self.hub.upgrade() else {
            return false;
        };
        let (room, ended) = hub.take_work(&key.0, &key.1, Vec::new(), Some(0));
        self.end_work(key, &ended);
        let Some(room) = room else {
            return false;
        };
        // It may have been left while they joined.
        if !self.broker.groups().contains_key(key) {
            self.link.join_group(&key.0, &key.1);
        }
        self.link.set_group_room(&key.0, &key.1, room);
        true
    }

    fn end_work(&mut self, key: &GroupKey, ended: &EndedWork) {
        let ids = |ids: &[_]| ids.iter().copied().map(convert::link_position).collect();
        let (done, handed_back): (Vec<_>, Vec<_>) = (ids(&ended.done), ids(&ended.handed_back));
        if !done.is_empty() || !handed_back.is_empty() {
            self.link.finish_work(&key.0, &key.1, &done, &handed_back);
        }
    }

    fn leave_group(&mut self, key: &GroupKey) {
        self.broker.groups().remove(key);
        self.link.leave_group(&key.0, &key.1);
    }

    /// Refuses those who have waited long enough, and leaves groups that nobody has joined.
    pub(super) fn tick_groups(&mut self, now: Now) {
        while let Some(key) = pop_due(&mut self.groups.awaited, now) {
            let Some(waiting) = self.groups.waiting.get_mut(&key) else {
                continue;
            };
            let over = waiting.extract_if(.., |(until_ms, _)| *until_ms <= now.ms);
            let over: Vec<_> = over.collect();
            if waiting.is_empty() {
                self.groups.waiting.remove(&key);
            }
            for (_, ticket) in over {
                ticket.settle(Err(Refusal::Unavailable));
            }
            if !self.groups.waiting.contains_key(&key) && !self.note_members(&key) {
                self.leave_group(&key);
            }
        }
        while let Some(key) = pop_due(&mut self.groups.idle, now) {
            if !self.groups.waiting.contains_key(&key) && !self.note_members(&key) {
                self.leave_group(&key);
            }
        }
    }
}

/// Removes and returns the first group of a queue if it is due.
fn pop_due(queue: &mut VecDeque<(u64, GroupKey)>, now: Now) -> Option<GroupKey> {
    let (at_ms, _) = queue.front()?;
    if *at_ms > now.ms {
        return None;
    }
    queue.pop_front().map(|(_, key)| key)
}

/// How long this server stays in a group without members, in milliseconds.
const IDLE_MS: u64 = 10_000;
