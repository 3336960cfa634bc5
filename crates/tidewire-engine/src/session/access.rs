//! Subscriptions and access rules that the application changes for a session.

use crate::limits::work::cost;
use crate::session::context::Context;
use crate::state::connection::ConnectionState;
use crate::state::core::Core;
use crate::state::jobs::{Job, Recheck, SubscriptionAnswer};
use crate::state::topics::Wanted;
use crate::topics::access::{Access, AccessRules};
use crate::topics::error::ManageError;
use crate::topics::name::check_topic_or_pattern;
use std::sync::Arc;
use tidewire_net::Io;
use tidewire_wire::session::{Action, Reply};

impl Context<'_> {
    /// Subscribes the session of this call to a topic or pattern, whatever its access rules say. The client is told
    /// by a `subscription_update`.
    ///
    /// # Errors
    /// [`ManageError`]; nothing was changed.
    pub fn subscribe(&mut self, topic: &str) -> Result<(), ManageError> {
        check_topic_or_pattern(topic)?;
        self.core
            .subscribe_for(self.io, self.state, &topic.into())
            .map_err(ManageError::Limit)
    }

    /// Gives the session of this call access rules of its own, in place of those of the server and of its token. Every
    /// right is checked anew: subscriptions of the client that the new rules do not allow end, and the client gets a
    /// `subscription_update` about them. Those that the application has made for it stay. A new token of the session
    /// changes nothing of these rules.
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
        self.state.access_is_set = true;
        self.core.set_access(self.state, &Arc::new(rules));
        Ok(())
    }

    /// Takes the session of this call out of a topic or pattern; whether it was in it. The client is told.
    pub fn unsubscribe(&mut self, topic: &str) -> bool {
        self.core.unsubscribe_for(self.io, self.state, topic)
    }
}

impl Core {
    /// Gives a session other rights, and has its subscriptions checked against them.
    pub(crate) fn set_access(&mut self, state: &mut ConnectionState, rules: &Arc<AccessRules>) {
        state.access = Access::bind(rules, state.user.as_deref());
        let Some(topics) = &mut state.topics else {
            return;
        };
        topics.published_to = None;
        let slots = topics.slots.clone().into_iter();
        let ended = Vec::new();
        state.jobs.push(Job::Recheck(Recheck { slots, ended }));
    }

    /// Checks one subscription; what is left. At the end the queue groups follow, and the client is told.
    pub(crate) fn step_recheck(
        &mut self,
        io: &mut Io,
        state: &mut ConnectionState,
        mut recheck: Recheck,
    ) -> Option<Recheck> {
        let Some(slot) = recheck.slots.next() else {
            recheck.ended.extend(self.leave_forbidden_groups(io, state));
            if !recheck.ended.is_empty() {
                let update = ended(recheck.ended);
                self.reply(io, state, &update);
            }
            return None;
        };
        self.meter.spend(cost::CHECK + state.access.cost());
        let topic = self.topics.topic(slot);
        let topic = topic.filter(|_| self.topics.is_member(slot, state.key.id));
        if let Some(name) = topic.map(|topic| Arc::clone(&topic.name))
            && !state.access.may_subscribe(&name)
            && !state.was_granted(&name)
        {
            self.meter.spend(cost::UNSUBSCRIBE);
            self.leave(io, state, &name);
            recheck.ended.push(name.to_string());
        }
        Some(recheck)
    }
}

impl ConnectionState {
    /// Whether the application has made this subscription.
    fn was_granted(&self, name: &str) -> bool {
        let topics = self.topics.as_ref();
        topics.is_some_and(|topics| topics.granted.contains(name))
    }
}

/// Tells a client that it is subscribed no longer.
pub(crate) fn ended(topics: Vec<String>) -> Reply {
    Reply::SubscriptionUpdate {
        action: Action::Unsubscribe,
        success_topics: topics,
        failed_topics: Vec::new(),
        recovery: Vec::new(),
        correlation_id: None,
    }
}

impl Core {
    pub(crate) fn subscribe_for(
        &mut self,
        io: &mut Io,
        state: &mut ConnectionState,
        topic: &Arc<str>,
    ) -> Result<(), &'static str> {
        if !state.can_subscribe() {
            return Err("the session has ended or is not encrypted yet");
        }
        let mut answer = SubscriptionAnswer::default();
        let result = self.enter_into(io, state, topic, &Wanted::default(), &mut answer);
        if result.is_ok() {
            let topics = state.topics.get_or_insert_default();
            topics.granted.insert(Arc::clone(topic));
        }
        self.answer_subscription(io, state, Action::Subscribe, answer, None);
        result
    }

    pub(crate) fn unsubscribe_for(
        &mut self,
        io: &mut Io,
        state: &mut ConnectionState,
        topic: &str,
    ) -> bool {
        let was_in = self.leave(io, state, topic);
        if was_in {
            self.reply(io, state, &ended(vec![topic.to_owned()]));
        }
        was_in
    }
}
