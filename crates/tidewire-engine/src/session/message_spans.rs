//! Spans of what a connection's messages cause.

use crate::session::Session;
use crate::trace::{OpenSpan, TraceContext};
use tidewire_wire::envelope::message_traceparent;
use tidewire_wire::format::Format;
use tidewire_wire::session::{Call, PublishRequest};

impl Session<'_> {
    /// The trace context of a message: its own `traceparent`, or else the handshake of its connection. One
    /// that cannot be used is ignored.
    #[inline]
    pub(crate) fn message_trace(&self, format: Format, bytes: &[u8]) -> Option<TraceContext> {
        self.core.shared.traces.as_ref()?;
        let own = message_traceparent(format, bytes).ok().flatten();
        let own = own.and_then(|text| TraceContext::parse(&text));
        own.or(self.connection_trace())
    }

    pub(crate) fn connection_trace(&self) -> Option<TraceContext> {
        let trace = self.state.trace.as_ref();
        trace.map(|trace| trace.context)
    }

    /// Begins the span of a publication of the client.
    pub(crate) fn publish_span(
        &mut self,
        format: Format,
        bytes: &[u8],
        request: &PublishRequest<'_>,
    ) -> Option<Box<OpenSpan>> {
        let parent = self.message_trace(format, bytes)?;
        let mut span = self.core.server_span("publish", Some(parent))?;
        span.set("messaging.system", SYSTEM);
        span.set("messaging.operation.name", "publish");
        span.set("messaging.operation.type", "send");
        span.set("messaging.destination.name", &*request.topic);
        span.set("messaging.message.body.size", request.payload.len() as u64);
        self.describe(&mut span);
        Some(span)
    }

    /// Begins the span of a request of the client.
    pub(crate) fn call_span(
        &mut self,
        call: &Call,
        parent: Option<TraceContext>,
    ) -> Option<Box<OpenSpan>> {
        let mut span = self.core.server_span("request", parent)?;
        span.set("rpc.system.name", SYSTEM);
        span.set("rpc.method", call.t.as_str());
        self.describe(&mut span);
        Some(span)
    }

    fn describe(&self, span: &mut OpenSpan) {
        if !span.is_sampled() {
            return;
        }
        span.set("tidewire.connection", self.state.key.to_string().as_str());
        if let Some(address) = self.io.peer_address(self.state.key.id) {
            span.set("network.peer.address", address.ip().to_string().as_str());
            span.set("network.peer.port", u64::from(address.port()));
        }
    }
}

const SYSTEM: &str = "tidewire";
