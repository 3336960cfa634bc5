//! Subscriptions that the ACL refuses: what needed them waits and is tried again, and everything else goes on.

use crate::connection::{ErrorKind, ServerError};
use crate::link::Link;
use crate::link::event::Event;
use crate::link::options::{Now, Slot};
use crate::link::problem::Problem;
use crate::link::state::{GlobReach, Progress, TopicId};
use std::sync::Arc;

impl Link {
    /// `SUBSCRIBE` of topics was refused. Redis refuses a group if one of its channels is, so each is tried alone.
    pub(super) fn handle_refused_topics(
        &mut self,
        ids: Vec<TopicId>,
        error: &ServerError,
        now: Now,
    ) {
        if ids.len() > 1 {
            self.topics.to_subscribe_alone.extend(ids);
            return;
        }
        for id in ids {
            let retry_ms = now.ms + RETRY_MS;
            if let Some(topic) = self.topics.all.get(&id) {
                let topic = Arc::clone(&topic.name);
                self.topics.refused.push_back((retry_ms, id));
                self.note_refused_channel(&format!("the topic {topic}"), error);
                self.events.push_back(Event::Delayed { topic });
            }
        }
    }

    /// Retries the subscriptions that were refused some time ago.
    pub(super) fn retry_refused(&mut self, now: Now) {
        while let Some((due_ms, id)) = self.topics.refused.front().copied()
            && due_ms <= now.ms
        {
            self.topics.refused.pop_front();
            let topic = self.topics.all.get(&id);
            if topic.is_some_and(|topic| topic.progress == Progress::Subscribing) {
                self.topics.to_subscribe_alone.push_back(id);
            }
        }
        if self
            .patterns
            .refused_until_ms
            .take_if(|at_ms| *at_ms <= now.ms)
            .is_some()
        {
            self.patterns.reach = GlobReach::Exact;
            self.patterns.has_changed = !self.patterns.all.is_empty();
        }
    }

    pub(super) fn refused_deadline_ms(&self) -> Option<u64> {
        let topic = self.topics.refused.front().map(|(due_ms, _)| *due_ms);
        [topic, self.patterns.refused_until_ms]
            .into_iter()
            .flatten()
            .min()
    }

    /// A channel of users or of everyone was refused: messages to them do not arrive here.
    pub(super) fn handle_refused_channels(
        &mut self,
        channels: &[Vec<u8>],
        error: &ServerError,
        now: Now,
    ) {
        if channels.contains(&self.names.inbox) {
            // Without it nothing proves that the subscription works.
            return self.give_up(Slot::Subscribe, &error.to_string(), now);
        }
        if let [channel] = channels {
            let name = String::from_utf8_lossy(channel);
            self.note_refused_channel(&format!("the channel {name}"), error);
            self.sends.is_refused = true;
        } else {
            let alone = channels.iter().cloned().map(|channel| (true, channel));
            self.sends.alone.extend(alone);
        }
    }

    /// `PSUBSCRIBE` was refused. The glob of the whole prefix is what a rule of the prefix allows; if that is refused,
    /// too, patterns have to wait.
    pub(super) fn handle_refused_globs(&mut self, error: &ServerError, now: Now) {
        let patterns = &mut self.patterns;
        // Those that the change would have ended are ended with the next one.
        patterns.globs.retain(|_, glob| glob.is_confirmed);
        patterns.unconfirmed = patterns.all.keys().cloned().collect();
        match patterns.reach {
            GlobReach::Exact => {
                patterns.reach = GlobReach::Prefix;
                patterns.has_changed = true;
            }
            GlobReach::Prefix => {
                patterns.refused_until_ms = Some(now.ms + RETRY_MS);
                self.note_refused_channel("patterns", error);
            }
        }
    }

    fn note_refused_channel(&mut self, what: &str, error: &ServerError) {
        if error.kind == ErrorKind::NoPermission {
            self.counters.channels_refused += 1;
        }
        let prefix = &self.options.prefix;
        let text = format!(
            "the ACL of the broker refuses {what} ({}); allow its user &{prefix}:*, which is all that a server \
             needs, or &* for patterns that bring only what they match",
            error.text
        );
        self.begin_problem(Problem::ChannelsRefused, text);
    }

    /// Redis has confirmed a subscription: ends the problem if nothing else is refused, as far as is known.
    pub(super) fn end_refusals(&mut self) {
        let topics = &self.topics;
        let is_waiting = !topics.refused.is_empty() || !topics.to_subscribe_alone.is_empty();
        let is_refused = self.patterns.refused_until_ms.is_some() || self.sends.is_refused;
        if !self.health.problems.is_empty() && !is_waiting && !is_refused {
            self.end_problem(Problem::ChannelsRefused);
        }
    }
}

/// How long a refused subscription waits for its retry, in milliseconds.
const RETRY_MS: u64 = 10_000;
