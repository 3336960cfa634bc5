//! Publishing from a shard, by its clients, its application and itself.

use crate::limits::owner::OwnerId;
use crate::limits::work::cost;
use crate::model::ConnectionKey;
use crate::state::core::Core;
use crate::state::session_topics::Departure;
use crate::topics::broker::{BrokerAnswer, Moment};
use crate::topics::error::PublishError;
use crate::topics::local::Item;
use crate::topics::outlet::Origin;
use crate::topics::presence::PresenceChange;
use crate::topics::publication::{Draft, Publication, Published};
use rand::Rng;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use tidewire_wire::envelope::{SystemType, write_presence_event};
use tidewire_wire::format::Format;
use tidewire_wire::session::Now;

impl Core {
    /// Replaces each expired publication by a notice of the gap; removes it if it had no position.
    pub(crate) fn replace_expired(&mut self, now: Now, batch: &mut Vec<Item>) {
        let unix_ms = now.unix_ms;
        batch.retain_mut(|item| {
            if !item.publication.is_expired(unix_ms) {
                return true;
            }
            match self.gap_of_expired(&item.publication, unix_ms) {
                Some(gap) => item.publication = Arc::new(gap),
                None => return false,
            }
            true
        });
    }

    /// Counts an expired publication; returns the notice of its gap if it had a position.
    pub(crate) fn gap_of_expired(
        &mut self,
        expired: &Publication,
        unix_ms: u64,
    ) -> Option<Publication> {
        self.counters.publications_expired.add(1);
        let id = self.new_id(unix_ms);
        Publication::gap_of(expired, id, unix_ms)
    }

    /// Publishes to a topic from this shard. If the broker answers later, the caller opens the operation of the
    /// last ticket.
    pub(crate) fn publish(
        &mut self,
        now: Now,
        topic: &Arc<str>,
        draft: &Draft<'_>,
        owner: OwnerId,
    ) -> Result<BrokerAnswer<Published>, PublishError> {
        let moment = self.moment(now, owner);
        let origin = Origin::Shard(self.index);
        let hub = &self.shared.hub;
        let operations = &mut self.operations;
        let published = hub.publish(topic, draft, origin, moment, &mut || operations.ticket())?;
        self.turn.backlog_is_full |= hub.is_busy(origin);
        match published {
            BrokerAnswer::Now(_) => self.charge_fanout(topic, draft.payload.len()),
            // The subscribers get it when the broker has accepted it.
            BrokerAnswer::Later => self.turn.backlog_is_full |= hub.is_cluster_busy(),
        }
        Ok(published)
    }

    /// The time, and a random number for an epoch, of an action for an owner.
    pub(crate) fn moment(&mut self, now: Now, owner: OwnerId) -> Moment {
        Moment {
            now_ms: now.unix_ms,
            random_epoch: self.rng.random(),
            owner,
        }
    }

    /// Counts what a payload of a topic makes this shard send, so that one client does not keep it
    /// from the others.
    pub(crate) fn charge_fanout(&mut self, topic: &Arc<str>, payload_bytes: usize) {
        let receivers = self.topics.receivers(topic).max(1);
        self.turn
            .published
            .charge(payload_bytes + MESSAGE_BYTES, receivers);
    }

    /// A session that has ended is no longer present on a topic; its leave is reported when there
    /// is time for it.
    pub(crate) fn depart(&mut self, connection: ConnectionKey, who: Arc<str>, topic: Arc<str>) {
        self.leaving.departures.push_back(Departure {
            topic,
            who,
            connection,
        });
    }

    /// Reports the leaves of sessions that have ended, as far as a turn has time for it.
    pub(crate) fn tell_departures(&mut self, now: Now) {
        self.turn.meter.start();
        let origin = Origin::Shard(self.index);
        while !self.turn.meter.is_spent()
            && !self.turn.published.is_spent()
            && !self.shared.hub.is_busy(origin)
            && let Some(departure) = self.leaving.departures.pop_front()
        {
            let Departure {
                topic,
                who,
                connection,
            } = departure;
            self.leave_presence(now, &topic, &who, connection);
        }
        if self.leaving.departures.is_empty() {
            self.leaving.departures = VecDeque::new();
        }
        self.turn.meter.settle(OwnerId::SERVER);
    }

    /// A connection of a user is no longer present on a topic.
    pub(crate) fn leave_presence(
        &mut self,
        now: Now,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
    ) {
        let hub = &self.shared.hub;
        if hub.leave_presence(topic, who, connection) == PresenceChange::Left {
            self.tell_presence(now, who, topic, SystemType::PresenceLeave, None);
        }
    }

    /// Sends the subscribers of a topic a presence event about one of them.
    pub(crate) fn tell_presence(
        &mut self,
        now: Now,
        who: &Arc<str>,
        topic: &Arc<str>,
        event: SystemType,
        data: Option<&str>,
    ) {
        let bytes = data.map_or(0, str::len);
        self.turn
            .meter
            .spend(cost::PRESENCE_EVENT + cost::bytes(bytes));
        let id = self.new_id(now.unix_ms);
        let mut json = Vec::new();
        let written = write_presence_event(
            event,
            topic,
            who,
            data,
            id,
            now.unix_ms,
            Format::Json,
            &mut json,
        );
        if let Err(error) = written {
            return tracing::error!(%error, "presence cannot be told");
        }
        self.counters.presence_events.add(1);
        let (topic_of, who) = (Arc::clone(topic), Arc::clone(who));
        let publication = Publication::presence_event(topic_of, who, event, json);
        let origin = Origin::Shard(self.index);
        self.charge_fanout(topic, bytes);
        self.shared.hub.announce(topic, publication, origin);
        self.turn.backlog_is_full |= self.shared.hub.is_busy(origin);
    }
}

/// Leaves of several updates about one member of a topic, with no other event about it in between, the last.
pub(crate) fn conflate_presence(batch: &mut Vec<Item>) {
    let member = |item: &Item| item.publication.member.is_some();
    if batch.iter().filter(|item| member(item)).nth(1).is_none() {
        return;
    }
    let mut updated = HashSet::new();
    let mut kept: Vec<Item> = Vec::with_capacity(batch.len());
    for item in batch.drain(..).rev() {
        let subject = |user: &Arc<str>| (item.publication.topic.clone(), Arc::clone(user));
        let is_repeated = match &item.publication.member {
            Some(member) if member.is_update => !updated.insert(subject(&member.user)),
            Some(member) => {
                updated.remove(&subject(&member.user));
                false
            }
            None => false,
        };
        if !is_repeated {
            kept.push(item);
        }
    }
    kept.reverse();
    *batch = kept;
}

/// The cost of a message besides its payload.
const MESSAGE_BYTES: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    /// An event about a user of a topic, named by its text.
    fn item(topic: &str, user: &str, event: SystemType, text: &str) -> Item {
        let json = text.as_bytes().to_vec();
        let publication = Publication::presence_event(topic.into(), user.into(), event, json);
        Item {
            publication: Arc::new(publication),
            mark: None,
        }
    }

    #[test]
    fn of_several_updates_about_a_member_the_last_is_sent() {
        use SystemType::{PresenceJoin as Join, PresenceLeave as Leave, PresenceUpdate as Update};
        let mut batch = vec![
            item("a", "ann", Join, "0"),
            item("a", "ann", Update, "1"),
            item("a", "bob", Update, "2"),
            item("b", "ann", Update, "3"),
            item("a", "ann", Update, "4"),
            item("a", "ann", Leave, "5"),
            item("a", "ann", Join, "6"),
            item("a", "ann", Update, "7"),
            item("a", "ann", Update, "8"),
        ];
        conflate_presence(&mut batch);
        let kept = batch.iter().map(|item| {
            let bytes = item.publication.json();
            String::from_utf8_lossy(bytes).into_owned()
        });
        let kept: Vec<_> = kept.collect();
        assert_eq!(kept, ["0", "2", "3", "4", "5", "6", "8"]);
    }
}
