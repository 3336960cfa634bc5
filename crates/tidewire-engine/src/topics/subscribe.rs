//! Subscriptions: into topics, out of them, and what was missed in between.

use super::attendance::who;
use super::broker::{Missed, Moment};
use super::filter::Filter;
use super::groups::SessionGroup;
use super::history::Position;
use super::lag::Careful;
use super::local::{Form, GroupKey, Slot};
use super::name::{Kind, check_topic_or_pattern, is_pattern};
use super::presence::Change;
use super::publication::Publication;
use crate::application::Application;
use crate::connection::State;
use crate::core::Core;
use crate::turn::Turn;
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_net::Io;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::SystemType;
use tidewire_wire::session::{
    Action, Overload, RecoveryPosition, Reply, Subscription, TopicRecovery,
};

/// What a session has of topics.
#[derive(Debug, Default)]
pub(crate) struct SessionTopics {
    /// The shard's slots of those it is in, in no order.
    pub(crate) slots: Vec<Slot>,
    /// Its subscriptions with a policy of their own.
    pub(crate) careful: Vec<Careful>,
    /// Its queue groups. The index is part of the numbers of deliveries.
    pub(crate) groups: BTreeMap<u32, SessionGroup>,
    /// The index of the next one, so that none is used twice.
    pub(crate) next_group: u32,
    /// Where it published last, which it may.
    pub(crate) published_to: Option<Arc<str>>,
}

impl SessionTopics {
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
}

/// What became of a subscription.
#[derive(Debug, Default)]
struct Entered {
    /// Where the topic stands, if it keeps history.
    recovery: Option<TopicRecovery>,
    /// What was missed, to be sent after the answer.
    missed: Vec<Arc<Publication>>,
    /// The user was not there before.
    has_come: bool,
}

/// The answer to a request, as it grows.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    success_topics: Vec<String>,
    failed_topics: Vec<String>,
    recovery: Vec<TopicRecovery>,
    /// What comes after the answer, with the filter that it has to pass.
    missed: Vec<(Option<Arc<Filter>>, Arc<Publication>)>,
    /// Whose coming is to be told.
    joined: Vec<Arc<str>>,
    presence: Option<Arc<str>>,
    error: Option<(ErrorCode, String)>,
}

impl Answer {
    fn fail(&mut self, topic: String, code: ErrorCode, words: impl std::fmt::Display) {
        let error = || (code, format!("{topic}: {words}"));
        self.error.get_or_insert_with(error);
        self.failed_topics.push(topic);
    }
}

impl<A: Application> Turn<'_, A> {
    /// `subscription_update` from a client.
    pub(crate) fn handle_subscription(
        &mut self,
        state: &mut State,
        request: Subscription,
        correlation_id: Option<String>,
    ) {
        if !state.can_subscribe() {
            // This side has said its last: there is nobody to answer.
            return;
        }
        let action = request.action;
        let result = match action {
            Action::Subscribe => self.core.subscribe_all(self.io, state, request),
            Action::Unsubscribe => Ok(self.core.unsubscribe_all(self.io, state, request.topics)),
        };
        let answer = match result {
            Ok(answer) => answer,
            Err((code, words)) => {
                let error = Reply::Error {
                    code,
                    message: words.into(),
                    retry_after_s: None,
                    refused: None,
                    correlation_id,
                };
                return self.reply(state, &error);
            }
        };
        self.core
            .answer_subscription(self.io, state, action, answer, correlation_id);
    }
}

impl Core {
    fn subscribe_all(
        &mut self,
        io: &Io,
        state: &mut State,
        request: Subscription,
    ) -> Result<Answer, (ErrorCode, String)> {
        let refused = |words: String| (ErrorCode::InvalidSubscription, words);
        let filter = match &request.filter {
            Some(document) => {
                let filter =
                    Filter::compile(document).map_err(|error| refused(error.to_string()))?;
                Some(Arc::new(filter))
            }
            None => None,
        };
        let presence = request.presence.as_ref().map(ToString::to_string);
        let data_bytes_max = self.shared.hub.limits.presence_data_bytes_max;
        if presence
            .as_ref()
            .is_some_and(|data| data.len() > data_bytes_max)
        {
            return Err(refused(format!(
                "presence is longer than {data_bytes_max} bytes"
            )));
        }
        let mut wanted = Wanted {
            filter,
            overload: request.overload,
            presence: presence.map(Arc::from),
            since: None,
        };
        let group = request.queue_group.as_deref();
        let mut answer = Answer {
            presence: wanted.presence.clone(),
            ..Answer::default()
        };
        for topic in request.topics {
            wanted.since = request
                .recovery
                .iter()
                .find(|position| request.recover && position.topic == topic)
                .and_then(position_of);
            let name: Arc<str> = topic.as_str().into();
            let Some(kind) = self.check_subscription(state, &topic, &mut answer) else {
                continue;
            };
            match group {
                Some(_) if kind == Kind::Pattern => {
                    let words = "a queue group has one topic, not a pattern";
                    answer.fail(topic, ErrorCode::InvalidSubscription, words);
                }
                Some(group) => {
                    let how = (request.acknowledge, request.window);
                    match self.enter_group(state, &name, group, how) {
                        Ok(()) => answer.success_topics.push(topic),
                        Err(words) => answer.fail(topic, ErrorCode::LimitExceeded, words),
                    }
                }
                None => {
                    // The answer says whether it was done.
                    let _ = self.enter_into(io, state, &name, &wanted, &mut answer);
                }
            }
        }
        Ok(answer)
    }

    /// Whether a client may have a topic or pattern; if not, the answer says why.
    fn check_subscription(
        &mut self,
        state: &State,
        topic: &str,
        answer: &mut Answer,
    ) -> Option<Kind> {
        match check_topic_or_pattern(topic) {
            Err(error) => answer.fail(topic.to_owned(), ErrorCode::InvalidSubscription, error),
            Ok(kind) if state.access.may_subscribe(topic) => return Some(kind),
            Ok(_) => {
                self.counters.subscriptions_forbidden.add(1);
                let words = "this topic is not allowed";
                answer.fail(topic.to_owned(), ErrorCode::TopicForbidden, words);
            }
        }
        None
    }

    /// Puts a session into a topic and notes in the answer what became of it.
    pub(crate) fn enter_into(
        &mut self,
        io: &Io,
        state: &mut State,
        name: &Arc<str>,
        wanted: &Wanted,
        answer: &mut Answer,
    ) -> Result<(), &'static str> {
        let entered = match self.enter(io, state, name, wanted) {
            Ok(entered) => entered,
            Err(words) => {
                answer.fail(name.to_string(), ErrorCode::LimitExceeded, words);
                return Err(words);
            }
        };
        if entered.has_come {
            answer.joined.push(Arc::clone(name));
        }
        answer.recovery.extend(entered.recovery);
        let missed = entered.missed.into_iter();
        answer
            .missed
            .extend(missed.map(|publication| (wanted.filter.clone(), publication)));
        answer.success_topics.push(name.to_string());
        Ok(())
    }

    fn unsubscribe_all(&mut self, io: &Io, state: &mut State, topics: Vec<String>) -> Answer {
        for topic in &topics {
            self.leave_groups(io, state, Some(topic));
            self.leave(io, state, topic);
        }
        Answer {
            success_topics: topics,
            ..Answer::default()
        }
    }

    pub(crate) fn answer_subscription(
        &mut self,
        io: &mut Io,
        state: &mut State,
        action: Action,
        answer: Answer,
        correlation_id: Option<String>,
    ) {
        let reply = Reply::SubscriptionUpdate {
            action,
            success_topics: answer.success_topics,
            failed_topics: answer.failed_topics,
            recovery: answer.recovery,
            correlation_id,
        };
        self.reply(io, state, &reply);
        if let Some((code, words)) = answer.error {
            self.reply(io, state, &Reply::error(code, words));
        }
        for (filter, publication) in answer.missed {
            let passes = |filter: Arc<Filter>| filter.matches(publication.content());
            self.fanout_bytes += publication.cost();
            if filter.is_none_or(passes) {
                self.counters.publications_replayed.add(1);
                self.publish_to(io, state, &publication);
            }
        }
        for topic in answer.joined {
            let data = answer.presence.as_deref();
            self.tell_presence(io, state, &topic, SystemType::PresenceJoin, data);
        }
    }

    /// Puts a session into a topic or pattern whose name is known to be one. The words of an error are for the
    /// client.
    fn enter(
        &mut self,
        io: &Io,
        state: &mut State,
        name: &Arc<str>,
        wanted: &Wanted,
    ) -> Result<Entered, &'static str> {
        let is_pattern = is_pattern(name);
        let (mut slot, is_new) = self.topics.enter(name, is_pattern);
        let is_member = self.topics.is_member(slot, state.key.id);
        if let Err(words) = self.check_limits(state, slot, is_member) {
            if is_new {
                self.topics.forget(slot);
            }
            return Err(words);
        }
        // A subscription that is there already stays as it is, unless it is to be another.
        let is_changed = wanted.filter.is_some() || wanted.overload.is_some();
        let keeps_place = is_member && !is_changed;
        if is_new {
            self.add_interest(name, is_pattern);
        }
        let mut entered = Entered::default();
        let mut seq = 0;
        if !is_pattern {
            (entered.recovery, entered.missed, seq) = self.recover(io, name, wanted, is_member);
        }
        if !keeps_place {
            let mut waiting = None;
            if is_member {
                // What is on its way to it still is; and the last one takes the slot with it.
                seq = self.topics.seen(slot);
                waiting = take_careful(state, slot);
                self.move_out(state, slot);
                (slot, _) = self.topics.enter(name, is_pattern);
            }
            self.join(state, slot, name, wanted, (seq, waiting));
        }
        if is_member {
            // It has not come to where the topic stands.
            entered.recovery = None;
        }
        if !is_pattern && self.shared.hub.rules.of(name).presence {
            entered.has_come = self.join_presence(io, state, name, wanted.presence.clone());
        }
        Ok(entered)
    }

    fn check_limits(&self, state: &State, slot: Slot, is_member: bool) -> Result<(), &'static str> {
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
        let subscribers = self
            .topics
            .topic(slot)
            .map_or(0, |topic| topic.subscribers());
        if subscribers as usize >= limits.subscribers_per_topic_max {
            return Err("the topic has as many subscribers as it may have");
        }
        Ok(())
    }

    fn add_interest(&mut self, name: &Arc<str>, is_pattern: bool) {
        let hub = &self.shared.hub;
        if is_pattern {
            hub.add_pattern(name, self.index);
        } else {
            hub.add_interest(name, self.index);
        }
        self.counters.topics.set(self.topics.len() as u64);
    }

    /// Where the topic stands and what was missed, and the number of the last delivery that this includes.
    fn recover(
        &mut self,
        io: &Io,
        name: &Arc<str>,
        wanted: &Wanted,
        is_member: bool,
    ) -> (Option<TopicRecovery>, Vec<Arc<Publication>>, u64) {
        let moment = self.moment(io);
        let hub = &self.shared.hub;
        // What a member missed is on its way to it.
        let missed = Missed {
            since: wanted.since.filter(|_| !is_member),
            or_newest: hub.rules.of(name).last_value && !is_member,
        };
        let Some((recovery, seq)) = hub.recover(name, missed, moment) else {
            return (None, Vec::new(), hub.seq(name));
        };
        match (missed.since, recovery.complete) {
            (None, _) => {}
            (Some(_), true) => self.counters.recoveries_complete.add(1),
            (Some(_), false) => self.counters.recoveries_incomplete.add(1),
        }
        let told = TopicRecovery {
            topic: name.to_string(),
            epoch: recovery.position.epoch_hex(),
            offset: recovery.position.offset,
            recovered: recovery.complete,
            count: recovery.publications.len() as u64,
        };
        (Some(told), recovery.publications, seq)
    }

    /// Puts a session that is not in a topic into it. Deliveries up to a number are not for it; what waited for its
    /// subscription before still waits.
    fn join(
        &mut self,
        state: &mut State,
        slot: Slot,
        name: &Arc<str>,
        wanted: &Wanted,
        (after, waiting): (u64, Option<Careful>),
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
        let mut careful = Careful::new(slot, Arc::clone(name), overload);
        if let (Some(careful), Some(waiting)) = (&mut careful, waiting) {
            careful.adopt(waiting);
        }
        let form = match (&careful, &state.layers, state.session.format()) {
            (Some(_), _, _) => Form::Careful,
            (None, Some(_), _) => Form::Apart,
            (None, None, format) => Form::Shared(format),
        };
        topics.careful.extend(careful);
        let key = GroupKey { form, filter };
        self.topics
            .join(slot, state.key.id, key, after, &mut topics.slots);
        self.counters
            .subscriptions
            .set(self.topics.subscriptions() as u64);
    }

    /// Takes a session out of a topic that others may still want; `None` if they do.
    fn move_out(&mut self, state: &mut State, slot: Slot) -> Option<Arc<str>> {
        let topics = state.topics.as_mut()?;
        topics.careful.retain(|careful| careful.slot != slot);
        self.topics.leave(slot, state.key.id, &mut topics.slots)
    }

    /// Takes a session out of a topic, if it is in it.
    pub(crate) fn leave(&mut self, io: &Io, state: &mut State, name: &str) -> bool {
        let Some(slot) = self.topics.slot(name) else {
            return false;
        };
        if !self.topics.is_member(slot, state.key.id) {
            return false;
        }
        self.leave_slot(io, state, slot);
        true
    }

    /// Takes a session out of everything.
    pub(crate) fn leave_topics(&mut self, io: &Io, state: &mut State) {
        self.leave_groups(io, state, None);
        let Some(topics) = &mut state.topics else {
            return;
        };
        for slot in topics.slots.clone() {
            self.leave_slot(io, state, slot);
        }
        state.topics = None;
    }

    fn leave_slot(&mut self, io: &Io, state: &mut State, slot: Slot) {
        let Some(topic) = self.topics.topic(slot) else {
            return;
        };
        let (name, is_pattern) = (Arc::clone(&topic.name), topic.is_pattern);
        let is_last = self.move_out(state, slot).is_some();
        let hub = &self.shared.hub;
        if !is_pattern && hub.rules.keep_presence() && hub.rules.of(&name).presence {
            let who = who(state);
            let change = hub.leave_presence(&name, &who, state.key);
            if change == Change::Left {
                self.tell_presence(io, state, &name, SystemType::PresenceLeave, None);
            }
        }
        let hub = &self.shared.hub;
        match (is_last, is_pattern) {
            (false, _) => {}
            (true, true) => hub.remove_pattern(&name, self.index),
            (true, false) => hub.remove_interest(&name, self.index),
        }
        self.counters
            .subscriptions
            .set(self.topics.subscriptions() as u64);
        self.counters.topics.set(self.topics.len() as u64);
    }

    /// The time, and chance for an epoch.
    pub(crate) fn moment(&mut self, io: &Io) -> Moment {
        Moment {
            now_ms: io.now().unix_ms,
            random_epoch: self.rng.random(),
        }
    }
}

/// What waits for a subscription that lags, if anything.
fn take_careful(state: &mut State, slot: Slot) -> Option<Careful> {
    let topics = state.topics.as_mut()?;
    let index = topics
        .careful
        .iter()
        .position(|careful| careful.slot == slot)?;
    Some(topics.careful.swap_remove(index)).filter(|careful| !careful.is_empty())
}

fn position_of(told: &RecoveryPosition) -> Option<Position> {
    Some(Position {
        epoch: Position::parse_epoch(&told.epoch)?,
        offset: told.offset,
    })
}
