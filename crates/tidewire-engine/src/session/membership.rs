//! Membership of a session in topics: checks of limits, recovery, and joining.

use crate::limits::owner::OwnerId;
use crate::model::Position;
use crate::session::Session;
use crate::state::connection::ConnectionState;
use crate::state::session_topics::{Wanted, subscription_bytes};
use crate::state::unfinished_jobs::{CatchUp, SubscriptionAnswer};
use crate::topics::broker::Missed;
use crate::topics::error::PublishError;
use crate::topics::form::Form;
use crate::topics::hub::NotReady;
use crate::topics::lag::Lossy;
use crate::topics::local::{GroupKey, Slot};
use crate::topics::name::is_pattern;
use std::sync::Arc;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{Overload, TopicRecovery};

impl Session<'_> {
    /// Puts a session into a topic or pattern whose name is known to be one, and notes in the
    /// answer what became of it. The words of an error are for the client.
    pub(crate) fn enter_into(
        &mut self,
        name: &Arc<str>,
        wanted: &Wanted,
        answer: &mut SubscriptionAnswer,
    ) -> Result<(), &'static str> {
        let is_pattern = is_pattern(name);
        let (slot, is_new) = self.core.topics.enter(name, is_pattern);
        let is_member = self.core.topics.is_member(slot, self.state.key.id);
        let changes = !is_member || wanted.filter.is_some() || wanted.overload.is_some();
        let limits = self.check_limits(slot, is_member);
        let bytes = subscription_bytes(name, wanted.filter.as_deref());
        let reserved = limits.and_then(|()| match changes {
            true => self.reserve(bytes),
            false => Ok(()),
        });
        if let Err(words) = reserved {
            if is_new {
                self.core.topics.forget(slot);
            }
            answer.fail(name.to_string(), ErrorCode::LimitExceeded, words);
            return Err(words);
        }
        if is_new {
            self.core.add_interest(name, is_pattern);
        }
        if is_member {
            answer.success_topics.push(name.to_string());
            self.change_subscription(slot, name, wanted);
        } else {
            let mut seq = 0;
            if !is_pattern {
                let (recovery, catch_up);
                (recovery, catch_up, seq) = match self.stand(self.state.limits.owner, name, wanted)
                {
                    Ok(stand) => stand,
                    Err(NotReady) => {
                        // The broker has lost the topic since it made it ready.
                        self.give_back(bytes);
                        self.core.drop_unused(slot);
                        let error = PublishError::Unavailable;
                        answer.fail(name.to_string(), error.code(), &error);
                        return Err("the broker behind the servers does not answer");
                    }
                };
                answer.recovery.extend(recovery);
                if let Some(catch_up) = catch_up {
                    answer.success_topics.push(name.to_string());
                    // It joins when it has caught up, after the answer.
                    answer.catch_ups.push(catch_up);
                    self.give_back(bytes);
                    self.core.drop_unused(slot);
                    return Ok(());
                }
            }
            answer.success_topics.push(name.to_string());
            self.join(slot, name, wanted, (seq, None));
        }
        if !is_pattern && self.core.shared.hub.rules.get().shows_presence(name) {
            answer.entered.push(Arc::clone(name));
        }
        Ok(())
    }

    /// Gives a subscription another filter or policy, if that is asked for; otherwise it stays as
    /// it is.
    fn change_subscription(&mut self, slot: Slot, name: &Arc<str>, wanted: &Wanted) {
        if wanted.filter.is_none() && wanted.overload.is_none() {
            return;
        }
        // Pending publications are still sent to the session. If it is the last member, its exit removes the
        // slot.
        let seq = self.core.topics.seen(slot);
        let waiting = take_waiting(self.state, slot);
        let holder = self.state.holder();
        if let Some(topics) = &mut self.state.topics {
            self.core.move_out(holder, topics, slot);
        }
        let (slot, _) = self.core.topics.enter(name, is_pattern(name));
        self.join(slot, name, wanted, (seq, waiting));
    }

    /// Charges a session for memory. The words of an error are for the client.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<(), &'static str> {
        let topics = self.state.topics.get_or_insert_default();
        let limits = &self.core.setup.config.topics.limits;
        if topics.charged_bytes + bytes > limits.subscription_bytes_per_connection_max {
            return Err("the subscriptions of this connection take as much memory as they may");
        }
        self.core
            .shared
            .charges
            .accounts
            .charge(self.state.limits.owner, bytes)?;
        topics.charged_bytes += bytes;
        Ok(())
    }

    /// [`Self::release`] for a session that goes on.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        if let Some(topics) = &mut self.state.topics {
            self.core.release(self.state.limits.owner, topics, bytes);
        }
    }

    /// The most subscriptions of a connection.
    pub(crate) fn subscriptions_max(&self) -> usize {
        let limits = &self.core.setup.config.topics.limits;
        limits.subscriptions_per_connection_max
    }

    /// Checks that the connection has room for one more subscription, with or without a queue group.
    pub(crate) fn check_subscriptions(&self) -> Result<(), &'static str> {
        let topics = self.state.topics.as_ref();
        match topics.map_or(0, |topics| topics.subscriptions()) < self.subscriptions_max() {
            true => Ok(()),
            false => Err(TOO_MANY_TOPICS),
        }
    }

    pub(crate) fn check_limits(&self, slot: Slot, is_member: bool) -> Result<(), &'static str> {
        if is_member {
            return Ok(());
        }
        self.check_subscriptions()?;
        let limits = &self.core.setup.config.topics.limits;
        let topic = self.core.topics.topic(slot);
        let patterns = self
            .state
            .topics
            .as_ref()
            .map_or(0, |topics| topics.patterns);
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

    /// Recovers a subscription that the application has made, from where the client has got to on an earlier
    /// connection. It goes on from there, and nothing else about it changes.
    pub(crate) fn renew(
        &mut self,
        name: &Arc<str>,
        since: Option<Position>,
        answer: &mut SubscriptionAnswer,
    ) {
        let wanted = Wanted {
            since,
            ..Wanted::default()
        };
        if self.state.work.jobs.cancel(name) {
            // It was about to enter with less than the client wants. The answer reports whether it has entered.
            let _ = self.enter_into(name, &wanted, answer);
            return;
        }
        let slot = self.core.topics.slot(name);
        let slot = slot.filter(|slot| self.core.topics.is_member(*slot, self.state.key.id));
        let (Some(slot), false) = (slot, is_pattern(name)) else {
            answer.success_topics.push(name.to_string());
            return;
        };
        let Ok((recovery, catch_up, _)) = self.stand(self.state.limits.owner, name, &wanted) else {
            let error = PublishError::Unavailable;
            return answer.fail(name.to_string(), error.code(), &error);
        };
        answer.recovery.extend(recovery);
        answer.success_topics.push(name.to_string());
        let (Some(catch_up), Some(_)) = (catch_up, since) else {
            return;
        };
        // It joins again when it has caught up, after the answer, and stays present meanwhile.
        let holder = self.state.holder();
        if let Some(topics) = &mut self.state.topics {
            self.core.leave_slot(holder, topics, slot);
            topics.granted.insert(Arc::clone(name));
        }
        answer.catch_ups.push(catch_up);
    }

    /// Where a topic stands, what has to be sent before a new subscriber joins it, and the number
    /// of the last delivery that this includes.
    fn stand(
        &mut self,
        owner: OwnerId,
        name: &Arc<str>,
        wanted: &Wanted,
    ) -> Result<(Option<TopicRecovery>, Option<CatchUp>, u64), NotReady> {
        let moment = self.core.moment(self.steady_now(), owner);
        let hub = &self.core.shared.hub;
        let missed = Missed {
            since: wanted.since,
            or_newest: hub.rules.get().of(name).last_value && wanted.replay == 0,
            limit: 0,
        };
        let Some((recovery, seq)) = hub.recover(name, missed, moment)? else {
            return Ok((None, None, hub.seq(name)));
        };
        let position = recovery.position;
        let newest = recovery.publications.into_iter().next();
        let mut count = u64::from(newest.is_some());
        let mut at = position;
        match missed.since {
            None => {}
            Some(since) if recovery.complete => {
                self.core.counters.recoveries_complete.add(1);
                count = position.offset - since.offset;
                at = since;
            }
            Some(_) => self.core.counters.recoveries_incomplete.add(1),
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
        Ok((Some(told), catch_up, seq))
    }

    /// Puts a session that is not in a topic into it. Deliveries up to a number are not for it;
    /// what waited for its subscription before still waits.
    pub(crate) fn join(
        &mut self,
        slot: Slot,
        name: &Arc<str>,
        wanted: &Wanted,
        (after, waiting): (u64, Option<Lossy>),
    ) {
        let filter = match &wanted.filter {
            Some(filter) => self.core.topics.hold_filter(filter),
            None => 0,
        };
        let topics = self.state.topics.get_or_insert_default();
        // The rule of the subscription's own name, a pattern included, as it is now: a later one changes nothing.
        let rules = self.core.shared.hub.rules.get();
        let mut overload = wanted.overload.unwrap_or(rules.of(name).overload);
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
        let form = match (&lossy, &self.state.layers, self.state.session.format()) {
            (Some(_), _, _) => Form::Lossy,
            (None, Some(_), _) => Form::Individual,
            (None, None, format) => Form::Shared {
                format,
                batches: self.state.session.client_takes_batches(),
            },
        };
        topics
            .lossy
            .extend(lossy.into_iter().map(|lossy| (slot, lossy)));
        topics.patterns += usize::from(is_pattern(name));
        let key = GroupKey { form, filter };
        self.core
            .topics
            .join(slot, self.state.key.id, key, after, &mut topics.slots);
        self.core
            .counters
            .subscriptions
            .set(self.core.topics.subscriptions() as u64);
    }

    /// Removes a session from a topic, if it is in it.
    pub(crate) fn leave(&mut self, name: &str) -> bool {
        if self.state.work.jobs.cancel(name) {
            if let Some(topics) = &mut self.state.topics {
                topics.by_token.remove(name);
                topics.granted.remove(name);
            }
            return true;
        }
        let Some(slot) = self.core.topics.slot(name) else {
            return false;
        };
        if !self.core.topics.is_member(slot, self.state.key.id) {
            return false;
        }
        let holder = self.state.holder();
        let Some(topics) = &mut self.state.topics else {
            return false;
        };
        if let Some(name) = self.core.leave_slot(holder, topics, slot) {
            self.core
                .leave_presence(self.now(), &name, &self.presence_name(), self.state.key);
        }
        true
    }
}

/// The bytes that wait for a subscription that lags, if any.
fn take_waiting(state: &mut ConnectionState, slot: Slot) -> Option<Lossy> {
    let topics = state.topics.as_mut()?;
    let lossy = topics.lossy.remove(&slot)?;
    topics.forget_lossy(&lossy);
    Some(lossy).filter(|lossy| !lossy.is_empty())
}

/// The words of a connection that has `subscriptions_per_connection_max`.
pub(crate) const TOO_MANY_TOPICS: &str = "this connection has as many topics as it may have";
