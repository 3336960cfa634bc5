//! The hub: which shards want which topics, and the delivery to their outlets. All shards share it.

pub(crate) mod elsewhere;
mod group_members;
mod presence_queries;
mod stripe;

pub(crate) use self::stripe::SHARDS_MAX;

use self::stripe::{Interest, ShardSet, Stripe};

use super::broker::memory::MemoryBroker;
use super::broker::{Broker, BrokerAnswer, BrokerUsage, Missed, Moment, Order, PageQuery, Prepare};
use super::broker::{Refusal, Sending, Sink, Tickets};
use super::config::{RuleSet, Scope, TopicLimits, TopicRule};
use super::groups::{GroupCounters, TopicGroups};
use super::history::{HistoryLimits, KeptTopic, Page, Recovery};
use super::name::{self, InvalidTopic, Kind, check_topic, is_pattern};
use super::outlet::{Delivery, Outlet, Target};
use super::publication::{Draft, Placed, Publication};
use super::trie::PatternTrie;
use crate::limits::lines::LineLimits;
use crate::live::Live;
use crate::topics::error::PublishError;
use crate::topics::groups::GroupServer;
use crate::topics::outlet::Origin;
use crate::topics::publication::{Published, check_content};
use crate::topics::random::RandomNumbers;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The topics of a server.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) outlets: Box<[Outlet]>,
    pub(crate) rules: Live<RuleSet>,
    pub(crate) limits: Live<TopicLimits>,
    /// In how long a turn a shard counts as stuck, in milliseconds.
    stall_ms: u64,
    /// Of topics that this server keeps for itself.
    local: MemoryBroker,
    /// Of topics that it shares with other servers, if it does.
    cluster: Option<Arc<dyn Broker>>,
    /// This server in the keys of its connections; 0 without a broker.
    pub(crate) server: u64,
    stripes: Box<[Mutex<Stripe>]>,
    hasher: RandomState,
    patterns: RwLock<PatternTrie<ShardSet>>,
    has_patterns: AtomicBool,
    /// Counts the changes of `patterns`.
    pattern_changes: AtomicU64,
    has_groups: AtomicBool,
    pub(crate) groups: GroupCounters,
    random: RandomNumbers,
    /// The limits of the log lines that strangers cause.
    pub(crate) lines: Arc<LineLimits>,
}

impl Hub {
    pub(crate) fn new(
        shards: usize,
        rules: RuleSet,
        limits: TopicLimits,
        stall_ms: u64,
        local: MemoryBroker,
        cluster: Option<Arc<dyn Broker>>,
    ) -> Self {
        Self {
            server: cluster.as_ref().map_or(0, |cluster| cluster.server()),
            outlets: (0..shards).map(|_| Outlet::default()).collect(),
            rules: Live::new(rules),
            limits: Live::new(limits),
            stall_ms,
            local,
            cluster,
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            patterns: RwLock::new(PatternTrie::new()),
            has_patterns: AtomicBool::new(false),
            pattern_changes: AtomicU64::new(0),
            has_groups: AtomicBool::new(false),
            groups: GroupCounters::default(),
            random: RandomNumbers::default(),
            lines: Arc::default(),
        }
    }

    /// The broker that this server shares with others, if the topics of a rule are shared.
    #[inline]
    fn cluster_of(&self, rule: &TopicRule) -> Option<&Arc<dyn Broker>> {
        self.cluster
            .as_ref()
            .filter(|_| rule.scope == Scope::Cluster)
    }

    /// Whether some topics are shared with other servers.
    #[inline]
    pub(crate) fn has_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// Whether questions about a topic or pattern may be answered later. A pattern may match shared
    /// topics whatever its own text is.
    #[inline]
    pub(crate) fn is_shared(&self, topic: &str) -> bool {
        self.cluster.is_some()
            && (is_pattern(topic) || self.rules.get().of(topic).scope == Scope::Cluster)
    }

    /// [`check_topic`] for a name that may be new: it has no bidirectional controls, unless the operator allows them.
    pub(crate) fn check_new_topic(&self, name: &str) -> Result<(), InvalidTopic> {
        check_topic(name)?;
        name::check_direction(name, self.limits.get().bidi_controls)
    }

    /// The same for a name or a pattern.
    pub(crate) fn check_new_topic_or_pattern(&self, name: &str) -> Result<Kind, InvalidTopic> {
        let kind = name::check_topic_or_pattern(name)?;
        name::check_direction(name, self.limits.get().bidi_controls).map(|()| kind)
    }

    /// Publishes to a topic.
    pub(crate) fn publish(
        &self,
        topic: &Arc<str>,
        draft: &Draft<'_>,
        origin: Origin,
        moment: Moment,
        tickets: Tickets<'_>,
    ) -> Result<BrokerAnswer<Published>, PublishError> {
        self.check_new_topic(topic)?;
        self.check(draft, origin)?;
        let rules = self.rules.get();
        let rule = rules.of(topic);
        if draft.is_volatile && rule.history.is_some() {
            return Err(PublishError::Volatile);
        }
        let order = Order {
            topic,
            rule,
            draft,
            moment,
        };
        let sink = FromOrigin { hub: self, origin };
        let Some(cluster) = self.cluster_of(rule) else {
            return Ok(BrokerAnswer::Now(self.local.publish_now(&order, &sink)));
        };
        if origin == Origin::Outside && cluster.is_busy() {
            return Err(PublishError::Busy);
        }
        Ok(match cluster.publish(&order, tickets, &sink) {
            BrokerAnswer::Now(published) => BrokerAnswer::Now(published?),
            BrokerAnswer::Later => BrokerAnswer::Later,
        })
    }

    /// Makes a topic ready to be subscribed to or read.
    pub(crate) fn prepare(
        &self,
        topic: &Arc<str>,
        wanted: Prepare,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>> {
        let rules = self.rules.get();
        let rule = rules.of(topic);
        match &self.cluster {
            Some(cluster) if self.is_shared(topic) => cluster.prepare(topic, rule, wanted, tickets),
            _ => BrokerAnswer::Now(Ok(())),
        }
    }

    /// Sends to others than the subscribers of a topic: to all shards, or to one.
    pub(crate) fn send(
        &self,
        target: &Target,
        shard: Option<u32>,
        draft: &Draft<'_>,
        origin: Origin,
        now_unix_ms: u64,
    ) -> Result<(), PublishError> {
        self.check(draft, origin)?;
        let publication = Arc::new(draft.place(&Placed {
            topic: None,
            position: None,
            priority: draft.priority.unwrap_or_default(),
            unix_ms: now_unix_ms,
        }));
        self.post(target, shard, &publication, origin);
        self.post_elsewhere(target, &Sending::Publication(draft, now_unix_ms));
        Ok(())
    }

    /// Hands a publication that is no topic's to one shard or to all.
    pub(crate) fn post(
        &self,
        target: &Target,
        shard: Option<u32>,
        publication: &Arc<Publication>,
        origin: Origin,
    ) {
        for (index, outlet) in self.outlets.iter().enumerate() {
            if shard.is_none_or(|shard| shard as usize == index) {
                let delivery = Delivery {
                    seq: 0,
                    target: target.clone(),
                    publication: Arc::clone(publication),
                };
                outlet.push(delivery, origin.is(index));
            }
        }
    }

    /// Hands one of the protocol's own messages to the subscribers of a topic.
    pub(crate) fn announce(&self, topic: &Arc<str>, publication: Publication, origin: Origin) {
        self.deliver_from(topic, Arc::new(publication), origin);
    }

    /// A number for an epoch, for those who have no generator of their own.
    pub(crate) fn random_epoch(&self) -> u32 {
        self.random.next()
    }

    /// Whether the shards have more to deliver than they should. One that is stuck is not waited
    /// for.
    #[inline]
    pub(crate) fn is_busy(&self, origin: Origin) -> bool {
        let limit = self.limits.get().backlog_bytes_max;
        let is_busy = |(shard, outlet): (usize, &Outlet)| {
            outlet.bytes() > limit
                && (origin.is(shard) || !outlet.detach_if_stuck(shard, self.stall_ms))
        };
        self.outlets.iter().enumerate().any(is_busy)
    }

    /// Whether the broker that is shared with other servers has more to do than it should.
    #[inline]
    pub(crate) fn is_cluster_busy(&self) -> bool {
        self.cluster
            .as_ref()
            .is_some_and(|cluster| cluster.is_busy())
    }

    /// A shard has its first subscriber of a topic.
    pub(crate) fn add_interest(&self, topic: &Arc<str>, shard: u32) {
        let mut stripe = self.stripe(topic);
        self.interest(&mut stripe, topic).shards.insert(shard);
    }

    /// Registers interest in a topic. The broker is notified of the first.
    fn interest<'a>(&self, stripe: &'a mut Stripe, topic: &Arc<str>) -> &'a mut Interest {
        stripe.interest.entry(Arc::clone(topic)).or_insert_with(|| {
            let rules = self.rules.get();
            let rule = rules.of(topic);
            if let Some(cluster) = self.cluster_of(rule) {
                cluster.add_interest(topic, rule);
            }
            Interest::default()
        })
    }

    /// Forgets a topic that neither a shard nor a group wants any more, and notifies the broker.
    fn forget_unwanted(&self, stripe: &mut Stripe, topic: &str) {
        if stripe.forget_unwanted(topic)
            && let Some(cluster) = self.cluster_of(self.rules.get().of(topic))
        {
            cluster.remove_interest(topic);
        }
    }

    /// A shard has lost its last subscriber of a topic.
    pub(crate) fn remove_interest(&self, topic: &str, shard: u32) {
        let mut stripe = self.stripe(topic);
        if let Some(interest) = stripe.interest.get_mut(topic) {
            interest.shards.remove(shard);
            self.forget_unwanted(&mut stripe, topic);
        }
    }

    /// Does something with the queue groups of a topic.
    pub(crate) fn with_groups<T>(
        &self,
        topic: &Arc<str>,
        act: impl FnOnce(&mut TopicGroups) -> T,
    ) -> T {
        let mut stripe = self.stripe(topic);
        let interest = self.interest(&mut stripe, topic);
        let groups = interest.groups.get_or_insert_default();
        let result = act(groups);
        if groups.has_idle() && !std::mem::replace(&mut groups.is_listed, true) {
            stripe.idle_groups.push(Arc::clone(topic));
        }
        self.forget_unwanted(&mut stripe, topic);
        self.has_groups.store(true, Ordering::Release);
        result
    }

    fn group_server(&self) -> GroupServer<'_> {
        GroupServer {
            limits: self.limits.get(),
            counters: &self.groups,
            outlets: &self.outlets,
            random: &self.random,
            lines: &self.lines,
        }
    }

    fn sweep_groups(&self, now_ms: u64) {
        for stripe in &self.stripes {
            let mut stripe = lock(stripe);
            for topic in std::mem::take(&mut stripe.idle_groups) {
                if let Some(interest) = stripe.interest.get_mut(&topic)
                    && let Some(groups) = &mut interest.groups
                {
                    groups.sweep(&self.group_server(), now_ms);
                    groups.is_listed = groups.has_idle();
                    if groups.is_listed {
                        stripe.idle_groups.push(Arc::clone(&topic));
                    }
                }
                self.forget_unwanted(&mut stripe, &topic);
            }
        }
    }

    /// The number of the last delivery of this topic, or of one that shares its lock.
    pub(crate) fn seq(&self, topic: &str) -> u64 {
        self.stripe(topic).seq
    }

    /// A shard has its first subscriber of a pattern.
    pub(crate) fn add_pattern(&self, pattern: &str, shard: u32) {
        let mut patterns = self
            .patterns
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let shards = patterns.insert(pattern);
        if let (true, Some(cluster)) = (shards.is_empty(), &self.cluster) {
            cluster.add_pattern(pattern);
        }
        shards.insert(shard);
        self.pattern_changes.fetch_add(1, Ordering::Release);
        self.has_patterns.store(true, Ordering::Release);
    }

    /// A shard has lost its last subscriber of a pattern.
    pub(crate) fn remove_pattern(&self, pattern: &str, shard: u32) {
        let mut patterns = self
            .patterns
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(shards) = patterns.get_mut(pattern) {
            shards.remove(shard);
            if shards.is_empty() {
                patterns.remove(pattern);
                if let Some(cluster) = &self.cluster {
                    cluster.remove_pattern(pattern);
                }
            }
        }
        self.pattern_changes.fetch_add(1, Ordering::Release);
        self.has_patterns
            .store(!patterns.is_empty(), Ordering::Release);
    }

    /// The missed publications of a topic's new subscriber, and the number of the last delivery that this
    /// includes; `None` for topics without history.
    ///
    /// # Errors
    /// [`NotReady`]: it has to be [prepared](Self::prepare) first.
    pub(crate) fn recover(
        &self,
        topic: &Arc<str>,
        missed: Missed,
        moment: Moment,
    ) -> Result<Option<Recovered>, NotReady> {
        let rules = self.rules.get();
        let rule = rules.of(topic);
        let Some(limits) = &rule.history else {
            return Ok(None);
        };
        let mut seq = 0;
        let mut locked = || seq = self.seq(topic);
        let recovery = match self.cluster_of(rule) {
            None => self
                .local
                .recover_now(topic, limits, moment, missed, &mut locked),
            Some(cluster) => cluster
                .recover(topic, limits, moment, missed, &mut locked)
                .ok_or(NotReady)?,
        };
        Ok(Some((recovery, seq)))
    }

    /// Some of a topic's history; `None` for topics without.
    ///
    /// # Errors
    /// [`NotReady`]: it has to be [prepared](Self::prepare) first.
    pub(crate) fn history(
        &self,
        topic: &Arc<str>,
        query: PageQuery,
        now_ms: u64,
    ) -> Result<Option<Page<Arc<Publication>>>, NotReady> {
        let rules = self.rules.get();
        let rule = rules.of(topic);
        let Some(limits) = &rule.history else {
            return Ok(None);
        };
        let page = match self.cluster_of(rule) {
            None => self.local.page_now(topic, limits, now_ms, query),
            Some(cluster) => cluster.page(topic, limits, now_ms, query).ok_or(NotReady)?,
        };
        Ok(Some(page))
    }

    /// Some topics of this server alone that keep publications, from a place on, and where to go on. Those that it
    /// shares with other servers are not among them.
    pub(crate) fn kept_topics(
        &self,
        from: u32,
        now_ms: u64,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> (Vec<KeptTopic>, Option<u32>) {
        self.local.kept_now(from, now_ms, is_wanted)
    }

    /// Forgets a topic's history; whether there was any.
    pub(crate) fn forget_history(
        &self,
        topic: &Arc<str>,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<bool, Refusal>> {
        match self.cluster_of(self.rules.get().of(topic)) {
            None => BrokerAnswer::Now(Ok(self.local.forget_now(topic))),
            Some(cluster) => cluster.forget(topic, tickets),
        }
    }

    /// Removes publications that are too old and queue groups that have been idle too long. Called
    /// now and then.
    pub(crate) fn sweep(&self, now_ms: u64) {
        if self.has_groups.load(Ordering::Acquire) {
            self.sweep_groups(now_ms);
        }
        let rules = self.rules.get();
        if rules.keep_history() {
            let limits_of = |topic: &str| rules.of(topic).history.unwrap_or(KEEP_NOTHING);
            self.local.sweep(now_ms, &limits_of);
            if let Some(cluster) = &self.cluster {
                cluster.sweep(now_ms, &limits_of);
            }
        }
    }

    pub(crate) fn usage(&self) -> BrokerUsage {
        let local = self.local.usage();
        match &self.cluster {
            None => local,
            Some(cluster) => local.sum(&cluster.usage()),
        }
    }

    fn check(&self, draft: &Draft<'_>, origin: Origin) -> Result<(), PublishError> {
        let bytes_max = self.limits.get().payload_bytes_max;
        check_content(draft.t, draft.payload.len(), bytes_max)?;
        if origin == Origin::Outside && self.is_busy(origin) {
            return Err(PublishError::Busy);
        }
        Ok(())
    }

    /// Hands a publication to every shard that wants its topic.
    pub(crate) fn deliver_from(
        &self,
        topic: &Arc<str>,
        publication: Arc<Publication>,
        origin: Origin,
    ) {
        let mut stripe = self.stripe(topic);
        stripe.seq += 1;
        let seq = stripe.seq;
        let mut shards = ShardSet::default();
        if let Some(interest) = stripe.interest.get_mut(topic) {
            shards = interest.shards;
            if let Some(groups) = &mut interest.groups
                && !groups.is_shared
                && !publication.is_event()
            {
                groups.push(&self.group_server(), &publication, origin);
            }
        }
        if self.has_patterns.load(Ordering::Acquire) {
            shards.0 |= self.matching(&mut stripe, topic).0;
        }
        // While the topic is locked, so that all shards see one order.
        for shard in shards.iter() {
            let delivery = Delivery {
                seq,
                target: Target::Topic,
                publication: Arc::clone(&publication),
            };
            self.outlets[shard].push(delivery, origin.is(shard));
        }
    }

    /// Hands a publication to the shards with patterns that match its topic, for the subscribers of
    /// these patterns only.
    pub(crate) fn deliver_matched(&self, topic: &Arc<str>, publication: Arc<Publication>) {
        let mut stripe = self.stripe(topic);
        stripe.seq += 1;
        let seq = stripe.seq;
        let shards = self.matching(&mut stripe, topic);
        for shard in shards.iter() {
            let delivery = Delivery {
                seq,
                target: Target::Patterns,
                publication: Arc::clone(&publication),
            };
            self.outlets[shard].push(delivery, false);
        }
    }

    /// Whether a topic matches a pattern of this server.
    pub(crate) fn has_match(&self, topic: &Arc<str>) -> bool {
        let mut stripe = self.stripe(topic);
        self.matching(&mut stripe, topic) != ShardSet::default()
    }

    /// The shards with patterns that match a topic. The tree is walked for the first publication of
    /// a topic, not for each.
    fn matching(&self, stripe: &mut Stripe, topic: &Arc<str>) -> ShardSet {
        let changes = self.pattern_changes.load(Ordering::Acquire);
        if stripe.pattern_changes != changes || stripe.matching.len() >= MATCHING_MAX {
            stripe.pattern_changes = changes;
            stripe.matching.clear();
        }
        if let Some(shards) = stripe.matching.get(topic) {
            return *shards;
        }
        let mut shards = ShardSet::default();
        let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
        patterns.for_each_match(topic, |matching| shards.0 |= matching.0);
        stripe.matching.insert(Arc::clone(topic), shards);
        shards
    }

    fn stripe(&self, topic: &str) -> MutexGuard<'_, Stripe> {
        let index = self.hasher.hash_one(topic) as usize % STRIPES;
        lock(&self.stripes[index])
    }
}

/// The missed publications of a new subscriber, and the number of the last delivery that this includes.
pub(crate) type Recovered = (Recovery<Arc<Publication>>, u64);

/// A topic that has to be prepared before it can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotReady;

/// The sink of publications from one origin.
struct FromOrigin<'a> {
    hub: &'a Hub,
    origin: Origin,
}

impl Sink for FromOrigin<'_> {
    fn deliver(&self, topic: &Arc<str>, publication: Arc<Publication>) {
        self.hub.deliver_from(topic, publication, self.origin);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For topics that keep no history any more.
const KEEP_NOTHING: HistoryLimits = HistoryLimits {
    publications_max: 0,
    bytes_max: 0,
    age_max_ms: 0,
};

/// Topics of a stripe whose patterns are remembered.
const MATCHING_MAX: usize = 256;

/// Locks that the topics are spread over.
const STRIPES: usize = 64;

/// The hub's side of a broker that delivers from its own thread.
impl Sink for Hub {
    fn deliver(&self, topic: &Arc<str>, publication: Arc<Publication>) {
        self.deliver_from(topic, publication, Origin::Outside);
    }
}
