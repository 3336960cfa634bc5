//! Topics of one shard: which of its connections subscribe to which topic.

use super::filter::Filter;
use super::form::Form;
use super::held_filters::Filters;
pub(crate) use super::item::{Item, Slot};
use super::outlet::Delivery;
use super::place_hasher::PlaceHasher;
use super::round::Round;
use super::skipped::Skipped;
use super::trie::PatternTrie;
use crate::topics::member::member_key;
use slab::Slab;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use tidewire_net::ConnectionId;

/// The subscriptions of one shard. Everything is found in constant time, however many topics,
/// subscribers of a topic, or topics of a connection there are.
#[derive(Debug, Default)]
pub(crate) struct LocalTopics {
    by_name: HashMap<Arc<str>, Slot>,
    topics: Slab<LocalTopic>,
    patterns: PatternTrie<Slot>,
    /// Where a connection stands in a topic.
    places: HashMap<PlaceKey, Place, BuildHasherDefault<PlaceHasher>>,
    filters: Filters,
    /// Received from the shard's outlet and not delivered yet.
    pub(crate) queue: VecDeque<Delivery>,
    /// Topics with something in their batch.
    pub(crate) touched: Vec<Slot>,
    pub(crate) round: Round,
    /// The deliveries that the turn had no time for, in order.
    pub(crate) pending: VecDeque<Pending>,
    /// The subscribers that have left a topic since something is pending.
    pub(crate) left: HashSet<PlaceKey>,
    /// What subscribers with filters have missed.
    pub(crate) skipped: Skipped,
    /// The last turn had more to deliver than it had time for.
    pub(crate) is_behind: bool,
    /// Of publications that were received from the outlet and have not reached everyone.
    pub(crate) unsettled_bytes: usize,
    /// Connections that have drained and have more waiting, for which the turn had no time.
    pub(crate) drained: Vec<ConnectionId>,
    /// The work of this turn for such connections.
    pub(crate) drained_work: u64,
    /// The patterns that match a topic, as long as the patterns stay the same.
    found: HashMap<Arc<str>, Box<[Slot]>>,
    /// Of all of them, at most.
    found_slots: usize,
}

/// One topic or pattern.
#[derive(Debug)]
pub(crate) struct LocalTopic {
    pub(crate) name: Arc<str>,
    pub(crate) is_pattern: bool,
    /// The number of the last delivery that was gathered; those up to it are not gathered again.
    seen: u64,
    subscribers: u32,
    /// Those of them that have a filter.
    filtered: u32,
    pub(crate) groups: Groups,
    /// Subscribers that joined while deliveries that are not for them were on their way.
    #[expect(
        clippy::box_collection,
        reason = "eight bytes instead of 24 for the many topics that nobody joins now"
    )]
    joining: Option<Box<Vec<Joiner>>>,
    /// The next items for the subscribers.
    pub(crate) batch: Vec<Item>,
    /// Publications since the topic has subscribers here.
    pub(crate) publications: u64,
}

/// Members of a group who are still to get a batch.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) slot: Slot,
    pub(crate) form: Form,
    /// The members that the items have yet to pass.
    pub(crate) filter: Option<Arc<Filter>>,
    pub(crate) items: Vec<Item>,
    pub(crate) members: Vec<ConnectionId>,
}

/// The subscribers of a topic, by what they get. Most topics have few, so that the first has its
/// place here.
#[derive(Debug)]
pub(crate) enum Groups {
    Empty,
    One(GroupKey, ConnectionId),
    Many(Box<Slab<Group>>),
}

/// Subscribers that get the same bytes.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) key: GroupKey,
    pub(crate) members: Vec<ConnectionId>,
}

/// The form of publications that the members of a group share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupKey {
    pub(crate) form: Form,
    /// The filter's number, or 0 for none.
    pub(crate) filter: u32,
}

#[derive(Debug, Clone, Copy)]
struct Joiner {
    id: ConnectionId,
    key: GroupKey,
    /// Deliveries up to this number are not for it.
    after: u64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// The group, or [`JOINING`].
    group: u32,
    /// The index in it.
    member: u32,
    /// The index in the connection's list of slots.
    back: u32,
}

/// A connection's index and a slot.
pub(crate) type PlaceKey = u64;

const JOINING: u32 = u32::MAX;

impl LocalTopics {
    /// The slot of a topic or pattern, which is made if nobody has subscribed to it; whether it
    /// was.
    pub(crate) fn enter(&mut self, name: &Arc<str>, is_pattern: bool) -> (Slot, bool) {
        if let Some(slot) = self.by_name.get(name) {
            return (*slot, false);
        }
        // More than 2^32 topics would not fit into memory.
        let slot = self.topics.vacant_key() as Slot;
        self.topics.insert(LocalTopic {
            name: Arc::clone(name),
            is_pattern,
            seen: 0,
            subscribers: 0,
            filtered: 0,
            groups: Groups::Empty,
            joining: None,
            batch: Vec::new(),
            publications: 0,
        });
        self.by_name.insert(Arc::clone(name), slot);
        if is_pattern {
            *self.patterns.insert(name) = slot;
            self.found.clear();
        }
        (slot, true)
    }

    /// Undoes [`enter`](Self::enter) of a new topic that nobody joined.
    pub(crate) fn forget(&mut self, slot: Slot) {
        let Some(topic) = self.topics.try_remove(slot as usize) else {
            return;
        };
        self.by_name.remove(&topic.name);
        if topic.is_pattern {
            self.patterns.remove(&topic.name);
            self.found.clear();
        }
    }

    /// Puts a connection into a topic that it is not in; deliveries up to the number `after` are
    /// not for it. `slots` is the connection's list.
    pub(crate) fn join(
        &mut self,
        slot: Slot,
        id: ConnectionId,
        key: GroupKey,
        after: u64,
        slots: &mut Vec<Slot>,
    ) {
        let topic = &mut self.topics[slot as usize];
        if topic.subscribers == 0 {
            topic.seen = after;
        }
        topic.subscribers += 1;
        topic.filtered += u32::from(key.filter != 0);
        let (group, member) = if after > topic.seen {
            let joining = topic.joining.get_or_insert_default();
            joining.push(Joiner { id, key, after });
            (JOINING, joining.len() as u32 - 1)
        } else {
            topic.groups.push(key, id)
        };
        let back = slots.len() as u32;
        slots.push(slot);
        let place = Place {
            group,
            member,
            back,
        };
        self.places.insert(place_key(id, slot), place);
    }

    /// Removes a connection from a topic. Returns the topic's name if the connection was the last one.
    pub(crate) fn leave(
        &mut self,
        slot: Slot,
        id: ConnectionId,
        slots: &mut Vec<Slot>,
    ) -> Option<Arc<str>> {
        let place = self.places.remove(&place_key(id, slot))?;
        slots.swap_remove(place.back as usize);
        if let Some(moved) = slots.get(place.back as usize)
            && let Some(place_of_moved) = self.places.get_mut(&place_key(id, *moved))
        {
            place_of_moved.back = place.back;
        }
        let topic = &mut self.topics[slot as usize];
        topic.subscribers -= 1;
        let (moved, filter) = topic.take(place);
        topic.filtered -= u32::from(filter != 0);
        if let Some(moved) = moved
            && let Some(place_of_moved) = self.places.get_mut(&place_key(moved, slot))
        {
            place_of_moved.member = place.member;
        }
        if !self.pending.is_empty() {
            self.left.insert(place_key(id, slot));
        }
        self.filters.release(filter);
        if topic.subscribers > 0 {
            return None;
        }
        let name = Arc::clone(&topic.name);
        self.forget(slot);
        Some(name)
    }

    /// The slot of a topic or pattern, if it has subscribers here.
    pub(crate) fn slot(&self, name: &str) -> Option<Slot> {
        self.by_name.get(name).copied()
    }

    /// The filter of a connection's subscription, if it has one.
    pub(crate) fn filter_of(&self, slot: Slot, id: ConnectionId) -> Option<Arc<Filter>> {
        let place = self.places.get(&place_key(id, slot))?;
        let key = self.topics.get(slot as usize)?.key_of(*place)?;
        self.filter(key.filter).cloned()
    }

    /// Whether a connection has left a topic since something of it is pending.
    pub(crate) fn has_left(&self, slot: Slot, id: ConnectionId) -> bool {
        !self.left.is_empty() && self.left.contains(&place_key(id, slot))
    }

    /// A number in the round for a publication that matches several topics and patterns.
    pub(crate) fn mark(&mut self, slots: &[Slot]) -> u32 {
        // Who has several filters gets one publication by this and the next by that: not out of
        // order.
        let has_filters = |slot: &Slot| self.topics[*slot as usize].filtered > 0;
        self.round.mark(slots.iter().any(has_filters))
    }

    /// Changes how a connection gets its messages in all its topics, but for those that it gets by
    /// itself anyway.
    pub(crate) fn deliver_individually(&mut self, id: ConnectionId, slots: &[Slot]) {
        for slot in slots {
            let Some(place) = self.places.get(&place_key(id, *slot)).copied() else {
                continue;
            };
            let topic = &mut self.topics[*slot as usize];
            let Some(key) = topic.key_of(place) else {
                continue;
            };
            if !matches!(key.form, Form::Shared { .. }) {
                continue;
            }
            let key = GroupKey {
                form: Form::Individual,
                ..key
            };
            let new_place = if place.group == JOINING {
                if let Some(joining) = &mut topic.joining {
                    joining[place.member as usize].key = key;
                }
                place
            } else {
                let (moved, _) = topic.groups.take(place.group, place.member);
                if let Some(moved) = moved
                    && let Some(place_of_moved) = self.places.get_mut(&place_key(moved, *slot))
                {
                    place_of_moved.member = place.member;
                }
                let (group, member) = topic.groups.push(key, id);
                Place {
                    group,
                    member,
                    ..place
                }
            };
            self.places.insert(place_key(id, *slot), new_place);
        }
    }

    pub(crate) fn is_member(&self, slot: Slot, id: ConnectionId) -> bool {
        self.places.contains_key(&place_key(id, slot))
    }

    pub(crate) fn topic(&self, slot: Slot) -> Option<&LocalTopic> {
        self.topics.get(slot as usize)
    }

    pub(crate) fn topic_mut(&mut self, slot: Slot) -> Option<&mut LocalTopic> {
        self.topics.get_mut(slot as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.topics.len()
    }

    /// All slots are below this.
    pub(crate) fn slots_end(&self) -> usize {
        self.topics.capacity()
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.places.len()
    }

    /// The number that stands for a filter in a [`GroupKey`]. It is given back by leaving the
    /// topic.
    pub(crate) fn hold_filter(&mut self, filter: &Arc<Filter>) -> u32 {
        self.filters.hold(filter)
    }

    pub(crate) fn filter(&self, number: u32) -> Option<&Arc<Filter>> {
        self.filters.by_number(number)
    }

    /// The topics, if wanted `by_name`, and the patterns that a publication goes to, appended to
    /// `slots`.
    pub(crate) fn find(&mut self, topic: &Arc<str>, by_name: bool, slots: &mut Vec<Slot>) {
        slots.extend(self.by_name.get(topic).filter(|_| by_name));
        slots.extend(self.found(topic));
    }

    /// The patterns that match a topic.
    fn found(&mut self, topic: &Arc<str>) -> &[Slot] {
        if self.patterns.is_empty() {
            return &[];
        }
        if !self.found.contains_key(topic) {
            let mut slots = Vec::new();
            self.patterns
                .for_each_match(topic, |slot| slots.push(*slot));
            slots.sort_unstable();
            self.found_slots += slots.len();
            if self.found.len() >= FOUND_MAX || self.found_slots > FOUND_SLOTS_MAX {
                self.found.clear();
                self.found_slots = slots.len();
            }
            self.found.insert(Arc::clone(topic), slots.into());
        }
        self.found.get(topic).map_or(&[], |slots| slots)
    }

    /// How many subscriptions a publication goes to.
    pub(crate) fn receivers(&mut self, topic: &Arc<str>) -> usize {
        let slots: usize = self.found(topic).len();
        let exact = self.by_name.get(topic);
        let mut receivers =
            exact.map_or(0, |slot| self.topics[*slot as usize].subscribers as usize);
        if slots > 0 {
            let slots = self.found.get(topic).map_or(&[][..], |slots| slots);
            let counts = slots
                .iter()
                .map(|slot| self.topics[*slot as usize].subscribers);
            receivers += counts.map(|count| count as usize).sum::<usize>();
        }
        receivers
    }

    /// Whether a delivery with this number is for a topic's subscribers, or older than all of them.
    pub(crate) fn is_due(&self, slot: Slot, seq: u64) -> bool {
        let topic = &self.topics[slot as usize];
        topic.is_pattern || seq > topic.seen
    }

    /// The number of the last delivery that a topic's subscribers have had.
    pub(crate) fn seen(&self, slot: Slot) -> u64 {
        self.topics.get(slot as usize).map_or(0, |topic| topic.seen)
    }

    /// Puts a publication that [`is_due`](Self::is_due) into the batch of a topic. If waiting
    /// subscribers get this delivery but not those before it, the batch stays as it is and
    /// `AdmitFirst` is returned: deliver the batch, [`admit`](Self::admit) them, and call again.
    pub(crate) fn gather(&mut self, slot: Slot, seq: u64, item: &Item) -> Gathered {
        let topic = &mut self.topics[slot as usize];
        // Patterns have the deliveries of many topics, whose numbers do not compare.
        if !topic.is_pattern {
            if topic.joining.is_some() && topic.has_joiners(seq) {
                return Gathered::AdmitFirst;
            }
            topic.seen = seq;
        }
        topic.publications += 1;
        if topic.batch.is_empty() {
            self.touched.push(slot);
        }
        topic.batch.push(item.clone());
        Gathered::Taken {
            subscribers: topic.subscribers,
        }
    }

    /// Lets subscribers in that wait for a delivery with this number.
    pub(crate) fn admit(&mut self, slot: Slot, seq: u64) {
        let topic = &mut self.topics[slot as usize];
        let Some(joining) = topic.joining.take() else {
            return;
        };
        let (ready, waiting): (Vec<_>, Vec<_>) =
            joining.into_iter().partition(|joiner| joiner.after < seq);
        for joiner in ready {
            let (group, member) = topic.groups.push(joiner.key, joiner.id);
            if let Some(place) = self.places.get_mut(&place_key(joiner.id, slot)) {
                (place.group, place.member) = (group, member);
            }
        }
        for (index, joiner) in waiting.iter().enumerate() {
            if let Some(place) = self.places.get_mut(&place_key(joiner.id, slot)) {
                place.member = index as u32;
            }
        }
        topic.joining = (!waiting.is_empty()).then(|| Box::new(waiting));
    }
}

/// The result of gathering a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gathered {
    /// It is in the batch, for N subscribers.
    Taken { subscribers: u32 },
    /// Subscribers have to be admitted first.
    AdmitFirst,
}

impl LocalTopic {
    pub(crate) fn subscribers(&self) -> u32 {
        self.subscribers
    }

    fn key_of(&self, place: Place) -> Option<GroupKey> {
        if place.group == JOINING {
            let joiner = self.joining.as_ref()?.get(place.member as usize)?;
            return Some(joiner.key);
        }
        match &self.groups {
            Groups::Empty => None,
            Groups::One(key, _) => Some(*key),
            Groups::Many(groups) => Some(groups.get(place.group as usize)?.key),
        }
    }

    fn has_joiners(&self, seq: u64) -> bool {
        self.joining
            .as_ref()
            .is_some_and(|joining| joining.iter().any(|joiner| joiner.after < seq))
    }

    /// Removes a subscriber. Returns the subscriber that moved into its place, and the removed one's filter.
    fn take(&mut self, place: Place) -> (Option<ConnectionId>, u32) {
        if place.group != JOINING {
            return self.groups.take(place.group, place.member);
        }
        let Some(joining) = &mut self.joining else {
            return (None, 0);
        };
        let joiner = joining.swap_remove(place.member as usize);
        let moved = joining.get(place.member as usize).map(|moved| moved.id);
        if joining.is_empty() {
            self.joining = None;
        }
        (moved, joiner.key.filter)
    }
}

impl Groups {
    /// Adds a member; its group and its index there.
    fn push(&mut self, key: GroupKey, id: ConnectionId) -> (u32, u32) {
        match self {
            Self::Empty => {
                *self = Self::One(key, id);
                (0, 0)
            }
            Self::One(first_key, first) => {
                // The first keeps its place: group 0, member 0.
                let first = Group {
                    key: *first_key,
                    members: vec![*first],
                };
                let mut groups: Box<Slab<Group>> = Box::new([(0, first)].into_iter().collect());
                let place = push_into(&mut groups, key, id);
                *self = Self::Many(groups);
                place
            }
            Self::Many(groups) => push_into(groups, key, id),
        }
    }

    /// Removes a member. Returns the member that moved into its place, and the removed one's filter.
    fn take(&mut self, group: u32, member: u32) -> (Option<ConnectionId>, u32) {
        match self {
            Self::Empty => (None, 0),
            Self::One(key, _) => {
                let filter = key.filter;
                *self = Self::Empty;
                (None, filter)
            }
            Self::Many(groups) => {
                let Some(found) = groups.get_mut(group as usize) else {
                    return (None, 0);
                };
                let filter = found.key.filter;
                found.members.swap_remove(member as usize);
                let moved = found.members.get(member as usize).copied();
                if found.members.is_empty() {
                    groups.remove(group as usize);
                }
                (moved, filter)
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (GroupKey, &[ConnectionId])> {
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(key, id) => (Some((*key, std::slice::from_ref(id))), None),
            Self::Many(groups) => (None, Some(groups.iter())),
        };
        let many = many.into_iter().flatten();
        one.into_iter()
            .chain(many.map(|(_, group)| (group.key, &group.members[..])))
    }
}

fn push_into(groups: &mut Slab<Group>, key: GroupKey, id: ConnectionId) -> (u32, u32) {
    let known = groups.iter().find(|(_, group)| group.key == key);
    let index = match known.map(|(index, _)| index) {
        Some(index) => index,
        None => groups.insert(Group {
            key,
            members: Vec::new(),
        }),
    };
    let members = &mut groups[index].members;
    members.push(id);
    (index as u32, members.len() as u32 - 1)
}

fn place_key(id: ConnectionId, slot: Slot) -> PlaceKey {
    u64::from(member_key(id)) << 32 | u64::from(slot)
}

/// Topics whose patterns are remembered.
const FOUND_MAX: usize = 1_024;
/// Their patterns, of which many users may have many that match every topic: 4 MiB.
const FOUND_SLOTS_MAX: usize = 1 << 20;
