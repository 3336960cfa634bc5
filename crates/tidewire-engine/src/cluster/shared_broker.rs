//! The shards' side of a broker that several servers share.

use crate::cluster::commands::{Command, Commands, GroupKey, OwnedOrder, Receiver};
use crate::cluster::mirror::{Mirrors, Waiting, refuse};
use crate::cluster::parcel;
use crate::cluster::shared_presence::SharedPresence;
use crate::model::call_types::{CallFailure, CallOutcome, NewCall};
use crate::model::{ConnectionKey, ShardHealth};
use crate::topics::broker::{
    Audience, Broker, BrokerAnswer, BrokerHealth, BrokerProblem, BrokerUsage, Control, Missed,
    Moment, Order, PageQuery, Prepare, PresenceView, ProducerName, ProducerOpening, ProducerPlace,
    Refusal, Sending, Sink, Ticket, Tickets,
};
use crate::topics::config::TopicRule;
use crate::topics::groups::EndedWork;
use crate::topics::history::{HistoryLimits, Page, Recovery};
use crate::topics::presence::PresenceChange;
use crate::topics::publication::{Publication, Published};
use std::collections::HashMap;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tidewire_net::Heartbeat;
use tidewire_redis::{NodeId, Present, Problem};

/// Asks the link, and answers from the mirrors what they have.
#[derive(Debug)]
pub(crate) struct ClusterBroker {
    pub(crate) commands: Commands,
    mirrors: Mutex<Mirrors>,
    /// As of the last report of the link.
    health: Mutex<BrokerHealth>,
    /// How many sessions each user has on this server.
    users: Mutex<HashMap<Arc<str>, usize>>,
    presence: Mutex<SharedPresence>,
    /// The queue groups that this server has asked for, and whether it may be in them.
    groups: Mutex<HashMap<GroupKey, bool>>,
    /// The heartbeat of the link's thread.
    link: OnceLock<Heartbeat>,
    /// This run of this server.
    node: NodeId,
    /// Topics that may have a mirror.
    topics_max: usize,
    /// Publications that wait for the broker, in bytes; past it they are refused, and past half of it clients that publish
    /// are not read.
    waiting_bytes_max: usize,
    /// How far the clock of the broker is ahead of this server's, in milliseconds.
    pub(crate) ahead_ms: AtomicI64,
}

impl ClusterBroker {
    /// `parts` is the number of partitions, which share the limits.
    pub(crate) fn new(
        node: NodeId,
        (history_bytes_max, history_topics_max): (usize, usize),
        parts: usize,
        waiting_bytes_max: usize,
    ) -> Self {
        let history_topics_max = history_topics_max.div_ceil(parts);
        let history_bytes_max = history_bytes_max.div_ceil(parts);
        Self {
            waiting_bytes_max,
            users: Mutex::default(),
            link: OnceLock::new(),
            presence: Mutex::default(),
            groups: Mutex::default(),
            node,
            topics_max: history_topics_max,
            ahead_ms: AtomicI64::new(0),
            commands: Commands::default(),
            mirrors: Mutex::new(Mirrors::new(history_bytes_max, history_topics_max)),
            health: Mutex::new(BrokerHealth {
                is_connected: false,
                reason: Some("the link has not connected yet".to_owned()),
                ..BrokerHealth::default()
            }),
        }
    }

    /// Watches the thread of the link by its heartbeat. Called once, before the server starts.
    pub(crate) fn watch_link(&self, heartbeat: Heartbeat) {
        let _ = self.link.set(heartbeat);
    }

    /// How the broker is now.
    pub(crate) fn set_health(&self, health: BrokerHealth) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    /// Whether the broker answers and accepts publications, as of the last report of the link.
    pub(crate) fn takes_publications(&self) -> bool {
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        health.is_connected && !health.problems.iter().any(is_of_broker)
    }

    /// Whether the thread of the link is stalled or has ended.
    pub(crate) fn is_stalled(&self, stall_ms: u64) -> bool {
        let stalled = |link| ShardHealth::of(link, stall_ms) != ShardHealth::Healthy;
        self.link.get().is_some_and(stalled)
    }

    /// Presence on the shared topics. The holder of this lock acquires no other lock but that of the
    /// commands.
    pub(crate) fn presence(&self) -> MutexGuard<'_, SharedPresence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue groups that this server has asked for. The holder of this lock acquires no other lock.
    pub(crate) fn groups(&self) -> MutexGuard<'_, HashMap<GroupKey, bool>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_presence(&self, topic: &Arc<str>, who: &Arc<str>, present: Option<Present>) {
        let (topic, who) = (Arc::clone(topic), Arc::clone(who));
        self.commands.push(Command::Presence(topic, who, present));
    }

    /// The mirrors. The holder of this lock may acquire a topic's lock, never the other way round.
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
    ) -> BrokerAnswer<Result<Published, Refusal>> {
        if self.commands.bytes() > self.waiting_bytes_max {
            return BrokerAnswer::Now(Err(Refusal::Busy));
        }
        let order = Box::new(OwnedOrder::new(order));
        self.commands.push(Command::Publish(order, tickets()));
        BrokerAnswer::Later
    }

    fn prepare(
        &self,
        topic: &Arc<str>,
        rule: &TopicRule,
        wanted: Prepare,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>> {
        // The newest one goes to every new subscriber of a topic with a last value.
        let newest = wanted.newest.max(u64::from(rule.last_value));
        let wanted = Prepare { newest, ..wanted };
        let mut mirrors = self.mirrors();
        if mirrors.is_ready(topic, wanted) {
            let mirror = mirrors.topics.get_mut(topic);
            // It stays ready for those who asked now.
            let asks = mirror.is_some_and(|mirror| {
                mirror.idle_at_ms.is_some() && !std::mem::replace(&mut mirror.is_asked_for, true)
            });
            drop(mirrors);
            if asks {
                self.commands.push(Command::Prepare(Arc::clone(topic)));
            }
            return BrokerAnswer::Now(Ok(()));
        }
        if self.commands.is_stopped() {
            return BrokerAnswer::Now(Err(Refusal::Unavailable));
        }
        if mirrors.topics.len() >= self.topics_max && !mirrors.topics.contains_key(topic) {
            return BrokerAnswer::Now(Err(Refusal::Busy));
        }
        let mirror = mirrors.topics.entry(Arc::clone(topic)).or_default();
        mirror.limits = rule.history;
        mirror.waiting.push(Waiting {
            wanted,
            ticket: tickets(),
            until_ms: None,
        });
        // One command for all requests until the link looks at the topic.
        let was_asked_for = std::mem::replace(&mut mirror.is_asked_for, true);
        drop(mirrors);
        if !was_asked_for {
            self.commands.push(Command::Prepare(Arc::clone(topic)));
        }
        BrokerAnswer::Later
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

    fn forget(
        &self,
        topic: &Arc<str>,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<bool, Refusal>> {
        let command = Command::Forget(Arc::clone(topic), tickets());
        self.commands.push(command);
        BrokerAnswer::Later
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
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
        data: Option<Arc<str>>,
    ) -> PresenceChange {
        // Under the lock, so that the link receives the changes in their order. The link notifies the
        // subscribers after the broker has sent the change to all servers.
        let mut presence = self.presence();
        let present = presence.join(topic, who, connection, data);
        self.tell_presence(topic, who, present);
        PresenceChange::Unchanged
    }

    fn leave(&self, topic: &Arc<str>, who: &Arc<str>, connection: ConnectionKey) -> PresenceChange {
        let mut presence = self.presence();
        let present = presence.leave(topic, who, connection);
        self.tell_presence(topic, who, present);
        PresenceChange::Unchanged
    }

    fn present(&self, topic: &str, limit: usize) -> PresenceView {
        self.presence().present(topic, limit)
    }

    fn add_pattern(&self, pattern: &str) {
        self.commands.push(Command::AddInterest(pattern.into()));
    }

    fn remove_pattern(&self, pattern: &str) {
        self.commands.push(Command::RemoveInterest(pattern.into()));
    }

    fn prepare_group(
        &self,
        topic: &Arc<str>,
        group: &Arc<str>,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>> {
        let key = (Arc::clone(topic), Arc::clone(group));
        if self.groups().contains_key(&key) {
            return BrokerAnswer::Now(Ok(()));
        }
        if self.commands.is_stopped() {
            return BrokerAnswer::Now(Err(Refusal::Unavailable));
        }
        self.commands.push(Command::JoinGroup(key, tickets()));
        BrokerAnswer::Later
    }

    fn may_join_group(&self, topic: &Arc<str>, group: &Arc<str>) -> bool {
        let key = (Arc::clone(topic), Arc::clone(group));
        self.groups().get(&key).copied().unwrap_or(true)
    }

    fn change_group(&self, topic: &Arc<str>, group: &Arc<str>, ended: EndedWork) {
        let key = (Arc::clone(topic), Arc::clone(group));
        self.commands.push(Command::ChangeGroup(key, ended));
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
        let (receiver, connection) = match audience {
            Audience::User(user) => (Receiver::User(Arc::clone(user)), None),
            Audience::Everyone => (Receiver::Everyone, None),
            Audience::Connection(key) => (Receiver::Node(NodeId(key.server())), Some(key)),
        };
        if self.commands.bytes() > self.waiting_bytes_max {
            return self.commands.lose();
        }
        if let Some(parcel) =
            parcel::write(self.node, connection, sending, self.ahead_ms.load(Relaxed))
        {
            self.commands.push(Command::Send(receiver, parcel));
        }
    }

    fn shares_producers(&self) -> bool {
        true
    }

    fn open_producer(&self, opening: ProducerOpening, ticket: Ticket) {
        self.commands.push(Command::OpenProducer(opening, ticket));
    }

    fn keep_producer(&self, name: ProducerName, place: ProducerPlace, ticket: Option<Ticket>) {
        self.commands
            .push(Command::KeepProducer(name, place, ticket));
    }

    fn server(&self) -> u64 {
        self.node.0
    }

    fn call(&self, connection: ConnectionKey, call: NewCall, outcome: CallOutcome) {
        if self.is_busy() {
            return outcome.end(Err(CallFailure::Busy));
        }
        self.commands.push(Command::Call(connection, call, outcome));
    }

    fn tell(&self, control: &Control, tickets: Tickets<'_>) -> BrokerAnswer<Result<(), Refusal>> {
        match serde_json::to_vec(control) {
            Ok(json) => self.commands.push(Command::Tell(json.into(), tickets())),
            Err(error) => {
                tracing::error!(%error, "a command to the other servers cannot be written");
                return BrokerAnswer::Now(Err(Refusal::Unavailable));
            }
        }
        BrokerAnswer::Later
    }

    fn is_busy(&self) -> bool {
        self.commands.bytes() > self.waiting_bytes_max / 2
    }

    fn health(&self, stall_ms: u64) -> BrokerHealth {
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let health = health.clone();
        match self.is_stalled(stall_ms) {
            true => BrokerHealth {
                is_connected: false,
                reason: Some("the thread of the broker is stalled or has ended; a closure of publish_with may block it".into()),
                ..health
            },
            false => health,
        }
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
            presence_topics: self.presence().topics(),
        }
    }
}

/// Whether a problem means that the broker refuses all publications. The other fatal ones are those of this server.
pub(super) fn is_of_broker(problem: &BrokerProblem) -> bool {
    let of_server = [Problem::DoesNotAgree, Problem::Unreadable];
    problem.is_fatal && of_server.iter().all(|it| it.name() != problem.kind)
}

/// Publications that wait for all partitions, in bytes.
pub(super) const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_asked_once_for_all_who_wait_for_a_topic() {
        let broker = ClusterBroker::new(NodeId(1), (1 << 20, 10), 1, 1 << 20);
        let (topic, rule) = ("a".into(), TopicRule::new(">"));
        let mut ticket = || Ticket::of_caller(|_| ());
        let mut prepare = || {
            let answer = broker.prepare(&topic, &rule, Prepare::default(), &mut ticket);
            assert_eq!(answer, BrokerAnswer::Later);
        };
        for _ in 0..1_000 {
            prepare();
        }
        assert_eq!(broker.commands.take().len(), 1);
        let waiting = |broker: &ClusterBroker| broker.mirrors().topics[&topic].waiting.len();
        assert_eq!(waiting(&broker), 1_000);
        // The link has looked at it: the next request sends a command again.
        if let Some(mirror) = broker.mirrors().topics.get_mut(&topic) {
            mirror.is_asked_for = false;
        }
        prepare();
        assert_eq!(broker.commands.take().len(), 1);
    }
}
