//! Reading the streams of topics whose mirrors lack what somebody waits for.

use super::Exchange;
use crate::cluster::convert;
use crate::cluster::mirror::refuse;
use crate::topics::broker::Done;
use std::sync::Arc;
use tidewire_redis as redis;
use tidewire_redis::{Now, PageQuery};

impl Exchange {
    /// Answers those for whom a topic is ready; for the others its stream is read.
    pub(super) fn answer_ready(&mut self, topic: &Arc<str>, now: Now) {
        let mut mirrors = self.broker.mirrors();
        let ready = mirrors.take_ready(topic);
        let must_read = mirrors
            .topics
            .get(topic)
            .is_some_and(|mirror| mirror.is_complete() && !mirror.waiting.is_empty());
        let filling = must_read.then(|| mirrors.begin_filling(topic)).flatten();
        drop(mirrors);
        for ticket in ready {
            ticket.settle(Ok(Done::Prepared));
        }
        if let Some(filling) = filling {
            self.read_on(topic, filling, None, now);
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
        self.reads.insert(number, (Arc::clone(topic), filling));
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
        topic: &Arc<str>,
        filling: u64,
        outcome: Result<redis::Entries, redis::Refusal>,
        now: Now,
    ) {
        let entries = match outcome {
            Ok(entries) => entries,
            Err(problem) => {
                let mut mirrors = self.broker.mirrors();
                mirrors.end_filling(topic, filling);
                let waiting = mirrors.take_overdue(topic, None);
                drop(mirrors);
                return refuse(waiting, convert::refusal(problem));
            }
        };
        let (node, link) = (self.link.node(), &self.link);
        let read = entries.entries.iter().filter_map(|(at, record)| {
            let to_unix_ms = |ms| link.to_unix_ms(ms);
            let made = convert::publication(node, topic, Some(*at), record, to_unix_ms)?;
            Some((convert::position(*at), made))
        });
        let read: Vec<_> = read.collect();
        let last = entries.entries.last().map(|(at, _)| *at);
        let mut mirrors = self.broker.mirrors();
        if !mirrors.fill(topic, filling, read) {
            return;
        }
        if entries.has_more && last.is_some() {
            drop(mirrors);
            return self.read_on(topic, filling, last, now);
        }
        mirrors.finish_filling(topic, now.unix_ms);
        drop(mirrors);
        self.answer_ready(topic, now);
    }
}

/// Publications that are read of a stream at a time.
const READ_AT_A_TIME: usize = 1_000;
