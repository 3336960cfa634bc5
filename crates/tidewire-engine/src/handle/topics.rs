//! What the application does with topics besides publishing: subscriptions of its sessions, and questions.

use crate::handle::{Handle, SendError};
use crate::limits::work::cost;
use crate::session::application::{Application, ConnectionKey, Context};
use crate::session::jobs::Job;
use crate::session::membership::Wanted;
use crate::session::subscribe::Answer;
use crate::shard::{EngineShard, Mail};
use crate::state::connection::State;
use crate::state::core::{Core, unix_ms};
use crate::topics::access::{Access, AccessRules, InvalidRules};
use crate::topics::broker::PageQuery;
use crate::topics::history::Position;
use crate::topics::local::Slot;
use crate::topics::name::{InvalidTopic, check_topic_or_pattern};
use std::sync::Arc;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::close::CloseCode;
use tidewire_wire::session::{Action, Reply};

/// Why a subscription was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManageError {
    /// The caller's fault: no topic or pattern has this name.
    #[error("{0}")]
    Topic(#[from] InvalidTopic),
    /// The caller's fault: the rules cannot be used.
    #[error("{0}")]
    Access(#[from] InvalidRules),
    /// The connection or the topic has as many subscriptions as it may.
    #[error("{0}")]
    Limit(&'static str),
    /// The server cannot take it now, or not any more.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Which part of a topic's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only publications after this offset or, with the newest first, before it.
    pub since: Option<u64>,
    /// At most so many.
    pub limit: usize,
    /// From the newest backwards, instead of from the oldest on.
    pub newest_first: bool,
}

/// A part of a topic's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPage {
    /// Where the topic stands; `None` if nothing is known of it.
    pub position: Option<Position>,
    /// The offset of the oldest publication that is kept.
    pub oldest: u64,
    /// The publications.
    pub publications: Vec<Kept>,
    /// Whether there are more in this direction.
    pub more: bool,
}

/// One publication of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its place.
    pub position: Position,
    /// The envelope as subscribers got it, JSON.
    pub json: String,
}

/// Who is on a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicPresence {
    /// How many users.
    pub users: usize,
    /// On how many connections.
    pub connections: usize,
    /// Some of them.
    pub members: Vec<PresentMember>,
}

/// A user on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentMember {
    /// The `sub` of its token or, without authentication, the connection's id.
    pub user: String,
    /// What it says about itself, JSON.
    pub data: Option<String>,
    /// On how many connections.
    pub connections: usize,
}

/// A change that another thread asks for.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) whose: Whose,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum Whose {
    Connection(ConnectionId),
    User(Arc<str>),
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Subscription(Action, Arc<str>),
    Access(Arc<AccessRules>),
    End(CloseCode, Arc<str>),
}

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

impl Handle {
    /// Subscribes a session to a topic or pattern, whatever its access rules say. The client is told by a
    /// `subscription_update`, of a limit too. A session that is gone meanwhile is not an error.
    ///
    /// # Errors
    /// [`ManageError`]; nothing was changed.
    pub fn subscribe(&self, connection: ConnectionKey, topic: &str) -> Result<(), ManageError> {
        check_topic_or_pattern(topic)?;
        let what = What::Subscription(Action::Subscribe, topic.into());
        Ok(self.change_one(connection, what)?)
    }

    /// Takes a session out of a topic or pattern. The client is told.
    ///
    /// # Errors
    /// [`ManageError`]; nothing was changed.
    pub fn unsubscribe(&self, connection: ConnectionKey, topic: &str) -> Result<(), ManageError> {
        check_topic_or_pattern(topic)?;
        let what = What::Subscription(Action::Unsubscribe, topic.into());
        Ok(self.change_one(connection, what)?)
    }

    /// [`Context::set_access`] for a session. One that is gone meanwhile is not an error.
    ///
    /// # Errors
    /// [`ManageError`]; nothing was changed.
    pub fn set_access(
        &self,
        connection: ConnectionKey,
        rules: AccessRules,
    ) -> Result<(), ManageError> {
        rules.check()?;
        Ok(self.change_one(connection, What::Access(Arc::new(rules)))?)
    }

    /// [`subscribe`](Self::subscribe) for all sessions that a user has now.
    ///
    /// # Errors
    /// [`ManageError`]; the sessions of some shards may have been changed.
    pub fn subscribe_user(&self, user: &str, topic: &str) -> Result<(), ManageError> {
        check_topic_or_pattern(topic)?;
        let what = What::Subscription(Action::Subscribe, topic.into());
        Ok(self.change_user(user, &what)?)
    }

    /// [`unsubscribe`](Self::unsubscribe) for all sessions that a user has now.
    ///
    /// # Errors
    /// [`ManageError`]; the sessions of some shards may have been changed.
    pub fn unsubscribe_user(&self, user: &str, topic: &str) -> Result<(), ManageError> {
        check_topic_or_pattern(topic)?;
        let what = What::Subscription(Action::Unsubscribe, topic.into());
        Ok(self.change_user(user, &what)?)
    }

    /// Ends all sessions that a user has now, with a code and a reason of at most 123 bytes.
    ///
    /// # Errors
    /// [`SendError`]; the sessions of some shards may have been ended.
    pub fn close_user(&self, user: &str, code: CloseCode, reason: &str) -> Result<(), SendError> {
        self.change_user(user, &What::End(code, reason.into()))
    }

    /// Some of what is kept of a topic; `None` for a topic that keeps no history.
    #[must_use]
    pub fn history(&self, topic: &str, query: HistoryQuery) -> Option<HistoryPage> {
        let query = PageQuery {
            since: query.since,
            limit: query.limit,
            newest_first: query.newest_first,
        };
        let page = self.shared.hub.history(&topic.into(), query, unix_ms())?;
        let kept = page.publications.iter().filter_map(|publication| {
            Some(Kept {
                position: publication.position?,
                json: String::from_utf8_lossy(publication.json()).into_owned(),
            })
        });
        Some(HistoryPage {
            position: page.position,
            oldest: page.oldest,
            publications: kept.collect(),
            more: page.more,
        })
    }

    /// Forgets what is kept of a topic: nobody recovers from before this. Whether there was anything.
    pub fn forget_history(&self, topic: &str) -> bool {
        self.shared.hub.forget_history(&topic.into())
    }

    /// Who is on a topic, and up to `members_max` of them by name.
    #[must_use]
    pub fn presence(&self, topic: &str, members_max: usize) -> TopicPresence {
        let view = self.shared.hub.present(topic, members_max);
        let members = view.members.into_iter().map(|member| PresentMember {
            user: member.user.to_string(),
            data: member.data.map(|data| data.to_string()),
            connections: member.connections,
        });
        TopicPresence {
            users: view.users,
            connections: view.connections,
            members: members.collect(),
        }
    }

    fn change_one(&self, connection: ConnectionKey, what: What) -> Result<(), SendError> {
        let whose = Whose::Connection(connection.id);
        self.post(connection.shard, Mail::Change(Change { whose, what }))
    }

    fn change_user(&self, user: &str, what: &What) -> Result<(), SendError> {
        let user: Arc<str> = user.into();
        for shard in 0..self.shared.config.shards as u32 {
            let change = Change {
                whose: Whose::User(Arc::clone(&user)),
                what: what.clone(),
            };
            self.post(shard, Mail::Change(change))?;
        }
        Ok(())
    }
}

impl<A: Application> EngineShard<A> {
    /// Does to one session or to those of a user what another thread asked for.
    pub(crate) fn change(&mut self, io: &mut Io, change: &Change) {
        let sessions = match &change.whose {
            Whose::Connection(id) => vec![*id],
            Whose::User(user) => self.core.users.of(user),
        };
        for id in sessions {
            self.with_turn(io, id, |turn, state| match &change.what {
                What::Subscription(Action::Subscribe, topic) => {
                    // The client has been told of a limit.
                    let _ = turn.core.subscribe_for(turn.io, state, topic);
                }
                What::Subscription(Action::Unsubscribe, topic) => {
                    turn.core.unsubscribe_for(turn.io, state, topic);
                }
                What::Access(rules) => {
                    state.access_is_set = true;
                    turn.core.set_access(state, rules);
                }
                What::End(code, reason) => turn.start_close(state, *code, reason),
            });
        }
    }
}

/// The subscriptions of a session that have to be checked against new rights.
#[derive(Debug)]
pub(crate) struct Recheck {
    slots: std::vec::IntoIter<Slot>,
    ended: Vec<String>,
}

impl Core {
    /// Gives a session other rights, and has its subscriptions checked against them.
    pub(crate) fn set_access(&mut self, state: &mut State, rules: &Arc<AccessRules>) {
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
        state: &mut State,
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

impl State {
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
    fn subscribe_for(
        &mut self,
        io: &mut Io,
        state: &mut State,
        topic: &Arc<str>,
    ) -> Result<(), &'static str> {
        if !state.can_subscribe() {
            return Err("the session has ended or is not encrypted yet");
        }
        let mut answer = Answer::default();
        let result = self.enter_into(io, state, topic, &Wanted::default(), &mut answer);
        if result.is_ok() {
            let topics = state.topics.get_or_insert_default();
            topics.granted.insert(Arc::clone(topic));
        }
        self.answer_subscription(io, state, Action::Subscribe, answer, None);
        result
    }

    fn unsubscribe_for(&mut self, io: &mut Io, state: &mut State, topic: &str) -> bool {
        let was_in = self.leave(io, state, topic);
        if was_in {
            self.reply(io, state, &ended(vec![topic.to_owned()]));
        }
        was_in
    }
}
