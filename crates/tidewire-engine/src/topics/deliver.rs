//! From a shard's outlet to its connections: once per turn of the loop.

use super::config::TopicLimits;
use super::lag::{Careful, LagLimits, Next};
use super::local::{Form, Gathered, Groups, Item, LocalTopics, Slot};
use super::outlet::{Delivery, Target};
use super::publication::Publication;
use crate::application::Application;
use crate::connection::{Connection, Phase, State};
use crate::core::Core;
use crate::shard::EngineShard;
use std::sync::Arc;
use tidewire_net::{ConnectionId, Io, When};
use tidewire_wire::envelope::Priority;
use tidewire_wire::format::Format;
use tidewire_wire::session::Reply;

impl<A: Application> EngineShard<A> {
    /// Delivers what has been published, but no more in one turn than the connections can wait for.
    pub(crate) fn deliver(&mut self, io: &mut Io) {
        let outlet = &self.core.shared.hub.outlets[self.core.index as usize];
        outlet.take(&mut self.core.topics.queue);
        self.core.fanout_bytes = 0;
        if self.core.topics.queue.is_empty() {
            return;
        }
        let (mut settled_bytes, mut work_bytes) = (0, 0);
        while work_bytes < FANOUT_BYTES_PER_TURN
            && let Some(delivery) = self.core.topics.queue.pop_front()
        {
            let cost = delivery.publication.cost();
            settled_bytes += cost;
            work_bytes += cost * self.deliver_one(io, delivery);
        }
        self.flush_all(io);
        self.core.shared.hub.outlets[self.core.index as usize].settle(settled_bytes);
    }

    /// Whether more waits to be delivered than one turn could take.
    pub(crate) fn has_deliveries(&self) -> bool {
        self.core.shared.hub.outlets[self.core.index as usize].bytes() > 0
    }

    /// Delivers one publication, or puts it into the batches of its topics; to how many connections it goes.
    fn deliver_one(&mut self, io: &mut Io, delivery: Delivery) -> usize {
        let Delivery {
            seq,
            target,
            publication,
        } = delivery;
        match target {
            Target::Topic => self.gather(io, seq, publication),
            Target::Everyone => {
                for index in 0..self.connections.len() {
                    let session = self.connections[index].as_ref();
                    if let Some(id) = session.map(|session| session.state.key.id) {
                        self.send_to(io, id, &publication);
                    }
                }
                self.connections.len()
            }
            Target::User(user) => {
                let sessions = self.core.users.of(&user);
                for id in &sessions {
                    self.send_to(io, *id, &publication);
                }
                sessions.len()
            }
            Target::Connection(id) => {
                self.send_to(io, id, &publication);
                1
            }
            Target::Member(id, tag) => {
                // One that has left has given it back.
                if self.is_group_member(id, tag) {
                    self.send_to(io, id, &publication);
                }
                1
            }
        }
    }

    fn gather(&mut self, io: &mut Io, seq: u64, publication: Arc<Publication>) -> usize {
        let Some(topic) = &publication.topic else {
            return 0;
        };
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        self.core.topics.find(topic, &mut slots);
        slots.retain(|slot| self.core.topics.is_due(*slot, seq));
        let matching = (slots.len() > 1).then(|| Arc::from(&slots[..]));
        let item = Item {
            publication,
            matching,
        };
        let mut receivers = 0;
        for slot in &slots {
            let mut gathered = self.core.topics.gather(*slot, seq, &item);
            if gathered == Gathered::AdmitFirst {
                self.flush(io, *slot, When::EndOfTurn);
                self.core.topics.admit(*slot, seq);
                gathered = self.core.topics.gather(*slot, seq, &item);
            }
            if let Gathered::Taken { subscribers } = gathered {
                receivers += subscribers as usize;
            }
        }
        self.slots = slots;
        receivers
    }

    fn is_group_member(&self, id: ConnectionId, tag: u32) -> bool {
        let session = self.connections.get(id.index()).and_then(Option::as_ref);
        session.is_some_and(|session| {
            let topics = session.state.topics.as_ref();
            session.state.key.id == id
                && topics.is_some_and(|topics| topics.groups.contains_key(&tag))
        })
    }

    /// Sends one publication to one session.
    fn send_to(&mut self, io: &mut Io, id: ConnectionId, publication: &Publication) {
        let Some(Some(Connection { state, .. })) = self.connections.get_mut(id.index()) else {
            return;
        };
        if state.key.id == id && state.unannounced.is_none() {
            self.core.publish_to(io, state, publication);
        }
    }

    fn flush_all(&mut self, io: &mut Io) {
        let mut touched = std::mem::take(&mut self.core.topics.touched);
        // With one topic no connection gets anything else this turn that it could leave together with.
        let when = if touched.len() == 1 {
            When::Now
        } else {
            When::EndOfTurn
        };
        for slot in &touched {
            self.flush(io, *slot, when);
        }
        touched.clear();
        self.core.topics.touched = touched;
    }

    /// Sends the batch of a topic to its subscribers.
    fn flush(&mut self, io: &mut Io, slot: Slot, when: When) {
        let Some(topic) = self.core.topics.topic_mut(slot) else {
            return;
        };
        let mut batch = std::mem::take(&mut topic.batch);
        if batch.is_empty() {
            return;
        }
        let is_pattern = topic.is_pattern;
        // Taken out while connections are looked at; nobody joins or leaves meanwhile.
        let groups = std::mem::replace(&mut topic.groups, Groups::Empty);
        self.core.replace_expired(io, &mut batch);
        for (key, members) in groups.iter() {
            let passed = self.core.topics.passed(&batch, key.filter);
            if passed.is_empty() {
                continue;
            }
            match key.form {
                Form::Shared(format) if !is_pattern => {
                    self.core.send_chunks(io, members, &passed, format, when);
                }
                Form::Careful => self.send_carefully(io, slot, members, &passed),
                _ => self.send_apart(io, slot, members, &passed),
            }
        }
        if let Some(topic) = self.core.topics.topic_mut(slot) {
            topic.groups = groups;
        }
    }

    /// Sends each publication to each member by itself.
    fn send_apart(&mut self, io: &mut Io, slot: Slot, members: &[ConnectionId], items: &[&Item]) {
        for id in members {
            let Some(Some(Connection { state, .. })) = self.connections.get_mut(id.index()) else {
                continue;
            };
            for item in items {
                if !self.core.topics.comes_otherwise(*id, slot, item) {
                    self.core.publish_to(io, state, &item.publication);
                }
            }
        }
    }

    /// Sends to members that have a policy for the time when they lag.
    fn send_carefully(
        &mut self,
        io: &mut Io,
        slot: Slot,
        members: &[ConnectionId],
        items: &[&Item],
    ) {
        let limits = LagLimits::of(&self.core.shared.hub.limits);
        for id in members {
            let Some(Some(Connection { state, .. })) = self.connections.get_mut(id.index()) else {
                continue;
            };
            for item in items {
                if self.core.topics.comes_otherwise(*id, slot, item) {
                    continue;
                }
                let lags = lags(io, *id);
                let is_excluded = item.publication.exclude == Some(state.key);
                let Some(careful) = careful_of(state, slot) else {
                    break;
                };
                if !lags && careful.is_empty() {
                    self.core.publish_to(io, state, &item.publication);
                } else if !is_excluded {
                    let dropped = careful.push(Arc::clone(&item.publication), limits);
                    self.core.counters.publications_dropped.add(dropped);
                }
            }
        }
    }

    /// Sends what waited for a connection to take what it had been sent.
    pub(crate) fn send_waiting(&mut self, io: &mut Io, id: ConnectionId) {
        let Some(Some(Connection { state, .. })) = self.connections.get_mut(id.index()) else {
            return;
        };
        if state.key.id != id || state.phase != Phase::Open {
            return;
        }
        let Some(mut topics) = state.topics.take() else {
            return;
        };
        for careful in &mut topics.careful {
            while !lags(io, id)
                && let Some(next) = careful.pop()
            {
                match next {
                    Next::Gap(gap) => {
                        self.core.counters.gaps_told.add(1);
                        self.core.reply(io, state, &Reply::PublicationGap(gap));
                    }
                    Next::Publication(publication) => {
                        self.core.publish_to(io, state, &publication);
                    }
                }
            }
        }
        state.topics = Some(topics);
    }
}

impl Core {
    /// Puts into the place of publications that are expired what tells so.
    fn replace_expired(&mut self, io: &Io, batch: &mut Vec<Item>) {
        let unix_ms = io.now().unix_ms;
        batch.retain_mut(|item| {
            if !item.publication.is_expired(unix_ms) {
                return true;
            }
            match self.gap_of_expired(&item.publication, unix_ms) {
                Some(gap) => item.publication = Arc::new(gap),
                None => return false,
            }
            true
        });
    }

    /// Counts an expired publication; what tells of it, if it had a position.
    fn gap_of_expired(&mut self, expired: &Publication, unix_ms: u64) -> Option<Publication> {
        self.counters.publications_expired.add(1);
        let id = self.new_id(unix_ms);
        Publication::gap_of(expired, id, unix_ms)
    }

    /// Sends a publication to a session, if it is for it. One that is expired is told of.
    pub(crate) fn publish_to(&mut self, io: &mut Io, state: &mut State, publication: &Publication) {
        if publication.exclude == Some(state.key) {
            return;
        }
        let unix_ms = io.now().unix_ms;
        if publication.is_expired(unix_ms) {
            if let Some(gap) = self.gap_of_expired(publication, unix_ms) {
                self.send(io, state, gap.payload(state.session.format()));
            }
            return;
        }
        let payload = publication.payload(state.session.format());
        self.counters.deliveries.add(1);
        self.send(io, state, payload);
    }

    /// Sends the same frames to many, in one piece for each run of the same priority.
    fn send_chunks(
        &mut self,
        io: &mut Io,
        members: &[ConnectionId],
        items: &[&Item],
        format: Format,
        when: When,
    ) {
        let is_one_piece = items
            .windows(2)
            .all(|pair| pair[0].publication.priority == pair[1].publication.priority);
        let when = if is_one_piece { when } else { When::EndOfTurn };
        for run in items.chunk_by(|a, b| a.publication.priority == b.publication.priority) {
            let priority = run[0].publication.priority;
            self.send_chunk(io, members, run, format, (priority, when));
        }
    }

    fn send_chunk(
        &mut self,
        io: &mut Io,
        members: &[ConnectionId],
        items: &[&Item],
        format: Format,
        (priority, when): (Priority, When),
    ) {
        let mut chunk = Vec::with_capacity(items.len() * CHUNK_BYTES_EACH);
        let mut payload_bytes = 0;
        let mut excluded = Vec::new();
        for item in items {
            let payload = item.publication.payload(format);
            payload_bytes += payload.write_frame(&mut chunk);
            excluded.extend(item.publication.exclude);
        }
        let chunk = Arc::new(chunk);
        let mut receivers = 0;
        for id in members {
            if excluded
                .iter()
                .any(|key| key.id == *id && key.shard == self.index)
            {
                self.send_to_excluded(io, *id, items, format);
            } else if io.send_shared(*id, &chunk, priority, when) {
                receivers += 1;
            }
        }
        let messages = receivers * items.len() as u64;
        self.counters.deliveries.add(messages);
        self.counters.messages_sent.add(messages);
        self.counters
            .bytes_sent
            .add(receivers * payload_bytes as u64);
    }

    /// Sends to a member what of a chunk is for it.
    #[cold]
    fn send_to_excluded(&mut self, io: &mut Io, id: ConnectionId, items: &[&Item], format: Format) {
        for item in items {
            let is_excluded = item
                .publication
                .exclude
                .is_some_and(|key| key.id == id && key.shard == self.index);
            if is_excluded {
                continue;
            }
            if let Some(buffer) = io.buffer_in(id, item.publication.priority) {
                let bytes = item.publication.payload(format).write_frame(buffer);
                self.counters.deliveries.add(1);
                self.count_sent(bytes);
            }
        }
    }
}

impl LocalTopics {
    /// The publications of a batch that pass a filter.
    fn passed<'a>(&self, batch: &'a [Item], filter: u32) -> Vec<&'a Item> {
        batch
            .iter()
            .filter(|item| self.passes(&item.publication, filter))
            .collect()
    }

    /// Whether a subscriber with this filter gets a publication. The protocol's own messages have no payload to
    /// look at.
    pub(crate) fn passes(&self, publication: &Publication, filter: u32) -> bool {
        let content = publication.content();
        content.is_empty()
            || self
                .filter(filter)
                .is_none_or(|filter| filter.matches(content))
    }

    /// Whether a connection gets a publication by another of its subscriptions that comes first.
    fn comes_otherwise(&self, id: ConnectionId, slot: Slot, item: &Item) -> bool {
        let Some(matching) = &item.matching else {
            return false;
        };
        matching
            .iter()
            .take_while(|other| **other != slot)
            .filter_map(|other| self.filter_of(*other, id))
            .any(|filter| self.passes(&item.publication, filter))
    }
}

impl LagLimits {
    fn of(limits: &TopicLimits) -> Self {
        Self {
            publications_max: limits.lag_publications_max,
            bytes_max: limits.lag_bytes_max,
        }
    }
}

fn careful_of(state: &mut State, slot: Slot) -> Option<&mut Careful> {
    let topics = state.topics.as_mut()?;
    topics
        .careful
        .iter_mut()
        .find(|careful| careful.slot == slot)
}

/// Whether a connection does not take what it has been sent. If it does not, it will be reported to have drained.
fn lags(io: &mut Io, id: ConnectionId) -> bool {
    if io.queued_bytes(id) > LAG_BYTES && !io.is_blocked(id) {
        // Nothing but what waits.
        io.write_now(id, &[]);
    }
    io.is_blocked(id)
}

/// What one turn delivers, counted for each receiver, in bytes: some tens of milliseconds of work. With less the
/// writes to thousands of subscribers would be too small.
const FANOUT_BYTES_PER_TURN: usize = 256 * 1024 * 1024;

/// Past so many bytes that wait for a socket it is asked whether it takes them before more are added.
const LAG_BYTES: usize = 64 * 1024;

/// What a publication in a chunk is expected to take.
const CHUNK_BYTES_EACH: usize = 128;
