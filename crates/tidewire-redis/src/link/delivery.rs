//! Pushes of the subscription: each topic in its order, without a hole.

use crate::layout::{Position, number};
use crate::link::Link;
use crate::link::event::Event;
use crate::link::options::Now;
use crate::link::state::{Ahead, Progress, Round, Topic, TopicId};
use crate::record::Mark;
use crate::resp::Value;
use crate::script::Change;
use std::sync::Arc;

impl Ahead {
    /// Keeps a publication that has to wait, or notes that it is to be read from the stream.
    fn push(&mut self, position: Position, record: &[u8], bytes_max: usize) {
        let bytes = record.len() + size_of::<(Position, Box<[u8]>)>();
        if self.bytes + bytes > bytes_max {
            self.has_overflowed = true;
            return;
        }
        self.bytes += bytes;
        self.records.push_back((position, record.into()));
    }

    pub(super) fn pop(&mut self) -> Option<(Position, Box<[u8]>)> {
        let (position, record) = self.records.pop_front()?;
        self.bytes -= record.len() + size_of::<(Position, Box<[u8]>)>();
        Some((position, record))
    }
}

impl Link {
    pub(super) fn handle_push(&mut self, value: Value<'_>, now: Now) {
        let mut items = value.items();
        let mut next = || items.next().and_then(Value::text);
        match (next(), next()) {
            (Some(b"message" | b"smessage"), Some(channel)) => match next() {
                Some(message) => self.handle_message(channel, message, now),
                None => self.counters.malformed += 1,
            },
            (Some(b"subscribe" | b"ssubscribe"), Some(channel)) => self.handle_subscribed(channel),
            (Some(b"psubscribe"), Some(glob)) => self.handle_watched(glob),
            (Some(b"pmessage"), Some(_)) => match (next(), next()) {
                (Some(channel), Some(message)) => self.handle_matched(channel, message),
                _ => self.counters.malformed += 1,
            },
            // `unsubscribe`, `sunsubscribe`, and pushes that nobody asked for. A slot that has moved ends its
            // subscriptions too; the next command reports that.
            _ => {}
        }
    }

    fn handle_message(&mut self, channel: &[u8], message: &[u8], now: Now) {
        if self.handle_parcel(channel, message) {
            return;
        }
        if channel == self.names.inbox {
            self.handle_inbox(message, now);
            return;
        }
        let name = self.names.layout.topic_of(channel);
        let Some(id) = name.and_then(|name| self.topics.ids.get(name).copied()) else {
            return;
        };
        if Change::is_one(message) {
            return self.handle_change(name.unwrap_or_default(), message);
        }
        self.ring_groups(name.unwrap_or_default());
        if message == b"g" {
            // Work was handed back.
            return;
        }
        let Some(topic) = self.topics.all.get_mut(&id) else {
            return;
        };
        topic.active_ms = now.ms;
        if let Some(count) = message.strip_prefix(b"x").and_then(number) {
            let name = Arc::clone(&topic.name);
            let why = format!("{count} entries of its stream that no server wrote were removed");
            return self.begin_unreadable(&name, &why, now);
        }
        let end = memchr::memchr(b' ', message).unwrap_or(message.len());
        let (head, record) = (&message[..end], message.get(end + 1..));
        match (topic.history, head, Position::parse(head)) {
            (None, b"-", _) => {
                if topic.progress == Progress::Live {
                    self.deliver(id, None, record.unwrap_or_default().into());
                }
            }
            (Some(_), _, Some(position)) => self.handle_publication(id, position, record),
            // A server with other rules of topics: delivered all the same, as this server keeps no such position.
            (None, _, Some(_)) | (Some(_), b"-", _) => {
                if let Some(record) = record {
                    self.deliver_other_form(id, record);
                }
            }
            _ => {
                self.counters.malformed += 1;
                let name = Arc::clone(&topic.name);
                self.begin_unreadable(&name, "it has no position", now);
                let head = self.topics.all.get(&id).and_then(|topic| topic.head);
                self.tell_gap(id, head);
            }
        }
    }

    /// Hands out a publication that has a position and this node keeps none of the topic, or the other way round.
    fn deliver_other_form(&mut self, id: TopicId, record: &[u8]) {
        self.counters.other_forms += 1;
        let Some(topic) = self.topics.all.get(&id) else {
            return;
        };
        if topic.progress != Progress::Subscribing && topic.is_told_live {
            self.counters.delivered += 1;
            let topic = Arc::clone(&topic.name);
            self.events.push_back(Event::Delivered {
                topic,
                position: None,
                record: record.into(),
            });
        }
    }

    /// A publication, or without a record the beginning of an epoch.
    fn handle_publication(&mut self, id: TopicId, position: Position, record: Option<&[u8]>) {
        let bytes_max = self.options.ahead_bytes_max;
        let Some(topic) = self.topics.all.get_mut(&id) else {
            return;
        };
        let (Progress::Live, Some(head)) = (topic.progress, topic.head) else {
            if let Some(record) = record {
                topic.ahead.push(position, record, bytes_max);
            }
            return;
        };
        self.fencing.known_epoch = self.fencing.known_epoch.max(position.epoch);
        if position.epoch > head.epoch {
            let head = Position {
                epoch: position.epoch,
                offset: 0,
            };
            self.tell_gap(id, Some(head));
            self.handle_publication(id, position, record);
            return;
        }
        let Some(record) = record else {
            return;
        };
        if position.epoch < head.epoch || position.offset <= head.offset {
            self.counters.stale += 1;
        } else if position.offset == head.offset.saturating_add(1) {
            self.deliver(id, Some(position), record.into());
        } else {
            topic.ahead.push(position, record, bytes_max);
            self.begin_catch_up(id);
        }
    }

    /// Hands out the next publication of a topic.
    pub(super) fn deliver(&mut self, id: TopicId, position: Option<Position>, record: Box<[u8]>) {
        let Some(topic) = self.topics.all.get_mut(&id) else {
            return;
        };
        topic.head = position;
        topic.mark = Mark::of(&record);
        if topic.mark.is_none() {
            self.counters.malformed += 1;
        }
        // Whoever asked went away before the topic was live.
        if !topic.is_told_live {
            if !self.patterns.all.is_empty() {
                let topic = Arc::clone(&topic.name);
                self.tell_matched(topic, position, record);
            }
            return;
        }
        self.counters.delivered += 1;
        let topic = Arc::clone(&topic.name);
        self.events.push_back(Event::Delivered {
            topic,
            position,
            record,
        });
    }

    pub(super) fn begin_catch_up(&mut self, id: TopicId) {
        if let Some(topic) = self.topics.all.get_mut(&id) {
            topic.progress = Progress::CatchingUp;
            let round = Round {
                topic: id,
                round: topic.round,
            };
            self.topics.to_catch_up.push_back(round);
        }
    }

    /// The topic of a reply, unless it has begun anew since the question.
    pub(super) fn of_round(&mut self, round: Round) -> Option<&mut Topic> {
        let topic = self.topics.all.get_mut(&round.topic)?;
        (topic.round == round.round).then_some(topic)
    }

    /// Hands out what waited and now is next; whether nothing waits behind a hole.
    pub(super) fn drain_ahead(&mut self, id: TopicId) -> bool {
        loop {
            let Some(topic) = self.topics.all.get_mut(&id) else {
                return true;
            };
            let (Some(head), Some((position, _))) = (topic.head, topic.ahead.records.front())
            else {
                return !topic.ahead.has_overflowed;
            };
            let position = *position;
            if position.epoch > head.epoch {
                let head = Position {
                    epoch: position.epoch,
                    offset: 0,
                };
                self.tell_gap(id, Some(head));
                continue;
            }
            let is_old = position.epoch < head.epoch || position.offset <= head.offset;
            if !is_old && position.offset != head.offset.saturating_add(1) {
                return false;
            }
            let Some((_, record)) = topic.ahead.pop() else {
                return true;
            };
            if is_old {
                self.counters.stale += 1;
            } else {
                self.deliver(id, Some(position), record);
            }
        }
    }
}
