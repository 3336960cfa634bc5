//! State of a link: data only.

use crate::connection::Connection;
use crate::layout::{NodeId, Position};
use crate::link::cover::Cover;
use crate::link::event::{Action, History, PageQuery};
use crate::link::options::{Handover, Slot};
use crate::record::Mark;
use crate::resp::{Frames, Limits};
use crate::script::{Attempt, Fence, OpenReply};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// The purpose of a reply.
#[derive(Debug)]
pub(super) enum Tag {
    /// Whether this node belongs to the cluster.
    Agree,
    /// The fence.
    Fence,
    /// A parcel, by the caller's number.
    Send(u64),
    /// A batch, by its number.
    Publish(u64),
    /// The lease, and when it was sent.
    Lease { sent_unix_ms: u64, sent_ms: u64 },
    /// The end of a group of `SUBSCRIBE`.
    Ping,
    /// Topics to be subscribed to. The tag is returned only if the ACL refuses the command.
    Subscribe(Vec<TopicId>),
    /// Channels of the node, of users or of everyone, in the same way.
    Listen(Vec<Vec<u8>>),
    /// Globs, in the same way.
    Watch,
    /// Where these topics stand.
    Tails(Vec<Round>),
    /// The publications after the head of a topic.
    CatchUp(Round),
    /// A new epoch of a topic whose publications were lost.
    Renew(Round),
    /// Changes of presence, by the number of the call.
    Presence(u64),
    /// The members of a topic, and the round in which they were requested.
    Roster(Arc<str>, u64),
    /// A producer to be opened.
    OpenProducer(Opening),
    /// Numbers of producers.
    KeepProducers(Vec<Keeping>),
    /// A call about a queue group.
    Group((Arc<str>, Arc<str>)),
    /// The entries of this node in Redis.
    OwnScan,
    /// The end of a node.
    Sweep(NodeId),
    /// The nodes.
    Nodes,
    /// Reads of one topic.
    Page(Arc<str>, Vec<ReadOp>),
    /// A new epoch because a caller wants it.
    Forget(ForgetOp),
}

/// The connections.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) each: [SlotState; 3],
    pub(super) actions: VecDeque<Action>,
    /// Given out for a slot that is closed.
    nothing: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct SlotState {
    pub(super) phase: Phase,
    pub(super) frames: Frames,
    pub(super) failures: u32,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Closed until then.
    Waiting { until_ms: u64 },
    /// The owner opens it; until then.
    Opening { deadline_ms: u64 },
    /// Open.
    Up(Box<Connection<Tag>>),
}

impl Slots {
    pub(super) fn new() -> Self {
        let each = [(); 3].map(|()| SlotState {
            phase: Phase::Waiting { until_ms: 0 },
            frames: Frames::new(Limits::default()),
            failures: 0,
        });
        Self {
            each,
            actions: VecDeque::new(),
            nothing: Vec::new(),
        }
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Connection<Tag>> {
        match &self.each[slot.index()].phase {
            Phase::Up(connection) => Some(connection),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Connection<Tag>> {
        match &mut self.each[slot.index()].phase {
            Phase::Up(connection) => Some(connection),
            _ => None,
        }
    }

    /// The connection, if its opening is done.
    pub(super) fn ready(&mut self, slot: Slot) -> Option<&mut Connection<Tag>> {
        self.get_mut(slot)
            .filter(|connection| connection.is_ready())
    }

    pub(super) fn is_ready(&self, slot: Slot) -> bool {
        self.get(slot).is_some_and(Connection::is_ready)
    }

    pub(super) fn output(&mut self, slot: Slot) -> &mut Vec<u8> {
        match &mut self.each[slot.index()].phase {
            Phase::Up(connection) => &mut connection.output,
            _ => &mut self.nothing,
        }
    }
}

/// Which process the epochs belong to.
#[derive(Debug, Default)]
pub(super) struct Fencing {
    /// The result of the last fence.
    pub(super) fence: Option<Fence>,
    /// It holds for the present connection for commands.
    pub(super) is_fenced: bool,
    /// A fence is on its way.
    pub(super) is_asking: bool,
    /// The fence was answered, and its epoch begins then.
    pub(super) begins_ms: Option<u64>,
    /// The greatest epoch that was seen.
    pub(super) known_epoch: u32,
    /// How many connections for commands there have been.
    pub(super) generation: u64,
    /// The way of the data to the present process, if the owner of the link knows it.
    pub(super) handover: Option<Handover>,
}

/// Publications that wait, and those without an answer.
#[derive(Debug, Default)]
pub(super) struct Publishing {
    /// By their sequence.
    pub(super) queue: VecDeque<Item>,
    /// By their number.
    pub(super) flight: VecDeque<Batch>,
    pub(super) bytes: usize,
    pub(super) next_sequence: u64,
    /// The number of the last batch that was made.
    pub(super) last_batch: u64,
    /// The greatest number that Redis certainly has.
    pub(super) settled: u64,
    /// Redis knows this writer.
    pub(super) is_known: bool,
    /// Nothing is sent before.
    pub(super) hold_until_ms: u64,
    /// No new batch before those in flight are answered.
    pub(super) is_draining: bool,
    /// The ACL refused the last batch.
    pub(super) is_denied: bool,
    /// The known heads of topics that were published to.
    pub(super) epochs: HashMap<Arc<str>, KnownEpoch>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct KnownEpoch {
    pub(super) epoch: u32,
    /// When the expiry of its stream was last set.
    pub(super) kept_ms: u64,
}

impl Publishing {
    pub(super) fn has_room(&self, bytes: usize, bytes_max: usize) -> bool {
        self.bytes.saturating_add(bytes) <= bytes_max
    }
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) number: u64,
    pub(super) sequence: u64,
    pub(super) topic: Arc<str>,
    pub(super) stream: Vec<u8>,
    pub(super) history: History,
    pub(super) id_key: Option<Vec<u8>>,
    pub(super) record: Vec<u8>,
    pub(super) give_up_ms: u64,
    /// It was sent, and the connection broke before the answer.
    pub(super) is_doubtful: bool,
    /// The outcome was reported to the caller.
    pub(super) is_told: bool,
}

impl Item {
    pub(super) fn bytes(&self) -> usize {
        self.record.len() + self.stream.len() + size_of::<Self>()
    }
}

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) number: u64,
    /// The batch that must have been done before it. It stays when the batch is sent again: if the
    /// one before it was not done and waits again, this one must wait behind it.
    pub(super) after: u64,
    pub(super) items: Vec<Item>,
    /// On the present connection.
    pub(super) is_sent: bool,
    /// Sent before on a connection that broke before the answer.
    pub(super) is_doubtful: bool,
}

/// Never used for two topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TopicId(pub(super) u64);

/// A topic, and how often it had begun to synchronise when something was sent for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) topic: TopicId,
    pub(super) round: u64,
}

/// The topics with interest.
#[derive(Debug, Default)]
pub(super) struct Topics {
    pub(super) ids: HashMap<Arc<str>, TopicId>,
    /// In an order that does not depend on chance.
    pub(super) all: BTreeMap<TopicId, Topic>,
    pub(super) last_id: u64,
    pub(super) to_subscribe: VecDeque<TopicId>,
    pub(super) to_unsubscribe: Vec<Vec<u8>>,
    /// Topics whose group was refused, each to be subscribed to alone.
    pub(super) to_subscribe_alone: VecDeque<TopicId>,
    /// Topics that the ACL refuses, and when each is tried again.
    pub(super) refused: VecDeque<(u64, TopicId)>,
    pub(super) to_sync: VecDeque<Round>,
    pub(super) to_catch_up: VecDeque<Round>,
    pub(super) to_renew: VecDeque<(Round, u32)>,
    /// When topics without a subscriber end.
    pub(super) lingering: VecDeque<(u64, TopicId)>,
    /// When wanted topics are reported as late.
    pub(super) awaited: VecDeque<(u64, TopicId)>,
    /// When topics are compared with their streams.
    pub(super) checks: VecDeque<(u64, TopicId)>,
}

impl Topics {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    pub(super) stream: Vec<u8>,
    pub(super) history: History,
    pub(super) progress: Progress,
    pub(super) is_wanted: bool,
    /// [`Event::Live`](super::Event::Live) has to follow the last `want`.
    pub(super) owes_live: bool,
    /// It followed once.
    pub(super) is_told_live: bool,
    pub(super) unwanted_ms: u64,
    pub(super) head: Option<Position>,
    /// The first known head of the topic: later publications are delivered.
    pub(super) live_from: Option<Position>,
    /// Of the publication at the head, if it is known.
    pub(super) mark: Option<Mark>,
    pub(super) ahead: Ahead,
    /// Changes whenever the answers to earlier requests to Redis have no meaning any more.
    pub(super) round: u64,
    pub(super) active_ms: u64,
}

/// How far a topic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// `SUBSCRIBE` is not confirmed.
    Subscribing,
    /// Redis has not reported the last position of the topic.
    Syncing,
    /// Every publication after the head arrives as a push.
    Live,
    /// The publications after the head are read from the stream.
    CatchingUp,
}

/// Publications that arrived before earlier ones of the same topic.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) records: VecDeque<(Position, Box<[u8]>)>,
    pub(super) bytes: usize,
    /// Some were dropped.
    pub(super) has_overflowed: bool,
}

/// The patterns that are watched.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    /// By their text, in an order that does not depend on chance; whether
    /// [`Event::Watching`](super::Event::Watching) was reported.
    pub(super) all: BTreeMap<Arc<str>, bool>,
    /// Those without a glob that Redis has confirmed.
    pub(super) unconfirmed: BTreeSet<Arc<str>>,
    /// The cover of the patterns, from which the wanted globs follow.
    pub(super) cover: Cover,
    /// The globs that were sent on the present connection.
    pub(super) globs: BTreeMap<Vec<u8>, Glob>,
    /// The cover is another than the globs.
    pub(super) has_changed: bool,
    /// When the cover is made anew, because patterns are gone.
    pub(super) renew_ms: Option<u64>,
    /// The publication that was reported last.
    pub(super) last: Option<Mark>,
    /// The ACL allows no glob but its own rule.
    pub(super) reach: GlobReach,
    /// The ACL refuses every glob; they are tried again then.
    pub(super) refused_until_ms: Option<u64>,
}

/// Which globs the ACL lets a node subscribe to. Redis compares the glob of `PSUBSCRIBE` with the text of a rule
/// literally, so `&tw:*` allows the glob `tw:*` and nothing more exact.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum GlobReach {
    /// Those of the patterns.
    #[default]
    Exact,
    /// The one of everything below the prefix.
    Prefix,
}

#[derive(Debug)]
pub(super) struct Glob {
    /// The text of the cover that it was made for.
    pub(super) text: Box<str>,
    pub(super) is_confirmed: bool,
}

/// Parcels that wait, and users with sessions on this node.
#[derive(Debug, Default)]
pub(super) struct Sends {
    pub(super) waiting: VecDeque<Parcel>,
    pub(super) bytes: usize,
    pub(super) users: BTreeSet<Arc<str>>,
    /// Channels to be subscribed to (`true`) or not any more, in their order.
    pub(super) changes: Vec<(bool, Vec<u8>)>,
    /// Those whose group was refused, to be subscribed to one by one.
    pub(super) alone: Vec<(bool, Vec<u8>)>,
    /// The ACL refuses some of them on the present connection.
    pub(super) is_refused: bool,
}

#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) number: u64,
    pub(super) channel: Vec<u8>,
    pub(super) message: Vec<u8>,
    pub(super) give_up_ms: u64,
}

impl Parcel {
    pub(super) fn bytes(&self) -> usize {
        self.message.len() + self.channel.len() + size_of::<Self>()
    }
}

/// Reads for callers.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// By their sequence, which is the order of time.
    pub(super) waiting: BTreeMap<u64, ReadOp>,
    pub(super) topics: HashMap<Arc<str>, TopicReads>,
    /// Topics with waiting reads and none on its way.
    pub(super) ready: VecDeque<Arc<str>>,
    pub(super) forgets: VecDeque<ForgetOp>,
    pub(super) next_sequence: u64,
    /// Reads that wait or are on their way.
    pub(super) count: usize,
    /// Nothing is sent before.
    pub(super) hold_until_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct TopicReads {
    pub(super) waiting: BTreeSet<u64>,
    pub(super) is_busy: bool,
}

#[derive(Debug)]
pub(super) struct ReadOp {
    pub(super) number: u64,
    pub(super) sequence: u64,
    pub(super) topic: Arc<str>,
    pub(super) query: PageQuery,
    pub(super) give_up_ms: u64,
}

#[derive(Debug)]
pub(super) struct ForgetOp {
    pub(super) number: u64,
    pub(super) topic: Arc<str>,
    pub(super) give_up_ms: u64,
    pub(super) is_doubtful: bool,
}

/// The probe, and the clock of Redis.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// How far Redis is ahead of this node, in milliseconds.
    pub(super) ahead_ms: i64,
    /// The owner does not read the subscriptions.
    pub(super) is_paused: bool,
    pub(super) next_probe_ms: u64,
    pub(super) probe: u64,
    /// When the last probe must have returned.
    pub(super) expected_ms: Option<u64>,
    /// The channel of the node is subscribed to.
    pub(super) has_inbox: bool,
    /// The last probe has returned, on the present connections.
    pub(super) is_proven: bool,
}

/// What a node knows of the names of channels.
#[derive(Debug, Default)]
pub(super) struct Channels {
    /// It is not known yet: nothing is subscribed to, as the shared names bring what other databases publish.
    pub(super) is_unknown: bool,
    /// A connection for subscriptions waits for it.
    pub(super) waits: bool,
    /// The shared names are left then.
    pub(super) leaves_ms: Option<u64>,
    /// The last answer was that they are shared.
    pub(super) were_shared: bool,
}

impl Channels {
    pub(super) fn new(database: u32) -> Self {
        Self {
            is_unknown: database != 0,
            ..Self::default()
        }
    }

    pub(super) fn is_known(&self) -> bool {
        !self.is_unknown
    }
}

/// A producer that is to be opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) number: u64,
    pub(super) key: Vec<u8>,
    pub(super) epoch: u32,
    pub(super) attempt: Option<Attempt>,
    pub(super) asked_ms: u64,
    pub(super) give_up_ms: u64,
}

/// A number of a producer that is to be kept.
#[derive(Debug)]
pub(super) struct Keeping {
    /// Of the calls that want to know.
    pub(super) numbers: Vec<u64>,
    pub(super) key: Vec<u8>,
    pub(super) opened: OpenReply,
}
