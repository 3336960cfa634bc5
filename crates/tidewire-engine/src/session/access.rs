//! Subscriptions and access rules that the application changes for a session.

use crate::limits::work::cost;
use crate::session::Session;
use crate::session::context::Context;
use crate::state::connection::ConnectionState;
use crate::state::rights::{ChangedRights, RightsCheck};
use crate::state::session_topics::Wanted;
use crate::state::unfinished_jobs::{Job, SubscriptionAnswer, SubscriptionJob};
use crate::topics::access::{Access, AccessRules};
use crate::topics::error::ManageError;
use std::sync::Arc;
use tidewire_wire::session::{Action, Reply};

impl Context<'_> {
    /// Subscribes the session of this call to a topic or pattern, regardless of its access rules. The client
    /// is notified by a `subscription_update`.
    ///
    /// # Errors
    /// [`ManageError`]; nothing was changed.
    pub fn subscribe(&mut self, topic: &str) -> Result<(), ManageError> {
        let hub = &self.session.core.shared.hub;
        hub.check_new_topic_or_pattern(topic)?;
        self.session
            .subscribe_for(&topic.into())
            .map_err(ManageError::Limit)
    }

    /// Gives the session of this call access rules of its own, in place of those of the server and
    /// of its token. Every right is checked anew: subscriptions of the client that the new rules do
    /// not allow end, and the client gets a `subscription_update` about them. Those that the
    /// application has made for it stay. A new token of the session changes nothing of these rules.
    ///
    /// ```
    /// use tidewire_engine::{AccessRules, Application, Context, Message, Peer, Rules};
    ///
    /// struct Guests;
    ///
    /// impl Application for Guests {
    ///     fn on_connect(&mut self, context: &mut Context<'_>, peer: &Peer) {
    ///         if peer.user.as_deref() == Some("guest") {
    ///             let news = Rules { allow: vec!["news.>".into()], deny: Vec::new() };
    ///             let rules = AccessRules { subscribe: news, ..AccessRules::closed() };
    ///             context.set_access(rules).expect("rules that can be used");
    ///         }
    ///     }
    ///
    ///     fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ManageError::Access`]; nothing was changed.
    pub fn set_access(&mut self, rules: AccessRules) -> Result<(), ManageError> {
        rules.check()?;
        self.session.state.client.access_is_set = true;
        self.session.set_access(&Arc::new(rules));
        Ok(())
    }

    /// Removes the session of this call from a topic or pattern. Returns whether it was in it; then the
    /// client is notified.
    pub fn unsubscribe(&mut self, topic: &str) -> bool {
        self.session.unsubscribe_for(topic)
    }
}

impl Session<'_> {
    /// Gives a session other rights, and has its subscriptions checked against them.
    pub(crate) fn set_access(&mut self, rules: &Arc<AccessRules>) {
        self.state.client.access = Access::bind(rules, self.state.client.user.as_deref());
        self.state.work.jobs.note_changed_rights();
        let Some(topics) = &mut self.state.topics else {
            return;
        };
        topics.published_to = None;
        let mut slots = topics.slots.clone();
        self.core.turn.meter.spend(slots.len() as u64);
        if let Some(earlier) = topics.changed_rights() {
            // It goes on with the new rights, from where it is: rights that change often put off no end.
            let done = slots.len().saturating_sub(earlier.slots.len());
            slots.rotate_left(done);
            earlier.slots = slots.into_iter();
            return;
        }
        let slots = slots.into_iter();
        let ended = Vec::new();
        self.start_check(RightsCheck::Changed(ChangedRights { slots, ended }));
    }

    /// Checks one subscription; returns the rest of the check. At the end the queue groups follow, and the
    /// client is notified.
    pub(super) fn check_changed_right(
        &mut self,
        mut changed: ChangedRights,
    ) -> Option<ChangedRights> {
        let Some(slot) = changed.slots.next() else {
            changed.ended.extend(self.leave_forbidden_groups());
            if !changed.ended.is_empty() {
                let update = ended(changed.ended);
                self.reply(&update);
            }
            return None;
        };
        self.core
            .turn
            .meter
            .spend(cost::CHECK + self.state.client.access.cost());
        let topic = self.core.topics.topic(slot);
        let topic = topic.filter(|_| self.core.topics.is_member(slot, self.state.key.id));
        if let Some(name) = topic.map(|topic| Arc::clone(&topic.name))
            && !self.may_stay(&name)
        {
            self.core.turn.meter.spend(cost::UNSUBSCRIBE);
            self.leave(&name);
            changed.ended.push(name.to_string());
        }
        Some(changed)
    }

    /// Returns whether the session may receive a topic to which it is subscribed or is about to be subscribed.
    pub(super) fn may_stay(&self, topic: &str) -> bool {
        self.state.client.access.may_subscribe(topic)
            || self.state.was_granted(topic)
            || self.is_allowed_by_token(topic)
    }

    pub(crate) fn subscribe_for(&mut self, topic: &Arc<str>) -> Result<(), &'static str> {
        if !self.state.can_subscribe() {
            return Err("the session has ended or is not encrypted yet");
        }
        if self
            .core
            .shared
            .hub
            .check_new_topic_or_pattern(topic)
            .is_err()
        {
            return Err("the topic name changes the direction of writing");
        }
        if self.core.shared.hub.is_shared(topic) {
            let job = SubscriptionJob::granted(topic);
            self.state.work.jobs.push(Job::Subscription(Box::new(job)));
            return Ok(());
        }
        let mut answer = SubscriptionAnswer::default();
        let result = self.enter_into(topic, &Wanted::default(), &mut answer);
        if result.is_ok() {
            let topics = self.state.topics.get_or_insert_default();
            topics.granted.insert(Arc::clone(topic));
        }
        self.answer_subscription(Action::Subscribe, answer, None);
        result
    }

    pub(crate) fn unsubscribe_for(&mut self, topic: &str) -> bool {
        let was_in = self.leave(topic);
        if was_in {
            self.reply(&ended(vec![topic.to_owned()]));
        }
        was_in
    }
}

impl ConnectionState {
    /// Whether the application has made this subscription.
    pub(crate) fn was_granted(&self, name: &str) -> bool {
        let topics = self.topics.as_ref();
        topics.is_some_and(|topics| topics.granted.contains(name))
    }
}

/// The message that notifies a client of ended subscriptions.
pub(crate) fn ended(topics: Vec<String>) -> Reply {
    Reply::SubscriptionUpdate {
        action: Action::Unsubscribe,
        success_topics: topics,
        failed_topics: Vec::new(),
        failures: Vec::new(),
        recovery: Vec::new(),
        correlation_id: None,
    }
}
