//! Queue groups of a session: entering, leaving and acknowledging.

use crate::session::Session;
use crate::session::membership::TOO_MANY_TOPICS;
use crate::topics::groups::{Seat, SessionGroup, TAG_SHIFT, TAGS_MAX, WINDOW, WINDOW_MAX};
use crate::topics::outlet::Origin;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidewire_wire::codes::ErrorCode;

impl Session<'_> {
    /// Puts a session into a queue group of a topic, once.
    pub(crate) fn enter_group(
        &mut self,
        topic: &Arc<str>,
        group: &str,
        (acknowledges, window): (bool, Option<u64>),
    ) -> Result<(), (ErrorCode, &'static str)> {
        if !self.state.client.access.may_join_group(topic) {
            self.core.counters.subscriptions_forbidden.add(1);
            let words = "queue groups of this topic are not allowed";
            return Err((ErrorCode::TopicForbidden, words));
        }
        let refuse = |words| Err((ErrorCode::LimitExceeded, words));
        let room = self.check_subscriptions();
        let key = self.state.key;
        let topics = self.state.topics.get_or_insert_default();
        let mut members = topics.groups.values();
        if members.any(|seat| seat.topic == *topic && &*seat.group == group) {
            return Ok(());
        }
        let tag = topics.next_group;
        if let Err(words) = room {
            return refuse(words);
        }
        if tag >= TAGS_MAX {
            return refuse(TOO_MANY_TOPICS);
        }
        topics.next_group += 1;
        let seat = SessionGroup {
            topic: Arc::clone(topic),
            group: group.into(),
            seat: Seat {
                key,
                tag,
                acknowledges,
            },
        };
        let window = window.map_or(WINDOW, |window| (window as usize).clamp(1, WINDOW_MAX));
        let origin = Origin::Shard(self.core.index);
        let bytes = seat.bytes();
        if let Err(words) = self.reserve(bytes) {
            return refuse(words);
        }
        if !self.core.shared.hub.join_group(&seat, window, origin) {
            self.give_back(bytes);
            return refuse("the topic has as many queue groups as it may have");
        }
        let topics = self.state.topics.get_or_insert_default();
        topics.groups.insert(tag, seat);
        Ok(())
    }

    /// Removes a session from the groups of a topic, or from all.
    pub(crate) fn leave_groups(&mut self, topic: Option<&str>) {
        let Some(topics) = &mut self.state.topics else {
            return;
        };
        let now_ms = self.io.now().steady_unix_ms;
        let origin = Origin::Shard(self.core.index);
        let is_meant = |seat: &SessionGroup| topic.is_none_or(|topic| topic == &*seat.topic);
        let mut bytes = 0;
        topics.groups.retain(|_, seat| {
            if is_meant(seat) {
                self.core.shared.hub.leave_group(seat, origin, now_ms);
                bytes += seat.bytes();
            }
            !is_meant(seat)
        });
        self.give_back(bytes);
    }

    /// Removes a session from the groups that its rights no longer cover; returns their topics.
    pub(crate) fn leave_forbidden_groups(&mut self) -> Vec<String> {
        let Some(topics) = &self.state.topics else {
            return Vec::new();
        };
        let seats = topics.groups.values();
        let forbidden = seats.map(|seat| Arc::clone(&seat.topic)).filter(|topic| {
            !(self.state.client.access.may_subscribe(topic)
                && self.state.client.access.may_join_group(topic))
        });
        let forbidden: BTreeSet<Arc<str>> = forbidden.collect();
        for topic in &forbidden {
            self.leave_groups(Some(topic));
        }
        forbidden.iter().map(ToString::to_string).collect()
    }

    /// `publication_ack`: a member has done its work.
    pub(crate) fn acknowledge(&mut self, deliveries: &[u64]) {
        let Some(topics) = &self.state.topics else {
            return;
        };
        let origin = Origin::Shard(self.core.index);
        let tag = |number: &u64| u32::try_from(number >> TAG_SHIFT).unwrap_or(u32::MAX);
        for run in deliveries.chunk_by(|a, b| tag(a) == tag(b)) {
            if let Some(seat) = topics.groups.get(&tag(&run[0])) {
                let ids = run.iter().map(|number| number & ((1 << TAG_SHIFT) - 1));
                self.core.shared.hub.acknowledge(seat, ids, origin);
            }
        }
    }
}
