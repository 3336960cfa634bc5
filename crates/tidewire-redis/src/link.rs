//! The link of a node to its broker: one order for each topic, and no unreported loss.
//!
//! A link has three connections to one master (see [`Slot`]). Its owner opens and closes them as
//! [`Link::poll_action`] requests, hands in the bytes that arrive, and sends [`Link::output`]. All results
//! and changes are events of [`Link::poll_event`]. The link reads no clock and draws no random number: each
//! call has the time.
//!
//! One turn of the owner's loop:
//!
//! 1. [`connected`](Link::connected), [`received`](Link::received), [`closed`](Link::closed) for what the sockets did;
//!    operations and interest of the shards;
//! 2. [`tick`](Link::tick), which sends waiting commands and does the work that is due;
//! 3. [`poll_event`](Link::poll_event) and [`poll_action`](Link::poll_action) until both are empty;
//! 4. the bytes of [`output`](Link::output) to each connection that is open;
//! 5. a wait until [`deadline_ms`](Link::deadline_ms) at the latest.

mod agreement;
mod catch_up;
mod channels;
mod clock;
mod cover;
mod delivery;
mod event;
mod groups;
mod interest;
mod lease;
mod lineage;
mod options;
mod patterns;
mod presence;
mod problem;
mod producers;
mod publishing;
mod random;
mod reading;
mod refused;
mod sends;
mod slots;
mod state;

pub use agreement::{Allowed, HistoryRules, Standing};
pub use event::{
    Action, Address, Addressee, Counters, Draft, Entries, Event, Health, History, Keep, PageQuery,
    Placed, Present, Refusal,
};
pub use options::{
    Handover, Lineage, LinkOptions, Now, PARTITIONS_TERM, PROTOCOL_TERM, SERVERS_TERM, Slot,
};
pub use problem::{Problem, Problems};

use crate::connection::PubSub;
use crate::layout::{Layout, NodeId, Position};
use crate::link::agreement::Agreement;
use crate::link::groups::Groups;
use crate::link::lease::Lease;
use crate::link::presence::Presence;
use crate::link::producers::Producers;
use crate::link::random::Random;
use crate::link::state::{
    Channels, Clock, Fencing, Patterns, Publishing, Reading, Sends, Slots, Topics,
};
use crate::partition::Partition;
use crate::script::{Attempt, Hashes, OpenReply};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A node's link to its broker.
#[derive(Debug)]
pub struct Link {
    options: LinkOptions,
    node: NodeId,
    names: Names,
    /// The form of publish and subscribe that the server needs.
    pub_sub: PubSub,
    /// The names of the scripts in this form.
    hashes: Hashes,
    random: Random,
    slots: Slots,
    agreement: Agreement,
    channels: Channels,
    fencing: Fencing,
    publishing: Publishing,
    topics: Topics,
    patterns: Patterns,
    sends: Sends,
    reading: Reading,
    clock: Clock,
    lease: Lease,
    presence: Presence,
    groups: Groups,
    producers: Producers,
    events: VecDeque<Event>,
    counters: Counters,
    health: Health,
    told_health: Health,
    /// Problems that end by themselves, and when.
    timed_problems: BTreeMap<Problem, u64>,
}

/// The keys that do not depend on a topic.
#[derive(Debug)]
struct Names {
    layout: Layout,
    fence: Vec<u8>,
    writer: Vec<u8>,
    lease: Vec<u8>,
    inbox: Vec<u8>,
}

impl Link {
    /// A link that is not connected. `node` must never have been used before: draw it when the process starts.
    #[must_use]
    pub fn new(options: LinkOptions, node: NodeId, seed: u64) -> Self {
        let layout = Layout::of(&options.prefix, options.database, options.partition);
        let channels = Channels::new(options.database);
        let names = Names {
            fence: layout.fence(),
            writer: layout.writer(node),
            lease: layout.lease(node),
            inbox: layout.inbox(node),
            layout,
        };
        Self {
            agreement: Agreement::new(options.partition),
            options,
            node,
            names,
            pub_sub: PubSub::default(),
            hashes: Hashes::default(),
            random: Random::new(seed),
            slots: Slots::new(),
            channels,
            fencing: Fencing::default(),
            publishing: Publishing::default(),
            topics: Topics::default(),
            patterns: Patterns::default(),
            sends: Sends::default(),
            reading: Reading::default(),
            clock: Clock::default(),
            lease: Lease::default(),
            presence: Presence::default(),
            groups: Groups::default(),
            producers: Producers::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            health: Health::default(),
            told_health: Health::default(),
            timed_problems: BTreeMap::new(),
        }
    }

    /// The node that this link belongs to.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The user and the password of the connections that are opened from now on.
    pub fn set_login(&mut self, user: Option<String>, password: Option<String>) {
        self.options.user = user;
        self.options.password = password;
    }

    /// How the data came to the process that the next connections reach, if it is another one than before; `None` if that is
    /// not known: topics then begin new epochs there.
    pub fn set_handover(&mut self, handover: Option<Handover>) {
        self.fencing.handover = handover;
    }

    /// A connection is open.
    pub fn connected(&mut self, slot: Slot, now: Now) {
        self.handle_connected(slot, now);
    }

    /// Bytes arrived on a connection. All of them are used.
    pub fn received(&mut self, slot: Slot, bytes: &[u8], now: Now) {
        self.handle_bytes(slot, bytes, now);
    }

    /// A connection broke or could not be opened; `reason` is for the operator.
    pub fn closed(&mut self, slot: Slot, reason: &str, now: Now) {
        self.handle_closed(slot, reason, now);
    }

    /// The bytes to be sent on a connection. Remove the bytes that were sent from its front, or all.
    pub fn output(&mut self, slot: Slot) -> &mut Vec<u8> {
        self.slots.output(slot)
    }

    /// Sends waiting commands and does the work that is due. Call it once in each turn, after everything
    /// else.
    pub fn tick(&mut self, now: Now) {
        self.tick_slots(now);
        self.tick_channels(now);
        self.tick_clock(now);
        self.retry_refused(now);
        self.tick_interest(now);
        self.tick_patterns(now);
        self.tick_sends(now);
        self.tick_publishing(now);
        self.tick_lease(now);
        self.tick_presence(now);
        self.tick_groups(now);
        self.tick_producers(now);
        self.tick_reading(now);
        self.tick_problems(now);
        self.tick_health();
    }

    /// When [`Link::tick`] has to be called although nothing else happens, on the clock of [`Now::ms`].
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        let deadlines = [
            self.slots_deadline_ms(),
            self.agreement_deadline_ms(),
            self.channels_deadline_ms(),
            self.problems_deadline_ms(),
            self.clock_deadline_ms(),
            self.interest_deadline_ms(),
            self.refused_deadline_ms(),
            self.patterns_deadline_ms(),
            self.sends_deadline_ms(),
            self.publishing_deadline_ms(),
            self.reading_deadline_ms(),
            self.lease_deadline_ms(),
            self.presence_deadline_ms(),
            self.groups_deadline_ms(),
            self.producers_deadline_ms(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next connection to be opened or closed.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.slots.actions.pop_front()
    }

    /// Publishes on a topic. [`Event::Published`] with this number follows exactly once, maybe at once.
    pub fn publish(
        &mut self,
        number: u64,
        topic: &Arc<str>,
        history: History,
        draft: &Draft<'_>,
        now: Now,
    ) {
        self.enqueue(number, topic, history, draft, now);
    }

    /// Whether [`Link::publish`] would be refused as [`Refusal::Busy`] for a publication of N bytes.
    #[must_use]
    pub fn is_busy(&self, bytes: usize) -> bool {
        !self
            .publishing
            .has_room(bytes, self.options.waiting_bytes_max)
    }

    /// Reads a part of a topic with history. [`Event::Read`] with this number follows exactly once. Reads of one topic
    /// that wait at the same time are one read of Redis.
    pub fn read(&mut self, number: u64, topic: &Arc<str>, query: PageQuery, now: Now) {
        self.enqueue_read(number, topic, query, now);
    }

    /// Forgets what a topic keeps and begins a new epoch. [`Event::Forgotten`] with this number follows exactly once.
    pub fn forget(&mut self, number: u64, topic: &Arc<str>, now: Now) {
        self.enqueue_forget(number, topic, now);
    }

    /// Asks for the publications of a topic. [`Event::Live`] follows; at once if the topic is still live from before.
    pub fn want(&mut self, topic: &Arc<str>, history: History, now: Now) {
        self.add_interest(topic, history, now);
    }

    /// No subscriber is left. The topic stays live for `linger_ms`, in case a subscriber returns;
    /// publications of that time are delivered still.
    pub fn unwant(&mut self, topic: &str, now: Now) {
        self.remove_interest(topic, now);
    }

    /// Asks for the publications of all topics that match a pattern: segments separated by `.`, where `*` is any one
    /// segment and `>` at the end any number. [`Event::Watching`] follows.
    pub fn watch(&mut self, pattern: &Arc<str>) {
        self.add_pattern(pattern);
    }

    /// Nobody needs the pattern any more.
    pub fn unwatch(&mut self, pattern: &str, now: Now) {
        self.remove_pattern(pattern, now);
    }

    /// Sends a parcel, at most once. [`Event::Sent`] with this number follows exactly once.
    pub fn send(&mut self, number: u64, address: Address<'_>, parcel: &[u8], now: Now) {
        self.enqueue_parcel(number, address, parcel, now);
    }

    /// The user has sessions on this node from now on: parcels to the user arrive here.
    pub fn add_user_interest(&mut self, user: &Arc<str>) {
        self.add_user(user);
    }

    /// The user has no session on this node any more.
    pub fn remove_user_interest(&mut self, user: &str) {
        self.remove_user(user);
    }

    /// Sets the data that other nodes see of this node in the [list of nodes](Event::Nodes), from the next probe
    /// on. Any bytes, some hundred at most.
    pub fn describe(&mut self, info: &[u8]) {
        info.clone_into(&mut self.lease.info);
    }

    /// Sets which topics of this node keep history, and which limits its clients receive. All nodes should
    /// set the same; until they do, each publishes with history on every topic of which any of them keeps it.
    pub fn agree(&mut self, rules: HistoryRules, limits: &str) {
        self.agree_on(rules, limits);
    }

    /// Sets the permission of this partition, unless it has a greater one. The partitions of a node join together: the
    /// others may join when the first one is not refused, the first one may begin a cluster when no other one is refused,
    /// and the others may begin theirs and be used when the first one has joined. Without effect where there is one partition.
    pub fn allow(&mut self, allowed: Allowed) {
        self.agreement.allowed = self.agreement.allowed.max(allowed);
    }

    /// What this partition knows about the cluster.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.agreement.standing()
    }

    /// The partition that this link has.
    #[must_use]
    pub fn partition(&self) -> Partition {
        self.options.partition
    }

    /// Sets the presence of a user on a topic at this node, `None` if nothing is left of it. The link reports
    /// it to all nodes, and again when Redis has lost it. Changes of only the number of connections are
    /// reported once in a second.
    pub fn set_presence(
        &mut self,
        topic: &Arc<str>,
        user: &Arc<str>,
        present: Option<Present>,
        now: Now,
    ) {
        self.set_own(topic, user, present, now);
    }

    /// Asks who is on a topic that is [wanted](Link::want), for as long as it is. [`Event::PresenceRead`] follows, and
    /// then the changes.
    pub fn follow_presence(&mut self, topic: &Arc<str>) {
        self.follow(topic);
    }

    /// Nobody needs to know who is on a topic any more.
    pub fn unfollow_presence(&mut self, topic: &str) {
        self.unfollow(topic);
    }

    /// This node has members of a queue group. [`Event::GroupJoined`] follows. The topic is to be
    /// [wanted](Link::want) as well, so that its publications ring.
    pub fn join_group(&mut self, topic: &Arc<str>, group: &Arc<str>) {
        self.want_group(topic, group);
    }

    /// This node has no member of a queue group any more. What it has of its work goes to other nodes.
    pub fn leave_group(&mut self, topic: &Arc<str>, group: &Arc<str>) {
        self.unwant_group(topic, group);
    }

    /// Sets how many publications the members of a queue group have room for: at most N arrive with
    /// [`Event::Work`] until the next call.
    pub fn set_group_room(&mut self, topic: &Arc<str>, group: &Arc<str>, room: usize) {
        self.set_room(topic, group, room);
    }

    /// Members of a queue group have done some of its work; other work no member here can have, and other nodes get it.
    pub fn finish_work(
        &mut self,
        topic: &Arc<str>,
        group: &Arc<str>,
        done: &[Position],
        handed_back: &[Position],
    ) {
        self.end_work(topic, group, done, handed_back);
    }

    /// Opens a user's producer for a connection. [`Event::ProducerOpened`] with this number follows exactly once.
    /// `epoch`, a random number, is the epoch of its numbers if Redis does not know it.
    pub fn open_producer(
        &mut self,
        number: u64,
        name: (&str, &str),
        attempt: Option<Attempt>,
        epoch: u32,
        now: Now,
    ) {
        self.enqueue_opening(number, name, attempt, epoch, now);
    }

    /// Keeps the number of the last accepted message of a producer that was opened: `opened` with another `last`.
    /// [`Event::ProducerKept`] with this number follows exactly once, however long Redis is away. Keep the next number
    /// of the same opening only after that.
    pub fn keep_producer(&mut self, number: u64, name: (&str, &str), opened: OpenReply) {
        self.enqueue_keeping(number, name, opened);
    }

    /// Ends the lease and removes the data of this node from Redis, as far as Redis can be reached. Request
    /// nothing else after that.
    pub fn leave(&mut self, now: Now) {
        self.begin_leaving(now);
    }

    /// Whether leaving has ended.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.is_gone()
    }

    /// The owner does not read [`Slot::Subscribe`] for now, because its shards have too much to deliver. No probe and no
    /// reply is expected on it meanwhile, and no topic catches up.
    pub fn pause(&mut self) {
        self.clock.is_paused = true;
    }

    /// The owner reads again.
    pub fn resume(&mut self, now: Now) {
        self.resume_reading(now);
    }

    /// The owner does not understand a publication of this topic.
    pub fn note_unreadable(&mut self, topic: &str, why: &str, now: Now) {
        self.begin_unreadable(topic, why, now);
    }

    /// Whether the link works.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The counts of the link.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Publications that wait or are not answered, in bytes.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.publishing.bytes
    }

    /// Topics that are subscribed to or will be, lingering ones among them.
    #[must_use]
    pub fn topics(&self) -> usize {
        self.topics.len()
    }

    /// How far the clock of Redis is ahead of this node's, in milliseconds.
    #[must_use]
    pub fn ahead_ms(&self) -> i64 {
        self.clock.ahead_ms
    }

    /// A time of Redis in milliseconds since 1970 as a time of this node, by what the probes have measured.
    #[must_use]
    pub fn to_unix_ms(&self, redis_ms: u64) -> u64 {
        redis_ms.saturating_add_signed(self.clock.ahead_ms.saturating_neg())
    }
}
