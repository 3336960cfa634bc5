//! Queue groups of topics: members on all shards, and the choice of a member per publication.

use super::config::GroupOverload;
use super::group::QueueGroup;
use super::outlet::{Delivery, Target};
use super::publication::Publication;
use crate::clock::unix_ms;
use crate::limits::lines::{LineKind, LineLimits};
use crate::live::Held;
use crate::model::{ConnectionKey, Position};
use crate::topics::config::TopicLimits;
use crate::topics::outlet::{Origin, Outlet};
use crate::topics::random::RandomNumbers;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidewire_wire::session::{GapReason, PublicationGap, write_gap_event};
use tidewire_wire::uuid::uuid_v7;

/// The groups of one topic.
#[derive(Debug, Default)]
pub(crate) struct TopicGroups {
    groups: Vec<NamedGroup>,
    /// The broker that several servers share has the work.
    pub(crate) is_shared: bool,
    /// It stands in the list of those that are looked through.
    pub(crate) is_listed: bool,
}

#[derive(Debug)]
pub(crate) struct NamedGroup {
    name: Arc<str>,
    pub(crate) queue: QueueGroup<Seat, Unit>,
    /// Since when it has no member, in milliseconds since 1970.
    pub(crate) idle_since_ms: Option<u64>,
    /// Publications dropped since a member was last notified of drops.
    untold_drops: u64,
    /// An unknown number of publications was lost since then.
    has_untold_loss: bool,
    /// Ended shared work, not yet reported to the broker.
    pub(crate) ended: EndedWork,
}

/// A publication that one member gets.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    publication: Arc<Publication>,
    /// Names it among the work that several servers share.
    shared: Option<Position>,
}

/// A publication of the shared work that this server has received for its members.
#[derive(Debug)]
pub(crate) struct SharedWork {
    pub(crate) id: Position,
    /// A member may have had it before.
    pub(crate) is_again: bool,
    pub(crate) publication: Arc<Publication>,
}

/// Shared work that is no more this server's.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedWork {
    pub(crate) done: Vec<Position>,
    /// No member here has room for it.
    pub(crate) handed_back: Vec<Position>,
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
    pub(crate) topic: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) seat: Seat,
}

/// The counts of the messages of all groups.
#[derive(Debug, Default)]
pub(crate) struct GroupCounters {
    /// Publications that a group had no room for, or that waited too long in a group without members.
    pub(crate) dropped: AtomicU64,
    pub(crate) redelivered: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
}

/// The parts of the server that queue groups use.
pub(crate) struct GroupServer<'a> {
    pub(crate) limits: Held<TopicLimits>,
    pub(crate) counters: &'a GroupCounters,
    /// One outlet for each shard.
    pub(crate) outlets: &'a [Outlet],
    pub(crate) random: &'a RandomNumbers,
    pub(crate) lines: &'a LineLimits,
}

impl GroupServer<'_> {
    /// The message that notifies a member of lost publications.
    fn gap_event(&self, gap: &PublicationGap) -> Publication {
        let random = [(); 3].map(|()| self.random.next().to_le_bytes());
        let mut bytes = [0; 10];
        bytes.copy_from_slice(&random.as_flattened()[..10]);
        let unix_ms = unix_ms();
        let mut json = Vec::new();
        write_gap_event(gap, uuid_v7(unix_ms, bytes), unix_ms, &mut json);
        Publication::event(None, json)
    }
}

impl SessionGroup {
    /// The approximate size of a member, and of its group if it is the first member, in bytes.
    pub(crate) fn bytes(&self) -> usize {
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

    pub(crate) fn find(&mut self, name: &str) -> Option<&mut NamedGroup> {
        self.groups.iter_mut().find(|group| &*group.name == name)
    }

    /// The group of this name, which is made if there is none; `None` if the topic has the number
    /// it may.
    pub(crate) fn find_or_make(
        &mut self,
        name: &Arc<str>,
        server: &GroupServer<'_>,
    ) -> Option<&mut NamedGroup> {
        let known = self.groups.iter().position(|group| group.name == *name);
        let limits = &server.limits;
        if known.is_none() && self.groups.len() >= limits.groups_per_topic_max {
            return None;
        }
        let index = known.unwrap_or_else(|| {
            self.groups.push(NamedGroup {
                name: Arc::clone(name),
                queue: QueueGroup::new(limits.group_waiting_max, limits.group_waiting_bytes_max),
                idle_since_ms: None,
                untold_drops: 0,
                has_untold_loss: false,
                ended: EndedWork::default(),
            });
            self.groups.len() - 1
        });
        Some(&mut self.groups[index])
    }

    /// Lets every group have a publication of the topic.
    pub(crate) fn push(
        &mut self,
        server: &GroupServer<'_>,
        publication: &Arc<Publication>,
        origin: Origin,
    ) {
        let message = Unit::new(publication, None);
        for group in &mut self.groups {
            let bytes = message.publication.cost();
            let mut dropped = match server.limits.group_overload {
                GroupOverload::DropOldest => group.queue.make_room(bytes),
                GroupOverload::DropNewest => 0,
            };
            dropped += u64::from(group.queue.push(message.clone(), bytes).is_err());
            group.note_drops(server, dropped);
            group.deliver_waiting(server, origin);
        }
    }

    /// Removes groups without members: at once if nothing waits, else after [`IDLE_MS_MAX`].
    pub(crate) fn sweep(&mut self, server: &GroupServer<'_>, now_ms: u64) {
        self.groups.retain(|group| {
            let Some(since_ms) = group.idle_since_ms else {
                return true;
            };
            let waiting = group.queue.counts().waiting as u64;
            let stays = waiting > 0 && now_ms < since_ms.saturating_add(IDLE_MS_MAX);
            if !stays && waiting > 0 {
                if server.lines.permit(LineKind::GroupAbandoned, None, now_ms) {
                    tracing::warn!(group = %group.name, waiting, "nobody came back to a queue group");
                }
                server
                    .counters
                    .dropped
                    .fetch_add(waiting, Ordering::Relaxed);
            }
            stays
        });
    }
}

impl Unit {
    /// One that is not for its publisher's other subscriptions, or not for connections that lag, is for the members of a
    /// group all the same: one of them has to get it. And work does not expire.
    fn new(publication: &Arc<Publication>, shared: Option<Position>) -> Self {
        let is_for_anyone = publication.is_for_all() && !publication.can_expire();
        let publication = if is_for_anyone {
            Arc::clone(publication)
        } else {
            Arc::new(publication.for_anyone())
        };
        Self {
            publication,
            shared,
        }
    }
}

impl NamedGroup {
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Adds shared work that this server has received, behind `lost` others that nobody gets;
    /// `None` if their number is unknown.
    pub(crate) fn take_shared(
        &mut self,
        server: &GroupServer<'_>,
        works: Vec<SharedWork>,
        lost: Option<u64>,
    ) {
        self.has_untold_loss |= lost.is_none();
        self.note_drops(server, lost.unwrap_or(0));
        for work in works {
            let unit = Unit::new(&work.publication, Some(work.id));
            let bytes = unit.publication.cost();
            self.queue.push_taken(unit, bytes, work.is_again);
        }
    }

    /// Hands shared work back that no member has room for.
    pub(crate) fn hand_back_waiting(&mut self) {
        if self.queue.counts().waiting > 0 {
            let waiting = self.queue.take_waiting();
            let ids = waiting.into_iter().filter_map(|unit| unit.shared);
            self.ended.handed_back.extend(ids);
        }
    }

    /// A member has done its work on some deliveries; how many were its own.
    pub(crate) fn acknowledge(&mut self, seat: Seat, ids: impl IntoIterator<Item = u64>) -> usize {
        let done = &mut self.ended.done;
        let end = |unit: Unit| done.extend(unit.shared);
        self.queue.acknowledge_each(seat, ids, end)
    }

    /// Counts publications that the group had no room for. The first of them is logged, and a
    /// member is notified later.
    fn note_drops(&mut self, server: &GroupServer<'_>, dropped: u64) {
        if dropped == 0 {
            return;
        }
        let is_first = self.untold_drops == 0;
        if is_first && server.lines.permit(LineKind::GroupFull, None, unix_ms()) {
            let counts = self.queue.counts();
            tracing::warn!(
                group = %self.name,
                waiting = counts.waiting,
                unacknowledged = counts.unacknowledged,
                "a queue group is full: its members do not keep up, and publications are dropped",
            );
        }
        self.untold_drops = self.untold_drops.saturating_add(dropped);
        server
            .counters
            .dropped
            .fetch_add(dropped, Ordering::Relaxed);
    }

    /// Notifies the member that is served next of how many publications the group has lost.
    fn tell_drops(
        &mut self,
        server: &GroupServer<'_>,
        topic: &Arc<str>,
        seat: Seat,
        origin: Origin,
    ) {
        let gap = PublicationGap {
            topic: topic.to_string(),
            reason: match self.has_untold_loss {
                true => GapReason::Broker,
                false => GapReason::Dropped,
            },
            count: match std::mem::take(&mut self.has_untold_loss) {
                true => 0,
                false => self.untold_drops,
            },
            range: None,
        };
        self.untold_drops = 0;
        let publication = Arc::new(server.gap_event(&gap));
        let shard = seat.key.shard() as usize;
        let delivery = Delivery {
            seq: 0,
            target: Target::Connection(seat.key.id),
            publication,
        };
        server.outlets[shard].push(delivery, origin.is(shard));
    }

    /// Gives waiting messages to members with room.
    pub(crate) fn deliver_waiting(&mut self, server: &GroupServer<'_>, origin: Origin) {
        while let Some((seat, delivery)) = self.queue.next() {
            if (self.untold_drops > 0 || self.has_untold_loss)
                && let Some(topic) = delivery.message.publication.topic.clone()
            {
                self.tell_drops(server, &topic, seat, origin);
            }
            let id = seat.key.id;
            let mut target = Target::Connection(id);
            let publication = if seat.acknowledges {
                target = Target::Member(id, seat.tag);
                let number = u64::from(seat.tag) << TAG_SHIFT | delivery.id;
                let again = u64::from(delivery.redelivered);
                server
                    .counters
                    .redelivered
                    .fetch_add(again, Ordering::Relaxed);
                let unit = &delivery.message;
                Arc::new(unit.publication.numbered(number, delivery.redelivered))
            } else {
                self.ended.done.extend(delivery.message.shared);
                delivery.message.publication
            };
            let shard = seat.key.shard() as usize;
            let delivery = Delivery {
                seq: 0,
                target,
                publication,
            };
            server.outlets[shard].push(delivery, origin.is(shard));
        }
    }
}

/// A delivery's number on its connection: which of the connection's groups, counted from the first
/// that it ever was in, and the message in it. All of it is a whole number in JavaScript too.
pub(crate) const TAG_SHIFT: u32 = 40;
pub(crate) const TAGS_MAX: u32 = 1 << 13;

/// The largest number of unacknowledged deliveries of a member: the default, and the limit of its own choice.
pub(crate) const WINDOW: usize = 100;
pub(crate) const WINDOW_MAX: usize = 10_000;

/// How long the waiting messages of a group without members are kept, in milliseconds.
const IDLE_MS_MAX: u64 = 60_000;

/// The size of a queue group and of a member besides their names, in bytes.
const GROUP_BYTES: usize = 1_000;
