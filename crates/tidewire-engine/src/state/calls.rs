//! The open calls of a shard, in both directions, and how they end.

use crate::config::Protocol;
use crate::session::Turn;
use crate::session::application::{Application, Context};
use crate::session::calls::{
    Call, CallFailure, NewCall, Outcome, Posted, Responder, TIMEOUT_MAX, Unanswered, call_error,
};
use crate::shard::{EngineShard, Mail};
use crate::state::connection::{Connection, Phase, State};
use crate::state::core::Core;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;
use tidewire_net::{ConnectionId, Io, Mailbox};
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{Call as WireCall, CallResult, Reply};

/// What a shard knows of all its open calls.
#[derive(Debug, Default)]
pub(crate) struct ShardCalls {
    inbox: Arc<Inbox>,
    /// Of the last call, in either direction.
    number: u64,
    /// Every open call, by when its time is over and its number.
    deadlines: BTreeMap<(u64, u64), Waiting>,
    /// When the shard has to look again, as of its last turn.
    wake_at: Option<Instant>,
}

/// Where an open call is found.
#[derive(Debug)]
enum Waiting {
    Received(ConnectionId, Arc<str>),
    Sent(ConnectionId),
}

/// The open calls of a connection, and what it is told while the application is called for it.
#[derive(Debug, Default)]
pub(crate) struct SessionCalls {
    received: HashMap<Arc<str>, Received>,
    sent: HashMap<u64, Sent>,
    /// The correlation id of the `sync_request` that the application is called for.
    pub(crate) sync_id: Option<String>,
}

/// A call of the client.
#[derive(Debug)]
struct Received {
    number: u64,
    due_ms: u64,
}

/// A call to the client.
#[derive(Debug)]
struct Sent {
    due_ms: u64,
    outcome: Outcome,
}

/// What responders on any thread have answered. It holds at most one answer for each responder there has been, and
/// those are bounded by the calls that a connection may have open.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    answers: Mutex<VecDeque<Answer>>,
    is_filled: AtomicBool,
    /// Set when the shard has been made.
    waker: OnceLock<Mailbox<Mail>>,
}

/// An answer on its way to the connection that asked.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) connection: ConnectionId,
    pub(crate) correlation_id: Arc<str>,
    pub(crate) number: u64,
    /// `None` if the application let go of the call.
    pub(crate) result: Option<CallResult>,
}

impl Inbox {
    pub(crate) fn push(&self, answer: Answer) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push_back(answer);
        let was_filled = self.is_filled.swap(true, Ordering::AcqRel);
        drop(answers);
        if !was_filled && let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// The next `at_most` answers.
    fn take(&self, at_most: usize) -> VecDeque<Answer> {
        if !self.is_filled.load(Ordering::Acquire) {
            return VecDeque::new();
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = at_most.min(answers.len());
        let rest = answers.split_off(count);
        self.is_filled.store(!rest.is_empty(), Ordering::Release);
        std::mem::replace(&mut answers, rest)
    }
}

impl ShardCalls {
    /// Lets responders wake the shard.
    pub(crate) fn connect(&self, waker: Mailbox<Mail>) {
        // A shard has one mailbox.
        let _ = self.inbox.waker.set(waker);
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// When the shard has to take a turn for its calls.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A call whose time is over.
    fn take_due(&mut self, now_ms: u64) -> Option<(u64, Waiting)> {
        let first = self.deadlines.first_entry()?;
        let (due_ms, number) = *first.key();
        (due_ms <= now_ms).then(|| (number, first.remove()))
    }
}

impl<A: Application> Turn<'_, A> {
    /// `call_request` from a client.
    pub(crate) fn handle_call(&mut self, state: &mut State, call: &WireCall, id: String) {
        // An answer could not be sent any more.
        if state.phase != Phase::Open {
            return;
        }
        let Ok(payload) = std::str::from_utf8(&call.payload) else {
            return self.refuse(state, "the payload of a call is not UTF-8");
        };
        let longest_ms = self.core.shared.config.limits.call_timeout_ms;
        let longest_ms = longest_ms.min(TIMEOUT_MAX.as_millis() as u64);
        let timeout_ms = call.timeout_ms.unwrap_or(longest_ms).min(longest_ms);
        let due_ms = self.now.monotonic_ms.saturating_add(timeout_ms);
        let responder = match self.core.open_call(state, id, due_ms) {
            Ok(responder) => responder,
            Err(refusal) => {
                self.core.counters.calls_refused.add(1);
                return self.reply(state, &refusal);
            }
        };
        let call = Call {
            t: &call.t,
            payload,
            timeout_ms,
        };
        let mut context = Context {
            io: self.io,
            core: self.core,
            state,
        };
        self.app.on_call(&mut context, call, responder);
    }

    /// `call_response` from a client.
    pub(crate) fn handle_call_response(&mut self, state: &mut State, result: CallResult, id: &str) {
        let sent = id.parse().ok().and_then(|number: u64| {
            let sent = state.calls.as_mut()?.sent.remove(&number)?;
            self.core.calls.deadlines.remove(&(sent.due_ms, number));
            Some(sent)
        });
        let Some(sent) = sent else {
            return self.core.counters.call_responses_unexpected.add(1);
        };
        self.core.counters.calls_open.sub(1);
        self.core.counters.calls_sent_answered.add(1);
        let outcome = match result {
            // The message was checked to be UTF-8, whichever its format.
            Ok(payload) => Ok(String::from_utf8_lossy(&payload).into_owned()),
            Err(error) => Err(CallFailure::Refused(error)),
        };
        sent.outcome.end(outcome);
    }
}

impl Core {
    /// Takes note of a call of a client, or gives the reply that refuses it.
    fn open_call(
        &mut self,
        state: &mut State,
        id: String,
        due_ms: u64,
    ) -> Result<Responder, Reply> {
        let calls = state.calls.get_or_insert_default();
        let id: Arc<str> = id.into();
        if calls.received.contains_key(&id) {
            return Err(Reply::Error {
                code: ErrorCode::InvalidMessage,
                message: "a call with this cid is open".into(),
                retry_after_s: None,
                refused: None,
                correlation_id: Some(id.to_string()),
            });
        }
        if calls.received.len() >= self.shared.config.limits.calls_per_connection_max {
            let error = call_error(ErrorCode::LimitExceeded, "too many calls are open");
            return Err(Reply::CallResponse {
                result: Err(error),
                correlation_id: id.to_string(),
            });
        }
        let number = self.calls.next_number();
        let call = Received { number, due_ms };
        calls.received.insert(Arc::clone(&id), call);
        let waiting = Waiting::Received(state.key.id, Arc::clone(&id));
        self.calls.deadlines.insert((due_ms, number), waiting);
        self.counters.calls_received.add(1);
        self.counters.calls_open.add(1);
        Ok(Responder(Arc::new(Unanswered {
            inbox: Arc::clone(&self.calls.inbox),
            connection: state.key,
            number,
            correlation_id: id,
            is_answered: AtomicBool::new(false),
        })))
    }

    /// Answers a call of a client, unless it is over.
    pub(crate) fn answer_call(
        &mut self,
        io: &mut Io,
        state: &mut State,
        (id, number): (&Arc<str>, u64),
        result: CallResult,
    ) {
        if !self.end_received(state, id, number) {
            return self.counters.call_answers_late.add(1);
        }
        if state.phase != Phase::Open {
            self.counters.calls_abandoned.add(1);
            return self.counters.call_answers_late.add(1);
        }
        self.counters.calls_answered.add(1);
        let correlation_id = id.to_string();
        let reply = Reply::CallResponse {
            result,
            correlation_id,
        };
        self.reply(io, state, &reply);
    }

    /// Forgets a call of a client; whether it was open.
    fn end_received(&mut self, state: &mut State, id: &Arc<str>, number: u64) -> bool {
        let Some(calls) = &mut state.calls else {
            return false;
        };
        // Another call may have the same id by now.
        let Some(call) = calls.received.get(id).filter(|call| call.number == number) else {
            return false;
        };
        self.calls.deadlines.remove(&(call.due_ms, number));
        calls.received.remove(id);
        self.counters.calls_open.sub(1);
        true
    }

    /// Sends a call to a client.
    pub(crate) fn start_call(
        &mut self,
        io: &mut Io,
        state: &mut State,
        call: NewCall,
        outcome: Outcome,
    ) {
        if state.phase != Phase::Open || state.unannounced.is_some() {
            return outcome.end(Err(CallFailure::Closed));
        }
        let config = &self.shared.config;
        if config.protocol != Protocol::V1 || !state.session.client_takes_calls() {
            return outcome.end(Err(CallFailure::Unsupported));
        }
        let calls = state.calls.get_or_insert_default();
        if calls.sent.len() >= config.limits.calls_per_connection_max {
            return outcome.end(Err(CallFailure::Busy));
        }
        let timeout_ms = call.timeout.min(TIMEOUT_MAX).as_millis() as u64;
        let due_ms = io.now().monotonic_ms.saturating_add(timeout_ms);
        let number = self.calls.next_number();
        calls.sent.insert(number, Sent { due_ms, outcome });
        let waiting = Waiting::Sent(state.key.id);
        self.calls.deadlines.insert((due_ms, number), waiting);
        self.counters.calls_sent.add(1);
        self.counters.calls_open.add(1);
        let reply = Reply::CallRequest {
            call: WireCall {
                t: call.t,
                payload: call.payload.into_bytes(),
                timeout_ms: Some(timeout_ms),
            },
            correlation_id: number.to_string(),
        };
        self.reply(io, state, &reply);
    }

    /// Ends all calls of a connection that is gone.
    pub(crate) fn end_calls(&mut self, state: &mut State) {
        let Some(calls) = state.calls.take() else {
            return;
        };
        for call in calls.received.values() {
            self.calls.deadlines.remove(&(call.due_ms, call.number));
        }
        let received = calls.received.len() as u64;
        let sent = calls.sent.len() as u64;
        self.counters.calls_abandoned.add(received);
        self.counters.calls_sent_abandoned.add(sent);
        self.counters.calls_open.sub(received + sent);
        let failure = if self.shared.is_stopped() {
            CallFailure::Stopped
        } else {
            CallFailure::Closed
        };
        for (number, call) in calls.sent {
            self.calls.deadlines.remove(&(call.due_ms, number));
            call.outcome.end(Err(failure.clone()));
        }
    }

    fn time_out(&mut self, io: &mut Io, state: &mut State, number: u64, waiting: &Waiting) {
        match waiting {
            Waiting::Received(_, id) => {
                if self.end_received(state, id, number) {
                    self.counters.calls_timed_out.add(1);
                    let words = "the application did not answer in time";
                    let reply = Reply::CallResponse {
                        result: Err(call_error(ErrorCode::Timeout, words)),
                        correlation_id: id.to_string(),
                    };
                    self.reply(io, state, &reply);
                }
            }
            Waiting::Sent(_) => {
                let calls = state.calls.as_mut();
                if let Some(call) = calls.and_then(|calls| calls.sent.remove(&number)) {
                    self.counters.calls_open.sub(1);
                    self.counters.calls_sent_timed_out.add(1);
                    call.outcome.end(Err(CallFailure::TimedOut));
                }
            }
        }
    }
}

impl<A: Application> EngineShard<A> {
    /// A call to a client from another thread.
    pub(crate) fn post_call(&mut self, io: &mut Io, id: ConnectionId, posted: Posted) {
        let Posted { call, mut outcome } = posted;
        outcome.arrive();
        self.with_turn(io, id, |turn, state| {
            turn.core.start_call(turn.io, state, call, outcome);
        });
    }

    /// Sends what has been answered since the last turn, and ends the calls whose time is over.
    pub(crate) fn settle_calls(&mut self, io: &mut Io) {
        let Self {
            core, connections, ..
        } = self;
        for answer in core.calls.inbox.take(CALLS_PER_TURN) {
            let id = (&answer.correlation_id, answer.number);
            match (session(connections, answer.connection), answer.result) {
                (Some(state), Some(result)) => core.answer_call(io, state, id, result),
                (None, Some(_)) => core.counters.call_answers_late.add(1),
                (Some(state), None) if is_open(state, id) => {
                    let words = "the application did not answer";
                    let error = call_error(ErrorCode::HandlerError, words);
                    core.answer_call(io, state, id, Err(error));
                }
                // Nobody waits for it any more.
                (_, None) => {}
            }
        }
        let now_ms = io.now().monotonic_ms;
        for _ in 0..CALLS_PER_TURN {
            let Some((number, waiting)) = core.calls.take_due(now_ms) else {
                break;
            };
            let (Waiting::Received(id, _) | Waiting::Sent(id)) = &waiting;
            if let Some(state) = session(connections, *id) {
                core.time_out(io, state, number, &waiting);
            }
        }
        let next_ms = if core.calls.inbox.is_filled.load(Ordering::Acquire) {
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

fn session(connections: &mut [Option<Connection>], id: ConnectionId) -> Option<&mut State> {
    let connection = connections.get_mut(id.index())?.as_mut()?;
    (connection.state.key.id == id).then_some(&mut connection.state)
}

/// Whether this call of the connection's client has not ended.
fn is_open(state: &State, (id, number): (&Arc<str>, u64)) -> bool {
    let call = state
        .calls
        .as_ref()
        .and_then(|calls| calls.received.get(id));
    call.is_some_and(|call| call.number == number)
}

/// Answers sent, and calls ended, in one turn before the connections are served again.
const CALLS_PER_TURN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(number: u64) -> Answer {
        Answer {
            connection: ConnectionId::from_u64(1),
            correlation_id: "c".into(),
            number,
            result: None,
        }
    }

    fn numbers(inbox: &Inbox, at_most: usize) -> Vec<u64> {
        let taken = inbox.take(at_most).into_iter();
        taken.map(|answer| answer.number).collect()
    }

    #[test]
    fn an_inbox_gives_its_answers_in_order_and_says_whether_more_are_left() {
        let inbox = Inbox::default();
        assert!(numbers(&inbox, 2).is_empty());
        (1..=5).for_each(|number| inbox.push(answer(number)));
        assert_eq!(numbers(&inbox, 2), [1, 2]);
        assert!(inbox.is_filled.load(Ordering::Acquire));
        inbox.push(answer(6));
        assert_eq!(numbers(&inbox, 4), [3, 4, 5, 6]);
        assert!(!inbox.is_filled.load(Ordering::Acquire));
        inbox.push(answer(7));
        assert_eq!(numbers(&inbox, 4), [7]);
    }

    #[test]
    fn calls_end_in_the_order_of_their_time() {
        let mut calls = ShardCalls::default();
        for due_ms in [30, 10, 20, 10] {
            let number = calls.next_number();
            let waiting = Waiting::Sent(ConnectionId::from_u64(number));
            calls.deadlines.insert((due_ms, number), waiting);
        }
        assert!(calls.take_due(9).is_none());
        let mut ended = Vec::new();
        while let Some((number, _)) = calls.take_due(20) {
            ended.push(number);
        }
        assert_eq!(ended, [2, 4, 3]);
        assert_eq!(calls.deadlines.len(), 1);
    }
}
