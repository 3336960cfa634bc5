//! Inspection of a running server: queries about connections and topics, answered by the shards.
//!
//! A question is a mail like any other. A shard answers for some thousand connections or topics at a time, so
//! that its clients do not notice, and a list of a million needs some hundred mails. Every call here waits
//! for the shards, two seconds at most, and must not be made on a shard's own thread.

use crate::clock::steady_unix_ms;
use crate::handle::{Handle, SendError};
use crate::model::ConnectionKey;
use crate::model::queries::{
    ConnectionDetails, ConnectionInfo, ConnectionQuery, Listed, TopicInfo, TopicQuery,
};
use crate::shard::mailbox::Mail;
use crate::shard::view::{Question, Slice, View};
use crate::topics::history::KeptTopic;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use tidewire_wire::uuid::Uuid;

impl Handle {
    /// Lists sessions of this server, in the order of their keys.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when a shard did not answer in time.
    pub fn list_connections(
        &self,
        query: &ConnectionQuery,
    ) -> Result<Listed<ConnectionInfo>, SendError> {
        let wanted = query.limit.saturating_add(1);
        let start = match query.after {
            Some(after) => (after.shard(), after.id.index() + 1),
            None => (0, 0),
        };
        let mut items = Vec::new();
        let query = query.clone();
        let limit = query.limit;
        let question = move |view: &mut View<'_>, from| view.connections(&query, from, wanted);
        self.scan(start, question, |found: Vec<ConnectionInfo>| {
            items.extend(found);
            items.len() < wanted
        })?;
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Listed { items, more })
    }

    /// Lists topics and patterns that have subscribers on this server, by name.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when a shard did not answer in time.
    pub fn list_topics(&self, query: &TopicQuery) -> Result<Listed<TopicInfo>, SendError> {
        let topics = self.subscribed_topics(query)?;
        Ok(listed(topics, query.limit))
    }

    /// Lists topics and patterns that have subscribers, and topics that keep publications, by name. Of topics that are
    /// shared with other servers, those with subscribers on this one.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when the topics could not be looked at in time.
    pub fn list_topics_with_history(
        &self,
        query: &TopicQuery,
    ) -> Result<Listed<TopicInfo>, SendError> {
        let mut topics = self.subscribed_topics(query)?;
        let wanted = query.limit.saturating_add(1);
        let after = query.after.as_deref();
        let is_wanted =
            |name: &str| name.starts_with(&query.prefix) && after.is_none_or(|after| name > after);
        self.scan_kept(&is_wanted, |found| {
            for kept in found {
                let name = Arc::clone(&kept.name);
                let info = topics.entry(name).or_insert_with(|| info_of(&kept));
                info.kept = Some(kept.kept);
                if topics.len() > wanted {
                    topics.pop_last();
                }
            }
        })?;
        Ok(listed(topics, query.limit))
    }

    /// The first of the topics that a list can have, and one more.
    fn subscribed_topics(
        &self,
        query: &TopicQuery,
    ) -> Result<BTreeMap<Arc<str>, TopicInfo>, SendError> {
        let wanted = query.limit.saturating_add(1);
        let mut merged: BTreeMap<Arc<str>, TopicInfo> = BTreeMap::new();
        let query = query.clone();
        let question = move |view: &mut View<'_>, from| view.topics(&query, from, wanted);
        self.scan((0, 0), question, |found: Vec<(Arc<str>, TopicInfo)>| {
            for (name, info) in found {
                match merged.get_mut(&name) {
                    Some(known) => known.add(&info),
                    None => {
                        merged.insert(name, info);
                    }
                }
                if merged.len() > wanted {
                    merged.pop_last();
                }
            }
            true
        })?;
        Ok(merged)
    }

    /// The topics with the most publications a second, as of some seconds ago.
    pub(crate) fn busiest_of_late(&self) -> Arc<[TopicInfo]> {
        let busiest = &self.shared.charges.busiest;
        busiest.get(|| self.busiest_topics(BUSIEST_TOPICS))
    }

    /// The topics and patterns with the most publications a second, at most `limit`, busiest first: those that have
    /// subscribers, and topics of this server alone that keep publications.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when a shard did not answer in time.
    pub fn busiest_topics(&self, limit: usize) -> Result<Vec<TopicInfo>, SendError> {
        let mut found: HashMap<Arc<str>, TopicInfo> = HashMap::new();
        let question = move |view: &mut View<'_>, from| view.busiest_topics(from, limit);
        self.scan((0, 0), question, |busiest: Vec<(Arc<str>, TopicInfo)>| {
            for (name, info) in busiest {
                found
                    .entry(name)
                    .and_modify(|known| known.per_s = known.per_s.max(info.per_s))
                    .or_insert(info);
            }
            true
        })?;
        self.scan_kept(&|_| true, |mut kept| {
            kept.sort_unstable_by(|left, right| right.per_s.total_cmp(&left.per_s));
            for topic in kept.into_iter().take(limit) {
                let name = Arc::clone(&topic.name);
                let info = found.entry(name).or_insert_with(|| info_of(&topic));
                info.kept = Some(topic.kept);
            }
            keep_busiest(&mut found, limit);
        })?;
        let mut order: Vec<_> = found.into_iter().collect();
        order.sort_by(|(_, left), (_, right)| by_rate(left, right));
        order.truncate(limit);
        let names: Arc<[Arc<str>]> = order.iter().map(|(name, _)| Arc::clone(name)).collect();
        let mut topics: Vec<TopicInfo> = order
            .into_iter()
            .map(|(_, info)| TopicInfo {
                subscribers: 0,
                ..info
            })
            .collect();
        // Not every shard had each of them among its busiest.
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        for shard in 0..self.shards() {
            let names = Arc::clone(&names);
            let counts = self.ask(shard, deadline, move |view| view.subscribers(&names))?;
            for (topic, subscribers) in topics.iter_mut().zip(counts) {
                topic.subscribers += subscribers;
            }
        }
        Ok(topics)
    }

    /// Looks at all topics of this server alone that keep publications, some at a time: publishers wait for each look.
    fn scan_kept(
        &self,
        is_wanted: &dyn Fn(&str) -> bool,
        mut take: impl FnMut(Vec<KeptTopic>),
    ) -> Result<(), SendError> {
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let mut from = Some(0);
        while let Some(place) = from {
            if Instant::now() > deadline {
                return Err(SendError::Busy);
            }
            let (found, next) = self
                .shared
                .hub
                .kept_topics(place, steady_unix_ms(), is_wanted);
            take(found);
            from = next;
        }
        Ok(())
    }

    /// The sessions for which the most waits to be sent, at most `limit`, those with the most
    /// first.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when a shard did not answer in time.
    pub fn slowest_connections(&self, limit: usize) -> Result<Vec<ConnectionInfo>, SendError> {
        let mut slowest: Vec<ConnectionInfo> = Vec::new();
        let question = move |view: &mut View<'_>, from| view.slowest_connections(from, limit);
        self.scan((0, 0), question, |found: Vec<ConnectionInfo>| {
            slowest.extend(found);
            slowest.sort_by_key(|info| std::cmp::Reverse(info.queued_bytes));
            slowest.truncate(limit);
            true
        })?;
        Ok(slowest)
    }

    /// Whether there is such a session now. Of a connection of another server only the server is looked at: whether
    /// it is among the servers that share the broker, as of some seconds ago.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when the shard did not answer in time.
    pub fn has_connection(&self, connection: ConnectionKey) -> Result<bool, SendError> {
        let hub = &self.shared.hub;
        if !hub.is_here(connection) {
            return Ok(hub.has_server(connection.server()));
        }
        if connection.shard() >= self.shards() {
            return Ok(false);
        }
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        self.ask(connection.shard(), deadline, move |view| {
            view.session(connection.id.index())
                .is_some_and(|found| found.state.key.id == connection.id)
        })
    }

    /// A session of this server with at most `limit` of its topics.
    pub(crate) fn describe_own(
        &self,
        connection: ConnectionKey,
        limit: usize,
    ) -> Result<Option<ConnectionDetails>, SendError> {
        if connection.shard() >= self.shards() {
            return Ok(None);
        }
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        self.ask(connection.shard(), deadline, move |view| {
            view.describe(connection.id, limit)
        })
    }

    /// The session of this server whose client knows it by this UUID from `server_ready`.
    pub(crate) fn find_own(&self, id: &str) -> Result<Option<ConnectionKey>, SendError> {
        let Some(id) = Uuid::parse(id) else {
            return Ok(None);
        };
        let mut key = None;
        let question = move |view: &mut View<'_>, from| view.find(id, from);
        self.scan((0, 0), question, |found: Vec<ConnectionKey>| {
            key = found.first().copied();
            key.is_none()
        })?;
        Ok(key)
    }

    pub(crate) fn shards(&self) -> u32 {
        self.shared.setup.get().config.shards as u32
    }

    /// Asks every shard from the given place on, slice by slice, until `take` returns false.
    fn scan<T: Send + 'static>(
        &self,
        (first_shard, first_index): (u32, usize),
        question: impl Fn(&mut View<'_>, usize) -> Slice<T> + Send + Sync + 'static,
        mut take: impl FnMut(Vec<T>) -> bool,
    ) -> Result<(), SendError> {
        let question = Arc::new(question);
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let mut from = Some(first_index);
        for shard in first_shard..self.shards() {
            while let Some(index) = from {
                let question = Arc::clone(&question);
                let slice = self.ask(shard, deadline, move |view| question(view, index))?;
                if !take(slice.found) {
                    return Ok(());
                }
                from = slice.next;
            }
            from = Some(0);
        }
        Ok(())
    }

    /// Asks one shard and waits for its answer.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        shard: u32,
        deadline: Instant,
        question: impl FnOnce(&mut View<'_>) -> T + Send + 'static,
    ) -> Result<T, SendError> {
        let (answer, answers) = sync_channel(1);
        let question = move |view: &mut View<'_>| {
            // Whoever asked has given up.
            let _ = answer.send(question(view));
        };
        self.post(shard, Mail::Question(Question::new(question)))?;
        let wait = deadline.saturating_duration_since(Instant::now());
        answers.recv_timeout(wait).map_err(|error| match error {
            RecvTimeoutError::Timeout => SendError::Busy,
            RecvTimeoutError::Disconnected => SendError::Stopped,
        })
    }
}

impl TopicInfo {
    /// Adds the figures of another shard or server. All of them count the same publications, each from its first
    /// subscriber on.
    pub(crate) fn add(&mut self, other: &Self) {
        self.subscribers += other.subscribers;
        self.kept = self.kept.max(other.kept);
        self.publications = self.publications.max(other.publications);
        self.per_s = self.per_s.max(other.per_s);
    }
}

/// A topic without subscribers.
fn info_of(kept: &KeptTopic) -> TopicInfo {
    TopicInfo {
        topic: kept.name.to_string(),
        pattern: false,
        subscribers: 0,
        publications: kept.publications,
        per_s: kept.per_s,
        kept: Some(kept.kept),
    }
}

/// A part of a list, of which one more topic than its limit is known if there are more.
fn listed(topics: BTreeMap<Arc<str>, TopicInfo>, limit: usize) -> Listed<TopicInfo> {
    let mut items: Vec<_> = topics.into_values().collect();
    let more = items.len() > limit;
    items.truncate(limit);
    Listed { items, more }
}

/// Drops all but the busiest topics once their number makes this worth the time.
fn keep_busiest(found: &mut HashMap<Arc<str>, TopicInfo>, limit: usize) {
    let many = limit.saturating_mul(16).max(1_000);
    if found.len() > many {
        let mut order: Vec<_> = found.drain().collect();
        order.sort_by(|(_, left), (_, right)| by_rate(left, right));
        order.truncate(limit);
        found.extend(order);
    }
}

fn by_rate(left: &TopicInfo, right: &TopicInfo) -> std::cmp::Ordering {
    let by_rate = right.per_s.total_cmp(&left.per_s);
    by_rate.then_with(|| left.topic.cmp(&right.topic))
}

/// The time limit of all shards for one question, also if they answer it in slices.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Topics that `/stats` names.
pub(crate) const BUSIEST_TOPICS: usize = 20;
