//! Patterns: matching publications arrive through `PSUBSCRIBE`, unless their topic is subscribed to anyway.
//!
//! The patterns of a node share few globs, of which at most one matches a topic (see [`Cover`]). So Redis
//! sends a publication once, however many patterns it matches. A glob matches more than its patterns; the
//! owner matches again. When the globs change, the new ones are subscribed to before the old ones are left,
//! so that nothing is missed; a second copy of a publication is dropped by its mark. An ACL may allow no glob
//! but that of the whole prefix: then all publications arrive. A topic that is subscribed to by its name is
//! delivered as such, so each publication arrives once. A pattern has no position: after a lost connection
//! its owner receives a gap of unknown size.

use crate::layout::{Layout, Position};
use crate::link::Link;
use crate::link::cover::{Cover, Reach, beginning};
use crate::link::event::Event;
use crate::link::options::{Now, Slot};
use crate::link::state::{Glob, GlobReach, Patterns, Progress, Tag, TopicId};
use crate::record::Mark;
use crate::resp::{argument, command, command_head};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

impl Link {
    pub(super) fn add_pattern(&mut self, name: &Arc<str>) {
        let patterns = &mut self.patterns;
        if patterns.all.contains_key(name) {
            return;
        }
        patterns.all.insert(Arc::clone(name), false);
        patterns.unconfirmed.insert(Arc::clone(name));
        if patterns.cover.add(name) {
            patterns.has_changed = true;
            patterns.cover.keep_within(GLOBS_MAX);
        } else {
            let covering = patterns.cover.covering(beginning(name));
            let text = covering.map(|(text, _)| Box::<str>::from(text));
            self.tell_confirmed(&text.unwrap_or_default());
        }
    }

    pub(super) fn remove_pattern(&mut self, name: &str, now: Now) {
        let patterns = &mut self.patterns;
        if patterns.all.remove(name).is_some() {
            patterns.unconfirmed.remove(name);
            patterns.renew_ms.get_or_insert(now.ms + RENEW_MS);
        }
    }

    pub(super) fn tick_patterns(&mut self, now: Now) {
        let patterns = &mut self.patterns;
        if patterns
            .renew_ms
            .take_if(|at_ms| *at_ms <= now.ms)
            .is_some()
        {
            let names = patterns.all.keys().map(|name| &**name);
            let mut cover = Cover::of(names);
            cover.keep_within(GLOBS_MAX);
            patterns.has_changed |= cover != patterns.cover;
            patterns.cover = cover;
        }
        // One change after the other, so that arriving and leaving clients do not cause ever more changes.
        let is_changing = patterns.globs.values().any(|glob| !glob.is_confirmed);
        if !patterns.has_changed || is_changing || patterns.refused_until_ms.is_some() {
            return;
        }
        let deadline_ms = now.ms + self.options.command_ms;
        let Some(connection) = self.slots.ready(Slot::Subscribe) else {
            return;
        };
        if !self.channels.is_known() {
            return;
        }
        patterns.has_changed = false;
        let wanted = patterns.wanted_globs(&self.names.layout);
        let is_new = |glob: &&Vec<u8>| !patterns.globs.contains_key(*glob);
        let new: Vec<_> = wanted.keys().filter(is_new).cloned().collect();
        let is_old = |glob: &&Vec<u8>| !wanted.contains_key(*glob);
        let old: Vec<_> = patterns.globs.keys().filter(is_old).cloned().collect();
        let groups: [(&[u8], &[Vec<u8>]); 2] = [(b"PSUBSCRIBE", &new), (b"PUNSUBSCRIBE", &old)];
        for (name, globs) in groups {
            if globs.is_empty() {
                continue;
            }
            connection.send_silent(Tag::Watch, deadline_ms, |out| {
                command_head(out, 1 + globs.len());
                argument(out, name);
                globs.iter().for_each(|glob| argument(out, glob));
            });
            connection.send(Tag::Ping, deadline_ms, |out| command(out, &[b"PING"]));
        }
        patterns.globs.retain(|glob, _| wanted.contains_key(glob));
        for (glob, text) in &wanted {
            let new = || Glob {
                text: text.clone(),
                is_confirmed: false,
            };
            patterns.globs.entry(glob.clone()).or_insert_with(new);
        }
        for text in wanted.values() {
            self.tell_confirmed(text);
        }
    }

    pub(super) fn patterns_deadline_ms(&self) -> Option<u64> {
        self.patterns.renew_ms
    }

    pub(super) fn begin_patterns(&mut self) {
        self.patterns.globs.clear();
        // The rules may be others now: Redis ends connections whose rules become narrower.
        self.patterns.reach = GlobReach::Exact;
        self.patterns.refused_until_ms = None;
        self.patterns.has_changed = !self.patterns.all.is_empty();
    }

    pub(super) fn lose_patterns(&mut self) {
        let patterns = &mut self.patterns;
        patterns.globs.clear();
        patterns.unconfirmed = patterns.all.keys().cloned().collect();
    }

    /// Redis has confirmed a glob: from here on nothing that matches is missed.
    pub(super) fn handle_watched(&mut self, glob: &[u8]) {
        if let Some(glob) = self.patterns.globs.get_mut(glob) {
            glob.is_confirmed = true;
            let text = glob.text.clone();
            self.end_refusals();
            self.tell_confirmed(&text);
        }
    }

    /// Reports the patterns that begin with this text of the cover, if Redis has confirmed its globs.
    fn tell_confirmed(&mut self, text: &str) {
        let patterns = &mut self.patterns;
        let (text, globs) = match patterns.reach {
            GlobReach::Prefix => ("", vec![self.names.layout.glob_of_prefix()]),
            GlobReach::Exact => {
                let Some((text, reach)) = patterns.cover.covering(text) else {
                    return;
                };
                (text, globs_of(text, reach, &self.names.layout))
            }
        };
        let is_confirmed = |glob| patterns.globs.get(glob).is_some_and(|it| it.is_confirmed);
        if !globs.iter().all(is_confirmed) {
            return;
        }
        let from = (Bound::Included(text), Bound::Unbounded);
        let names = patterns.unconfirmed.range::<str, _>(from);
        let names = names.take_while(|name| name.starts_with(text));
        let names: Vec<_> = names.cloned().collect();
        for pattern in names {
            patterns.unconfirmed.remove(&pattern);
            let told = patterns.all.insert(Arc::clone(&pattern), true);
            self.events.push_back(match told {
                Some(true) => Event::PatternGap { pattern },
                _ => Event::Watching { pattern },
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

    /// Reports a publication that matches, once however many patterns it matches.
    pub(super) fn tell_matched(
        &mut self,
        topic: Arc<str>,
        position: Option<Position>,
        record: Box<[u8]>,
    ) {
        let mark = Mark::of(&record);
        // While the globs change, two of them may match; the two copies arrive one behind the other.
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

impl Patterns {
    /// The globs that are to be subscribed to, each with its text.
    fn wanted_globs(&self, layout: &Layout) -> BTreeMap<Vec<u8>, Box<str>> {
        let all = self.cover.iter();
        match self.reach {
            GlobReach::Prefix if self.all.is_empty() => BTreeMap::new(),
            GlobReach::Prefix => BTreeMap::from([(layout.glob_of_prefix(), "".into())]),
            GlobReach::Exact => {
                let globs = all.map(|(text, reach)| (text, globs_of(text, reach, layout)));
                let globs =
                    globs.flat_map(|(text, globs)| globs.into_iter().map(move |it| (it, text)));
                globs.map(|(glob, text)| (glob, text.into())).collect()
            }
        }
    }
}

fn globs_of(text: &str, reach: &Reach, layout: &Layout) -> Vec<Vec<u8>> {
    match reach {
        Reach::Pattern(pattern) => layout.globs(pattern),
        Reach::All => layout.globs_of_all(text),
    }
}

/// The globs of a node. Each costs Redis some 50 ns for every publication of all nodes.
const GLOBS_MAX: usize = 64;

/// How long the globs of patterns that are gone stay at most, in milliseconds.
const RENEW_MS: u64 = 1_000;
