//! Publishing: by clients, by the application on its shard, and from any thread.

use crate::limits::owner::OwnerId;
use crate::session::Turn;
use crate::session::application::Application;
use crate::session::context::Context;
use crate::state::connection::ConnectionState;
use crate::state::core::Core;
use crate::topics::error::PublishError;
use crate::topics::outlet::Origin;
use crate::topics::publication::{Draft, NewPublication, Published};
use std::sync::Arc;
use tidewire_net::Io;
use tidewire_wire::codes::{ErrorCode, Fault};
use tidewire_wire::format::Format;
use tidewire_wire::session::{PublishRequest, Refusal, Reply};

impl<A: Application> Turn<'_, A> {
    /// `publish_request` from a client. Whether it is done with: published, or refused for good.
    pub(crate) fn handle_publish(
        &mut self,
        state: &mut ConnectionState,
        format: Format,
        bytes: &[u8],
    ) -> bool {
        let mut scratch = Vec::new();
        let (request, correlation_id) = match PublishRequest::parse(format, bytes, &mut scratch) {
            Ok(parsed) => parsed,
            Err(refusal) => return self.refuse_publication(state, refusal),
        };
        let correlation_id = correlation_id.map(|id| id.into_owned());
        let refusal = match self.core.publish_for(self.io, state, &request) {
            Ok(published) => {
                self.answer_publication(state, published, correlation_id);
                return true;
            }
            Err((code, message)) => Refusal {
                code,
                message: message.into(),
                correlation_id,
            },
        };
        self.refuse_publication(state, refusal)
    }

    fn answer_publication(
        &mut self,
        state: &mut ConnectionState,
        (topic, published): (Arc<str>, Published),
        correlation_id: Option<String>,
    ) {
        if correlation_id.is_none() {
            return;
        }
        let position = published.position;
        let reply = Reply::PublishResponse {
            topic: topic.to_string(),
            duplicate: published.is_duplicate,
            position: position.map(|position| (position.epoch, position.offset)),
            correlation_id,
        };
        self.reply(state, &reply);
    }

    /// Whether it is refused for good.
    fn refuse_publication(&mut self, state: &mut ConnectionState, refusal: Refusal) -> bool {
        self.core.counters.publications_refused.add(1);
        let (code, reason) = (refusal.code, &refusal.message);
        tracing::debug!(
            connection = %state.key,
            user = state.user.as_deref(),
            code = code.as_str(),
            %reason,
            "a publication is refused",
        );
        let error = Reply::Error {
            code: refusal.code,
            message: refusal.message,
            retry_after_s: None,
            refused: None,
            correlation_id: refusal.correlation_id,
        };
        self.reply(state, &error);
        code.fault() != Fault::Server
    }
}

impl Core {
    /// Publishes what a client asks for, if it may.
    fn publish_for(
        &mut self,
        io: &Io,
        state: &mut ConnectionState,
        request: &PublishRequest<'_>,
    ) -> Result<(Arc<str>, Published), (ErrorCode, String)> {
        let topic = self.topic_to_publish(state, &request.topic)?;
        let draft = Draft {
            t: &request.t,
            payload: &request.payload,
            category: request.category,
            priority: request.priority,
            id: request.id.as_deref(),
            key: request.key.as_deref(),
            exclude: request.exclude_self.then_some(state.key),
            ttl_ms: request.ttl_ms,
        };
        let published = self
            .publish(io, &topic, &draft, state.owner)
            .map_err(|error| (error.code(), error.to_string()))?;
        let counter = if published.is_duplicate {
            &self.counters.publications_repeated
        } else {
            &self.counters.publications_received
        };
        counter.add(1);
        Ok((topic, published))
    }

    /// The topic that a client names, if it may publish to it. The last one is remembered.
    fn topic_to_publish(
        &mut self,
        state: &mut ConnectionState,
        name: &str,
    ) -> Result<Arc<str>, (ErrorCode, String)> {
        let topics = state.topics.get_or_insert_default();
        if let Some(last) = topics.published_to.as_ref().filter(|last| &***last == name) {
            return Ok(Arc::clone(last));
        }
        if let Err(error) = crate::topics::name::check_topic(name) {
            return Err((ErrorCode::InvalidMessage, error.to_string()));
        }
        if !state.access.may_publish(name) {
            let words = format!("{name}: publishing to this topic is not allowed");
            return Err((ErrorCode::TopicForbidden, words));
        }
        let topic: Arc<str> = name.into();
        topics.published_to = Some(Arc::clone(&topic));
        Ok(topic)
    }

    /// Publishes to a topic from this shard.
    pub(crate) fn publish(
        &mut self,
        io: &Io,
        topic: &Arc<str>,
        draft: &Draft<'_>,
        owner: OwnerId,
    ) -> Result<Published, PublishError> {
        let moment = self.moment(io, owner);
        let origin = Origin::Shard(self.index);
        let published = self.shared.hub.publish(topic, draft, origin, moment)?;
        self.backlog_is_full |= self.shared.hub.is_busy(origin);
        self.charge_fanout(topic, draft.payload.len());
        Ok(published)
    }

    /// Counts what a payload of a topic makes this shard send, so that one client does not keep it from the others.
    pub(crate) fn charge_fanout(&mut self, topic: &Arc<str>, payload_bytes: usize) {
        let receivers = self.topics.receivers(topic).max(1);
        self.fanout_bytes += (payload_bytes + MESSAGE_BYTES) * receivers;
    }
}

impl Context<'_> {
    /// Publishes to a topic, whose subscribers may be on any shard. What a turn publishes leaves at its end.
    ///
    /// # Errors
    /// [`PublishError`]; nobody got it.
    pub fn publish(
        &mut self,
        topic: &str,
        publication: &NewPublication,
    ) -> Result<Published, PublishError> {
        publication.check_payload()?;
        self.core.publish(
            self.io,
            &topic.into(),
            &publication.draft(),
            OwnerId::SERVER,
        )
    }
}

/// What a message costs besides its payload.
const MESSAGE_BYTES: usize = 96;
