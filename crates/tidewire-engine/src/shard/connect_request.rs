//! The question to the application about a new connection.

use crate::model::calls::TIMEOUT_MAX;
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::backend::{Question, Waiting};
use crate::state::calls::{OpenCall, QUESTION};
use crate::state::connect_request::{ConnectRequest, ConnectResponder};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::handshake::server::Request;

impl<A: Application> EngineShard<A> {
    /// Asks the application whether a connection is accepted. It is not read meanwhile, and its request stays unread: the
    /// decision is there when it is read again.
    pub(crate) fn ask_application(&mut self, io: &mut Io, id: ConnectionId, request: &Request<'_>) {
        let limits = &self.core.setup.config.limits;
        let timeout_ms = limits.call_timeout_ms.min(TIMEOUT_MAX.as_millis() as u64);
        let handshake_timeout_ms = limits.handshake_timeout_ms;
        let due_ms = io.now().monotonic_ms.saturating_add(timeout_ms);
        let is_tls = self.core.setup.config.tls.is_some();
        let number = self.core.questions.next_number();
        let inbox = Arc::clone(&self.core.questions.inbox);
        let is_waiting = Arc::new(AtomicBool::new(true));
        let Some(connection) = self.connection(id) else {
            return;
        };
        connection.state.question = Some(Box::new(Question {
            number,
            due_ms: Some(due_ms),
            answer: None,
            _waiting: Some(Waiting(Arc::clone(&is_waiting))),
        }));
        let address = connection.state.peer_address(io);
        let responder = ConnectResponder {
            connection: connection.state.key,
            inbox,
            number,
            is_waiting,
            is_answered: false,
        };
        let waiting = OpenCall::Connect(id, number);
        let deadlines = &mut self.core.calls.deadlines;
        deadlines.insert((due_ms, number | QUESTION), waiting);
        // The time of the decision is not the client's.
        io.set_timer(id, due_ms.saturating_add(handshake_timeout_ms));
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
