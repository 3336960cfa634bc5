//! A broker in several partitions: each has a part of the topics, and is a broker of its own. The first one also has
//! everything that is of no topic: servers, users, producers and commands.

use crate::cluster::shared_broker::{ClusterBroker, is_of_broker};
use crate::model::ConnectionKey;
use crate::model::call_types::{CallOutcome, NewCall};
use crate::topics::broker::{
    Audience, Broker, BrokerAnswer, BrokerHealth, BrokerPartition, BrokerProblem, BrokerUsage,
    Control, Done, Missed, Moment, Order, PARTITION_AWAY, PageQuery, Prepare, PresenceView,
    ProducerName, ProducerOpening, ProducerPlace, Refusal, Sending, Sink, Ticket, TicketOutcome,
    Tickets,
};
use crate::topics::config::TopicRule;
use crate::topics::groups::EndedWork;
use crate::topics::history::{HistoryLimits, Page, Recovery};
use crate::topics::name::is_pattern;
use crate::topics::presence::PresenceChange;
use crate::topics::publication::{Publication, Published};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use tidewire_redis::{Allowed, Partition, Standing};

/// The partitions of a server, in their order.
#[derive(Debug)]
pub(crate) struct PartitionedBroker {
    parts: Vec<Part>,
}

/// A partition and where it is.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) broker: Arc<ClusterBroker>,
    pub(crate) address: String,
}

impl PartitionedBroker {
    /// At least one.
    pub(crate) fn new(parts: Vec<Part>) -> Self {
        Self { parts }
    }

    /// The partition of a topic.
    fn of(&self, topic: &str) -> &ClusterBroker {
        let count = u16::try_from(self.parts.len()).unwrap_or(u16::MAX);
        &self.parts[usize::from(Partition::index_of(topic, count))].broker
    }

    fn first(&self) -> &ClusterBroker {
        &self.parts[0].broker
    }

    fn all(&self) -> impl Iterator<Item = &ClusterBroker> {
        self.parts.iter().map(|part| &*part.broker)
    }
}

impl Broker for PartitionedBroker {
    fn publish(
        &self,
        order: &Order<'_>,
        tickets: Tickets<'_>,
        sink: &dyn Sink,
    ) -> BrokerAnswer<Result<Published, Refusal>> {
        let part = self.of(order.topic);
        // Publishers do not wait for a partition that is away: other topics go on.
        if part.is_busy() && !part.takes_publications() {
            return BrokerAnswer::Now(Err(Refusal::Busy));
        }
        part.publish(order, tickets, sink)
    }

    fn prepare(
        &self,
        topic: &Arc<str>,
        rule: &TopicRule,
        wanted: Prepare,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>> {
        if !is_pattern(topic) {
            return self.of(topic).prepare(topic, rule, wanted, tickets);
        }
        // Each partition may have topics that match.
        let joint = Joint::new();
        let mut is_later = false;
        for part in self.all() {
            match part.prepare(topic, rule, wanted, &mut || joint.part()) {
                BrokerAnswer::Now(Ok(())) => {}
                BrokerAnswer::Now(Err(refusal)) => return BrokerAnswer::Now(Err(refusal)),
                BrokerAnswer::Later => is_later = true,
            }
        }
        if !is_later {
            return BrokerAnswer::Now(Ok(()));
        }
        joint.settle_by(tickets());
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
        let part = self.of(topic);
        part.recover(topic, limits, moment, missed, locked)
    }

    fn page(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        now_ms: u64,
        query: PageQuery,
    ) -> Option<Page<Arc<Publication>>> {
        self.of(topic).page(topic, limits, now_ms, query)
    }

    fn forget(
        &self,
        topic: &Arc<str>,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<bool, Refusal>> {
        self.of(topic).forget(topic, tickets)
    }

    fn add_interest(&self, topic: &Arc<str>, rule: &TopicRule) {
        self.of(topic).add_interest(topic, rule);
    }

    fn remove_interest(&self, topic: &str) {
        self.of(topic).remove_interest(topic);
    }

    fn sweep(&self, now_ms: u64, limits_of: &dyn Fn(&str) -> HistoryLimits) {
        self.all().for_each(|part| part.sweep(now_ms, limits_of));
    }

    fn join(
        &self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
        data: Option<Arc<str>>,
    ) -> PresenceChange {
        self.of(topic).join(topic, who, connection, data)
    }

    fn leave(&self, topic: &Arc<str>, who: &Arc<str>, connection: ConnectionKey) -> PresenceChange {
        self.of(topic).leave(topic, who, connection)
    }

    fn present(&self, topic: &str, limit: usize) -> PresenceView {
        self.of(topic).present(topic, limit)
    }

    fn add_pattern(&self, pattern: &str) {
        self.all().for_each(|part| part.add_pattern(pattern));
    }

    fn remove_pattern(&self, pattern: &str) {
        self.all().for_each(|part| part.remove_pattern(pattern));
    }

    fn prepare_group(
        &self,
        topic: &Arc<str>,
        group: &Arc<str>,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>> {
        self.of(topic).prepare_group(topic, group, tickets)
    }

    fn may_join_group(&self, topic: &Arc<str>, group: &Arc<str>) -> bool {
        self.of(topic).may_join_group(topic, group)
    }

    fn change_group(&self, topic: &Arc<str>, group: &Arc<str>, ended: EndedWork) {
        self.of(topic).change_group(topic, group, ended);
    }

    fn add_user(&self, user: &Arc<str>) {
        self.first().add_user(user);
    }

    fn remove_user(&self, user: &Arc<str>) {
        self.first().remove_user(user);
    }

    fn shares_producers(&self) -> bool {
        self.first().shares_producers()
    }

    fn open_producer(&self, opening: ProducerOpening, ticket: Ticket) {
        self.first().open_producer(opening, ticket);
    }

    fn keep_producer(&self, name: ProducerName, place: ProducerPlace, ticket: Option<Ticket>) {
        self.first().keep_producer(name, place, ticket);
    }

    fn server(&self) -> u64 {
        self.first().server()
    }

    fn call(&self, connection: ConnectionKey, call: NewCall, outcome: CallOutcome) {
        self.first().call(connection, call, outcome);
    }

    fn send(&self, audience: Audience<'_>, sending: &Sending<'_>) {
        self.first().send(audience, sending);
    }

    fn tell(&self, control: &Control, tickets: Tickets<'_>) -> BrokerAnswer<Result<(), Refusal>> {
        self.first().tell(control, tickets)
    }

    fn is_busy(&self) -> bool {
        self.all()
            .any(|part| part.is_busy() && part.takes_publications())
    }

    /// It answers if the first partition does, and if this server can ask all of them.
    fn health(&self, stall_ms: u64) -> BrokerHealth {
        let each = self.parts.iter().map(|part| part.broker.health(stall_ms));
        let each: Vec<_> = each.collect();
        let stalled = self.all().position(|part| part.is_stalled(stall_ms));
        let (leading, count) = (stalled.unwrap_or(0), each.len());
        let mut whole = each[0].clone();
        whole.is_connected &= stalled.is_none();
        let reason = each[leading].reason.as_ref();
        whole.reason = reason.map(|reason| format!("partition {leading} of {count}: {reason}"));
        for (partition, part) in each.iter().enumerate().skip(1) {
            for (total, (name, count)) in whole.counts.iter_mut().zip(&part.counts) {
                // The same servers in each partition.
                if *name != "nodes_lost" {
                    total.1 += count;
                }
            }
            whole.warning = whole.warning.or_else(|| part.warning.clone());
            // Without the first one the others are not used, whatever their brokers do.
            if !part.is_connected && each[0].is_connected {
                let address = &self.parts[partition].address;
                let reason = part.reason.as_deref().unwrap_or("it does not answer");
                whole.problems.push(BrokerProblem {
                    kind: PARTITION_AWAY,
                    is_fatal: false,
                    text: format!("partition {partition} of {count} at {address}: {reason}"),
                });
            }
            let known = &each[0].problems;
            let others = part.problems.iter().filter(|it| !known.contains(it));
            whole.problems.extend(others.map(|problem| BrokerProblem {
                text: format!("partition {partition} of {count}: {}", problem.text),
                is_fatal: problem.is_fatal && !is_of_broker(problem),
                ..problem.clone()
            }));
        }
        let parts = self.parts.iter().zip(each).enumerate();
        let parts = parts.map(|(partition, (part, health))| BrokerPartition {
            partition,
            address: part.address.clone(),
            is_connected: health.is_connected,
            problem: health
                .problems
                .into_iter()
                .find(is_of_broker)
                .map(|it| it.text),
            reason: health.reason,
            away_ms: health.away_ms,
        });
        whole.partitions = parts.collect();
        whole
    }

    fn stop(&self) {
        self.all().for_each(Broker::stop);
    }

    fn usage(&self) -> BrokerUsage {
        let none = BrokerUsage::default();
        self.all().fold(none, |sum, part| sum.sum(&part.usage()))
    }
}

/// One answer of several partitions: the first refusal if there is one.
#[derive(Debug, Clone)]
struct Joint(Arc<Mutex<Waiting>>);

#[derive(Debug)]
struct Waiting {
    /// The number of partitions that have not answered, and one more until the ticket is known.
    open: usize,
    outcome: TicketOutcome,
    ticket: Option<Ticket>,
}

impl Joint {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Waiting {
            open: 1,
            outcome: Ok(Done::Prepared),
            ticket: None,
        })))
    }

    /// The ticket of one partition.
    fn part(&self) -> Ticket {
        self.change(|waiting| waiting.open += 1);
        let joint = self.clone();
        Ticket::of_caller(move |outcome| joint.close(outcome))
    }

    /// This ticket receives the answer.
    fn settle_by(self, ticket: Ticket) {
        self.change(|waiting| waiting.ticket = Some(ticket));
        self.close(Ok(Done::Prepared));
    }

    fn close(&self, outcome: TicketOutcome) {
        let settled = self.change(|waiting| {
            waiting.open -= 1;
            waiting.outcome = waiting.outcome.and(outcome);
            let ticket = waiting.ticket.take_if(|_| waiting.open == 0);
            ticket.map(|ticket| (ticket, waiting.outcome))
        });
        if let Some((ticket, outcome)) = settled {
            ticket.settle(outcome);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The state that the links of a server's partitions share.
#[derive(Debug)]
pub(crate) struct Siblings(Vec<Sibling>);

#[derive(Debug, Default)]
struct Sibling {
    standing: AtomicU8,
    is_away: AtomicBool,
    topics: AtomicU64,
}

impl Siblings {
    pub(crate) fn new(count: u16) -> Self {
        Self((0..count).map(|_| Sibling::default()).collect())
    }

    fn get(&self, partition: Partition) -> &Sibling {
        &self.0[usize::from(partition.index())]
    }

    /// Notes what a partition knows about the cluster, and how many topics its link has.
    pub(crate) fn note(&self, partition: Partition, standing: Standing, topics: u64) {
        let sibling = self.get(partition);
        sibling.standing.store(standing as u8, Relaxed);
        sibling.topics.store(topics, Relaxed);
    }

    /// The permission of a partition, which depends on the others: see [`Link::allow`](tidewire_redis::Link::allow).
    pub(crate) fn allowed(&self, partition: Partition) -> Allowed {
        let stands = |sibling: &Sibling, standing: Standing| {
            sibling.standing.load(Relaxed) >= standing as u8
        };
        let (first, others) = (&self.0[0], &self.0[1..]);
        let (may_join, may_use) = match partition.is_first() {
            true => (true, others.iter().all(|it| stands(it, Standing::Accepted))),
            false => (
                stands(first, Standing::Accepted),
                stands(first, Standing::Joined),
            ),
        };
        match (may_join, may_use) {
            (_, true) => Allowed::Use,
            (true, false) => Allowed::Join,
            (false, false) => Allowed::Nothing,
        }
    }

    /// Notes whether a partition is away: its broker has been silent for some time.
    pub(crate) fn set_away(&self, partition: Partition, is_away: bool) {
        self.get(partition).is_away.store(is_away, Relaxed);
    }

    pub(crate) fn is_away(&self, partition: Partition) -> bool {
        self.get(partition).is_away.load(Relaxed)
    }

    /// Whether at least one partition is away.
    pub(crate) fn is_any_away(&self) -> bool {
        self.0.iter().any(|it| it.is_away.load(Relaxed))
    }

    /// The topics of all links.
    pub(crate) fn topics(&self) -> u64 {
        self.0.iter().map(|it| it.topics.load(Relaxed)).sum()
    }
}
