//! Queue groups on their topics: who is in them on whatever shard, and what goes to whom.

use super::group::QueueGroup;
use super::hub::{Hub, Origin};
use super::outlet::{Delivery, Target};
use super::publication::Publication;
use crate::application::ConnectionKey;
use crate::connection::State;
use crate::core::Core;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidewire_net::Io;

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

    fn find_or_make(&mut self, name: &Arc<str>, hub: &Hub) -> &mut NamedGroup {
        let known = self.groups.iter().position(|group| group.name == *name);
        let index = known.unwrap_or_else(|| {
            let limits = &hub.limits;
            self.groups.push(NamedGroup {
                name: Arc::clone(name),
                queue: QueueGroup::new(limits.group_waiting_max, limits.group_waiting_bytes_max),
                idle_since_ms: None,
            });
            self.groups.len() - 1
        });
        &mut self.groups[index]
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
            if group.queue.push(Arc::clone(&message), bytes).is_err() {
                hub.groups.dropped.fetch_add(1, Ordering::Relaxed);
            }
            group.dispatch(hub, origin);
        }
    }

    /// Whether a group has no room for so many bytes.
    pub(crate) fn are_full(&self, hub: &Hub, bytes: usize) -> bool {
        let limits = &hub.limits;
        self.groups.iter().any(|group| {
            let counts = group.queue.counts();
            counts.waiting >= limits.group_waiting_max
                || counts.bytes + bytes > limits.group_waiting_bytes_max
        })
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
    /// Gives waiting messages to members with room.
    fn dispatch(&mut self, hub: &Hub, origin: Origin) {
        while let Some((seat, delivery)) = self.queue.next() {
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
    /// A session comes to a group.
    fn join_group(&self, seat: &SessionGroup, window: usize, origin: Origin) {
        self.with_groups(&seat.topic, |groups| {
            let group = groups.find_or_make(&seat.group, self);
            let acknowledges = seat.seat.acknowledges;
            group.queue.join(seat.seat, window, acknowledges);
            group.idle_since_ms = None;
            group.dispatch(self, origin);
        });
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
    ) -> Result<(), &'static str> {
        let subscriptions_max = self.shared.hub.limits.subscriptions_per_connection_max;
        let key = state.key;
        let topics = state.topics.get_or_insert_default();
        let mut members = topics.groups.values();
        if members.any(|seat| seat.topic == *topic && &*seat.group == group) {
            return Ok(());
        }
        let tag = topics.next_group;
        if tag >= TAGS_MAX || topics.subscriptions() >= subscriptions_max {
            return Err("this connection has as many topics as it may have");
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
        self.shared.hub.join_group(&seat, window, origin);
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
        topics.groups.retain(|_, seat| {
            if is_meant(seat) {
                self.shared.hub.leave_group(seat, origin, now_ms);
            }
            !is_meant(seat)
        });
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
