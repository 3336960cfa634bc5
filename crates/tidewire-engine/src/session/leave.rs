//! Sessions that have ended, on their way out of their topics: those of a session with many take several turns.

use crate::limits::owner::OwnerId;
use crate::limits::work::cost;
use crate::session::presence::who;
use crate::state::connection::ConnectionState;
use crate::state::core::Core;
use crate::state::topics::{Holder, Leaver, SessionTopics};
use crate::topics::local::Slot;
use crate::topics::member::member_key;
use std::sync::Arc;
use tidewire_net::{ConnectionId, Io};

impl Core {
    /// Takes a session that has ended out of everything: at once, or out of many topics in the turns to come.
    pub(crate) fn leave_topics(&mut self, io: &Io, state: &mut ConnectionState) {
        self.leave_groups(io, state, None);
        let Some(topics) = state.topics.take() else {
            return;
        };
        let mut leaver = Leaver {
            holder: state.holder(),
            who: who(state),
            topics,
        };
        let is_long = leaver.topics.slots.len() > LEFT_AT_ONCE_MAX;
        if is_long {
            self.leavers.keys.insert(member_key(state.key.id));
            self.leavers.queue.push_back(leaver);
        } else {
            while self.leave_next(&mut leaver) {}
        }
    }

    /// A new connection has been accepted. One that leaves under the same key, which is rare, does so at once.
    pub(crate) fn make_way(&mut self, id: ConnectionId) {
        if self.leavers.is_empty() || !self.leavers.contain(id) {
            return;
        }
        let key = member_key(id);
        let mut queue = self.leavers.queue.iter();
        let place = queue.position(|leaver| member_key(leaver.holder.key.id) == key);
        if let Some(mut leaver) = place.and_then(|place| self.leavers.queue.remove(place)) {
            while self.leave_next(&mut leaver) {}
            self.leavers.forget(&leaver);
        }
    }

    /// Goes on with the sessions that are on their way out, as far as a turn has time for it.
    pub(crate) fn let_leave(&mut self) {
        self.meter.start();
        while !self.meter.is_spent()
            && let Some(mut leaver) = self.leavers.queue.pop_front()
        {
            if self.leave_next(&mut leaver) {
                self.meter.spend(cost::UNSUBSCRIBE);
                self.leavers.queue.push_front(leaver);
            } else {
                self.leavers.forget(&leaver);
            }
        }
        self.meter.settle(OwnerId::SERVER);
    }

    /// Takes a session out of one topic; whether it was in any.
    fn leave_next(&mut self, leaver: &mut Leaver) -> bool {
        let Some(slot) = leaver.topics.slots.last().copied() else {
            return false;
        };
        if let Some(topic) = self.leave_slot(leaver.holder, &mut leaver.topics, slot) {
            self.depart(leaver.holder.key, Arc::clone(&leaver.who), topic);
        }
        true
    }

    /// Takes a session out of a topic; its name if the session is present there.
    pub(crate) fn leave_slot(
        &mut self,
        holder: Holder,
        topics: &mut SessionTopics,
        slot: Slot,
    ) -> Option<Arc<str>> {
        let topic = self.topics.topic(slot)?;
        let (name, is_pattern) = (Arc::clone(&topic.name), topic.is_pattern);
        topics.granted.remove(&name);
        if self.move_out(holder, topics, slot).is_some() {
            self.drop_interest(&name, is_pattern);
        }
        let presence_bytes = topics.presence_bytes.remove(&slot);
        self.release(holder.owner, topics, presence_bytes.unwrap_or_default());
        let hub = &self.shared.hub;
        self.counters
            .subscriptions
            .set(self.topics.subscriptions() as u64);
        self.counters.topics.set(self.topics.len() as u64);
        let keeps_presence =
            !is_pattern && hub.rules.keep_presence() && hub.rules.of(&name).presence;
        keeps_presence.then_some(name)
    }
}

/// Of so many topics a session is taken out in one step, which is some hundred microseconds of work.
const LEFT_AT_ONCE_MAX: usize = 100;
