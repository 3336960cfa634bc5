//! Queries that a shard answers from its own connections and topics.

use crate::model::ConnectionKey;
use crate::model::queries::{
    ConnectionDetails, ConnectionInfo, ConnectionQuery, TopicInfo, TopicQuery,
};
use crate::state::connection::{Connection, Phase};
use crate::state::core::Core;
use crate::topics::local::{LocalTopic, Slot};
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::format::Format;
use tidewire_wire::uuid::Uuid;

/// A question to a shard, answered between two of its turns.
pub(crate) struct Question(Box<dyn FnOnce(&mut View<'_>) + Send>);

/// The view of a shard.
pub(crate) struct View<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) connections: &'a [Option<Connection>],
    pub(crate) io: &'a Io,
}

impl Question {
    pub(crate) fn new(question: impl FnOnce(&mut View<'_>) + Send + 'static) -> Self {
        Self(Box::new(question))
    }

    pub(crate) fn ask(self, view: &mut View<'_>) {
        (self.0)(view);
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Question(..)")
    }
}

/// The results of a shard for some of its connections or topics.
pub(crate) struct Slice<T> {
    pub(crate) found: Vec<T>,
    /// Where to look next, if that was not all.
    pub(crate) next: Option<usize>,
}

impl View<'_> {
    /// Connections whose opening handshake is not finished.
    pub(crate) fn opening(&self) -> usize {
        let connections = self.connections.iter().flatten();
        connections
            .filter(|connection| connection.state.control.is_none())
            .count()
    }

    pub(crate) fn connections(
        &self,
        query: &ConnectionQuery,
        from: usize,
        limit: usize,
    ) -> Slice<ConnectionInfo> {
        let topics = &self.core.topics;
        let slot = match &query.topic {
            Some(name) => match topics.slot(name) {
                Some(slot) => Some(slot),
                None => return Slice::end(),
            },
            None => None,
        };
        let is_member = |id| slot.is_none_or(|slot: Slot| self.core.topics.is_member(slot, id));
        let (mut indices, end) = self.candidates(query, from);
        let mut found = Vec::new();
        let next = loop {
            let Some(index) = indices.next() else {
                break end;
            };
            let Some(connection) = self.session(index) else {
                continue;
            };
            if is_member(connection.state.key.id) && self.is_from(connection, query) {
                found.push(self.info(connection));
                if found.len() == limit {
                    break Some(index + 1);
                }
            }
        };
        Slice { found, next }
    }

    /// Whether the address of a connection starts as wanted.
    fn is_from(&self, connection: &Connection, query: &ConnectionQuery) -> bool {
        query.address.as_deref().is_none_or(|start| {
            let address = connection.state.peer_address(self.io);
            address.is_some_and(|address| address.to_string().starts_with(start))
        })
    }

    /// A session with at most `limit` of its topics.
    pub(crate) fn describe(&self, id: ConnectionId, limit: usize) -> Option<ConnectionDetails> {
        let connection = self.session(id.index())?;
        if connection.state.key.id != id {
            return None;
        }
        let topics = connection.state.topics.as_ref();
        let slots = topics.map_or(&[][..], |topics| &topics.slots);
        let names = slots.iter().take(limit);
        let names = names.filter_map(|slot| Some(self.core.topics.topic(*slot)?.name.to_string()));
        let mut subscriptions: Vec<_> = names.collect();
        subscriptions.sort_unstable();
        Some(ConnectionDetails {
            connection: self.info(connection),
            subscriptions,
            more: slots.len() > limit,
        })
    }

    /// Which places to look at, and where to go on behind them.
    fn candidates(
        &self,
        query: &ConnectionQuery,
        from: usize,
    ) -> (Box<dyn Iterator<Item = usize>>, Option<usize>) {
        let Some(user) = &query.user else {
            let end = self.connections.len().min(from + SLICE);
            let next = (end < self.connections.len()).then_some(end);
            return (Box::new(from..end), next);
        };
        let mut indices: Vec<_> = self
            .core
            .users
            .of(user)
            .iter()
            .map(|id| id.index())
            .collect();
        indices.retain(|index| *index >= from);
        indices.sort_unstable();
        (Box::new(indices.into_iter()), None)
    }

    pub(crate) fn slowest_connections(&self, from: usize, limit: usize) -> Slice<ConnectionInfo> {
        let end = self.connections.len().min(from + SLICE);
        let mut slowest: Vec<(usize, usize)> = (from..end)
            .filter_map(|index| {
                let queued = self.io.queued_bytes(self.session(index)?.state.key.id);
                (queued > 0).then_some((queued, index))
            })
            .collect();
        slowest.sort_unstable_by(|left, right| right.cmp(left));
        let slowest = slowest.iter().take(limit);
        let found = slowest
            .filter_map(|(_, index)| self.session(*index))
            .map(|connection| self.info(connection));
        Slice {
            found: found.collect(),
            next: (end < self.connections.len()).then_some(end),
        }
    }

    pub(crate) fn find(&self, id: Uuid, from: usize) -> Slice<ConnectionKey> {
        let end = self.connections.len().min(from + SLICE);
        let found = (from..end)
            .filter_map(|index| self.session(index))
            .find(|connection| connection.state.session.connection_id() == id)
            .map(|connection| connection.state.key);
        Slice {
            found: Vec::from_iter(found),
            next: (end < self.connections.len()).then_some(end),
        }
    }

    pub(crate) fn session(&self, index: usize) -> Option<&Connection> {
        let connection = self.connections.get(index)?.as_ref()?;
        let is_open = !matches!(connection.state.phase(), Phase::Opening | Phase::Over);
        is_open.then_some(connection)
    }

    fn info(&self, connection: &Connection) -> ConnectionInfo {
        let state = &connection.state;
        let id = Some(state.session.connection_id()).filter(|id| *id != Uuid::default());
        ConnectionInfo {
            connection: state.key,
            id: id.map(|id| id.to_string()),
            user: state.client.user.as_deref().map(str::to_owned),
            address: state
                .peer_address(self.io)
                .map(|address| address.to_string()),
            format: match state.session.format() {
                Format::Json => "json".into(),
                Format::MessagePack => "msgpack".into(),
            },
            topics: state.topics.as_ref().map_or(0, |topics| topics.slots.len()),
            queued_bytes: self.io.queued_bytes(state.key.id),
            connected_unix_ms: id.map(made_unix_ms),
        }
    }

    pub(crate) fn topics(
        &mut self,
        query: &TopicQuery,
        from: usize,
        limit: usize,
    ) -> Slice<(Arc<str>, TopicInfo)> {
        let (slots, next) = self.slots(from);
        // The greatest name is at the top, to make room for a smaller one.
        let mut names: BinaryHeap<(Arc<str>, Slot)> = BinaryHeap::new();
        for slot in slots {
            let Some(topic) = self.core.topics.topic(slot) else {
                continue;
            };
            let name = &*topic.name;
            let is_behind = query.after.as_deref().is_none_or(|after| name > after);
            let is_full = names.len() == limit;
            let has_place = !is_full || names.peek().is_some_and(|(last, _)| name < &**last);
            if is_behind && has_place && name.starts_with(&query.prefix) {
                if is_full {
                    names.pop();
                }
                names.push((Arc::clone(&topic.name), slot));
            }
        }
        let found = names
            .into_iter()
            .filter_map(|(name, slot)| Some((name, self.look_at(slot)?)));
        Slice {
            found: found.collect(),
            next,
        }
    }

    pub(crate) fn busiest_topics(
        &mut self,
        from: usize,
        limit: usize,
    ) -> Slice<(Arc<str>, TopicInfo)> {
        let (slots, next) = self.slots(from);
        let now_ms = self.io.now().monotonic_ms;
        let core = &mut *self.core;
        let mut rates: Vec<(f64, Slot)> = slots
            .filter_map(|slot| {
                let topic = core.topics.topic(slot)?;
                Some((core.marks.rate(slot, topic.publications, now_ms), slot))
            })
            .collect();
        rates.sort_unstable_by(|left, right| right.0.total_cmp(&left.0));
        rates.truncate(limit);
        let found = rates.into_iter().filter_map(|(_, slot)| {
            let name = Arc::clone(&self.core.topics.topic(slot)?.name);
            Some((name, self.look_at(slot)?))
        });
        Slice {
            found: found.collect(),
            next,
        }
    }

    pub(crate) fn subscribers(&self, names: &[Arc<str>]) -> Vec<u64> {
        let topics = &self.core.topics;
        let count = |name: &Arc<str>| {
            let topic = topics.slot(name).and_then(|slot| topics.topic(slot));
            topic.map_or(0, |topic| u64::from(topic.subscribers()))
        };
        names.iter().map(count).collect()
    }

    /// Some slots, used or not, and where to go on.
    fn slots(&self, from: usize) -> (std::ops::Range<Slot>, Option<usize>) {
        let slots = self.core.topics.slots_end();
        let end = slots.min(from + SLICE);
        let range = from as Slot..end as Slot;
        (range, (end < slots).then_some(end))
    }

    fn look_at(&mut self, slot: Slot) -> Option<TopicInfo> {
        let now_ms = self.io.now().monotonic_ms;
        let topic: &LocalTopic = self.core.topics.topic(slot)?;
        Some(TopicInfo {
            topic: topic.name.to_string(),
            pattern: topic.is_pattern,
            subscribers: u64::from(topic.subscribers()),
            publications: topic.publications,
            per_s: self.core.marks.rate(slot, topic.publications, now_ms),
            kept: None,
        })
    }
}

impl<T> Slice<T> {
    fn end() -> Self {
        Self {
            found: Vec::new(),
            next: None,
        }
    }
}

/// When a UUID of version 7 was made (RFC 9562, section 5.7).
fn made_unix_ms(id: Uuid) -> u64 {
    let bytes = id.0[..6].iter();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Connections or topics that a shard looks at between two turns: about a millisecond.
const SLICE: usize = 8_192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_uuid() {
        let id = tidewire_wire::uuid::uuid_v7(1_700_000_000_250, [7; 10]);
        assert_eq!(made_unix_ms(id), 1_700_000_000_250);
    }
}
