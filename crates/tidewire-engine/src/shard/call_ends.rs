//! Calls on a shard: answers of other threads, and the ends of calls whose time is over.

use crate::model::call_types::call_error;
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::connection::ConnectionState;
use crate::state::open_calls::{NO_ANSWER, OpenCall, PostedCall};
use std::sync::Arc;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::codes::ErrorCode;

impl<A: Application> EngineShard<A> {
    /// A call to a client from another thread.
    pub(crate) fn post_call(&mut self, io: &mut Io, id: ConnectionId, posted: PostedCall) {
        let PostedCall { call, mut outcome } = posted;
        outcome.arrive();
        self.with_session(io, id, |session| session.start_call(call, outcome));
    }

    /// Sends what has been answered since the last turn, and ends the calls whose time is over.
    pub(crate) fn settle_calls(&mut self, io: &mut Io) {
        for answer in self.core.calls.inbox.take(CALLS_PER_TURN) {
            let id = (&answer.correlation_id, answer.number);
            let session = self.session(io, answer.connection);
            match (session, answer.result) {
                (Some(mut session), Some(result)) => session.answer_call(id, result),
                (None, Some(_)) => self.core.counters.call_answers_late.add(1),
                (Some(mut session), None) if is_open(session.state, id) => {
                    let error = call_error(ErrorCode::HandlerError, NO_ANSWER);
                    session.answer_call(id, Err(error));
                }
                // Nobody waits for it any more.
                (_, None) => {}
            }
        }
        let now_ms = io.now().monotonic_ms;
        for _ in 0..CALLS_PER_TURN {
            let Some((number, waiting)) = self.core.calls.take_due(now_ms) else {
                break;
            };
            let (OpenCall::Received(id, _)
            | OpenCall::Sent(id)
            | OpenCall::Publication(id, _)
            | OpenCall::Connect(id, _)) = &waiting;
            if let Some(mut session) = self.session(io, *id) {
                session.time_out(number, &waiting);
            }
        }
        let core = &mut self.core;
        let next_ms = if core.calls.inbox.is_filled() {
            Some(now_ms)
        } else {
            core.calls
                .deadlines
                .keys()
                .next()
                .map(|(due_ms, _)| *due_ms)
        };
        core.calls.wake_at = next_ms.map(|next_ms| io.instant_at(next_ms));
    }
}

/// Whether this call of the connection's client has not ended.
fn is_open(state: &ConnectionState, (id, number): (&Arc<str>, u64)) -> bool {
    let call = state
        .work
        .calls
        .as_ref()
        .and_then(|calls| calls.received.get(id));
    call.is_some_and(|call| call.number == number)
}

/// Answers sent, and calls ended, in one turn before the connections are served again.
const CALLS_PER_TURN: usize = 4096;
