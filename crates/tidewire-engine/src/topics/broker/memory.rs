//! The broker of a server that is alone: everything in the memory of this process.

use super::{Broker, BrokerAnswer, BrokerUsage, Missed, Moment, Order, PageQuery, PresenceView};
use super::{Prepare, Refusal, Sink, Tickets};
use crate::model::{ConnectionKey, Position};
use crate::topics::config::TopicRule;
use crate::topics::history::{HistoryLimits, HistoryStore, KeptTopic, Page, Recovery};
use crate::topics::presence::{Presence, PresenceChange};
use crate::topics::publication::{Publication, Published};
use crate::topics::remembered::{IdKeys, Remembered};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The broker of a server that is alone. It answers at once, always.
#[derive(Debug)]
pub(crate) struct MemoryBroker {
    histories: Mutex<HistoryStore<Arc<Publication>>>,
    presence: Mutex<HashMap<Arc<str>, Presence<ConnectionKey>>>,
    id_keys: IdKeys,
    remembered: Mutex<Remembered<Option<Position>>>,
}

/// The limits of a [`MemoryBroker`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryLimits {
    pub(crate) history_bytes_max: usize,
    pub(crate) history_topics_max: usize,
    pub(crate) remembered_ids_max: usize,
}

impl MemoryBroker {
    pub(crate) fn new(limits: &MemoryLimits) -> Self {
        Self {
            histories: Mutex::new(HistoryStore::new(
                limits.history_bytes_max,
                limits.history_topics_max,
            )),
            presence: Mutex::default(),
            id_keys: IdKeys::new(),
            remembered: Mutex::new(Remembered::new(limits.remembered_ids_max)),
        }
    }

    /// Publishes, unless the same id was published to the topic before.
    #[inline]
    pub(crate) fn publish_now(&self, order: &Order<'_>, sink: &dyn Sink) -> Published {
        let Some(id) = order.draft.id else {
            return Published {
                position: self.place(order, sink),
                is_duplicate: false,
            };
        };
        // Locked while it is published: of two at once with the same id, one is the first.
        let key = self.id_keys.key(order.topic, id);
        let mut remembered = lock(&self.remembered);
        if let Some(position) = remembered.value(key) {
            return Published {
                position: *position,
                is_duplicate: true,
            };
        }
        let position = self.place(order, sink);
        remembered.insert(order.moment.owner, key, position);
        Published {
            position,
            is_duplicate: false,
        }
    }

    /// Gives a publication its place and hands it to the subscribers.
    fn place(&self, order: &Order<'_>, sink: &dyn Sink) -> Option<Position> {
        let Some(limits) = &order.rule.history else {
            sink.deliver(order.topic, Arc::new(order.make(None)));
            return None;
        };
        let Moment {
            now_ms,
            random_epoch,
            owner,
        } = order.moment;
        let mut histories = lock(&self.histories);
        let (position, publication) = histories.append(
            order.topic,
            limits,
            now_ms,
            (random_epoch, owner),
            order.kept_bytes(),
            |position| Arc::new(order.make(Some(position))),
        );
        // While the topic is locked, so that all see the order of positions.
        sink.deliver(order.topic, publication);
        Some(position)
    }

    /// [`Broker::recover`], which is always ready here.
    pub(crate) fn recover_now(
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
        let mut histories = lock(&self.histories);
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

    /// [`Broker::page`], which is always ready here.
    pub(crate) fn page_now(
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
        lock(&self.histories).page(topic, since, limit, newest_first, limits, now_ms)
    }

    /// Some topics that keep publications, from a place on, and where to go on.
    pub(crate) fn kept_now(
        &self,
        from: u32,
        now_ms: u64,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> (Vec<KeptTopic>, Option<u32>) {
        lock(&self.histories).kept_topics((from, LISTED_AT_A_TIME), now_ms, is_wanted)
    }

    /// Forgets the history of a topic. Returns whether the topic was known.
    pub(crate) fn forget_now(&self, topic: &Arc<str>) -> bool {
        lock(&self.histories).remove(topic)
    }
}

impl Broker for MemoryBroker {
    fn publish(
        &self,
        order: &Order<'_>,
        _: Tickets<'_>,
        sink: &dyn Sink,
    ) -> BrokerAnswer<Result<Published, Refusal>> {
        BrokerAnswer::Now(Ok(self.publish_now(order, sink)))
    }

    fn prepare(
        &self,
        _: &Arc<str>,
        _: &TopicRule,
        _: Prepare,
        _: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>> {
        BrokerAnswer::Now(Ok(()))
    }

    fn recover(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        moment: Moment,
        missed: Missed,
        locked: &mut dyn FnMut(),
    ) -> Option<Recovery<Arc<Publication>>> {
        Some(self.recover_now(topic, limits, moment, missed, locked))
    }

    fn page(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        now_ms: u64,
        query: PageQuery,
    ) -> Option<Page<Arc<Publication>>> {
        Some(self.page_now(topic, limits, now_ms, query))
    }

    fn forget(&self, topic: &Arc<str>, _: Tickets<'_>) -> BrokerAnswer<Result<bool, Refusal>> {
        BrokerAnswer::Now(Ok(self.forget_now(topic)))
    }

    fn add_interest(&self, _: &Arc<str>, _: &TopicRule) {}

    fn remove_interest(&self, _: &str) {}

    fn sweep(&self, now_ms: u64, limits_of: &dyn Fn(&str) -> HistoryLimits) {
        lock(&self.histories).sweep(now_ms, limits_of, SWEPT_AT_A_TIME);
    }

    fn join(
        &self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
        data: Option<Arc<str>>,
    ) -> PresenceChange {
        lock(&self.presence)
            .entry(Arc::clone(topic))
            .or_insert_with(Presence::new)
            .join(who, connection, data)
    }

    fn leave(&self, topic: &Arc<str>, who: &Arc<str>, connection: ConnectionKey) -> PresenceChange {
        let mut presence = lock(&self.presence);
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
        let presence = lock(&self.presence);
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

    fn is_busy(&self) -> bool {
        false
    }

    fn usage(&self) -> BrokerUsage {
        let histories = lock(&self.histories);
        BrokerUsage {
            history_bytes: histories.bytes(),
            history_topics: histories.topics(),
            histories_evicted: histories.counters().rings_evicted,
            presence_topics: lock(&self.presence).len(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Topics looked at in one sweep, so that a sweep lasts no longer than some turns of a loop.
const SWEPT_AT_A_TIME: usize = 1_000;

/// Topics looked at for a list under one lock, for which publishers wait: some 50 microseconds.
const LISTED_AT_A_TIME: u32 = 1_000;
