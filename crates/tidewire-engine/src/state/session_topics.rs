//! State of a session's topics, and of sessions that are leaving theirs.

use crate::limits::owner::OwnerId;
use crate::model::{ConnectionKey, Position};
use crate::state::rights::{ChangedRights, RightsCheck};
use crate::topics::filter::Filter;
use crate::topics::groups::SessionGroup;
use crate::topics::lag::Lossy;
use crate::topics::local::Slot;
use crate::topics::member::member_key;
use crate::topics::name::is_pattern;
use crate::topics::round::Received;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tidewire_net::ConnectionId;
use tidewire_wire::session::Overload;

/// The topics of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionTopics {
    /// The shard's slots of those it is in, in no order.
    pub(crate) slots: Vec<Slot>,
    /// Its subscriptions whose overload policy is to conflate or to drop.
    pub(crate) lossy: HashMap<Slot, Lossy>,
    /// Those of them for which something waits, in the order in which it leaves.
    pub(crate) lagging: VecDeque<Slot>,
    /// The bytes that wait for them.
    pub(crate) lagging_bytes: usize,
    /// The charge for its subscriptions and groups, in bytes.
    pub(crate) charged_bytes: usize,
    /// The presence data of the session, by topic, in bytes.
    pub(crate) presence_bytes: HashMap<Slot, usize>,
    /// The publications that it has received of those that several of its subscriptions match.
    pub(crate) received: Received,
    /// How many of its subscriptions are patterns.
    pub(crate) patterns: usize,
    /// Its queue groups. The index is part of the numbers of deliveries.
    pub(crate) groups: BTreeMap<u32, SessionGroup>,
    /// The index of the next one, so that none is used twice.
    pub(crate) next_group: u32,
    /// Where it published last, which it may.
    pub(crate) published_to: Option<Arc<str>>,
    /// Those that the application has subscribed it to, whatever its rights are.
    pub(crate) granted: HashSet<Arc<str>>,
    /// Those that a token of the client allows.
    pub(crate) by_token: TokenTopics,
    /// Checks of its rights that are under way.
    pub(crate) checks: Vec<RightsCheck>,
}

impl SessionTopics {
    /// The check against changed rights that is under way.
    pub(crate) fn changed_rights(&mut self) -> Option<&mut ChangedRights> {
        self.checks.iter_mut().find_map(|check| match check {
            RightsCheck::Changed(changed) => Some(changed),
            RightsCheck::TokensEnded(_) => None,
        })
    }
}

/// Topics that subscription tokens allow, each with the time at which it ends, on the monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct TokenTopics {
    ends_ms: HashMap<Arc<str>, u64>,
    /// The first of these times, or an earlier one whose topic is gone; `None` if none ends.
    due_ms: Option<u64>,
}

impl TokenTopics {
    /// A topic is allowed until a time, or for good.
    pub(crate) fn insert(&mut self, topic: &Arc<str>, ends_ms: Option<u64>) {
        let ends_ms = ends_ms.unwrap_or(u64::MAX);
        self.ends_ms.insert(Arc::clone(topic), ends_ms);
        let due_ms = self.due_ms.unwrap_or(u64::MAX).min(ends_ms);
        self.due_ms = Some(due_ms).filter(|due_ms| *due_ms < u64::MAX);
    }

    pub(crate) fn remove(&mut self, topic: &str) {
        self.ends_ms.remove(topic);
    }

    pub(crate) fn contains(&self, topic: &str) -> bool {
        self.ends_ms.contains_key(topic)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends_ms.len()
    }

    /// When [`Self::take_ended`] has something to do.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Removes and returns the topics whose time is over.
    pub(crate) fn take_ended(&mut self, now_ms: u64) -> Vec<Arc<str>> {
        let ended = self.ends_ms.extract_if(|_, ends_ms| *ends_ms <= now_ms);
        let ended = ended.map(|(topic, _)| topic).collect();
        let next_ms = self.ends_ms.values().min().copied();
        self.due_ms = next_ms.filter(|next_ms| *next_ms < u64::MAX);
        ended
    }
}

impl SessionTopics {
    /// A lossy subscription has ended. Its place in `lagging` stays until its turn and is then
    /// passed over; many such places are dropped together.
    pub(crate) fn forget_lossy(&mut self, lossy: &Lossy) {
        self.lagging_bytes -= lossy.bytes();
        if self.lagging.len() > 2 * self.lossy.len() + LAGGING_SLACK {
            let (lossy, mut seen) = (&self.lossy, HashSet::new());
            self.lagging
                .retain(|slot| lossy.contains_key(slot) && seen.insert(*slot));
        }
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.slots.len() + self.groups.len()
    }
}

/// How a topic is wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) filter: Option<Arc<Filter>>,
    /// The topic's own if it is missing.
    pub(crate) overload: Option<Overload>,
    pub(crate) presence: Option<Arc<str>>,
    /// Whether missed publications are wanted, from where on.
    pub(crate) since: Option<Position>,
    /// How many of the newest publications are wanted, if not those after `since`.
    pub(crate) replay: u64,
}

/// The approximate size of a subscription on its shard and in the hub, in bytes.
pub(crate) fn subscription_bytes(name: &str, filter: Option<&Filter>) -> usize {
    let text = if is_pattern(name) {
        PATTERN_BYTES + 4 * name.len()
    } else {
        2 * name.len()
    };
    SUBSCRIPTION_BYTES + text + filter.map_or(0, Filter::bytes)
}

/// The size of a subscription besides its name.
const SUBSCRIPTION_BYTES: usize = 400;

/// The further size of a pattern, in two trees.
const PATTERN_BYTES: usize = 600;

/// Places of subscriptions that have ended in the list of those that lag, at most.
const LAGGING_SLACK: usize = 64;

/// The holder of these topics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) key: ConnectionKey,
    pub(crate) owner: OwnerId,
}

/// The sessions of a shard that have ended and are still in some of their topics. Nothing is
/// delivered to them.
#[derive(Debug, Default)]
pub(crate) struct EndedSessions {
    pub(crate) queue: VecDeque<EndedSession>,
    /// By what names them in the tables of topics.
    pub(crate) keys: HashSet<u32>,
}

#[derive(Debug)]
pub(crate) struct EndedSession {
    pub(crate) holder: Holder,
    pub(crate) who: Arc<str>,
    pub(crate) topics: Box<SessionTopics>,
}

impl EndedSessions {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn forget(&mut self, ended: &EndedSession) {
        self.keys.remove(&member_key(ended.holder.key.id));
    }

    pub(crate) fn contain(&self, id: ConnectionId) -> bool {
        self.keys.contains(&member_key(id))
    }
}

/// A session that has ended and was present on a topic.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) topic: Arc<str>,
    pub(crate) who: Arc<str>,
    pub(crate) connection: ConnectionKey,
}
