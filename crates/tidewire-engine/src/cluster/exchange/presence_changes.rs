//! Presence between the link and the subscribers of this server.

use super::Exchange;
use crate::cluster::shared_presence::Told;
use crate::topics::broker::Sink;
use crate::topics::presence::PresenceChange;
use crate::topics::publication::Publication;
use std::sync::Arc;
use tidewire_redis::{Member, Now, Seen};
use tidewire_wire::envelope::{SystemType, write_presence_event};
use tidewire_wire::format::Format;

impl Exchange {
    /// Follows a topic that the link has been asked for, if its subscribers learn who is there.
    pub(super) fn follow_presence(&mut self, topic: &Arc<str>) {
        let hub = self.hub.upgrade();
        if !hub.is_some_and(|hub| hub.rules.get().shows_presence(topic)) {
            return;
        }
        if let Some(mirror) = self.broker.mirrors().topics.get_mut(topic) {
            mirror.follows_presence = true;
        }
        self.link.follow_presence(topic);
    }

    pub(super) fn unfollow_presence(&mut self, topic: &str) {
        self.link.unfollow_presence(topic);
        self.broker.presence().forget(topic);
    }

    /// Handles the broker's full list of the users on a topic.
    pub(super) fn take_roster(&mut self, topic: &Arc<str>, members: Vec<Member>, now: Now) {
        let is_followed = {
            let mut mirrors = self.broker.mirrors();
            let mirror = mirrors.topics.get_mut(topic);
            mirror.map(|mirror| mirror.has_presence = true).is_some()
        };
        if !is_followed {
            return;
        }
        let told = self.broker.presence().replace(topic, members);
        for told in told {
            self.tell_presence(topic, &told, now);
        }
        self.answer_ready(topic, now);
    }

    /// Handles a change of a user at a server.
    pub(super) fn take_member(&mut self, topic: &Arc<str>, member: Member, now: Now) {
        let told = self.broker.presence().apply(topic, member);
        if let Some(told) = told {
            self.tell_presence(topic, &told, now);
        }
    }

    /// A change on a topic that nobody here subscribes to by name, but that may match a pattern.
    pub(super) fn take_matched_member(
        &self,
        topic: &Arc<str>,
        seen: Seen,
        member: Member,
        now: Now,
    ) {
        let Some(hub) = self.hub.upgrade().filter(|hub| hub.has_match(topic)) else {
            return;
        };
        let change = match seen {
            Seen::Joined => PresenceChange::Joined,
            Seen::Left => PresenceChange::Left,
            Seen::Data => PresenceChange::Updated,
            Seen::Nothing => return,
        };
        let told = Told {
            change,
            user: member.user,
            data: member.data,
        };
        if hub.rules.get().shows_presence(topic)
            && let Some(event) = self.presence_event(topic, &told, now)
        {
            hub.deliver_matched(topic, event);
        }
    }

    fn tell_presence(&self, topic: &Arc<str>, told: &Told, now: Now) {
        if let (Some(event), Some(hub)) =
            (self.presence_event(topic, told, now), self.hub.upgrade())
        {
            hub.deliver(topic, event);
        }
    }

    fn presence_event(&self, topic: &Arc<str>, told: &Told, now: Now) -> Option<Arc<Publication>> {
        let kind = match told.change {
            PresenceChange::Joined => SystemType::PresenceJoin,
            PresenceChange::Updated => SystemType::PresenceUpdate,
            PresenceChange::Left => SystemType::PresenceLeave,
            PresenceChange::Unchanged => return None,
        };
        let id = self.event_id(now)?;
        let (data, mut json) = (told.data.as_deref(), Vec::new());
        let data = data.filter(|_| told.change != PresenceChange::Left);
        let written = write_presence_event(
            kind,
            topic,
            &told.user,
            data,
            id,
            now.unix_ms,
            Format::Json,
            &mut json,
        );
        if let Err(error) = written {
            tracing::error!(%error, "presence cannot be told");
            return None;
        }
        let (topic, user) = (Arc::clone(topic), Arc::clone(&told.user));
        Some(Arc::new(Publication::presence_event(
            topic, user, kind, json,
        )))
    }
}
