//! Events of a session to the backend, and what its answers mean for the session.

use crate::backend::Backend;
use crate::backend::BackendOutcome;
use crate::backend::events::{Body, read_response};
use crate::backend::failure::Failure;
use crate::config::Protocol;
use crate::config::backend::BackendEvent;
use crate::limits::lines::LineKind;
use crate::model::call_types::{Call, call_error};
use crate::model::content::Content;
use crate::model::{CloseReason, Encoding, Message};
use crate::session::Session;
use crate::state::open_calls::Responder;
use crate::trace::TraceContext;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::readable_correlation_id;
use tidewire_wire::format::Format;
use tidewire_wire::session::CallError;

impl Session<'_> {
    /// The backend, if this event goes to it.
    #[inline]
    pub(crate) fn backend(&self, event: BackendEvent) -> Option<Arc<Backend>> {
        let backend = self.core.shared.backend.as_ref();
        backend.filter(|backend| backend.has(event)).cloned()
    }

    /// The body of an event of this session.
    pub(crate) fn event_body(&mut self, event: BackendEvent) -> Body {
        let id = self.core.new_id(self.now().unix_ms);
        Body::new(event, id, self.state.key, self.state.client.user.as_deref())
    }

    /// Subscribes a new session to the topics that the backend has named.
    pub(crate) fn subscribe_first(&mut self, topics: &[String]) {
        let (mut failed, mut why) = (0, "");
        for topic in topics {
            if let Err(reason) = self.subscribe_for(&topic.as_str().into()) {
                (failed, why) = (failed + 1, reason);
            }
        }
        if failed > 0 && self.permits_line(LineKind::FirstSubscriptions) {
            tracing::warn!(
                connection = %self.state.key,
                address = self.state.peer_address(self.io).map(tracing::field::display),
                "{failed} first subscriptions of the backend are not made: {why}",
            );
        }
    }

    /// Lets the backend answer a call of the client.
    pub(crate) fn ask_request(
        &mut self,
        backend: &Backend,
        call: &Call<'_>,
        responder: Responder,
        parent: Option<TraceContext>,
    ) {
        let event = BackendEvent::Request;
        let span = self.core.backend_span(backend, event, parent);
        let mut body = self.event_body(event);
        body.field("type", call.t)
            .payload(call.payload.as_bytes(), call.is_binary)
            .field("timeout_ms", &call.timeout_ms);
        let answer_later = responder.clone();
        let done = move |outcome: BackendOutcome| {
            let answer = outcome.and_then(|body| read_response(&body));
            let failure = answer.as_ref().err().cloned();
            answer_later.respond_with(response_of(answer));
            failure
        };
        let done = Some(Box::new(done) as _);
        let owner = self.state.limits.owner;
        if let Err(failure) = backend.submit(event, owner, body.finish(), done, span) {
            responder.respond_with(response_of(Err(failure)));
        }
    }

    /// Sends a message of the client to the backend, which answers nothing.
    pub(crate) fn report_message(&mut self, backend: &Backend, message: Message<'_>) {
        let mut body = self.event_body(BackendEvent::Message);
        match message.encoding {
            Encoding::Text => {
                // It is known to be UTF-8; in version 1 it is JSON as well.
                let text = String::from_utf8_lossy(message.bytes);
                match serde_json::from_str::<&serde_json::value::RawValue>(&text) {
                    Ok(json) => body.json("message", json.get().as_bytes()),
                    Err(_) => body.field("text", &*text),
                };
            }
            Encoding::Binary => {
                body.field("base64", &STANDARD.encode(message.bytes));
            }
            Encoding::MessagePack => {
                body.field("messagepack_base64", &STANDARD.encode(message.bytes));
            }
        }
        let owner = self.state.limits.owner;
        let event = BackendEvent::Message;
        if let Err(failure) = backend.submit(event, owner, body.finish(), None, None) {
            let code = match failure {
                Failure::Full => ErrorCode::QueueFull,
                _ => ErrorCode::BackendUnavailable,
            };
            if self.core.setup.config.protocol == Protocol::V1 {
                let format = match message.encoding {
                    Encoding::MessagePack => Format::MessagePack,
                    _ => Format::Json,
                };
                let id = readable_correlation_id(format, message.bytes);
                self.reply_error(code, failure.words().to_owned(), id);
            }
        }
    }

    /// Reports the end of the session to the backend. An event that does not fit is counted.
    pub(crate) fn report_disconnect(&mut self, backend: &Backend, reason: CloseReason) {
        let (by, code) = match reason {
            CloseReason::ByPeer(code) => ("client", code),
            CloseReason::ByUs(code) => ("server", Some(code)),
            CloseReason::Lost => ("lost", None),
        };
        let mut body = self.event_body(BackendEvent::Disconnect);
        body.field("by", by)
            .field("code", &code.map(CloseCode::value));
        let owner = self.state.limits.owner;
        let _ = backend.submit(BackendEvent::Disconnect, owner, body.finish(), None, None);
    }
}

/// The answer to a call. Of a failure the client learns its kind; the log has the reason.
fn response_of(answer: Result<Result<Content, CallError>, Failure>) -> Result<Content, CallError> {
    answer.unwrap_or_else(|failure| {
        let code = failure.code(BackendEvent::Request);
        Err(call_error(code, failure.words()))
    })
}
