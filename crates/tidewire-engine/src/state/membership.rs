//! Membership in topics: what a shard does for sessions that enter and leave them.

use crate::limits::owner::OwnerId;
use crate::limits::work::cost;
use crate::state::core::Core;
use crate::state::session_topics::{EndedSession, Holder, SessionTopics, subscription_bytes};
use crate::topics::local::Slot;
use crate::topics::member::member_key;
use std::sync::Arc;
use tidewire_net::ConnectionId;

impl Core {
    /// A new connection has been accepted. One that leaves under the same key, which is rare, does
    /// so at once.
    pub(crate) fn make_way(&mut self, id: ConnectionId) {
        if self.leaving.ended_sessions.is_empty() || !self.leaving.ended_sessions.contain(id) {
            return;
        }
        let key = member_key(id);
        let mut queue = self.leaving.ended_sessions.queue.iter();
        let place = queue.position(|ended| member_key(ended.holder.key.id) == key);
        if let Some(mut ended) =
            place.and_then(|place| self.leaving.ended_sessions.queue.remove(place))
        {
            while self.leave_next(&mut ended) {}
            self.leaving.ended_sessions.forget(&ended);
        }
    }

    /// Goes on with the sessions that are on their way out, as far as a turn has time for it.
    pub(crate) fn let_leave(&mut self) {
        self.turn.meter.start();
        while !self.turn.meter.is_spent()
            && let Some(mut ended) = self.leaving.ended_sessions.queue.pop_front()
        {
            if self.leave_next(&mut ended) {
                self.turn.meter.spend(cost::UNSUBSCRIBE);
                self.leaving.ended_sessions.queue.push_front(ended);
            } else {
                self.leaving.ended_sessions.forget(&ended);
            }
        }
        self.turn.meter.settle(OwnerId::SERVER);
    }

    /// Removes a session from one of its topics; false if it has none left.
    pub(crate) fn leave_next(&mut self, ended: &mut EndedSession) -> bool {
        let Some(slot) = ended.topics.slots.last().copied() else {
            return false;
        };
        if let Some(topic) = self.leave_slot(ended.holder, &mut ended.topics, slot) {
            self.depart(ended.holder.key, Arc::clone(&ended.who), topic);
        }
        true
    }

    /// Removes a session from a topic. Returns the topic's name if the topic shows presence.
    pub(crate) fn leave_slot(
        &mut self,
        holder: Holder,
        topics: &mut SessionTopics,
        slot: Slot,
    ) -> Option<Arc<str>> {
        let topic = self.topics.topic(slot)?;
        let (name, is_pattern) = (Arc::clone(&topic.name), topic.is_pattern);
        topics.granted.remove(&name);
        topics.by_token.remove(&name);
        if self.move_out(holder, topics, slot).is_some() {
            self.drop_interest(&name, is_pattern);
        }
        let presence_bytes = topics.presence_bytes.remove(&slot);
        self.release(holder.owner, topics, presence_bytes.unwrap_or_default());
        let rules = self.shared.hub.rules.get();
        self.counters
            .subscriptions
            .set(self.topics.subscriptions() as u64);
        self.counters.topics.set(self.topics.len() as u64);
        let keeps_presence = !is_pattern && rules.keep_presence() && rules.shows_presence(&name);
        keeps_presence.then_some(name)
    }

    /// Releases a part of a session's charge.
    pub(crate) fn release(&mut self, owner: OwnerId, topics: &mut SessionTopics, bytes: usize) {
        topics.charged_bytes -= bytes;
        self.shared.charges.accounts.release(owner, bytes);
    }

    /// Forgets a topic that nobody here subscribes to.
    pub(crate) fn drop_unused(&mut self, slot: Slot) {
        let Some(topic) = self.topics.topic(slot) else {
            return;
        };
        if topic.subscribers() > 0 {
            return;
        }
        let (name, is_pattern) = (Arc::clone(&topic.name), topic.is_pattern);
        self.topics.forget(slot);
        self.drop_interest(&name, is_pattern);
    }

    pub(crate) fn drop_interest(&mut self, name: &str, is_pattern: bool) {
        let hub = &self.shared.hub;
        if is_pattern {
            hub.remove_pattern(name, self.index);
        } else {
            hub.remove_interest(name, self.index);
        }
    }

    pub(crate) fn add_interest(&mut self, name: &Arc<str>, is_pattern: bool) {
        let hub = &self.shared.hub;
        if is_pattern {
            hub.add_pattern(name, self.index);
        } else {
            hub.add_interest(name, self.index);
        }
        self.counters.topics.set(self.topics.len() as u64);
    }

    /// Removes a session from a topic. Returns the topic's name if nobody else here subscribes to it.
    pub(crate) fn move_out(
        &mut self,
        holder: Holder,
        topics: &mut SessionTopics,
        slot: Slot,
    ) -> Option<Arc<str>> {
        let id = holder.key.id;
        let topic = self.topics.topic(slot)?;
        let (name, is_pattern) = (Arc::clone(&topic.name), topic.is_pattern);
        if !self.topics.is_member(slot, id) {
            return None;
        }
        let bytes = subscription_bytes(&name, self.topics.filter_of(slot, id).as_deref());
        if let Some(lossy) = topics.lossy.remove(&slot) {
            topics.forget_lossy(&lossy);
        }
        topics.patterns -= usize::from(is_pattern);
        let is_last = self.topics.leave(slot, id, &mut topics.slots);
        self.release(holder.owner, topics, bytes);
        is_last
    }
}
