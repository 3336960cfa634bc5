//! Presence of a session: announcements on its topics, and answers to `presence_request`.

use crate::limits::rate::RateVerdict;
use crate::limits::work::cost;
use crate::session::Session;
use crate::state::unfinished_jobs::{Announcement, Job, PresenceJob};
use crate::topics::broker::Prepare;
use crate::topics::error::PublishError;
use crate::topics::local::Slot;
use crate::topics::name::check_topic;
use crate::topics::presence::PresenceChange;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::SystemType;
use tidewire_wire::session::{PresenceMember, PresenceQuery, Reply, TopicPresence};

impl Session<'_> {
    /// `presence_request` from a client.
    pub(crate) fn handle_presence_request(
        &mut self,
        request: PresenceQuery,
        correlation_id: Option<String>,
    ) {
        if !self.core.shared.hub.has_cluster() {
            return self.answer_presence(request, correlation_id);
        }
        let job = PresenceJob {
            request,
            correlation_id,
        };
        self.state.work.jobs.push(Job::Presence(Box::new(job)));
    }

    /// Answers a request. If it has to wait for the broker, it returns the job.
    pub(crate) fn step_presence(&mut self, mut job: Box<PresenceJob>) -> Option<Box<PresenceJob>> {
        let mut failed = self.take_refused();
        for topic in &job.request.topics {
            let may_see =
                check_topic(topic).is_ok() && self.state.client.access.may_see_presence(topic);
            let is_failed = failed.iter().any(|(refused, _)| **refused == **topic);
            if may_see && !is_failed && self.core.shared.hub.shares_presence(topic) {
                self.core.turn.meter.spend(cost::CHECK);
                self.ask_for(&topic.as_str().into(), Prepare::default());
            }
        }
        if self.state.awaits_broker() {
            // Those that were refused are asked for again.
            return Some(job);
        }
        failed.extend(self.take_refused());
        let unavailable = job.request.topics.extract_if(.., |topic| {
            failed.iter().any(|(refused, _)| **refused == **topic)
        });
        let unavailable: Vec<_> = unavailable.collect();
        if let Some(topic) = unavailable.first() {
            let error = PublishError::Unavailable;
            let refusal = Reply::Error {
                code: error.code(),
                message: format!("{topic}: {error}").into(),
                retry_after_s: None,
                refused: None,
                correlation_id: job.correlation_id,
            };
            self.reply(&refusal);
            return None;
        }
        self.answer_presence(job.request, job.correlation_id);
        None
    }

    fn answer_presence(&mut self, request: PresenceQuery, correlation_id: Option<String>) {
        let mut topics = request.topics;
        let mut seen = HashSet::new();
        topics.retain(|topic| seen.insert(topic.clone()));
        let (topics, failed_topics): (Vec<_>, Vec<_>) = topics.into_iter().partition(|topic| {
            check_topic(topic).is_ok() && self.state.client.access.may_see_presence(topic)
        });
        let limit = if request.counts_only {
            0
        } else {
            let wanted = request.limit.unwrap_or(PRESENT_MEMBERS_MAX as u64);
            (wanted as usize).min(PRESENT_MEMBERS_MAX)
        };
        let mut room = Room {
            members: PRESENT_MEMBERS_MAX,
            bytes: PRESENCE_ANSWER_BYTES,
        };
        let topics = topics.into_iter();
        let topics =
            topics.map(|topic| self.presence_of(topic, limit, &mut room, request.counts_only));
        let reply = Reply::PresenceResponse {
            topics: topics.collect(),
            failed_topics,
            correlation_id,
        };
        self.reply(&reply);
    }

    /// The users on a topic, as far as there is room for them in the answer.
    fn presence_of(
        &mut self,
        topic: String,
        limit: usize,
        room: &mut Room,
        counts_only: bool,
    ) -> TopicPresence {
        let view = self
            .core
            .shared
            .hub
            .present(&topic, limit.min(room.members));
        let mut members = Vec::new();
        for member in &view.members {
            let data = member.data.as_ref();
            let bytes = member.user.len() + data.map_or(0, |data| data.len()) + MEMBER_BYTES;
            if bytes > room.bytes {
                room.members = 0;
                break;
            }
            room.bytes -= bytes;
            room.members -= 1;
            members.push(PresenceMember {
                user: member.user.to_string(),
                connections: member.connections as u64,
                data: data.map(ToString::to_string),
            });
        }
        let named = view.members.len() as u64;
        self.core
            .turn
            .meter
            .spend(cost::PRESENCE_TOPIC + named * cost::PRESENCE_MEMBER);
        TopicPresence {
            topic,
            users: view.users as u64,
            connections: view.connections as u64,
            truncated: !counts_only && members.len() < view.users,
            members: (!counts_only).then_some(members),
        }
    }

    /// Makes a session present on one topic; returns the rest of the announcement. The messages to others
    /// count against the rate limit, as if the client had published them to each topic.
    pub(crate) fn step_announcement(
        &mut self,
        mut announcement: Announcement,
    ) -> Option<Announcement> {
        if !self.state.can_subscribe() {
            return None;
        }
        let messages = event_messages(announcement.data.as_deref());
        let limit = &self.core.setup.rate_limit;
        let verdict =
            self.state
                .limits
                .bucket
                .take_many(limit, messages, self.io.now().monotonic_ms);
        if matches!(verdict, RateVerdict::Refused { .. }) {
            self.core.turn.work_waits = true;
            return Some(announcement);
        }
        let topic = announcement.topics.next()?;
        let slot = self.core.topics.slot(&topic);
        // It may have left again.
        if let Some(slot) = slot.filter(|slot| self.core.topics.is_member(*slot, self.state.key.id))
        {
            let mut data = announcement.data.clone();
            if data.is_some()
                && let Err(wait_s) = self.check_presence_budget()
            {
                // The earlier data of the member stays valid.
                data = None;
                announcement.refused += 1;
                announcement.retry_after_s = wait_s;
                self.core.counters.presence_refused.add(1);
            }
            match self.charge_presence(slot, data.as_deref()) {
                Ok(()) => self.join_presence(&topic, data),
                Err(words) => {
                    let words = format!("{topic}: {words}");
                    let id = announcement.correlation_id.clone();
                    self.reply_error(ErrorCode::LimitExceeded, words, id);
                    self.join_presence(&topic, None);
                }
            }
        }
        if announcement.topics.len() > 0 {
            return Some(announcement);
        }
        self.report_refused_presence(&announcement);
        None
    }

    /// Notifies a client, once for a request, that its presence data is not sent to others.
    fn report_refused_presence(&mut self, announcement: &Announcement) {
        if announcement.refused == 0 {
            return;
        }
        let message = format!(
            "the presence data was refused on {} topics: more bytes for their subscribers than presence_bytes_per_s",
            announcement.refused
        );
        self.reply(&Reply::Error {
            code: ErrorCode::RateLimited,
            message: message.into(),
            retry_after_s: Some(announcement.retry_after_s),
            refused: None,
            correlation_id: announcement.correlation_id.clone(),
        });
    }

    /// The time of this turn on a clock that all shards share and that nobody sets.
    fn instant(&self) -> Instant {
        self.io.instant_at(self.now().monotonic_ms)
    }

    /// Whether the owner may make the server send more presence data now; if not, the seconds until it may.
    fn check_presence_budget(&self) -> Result<(), u64> {
        let per_s = self.core.setup.config.topics.limits.presence_bytes_per_s;
        let budgets = &self.core.shared.charges.presence_budgets;
        budgets.check(self.state.limits.owner, per_s, self.instant())
    }

    /// Charges the owner for what an event costs its receivers, here and on the other shards.
    fn charge_presence_event(&mut self, topic: &Arc<str>, data: Option<&str>) {
        let per_s = self.core.setup.config.topics.limits.presence_bytes_per_s;
        let present = self.core.shared.hub.present(topic, 0).connections;
        let receivers = present.max(self.core.topics.receivers(topic));
        let bytes = (data.map_or(0, str::len) + EVENT_BYTES) * receivers;
        let budgets = &self.core.shared.charges.presence_budgets;
        budgets.spend(self.state.limits.owner, bytes, per_s, self.instant());
    }

    /// Charges a session for its presence data on a topic, in place of its earlier data there.
    fn charge_presence(&mut self, slot: Slot, data: Option<&str>) -> Result<(), &'static str> {
        let Some(data) = data else { return Ok(()) };
        self.reserve(data.len())?;
        let topics = self.state.topics.get_or_insert_default();
        let before = topics.presence_bytes.insert(slot, data.len());
        self.give_back(before.unwrap_or_default());
        Ok(())
    }

    /// Makes a session present on a topic, or changes its presence data there.
    fn join_presence(&mut self, name: &Arc<str>, data: Option<Arc<str>>) {
        let hub = &self.core.shared.hub;
        let change = hub.join_presence(name, &self.presence_name(), self.state.key, data.clone());
        let event = match change {
            PresenceChange::Joined => SystemType::PresenceJoin,
            PresenceChange::Updated => SystemType::PresenceUpdate,
            PresenceChange::Left | PresenceChange::Unchanged => {
                // On a topic that servers share the broker sends the event.
                if data.is_some() && self.core.shared.hub.shares_presence(name) {
                    self.charge_presence_event(name, data.as_deref());
                }
                return self.core.turn.meter.spend(cost::PRESENCE_EVENT / 2);
            }
        };
        self.charge_presence_event(name, data.as_deref());
        self.core.tell_presence(
            self.now(),
            &self.presence_name(),
            name,
            event,
            data.as_deref(),
        );
    }
}

/// The room in one answer about presence.
struct Room {
    members: usize,
    bytes: usize,
}

/// How many published messages an event about presence is worth: one, and one more for each 4 KiB.
fn event_messages(data: Option<&str>) -> u32 {
    let bytes = data.map_or(0, str::len);
    1 + u32::try_from(bytes / BYTES_PER_MESSAGE).unwrap_or(u32::MAX - 1)
}

/// Users that one answer names at most, of all its topics together.
const PRESENT_MEMBERS_MAX: usize = 1_000;

/// The limit of data about users in one answer, in bytes.
const PRESENCE_ANSWER_BYTES: usize = 512 * 1024;

/// The size of a member in an answer besides its name and its data, in bytes.
const MEMBER_BYTES: usize = 48;

/// The size of an event besides its data, in bytes.
const EVENT_BYTES: usize = 160;

/// This many bytes of presence data count as one message.
const BYTES_PER_MESSAGE: usize = 4096;
