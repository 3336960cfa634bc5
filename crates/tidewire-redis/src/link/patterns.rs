//! Patterns: what matches comes from `PSUBSCRIBE`, unless its topic is subscribed to anyway.
//!
//! Redis matches globs, which match more than our patterns; the owner matches again. A topic that is subscribed to by
//! its name is delivered as such, so each publication comes once. A pattern has no position: after a lost connection
//! its owner receives a gap of unknown size.

use crate::layout::Position;
use crate::link::Link;
use crate::link::event::Event;
use crate::link::options::{Now, Slot};
use crate::link::state::{Pattern, Progress, Tag, TopicId};
use crate::record::Mark;
use crate::resp::{argument, command, command_head};
use std::sync::Arc;

impl Link {
    pub(super) fn add_pattern(&mut self, name: &Arc<str>) {
        let patterns = &mut self.patterns;
        let glob = self.names.layout.glob(name);
        let pattern = patterns.all.entry(Arc::clone(name)).or_insert(Pattern {
            glob: glob.clone(),
            is_told: false,
        });
        let known = patterns.globs.entry(glob.clone()).or_default();
        known.names.insert(Arc::clone(name));
        if known.is_confirmed {
            pattern.is_told = true;
            let pattern = Arc::clone(name);
            self.events.push_back(Event::Watching { pattern });
        } else if known.names.len() == 1 {
            patterns.to_subscribe.push_back(glob);
        }
    }

    pub(super) fn remove_pattern(&mut self, name: &str) {
        let patterns = &mut self.patterns;
        let Some(Pattern { glob, .. }) = patterns.all.remove(name) else {
            return;
        };
        let Some(known) = patterns.globs.get_mut(&glob) else {
            return;
        };
        // `a.*` and `a.>` have one glob.
        known.names.remove(name);
        if known.names.is_empty() {
            patterns.globs.remove(&glob);
            patterns.to_subscribe.retain(|other| *other != glob);
            patterns.to_unsubscribe.push(glob);
        }
    }

    pub(super) fn tick_patterns(&mut self, now: Now) {
        let deadline_ms = now.ms + self.options.command_ms;
        let patterns = &mut self.patterns;
        let Some(connection) = self.slots.ready(Slot::Subscribe) else {
            patterns.to_unsubscribe.clear();
            return;
        };
        let groups: [(&[u8], Vec<Vec<u8>>); 2] = [
            (
                b"PUNSUBSCRIBE",
                std::mem::take(&mut patterns.to_unsubscribe),
            ),
            (
                b"PSUBSCRIBE",
                std::mem::take(&mut patterns.to_subscribe).into(),
            ),
        ];
        for (name, globs) in groups {
            for globs in globs.chunks(GLOBS_MAX) {
                connection.send_unanswered(|out| {
                    command_head(out, 1 + globs.len());
                    argument(out, name);
                    globs.iter().for_each(|glob| argument(out, glob));
                });
                connection.send(Tag::Ping, deadline_ms, |out| command(out, &[b"PING"]));
            }
        }
    }

    pub(super) fn begin_patterns(&mut self) {
        self.patterns.to_unsubscribe.clear();
        self.patterns.to_subscribe = self.patterns.globs.keys().cloned().collect();
    }

    pub(super) fn lose_patterns(&mut self) {
        for glob in self.patterns.globs.values_mut() {
            glob.is_confirmed = false;
        }
    }

    /// Redis has confirmed a glob: from here on nothing that matches is missed.
    pub(super) fn handle_watched(&mut self, glob: &[u8]) {
        let patterns = &mut self.patterns;
        let Some(glob) = patterns
            .globs
            .get_mut(glob)
            .filter(|glob| !glob.is_confirmed)
        else {
            return;
        };
        glob.is_confirmed = true;
        for name in &glob.names {
            let Some(known) = patterns.all.get_mut(name) else {
                continue;
            };
            let pattern = Arc::clone(name);
            self.events
                .push_back(match std::mem::replace(&mut known.is_told, true) {
                    true => Event::PatternGap { pattern },
                    false => Event::Watching { pattern },
                });
        }
    }

    /// A publication that matches a pattern.
    pub(super) fn handle_matched(&mut self, channel: &[u8], message: &[u8]) {
        let Some(topic) = self.names.layout.topic_of(channel) else {
            return;
        };
        if self.handle_matched_change(topic, message) {
            return;
        }
        let Some(end) = memchr::memchr(b' ', message) else {
            // The beginning of an epoch.
            return;
        };
        let (head, record) = (&message[..end], &message[end + 1..]);
        let position = Position::parse(head);
        if position.is_none() && head != b"-" {
            self.counters.malformed += 1;
            return;
        }
        let id = self.topics.ids.get(topic).copied();
        if id.is_some_and(|id| self.is_delivered_anyway(id, position)) {
            return;
        }
        let topic = Arc::from(topic);
        self.tell_matched(topic, position, record.into());
    }

    /// Whether the subscription to the topic itself brings a publication.
    fn is_delivered_anyway(&self, id: TopicId, position: Option<Position>) -> bool {
        let Some(topic) = self.topics.all.get(&id) else {
            return false;
        };
        let is_subscribed = topic.progress != Progress::Subscribing;
        match (topic.live_from, position) {
            (Some(live_from), Some(position)) => position > live_from,
            // It waits for where the topic stands, or the topic has no history.
            _ => is_subscribed,
        }
    }

    /// Tells a publication that matches, once however many patterns it matches.
    pub(super) fn tell_matched(
        &mut self,
        topic: Arc<str>,
        position: Option<Position>,
        record: Box<[u8]>,
    ) {
        let mark = Mark::of(&record);
        // Redis sends a publication for each pattern of the connection, one behind the other.
        if mark.is_some() && self.patterns.last == mark {
            return;
        }
        self.patterns.last = mark;
        self.counters.matched += 1;
        self.events.push_back(Event::Matched {
            topic,
            position,
            record,
        });
    }

    /// A topic is new, and stands here: what waited and is not delivered as its own may match a pattern.
    pub(super) fn begin_topic(&mut self, id: TopicId, tail: Position) {
        let has_patterns = !self.patterns.all.is_empty();
        loop {
            let Some(topic) = self.topics.all.get_mut(&id) else {
                return;
            };
            topic.live_from = Some(tail);
            let first = topic.ahead.records.front();
            if first.is_none_or(|(position, _)| *position > tail) {
                return;
            }
            let Some((position, record)) = topic.ahead.pop() else {
                return;
            };
            if has_patterns {
                let topic = Arc::clone(&topic.name);
                self.tell_matched(topic, Some(position), record);
            }
        }
    }
}

/// Globs of one `PSUBSCRIBE`.
const GLOBS_MAX: usize = 512;
