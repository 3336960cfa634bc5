//! Spans that a shard begins: their identifiers are drawn here.

use crate::backend::Backend;
use crate::config::backend::BackendEvent;
use crate::state::core::Core;
use crate::trace::{ConnectionTrace, OpenSpan, SpanKind, TraceContext};

impl Core {
    /// The trace of a connection whose handshake begins, with the context that the peer gives. `None` if nobody needs it.
    pub(crate) fn start_trace(
        &mut self,
        parent: Option<TraceContext>,
    ) -> Option<Box<ConnectionTrace>> {
        let sink = self.shared.traces.as_ref()?;
        let span = OpenSpan::root(sink, &mut self.rng, "handshake", parent)?;
        Some(Box::new(ConnectionTrace {
            context: span.context(),
            handshake: Some(span),
        }))
    }

    /// A span of what a peer asks; `None` if it belongs to no trace.
    pub(crate) fn server_span(
        &mut self,
        name: &'static str,
        parent: Option<TraceContext>,
    ) -> Option<Box<OpenSpan>> {
        let sink = self.shared.traces.as_ref()?;
        let kind = (name, SpanKind::Server);
        Some(OpenSpan::child(sink, &mut self.rng, kind, parent?))
    }

    /// The span of an event that the backend answers; `None` if it belongs to no trace.
    pub(crate) fn backend_span(
        &mut self,
        backend: &Backend,
        event: BackendEvent,
        parent: Option<TraceContext>,
    ) -> Option<Box<OpenSpan>> {
        let sink = self.shared.traces.as_ref()?;
        let kind = ("POST", SpanKind::Client);
        let mut span = OpenSpan::child(sink, &mut self.rng, kind, parent?);
        if span.is_sampled() {
            let url = &backend.config.url;
            span.set("http.request.method", "POST");
            span.set("url.full", url.to_string().as_str());
            span.set("server.address", url.host.as_str());
            span.set("server.port", u64::from(url.port));
            span.set("tidewire.backend.event", event.name());
        }
        Some(span)
    }
}
