//! Presence on the wire: who comes, who goes, and who asks.

use super::hub::Origin;
use super::name::check_topic;
use super::presence::Change;
use super::publication::Publication;
use crate::application::Application;
use crate::connection::State;
use crate::core::{Core, wire_now};
use crate::turn::Turn;
use std::sync::Arc;
use tidewire_net::Io;
use tidewire_wire::envelope::{SystemType, write_presence_event};
use tidewire_wire::format::Format;
use tidewire_wire::session::{PresenceMember, PresenceQuery, Reply, TopicPresence};

impl<A: Application> Turn<'_, A> {
    /// `presence_request` from a client.
    pub(crate) fn handle_presence_request(
        &mut self,
        state: &mut State,
        request: PresenceQuery,
        correlation_id: Option<String>,
    ) {
        let (topics, failed_topics): (Vec<_>, Vec<_>) = request
            .topics
            .into_iter()
            .partition(|topic| check_topic(topic).is_ok() && state.access.may_see_presence(topic));
        let limit = if request.counts_only {
            0
        } else {
            let wanted = request.limit.unwrap_or(PRESENT_MEMBERS_MAX as u64);
            (wanted as usize).min(PRESENT_MEMBERS_MAX)
        };
        let hub = &self.core.shared.hub;
        let topics = topics.into_iter().map(|topic| {
            let view = hub.present(&topic, limit);
            let members = view.members.iter().map(|member| PresenceMember {
                user: member.user.to_string(),
                connections: member.connections as u64,
                data: member.data.as_ref().map(ToString::to_string),
            });
            TopicPresence {
                topic,
                users: view.users as u64,
                connections: view.connections as u64,
                truncated: !request.counts_only && view.members.len() < view.users,
                members: (!request.counts_only).then(|| members.collect()),
            }
        });
        let reply = Reply::PresenceResponse {
            topics: topics.collect(),
            failed_topics,
            correlation_id,
        };
        self.reply(state, &reply);
    }
}

impl Core {
    /// Whether the user is new on the topic.
    pub(crate) fn join_presence(
        &mut self,
        io: &Io,
        state: &State,
        name: &Arc<str>,
        data: Option<Arc<str>>,
    ) -> bool {
        let hub = &self.shared.hub;
        let change = hub.join_presence(name, &who(state), state.key, data.clone());
        if change == Change::Updated {
            let data = data.as_deref();
            self.tell_presence(io, state, name, SystemType::PresenceUpdate, data);
        }
        change == Change::Joined
    }

    /// Tells the subscribers of a topic about one of them.
    pub(crate) fn tell_presence(
        &mut self,
        io: &Io,
        state: &State,
        topic: &Arc<str>,
        event: SystemType,
        data: Option<&str>,
    ) {
        let now = wire_now(io);
        let id = self.new_id(now.unix_ms);
        let mut json = Vec::new();
        let written = write_presence_event(
            event,
            topic,
            &who(state),
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
        self.charge_fanout(topic, data.map_or(0, str::len));
        self.shared.hub.announce(topic, publication, origin);
    }
}

/// Whom presence is told of: the user or, without authentication, the connection.
pub(crate) fn who(state: &State) -> Arc<str> {
    match &state.user {
        Some(user) => Arc::clone(user),
        None => state.session.connection_id().to_string().into(),
    }
}

/// Users that one answer names at most.
const PRESENT_MEMBERS_MAX: usize = 1_000;
