//! The question to the application about a new connection.

use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::connect_request::{ConnectRequest, ConnectResponder};
use crate::state::open_calls::OpenCall;
use crate::state::pending_questions::Waiting;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::handshake::server::Request;

impl<A: Application> EngineShard<A> {
    /// Asks the application whether a connection is accepted. It is not read meanwhile, and its request stays unread: the
    /// decision is there when it is read again.
    pub(crate) fn ask_application(&mut self, io: &mut Io, id: ConnectionId, request: &Request<'_>) {
        let limits = &self.core.setup.config.limits;
        let handshake_timeout_ms = limits.handshake_timeout_ms;
        let is_tls = self.core.setup.config.tls.is_some();
        let is_waiting = Arc::new(AtomicBool::new(true));
        let guard = Waiting(Arc::clone(&is_waiting));
        let Some(mut session) = self.session(io, id) else {
            return;
        };
        let (number, timeout_ms) = session.start_question(OpenCall::Connect, Some(guard));
        let address = session.state.peer_address(session.io);
        let responder = ConnectResponder {
            connection: session.state.key,
            inbox: Arc::clone(&session.core.questions.inbox),
            number,
            is_waiting,
            is_answered: false,
        };
        // The time of the decision is not the client's.
        let time_ms = timeout_ms.saturating_add(handshake_timeout_ms);
        io.set_timer(id, io.now().monotonic_ms.saturating_add(time_ms));
        io.pause_reading(id);
        let headers = request.headers();
        self.app.on_connect_request(ConnectRequest {
            address,
            is_tls,
            target: request.target().to_owned(),
            headers: headers
                .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.to_vec()))
                .collect(),
            timeout_ms,
            responder,
        });
    }
}
