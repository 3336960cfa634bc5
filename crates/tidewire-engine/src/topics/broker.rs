//! The broker: gives publications their places and keeps histories and presence, in the memory of
//! this process or elsewhere.
//!
//! A server asks its broker for everything on which several servers would have to agree: the place
//! of a publication in its topic, the earlier publications, and the users who are present. The
//! broker hands accepted publications to the server's [`Sink`], in the order of positions.
//!
//! No call blocks. A broker that has to ask another process returns [`BrokerAnswer::Later`], and
//! settles the caller's [`Ticket`] when it has the answer. Reading has two steps, so that a new
//! subscriber misses nothing: [`Broker::prepare`] makes a topic ready, perhaps later; a topic that
//! is ready then answers at once, under its lock.

#[cfg(any(test, feature = "simulation"))]
pub(crate) mod late;
pub(crate) mod memory;
mod ticket;

pub(crate) use self::ticket::{BrokerAnswer, Done, Refusal, Ticket, TicketOutcome, Tickets};

use super::access::AccessRules;
use super::config::TopicRule;
use super::groups::EndedWork;
use super::history::{HistoryLimits, Page, Recovery};
use super::presence::{MemberView, PresenceChange};
use super::publication::{Draft, Placed, Publication, Published};
use crate::limits::owner::OwnerId;
use crate::model::call_types::{CallFailure, CallOutcome, NewCall};
use crate::model::{ConnectionKey, Outgoing, Position};
use std::sync::Arc;
use tidewire_wire::session::ProducerAttempt;

/// Delivers publications that a broker has accepted to the subscribers.
pub(crate) trait Sink {
    /// `publication` follows everything of its topic that was delivered before.
    fn deliver(&self, topic: &Arc<str>, publication: Arc<Publication>);
}

/// Keeps the state on which several servers have to agree. Every shard calls it, also at the same
/// time, and no call blocks.
pub(crate) trait Broker: Send + Sync + std::fmt::Debug {
    /// Gives a publication its place, keeps it and hands it to `sink`, or to its own sink later.
    fn publish(
        &self,
        order: &Order<'_>,
        tickets: Tickets<'_>,
        sink: &dyn Sink,
    ) -> BrokerAnswer<Result<Published, Refusal>>;

    /// Makes a topic ready for [`recover`](Self::recover) and [`page`](Self::page). It stays ready
    /// as long as there is interest in it, and for some seconds in any case.
    fn prepare(
        &self,
        topic: &Arc<str>,
        rule: &TopicRule,
        wanted: Prepare,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>>;

    /// The publications after a position; without it, the head of the topic. Calls `locked` at a
    /// moment when all of that, and nothing else, has been handed to the sink. `None` if the topic
    /// is not ready.
    fn recover(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        moment: Moment,
        missed: Missed,
        locked: &mut dyn FnMut(),
    ) -> Option<Recovery<Arc<Publication>>>;

    /// A part of the history: after `since`, or from the end if `newest_first`. `None` if the topic
    /// is not ready.
    fn page(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        now_ms: u64,
        query: PageQuery,
    ) -> Option<Page<Arc<Publication>>>;

    /// Forgets the history of a topic; its epoch changes. Returns whether there was anything to forget.
    fn forget(&self, topic: &Arc<str>, tickets: Tickets<'_>)
    -> BrokerAnswer<Result<bool, Refusal>>;

    /// This server has its first subscriber of a topic. Called under the topic's lock.
    fn add_interest(&self, topic: &Arc<str>, rule: &TopicRule);

    /// This server has lost its last subscriber of a topic. Called under the topic's lock.
    fn remove_interest(&self, topic: &str);

    /// Removes publications that are too old, for some topics at a time.
    fn sweep(&self, now_ms: u64, limits_of: &dyn Fn(&str) -> HistoryLimits);

    /// A connection of a user joins a topic, or gives other presence data.
    fn join(
        &self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
        data: Option<Arc<str>>,
    ) -> PresenceChange;

    /// A connection of a user leaves a topic.
    fn leave(&self, topic: &Arc<str>, who: &Arc<str>, connection: ConnectionKey) -> PresenceChange;

    /// The presence on a topic: users, connections, and up to `limit` of them.
    fn present(&self, topic: &str, limit: usize) -> PresenceView;

    /// This server has its first subscriber of a pattern. Called under the lock of patterns.
    fn add_pattern(&self, pattern: &str) {
        let _ = pattern;
    }

    /// This server has lost its last subscriber of a pattern. Called under the lock of patterns.
    fn remove_pattern(&self, pattern: &str) {
        let _ = pattern;
    }

    /// Adds this server to a queue group, for some seconds if no member joins.
    fn prepare_group(
        &self,
        topic: &Arc<str>,
        group: &Arc<str>,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>> {
        let (_, _, _) = (topic, group, tickets);
        BrokerAnswer::Now(Ok(()))
    }

    /// Whether a queue group that was prepared may have members: the topic has few enough groups.
    fn may_join_group(&self, topic: &Arc<str>, group: &Arc<str>) -> bool {
        let (_, _) = (topic, group);
        true
    }

    /// The members of a queue group on this server are others, or have done something. Called under
    /// the topic's lock.
    fn change_group(&self, topic: &Arc<str>, group: &Arc<str>, ended: EndedWork) {
        let (_, _, _) = (topic, group, ended);
    }

    /// A session of a user has begun on this server.
    fn add_user(&self, user: &Arc<str>) {
        let _ = user;
    }

    /// A session of a user has ended on this server.
    fn remove_user(&self, user: &Arc<str>) {
        let _ = user;
    }

    /// Whether it remembers producers for several servers.
    fn shares_producers(&self) -> bool {
        false
    }

    /// Opens a producer for a connection.
    fn open_producer(&self, opening: ProducerOpening, ticket: Ticket) {
        let (_, _) = (opening, ticket);
    }

    /// Remembers the number of a producer's last accepted message, however long the broker is away.
    fn keep_producer(&self, name: ProducerName, place: ProducerPlace, ticket: Option<Ticket>) {
        let (_, _, _) = (name, place, ticket);
    }

    /// This server in the keys of its connections: 48 bits, 0 if no other server shares the broker.
    fn server(&self) -> u64 {
        0
    }

    /// Asks a client of another server.
    fn call(&self, connection: ConnectionKey, call: NewCall, outcome: CallOutcome) {
        let _ = (connection, call);
        outcome.end(Err(CallFailure::Closed));
    }

    /// Sends to sessions on the other servers, at most once.
    fn send(&self, audience: Audience<'_>, sending: &Sending<'_>) {
        let (_, _) = (audience, sending);
    }

    /// Sends a command to the other servers. The command survives an outage of the broker.
    fn tell(&self, control: &Control, tickets: Tickets<'_>) -> BrokerAnswer<Result<(), Refusal>> {
        let (_, _) = (control, tickets);
        BrokerAnswer::Now(Ok(()))
    }

    /// Whether it has more to do than it should: publishers wait.
    fn is_busy(&self) -> bool;

    /// Returns its health. Its thread counts as stalled if a turn lasts longer than `stall_ms`.
    fn health(&self, stall_ms: u64) -> BrokerHealth {
        let _ = stall_ms;
        BrokerHealth::default()
    }

    /// The server stops: open questions are answered with an error.
    fn stop(&self) {}

    /// Its present usage.
    fn usage(&self) -> BrokerUsage;
}

/// A producer: a user, and the id that the user chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProducerName {
    pub(crate) user: Arc<str>,
    pub(crate) id: Box<str>,
}

/// A connection that goes on as a producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProducerOpening {
    pub(crate) name: ProducerName,
    /// Which of the client's connections it is, if the client states it.
    pub(crate) attempt: Option<ProducerAttempt>,
    /// The epoch of its numbers if the broker does not know the producer.
    pub(crate) random_epoch: u32,
}

/// Where a producer stands that several servers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerPlace {
    /// Of its numbers.
    pub(crate) epoch: u32,
    /// The number of its last accepted message.
    pub(crate) last: u64,
    /// Which opening it is: a later one is greater.
    pub(crate) opening: u64,
}

/// The receivers on the other servers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Audience<'a> {
    User(&'a Arc<str>),
    Everyone,
    Connection(ConnectionKey),
}

/// The content for them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sending<'a> {
    /// A publication of no topic, and the time in milliseconds since 1970.
    Publication(&'a Draft<'a>, u64),
    /// A message as it is.
    Verbatim(&'a Outgoing),
    /// One of the protocol's own messages, in JSON.
    Event(&'a [u8]),
}

/// A command to all servers for the sessions of a user, or to the server of a connection.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub(crate) enum Control {
    Close {
        user: String,
        code: u16,
        reason: String,
    },
    Subscribe {
        user: String,
        topic: String,
    },
    Unsubscribe {
        user: String,
        topic: String,
    },
    /// Closes all sessions of this server. Only this server creates it; it is never received.
    #[serde(skip)]
    CloseAll {
        code: u16,
        reason: String,
    },
    /// Notifies the clients of this server that the broker has gone away or is back. Only this
    /// server creates it; it is never received.
    #[serde(skip)]
    TellBroker {
        is_away: bool,
    },
    CloseConnection {
        connection: ConnectionKey,
        code: u16,
        reason: String,
    },
    SubscribeConnection {
        connection: ConnectionKey,
        topic: String,
    },
    UnsubscribeConnection {
        connection: ConnectionKey,
        topic: String,
    },
    SetAccess {
        connection: ConnectionKey,
        rules: AccessRules,
    },
}

/// A publication to be placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order<'a> {
    pub(crate) topic: &'a Arc<str>,
    pub(crate) rule: &'a TopicRule,
    pub(crate) draft: &'a Draft<'a>,
    pub(crate) moment: Moment,
}

impl Order<'_> {
    /// The publication at its place. On a topic with history all have the topic's priority.
    pub(crate) fn make(&self, position: Option<Position>) -> Publication {
        let priority = match self.rule.history {
            Some(_) => self.rule.priority,
            None => self.draft.priority.unwrap_or(self.rule.priority),
        };
        self.draft.place(&Placed {
            topic: Some(self.topic),
            position,
            priority,
            unix_ms: self.moment.now_ms,
        })
    }

    /// Its size in a history, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let draft = self.draft;
        let texts = [Some(draft.t), draft.id, draft.key, Some(&**self.topic)];
        let text_bytes: usize = texts.iter().flatten().map(|text| text.len()).sum();
        draft.payload.len() + text_bytes + KEPT_BYTES
    }
}

/// For what a topic is to be ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Prepare {
    /// A recovery from here.
    pub(crate) since: Option<Position>,
    /// This many of the newest publications; all that are kept with [`u64::MAX`].
    pub(crate) newest: u64,
}

/// The time, a number for an epoch that may begin, and who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Milliseconds since 1970.
    pub(crate) now_ms: u64,
    pub(crate) random_epoch: u32,
    /// The owner whose share of the memory a new topic uses.
    pub(crate) owner: OwnerId,
}

/// The past that a subscriber asks for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Missed {
    pub(crate) since: Option<Position>,
    /// The newest publication, where not everything can be given.
    pub(crate) or_newest: bool,
    /// At most N publications, the oldest of them.
    pub(crate) limit: usize,
}

/// Which part of a history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageQuery {
    pub(crate) since: Option<u64>,
    pub(crate) limit: usize,
    pub(crate) newest_first: bool,
}

/// The presence on a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PresenceView {
    pub(crate) users: usize,
    pub(crate) connections: usize,
    pub(crate) members: Vec<MemberView>,
}

/// The usage of a broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BrokerUsage {
    pub(crate) history_bytes: usize,
    pub(crate) history_topics: usize,
    pub(crate) histories_evicted: u64,
    pub(crate) presence_topics: usize,
}

/// The health of the broker that servers share.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BrokerHealth {
    /// It answers: the reply to the last probe, one each second, has arrived.
    pub is_connected: bool,
    /// Its version, once it is known.
    pub version: Option<String>,
    /// Why it does not answer: the problem and the remedy.
    pub reason: Option<String>,
    /// The advice to an operator although the broker works.
    pub warning: Option<String>,
    /// How long it has not answered, in milliseconds; 0 if it does, or never has.
    pub away_ms: u64,
    /// The problems of a broker that answers. Each lasts until it is ended.
    pub problems: Vec<BrokerProblem>,
    /// Its partitions in their order; empty if it has one. Everything above but `problems` is that of the first one.
    pub partitions: Vec<BrokerPartition>,
    /// The servers that share it, this one among them, as of some seconds ago.
    pub nodes: Vec<ClusterNode>,
    /// The counts since the start of the server, by name.
    #[serde(serialize_with = "as_map")]
    pub counts: Vec<(&'static str, u64)>,
}

/// A problem of a broker that answers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BrokerProblem {
    /// The kind, such as `channels_refused`: one of those in docs/scale-out.md.
    pub kind: &'static str,
    /// It should receive no clients until that has ended: `/ready` fails.
    pub is_fatal: bool,
    /// The problem and the remedy.
    pub text: String,
}

/// The kind of the problem that a partition, but for the first, does not answer.
pub(crate) const PARTITION_AWAY: &str = "partition_away";

/// A part of the topics, and the broker that has it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BrokerPartition {
    /// From 0.
    pub partition: usize,
    /// The broker that has it, as it was configured, without a password.
    pub address: String,
    /// It answers. While it does not, its topics wait, and nothing else does.
    pub is_connected: bool,
    /// Why it does not answer: the problem and the remedy.
    pub reason: Option<String>,
    /// Why it answers and refuses all publications, with the remedy.
    pub problem: Option<String>,
    /// How long it has not answered, in milliseconds; 0 if it does, or never has.
    pub away_ms: u64,
}

impl BrokerPartition {
    /// Whether its topics wait.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        !self.is_connected || self.problem.is_some()
    }
}

/// A server of a cluster, as it reports itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ClusterNode {
    /// Names this run of the server: 16 hexadecimal digits.
    pub node: String,
    /// Where it listens.
    pub address: String,
    /// Its version.
    pub version: String,
    /// Its connections.
    pub connections: u64,
    /// Shared topics that it has subscribers of, or had some seconds ago.
    pub topics: u64,
    /// Publications of its clients since its start.
    pub publications_received: u64,
    /// The same for each second, of the last one.
    pub publications_per_s: u64,
}

fn as_map<S: serde::Serializer>(
    counts: &[(&'static str, u64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().copied())
}

/// One that is always there.
impl Default for BrokerHealth {
    fn default() -> Self {
        Self {
            is_connected: true,
            version: None,
            reason: None,
            warning: None,
            away_ms: 0,
            problems: Vec::new(),
            partitions: Vec::new(),
            nodes: Vec::new(),
            counts: Vec::new(),
        }
    }
}

impl BrokerUsage {
    /// The usage of two brokers together.
    pub(crate) fn sum(self, other: &Self) -> Self {
        Self {
            history_bytes: self.history_bytes + other.history_bytes,
            history_topics: self.history_topics + other.history_topics,
            histories_evicted: self.histories_evicted + other.histories_evicted,
            presence_topics: self.presence_topics + other.presence_topics,
        }
    }
}

/// The size of a publication in a history besides its payload, in bytes.
const KEPT_BYTES: usize = 288;
