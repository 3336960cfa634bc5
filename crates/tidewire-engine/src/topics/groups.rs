//! Queue groups on their topics: who is in them on whatever shard, and what goes to whom.

use super::config::GroupOverload;
use super::group::QueueGroup;
use super::hub::{Hub, Origin};
use super::outlet::{Delivery, Target};
use super::publication::Publication;
use crate::session::application::ConnectionKey;
use crate::state::connection::State;
use crate::state::core::Core;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidewire_net::Io;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{GapReason, PublicationGap};

/// The groups of one topic.
#[derive(Debug, Default)]
pub(crate) struct TopicGroups {
    groups: Vec<NamedGroup>,
    /// It stands in the list of those that are looked through.
    pub(crate) is_listed: bool,
}

#[derive(Debug)]
struct NamedGroup {
    name: Arc<str>,
    queue: QueueGroup<Seat, Arc<Publication>>,
    /// Since when it has no member, in milliseconds since 1970.
    idle_since_ms: Option<u64>,
    /// Publications dropped since a member was told of it.
    untold_drops: u64,
}

/// A member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seat {
    pub(crate) key: ConnectionKey,
    /// Which of its session's groups it is.
    pub(crate) tag: u32,
    /// It acknowledges what it gets.
    pub(crate) acknowledges: bool,
}

/// A group that a session is in.
#[derive(Debug, Clone)]
pub(crate) struct SessionGroup {
    topic: Arc<str>,
    group: Arc<str>,
    seat: Seat,
}

/// What happened to the messages of all groups.
#[derive(Debug, Default)]
pub(crate) struct GroupCounters {
    /// Publications that a group had no room for, or that waited for a group that nobody came back to.
    pub(crate) dropped: AtomicU64,
    pub(crate) redelivered: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
}

impl SessionGroup {
    /// About what a member takes, and its group if it is the first, in bytes.
    fn bytes(&self) -> usize {
        GROUP_BYTES + self.topic.len() + 2 * self.group.len()
    }
}

impl TopicGroups {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether a group has no member.
    pub(crate) fn has_idle(&self) -> bool {
        self.groups
            .iter()
            .any(|group| group.idle_since_ms.is_some())
    }

    fn find(&mut self, name: &str) -> Option<&mut NamedGroup> {
        self.groups.iter_mut().find(|group| &*group.name == name)
    }

    /// The group of this name, which is made if there is none; `None` if the topic has as many as it may.
    fn find_or_make(&mut self, name: &Arc<str>, hub: &Hub) -> Option<&mut NamedGroup> {
        let known = self.groups.iter().position(|group| group.name == *name);
        let limits = &hub.limits;
        if known.is_none() && self.groups.len() >= limits.groups_per_topic_max {
            return None;
        }
        let index = known.unwrap_or_else(|| {
            self.groups.push(NamedGroup {
                name: Arc::clone(name),
                queue: QueueGroup::new(limits.group_waiting_max, limits.group_waiting_bytes_max),
                idle_since_ms: None,
                untold_drops: 0,
            });
            self.groups.len() - 1
        });
        Some(&mut self.groups[index])
    }

    /// Lets every group have a publication of the topic.
    pub(crate) fn push(&mut self, hub: &Hub, publication: &Arc<Publication>, origin: Origin) {
        // One that is not for its publisher's other subscriptions is for the members of a group all the same: one
        // of them has to get it.
        let is_for_anyone = publication.exclude.is_none() && !publication.can_expire();
        let message = if is_for_anyone {
            Arc::clone(publication)
        } else {
            Arc::new(publication.for_anyone())
        };
        for group in &mut self.groups {
            let bytes = message.cost();
            let mut dropped = match hub.limits.group_overload {
                GroupOverload::DropOldest => group.queue.make_room(bytes),
                GroupOverload::DropNewest => 0,
            };
            dropped += u64::from(group.queue.push(Arc::clone(&message), bytes).is_err());
            group.note_drops(hub, dropped);
            group.dispatch(hub, origin);
        }
    }

    /// Lets go of groups without members: at once if nothing waits, else after [`IDLE_MS_MAX`].
    pub(crate) fn sweep(&mut self, hub: &Hub, now_ms: u64) {
        self.groups.retain(|group| {
            let Some(since_ms) = group.idle_since_ms else {
                return true;
            };
            let waiting = group.queue.counts().waiting as u64;
            let stays = waiting > 0 && now_ms < since_ms.saturating_add(IDLE_MS_MAX);
            if !stays && waiting > 0 {
                tracing::warn!(group = %group.name, waiting, "nobody came back to a queue group");
                hub.groups.dropped.fetch_add(waiting, Ordering::Relaxed);
            }
            stays
        });
    }
}

impl NamedGroup {
    /// Counts publications that the group had no room for. The first of them is logged, and a member is told.
    fn note_drops(&mut self, hub: &Hub, dropped: u64) {
        if dropped == 0 {
            return;
        }
        if self.untold_drops == 0 {
            let counts = self.queue.counts();
            tracing::warn!(
                group = %self.name,
                waiting = counts.waiting,
                unacknowledged = counts.unacknowledged,
                "a queue group is full: its members do not keep up, and publications are dropped",
            );
        }
        self.untold_drops += dropped;
        hub.groups.dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    /// Tells the member that is served next how many publications the group has lost.
    fn tell_drops(&mut self, hub: &Hub, topic: &Arc<str>, seat: Seat, origin: Origin) {
        let gap = PublicationGap {
            topic: topic.to_string(),
            reason: GapReason::Dropped,
            count: std::mem::take(&mut self.untold_drops),
            range: None,
        };
        let publication = Arc::new(hub.gap_event(&gap));
        let shard = seat.key.shard as usize;
        let delivery = Delivery {
            seq: 0,
            target: Target::Connection(seat.key.id),
            publication,
        };
        hub.outlets[shard].push(delivery, origin.is(shard));
    }

    /// Gives waiting messages to members with room.
    fn dispatch(&mut self, hub: &Hub, origin: Origin) {
        while let Some((seat, delivery)) = self.queue.next() {
            if self.untold_drops > 0
                && let Some(topic) = delivery.message.topic.clone()
            {
                self.tell_drops(hub, &topic, seat, origin);
            }
            let id = seat.key.id;
            let mut target = Target::Connection(id);
            let publication = if seat.acknowledges {
                target = Target::Member(id, seat.tag);
                let number = u64::from(seat.tag) << TAG_SHIFT | delivery.id;
                let again = u64::from(delivery.redelivered);
                hub.groups.redelivered.fetch_add(again, Ordering::Relaxed);
                Arc::new(delivery.message.numbered(number, delivery.redelivered))
            } else {
                delivery.message
            };
            let shard = seat.key.shard as usize;
            let delivery = Delivery {
                seq: 0,
                target,
                publication,
            };
            hub.outlets[shard].push(delivery, origin.is(shard));
        }
    }
}

impl Hub {
    /// A session joins a group; whether it could.
    fn join_group(&self, seat: &SessionGroup, window: usize, origin: Origin) -> bool {
        self.with_groups(&seat.topic, |groups| {
            let Some(group) = groups.find_or_make(&seat.group, self) else {
                return false;
            };
            let acknowledges = seat.seat.acknowledges;
            group.queue.join(seat.seat, window, acknowledges);
            group.idle_since_ms = None;
            group.dispatch(self, origin);
            true
        })
    }

    /// A session leaves a group; what it had not acknowledged goes to the others.
    fn leave_group(&self, seat: &SessionGroup, origin: Origin, now_ms: u64) {
        self.with_groups(&seat.topic, |groups| {
            if let Some(group) = groups.find(&seat.group) {
                group.queue.leave(seat.seat);
                group.dispatch(self, origin);
                if group.queue.counts().members == 0 {
                    group.idle_since_ms = Some(now_ms);
                }
            }
            groups.sweep(self, now_ms);
        });
    }

    /// A member has done its work on some deliveries.
    fn acknowledge(
        &self,
        seat: &SessionGroup,
        ids: impl IntoIterator<Item = u64>,
        origin: Origin,
    ) -> usize {
        self.with_groups(&seat.topic, |groups| {
            let Some(group) = groups.find(&seat.group) else {
                return 0;
            };
            let done = group.queue.acknowledge(seat.seat, ids);
            self.groups
                .acknowledged
                .fetch_add(done as u64, Ordering::Relaxed);
            group.dispatch(self, origin);
            done
        })
    }
}

impl Core {
    /// Puts a session into a queue group of a topic, once.
    pub(crate) fn enter_group(
        &mut self,
        state: &mut State,
        topic: &Arc<str>,
        group: &str,
        (acknowledges, window): (bool, Option<u64>),
    ) -> Result<(), (ErrorCode, &'static str)> {
        if !state.access.may_join_group(topic) {
            self.counters.subscriptions_forbidden.add(1);
            let words = "queue groups of this topic are not allowed";
            return Err((ErrorCode::TopicForbidden, words));
        }
        let refuse = |words| Err((ErrorCode::LimitExceeded, words));
        let subscriptions_max = self.shared.hub.limits.subscriptions_per_connection_max;
        let key = state.key;
        let topics = state.topics.get_or_insert_default();
        let mut members = topics.groups.values();
        if members.any(|seat| seat.topic == *topic && &*seat.group == group) {
            return Ok(());
        }
        let tag = topics.next_group;
        if tag >= TAGS_MAX || topics.subscriptions() >= subscriptions_max {
            return refuse("this connection has as many topics as it may have");
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
        let origin = Origin::Shard(self.index);
        let bytes = seat.bytes();
        if let Err(words) = self.reserve(state, bytes) {
            return refuse(words);
        }
        if !self.shared.hub.join_group(&seat, window, origin) {
            self.give_back(state, bytes);
            return refuse("the topic has as many queue groups as it may have");
        }
        let topics = state.topics.get_or_insert_default();
        topics.groups.insert(tag, seat);
        Ok(())
    }

    /// Takes a session out of the groups of a topic, or of all.
    pub(crate) fn leave_groups(&mut self, io: &Io, state: &mut State, topic: Option<&str>) {
        let Some(topics) = &mut state.topics else {
            return;
        };
        let now_ms = io.now().unix_ms;
        let origin = Origin::Shard(self.index);
        let is_meant = |seat: &SessionGroup| topic.is_none_or(|topic| topic == &*seat.topic);
        let mut bytes = 0;
        topics.groups.retain(|_, seat| {
            if is_meant(seat) {
                self.shared.hub.leave_group(seat, origin, now_ms);
                bytes += seat.bytes();
            }
            !is_meant(seat)
        });
        self.give_back(state, bytes);
    }

    /// Takes a session out of the groups that its rights no longer cover; their topics.
    pub(crate) fn leave_forbidden_groups(&mut self, io: &Io, state: &mut State) -> Vec<String> {
        let Some(topics) = &state.topics else {
            return Vec::new();
        };
        let seats = topics.groups.values();
        let forbidden = seats.map(|seat| Arc::clone(&seat.topic)).filter(|topic| {
            !(state.access.may_subscribe(topic) && state.access.may_join_group(topic))
        });
        let forbidden: BTreeSet<Arc<str>> = forbidden.collect();
        for topic in &forbidden {
            self.leave_groups(io, state, Some(topic));
        }
        forbidden.iter().map(ToString::to_string).collect()
    }

    /// `publication_ack`: a member has done its work.
    pub(crate) fn acknowledge(&mut self, state: &mut State, deliveries: &[u64]) {
        let Some(topics) = &state.topics else {
            return;
        };
        let origin = Origin::Shard(self.index);
        let tag = |number: &u64| u32::try_from(number >> TAG_SHIFT).unwrap_or(u32::MAX);
        for run in deliveries.chunk_by(|a, b| tag(a) == tag(b)) {
            if let Some(seat) = topics.groups.get(&tag(&run[0])) {
                let ids = run.iter().map(|number| number & ((1 << TAG_SHIFT) - 1));
                self.shared.hub.acknowledge(seat, ids, origin);
            }
        }
    }
}

/// A delivery's number on its connection: which of the connection's groups, counted from the first that it ever was
/// in, and the message in it. All of it is a whole number in JavaScript too.
const TAG_SHIFT: u32 = 40;
const TAGS_MAX: u32 = 1 << 13;

/// Unacknowledged deliveries that a member has at most unless it says otherwise, and if it does.
const WINDOW: usize = 100;
const WINDOW_MAX: usize = 10_000;

/// How long what waits in a group is kept while nobody is in it, in milliseconds.
const IDLE_MS_MAX: u64 = 60_000;

/// What a queue group and a member of it take besides their names, in bytes.
const GROUP_BYTES: usize = 1_000;
