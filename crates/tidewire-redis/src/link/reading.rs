//! Reads and new epochs for callers. Reads of one topic that wait at the same time are one read of Redis.

use crate::connection::ServerError;
use crate::layout::Position;
use crate::link::Link;
use crate::link::event::{Entries, Event, PageQuery, Refusal};
use crate::link::options::{Now, Slot};
use crate::link::publishing::KEPT_MS_MIN;
use crate::link::state::{ForgetOp, ReadOp, Tag};
use crate::resp::Value;
use crate::script::{Fenced, PageCall, PageRange, PageReply, RenewCall, RenewReply};
use std::sync::Arc;

impl Link {
    pub(super) fn enqueue_read(
        &mut self,
        number: u64,
        topic: &Arc<str>,
        query: PageQuery,
        now: Now,
    ) {
        if self.reading.count >= self.options.reads_max {
            self.events.push_back(Event::Read {
                number,
                outcome: Err(Refusal::Busy),
            });
            return;
        }
        self.reading.count += 1;
        self.reading.next_sequence += 1;
        let sequence = self.reading.next_sequence;
        let give_up_ms = now.ms + self.options.broker_wait_ms;
        let topic = Arc::clone(topic);
        self.wait_to_read(ReadOp {
            number,
            sequence,
            topic,
            query,
            give_up_ms,
        });
    }

    fn wait_to_read(&mut self, read: ReadOp) {
        let reading = &mut self.reading;
        let reads = reading.topics.entry(Arc::clone(&read.topic)).or_default();
        if reads.waiting.is_empty() && !reads.is_busy {
            reading.ready.push_back(Arc::clone(&read.topic));
        }
        reads.waiting.insert(read.sequence);
        reading.waiting.insert(read.sequence, read);
    }

    pub(super) fn enqueue_forget(&mut self, number: u64, topic: &Arc<str>, now: Now) {
        let give_up_ms = now.ms + self.options.broker_wait_ms;
        let topic = Arc::clone(topic);
        let forget = ForgetOp {
            number,
            topic,
            give_up_ms,
            is_doubtful: false,
        };
        if self.reading.forgets.len() >= self.options.reads_max {
            self.events.push_back(Event::Forgotten {
                number,
                outcome: Err(Refusal::Busy),
            });
        } else {
            self.reading.forgets.push_back(forget);
        }
    }

    pub(super) fn tick_reading(&mut self, now: Now) {
        self.expire_reads(now);
        if self.reading.hold_until_ms <= now.ms {
            self.reading.hold_until_ms = 0;
            self.send_topic_reads(now);
            self.send_reads(now);
        }
    }

    fn expire_reads(&mut self, now: Now) {
        while let Some(entry) = self.reading.waiting.first_entry()
            && entry.get().give_up_ms <= now.ms
        {
            let read = entry.remove();
            if let Some(reads) = self.reading.topics.get_mut(&read.topic) {
                reads.waiting.remove(&read.sequence);
                // Its place among those that are ready, if it has one, is passed over.
                if reads.waiting.is_empty() && !reads.is_busy {
                    self.reading.topics.remove(&read.topic);
                }
            }
            self.finish_read(read.number, Err(Refusal::Unavailable));
        }
        while let Some(forget) = self.reading.forgets.pop_front() {
            if forget.give_up_ms > now.ms {
                self.reading.forgets.push_front(forget);
                break;
            }
            let refusal = if forget.is_doubtful {
                Refusal::Unknown
            } else {
                Refusal::Unavailable
            };
            self.events.push_back(Event::Forgotten {
                number: forget.number,
                outcome: Err(refusal),
            });
        }
    }

    fn finish_read(&mut self, number: u64, outcome: Result<Entries, Refusal>) {
        self.reading.count -= 1;
        self.events.push_back(Event::Read { number, outcome });
    }

    fn send_reads(&mut self, now: Now) {
        let deadline_ms = now.ms + self.options.command_ms;
        let Some(fence) = self
            .fencing
            .fence
            .clone()
            .filter(|_| self.fencing.is_fenced)
        else {
            return;
        };
        while self.has_read_room()
            && let Some(forget) = self.reading.forgets.pop_front()
        {
            let stream = self.names.layout.stream(&forget.topic);
            let call = RenewCall {
                fence_key: &self.names.fence,
                stream: &stream,
                channel: &self.names.layout.sent(&stream),
                fence: &fence,
                only_epoch: None,
                greater_than: 0,
            };
            if let Some(connection) = self.slots.ready(Slot::Read) {
                let tag = Tag::Forget(forget);
                connection.send(tag, deadline_ms, |out| call.write(&self.hashes, out));
            }
        }
        while self.has_read_room()
            && let Some(topic) = self.reading.ready.pop_front()
        {
            let reads = self.next_reads(&topic);
            let Some(first) = reads.first() else {
                continue;
            };
            let stream = self.names.layout.stream(&topic);
            let creates = reads.iter().find_map(|read| read.query.creates);
            let call = PageCall {
                fence_key: &self.names.fence,
                fence: &fence,
                stream: &stream,
                range: range_of(&reads, first.query),
                limit: reads
                    .iter()
                    .map(|read| read.query.limit)
                    .max()
                    .unwrap_or(1)
                    .clamp(1, LIMIT_MAX),
                creates_ms: creates.map(|keep| match keep.idle_ms {
                    0 => 0,
                    idle_ms => idle_ms.max(KEPT_MS_MIN),
                }),
            };
            self.counters.reads += 1;
            if let Some(connection) = self.slots.ready(Slot::Read) {
                let tag = Tag::Page(topic, reads);
                connection.send(tag, deadline_ms, |out| call.write(&self.hashes, out));
            }
        }
    }

    /// The waiting reads of a topic that one read of Redis can serve.
    fn next_reads(&mut self, topic: &Arc<str>) -> Vec<ReadOp> {
        let reading = &mut self.reading;
        let Some(reads) = reading.topics.get_mut(topic).filter(|reads| !reads.is_busy) else {
            return Vec::new();
        };
        let query = |sequence: &u64| reading.waiting.get(sequence).map(|read| read.query);
        let Some(first) = reads.waiting.first().and_then(query) else {
            return Vec::new();
        };
        let goes_along =
            |sequence: &u64| query(sequence).is_some_and(|other| can_merge(first, other));
        let mut is_first = true;
        let chosen: Vec<u64> = reads
            .waiting
            .iter()
            .copied()
            .filter(|sequence| std::mem::take(&mut is_first) || goes_along(sequence))
            .collect();
        for sequence in &chosen {
            reads.waiting.remove(sequence);
        }
        reads.is_busy = true;
        chosen
            .iter()
            .filter_map(|sequence| reading.waiting.remove(sequence))
            .collect()
    }

    /// A topic has no read on its way any more.
    fn release_topic(&mut self, topic: &Arc<str>) {
        if let Some(reads) = self.reading.topics.get_mut(topic) {
            reads.is_busy = false;
            if reads.waiting.is_empty() {
                self.reading.topics.remove(topic);
            } else {
                self.reading.ready.push_back(Arc::clone(topic));
            }
        }
    }

    pub(super) fn handle_page(
        &mut self,
        topic: &Arc<str>,
        reads: Vec<ReadOp>,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        self.release_topic(topic);
        match result.map(PageReply::read) {
            Ok(Ok(Fenced::Done(PageReply::Entries(head, entries)))) => {
                for read in reads {
                    self.answer_read(read, head, &entries);
                }
            }
            Ok(Ok(Fenced::Done(PageReply::Unusable)) | Err(_)) => {
                self.counters.malformed += 1;
                for read in reads {
                    self.finish_read(read.number, Err(Refusal::Unavailable));
                }
            }
            other => {
                reads.into_iter().for_each(|read| self.wait_to_read(read));
                self.handle_undone(other.map(|_| ()), now);
            }
        }
    }

    fn answer_read(&mut self, read: ReadOp, head: Option<Position>, entries: &[(Position, &[u8])]) {
        let PageQuery {
            since,
            limit,
            newest_first,
            ..
        } = read.query;
        let is_after =
            |position: &Position| newest_first || since.is_none_or(|since| *position > since);
        let wanted = entries
            .iter()
            .filter(|(position, _)| is_after(position))
            .take(limit.min(LIMIT_MAX));
        let given: Vec<_> = wanted
            .map(|(position, record)| (*position, Box::from(*record)))
            .collect();
        let connects = match (since, head) {
            (None, _) => true,
            (Some(since), Some(head)) if since.epoch == head.epoch => {
                let oldest = if newest_first {
                    given.last()
                } else {
                    given.first()
                };
                // One after `since`, or nothing at all.
                oldest.map_or(since == head, |(oldest, _)| {
                    oldest.offset == since.offset.saturating_add(1)
                })
            }
            _ => false,
        };
        let last = given.last().map(|(position, _)| *position);
        let has_more = match (last, head) {
            (Some(last), Some(head)) if !newest_first => last < head,
            (Some(_), _) => given.len() >= limit,
            _ => false,
        };
        // Its part lies behind what the merged read returned.
        let read_to = entries.last().map(|(position, _)| *position);
        let is_behind = last.is_none() && !newest_first && read_to.is_some() && read_to < head;
        if is_behind
            && since < head
            && since.map(|since| since.epoch) == head.map(|head| head.epoch)
        {
            self.wait_to_read(read);
            return;
        }
        let entries = Entries {
            head,
            entries: given,
            connects,
            has_more,
        };
        self.finish_read(read.number, Ok(entries));
    }

    pub(super) fn handle_forgotten(
        &mut self,
        forget: ForgetOp,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        let number = forget.number;
        let outcome = match result.map(RenewReply::read) {
            // An earlier request, on a connection that was lost, may have been done.
            Ok(Ok(Fenced::Done(reply))) => {
                Ok(reply.head.filter(|_| reply.is_new || forget.is_doubtful))
            }
            Ok(Err(_)) => Err(Refusal::Unknown),
            other => {
                self.reading.forgets.push_front(forget);
                self.handle_undone(other.map(|_| ()), now);
                return;
            }
        };
        self.events.push_back(Event::Forgotten { number, outcome });
    }

    /// The connection for reads is gone: its requests are sent again.
    pub(super) fn lose_reads(&mut self, tags: Vec<Tag>) {
        for tag in tags {
            match tag {
                Tag::Page(topic, reads) => {
                    self.release_topic(&topic);
                    reads.into_iter().for_each(|read| self.wait_to_read(read));
                }
                // To forget twice does no harm, but it may have been done once.
                Tag::Forget(forget) => {
                    self.reading.forgets.push_front(ForgetOp {
                        is_doubtful: true,
                        ..forget
                    });
                }
                Tag::Tails(rounds) => rounds.into_iter().for_each(|round| self.sync_again(round)),
                Tag::CatchUp(round) | Tag::Renew(round) => self.sync_again(round),
                Tag::Roster(topic, round) => self.presence.ask_again(topic, round),
                Tag::OwnScan => self.lose_scan(),
                Tag::Nodes => self.lose_nodes(),
                Tag::Agree => {}
                Tag::Fence | Tag::Send(_) | Tag::Publish(_) | Tag::Lease { .. } | Tag::Ping => {}
                Tag::Presence(_) | Tag::Sweep(_) | Tag::Group(_) => {}
                Tag::OpenProducer(_) | Tag::KeepProducers(_) => {}
                Tag::Subscribe(_) | Tag::Listen(_) | Tag::Watch => {}
            }
        }
    }

    pub(super) fn reading_deadline_ms(&self) -> Option<u64> {
        let reading = &self.reading;
        let read = reading
            .waiting
            .first_key_value()
            .map(|(_, read)| read.give_up_ms);
        let forget = reading.forgets.front().map(|forget| forget.give_up_ms);
        let hold = Some(reading.hold_until_ms).filter(|at| *at != 0);
        [read, forget, hold].into_iter().flatten().min()
    }
}

/// Whether one read serves both.
fn can_merge(first: PageQuery, other: PageQuery) -> bool {
    let epoch = |query: PageQuery| query.since.map(|since| since.epoch);
    !first.newest_first
        && !other.newest_first
        && epoch(first).is_some()
        && epoch(first) == epoch(other)
}

fn range_of(reads: &[ReadOp], first: PageQuery) -> PageRange {
    if first.newest_first {
        return PageRange::Newest(first.since);
    }
    let least = reads.iter().filter_map(|read| read.query.since).min();
    least.map_or(PageRange::All, PageRange::After)
}

/// Publications of one read.
const LIMIT_MAX: usize = 1_000;
