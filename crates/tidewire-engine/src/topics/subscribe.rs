//! Subscriptions of a session: into topics, and out of them.

use super::attendance::who;
use super::broker::{Missed, Moment};
use super::catch_up::CatchUp;
use super::filter::Filter;
use super::form::Form;
use super::groups::SessionGroup;
use super::history::Position;
use super::lag::Lossy;
use super::leaving::Holder;
use super::local::{GroupKey, Slot};
use super::name::is_pattern;
use super::round::Received;
use super::subscription::Answer;
use crate::connection::State;
use crate::core::Core;
use crate::owner::OwnerId;
use rand::Rng;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tidewire_net::Io;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{Overload, TopicRecovery};

/// What a session has of topics.
#[derive(Debug, Default)]
pub(crate) struct SessionTopics {
    /// The shard's slots of those it is in, in no order.
    pub(crate) slots: Vec<Slot>,
    /// Its subscriptions with a policy of their own.
    pub(crate) lossy: HashMap<Slot, Lossy>,
    /// Those of them for which something waits, in the order in which it leaves.
    pub(crate) lagging: VecDeque<Slot>,
    /// What waits for them, in bytes.
    pub(crate) lagging_bytes: usize,
    /// What its subscriptions and groups are charged, in bytes.
    pub(crate) charged_bytes: usize,
    /// What it says about itself, by topic, in bytes.
    pub(crate) presence_bytes: HashMap<Slot, usize>,
    /// What it has got of the publications that come by several subscriptions.
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
}

impl SessionTopics {
    /// A lossy subscription has ended. Its place in `lagging` is passed over when its turn comes, and those of many are
    /// dropped together.
    pub(super) fn forget_lossy(&mut self, lossy: &Lossy) {
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

impl Core {
    /// Puts a session into a topic or pattern whose name is known to be one, and notes in the answer what became of
    /// it. The words of an error are for the client.
    pub(crate) fn enter_into(
        &mut self,
        io: &Io,
        state: &mut State,
        name: &Arc<str>,
        wanted: &Wanted,
        answer: &mut Answer,
    ) -> Result<(), &'static str> {
        let is_pattern = is_pattern(name);
        let (slot, is_new) = self.topics.enter(name, is_pattern);
        let is_member = self.topics.is_member(slot, state.key.id);
        let changes = !is_member || wanted.filter.is_some() || wanted.overload.is_some();
        let limits = self.check_limits(state, slot, is_member);
        let bytes = subscription_bytes(name, wanted.filter.as_deref());
        let reserved = limits.and_then(|()| match changes {
            true => self.reserve(state, bytes),
            false => Ok(()),
        });
        if let Err(words) = reserved {
            if is_new {
                self.topics.forget(slot);
            }
            answer.fail(name.to_string(), ErrorCode::LimitExceeded, words);
            return Err(words);
        }
        if is_new {
            self.add_interest(name, is_pattern);
        }
        answer.success_topics.push(name.to_string());
        if is_member {
            self.change_subscription(state, slot, name, wanted);
        } else {
            let mut seq = 0;
            if !is_pattern {
                let (recovery, catch_up);
                (recovery, catch_up, seq) = self.stand(io, state.owner, name, wanted);
                answer.recovery.extend(recovery);
                if let Some(catch_up) = catch_up {
                    // It joins when it has caught up, after the answer.
                    answer.catch_ups.push(catch_up);
                    self.give_back(state, bytes);
                    self.drop_unused(slot);
                    return Ok(());
                }
            }
            self.join(state, slot, name, wanted, (seq, None));
        }
        if !is_pattern && self.shared.hub.rules.of(name).presence {
            answer.entered.push(Arc::clone(name));
        }
        Ok(())
    }

    /// Gives a subscription another filter or policy, if that is asked for; otherwise it stays as it is.
    fn change_subscription(
        &mut self,
        state: &mut State,
        slot: Slot,
        name: &Arc<str>,
        wanted: &Wanted,
    ) {
        if wanted.filter.is_none() && wanted.overload.is_none() {
            return;
        }
        // What is on its way to it still is; and the last one takes the slot with it.
        let seq = self.topics.seen(slot);
        let waiting = take_waiting(state, slot);
        let holder = Holder::of(state);
        if let Some(topics) = &mut state.topics {
            self.move_out(holder, topics, slot);
        }
        let (slot, _) = self.topics.enter(name, is_pattern(name));
        self.join(state, slot, name, wanted, (seq, waiting));
    }

    /// Charges a session for memory. The words of an error are for the client.
    pub(crate) fn reserve(&mut self, state: &mut State, bytes: usize) -> Result<(), &'static str> {
        let topics = state.topics.get_or_insert_default();
        let limits = &self.shared.hub.limits;
        if topics.charged_bytes + bytes > limits.subscription_bytes_per_connection_max {
            return Err("the subscriptions of this connection take as much memory as they may");
        }
        self.shared.accounts.charge(state.owner, bytes)?;
        topics.charged_bytes += bytes;
        Ok(())
    }

    /// [`Self::release`] for a session that goes on.
    pub(crate) fn give_back(&mut self, state: &mut State, bytes: usize) {
        if let Some(topics) = &mut state.topics {
            self.release(state.owner, topics, bytes);
        }
    }

    /// Takes back what a session was charged.
    pub(super) fn release(&mut self, owner: OwnerId, topics: &mut SessionTopics, bytes: usize) {
        topics.charged_bytes -= bytes;
        self.shared.accounts.release(owner, bytes);
    }

    /// Forgets a topic that nobody here subscribes to.
    pub(crate) fn drop_unused(&mut self, slot: Slot) {
        let Some(topic) = self.topics.topic(slot) else {
            return;
        };
        if topic.subscribers() > 0 {
            return;
        }
        let (name, is_pattern) = (Arc::clone(&topic.name), topic.is_pattern);
        self.topics.forget(slot);
        self.drop_interest(&name, is_pattern);
    }

    pub(super) fn drop_interest(&mut self, name: &str, is_pattern: bool) {
        let hub = &self.shared.hub;
        if is_pattern {
            hub.remove_pattern(name, self.index);
        } else {
            hub.remove_interest(name, self.index);
        }
    }

    pub(crate) fn check_limits(
        &self,
        state: &State,
        slot: Slot,
        is_member: bool,
    ) -> Result<(), &'static str> {
        if is_member {
            return Ok(());
        }
        let limits = &self.shared.hub.limits;
        let subscriptions = state
            .topics
            .as_ref()
            .map_or(0, |topics| topics.subscriptions());
        if subscriptions >= limits.subscriptions_per_connection_max {
            return Err("this connection has as many topics as it may have");
        }
        let topic = self.topics.topic(slot);
        let patterns = state.topics.as_ref().map_or(0, |topics| topics.patterns);
        if topic.is_some_and(|topic| topic.is_pattern)
            && patterns >= limits.patterns_per_connection_max
        {
            return Err("this connection has as many patterns as it may have");
        }
        let subscribers = topic.map_or(0, |topic| topic.subscribers());
        if subscribers as usize >= limits.subscribers_per_topic_max {
            return Err("the topic has as many subscribers as it may have");
        }
        Ok(())
    }

    pub(crate) fn add_interest(&mut self, name: &Arc<str>, is_pattern: bool) {
        let hub = &self.shared.hub;
        if is_pattern {
            hub.add_pattern(name, self.index);
        } else {
            hub.add_interest(name, self.index);
        }
        self.counters.topics.set(self.topics.len() as u64);
    }

    /// Where a topic stands, what has to be sent before a new subscriber joins it, and the number of the last delivery
    /// that this includes.
    fn stand(
        &mut self,
        io: &Io,
        owner: OwnerId,
        name: &Arc<str>,
        wanted: &Wanted,
    ) -> (Option<TopicRecovery>, Option<CatchUp>, u64) {
        let moment = self.moment(io, owner);
        let hub = &self.shared.hub;
        let missed = Missed {
            since: wanted.since,
            or_newest: hub.rules.of(name).last_value && wanted.replay == 0,
            limit: 0,
        };
        let Some((recovery, seq)) = hub.recover(name, missed, moment) else {
            return (None, None, hub.seq(name));
        };
        let position = recovery.position;
        let newest = recovery.publications.into_iter().next();
        let mut count = u64::from(newest.is_some());
        let mut at = position;
        match missed.since {
            None => {}
            Some(since) if recovery.complete => {
                self.counters.recoveries_complete.add(1);
                count = position.offset - since.offset;
                at = since;
            }
            Some(_) => self.counters.recoveries_incomplete.add(1),
        }
        if !recovery.complete && wanted.replay > 0 {
            count = wanted.replay.min(recovery.kept);
            at.offset = position.offset - count;
        }
        let told = TopicRecovery {
            topic: name.to_string(),
            epoch: position.epoch_hex(),
            offset: position.offset,
            recovered: recovery.complete,
            count,
        };
        let catch_up = (count > 0).then(|| CatchUp::new(name, wanted, at, newest));
        (Some(told), catch_up, seq)
    }

    /// Puts a session that is not in a topic into it. Deliveries up to a number are not for it; what waited for its
    /// subscription before still waits.
    pub(crate) fn join(
        &mut self,
        state: &mut State,
        slot: Slot,
        name: &Arc<str>,
        wanted: &Wanted,
        (after, waiting): (u64, Option<Lossy>),
    ) {
        let filter = match &wanted.filter {
            Some(filter) => self.topics.hold_filter(filter),
            None => 0,
        };
        let topics = state.topics.get_or_insert_default();
        let rule = self.shared.hub.rules.of(name);
        let mut overload = wanted.overload.unwrap_or(rule.overload);
        if waiting.is_some() && overload == Overload::Disconnect {
            // What waits already cannot be sent before the connection keeps up.
            overload = Overload::DropOldest;
        }
        let mut lossy = Lossy::new(Arc::clone(name), overload);
        if let (Some(lossy), Some(waiting)) = (&mut lossy, waiting) {
            topics.lagging_bytes += waiting.bytes();
            lossy.adopt(waiting);
            topics.lagging.push_back(slot);
        }
        let form = match (&lossy, &state.layers, state.session.format()) {
            (Some(_), _, _) => Form::Lossy,
            (None, Some(_), _) => Form::Individual,
            (None, None, format) => Form::Shared {
                format,
                batches: state.session.client_takes_batches(),
            },
        };
        topics
            .lossy
            .extend(lossy.into_iter().map(|lossy| (slot, lossy)));
        topics.patterns += usize::from(is_pattern(name));
        let key = GroupKey { form, filter };
        self.topics
            .join(slot, state.key.id, key, after, &mut topics.slots);
        self.counters
            .subscriptions
            .set(self.topics.subscriptions() as u64);
    }

    /// Takes a session out of a topic that others may still want; `None` if they do.
    pub(super) fn move_out(
        &mut self,
        holder: Holder,
        topics: &mut SessionTopics,
        slot: Slot,
    ) -> Option<Arc<str>> {
        let id = holder.key.id;
        let topic = self.topics.topic(slot)?;
        let (name, is_pattern) = (Arc::clone(&topic.name), topic.is_pattern);
        if !self.topics.is_member(slot, id) {
            return None;
        }
        let bytes = subscription_bytes(&name, self.topics.filter_of(slot, id).as_deref());
        if let Some(lossy) = topics.lossy.remove(&slot) {
            topics.forget_lossy(&lossy);
        }
        topics.patterns -= usize::from(is_pattern);
        let is_last = self.topics.leave(slot, id, &mut topics.slots);
        self.release(holder.owner, topics, bytes);
        is_last
    }

    /// Takes a session out of a topic, if it is in it.
    pub(crate) fn leave(&mut self, io: &Io, state: &mut State, name: &str) -> bool {
        if state.jobs.cancel(name) {
            return true;
        }
        let Some(slot) = self.topics.slot(name) else {
            return false;
        };
        if !self.topics.is_member(slot, state.key.id) {
            return false;
        }
        let holder = Holder::of(state);
        let Some(topics) = &mut state.topics else {
            return false;
        };
        if let Some(name) = self.leave_slot(holder, topics, slot) {
            self.leave_presence(io, &name, &who(state), state.key);
        }
        true
    }

    /// The time, and chance for an epoch, for what is done for an owner.
    pub(crate) fn moment(&mut self, io: &Io, owner: OwnerId) -> Moment {
        Moment {
            now_ms: io.now().unix_ms,
            random_epoch: self.rng.random(),
            owner,
        }
    }
}

/// What waits for a subscription that lags, if anything.
fn take_waiting(state: &mut State, slot: Slot) -> Option<Lossy> {
    let topics = state.topics.as_mut()?;
    let lossy = topics.lossy.remove(&slot)?;
    topics.forget_lossy(&lossy);
    Some(lossy).filter(|lossy| !lossy.is_empty())
}

/// About what a subscription takes on its shard and in the hub, in bytes.
pub(crate) fn subscription_bytes(name: &str, filter: Option<&Filter>) -> usize {
    let text = if is_pattern(name) {
        PATTERN_BYTES + 4 * name.len()
    } else {
        2 * name.len()
    };
    SUBSCRIPTION_BYTES + text + filter.map_or(0, Filter::bytes)
}

/// What a subscription takes besides its name.
const SUBSCRIPTION_BYTES: usize = 400;

/// What a pattern takes besides, in two trees.
const PATTERN_BYTES: usize = 600;

/// Places of subscriptions that have ended in the list of those that lag, at most.
const LAGGING_SLACK: usize = 64;
