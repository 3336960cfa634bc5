//! Publishing by a client, and by the application on its shard.

use crate::limits::owner::OwnerId;
use crate::log::LineBudget;
use crate::session::Session;
use crate::session::context::Context;
use crate::session::permit::{Decided, Ruling};
use crate::state::broker_operations::{OpenPublication, Operation};
use crate::topics::broker::{BrokerAnswer, Done, TicketOutcome};
use crate::topics::error::PublishError;
use crate::topics::excluded::Excluded;
use crate::topics::new_publication::NewPublication;
use crate::topics::producer::ProducerHandle;
use crate::topics::publication::{Draft, Published};
use crate::trace::OpenSpan;
use std::sync::Arc;
use std::time::Instant;
use tidewire_wire::codes::{ErrorCode, Fault};
use tidewire_wire::format::Format;
use tidewire_wire::session::{PublishRequest, Refusal, Reply};

/// The outcome of a `publish_request`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handled {
    /// It is done with: published, or refused for good.
    Done,
    /// It was refused, and it helps to send it again.
    Retryable,
    /// The broker answers later.
    Later,
}

/// The number of a message among those of its producer.
pub(crate) type Numbered = (ProducerHandle, u64);

impl Session<'_> {
    /// Handles a `publish_request` from a client; `decided` is the decision of the backend or the application, if one was asked.
    pub(crate) fn handle_publish(
        &mut self,
        format: Format,
        bytes: &[u8],
        numbered: Option<Numbered>,
        decided: Option<Decided>,
    ) -> Handled {
        let mut scratch = Vec::new();
        let (mut request, correlation_id) = match PublishRequest::parse(format, bytes, &mut scratch)
        {
            Ok(parsed) => parsed,
            Err(refusal) => return self.refuse_publication(refusal, None),
        };
        let correlation_id = correlation_id.map(|id| id.into_owned());
        let (ruling, span) = match decided {
            Some(decided) => (Some(decided.ruling), decided.span),
            None if self.core.shared.traces.is_none() => (None, None),
            None => (None, self.publish_span(format, bytes, &request)),
        };
        match ruling {
            Some(Ruling::Refuse(code, message)) => {
                let refusal = Refusal {
                    code,
                    message: message.into(),
                    correlation_id,
                };
                return self.refuse_publication(refusal, span);
            }
            Some(Ruling::RefuseAs(code, message)) => {
                return self.refuse_as_decided(code, message, correlation_id, span);
            }
            Some(Ruling::Publish(Some(content))) => {
                request.binary = content.is_binary();
                request.payload = content.into_json().into_bytes().into();
            }
            Some(Ruling::Publish(None)) | None => {}
        }
        let unique = numbered.and_then(|(_, number)| self.unique(number));
        let refusal = match self.publish_for(&request, unique.as_deref()) {
            Ok((topic, BrokerAnswer::Now(published))) => {
                self.answer_publication(&topic, published, correlation_id, span);
                return Handled::Done;
            }
            Ok((topic, BrokerAnswer::Later)) => {
                self.await_publication(OpenPublication {
                    topic,
                    correlation_id,
                    bytes: request.payload.len(),
                    numbered,
                    span,
                });
                return Handled::Later;
            }
            Err((code, message)) => Refusal {
                code,
                message: message.into(),
                correlation_id,
            },
        };
        self.refuse_publication(refusal, span)
    }

    /// Notes a publication that the broker answers later. With too many of them the connection
    /// waits.
    fn await_publication(&mut self, publication: OpenPublication) {
        let operations = self.state.work.operations.get_or_insert_default();
        operations.publications += 1;
        operations.bytes += publication.bytes;
        operations.is_numbered |= publication.numbered.is_some();
        let operation = Operation::Publication(self.state.key.id, publication);
        self.core.operations.open(operation);
    }

    /// Handles the broker's answer about a publication.
    pub(crate) fn finish_publication(
        &mut self,
        publication: OpenPublication,
        outcome: TicketOutcome,
    ) {
        let OpenPublication {
            topic,
            correlation_id,
            bytes,
            numbered,
            span,
        } = publication;
        if let Some(operations) = &mut self.state.work.operations {
            operations.publications = operations.publications.saturating_sub(1);
            operations.bytes = operations.bytes.saturating_sub(bytes);
            operations.is_numbered &= numbered.is_none();
        }
        let handled = match outcome {
            Ok(Done::Published(published)) => {
                self.count_published(published);
                self.answer_publication(&topic, published, correlation_id, span);
                Handled::Done
            }
            Ok(_) => Handled::Done,
            Err(refusal) => {
                let error = PublishError::from(refusal);
                let refusal = Refusal {
                    code: error.code(),
                    message: error.to_string().into(),
                    correlation_id,
                };
                self.refuse_publication(refusal, span)
            }
        };
        if handled == Handled::Done
            && let Some((handle, number)) = numbered
        {
            self.accept_numbered(handle, number);
        }
    }

    fn answer_publication(
        &mut self,
        topic: &str,
        published: Published,
        correlation_id: Option<String>,
        span: Option<Box<OpenSpan>>,
    ) {
        if let Some(span) = span {
            span.end();
        }
        if correlation_id.is_none() {
            return;
        }
        let position = published.position;
        let reply = Reply::PublishResponse {
            topic: topic.to_owned(),
            duplicate: published.is_duplicate,
            position: position.map(|position| (position.epoch, position.offset)),
            correlation_id,
        };
        self.reply(&reply);
    }

    /// Refuses a publication with the code of the backend or of the application.
    fn refuse_as_decided(
        &mut self,
        code: String,
        message: String,
        correlation_id: Option<String>,
        span: Option<Box<OpenSpan>>,
    ) -> Handled {
        if let Some(given) = ErrorCode::parse(&code) {
            let code = match given.is_final_refusal() {
                true => given,
                false => {
                    tell_of_code(given);
                    ErrorCode::HandlerError
                }
            };
            let refusal = Refusal {
                code,
                message: message.into(),
                correlation_id,
            };
            return self.refuse_publication(refusal, span);
        }
        self.note_refusal(&code, &message, span);
        self.reply(&Reply::ApplicationError {
            code,
            message,
            correlation_id,
        });
        Handled::Done
    }

    /// Counts and logs a refused publication, and notifies its client.
    fn refuse_publication(&mut self, refusal: Refusal, span: Option<Box<OpenSpan>>) -> Handled {
        let code = refusal.code;
        self.note_refusal(code.as_str(), &refusal.message, span);
        let error = Reply::Error {
            code: refusal.code,
            message: refusal.message,
            retry_after_s: None,
            refused: None,
            correlation_id: refusal.correlation_id,
        };
        self.reply(&error);
        match code.fault() {
            Fault::Server => Handled::Retryable,
            _ => Handled::Done,
        }
    }

    fn note_refusal(&mut self, code: &str, reason: &str, span: Option<Box<OpenSpan>>) {
        if let Some(span) = span {
            span.fail(code.to_owned());
        }
        self.core.counters.publications_refused.add(1);
        tracing::debug!(
            connection = %self.state.key,
            address = self.state.peer_address(self.io).map(tracing::field::display),
            user = self.state.client.user.as_deref(),
            code,
            %reason,
            "a publication is refused",
        );
    }

    /// Publishes what a client asks for, if it may.
    fn publish_for(
        &mut self,
        request: &PublishRequest<'_>,
        unique: Option<&str>,
    ) -> Result<(Arc<str>, BrokerAnswer<Published>), (ErrorCode, String)> {
        let topic = self.topic_to_publish(&request.topic)?;
        let exclude = match request.exclude_self {
            true => Excluded::One(self.state.key),
            false => Excluded::Nobody,
        };
        let draft = Draft {
            t: &request.t,
            payload: &request.payload,
            is_binary: request.binary,
            category: request.category,
            priority: request.priority,
            id: request.id.as_deref(),
            key: request.key.as_deref(),
            exclude: &exclude,
            ttl_ms: request.ttl_ms,
            is_volatile: false,
            unique,
        };
        let answer = self
            .core
            .publish(self.steady_now(), &topic, &draft, self.state.limits.owner)
            .map_err(|error| (error.code(), error.to_string()))?;
        if let BrokerAnswer::Now(published) = answer {
            self.count_published(published);
        }
        Ok((topic, answer))
    }

    /// The mark that distinguishes a numbered publication from all others, on every server: so that it is published
    /// once although its connection was lost before the broker has answered.
    fn unique(&mut self, number: u64) -> Option<String> {
        if !self.core.shared.hub.has_cluster() {
            return None;
        }
        let user = self.state.client.user.as_deref().unwrap_or_default();
        let producer = self.state.producer.as_ref()?.producer.as_ref()?;
        let (id, epoch) = (&producer.id, producer.epoch);
        Some(format!("{user}\u{0}{id}\u{0}{epoch}\u{0}{number}"))
    }

    fn count_published(&mut self, published: Published) {
        let counter = if published.is_duplicate {
            &self.core.counters.publications_repeated
        } else {
            &self.core.counters.publications_received
        };
        counter.add(1);
    }

    /// The topic that a client names, if it may publish to it. The last one is remembered.
    pub(crate) fn topic_to_publish(&mut self, name: &str) -> Result<Arc<str>, (ErrorCode, String)> {
        let topics = self.state.topics.get_or_insert_default();
        if let Some(last) = topics.published_to.as_ref().filter(|last| &***last == name) {
            return Ok(Arc::clone(last));
        }
        if let Err(error) = self.core.shared.hub.check_new_topic(name) {
            return Err((ErrorCode::InvalidMessage, error.to_string()));
        }
        if !self.state.client.access.may_publish(name) {
            let words = format!("{name}: publishing to this topic is not allowed");
            return Err((ErrorCode::TopicForbidden, words));
        }
        let topic: Arc<str> = name.into();
        topics.published_to = Some(Arc::clone(&topic));
        Ok(topic)
    }
}

/// Logs a code that the backend or the application gave, and that clients do not get from them.
fn tell_of_code(code: ErrorCode) {
    static LINES: LineBudget = LineBudget::new();
    if let Some(left_out) = LINES.admit(Instant::now()) {
        let code = code.as_str();
        tracing::warn!(
            code,
            left_out,
            "a publication was refused with a code of the protocol by which clients try again or end; the client \
             gets HANDLER_ERROR"
        );
    }
}

impl Context<'_> {
    /// Publishes to a topic, whose subscribers may be on any shard. What a turn publishes leaves at
    /// its end.
    ///
    /// A topic that is shared with other servers is published by their broker later: then the answer has no
    /// position, and a refusal by the broker is counted and logged as a warning.
    /// [`Handle::publish_with`](crate::Handle::publish_with) reports the outcome.
    ///
    /// # Errors
    /// [`PublishError`]; nobody got it.
    pub fn publish(
        &mut self,
        topic: &str,
        publication: &NewPublication,
    ) -> Result<Published, PublishError> {
        publication.check()?;
        let topic: Arc<str> = topic.into();
        let now = self.session.steady_now();
        let core = &mut *self.session.core;
        match core.publish(now, &topic, &publication.draft(), OwnerId::SERVER)? {
            BrokerAnswer::Now(published) => Ok(published),
            BrokerAnswer::Later => {
                core.operations.open(Operation::Unawaited(topic));
                Ok(Published {
                    position: None,
                    is_duplicate: false,
                })
            }
        }
    }
}
