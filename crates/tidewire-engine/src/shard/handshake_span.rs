//! The span of an opening handshake: from the TCP connection to the answer.

use crate::session::application::Application;
use crate::shard::{EngineShard, micros_of};
use crate::trace::TraceContext;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::handshake::server::Request;

impl<A: Application> EngineShard<A> {
    /// Begins the span of a handshake, once its request is there. A second call for the same connection does nothing.
    pub(crate) fn trace_handshake(&mut self, io: &Io, id: ConnectionId, request: &Request<'_>) {
        if self.core.shared.traces.is_none() {
            return;
        }
        let Some(Some(connection)) = self.connections.get_mut(id.index()) else {
            return;
        };
        let state = &mut connection.state;
        if state.trace.is_some() {
            return;
        }
        let parent = request.header("traceparent").and_then(TraceContext::parse);
        state.trace = self.core.start_trace(parent);
        let client = state.forwarded_address();
        let trace = state.trace.as_deref_mut();
        let Some(span) = trace.and_then(|trace| trace.handshake.as_deref_mut()) else {
            return;
        };
        let waited_us = micros_of(io).wrapping_sub(state.accepted_us);
        span.began_before(u64::from(waited_us) * 1_000);
        span.set("http.request.method", "GET");
        span.set("url.path", request.path());
        span.set("server.address", request.host());
        if let Some(agent) = request.header("user-agent") {
            span.set("user_agent.original", agent);
        }
        if let Some(address) = io.peer_address(id) {
            span.set("network.peer.address", address.ip().to_string().as_str());
            span.set("network.peer.port", u64::from(address.port()));
        }
        if let Some(address) = client {
            span.set("client.address", address.ip().to_string().as_str());
        }
        span.set("tidewire.connection", state.key.to_string().as_str());
    }

    /// Ends the span of a handshake with the status of the answer. One that was accepted only to be refused has a code.
    pub(crate) fn end_handshake_span(
        &mut self,
        id: ConnectionId,
        status: u16,
        code: Option<&'static str>,
    ) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let trace = connection.state.trace.as_deref_mut();
        let Some(mut span) = trace.and_then(|trace| trace.handshake.take()) else {
            return;
        };
        span.set("http.response.status_code", u64::from(status));
        match code {
            Some(code) => span.fail(code),
            None if status == 101 => span.end(),
            None => span.fail(status.to_string()),
        }
    }
}
