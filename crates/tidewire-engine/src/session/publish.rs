//! Publishing by a client, and by the application on its shard.

use crate::limits::owner::OwnerId;
use crate::session::Session;
use crate::session::context::Context;
use crate::topics::error::PublishError;
use crate::topics::publication::{Draft, NewPublication, Published};
use std::sync::Arc;
use tidewire_wire::codes::{ErrorCode, Fault};
use tidewire_wire::format::Format;
use tidewire_wire::session::{PublishRequest, Refusal, Reply};

impl Session<'_> {
    /// `publish_request` from a client. Whether it is done with: published, or refused for good.
    pub(crate) fn handle_publish(&mut self, format: Format, bytes: &[u8]) -> bool {
        let mut scratch = Vec::new();
        let (request, correlation_id) = match PublishRequest::parse(format, bytes, &mut scratch) {
            Ok(parsed) => parsed,
            Err(refusal) => return self.refuse_publication(refusal),
        };
        let correlation_id = correlation_id.map(|id| id.into_owned());
        let refusal = match self.publish_for(&request) {
            Ok(published) => {
                self.answer_publication(published, correlation_id);
                return true;
            }
            Err((code, message)) => Refusal {
                code,
                message: message.into(),
                correlation_id,
            },
        };
        self.refuse_publication(refusal)
    }

    fn answer_publication(
        &mut self,
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
        self.reply(&reply);
    }

    /// Whether it is refused for good.
    fn refuse_publication(&mut self, refusal: Refusal) -> bool {
        self.core.counters.publications_refused.add(1);
        let (code, reason) = (refusal.code, &refusal.message);
        tracing::debug!(
            connection = %self.state.key,
            address = self.state.peer_address(self.io).map(tracing::field::display),
            user = self.state.user.as_deref(),
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
        self.reply(&error);
        code.fault() != Fault::Server
    }

    /// Publishes what a client asks for, if it may.
    fn publish_for(
        &mut self,
        request: &PublishRequest<'_>,
    ) -> Result<(Arc<str>, Published), (ErrorCode, String)> {
        let topic = self.topic_to_publish(&request.topic)?;
        let draft = Draft {
            t: &request.t,
            payload: &request.payload,
            category: request.category,
            priority: request.priority,
            id: request.id.as_deref(),
            key: request.key.as_deref(),
            exclude: request.exclude_self.then_some(self.state.key),
            ttl_ms: request.ttl_ms,
        };
        let published = self
            .core
            .publish(self.now(), &topic, &draft, self.state.owner)
            .map_err(|error| (error.code(), error.to_string()))?;
        let counter = if published.is_duplicate {
            &self.core.counters.publications_repeated
        } else {
            &self.core.counters.publications_received
        };
        counter.add(1);
        Ok((topic, published))
    }

    /// The topic that a client names, if it may publish to it. The last one is remembered.
    fn topic_to_publish(&mut self, name: &str) -> Result<Arc<str>, (ErrorCode, String)> {
        let topics = self.state.topics.get_or_insert_default();
        if let Some(last) = topics.published_to.as_ref().filter(|last| &***last == name) {
            return Ok(Arc::clone(last));
        }
        if let Err(error) = crate::topics::name::check_topic(name) {
            return Err((ErrorCode::InvalidMessage, error.to_string()));
        }
        if !self.state.access.may_publish(name) {
            let words = format!("{name}: publishing to this topic is not allowed");
            return Err((ErrorCode::TopicForbidden, words));
        }
        let topic: Arc<str> = name.into();
        topics.published_to = Some(Arc::clone(&topic));
        Ok(topic)
    }
}

impl Context<'_> {
    /// Publishes to a topic, whose subscribers may be on any shard. What a turn publishes leaves at
    /// its end.
    ///
    /// # Errors
    /// [`PublishError`]; nobody got it.
    pub fn publish(
        &mut self,
        topic: &str,
        publication: &NewPublication,
    ) -> Result<Published, PublishError> {
        publication.check_payload()?;
        self.session.core.publish(
            self.session.now(),
            &topic.into(),
            &publication.draft(),
            OwnerId::SERVER,
        )
    }
}
