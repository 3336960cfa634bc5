//! Heads of topics and missed publications: read once for a node and topic, before anything newer is delivered.

use crate::connection::{ErrorKind, ServerError};
use crate::layout::Position;
use crate::link::Link;
use crate::link::options::{Now, Slot};
use crate::link::publishing::KEPT_MS_MIN;
use crate::link::state::{Progress, Round, Tag, TopicId};
use crate::record::Mark;
use crate::resp::Value;
use crate::script::{
    Fence, Fenced, PageCall, PageRange, PageReply, RenewCall, RenewReply, TAILS_MAX, TailReply,
    TailsCall,
};
use std::sync::Arc;

impl Link {
    /// Sends what topics ask of Redis.
    pub(super) fn send_topic_reads(&mut self, now: Now) {
        let Some(fence) = self
            .fencing
            .fence
            .clone()
            .filter(|_| self.fencing.is_fenced)
        else {
            return;
        };
        let deadline_ms = now.ms + self.options.command_ms;
        while self.has_read_room() && !self.topics.to_sync.is_empty() {
            self.send_tails(&fence, deadline_ms);
        }
        // Shards that have too much to deliver get no more.
        while !self.clock.is_paused
            && self.has_read_room()
            && let Some(round) = self.topics.to_catch_up.pop_front()
        {
            self.send_catch_up(round, &fence, deadline_ms);
        }
        while self.has_read_room()
            && let Some((round, only_epoch)) = self.topics.to_renew.pop_front()
        {
            self.send_renewal(round, only_epoch, &fence, deadline_ms);
        }
    }

    pub(super) fn has_read_room(&mut self) -> bool {
        let read = self.slots.ready(Slot::Read);
        read.is_some_and(|read| read.pending() < READS_IN_FLIGHT)
    }

    fn send_tails(&mut self, fence: &Fence, deadline_ms: u64) {
        let (mut rounds, mut streams) = (Vec::new(), Vec::new());
        while rounds.len() < TAILS_MAX
            && let Some(round) = self.topics.to_sync.pop_front()
        {
            if let Some(topic) = self.topics.all.get(&round.topic)
                && topic.round == round.round
            {
                let idle_ms = topic.history.map_or(0, |keep| keep.idle_ms);
                let keep_ms = if idle_ms == 0 {
                    0
                } else {
                    idle_ms.max(KEPT_MS_MIN)
                };
                streams.push((topic.stream.as_slice(), keep_ms));
                rounds.push(round);
            }
        }
        if rounds.is_empty() {
            return;
        }
        let call = TailsCall {
            fence_key: &self.names.fence,
            fence,
            streams: &streams,
        };
        if let Some(connection) = self.slots.ready(Slot::Read) {
            let tag = Tag::Tails(rounds);
            connection.send(tag, deadline_ms, |out| call.write(&self.hashes, out));
        }
    }

    fn send_catch_up(&mut self, round: Round, fence: &Fence, deadline_ms: u64) {
        let Some(topic) = self.topics.all.get_mut(&round.topic) else {
            return;
        };
        let (true, Some(head)) = (topic.round == round.round, topic.head) else {
            return;
        };
        // Every publication that was dropped until now is already in the stream.
        topic.ahead.has_overflowed = false;
        let call = PageCall {
            fence_key: &self.names.fence,
            fence,
            stream: &topic.stream,
            range: PageRange::From(head),
            limit: PAGE_MAX,
            creates_ms: None,
        };
        self.counters.catch_ups += 1;
        if let Some(connection) = self.slots.ready(Slot::Read) {
            let tag = Tag::CatchUp(round);
            connection.send(tag, deadline_ms, |out| call.write(&self.hashes, out));
        }
    }

    fn send_renewal(&mut self, round: Round, only_epoch: u32, fence: &Fence, deadline_ms: u64) {
        let Some(topic) = self.topics.all.get(&round.topic) else {
            return;
        };
        let call = RenewCall {
            fence_key: &self.names.fence,
            stream: &topic.stream,
            channel: &self.names.layout.sent(&topic.stream),
            fence,
            only_epoch: Some(only_epoch),
            greater_than: topic.head.map_or(0, |head| head.epoch),
        };
        if let Some(connection) = self.slots.ready(Slot::Read) {
            let tag = Tag::Renew(round);
            connection.send(tag, deadline_ms, |out| call.write(&self.hashes, out));
        }
    }

    /// Handles a reply that did nothing: the topic asks again.
    pub(super) fn sync_again(&mut self, round: Round) {
        if let Some(topic) = self.of_round(round) {
            if topic.progress == Progress::CatchingUp {
                topic.progress = Progress::Syncing;
            }
            self.topics.to_sync.push_back(round);
        }
    }

    /// Errors of a read: the scripts are loaded again, or it is tried again later.
    pub(super) fn handle_refused_read(&mut self, error: &ServerError, now: Now) {
        self.health.reason = Some(error.to_string());
        match error.kind {
            ErrorKind::NoScript => self.load_scripts(Slot::Read, now),
            _ if error.is_wrong_server() => self.give_up_all(&error.to_string(), now),
            _ => self.reading.hold_until_ms = now.ms + HOLD_MS,
        }
    }

    pub(super) fn handle_tails(
        &mut self,
        rounds: &[Round],
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        let tails = match result.map(|value| TailReply::read(value, rounds.len())) {
            Ok(Ok(Fenced::Done(tails))) => tails,
            other => {
                rounds.iter().for_each(|round| self.sync_again(*round));
                self.handle_undone(other.map(|_| ()), now);
                return;
            }
        };
        for (round, tail) in rounds.iter().zip(tails) {
            match tail {
                TailReply::Stands(position, mark) => self.handle_tail(*round, position, mark),
                // It is asked again when the topic is checked.
                TailReply::Unusable => self.note_unusable(*round, now),
            }
        }
    }

    /// The end of a read that did nothing: it found another fence, or was refused, or is not understood.
    pub(super) fn handle_undone(&mut self, result: Result<(), ServerError>, now: Now) {
        match result {
            Ok(()) => {
                self.lose_fence();
                self.reading.hold_until_ms = now.ms + HOLD_MS;
            }
            Err(error) => self.handle_refused_read(&error, now),
        }
    }

    fn note_unusable(&mut self, round: Round, now: Now) {
        if let Some(topic) = self.of_round(round) {
            let name = Arc::clone(&topic.name);
            self.begin_wrong_key(&name, now);
        }
    }

    /// Redis has reported the position of the last publication of a topic.
    fn handle_tail(&mut self, round: Round, tail: Position, mark: Option<Mark>) {
        self.saw_epoch(tail.epoch);
        let Some(topic) = self.of_round(round) else {
            return;
        };
        let id = round.topic;
        let Some(head) = topic.head else {
            topic.head = Some(tail);
            topic.mark = mark;
            self.begin_topic(id, tail);
            self.go_live(id);
            return;
        };
        if topic.progress == Progress::Live {
            // A check: pushes may have been faster than the reply.
            if tail > head {
                self.begin_catch_up(id);
            }
            return;
        }
        if topic.progress != Progress::Syncing {
            return;
        }
        let is_other = mark.is_some() && topic.mark.is_some() && mark != topic.mark;
        if tail.epoch > head.epoch {
            // What the new epoch has so far is delivered, too.
            let head = Position {
                epoch: tail.epoch,
                offset: 0,
            };
            self.tell_gap(id, Some(head));
            if tail == head {
                self.go_live(id);
            } else {
                self.begin_catch_up(id);
            }
        } else if tail < head || (tail == head && is_other) {
            // Redis has lost publications that this node has delivered.
            self.topics.to_renew.push_back((round, tail.epoch));
        } else if tail == head {
            self.go_live(id);
        } else {
            self.begin_catch_up(id);
        }
    }

    /// Everything up to the head is delivered; what waited follows.
    fn go_live(&mut self, id: TopicId) {
        self.tell_live(id);
        if !self.drain_ahead(id) {
            self.begin_catch_up(id);
        } else if let Some(topic) = self.topics.all.get_mut(&id) {
            topic.progress = Progress::Live;
        }
    }

    pub(super) fn handle_renewed(
        &mut self,
        round: Round,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        match result.map(RenewReply::read) {
            Ok(Ok(Fenced::Done(RenewReply {
                head: Some(head), ..
            }))) => {
                self.handle_tail(round, head, None);
            }
            Ok(Ok(Fenced::Done(_))) => self.sync_again(round),
            other => {
                self.sync_again(round);
                self.handle_undone(other.map(|_| ()), now);
            }
        }
    }

    pub(super) fn handle_catch_up(
        &mut self,
        round: Round,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        let (tail, entries) = match result.map(PageReply::read) {
            Ok(Ok(Fenced::Done(PageReply::Entries(Some(tail), entries)))) => (tail, entries),
            Ok(Ok(Fenced::Done(_))) => {
                self.sync_again(round);
                return;
            }
            other => {
                self.sync_again(round);
                self.handle_undone(other.map(|_| ()), now);
                return;
            }
        };
        self.saw_epoch(tail.epoch);
        let id = round.topic;
        let Some(topic) = self.of_round(round) else {
            return;
        };
        let Some(head) = topic
            .head
            .filter(|_| topic.progress == Progress::CatchingUp)
        else {
            return;
        };
        let at_head = entries.iter().find(|(position, _)| *position == head);
        let mark = at_head.and_then(|(_, record)| Mark::of(record));
        let is_other = mark.is_some() && topic.mark.is_some() && mark != topic.mark;
        if tail.epoch == head.epoch && (tail.offset < head.offset || is_other)
            || tail.epoch < head.epoch
        {
            topic.progress = Progress::Syncing;
            self.topics.to_renew.push_back((round, tail.epoch));
            return;
        }
        if tail.epoch > head.epoch {
            let head = Position {
                epoch: tail.epoch,
                offset: 0,
            };
            self.tell_gap(id, Some(head));
            self.begin_catch_up(id);
            return;
        }
        let has_more = entries.last().is_some_and(|(position, _)| *position > head);
        for (position, record) in entries {
            self.catch_up_with(id, position, record);
        }
        if !has_more && tail > head {
            self.skip_what_is_gone(id, head, tail);
        }
        self.end_catch_up(id, tail);
    }

    /// The next publication of the stream; those before it are no longer kept.
    fn catch_up_with(&mut self, id: TopicId, position: Position, record: &[u8]) {
        let head = self.topics.all.get(&id).and_then(|topic| topic.head);
        let Some(head) = head.filter(|head| position > *head) else {
            return;
        };
        if position.offset != head.offset.saturating_add(1) {
            self.tell_gap(
                id,
                Some(Position {
                    offset: position.offset.saturating_sub(1),
                    ..position
                }),
            );
        }
        self.deliver(id, Some(position), record.into());
    }

    /// The stream keeps nothing between the head and its newest position; what waits may be the rest.
    fn skip_what_is_gone(&mut self, id: TopicId, head: Position, tail: Position) {
        let waiting = self
            .topics
            .all
            .get(&id)
            .and_then(|topic| topic.ahead.records.front());
        let first = waiting
            .map(|(position, _)| *position)
            .filter(|first| *first <= tail);
        let offset = first.map_or(tail.offset, |first| first.offset.saturating_sub(1));
        if offset > head.offset {
            self.tell_gap(id, Some(Position { offset, ..tail }));
        }
    }

    /// A page is delivered: the topic is live again, or the next page is read.
    fn end_catch_up(&mut self, id: TopicId, tail: Position) {
        let is_complete = self.drain_ahead(id);
        let Some(topic) = self.topics.all.get_mut(&id) else {
            return;
        };
        if is_complete && topic.head >= Some(tail) {
            topic.progress = Progress::Live;
            self.tell_live(id);
        } else {
            self.begin_catch_up(id);
        }
    }
}

/// Commands without a reply on the connection for reads.
const READS_IN_FLIGHT: usize = 8;

/// Publications of one read.
const PAGE_MAX: usize = 256;

/// How long the link waits after Redis refused a read.
const HOLD_MS: u64 = 100;
