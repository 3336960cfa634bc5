//! Presence on the wire: who comes, who goes, and who asks.

use crate::clock::wire_now;
use crate::limits::owner::OwnerId;
use crate::limits::rate::RateVerdict;
use crate::limits::work::{PUBLISH_BYTES_PER_TURN, cost};
use crate::model::ConnectionKey;
use crate::session::Turn;
use crate::session::application::Application;
use crate::state::connection::ConnectionState;
use crate::state::core::Core;
use crate::state::jobs::Announcement;
use crate::state::topics::Departure;
use crate::topics::local::Slot;
use crate::topics::name::check_topic;
use crate::topics::outlet::Origin;
use crate::topics::presence::PresenceChange;
use crate::topics::publication::Publication;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use tidewire_net::Io;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{SystemType, write_presence_event};
use tidewire_wire::format::Format;
use tidewire_wire::session::{PresenceMember, PresenceQuery, Reply, TopicPresence};

impl<A: Application> Turn<'_, A> {
    /// `presence_request` from a client.
    pub(crate) fn handle_presence_request(
        &mut self,
        state: &mut ConnectionState,
        request: PresenceQuery,
        correlation_id: Option<String>,
    ) {
        let mut topics = request.topics;
        let mut seen = HashSet::new();
        topics.retain(|topic| seen.insert(topic.clone()));
        let (topics, failed_topics): (Vec<_>, Vec<_>) = topics
            .into_iter()
            .partition(|topic| check_topic(topic).is_ok() && state.access.may_see_presence(topic));
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
        self.reply(state, &reply);
    }

    /// Who is on a topic, as far as there is room for it in the answer.
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
}

/// What one answer about presence has room for.
struct Room {
    members: usize,
    bytes: usize,
}

impl Core {
    /// Makes a session present on one topic; what is left. What that tells others counts against the rate limit, as
    /// if the client had published it to each topic.
    pub(crate) fn step_announcement(
        &mut self,
        io: &mut Io,
        state: &mut ConnectionState,
        mut announcement: Announcement,
    ) -> Option<Announcement> {
        if !state.can_subscribe() {
            return None;
        }
        let messages = event_messages(announcement.data.as_deref());
        let limit = &self.shared.rate_limit;
        let verdict = state
            .bucket
            .take_many(limit, messages, io.now().monotonic_ms);
        if matches!(verdict, RateVerdict::Refused { .. }) {
            self.work_waits = true;
            return Some(announcement);
        }
        let topic = announcement.topics.next()?;
        let slot = self.topics.slot(&topic);
        // It may have left again.
        if let Some(slot) = slot.filter(|slot| self.topics.is_member(*slot, state.key.id)) {
            let data = announcement.data.clone();
            match self.charge_presence(state, slot, data.as_deref()) {
                Ok(()) => self.join_presence(io, state, &topic, data),
                Err(words) => {
                    let words = format!("{topic}: {words}");
                    self.reply(io, state, &Reply::error(ErrorCode::LimitExceeded, words));
                    self.join_presence(io, state, &topic, None);
                }
            }
        }
        (announcement.topics.len() > 0).then_some(announcement)
    }

    /// Charges a session for what it says about itself on a topic, in the place of what it said before.
    fn charge_presence(
        &mut self,
        state: &mut ConnectionState,
        slot: Slot,
        data: Option<&str>,
    ) -> Result<(), &'static str> {
        let Some(data) = data else { return Ok(()) };
        self.reserve(state, data.len())?;
        let topics = state.topics.get_or_insert_default();
        let before = topics.presence_bytes.insert(slot, data.len());
        self.give_back(state, before.unwrap_or_default());
        Ok(())
    }

    /// A session that has ended is no longer present on a topic; its leave is told when there is time for it.
    pub(crate) fn depart(&mut self, connection: ConnectionKey, who: Arc<str>, topic: Arc<str>) {
        self.departures.push_back(Departure {
            topic,
            who,
            connection,
        });
    }

    /// Tells of sessions that have ended, as far as a turn has time for it.
    pub(crate) fn tell_departures(&mut self, io: &Io) {
        self.meter.start();
        let origin = Origin::Shard(self.index);
        while !self.meter.is_spent()
            && self.fanout_bytes <= PUBLISH_BYTES_PER_TURN
            && !self.shared.hub.is_busy(origin)
            && let Some(departure) = self.departures.pop_front()
        {
            let Departure {
                topic,
                who,
                connection,
            } = departure;
            self.leave_presence(io, &topic, &who, connection);
        }
        if self.departures.is_empty() {
            self.departures = VecDeque::new();
        }
        self.meter.settle(OwnerId::SERVER);
    }

    /// A connection of a user is no longer present on a topic.
    pub(crate) fn leave_presence(
        &mut self,
        io: &Io,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
    ) {
        let hub = &self.shared.hub;
        if hub.leave_presence(topic, who, connection) == PresenceChange::Left {
            self.tell_presence(io, who, topic, SystemType::PresenceLeave, None);
        }
    }

    /// Makes a session present on a topic, or changes what it says about itself there.
    fn join_presence(
        &mut self,
        io: &Io,
        state: &mut ConnectionState,
        name: &Arc<str>,
        data: Option<Arc<str>>,
    ) {
        let hub = &self.shared.hub;
        let change = hub.join_presence(name, &who(state), state.key, data.clone());
        let event = match change {
            PresenceChange::Joined => SystemType::PresenceJoin,
            PresenceChange::Updated => SystemType::PresenceUpdate,
            PresenceChange::Left | PresenceChange::Unchanged => {
                return self.meter.spend(cost::PRESENCE_EVENT / 2);
            }
        };
        self.tell_presence(io, &who(state), name, event, data.as_deref());
    }

    /// Tells the subscribers of a topic about one of them.
    pub(crate) fn tell_presence(
        &mut self,
        io: &Io,
        who: &Arc<str>,
        topic: &Arc<str>,
        event: SystemType,
        data: Option<&str>,
    ) {
        let bytes = data.map_or(0, str::len);
        self.meter.spend(cost::PRESENCE_EVENT + cost::bytes(bytes));
        let now = wire_now(io);
        let id = self.new_id(now.unix_ms);
        let mut json = Vec::new();
        let written = write_presence_event(
            event,
            topic,
            who,
            data,
            id,
            now.unix_ms,
            Format::Json,
            &mut json,
        );
        if let Err(error) = written {
            return tracing::error!(%error, "presence cannot be told");
        }
        self.counters.presence_events.add(1);
        let publication = Publication::event(Some(Arc::clone(topic)), json);
        let origin = Origin::Shard(self.index);
        self.charge_fanout(topic, bytes);
        self.shared.hub.announce(topic, publication, origin);
        self.backlog_is_full |= self.shared.hub.is_busy(origin);
    }
}

/// Whom presence is told of: the user or, without authentication, the connection.
pub(crate) fn who(state: &ConnectionState) -> Arc<str> {
    match &state.user {
        Some(user) => Arc::clone(user),
        None => state.session.connection_id().to_string().into(),
    }
}

/// How many published messages an event about presence is worth: one, and one more for each 4 KiB.
fn event_messages(data: Option<&str>) -> u32 {
    let bytes = data.map_or(0, str::len);
    1 + u32::try_from(bytes / BYTES_PER_MESSAGE).unwrap_or(u32::MAX - 1)
}

/// Users that one answer names at most, of all its topics together.
const PRESENT_MEMBERS_MAX: usize = 1_000;

/// What one answer says about users at most, in bytes.
const PRESENCE_ANSWER_BYTES: usize = 512 * 1024;

/// What a member takes in an answer besides its name and its data, in bytes.
const MEMBER_BYTES: usize = 48;

/// So many bytes of presence data count as one message.
const BYTES_PER_MESSAGE: usize = 4096;
