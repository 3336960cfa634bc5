//! What keeps histories and presence: in the memory of this process, or of another.
//!
//! A server asks its broker for everything that several servers would have to agree on: the place of a publication
//! in its topic, what was published before, and who is there. What the broker accepts it hands to the server's
//! [`Sink`], in the order of positions.

#[cfg(test)]
mod contract;

use super::history::{HistoryLimits, HistoryStore, Page, Recovery};
use super::presence::{MemberView, Presence, PresenceChange};
use super::publication::Publication;
use crate::limits::owner::OwnerId;
use crate::model::{ConnectionKey, Position};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Takes what a broker has accepted to the subscribers.
pub(crate) trait Sink {
    /// `publication` comes after everything of its topic that was delivered before.
    fn deliver(&self, topic: &Arc<str>, publication: Arc<Publication>);
}

/// Makes a publication when its position is known.
pub(crate) type Make<'a> = &'a mut dyn FnMut(Position) -> Arc<Publication>;

/// Keeps what several servers have to agree on. Calls come from every shard at once.
pub(crate) trait Broker: Send + Sync + std::fmt::Debug {
    /// Gives a publication of `bytes` bytes its place, keeps it and hands it to `sink`.
    fn publish(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        moment: Moment,
        bytes: usize,
        make: Make<'_>,
        sink: &dyn Sink,
    ) -> Position;

    /// What was published after a position; without it, where the topic stands. Calls `locked` at a moment when
    /// all of that, and nothing else, has been handed to the sink.
    fn recover(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        moment: Moment,
        missed: Missed,
        locked: &mut dyn FnMut(),
    ) -> Recovery<Arc<Publication>>;

    /// Some of what is kept: after `since`, or from the end if `newest_first`.
    fn page(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        now_ms: u64,
        query: PageQuery,
    ) -> Page<Arc<Publication>>;

    /// Forgets what is kept of a topic; its epoch changes. Whether there was anything.
    fn forget(&self, topic: &Arc<str>) -> bool;

    /// Lets go of what is too old, some topics at a time.
    fn sweep(&self, now_ms: u64, limits_of: &dyn Fn(&str) -> HistoryLimits);

    /// A connection of a user came to a topic, or says something else about itself.
    fn join(
        &self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
        data: Option<Arc<str>>,
    ) -> PresenceChange;

    /// A connection of a user left a topic; what the user said about itself.
    fn leave(&self, topic: &Arc<str>, who: &Arc<str>, connection: ConnectionKey) -> PresenceChange;

    /// Who is there: users, connections, and up to `limit` of them.
    fn present(&self, topic: &str, limit: usize) -> PresenceView;

    /// What it holds now.
    fn usage(&self) -> BrokerUsage;
}

/// The time, a number for an epoch that may begin, and who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Milliseconds since 1970.
    pub(crate) now_ms: u64,
    pub(crate) random_epoch: u32,
    /// Whose share of the memory a new topic takes.
    pub(crate) owner: OwnerId,
}

/// What a subscriber wants of the past.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Missed {
    pub(crate) since: Option<Position>,
    /// The newest publication, where not everything can be given.
    pub(crate) or_newest: bool,
    /// At most so many publications, the oldest of them.
    pub(crate) limit: usize,
}

/// Which part of a history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageQuery {
    pub(crate) since: Option<u64>,
    pub(crate) limit: usize,
    pub(crate) newest_first: bool,
}

/// Who is on a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PresenceView {
    pub(crate) users: usize,
    pub(crate) connections: usize,
    pub(crate) members: Vec<MemberView>,
}

/// What a broker holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BrokerUsage {
    pub(crate) history_bytes: usize,
    pub(crate) history_topics: usize,
    pub(crate) histories_evicted: u64,
    pub(crate) presence_topics: usize,
}

/// The broker of a server that is alone.
#[derive(Debug)]
pub(crate) struct MemoryBroker {
    histories: Mutex<HistoryStore<Arc<Publication>>>,
    presence: Mutex<HashMap<Arc<str>, Presence<ConnectionKey>>>,
}

impl MemoryBroker {
    pub(crate) fn new(history_bytes_max: usize, history_topics_max: usize) -> Self {
        Self {
            histories: Mutex::new(HistoryStore::new(history_bytes_max, history_topics_max)),
            presence: Mutex::default(),
        }
    }

    fn histories(&self) -> MutexGuard<'_, HistoryStore<Arc<Publication>>> {
        self.histories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn presence(&self) -> MutexGuard<'_, HashMap<Arc<str>, Presence<ConnectionKey>>> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Broker for MemoryBroker {
    fn publish(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        moment: Moment,
        bytes: usize,
        make: Make<'_>,
        sink: &dyn Sink,
    ) -> Position {
        let mut histories = self.histories();
        let Moment {
            now_ms,
            random_epoch,
            owner,
        } = moment;
        let (position, publication) =
            histories.append(topic, limits, now_ms, (random_epoch, owner), bytes, make);
        // While the topic is locked, so that all see the order of positions.
        sink.deliver(topic, publication);
        position
    }

    fn recover(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        moment: Moment,
        missed: Missed,
        locked: &mut dyn FnMut(),
    ) -> Recovery<Arc<Publication>> {
        let Moment {
            now_ms,
            random_epoch,
            owner,
        } = moment;
        let mut histories = self.histories();
        let mut recovery = histories.recover(
            topic,
            (missed.since, missed.limit),
            limits,
            now_ms,
            (random_epoch, owner),
        );
        if missed.or_newest && !recovery.complete {
            recovery.publications = Vec::from_iter(histories.newest(topic, limits, now_ms));
        }
        // Whoever publishes holds this lock until it has been delivered.
        locked();
        recovery
    }

    fn page(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        now_ms: u64,
        query: PageQuery,
    ) -> Page<Arc<Publication>> {
        let PageQuery {
            since,
            limit,
            newest_first,
        } = query;
        self.histories()
            .page(topic, since, limit, newest_first, limits, now_ms)
    }

    fn forget(&self, topic: &Arc<str>) -> bool {
        self.histories().remove(topic)
    }

    fn sweep(&self, now_ms: u64, limits_of: &dyn Fn(&str) -> HistoryLimits) {
        self.histories().sweep(now_ms, limits_of, SWEPT_AT_A_TIME);
    }

    fn join(
        &self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
        data: Option<Arc<str>>,
    ) -> PresenceChange {
        self.presence()
            .entry(Arc::clone(topic))
            .or_insert_with(Presence::new)
            .join(who, connection, data)
    }

    fn leave(&self, topic: &Arc<str>, who: &Arc<str>, connection: ConnectionKey) -> PresenceChange {
        let mut presence = self.presence();
        let Some(members) = presence.get_mut(topic) else {
            return PresenceChange::Unchanged;
        };
        let change = members.leave(who, connection);
        if members.is_empty() {
            presence.remove(topic);
        }
        change
    }

    fn present(&self, topic: &str, limit: usize) -> PresenceView {
        let presence = self.presence();
        let Some(members) = presence.get(topic) else {
            return PresenceView::default();
        };
        let (users, connections) = members.counts();
        PresenceView {
            users,
            connections,
            members: members.members(limit),
        }
    }

    fn usage(&self) -> BrokerUsage {
        let histories = self.histories();
        BrokerUsage {
            history_bytes: histories.bytes(),
            history_topics: histories.topics(),
            histories_evicted: histories.counters().rings_evicted,
            presence_topics: self.presence().len(),
        }
    }
}

/// Topics looked at in one sweep, so that it takes no longer than some turns of a loop.
const SWEPT_AT_A_TIME: usize = 1_000;
