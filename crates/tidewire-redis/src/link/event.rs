//! Inputs and events of a link.

use crate::layout::{NodeId, Position};
use crate::link::options::Slot;
use crate::link::problem::Problems;
use crate::record::{Category, Excluded, Priority};
use crate::script::{Member, OpenReply, Seen, Work};
use std::sync::Arc;

/// A publication, without the position and the mark that it receives.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    /// Snapshot or update.
    pub category: Category,
    /// The overload policy of lagging subscribers.
    pub priority: Priority,
    /// How long it is worth delivering, in milliseconds from now.
    pub ttl_ms: Option<u64>,
    /// The connection that does not receive it.
    pub excluded: Option<Excluded>,
    /// Further ones, as [`Excluded::write`] makes them; only with a first.
    pub also_excluded: &'a [u8],
    /// The type of the message.
    pub t: &'a str,
    /// The idempotency key: a second publication with it on this topic is a duplicate as long as it is remembered.
    pub id: Option<&'a str>,
    /// The conflation key.
    pub key: Option<&'a str>,
    /// A connection that lags does not receive it.
    pub volatile: bool,
    /// Whether the payload is binary: the base64 of the bytes in quotes.
    pub binary: bool,
    /// One JSON value.
    pub payload: &'a [u8],
}

/// How much of a topic Redis keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// The newest publications, and at most one block of the stream more (`stream-node-max-bytes`); 0 keeps none, but
    /// they are counted still.
    pub publications_max: u64,
    /// How long the topic outlives its last use, in milliseconds; 0 is for ever. When it ends, so does the epoch.
    /// Less than a minute counts as a minute. A topic that nobody has published to outlives it by ten minutes at most.
    pub idle_ms: u64,
}

/// Whether a topic keeps history: `None` has neither stream nor positions.
pub type History = Option<Keep>;

/// Which part of a topic is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageQuery {
    /// The publications after this position; `None` from the oldest that is kept, or from the newest.
    pub since: Option<Position>,
    /// At most N publications; the most is 1,000.
    pub limit: usize,
    /// From the newest to the oldest; `since` is then where it ends.
    pub newest_first: bool,
    /// Begins an epoch if the topic is new or its epoch has ended, as the first subscriber needs it.
    pub creates: History,
}

/// An event of the link, or a request to its owner. In this order for each topic: positions never go back between two
/// [`Event::Gap`]s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The end of [`Link::publish`](super::Link::publish), once for each number.
    Published {
        /// The caller's number.
        number: u64,
        /// Where it is, or why it is nowhere.
        outcome: Result<Placed, Refusal>,
    },
    /// A topic that was [wanted](super::Link::want) is complete from here on: everything after `head` is delivered.
    Live {
        /// The topic.
        topic: Arc<str>,
        /// Where the topic stands; `None` without history.
        head: Option<Position>,
    },
    /// A topic that was wanted is not live after `broker_wait_ms`. It stays wanted, and [`Event::Live`] may follow.
    Delayed {
        /// The topic.
        topic: Arc<str>,
    },
    /// The next publication of a topic.
    Delivered {
        /// The topic.
        topic: Arc<str>,
        /// Its place: one after the previous one or after the head of the last `Live` or `Gap`. `None` without history.
        position: Option<Position>,
        /// A [`Record`](crate::Record).
        record: Box<[u8]>,
    },
    /// Publications of a topic may be lost: the next one follows this head.
    Gap {
        /// The topic.
        topic: Arc<str>,
        /// Where the topic goes on; `None` without history.
        head: Option<Position>,
    },
    /// A pattern that was [watched](super::Link::watch) is complete from here on.
    Watching {
        /// The pattern.
        pattern: Arc<str>,
    },
    /// Publications that match a pattern may be lost.
    PatternGap {
        /// The pattern.
        pattern: Arc<str>,
    },
    /// A publication on a topic that is not live, or from before it was, but may match a pattern. It is
    /// reported once however many patterns it matches.
    Matched {
        /// The topic.
        topic: Arc<str>,
        /// Its place; `None` without history.
        position: Option<Position>,
        /// A [`Record`](crate::Record).
        record: Box<[u8]>,
    },
    /// The end of [`Link::read`](super::Link::read), once for each number.
    Read {
        /// The caller's number.
        number: u64,
        /// The read publications.
        outcome: Result<Entries, Refusal>,
    },
    /// The end of [`Link::forget`](super::Link::forget), once for each number.
    Forgotten {
        /// The caller's number.
        number: u64,
        /// Where the topic stands now; `None` if there was nothing.
        outcome: Result<Option<Position>, Refusal>,
    },
    /// The end of [`Link::send`](super::Link::send), once for each number.
    Sent {
        /// The caller's number.
        number: u64,
        /// How many nodes received it; with 0 a node is gone, or no node has a session of the user.
        outcome: Result<u64, Refusal>,
    },
    /// A parcel of some node, this one among them.
    Parcel {
        /// To whom it was sent.
        addressee: Addressee,
        /// The sent bytes.
        parcel: Box<[u8]>,
    },
    /// All members of a topic that is [followed](super::Link::follow_presence).
    PresenceRead {
        /// The topic.
        topic: Arc<str>,
        /// The presence of each user at each node.
        members: Vec<Member>,
    },
    /// The new presence of a user at a node, on a topic that is followed.
    PresenceChanged {
        /// The topic.
        topic: Arc<str>,
        /// The presence of the user at the node; nothing without connections.
        member: Member,
    },
    /// A change on a topic that may match a pattern and was not read yet. It is reported once however many
    /// patterns it matches.
    PresenceMatched {
        /// The topic.
        topic: Arc<str>,
        /// The part of it that users see.
        seen: Seen,
        /// The presence of the user at the node.
        member: Member,
    },
    /// Whether this node is in a queue group that it [joins](super::Link::join_group): `can_join` is false if the topic
    /// has as many groups as it may have, or its key holds something else. Then the group is to be joined again.
    GroupJoined {
        /// The topic.
        topic: Arc<str>,
        /// The name of the group.
        group: Arc<str>,
        /// This node is in.
        can_join: bool,
    },
    /// Work for the members of a queue group. It belongs to this node until the node reports that it is
    /// [done](super::Link::finish_work).
    Work {
        /// The topic.
        topic: Arc<str>,
        /// The name of the group.
        group: Arc<str>,
        /// Publications that the group has lost before them; `None` if nobody knows how many.
        lost: Option<u64>,
        /// The publications.
        works: Vec<Work>,
    },
    /// The end of [`Link::open_producer`](super::Link::open_producer), once for each number.
    ProducerOpened {
        /// The caller's number.
        number: u64,
        /// Where the producer stands; `None` if a later connection has opened it before.
        outcome: Result<Option<OpenReply>, Refusal>,
    },
    /// The end of [`Link::keep_producer`](super::Link::keep_producer), once for each number.
    ProducerKept {
        /// The caller's number.
        number: u64,
        /// Redis has the number; if not, the producer was opened again.
        is_held: bool,
    },
    /// The lease of this node had ended, or Redis has lost its memory: the node must send its data to Redis
    /// again. The link does that itself for presence and queue groups.
    Registering,
    /// The lease of another node has ended, and this node has removed its presence. Only one node is
    /// notified. If its connection breaks before the answer arrives, no node is notified.
    NodeLost(NodeId),
    /// The nodes whose lease holds, and what each [says about itself](super::Link::describe); every two seconds.
    Nodes(Vec<(NodeId, Box<[u8]>)>),
    /// The clock of Redis went forward or back by some milliseconds, if the clock of [`Now`](super::Now) has no steps.
    ClockStepped(i64),
    /// The health has changed, or its reason.
    Health(Health),
}

/// The presence of a user on a topic at one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// The user's connections to the node, at least one.
    pub connections: u64,
    /// The presence data of the user: JSON text without NUL, not empty.
    pub data: Option<Arc<str>>,
}

/// The place that a publication has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// `None` without history.
    pub position: Option<Position>,
    /// It repeats the id of an earlier one, whose place this is, and goes to nobody.
    pub is_duplicate: bool,
}

/// To whom a parcel is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address<'a> {
    /// One node.
    Node(NodeId),
    /// The nodes that have [sessions of a user](super::Link::add_user_interest).
    User(&'a str),
    /// All nodes, this one among them.
    Everyone,
}

/// To whom a parcel was sent that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addressee {
    /// This node.
    Node,
    /// A user with sessions on this node.
    User(Arc<str>),
    /// All nodes.
    Everyone,
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The link keeps as much as it may. Nothing was done; a later try may succeed.
    #[error("too much waits for the broker; try again")]
    Busy,
    /// The broker did not answer in time, or refused. Nothing was done; a later try may succeed.
    #[error("the broker is unavailable; try again")]
    Unavailable,
    /// The broker did not answer in time. It may have been done; a retry is safe only with an `id`.
    #[error("the broker did not say whether it was done; try again only with an id")]
    Unknown,
}

/// The content of a topic that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries {
    /// Where the topic stands; `None` if there is no such topic and the query did not create it.
    pub head: Option<Position>,
    /// Positions and records in the order of the query.
    pub entries: Vec<(Position, Box<[u8]>)>,
    /// Nothing is missing between `since` and the first of them, or `since` and the head if there are none.
    /// Always `false` if `since` is of another epoch, or after the head.
    pub connects: bool,
    /// The limit ended the reading before the end.
    pub has_more: bool,
}

/// A request of a link to the owner of the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Open a connection, then call [`Link::connected`](super::Link::connected), or
    /// [`Link::closed`](super::Link::closed) if it cannot be opened.
    Open(Slot),
    /// Close the connection, or stop opening it. The link expects no call about it any more.
    Close(Slot),
}

/// Whether the link works.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health {
    /// All three connections are up, the process behind them is fenced, and the last probe has returned.
    pub is_connected: bool,
    /// The version of the server, once it is known.
    pub version: Option<String>,
    /// Whether epochs outlive a restart of this server.
    pub is_durable: bool,
    /// The last thing that went wrong and has not gone right since: what, whose fault, what to do.
    pub reason: Option<String>,
    /// The advice to an operator although Redis works.
    pub warning: Option<String>,
    /// What an operator has to end, with what to do.
    pub problems: Problems,
}

/// The counts of a link since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Publications handed in.
    pub offered: u64,
    /// Those that have a place, duplicates among them.
    pub settled: u64,
    /// Those that are nowhere.
    pub refused: u64,
    /// Those of which nobody knows.
    pub unknown: u64,
    /// Batches sent, repetitions among them.
    pub batches: u64,
    /// Batches sent again after their connection broke.
    pub repeated_batches: u64,
    /// Publications delivered.
    pub delivered: u64,
    /// Publications reported because they may match a pattern.
    pub matched: u64,
    /// Publications that arrived again or late and were dropped.
    pub stale: u64,
    /// Gaps reported.
    pub gaps: u64,
    /// Reads of a stream to fill a hole.
    pub catch_ups: u64,
    /// Reads of a stream for callers; one may serve many.
    pub reads: u64,
    /// Bytes that are no record, no position or no reply that the link knows.
    pub malformed: u64,
    /// Connections that were lost or given up.
    pub disconnects: u64,
    /// Epochs begun because another process answered.
    pub lineages: u64,
    /// Probes that returned.
    pub probes: u64,
    /// Calls that sent changes of presence to Redis.
    pub presence_calls: u64,
    /// Reads of who is on a topic.
    pub presence_reads: u64,
    /// Calls about queue groups.
    pub group_calls: u64,
    /// Publications received for members of queue groups.
    pub works: u64,
    /// How often the lease of this node had ended.
    pub leases_lost: u64,
    /// Nodes whose lease has ended and whose data this node has removed.
    pub nodes_lost: u64,
    /// Subscriptions that the ACL refused.
    pub channels_refused: u64,
    /// Publications that arrived in the form of other rules: with a position where this node keeps none, or
    /// without one where it does.
    pub other_forms: u64,
    /// Publications that were not understood.
    pub unreadable: u64,
    /// Steps of the clock of Redis.
    pub clock_steps: u64,
}
