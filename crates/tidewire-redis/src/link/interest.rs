//! Interest: which topics are subscribed to, from the first subscriber of the node until some time after the last.

use crate::layout::Position;
use crate::link::Link;
use crate::link::event::{Event, History};
use crate::link::options::{Now, Slot};
use crate::link::state::{Ahead, Progress, Round, Tag, Topic, TopicId};
use crate::resp::{argument, command, command_head};
use std::sync::Arc;

impl Link {
    pub(super) fn add_interest(&mut self, name: &Arc<str>, history: History, now: Now) {
        if let Some(id) = self.topics.ids.get(name).copied()
            && let Some(topic) = self.topics.all.get_mut(&id)
            && topic.history.is_some() == history.is_some()
        {
            topic.history = history;
            if !topic.is_wanted {
                topic.is_wanted = true;
                topic.owes_live = true;
                if topic.progress == Progress::Live {
                    self.tell_live(id);
                } else {
                    let due_ms = now.ms + self.options.broker_wait_ms;
                    self.topics.awaited.push_back((due_ms, id));
                }
            }
            return;
        }
        self.remove_topic(name);
        self.topics.last_id += 1;
        let id = TopicId(self.topics.last_id);
        let topic = Topic {
            name: Arc::clone(name),
            stream: self.names.layout.stream(name),
            history,
            progress: Progress::Subscribing,
            is_wanted: true,
            owes_live: true,
            is_told_live: false,
            unwanted_ms: 0,
            head: None,
            live_from: None,
            mark: None,
            ahead: Ahead::default(),
            round: 0,
            active_ms: now.ms,
        };
        self.topics.ids.insert(Arc::clone(name), id);
        self.topics.all.insert(id, topic);
        self.topics.to_subscribe.push_back(id);
        self.topics
            .awaited
            .push_back((now.ms + self.options.broker_wait_ms, id));
        if history.is_some() {
            self.topics.checks.push_back((now.ms + CHECK_EVERY_MS, id));
        }
    }

    pub(super) fn remove_interest(&mut self, name: &str, now: Now) {
        let due_ms = now.ms + self.options.linger_ms;
        if let Some(id) = self.topics.ids.get(name).copied()
            && let Some(topic) = self.topics.all.get_mut(&id)
            && topic.is_wanted
        {
            topic.is_wanted = false;
            topic.unwanted_ms = now.ms;
            self.topics.lingering.push_back((due_ms, id));
        }
    }

    fn remove_topic(&mut self, name: &str) {
        if let Some(id) = self.topics.ids.remove(name)
            && let Some(topic) = self.topics.all.remove(&id)
        {
            let channels = self.names.layout.all(&topic.stream);
            self.topics.to_unsubscribe.extend(channels);
        }
    }

    pub(super) fn tell_live(&mut self, id: TopicId) {
        if let Some(topic) = self.topics.all.get_mut(&id)
            && topic.is_wanted
            && topic.owes_live
        {
            topic.owes_live = false;
            topic.is_told_live = true;
            let event = Event::Live {
                topic: Arc::clone(&topic.name),
                head: topic.head,
            };
            self.events.push_back(event);
        }
    }

    pub(super) fn tick_interest(&mut self, now: Now) {
        while let Some((due_ms, id)) = self.topics.lingering.front().copied()
            && due_ms <= now.ms
        {
            self.topics.lingering.pop_front();
            // Wanted again, or again unwanted later.
            let is_over = |topic: &Topic| {
                !topic.is_wanted && topic.unwanted_ms + self.options.linger_ms <= now.ms
            };
            let over = self.topics.all.get(&id).filter(|topic| is_over(topic));
            if let Some(name) = over.map(|topic| Arc::clone(&topic.name)) {
                self.remove_topic(&name);
            }
        }
        while let Some((due_ms, id)) = self.topics.awaited.front().copied()
            && due_ms <= now.ms
        {
            self.topics.awaited.pop_front();
            if let Some(topic) = self.topics.all.get(&id)
                && topic.is_wanted
                && topic.owes_live
            {
                let topic = Arc::clone(&topic.name);
                self.events.push_back(Event::Delayed { topic });
            }
        }
        self.check_silent(now);
        self.send_subscriptions(now);
    }

    /// Compares topics with their streams if nothing arrived for a while.
    fn check_silent(&mut self, now: Now) {
        while let Some((due_ms, id)) = self.topics.checks.front().copied()
            && due_ms <= now.ms
        {
            self.topics.checks.pop_front();
            let Some(topic) = self.topics.all.get(&id) else {
                continue;
            };
            self.topics.checks.push_back((now.ms + CHECK_EVERY_MS, id));
            let is_silent = topic.active_ms + CHECK_EVERY_MS <= now.ms;
            if is_silent && matches!(topic.progress, Progress::Live | Progress::Syncing) {
                let round = Round {
                    topic: id,
                    round: topic.round,
                };
                self.topics.to_sync.push_back(round);
            }
        }
    }

    fn send_subscriptions(&mut self, now: Now) {
        if !self.channels.is_known() {
            return;
        }
        let (form, deadline_ms) = (self.pub_sub, now.ms + self.options.command_ms);
        let layout = &self.names.layout;
        let Some(connection) = self.slots.ready(Slot::Subscribe) else {
            self.topics.to_unsubscribe.clear();
            return;
        };
        for streams in self.topics.to_unsubscribe.chunks(CHANNELS_MAX) {
            connection.send_unanswered(|out| {
                command_head(out, 1 + streams.len());
                argument(out, form.unsubscribe());
                streams.iter().for_each(|stream| argument(out, stream));
            });
        }
        self.topics.to_unsubscribe.clear();
        // Few at a time, so that a hundred thousand do not fill the memory at both ends.
        let topics = &mut self.topics;
        while connection.pending() < 2 * GROUPS_IN_FLIGHT {
            let (mut ids, mut streams) = (Vec::new(), Vec::new());
            let (queue, most) = match topics.to_subscribe.is_empty() {
                true => (&mut topics.to_subscribe_alone, 1),
                false => (&mut topics.to_subscribe, CHANNELS_MAX),
            };
            if queue.is_empty() {
                return;
            }
            while streams.len() < most
                && let Some(id) = queue.pop_front()
            {
                if let Some(topic) = topics.all.get(&id) {
                    ids.push(id);
                    streams.extend(layout.received(&topic.stream));
                }
            }
            if streams.is_empty() {
                continue;
            }
            connection.send_silent(Tag::Subscribe(ids), deadline_ms, |out| {
                command_head(out, 1 + streams.len());
                argument(out, form.subscribe());
                streams.iter().for_each(|stream| argument(out, stream));
            });
            // Confirmations are pushes; the answer to `PING` shows that all of them have arrived.
            connection.send(Tag::Ping, deadline_ms, |out| command(out, &[b"PING"]));
        }
    }

    /// A connection for subscriptions is new.
    pub(super) fn begin_subscriptions(&mut self, now: Now) {
        let (form, deadline_ms) = (self.pub_sub, now.ms + self.options.command_ms);
        if let Some(connection) = self.slots.ready(Slot::Subscribe) {
            let inbox = &self.names.inbox;
            let tag = Tag::Listen(vec![inbox.clone()]);
            connection.send_silent(tag, deadline_ms, |out| {
                command(out, &[form.subscribe(), inbox]);
            });
            connection.send(Tag::Ping, deadline_ms, |out| command(out, &[b"PING"]));
        }
        self.begin_patterns();
        self.begin_users();
        self.topics.to_unsubscribe.clear();
        self.topics.to_subscribe = self.topics.all.keys().copied().collect();
    }

    pub(super) fn lose_subscriptions(&mut self) {
        self.clock.has_inbox = false;
        self.lose_patterns();
        self.lose_rosters();
        self.lose_probe();
        self.topics.to_subscribe.clear();
        self.topics.to_subscribe_alone.clear();
        self.topics.refused.clear();
        self.topics.to_sync.clear();
        self.topics.to_catch_up.clear();
        self.topics.to_renew.clear();
        for topic in self.topics.all.values_mut() {
            topic.progress = Progress::Subscribing;
            topic.round += 1;
            topic.ahead = Ahead::default();
        }
    }

    /// Redis has confirmed a subscription: from here on nothing is missed.
    pub(super) fn handle_subscribed(&mut self, channel: &[u8]) {
        self.end_refusals();
        if channel == self.names.inbox {
            self.clock.has_inbox = true;
            return;
        }
        let name = self.names.layout.topic_of(channel);
        let Some(id) = name.and_then(|name| self.topics.ids.get(name).copied()) else {
            return;
        };
        let Some(topic) = self.topics.all.get_mut(&id) else {
            return;
        };
        if topic.progress != Progress::Subscribing {
            return;
        }
        let name = Arc::clone(&topic.name);
        self.ring_groups(&name);
        let Some(topic) = self.topics.all.get_mut(&id) else {
            return;
        };
        if topic.history.is_some() {
            topic.progress = Progress::Syncing;
            let round = Round {
                topic: id,
                round: topic.round,
            };
            self.topics.to_sync.push_back(round);
            return self.begin_roster(&name);
        }
        topic.progress = Progress::Live;
        self.begin_roster(&name);
        let Some(topic) = self.topics.all.get_mut(&id) else {
            return;
        };
        // If the topic was reported as live before, its subscribers may have missed something.
        let is_again = topic.is_told_live;
        if is_again {
            self.tell_gap(id, None);
        }
        self.tell_live(id);
    }

    /// Asks again where all topics stand.
    pub(super) fn sync_all(&mut self) {
        for (id, topic) in &mut self.topics.all {
            if topic.history.is_some() && topic.progress != Progress::Subscribing {
                topic.progress = Progress::Syncing;
                topic.round += 1;
                let round = Round {
                    topic: *id,
                    round: topic.round,
                };
                self.topics.to_sync.push_back(round);
            }
        }
    }

    pub(super) fn tell_gap(&mut self, id: TopicId, head: Option<Position>) {
        if let Some(topic) = self.topics.all.get_mut(&id) {
            topic.head = head;
            topic.mark = None;
            // Before the topic is reported as live, nothing can be missed.
            if topic.is_told_live {
                self.counters.gaps += 1;
                let event = Event::Gap {
                    topic: Arc::clone(&topic.name),
                    head,
                };
                self.events.push_back(event);
            }
        }
    }

    pub(super) fn interest_deadline_ms(&self) -> Option<u64> {
        let topics = &self.topics;
        let fronts = [
            topics.lingering.front(),
            topics.awaited.front(),
            topics.checks.front(),
        ];
        fronts
            .into_iter()
            .flatten()
            .map(|(due_ms, _)| *due_ms)
            .min()
    }
}

/// Channels of one `SUBSCRIBE`.
const CHANNELS_MAX: usize = 512;

/// Groups of `SUBSCRIBE` without an answer.
const GROUPS_IN_FLIGHT: usize = 8;

/// How long a topic is silent before it is compared with its stream.
const CHECK_EVERY_MS: u64 = 60_000;
