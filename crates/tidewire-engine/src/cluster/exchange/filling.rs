//! Reading the streams of topics whose mirrors lack what somebody waits for.

use super::{Exchange, UNREADABLE};
use crate::cluster::convert;
use crate::cluster::mirror::refuse;
use crate::topics::broker::Done;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tidewire_redis as redis;
use tidewire_redis::{Now, PageQuery};

/// The streams that are being read, and those that wait for it.
#[derive(Debug, Default)]
pub(super) struct Fillings {
    /// The topic of each read, and which reading of its stream it is part of.
    reads: HashMap<u64, (Arc<str>, u64)>,
    /// The largest size of each reading, in bytes.
    room: HashMap<u64, usize>,
    waiting: VecDeque<Arc<str>>,
}

impl Fillings {
    /// Returns whether a reading of at most `bytes` may begin. A single reading always may.
    fn has_room(&self, bytes: usize) -> bool {
        let taken: usize = self.room.values().sum();
        self.room.is_empty() || taken.saturating_add(bytes) <= FILLING_BYTES_MAX
    }
}

impl Exchange {
    /// Answers those for whom a topic is ready; for the others its stream is read.
    pub(super) fn answer_ready(&mut self, topic: &Arc<str>, now: Now) {
        let mut mirrors = self.broker.mirrors();
        let ready = mirrors.take_ready(topic);
        let must_read = mirrors.topics.get(topic).is_some_and(|mirror| {
            mirror.is_complete() && !mirror.waiting.is_empty() && mirror.filling.is_none()
        });
        let bytes = mirrors.filling_bytes_max(topic);
        let filling = match must_read && self.interest.fillings.has_room(bytes) {
            true => mirrors.begin_filling(topic),
            false => None,
        };
        if must_read && filling.is_none() && mirrors.wait_to_fill(topic) {
            self.interest.fillings.waiting.push_back(Arc::clone(topic));
        }
        drop(mirrors);
        for ticket in ready {
            ticket.settle(Ok(Done::Prepared));
        }
        if let Some(filling) = filling {
            self.interest.fillings.room.insert(filling, bytes);
            self.read_on(topic, filling, None, now);
        }
    }

    /// A reading has ended; others have room.
    fn end_filling(&mut self, filling: u64, now: Now) {
        self.interest.fillings.room.remove(&filling);
        while self.interest.fillings.has_room(0)
            && let Some(topic) = self.interest.fillings.waiting.pop_front()
        {
            let before = self.interest.fillings.waiting.len();
            if let Some(mirror) = self.broker.mirrors().topics.get_mut(&topic) {
                mirror.waits_to_fill = false;
            }
            self.answer_ready(&topic, now);
            if self.interest.fillings.waiting.len() > before {
                // It has no room yet.
                return;
            }
        }
    }

    /// Reads the stream of a topic after a position, from its oldest publication without one.
    fn read_on(
        &mut self,
        topic: &Arc<str>,
        filling: u64,
        since: Option<redis::Position>,
        now: Now,
    ) {
        let number = self.next_number();
        let read = (Arc::clone(topic), filling);
        self.interest.fillings.reads.insert(number, read);
        let query = PageQuery {
            since,
            limit: READ_AT_A_TIME,
            newest_first: false,
            creates: None,
        };
        self.link.read(number, topic, query, now);
    }

    pub(super) fn take_read(
        &mut self,
        number: u64,
        outcome: Result<redis::Entries, redis::Refusal>,
        now: Now,
    ) {
        let Some((topic, filling)) = self.interest.fillings.reads.remove(&number) else {
            return;
        };
        let entries = match outcome {
            Ok(entries) => entries,
            Err(problem) => {
                let mut mirrors = self.broker.mirrors();
                mirrors.stop_filling(&topic, filling);
                let waiting = mirrors.take_overdue(&topic, None);
                drop(mirrors);
                refuse(waiting, convert::refusal(problem));
                return self.end_filling(filling, now);
            }
        };
        let (node, link) = (self.link.node(), &self.link);
        let mut unreadable = 0;
        // A record that cannot be read is missing in the history: a subscriber that recovers over it receives a gap.
        let read = entries.entries.iter().filter_map(|(at, record)| {
            let to_unix_ms = |ms| link.to_unix_ms(ms);
            let made = convert::kept(node, &topic, *at, record, to_unix_ms);
            unreadable += u64::from(made.is_none());
            let published_ms = self.published_ms(record, now);
            Some((convert::position(*at), made?, published_ms))
        });
        let last = entries.entries.last().map(|(at, _)| *at);
        let mut mirrors = self.broker.mirrors();
        let is_wanted = mirrors.fill(&topic, filling, read);
        for _ in 0..unreadable {
            self.link.note_unreadable(&topic, UNREADABLE, now);
        }
        if is_wanted && entries.has_more && last.is_some() {
            drop(mirrors);
            return self.read_on(&topic, filling, last, now);
        }
        if is_wanted {
            mirrors.finish_filling(&topic, now.unix_ms);
        }
        drop(mirrors);
        self.end_filling(filling, now);
        // Of a topic that stands elsewhere now the stream is read again, if somebody waits still.
        self.answer_ready(&topic, now);
    }
}

/// Publications that are read of a stream at a time.
const READ_AT_A_TIME: usize = 1_000;

/// The largest size of all readings together, in bytes. A single reading may be as large as the history of its topic.
const FILLING_BYTES_MAX: usize = 64 * 1024 * 1024;
