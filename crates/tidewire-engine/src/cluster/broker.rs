//! The shards' side of a broker that several servers share.

use crate::cluster::commands::{Command, Commands, OwnedOrder};
use crate::cluster::mirror::{Mirrors, Waiting, refuse};
use crate::cluster::parcel;
use crate::model::ConnectionKey;
use crate::topics::broker::{
    Answer, Audience, Broker, BrokerHealth, BrokerUsage, Control, Missed, Moment, Order, PageQuery,
    Prepare, PresenceView, Refusal, Sending, Sink, Tickets,
};
use crate::topics::config::TopicRule;
use crate::topics::history::{HistoryLimits, Page, Recovery};
use crate::topics::presence::PresenceChange;
use crate::topics::publication::{Publication, Published};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidewire_redis::NodeId;

/// Asks the link, and answers from the mirrors what they have.
#[derive(Debug)]
pub(crate) struct ClusterBroker {
    pub(crate) commands: Commands,
    mirrors: Mutex<Mirrors>,
    /// As the link has told last.
    health: Mutex<BrokerHealth>,
    /// How many sessions each user has on this server.
    users: Mutex<HashMap<Arc<str>, usize>>,
    /// This run of this server.
    node: NodeId,
    /// Topics that may have a mirror.
    topics_max: usize,
}

impl ClusterBroker {
    pub(crate) fn new(node: NodeId, history_bytes_max: usize, history_topics_max: usize) -> Self {
        Self {
            users: Mutex::default(),
            node,
            topics_max: history_topics_max,
            commands: Commands::default(),
            mirrors: Mutex::new(Mirrors::new(history_bytes_max, history_topics_max)),
            health: Mutex::new(BrokerHealth {
                is_connected: false,
                reason: Some("the link has not connected yet".to_owned()),
                ..BrokerHealth::default()
            }),
        }
    }

    /// How the broker is now.
    pub(crate) fn set_health(&self, health: BrokerHealth) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    /// The mirrors. Whoever holds them may take a topic's lock, never the other way round.
    pub(crate) fn mirrors(&self) -> MutexGuard<'_, Mirrors> {
        self.mirrors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Broker for ClusterBroker {
    fn publish(
        &self,
        order: &Order<'_>,
        tickets: Tickets<'_>,
        _: &dyn Sink,
    ) -> Answer<Result<Published, Refusal>> {
        if self.commands.bytes() > WAITING_BYTES_MAX {
            return Answer::Now(Err(Refusal::Busy));
        }
        let order = Box::new(OwnedOrder::new(order));
        self.commands.push(Command::Publish(order, tickets()));
        Answer::Later
    }

    fn prepare(
        &self,
        topic: &Arc<str>,
        rule: &TopicRule,
        wanted: Prepare,
        tickets: Tickets<'_>,
    ) -> Answer<Result<(), Refusal>> {
        // The newest one goes to every new subscriber of a topic with a last value.
        let newest = wanted.newest.max(u64::from(rule.last_value));
        let wanted = Prepare { newest, ..wanted };
        let mut mirrors = self.mirrors();
        if mirrors.is_ready(topic, wanted) {
            let is_idle = mirrors
                .topics
                .get(topic)
                .is_some_and(|mirror| mirror.idle_at_ms.is_some());
            drop(mirrors);
            if is_idle {
                // It stays ready for those who asked now.
                self.commands.push(Command::Prepare(Arc::clone(topic)));
            }
            return Answer::Now(Ok(()));
        }
        if self.commands.is_stopped() {
            return Answer::Now(Err(Refusal::Unavailable));
        }
        if mirrors.topics.len() >= self.topics_max && !mirrors.topics.contains_key(topic) {
            return Answer::Now(Err(Refusal::Busy));
        }
        let mirror = mirrors.topics.entry(Arc::clone(topic)).or_default();
        mirror.limits = rule.history;
        mirror.waiting.push(Waiting {
            wanted,
            ticket: tickets(),
            until_ms: None,
        });
        drop(mirrors);
        self.commands.push(Command::Prepare(Arc::clone(topic)));
        Answer::Later
    }

    fn recover(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        moment: Moment,
        missed: Missed,
        locked: &mut dyn FnMut(),
    ) -> Option<Recovery<Arc<Publication>>> {
        let mut mirrors = self.mirrors();
        let recovery = mirrors.recover(topic, limits, moment.now_ms, missed)?;
        // The link holds this lock until it has delivered.
        locked();
        Some(recovery)
    }

    fn page(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        now_ms: u64,
        query: PageQuery,
    ) -> Option<Page<Arc<Publication>>> {
        self.mirrors().page(topic, limits, now_ms, query)
    }

    fn forget(&self, topic: &Arc<str>, tickets: Tickets<'_>) -> Answer<Result<bool, Refusal>> {
        let command = Command::Forget(Arc::clone(topic), tickets());
        self.commands.push(command);
        Answer::Later
    }

    fn add_interest(&self, topic: &Arc<str>, _: &TopicRule) {
        self.commands.push(Command::AddInterest(Arc::clone(topic)));
    }

    fn remove_interest(&self, topic: &str) {
        self.commands.push(Command::RemoveInterest(topic.into()));
    }

    fn sweep(&self, now_ms: u64, limits_of: &dyn Fn(&str) -> HistoryLimits) {
        self.mirrors().sweep(now_ms, limits_of);
    }

    fn join(
        &self,
        _: &Arc<str>,
        _: &Arc<str>,
        _: ConnectionKey,
        _: Option<Arc<str>>,
    ) -> PresenceChange {
        PresenceChange::Unchanged
    }

    fn leave(&self, _: &Arc<str>, _: &Arc<str>, _: ConnectionKey) -> PresenceChange {
        PresenceChange::Unchanged
    }

    fn present(&self, _: &str, _: usize) -> PresenceView {
        PresenceView::default()
    }

    fn add_pattern(&self, pattern: &str) {
        self.commands.push(Command::AddInterest(pattern.into()));
    }

    fn remove_pattern(&self, pattern: &str) {
        self.commands.push(Command::RemoveInterest(pattern.into()));
    }

    fn add_user(&self, user: &Arc<str>) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let sessions = users.entry(Arc::clone(user)).or_default();
        *sessions += 1;
        if *sessions == 1 {
            self.commands.push(Command::AddUser(Arc::clone(user)));
        }
    }

    fn remove_user(&self, user: &Arc<str>) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sessions) = users.get_mut(user) {
            *sessions -= 1;
            if *sessions == 0 {
                users.remove(user);
                self.commands.push(Command::RemoveUser(Arc::clone(user)));
            }
        }
    }

    fn send(&self, audience: Audience<'_>, sending: &Sending<'_>) {
        let user = match audience {
            Audience::User(user) => Some(Arc::clone(user)),
            Audience::Everyone => None,
        };
        if self.commands.bytes() > WAITING_BYTES_MAX {
            return tracing::warn!("a message to the other servers is lost: too much waits");
        }
        if let Some(parcel) = parcel::write(self.node, sending) {
            self.commands.push(Command::Send(user, parcel));
        }
    }

    fn tell(&self, control: &Control, tickets: Tickets<'_>) -> Answer<Result<(), Refusal>> {
        match serde_json::to_vec(control) {
            Ok(json) => self.commands.push(Command::Tell(json.into(), tickets())),
            Err(error) => {
                tracing::error!(%error, "a command to the other servers cannot be written");
                return Answer::Now(Err(Refusal::Unavailable));
            }
        }
        Answer::Later
    }

    fn is_busy(&self) -> bool {
        self.commands.bytes() > BUSY_BYTES
    }

    fn health(&self) -> BrokerHealth {
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        health.clone()
    }

    fn stop(&self) {
        self.commands.stop();
        let waiting = self.mirrors().take_all_waiting();
        refuse(waiting, Refusal::Unavailable);
    }

    fn usage(&self) -> BrokerUsage {
        let (history_bytes, history_topics, histories_evicted) = self.mirrors().usage();
        BrokerUsage {
            history_bytes,
            history_topics,
            histories_evicted,
            presence_topics: 0,
        }
    }
}

/// Publications that wait for the broker, in bytes; past it they are refused.
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The same; past it clients that publish are not read.
const BUSY_BYTES: usize = 16 * 1024 * 1024;
