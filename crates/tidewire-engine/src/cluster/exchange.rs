//! Exchange between the shards and the link, without sockets: commands in, deliveries and
//! answers out.

mod agreement;
mod away;
mod broker_health;
mod complaints;
mod control;
mod filling;
mod nodes;
mod parcels;
mod parts;
mod presence_changes;
mod remembered_producers;
mod remote_calls;
mod remote_groups;

use self::agreement::Agreement;
use self::away::Away;
use self::complaints::{Complaints, Outage};
pub(crate) use self::control::CONTROL;
use self::control::Orders;
use self::filling::Fillings;
use self::nodes::Nodes;
use self::parts::{Asked, Interest, Life, Partition};
use self::remote_calls::OpenCalls;
use self::remote_groups::GroupsInUse;
use crate::cluster::Neighbour;
use crate::cluster::commands::{Command, OwnedOrder};
use crate::cluster::convert;
use crate::cluster::mirror::refuse;
use crate::cluster::partitions::Siblings;
use crate::cluster::shared_broker::ClusterBroker;
use crate::topics::broker::{Done, Refusal, Sink, Ticket};
use crate::topics::hub::Hub;
use crate::topics::name::is_pattern;
use crate::topics::outlet::Origin;
use crate::topics::publication::Publication;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use tidewire_redis as redis;
use tidewire_redis::{Allowed, Event, Health, Keep, Link, Now};
use tidewire_wire::session::{GapReason, PublicationGap, write_gap_event};
use tidewire_wire::uuid::{Uuid, uuid_v7};

/// This server, as the others need it.
struct Server(Box<dyn Neighbour>);

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Server(..)")
    }
}

/// The link of this server and what waits for it.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) link: Link,
    broker: Arc<ClusterBroker>,
    /// The other partitions of this server.
    partition: Partition,
    hub: Weak<Hub>,
    server: Option<Server>,
    orders: Orders,
    /// Requests to the broker that are not answered.
    asked: Asked,
    /// The topics that subscribers wait for, and those that nobody needs.
    interest: Interest,
    /// The health of the broker, and the end of this link.
    life: Life,
    nodes: Nodes,
    calls: OpenCalls,
    groups: GroupsInUse,
    complaints: Complaints,
    agreement: Agreement,
}

impl Exchange {
    pub(crate) fn new(
        link: Link,
        (broker, siblings): (Arc<ClusterBroker>, Arc<Siblings>),
        wait_ms: u64,
        lost_close_ms: Option<u64>,
    ) -> Self {
        Self {
            link,
            broker,
            partition: Partition {
                siblings,
                allowed: Allowed::Nothing,
                looked_ms: 0,
            },
            hub: Weak::new(),
            server: None,
            orders: Orders::default(),
            asked: Asked {
                told: HashMap::new(),
                number: 0,
                publications: HashMap::new(),
                forgotten: HashMap::new(),
                producers: HashMap::new(),
            },
            interest: Interest {
                fillings: Fillings::default(),
                awaited: VecDeque::new(),
                idle: VecDeque::new(),
                wait_ms,
            },
            life: Life {
                health: Health::default(),
                outage: Outage::before_first_answer(),
                told_ms: 0,
                leaves_ms: None,
                away: Away::new(lost_close_ms),
            },
            nodes: Nodes::default(),
            calls: OpenCalls::default(),
            groups: GroupsInUse::default(),
            complaints: Complaints::default(),
            agreement: Agreement::default(),
        }
    }

    /// Delivers to this hub from now on, and asks `server` for what other servers want.
    pub(crate) fn attach(&mut self, hub: Weak<Hub>, server: Box<dyn Neighbour>) {
        self.hub = hub;
        self.server = Some(Server(server));
    }

    /// Whether the link is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.broker.commands.is_stopped()
    }

    /// Whether this server is gone from the cluster, or the broker has not answered in time. It
    /// leaves with the first call.
    pub(crate) fn has_left(&mut self, now: Now) -> bool {
        let until_ms = *self.life.leaves_ms.get_or_insert_with(|| {
            self.link.leave(now);
            now.ms + LEAVE_MS
        });
        self.link.has_left() || until_ms <= now.ms
    }

    /// Executes the commands of the shards and the due tasks; delivers publications and answers of the
    /// broker. Once in a turn, after everything else.
    pub(crate) fn turn(&mut self, now: Now) {
        self.look_at_siblings(now);
        self.agree(now);
        self.tick_orders(now);
        // Before the commands: members whose work has arrived have no room for as much again.
        self.handle_events(now);
        for command in self.broker.commands.take() {
            self.obey(command, now);
        }
        self.describe(now);
        // The handling of events makes new requests. The next tick sends them in the same turn.
        for _ in 0..TICKS_PER_TURN {
            self.link.tick(now);
            self.handle_events(now);
        }
        self.end_waiting(now);
        self.end_calls(now);
        self.tick_groups(now);
        self.forget_idle(now);
        if now.ms >= self.life.told_ms + TELL_MS {
            self.life.told_ms = now.ms;
            self.note_away(now);
            self.tell_health();
            self.tell_clients(now);
            self.end_cut_off(now);
            self.complain(now);
        }
    }

    /// When there is something to do although nothing happens, on the clock of [`Now::ms`].
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        let first = |queue: &VecDeque<(u64, Arc<str>)>| queue.front().map(|(at_ms, _)| *at_ms);
        let looks_ms =
            (self.partition.allowed != Allowed::Use).then_some(self.partition.looked_ms + LOOK_MS);
        [
            looks_ms,
            self.link.deadline_ms(),
            first(&self.interest.awaited),
            first(&self.interest.idle),
            self.life.leaves_ms,
            self.calls.deadline_ms(),
            self.orders.deadline_ms(),
            self.groups.deadline_ms(),
            // It is checked together with the next report of the health, not earlier.
            self.life
                .away
                .deadline_ms()
                .map(|at_ms| at_ms.max(self.life.told_ms + TELL_MS)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The partitions of a server join its cluster together.
    fn look_at_siblings(&mut self, now: Now) {
        self.partition.looked_ms = now.ms;
        let partition = self.link.partition();
        let topics = self.link.topics() as u64;
        self.partition
            .siblings
            .note(partition, self.link.standing(), topics);
        if self.partition.allowed != Allowed::Use {
            self.partition.allowed = self.partition.siblings.allowed(partition);
            self.link.allow(self.partition.allowed);
        }
    }

    /// Whether the shards have more to deliver than they should.
    pub(crate) fn are_shards_busy(&self) -> bool {
        let hub = self.hub.upgrade();
        hub.is_some_and(|hub| hub.is_busy(Origin::Outside))
    }

    fn next_number(&mut self) -> u64 {
        self.asked.number += 1;
        self.asked.number
    }

    fn obey(&mut self, command: Command, now: Now) {
        match command {
            Command::Publish(order, ticket) => self.publish(&order, ticket, now),
            Command::Prepare(topic) => self.prepare(&topic, now),
            Command::AddInterest(topic) => {
                self.set_interest(&topic, true);
                self.want(&topic, now);
            }
            Command::RemoveInterest(topic) => {
                self.set_interest(&topic, false);
                self.idle_from(topic, now);
            }
            Command::AddUser(user) => self.link.add_user_interest(&user),
            Command::RemoveUser(user) => self.link.remove_user_interest(&user),
            Command::Presence(topic, user, present) => {
                self.link.set_presence(&topic, &user, present, now);
            }
            Command::JoinGroup(key, ticket) => self.join_group(key, ticket, now),
            Command::ChangeGroup(key, ended) => self.change_group(&key, &ended),
            Command::Send(receiver, parcel) => self.send(&receiver, &parcel, now),
            Command::Call(connection, call, outcome) => self.ask(connection, call, outcome, now),
            Command::Tell(json, ticket) => self.tell(&json, ticket, now),
            Command::OpenProducer(opening, ticket) => self.open_producer(&opening, ticket, now),
            Command::KeepProducer(name, place, ticket) => self.keep_producer(&name, place, ticket),
            Command::Forget(topic, ticket) => {
                let number = self.next_number();
                self.link.forget(number, &topic, now);
                self.asked.forgotten.insert(number, (topic, ticket));
            }
        }
    }

    fn publish(&mut self, order: &OwnedOrder, ticket: Ticket, now: Now) {
        let number = self.next_number();
        self.asked
            .publications
            .insert(number, (ticket, order.bytes()));
        let mut also = Vec::new();
        let draft = order.link_draft(self.link.node(), &mut also);
        let history = order.keeps_history.then(|| keep(order.publications_max));
        self.link
            .publish(number, &order.topic, history, &draft, now);
    }

    /// Somebody waits for a topic: it is made live, and read if it is.
    fn prepare(&mut self, topic: &Arc<str>, now: Now) {
        let until_ms = now.ms + self.interest.wait_ms;
        let (mut is_awaited, mut is_filling) = (false, false);
        if let Some(mirror) = self.broker.mirrors().topics.get_mut(topic) {
            mirror.is_asked_for = false;
            // New entries since the last call are at the end.
            let new = mirror.waiting.iter_mut().rev();
            for waiting in new.take_while(|waiting| waiting.until_ms.is_none()) {
                waiting.until_ms = Some(until_ms);
                is_awaited = true;
            }
            is_filling = mirror.filling.is_some() || mirror.waits_to_fill;
        }
        if is_awaited {
            self.interest
                .awaited
                .push_back((until_ms, Arc::clone(topic)));
        }
        self.want(topic, now);
        if !is_filling {
            self.answer_ready(topic, now);
        }
        self.idle_from(Arc::clone(topic), now);
    }

    /// Asks the link for a topic or pattern, unless it is live.
    fn want(&mut self, topic: &Arc<str>, now: Now) {
        let Some(hub) = self.hub.upgrade() else {
            return;
        };
        let is_pattern = is_pattern(topic);
        let limits = hub.rules.get().of(topic).history.filter(|_| !is_pattern);
        {
            let mut mirrors = self.broker.mirrors();
            let mirror = mirrors.topics.entry(Arc::clone(topic)).or_default();
            mirror.limits = limits;
            if mirror.is_live {
                return;
            }
        }
        if is_pattern {
            return self.link.watch(topic);
        }
        let history = limits.map(|limits| keep(limits.publications_max));
        self.link.want(topic, history, now);
        self.follow_presence(topic);
    }

    fn set_interest(&mut self, topic: &Arc<str>, has_interest: bool) {
        let mut mirrors = self.broker.mirrors();
        let mirror = mirrors.topics.entry(Arc::clone(topic)).or_default();
        mirror.has_interest = has_interest;
    }

    /// A topic without subscribers stays ready for some time, so that returning subscribers find it ready.
    fn idle_from(&mut self, topic: Arc<str>, now: Now) {
        let at_ms = now.ms + IDLE_MS;
        if let Some(mirror) = self.broker.mirrors().topics.get_mut(&topic) {
            if mirror.has_interest {
                return;
            }
            mirror.idle_at_ms = Some(at_ms);
        }
        self.interest.idle.push_back((at_ms, topic));
    }

    /// Forgets topics that nobody has wanted for some time.
    fn forget_idle(&mut self, now: Now) {
        while let Some((at_ms, topic)) = pop_due(&mut self.interest.idle, now) {
            let mut mirrors = self.broker.mirrors();
            let Some(mirror) = mirrors.topics.get_mut(&topic) else {
                continue;
            };
            if mirror.idle_at_ms != Some(at_ms) || mirror.has_interest {
                continue;
            }
            if !mirror.waiting.is_empty() {
                mirror.idle_at_ms = Some(now.ms + IDLE_MS);
                self.interest
                    .idle
                    .push_back((now.ms + IDLE_MS, Arc::clone(&topic)));
            } else {
                mirrors.topics.remove(&topic);
                drop(mirrors);
                match is_pattern(&topic) {
                    true => self.link.unwatch(&topic, now),
                    false => {
                        self.unfollow_presence(&topic);
                        self.link.unwant(&topic, now);
                    }
                }
            }
        }
    }

    /// Refuses those who have waited long enough.
    fn end_waiting(&mut self, now: Now) {
        while let Some((_, topic)) = pop_due(&mut self.interest.awaited, now) {
            let overdue = self.broker.mirrors().take_overdue(&topic, Some(now.ms));
            refuse(overdue, Refusal::Unavailable);
        }
    }

    fn handle_events(&mut self, now: Now) {
        while let Some(event) = self.link.poll_event() {
            self.handle_event(event, now);
        }
    }

    fn handle_event(&mut self, event: Event, now: Now) {
        match event {
            Event::Published { number, outcome } => {
                if let Some((ticket, bytes)) = self.asked.told.remove(&number) {
                    self.broker.commands.settle(bytes);
                    ticket.settle(outcome.map(|_| Done::Told).map_err(convert::refusal));
                }
                if let Some((ticket, bytes)) = self.asked.publications.remove(&number) {
                    self.broker.commands.settle(bytes);
                    let done = outcome.map(|placed| Done::Published(convert::published(placed)));
                    ticket.settle(done.map_err(convert::refusal));
                }
            }
            Event::Live { topic, head } if *topic == *CONTROL => self.begin_orders(head, now),
            Event::Delivered {
                topic,
                position,
                record,
            } if *topic == *CONTROL => self.take_order(position, &record, now),
            Event::Gap { topic, head } if *topic == *CONTROL => self.note_lost_orders(head, now),
            Event::Watching { pattern } => {
                if let Some(mirror) = self.broker.mirrors().topics.get_mut(&pattern) {
                    mirror.is_live = true;
                }
                self.answer_ready(&pattern, now);
            }
            Event::PatternGap { pattern } => self.tell_gap(&pattern, None, now),
            Event::Matched {
                topic,
                position,
                record,
            } => self.deliver_matched(&topic, position, &record, now),
            Event::Sent { number, outcome } => self.note_sent(number, outcome),
            Event::Parcel { addressee, parcel } => self.hand_out(&addressee, &parcel),
            Event::Live { topic, head } => {
                {
                    let mut mirrors = self.broker.mirrors();
                    if let Some(head) = head {
                        mirrors.stand(&topic, convert::position(head));
                    }
                    if let Some(mirror) = mirrors.topics.get_mut(&topic) {
                        mirror.is_live = true;
                    }
                }
                self.answer_ready(&topic, now);
            }
            // Whoever waits has a time of its own.
            Event::Delayed { .. } => {}
            Event::Delivered {
                topic,
                position,
                record,
            } => self.deliver(&topic, position, &record, now),
            Event::Gap { topic, head } => self.tell_gap(&topic, head, now),
            Event::Read { number, outcome } => {
                if !self.take_past(number, &outcome, now) {
                    self.take_read(number, outcome, now);
                }
            }
            Event::Forgotten { number, outcome } => self.note_forgotten(number, outcome),
            Event::ProducerOpened { number, outcome } => self.note_opened(number, outcome),
            Event::ProducerKept { number, is_held } => self.note_kept(number, is_held),
            Event::Health(health) => self.note_health(health),
            event => self.handle_event_of_others(event, now),
        }
    }

    /// Answers a request to forget a history. The message that begins the new epoch on all servers may arrive later than
    /// this answer, so the mirror of this server begins it here.
    fn note_forgotten(
        &mut self,
        number: u64,
        outcome: Result<Option<redis::Position>, redis::Refusal>,
    ) {
        let Some((topic, ticket)) = self.asked.forgotten.remove(&number) else {
            return;
        };
        if let Ok(Some(head)) = outcome {
            let head = convert::position(head);
            self.broker.mirrors().stand_in_new_epoch(&topic, head);
        }
        let done = outcome.map(|head| Done::Forgotten(head.is_some()));
        ticket.settle(done.map_err(convert::refusal));
    }

    fn deliver(&mut self, topic: &Arc<str>, at: Option<redis::Position>, record: &[u8], now: Now) {
        let to_unix_ms = |ms| self.link.to_unix_ms(ms);
        let made = convert::publication(self.link.node(), topic, at, record, to_unix_ms);
        let Some(publication) = made else {
            // It has been logged; its subscribers hear that something is missing.
            self.link.note_unreadable(topic, UNREADABLE, now);
            return self.tell_gap(topic, at, now);
        };
        let Some(hub) = self.hub.upgrade() else {
            return;
        };
        let at_ms = self.published_ms(record, now);
        let mut mirrors = self.broker.mirrors();
        if let Some(position) = publication.position
            && !mirrors.append(topic, position, &publication, at_ms)
        {
            mirrors.stand(topic, position);
        }
        // While the mirror is locked, so that the delivery continues exactly where a recovery ends.
        hub.deliver(topic, publication);
    }

    /// When a record was published, by the clock of this server.
    fn published_ms(&self, record: &[u8], now: Now) -> u64 {
        let published = redis::Record::published_redis_ms_of(record);
        let at_ms = published.map(|at_ms| self.link.to_unix_ms(at_ms));
        at_ms.map_or(now.unix_ms, |at_ms| at_ms.min(now.unix_ms))
    }

    /// Delivers a publication of a topic that nobody here subscribes to by name. It may match no pattern at all: what the
    /// link subscribes to is more than the patterns.
    fn deliver_matched(
        &mut self,
        topic: &Arc<str>,
        at: Option<redis::Position>,
        record: &[u8],
        now: Now,
    ) {
        let Some(hub) = self.hub.upgrade() else {
            return;
        };
        if **topic == *CONTROL || !hub.has_match(topic) {
            return;
        }
        let to_unix_ms = |ms| self.link.to_unix_ms(ms);
        match convert::publication(self.link.node(), topic, at, record, to_unix_ms) {
            Some(publication) => hub.deliver_matched(topic, publication),
            None => {
                self.link.note_unreadable(topic, UNREADABLE, now);
                if let Some(gap) = self.gap_of(topic, now) {
                    hub.deliver_matched(topic, gap);
                }
            }
        }
    }

    /// The id of an event.
    fn event_id(&self, now: Now) -> Option<Uuid> {
        let (hub, mut random) = (self.hub.upgrade()?, [0; 10]);
        random[..4].copy_from_slice(&hub.random_epoch().to_be_bytes());
        random[4..8].copy_from_slice(&hub.random_epoch().to_be_bytes());
        Some(uuid_v7(now.unix_ms, random))
    }

    /// The event which reports that publications of a topic may be missing.
    fn gap_of(&self, topic: &Arc<str>, now: Now) -> Option<Arc<Publication>> {
        let gap = PublicationGap {
            topic: topic.to_string(),
            reason: GapReason::Broker,
            count: 0,
            range: None,
        };
        let mut json = Vec::new();
        write_gap_event(&gap, self.event_id(now)?, now.unix_ms, &mut json);
        Some(Arc::new(Publication::event(Some(Arc::clone(topic)), json)))
    }

    /// Notifies the subscribers of a topic that publications may be missing.
    fn tell_gap(&mut self, topic: &Arc<str>, head: Option<redis::Position>, now: Now) {
        let (Some(hub), Some(gap)) = (self.hub.upgrade(), self.gap_of(topic, now)) else {
            return;
        };
        let mut mirrors = self.broker.mirrors();
        if let Some(head) = head {
            mirrors.stand(topic, convert::position(head));
        }
        match is_pattern(topic) {
            true => hub.announce_to_pattern(topic, &gap),
            false => hub.deliver(topic, gap),
        }
    }
}

/// Removes and returns the first topic of a queue if it is due.
fn pop_due(queue: &mut VecDeque<(u64, Arc<str>)>, now: Now) -> Option<(u64, Arc<str>)> {
    let (at_ms, _) = queue.front()?;
    if *at_ms > now.ms {
        return None;
    }
    queue.pop_front()
}

fn keep(publications_max: usize) -> Keep {
    Keep {
        publications_max: u64::try_from(publications_max).unwrap_or(u64::MAX),
        idle_ms: TOPIC_IDLE_MS,
    }
}

/// Why the record of a publication is not understood.
const UNREADABLE: &str = "its record has an unknown form";

/// The interval at which the shards' side receives the counts, in milliseconds.
const TELL_MS: u64 = 100;

/// The longest time that this server waits for the broker when it leaves, in milliseconds.
const LEAVE_MS: u64 = 1_000;

/// How often a link looks at the other partitions until they are as it needs them, in milliseconds.
const LOOK_MS: u64 = 50;

/// Ticks of the link in one turn.
const TICKS_PER_TURN: usize = 2;

/// How long the broker keeps a topic that nobody publishes to or subscribes to, in milliseconds: a
/// day.
const TOPIC_IDLE_MS: u64 = 24 * 3_600_000;

/// How long a topic without subscribers stays ready, in milliseconds.
const IDLE_MS: u64 = 10_000;
