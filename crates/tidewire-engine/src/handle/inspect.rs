//! What goes on in a running server: its connections and topics, asked of the shards.
//!
//! A question is a mail like any other. A shard answers for some thousand connections or topics at a time, so
//! that its clients do not notice, and a list of a million takes some hundred mails. Every call here waits for the
//! shards, two seconds at most, and must not come from a shard's own thread.

use crate::handle::topics::{Change, What, Whose};
use crate::handle::{Handle, SendError};
use crate::session::application::ConnectionKey;
use crate::shard::Mail;
use crate::shard::view::Slice;
pub(crate) use crate::shard::view::{Marks, Question, View};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use tidewire_net::ConnectionId;
use tidewire_wire::close::CloseCode;
use tidewire_wire::uuid::Uuid;

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionQuery {
    /// Only those of this user.
    pub user: Option<String>,
    /// Only those that subscribe to this topic or pattern, by its own name.
    pub topic: Option<String>,
    /// Only those behind this one in the order of the list.
    pub after: Option<ConnectionKey>,
    /// At most so many.
    pub limit: usize,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionInfo {
    /// Names it in calls.
    pub connection: ConnectionKey,
    /// The UUID that `server_ready` told the client; `None` without protocol version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The `sub` of its token, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The other end, as `address:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `json` or `msgpack`.
    pub format: &'static str,
    /// Topics and patterns that it subscribes to.
    pub topics: usize,
    /// What waits to be sent to it, in bytes.
    pub queued_bytes: usize,
    /// When it came, in milliseconds since 1970; `None` without protocol version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected_unix_ms: Option<u64>,
}

/// Which topics to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicQuery {
    /// Only names that start so.
    pub prefix: String,
    /// Only names that sort behind this one.
    pub after: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// A topic or pattern that has subscribers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicInfo {
    /// Its name.
    pub topic: String,
    /// Whether it is a pattern.
    pub pattern: bool,
    /// Its subscribers, on all shards.
    pub subscribers: u64,
    /// Publications since it has had subscribers without a break.
    pub publications: u64,
    /// Publications a second since somebody looked last, at least a second ago; at first since the server's start.
    pub per_s: f64,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed<T> {
    /// The items, in order.
    pub items: Vec<T>,
    /// Whether more follow.
    pub more: bool,
}

impl Handle {
    /// Lists sessions, in the order of their keys.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when a shard did not answer in time.
    pub fn list_connections(
        &self,
        query: &ConnectionQuery,
    ) -> Result<Listed<ConnectionInfo>, SendError> {
        let wanted = query.limit.saturating_add(1);
        let start = match query.after {
            Some(after) => (after.shard, after.id.index() + 1),
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

    /// Lists topics and patterns that have subscribers, by name.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when a shard did not answer in time.
    pub fn list_topics(&self, query: &TopicQuery) -> Result<Listed<TopicInfo>, SendError> {
        let wanted = query.limit.saturating_add(1);
        let mut merged: BTreeMap<Arc<str>, TopicInfo> = BTreeMap::new();
        let query = query.clone();
        let limit = query.limit;
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
        let mut items: Vec<_> = merged.into_values().collect();
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Listed { items, more })
    }

    /// The topics and patterns with the most publications a second, at most `limit`, busiest first.
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

    /// The sessions for which the most waits to be sent, at most `limit`, those with the most first.
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

    /// Whether there is such a session now.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when the shard did not answer in time.
    pub fn has_connection(&self, connection: ConnectionKey) -> Result<bool, SendError> {
        if connection.shard >= self.shards() {
            return Ok(false);
        }
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        self.ask(connection.shard, deadline, move |view| {
            view.session(connection.id.index())
                .is_some_and(|found| found.state.key == connection)
        })
    }

    /// The session that was told this UUID by `server_ready`. All sessions are looked at.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when a shard did not answer in time.
    pub fn find_connection(&self, id: &str) -> Result<Option<ConnectionKey>, SendError> {
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

    /// Ends a session with a code and a reason of at most 123 bytes.
    ///
    /// # Errors
    /// [`SendError`]; the session goes on.
    pub fn close_with(
        &self,
        connection: ConnectionKey,
        code: CloseCode,
        reason: &str,
    ) -> Result<(), SendError> {
        let change = Change {
            whose: Whose::Connection(connection.id),
            what: What::End(code, reason.into()),
        };
        self.post(connection.shard, Mail::Change(change))
    }

    fn shards(&self) -> u32 {
        self.shared.config.shards as u32
    }

    /// Asks every shard from `start` on, slice by slice, until `take` has enough.
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
    /// Adds what another shard says. Each shard counts the same publications, from its first subscriber on.
    fn add(&mut self, other: &Self) {
        self.subscribers += other.subscribers;
        self.publications = self.publications.max(other.publications);
        self.per_s = self.per_s.max(other.per_s);
    }
}

fn by_rate(left: &TopicInfo, right: &TopicInfo) -> std::cmp::Ordering {
    let by_rate = right.per_s.total_cmp(&left.per_s);
    by_rate.then_with(|| left.topic.cmp(&right.topic))
}

/// A key as text: the shard and a number, `3-4294967297`.
impl fmt::Display for ConnectionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.shard, self.id.to_u64())
    }
}

/// A text that is no [`ConnectionKey`]: the caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a connection is written as two numbers with a hyphen, such as 0-4294967297")]
pub struct InvalidConnectionKey;

impl FromStr for ConnectionKey {
    type Err = InvalidConnectionKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (shard, number) = text.split_once('-').ok_or(InvalidConnectionKey)?;
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(shard) || !is_number(number) {
            return Err(InvalidConnectionKey);
        }
        let shard = shard.parse().map_err(|_| InvalidConnectionKey)?;
        let number = number.parse().map_err(|_| InvalidConnectionKey)?;
        Ok(Self {
            shard,
            id: ConnectionId::from_u64(number),
        })
    }
}

impl Serialize for ConnectionKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How long all shards may take for one question, also when it comes to them in slices.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let key = ConnectionKey {
            shard: 63,
            id: ConnectionId::from_u64(u64::MAX),
        };
        assert_eq!(key.to_string(), "63-18446744073709551615");
        assert_eq!(key.to_string().parse(), Ok(key));
        for text in [
            "",
            "-",
            "1-",
            "-1",
            "1",
            "1-2-3",
            "+1-2",
            "1-+2",
            "1- 2",
            "4294967296-1",
        ] {
            assert_eq!(
                text.parse::<ConnectionKey>(),
                Err(InvalidConnectionKey),
                "{text}"
            );
        }
    }
}
