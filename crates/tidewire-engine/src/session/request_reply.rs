//! Request and reply: calls of clients to the application, and calls of the application to clients.
//!
//! A call of a client (`call_request`) arrives at [`Application::on_call`] with a [`Responder`],
//! which answers it at once or later, from any thread. A call to a client starts with
//! [`Handle::call`], [`Handle::call_wait`] or [`Context::call`]. Either has exactly one outcome: an
//! answer, an error, or the end of its time.
//!
//! [`Application::on_call`]: crate::Application::on_call

use crate::config::Protocol;
use crate::config::backend::BackendEvent;
use crate::model::call_types::{Call, CallFailure, CallOutcome, NewCall, TIMEOUT_MAX, call_error};
use crate::model::content::Content;
use crate::session::Session;
use crate::session::application::Application;
use crate::session::context::Context;
use crate::session::inbound::Inbound;
use crate::state::adoption::ConnectDecision;
use crate::state::open_calls::{
    AnswerWay, OpenCall, PendingAnswer, ReceivedCall, Responder, SentCall, call_result, checked,
};
use crate::state::pending_questions::BackendAnswer;
use crate::trace::{OpenSpan, TraceContext};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{Call as WireCall, CallError, CallResult, Reply};

impl Context<'_> {
    /// Like [`Responder::respond`], but an answer to this connection leaves right behind the
    /// messages that were sent before.
    pub fn respond(&mut self, responder: &Responder, answer: Result<String, CallError>) -> bool {
        self.respond_with(responder, answer.map(Content::from))
    }

    /// The same with any payload, also [bytes](Content::binary).
    pub fn respond_with(
        &mut self,
        responder: &Responder,
        answer: Result<Content, CallError>,
    ) -> bool {
        let pending = &*responder.0;
        let AnswerWay::Call {
            inbox,
            number,
            correlation_id,
        } = &pending.way
        else {
            return responder.respond_with(answer);
        };
        let is_here = pending.connection == self.session.state.key
            && Arc::ptr_eq(inbox, self.session.core.calls.inbox());
        if !is_here {
            return responder.respond_with(answer);
        }
        let is_first = pending.take();
        if is_first {
            let answer = call_result(checked(answer, pending.connection));
            self.session.answer_call((correlation_id, *number), answer);
        }
        is_first
    }

    /// Sends a request to the client of this call. `done` is called with the answer, or why
    /// there is none: once, on the shard's thread, and before this returns if the call cannot be
    /// sent. It must not block.
    pub fn call(
        &mut self,
        call: NewCall,
        done: impl FnOnce(Result<Content, CallFailure>) + Send + 'static,
    ) {
        let outcome = CallOutcome::new(done, CallFailure::Closed);
        match call.check() {
            Ok(()) => self.session.start_call(call, outcome),
            Err(failure) => outcome.end(Err(failure)),
        }
    }
}

impl Session<'_> {
    /// `call_response` from a client.
    pub(crate) fn handle_call_response(&mut self, result: CallResult, id: &str) {
        let sent = id.parse().ok().and_then(|number: u64| {
            let sent = self.state.work.calls.as_mut()?.sent.remove(&number)?;
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
            Ok(answer) => {
                let json = String::from_utf8_lossy(&answer.payload).into_owned();
                Ok(Content::checked(json, answer.binary))
            }
            Err(error) => Err(CallFailure::Refused(error)),
        };
        sent.outcome.end(outcome);
    }

    /// Records a call of a client, or returns the reply that refuses it.
    fn open_call(
        &mut self,
        id: String,
        due_ms: u64,
        span: Option<Box<OpenSpan>>,
    ) -> Result<Responder, Box<Reply>> {
        let calls = self.state.work.calls.get_or_insert_default();
        let id: Arc<str> = id.into();
        if calls.received.contains_key(&id) {
            fail(span, ErrorCode::InvalidMessage.as_str());
            return Err(Box::new(Reply::Error {
                code: ErrorCode::InvalidMessage,
                message: "a call with this cid is open".into(),
                retry_after_s: None,
                refused: None,
                correlation_id: Some(id.to_string()),
            }));
        }
        if calls.received.len() >= self.core.setup.config.limits.calls_per_connection_max {
            fail(span, ErrorCode::LimitExceeded.as_str());
            let error = call_error(ErrorCode::LimitExceeded, "too many calls are open");
            return Err(Box::new(Reply::CallResponse {
                result: Err(error),
                correlation_id: id.to_string(),
            }));
        }
        let number = self.core.calls.next_number();
        let call = ReceivedCall {
            number,
            due_ms,
            span,
        };
        calls.received.insert(Arc::clone(&id), call);
        let waiting = OpenCall::Received(self.state.key.id, Arc::clone(&id));
        self.core.calls.deadlines.insert((due_ms, number), waiting);
        self.core.counters.calls_received.add(1);
        self.core.counters.calls_open.add(1);
        Ok(Responder(Arc::new(PendingAnswer {
            connection: self.state.key,
            way: AnswerWay::Call {
                inbox: Arc::clone(&self.core.calls.inbox),
                number,
                correlation_id: id,
            },
            is_answered: AtomicBool::new(false),
        })))
    }

    /// Answers a call of a client, unless it is over.
    pub(crate) fn answer_call(&mut self, (id, number): (&Arc<str>, u64), result: CallResult) {
        let Some(call) = self.end_received(id, number) else {
            return self.core.counters.call_answers_late.add(1);
        };
        if !self.state.is_open() {
            self.core.counters.calls_abandoned.add(1);
            return self.core.counters.call_answers_late.add(1);
        }
        self.core.counters.calls_answered.add(1);
        match &result {
            Ok(_) => call.span.map(|span| span.end()),
            Err(error) => call.span.map(|span| span.fail(error.code.clone())),
        };
        let correlation_id = id.to_string();
        let reply = Reply::CallResponse {
            result,
            correlation_id,
        };
        self.reply(&reply);
    }

    /// Forgets a call of a client, if it was open.
    fn end_received(&mut self, id: &Arc<str>, number: u64) -> Option<ReceivedCall> {
        let calls = self.state.work.calls.as_mut()?;
        // Another call may have the same id by now.
        calls
            .received
            .get(id)
            .filter(|call| call.number == number)?;
        let call = calls.received.remove(id)?;
        self.core.calls.deadlines.remove(&(call.due_ms, number));
        self.core.counters.calls_open.sub(1);
        Some(call)
    }

    /// Sends a call to a client.
    pub(crate) fn start_call(&mut self, call: NewCall, outcome: CallOutcome) {
        if !self.state.is_open() || self.state.unannounced.is_some() {
            return outcome.end(Err(CallFailure::Closed));
        }
        let config = &self.core.setup.config;
        if config.protocol != Protocol::V1 || !self.state.session.client_takes_calls() {
            return outcome.end(Err(CallFailure::Unsupported));
        }
        let calls = self.state.work.calls.get_or_insert_default();
        if calls.sent.len() >= config.limits.calls_per_connection_max {
            return outcome.end(Err(CallFailure::Busy));
        }
        let timeout_ms = call.timeout.min(TIMEOUT_MAX).as_millis() as u64;
        let due_ms = self.io.now().monotonic_ms.saturating_add(timeout_ms);
        let number = self.core.calls.next_number();
        calls.sent.insert(number, SentCall { due_ms, outcome });
        let waiting = OpenCall::Sent(self.state.key.id);
        self.core.calls.deadlines.insert((due_ms, number), waiting);
        self.core.counters.calls_sent.add(1);
        self.core.counters.calls_open.add(1);
        let reply = Reply::CallRequest {
            call: WireCall {
                t: call.t,
                binary: call.payload.is_binary(),
                payload: call.payload.into_json().into_bytes(),
                timeout_ms: Some(timeout_ms),
            },
            correlation_id: number.to_string(),
        };
        self.reply(&reply);
    }

    /// Ends all calls of a connection that is gone.
    pub(crate) fn end_calls(&mut self) {
        let Some(calls) = self.state.work.calls.take() else {
            return;
        };
        for call in calls.received.values() {
            self.core
                .calls
                .deadlines
                .remove(&(call.due_ms, call.number));
        }
        let received = calls.received.len() as u64;
        let sent = calls.sent.len() as u64;
        self.core.counters.calls_abandoned.add(received);
        self.core.counters.calls_sent_abandoned.add(sent);
        self.core.counters.calls_open.sub(received + sent);
        let failure = if self.core.shared.is_stopped() {
            CallFailure::Stopped
        } else {
            CallFailure::Closed
        };
        for (number, call) in calls.sent {
            self.core.calls.deadlines.remove(&(call.due_ms, number));
            call.outcome.end(Err(failure.clone()));
        }
    }

    pub(crate) fn time_out(&mut self, number: u64, waiting: &OpenCall) {
        match waiting {
            OpenCall::Received(_, id) => {
                if let Some(call) = self.end_received(id, number) {
                    fail(call.span, ErrorCode::Timeout.as_str());
                    self.core.counters.calls_timed_out.add(1);
                    let words = "the application did not answer in time";
                    let reply = Reply::CallResponse {
                        result: Err(call_error(ErrorCode::Timeout, words)),
                        correlation_id: id.to_string(),
                    };
                    self.reply(&reply);
                }
            }
            OpenCall::Publication(_, question) => self.time_out_decision(*question),
            OpenCall::Connect(id, question) => {
                let late = BackendAnswer::Decision(Some(ConnectDecision::unavailable()), None);
                self.core.questions.inbox.push((*id, *question, late));
            }
            OpenCall::Sent(_) => {
                let calls = self.state.work.calls.as_mut();
                if let Some(call) = calls.and_then(|calls| calls.sent.remove(&number)) {
                    self.core.counters.calls_open.sub(1);
                    self.core.counters.calls_sent_timed_out.add(1);
                    call.outcome.end(Err(CallFailure::TimedOut));
                }
            }
        }
    }
}

impl<A: Application> Inbound<'_, A> {
    /// `call_request` from a client.
    pub(crate) fn handle_call(
        &mut self,
        call: &WireCall,
        id: String,
        parent: Option<TraceContext>,
    ) {
        // An answer could not be sent any more.
        if !self.session.state.is_open() {
            return;
        }
        let Ok(payload) = std::str::from_utf8(&call.payload) else {
            let words = "the payload of a call is not UTF-8";
            return self
                .session
                .reply_error(ErrorCode::InvalidMessage, words, Some(id));
        };
        let longest_ms = self.session.core.setup.config.limits.call_timeout_ms;
        let longest_ms = longest_ms.min(TIMEOUT_MAX.as_millis() as u64);
        let timeout_ms = call.timeout_ms.unwrap_or(longest_ms).min(longest_ms);
        let due_ms = self.session.now().monotonic_ms.saturating_add(timeout_ms);
        let span = self.session.call_span(call, parent);
        let context = span.as_ref().map(|span| span.context());
        let responder = match self.session.open_call(id, due_ms, span) {
            Ok(responder) => responder,
            Err(refusal) => {
                self.session.core.counters.calls_refused.add(1);
                return self.session.reply(&refusal);
            }
        };
        let call = Call {
            t: &call.t,
            payload,
            is_binary: call.binary,
            timeout_ms,
        };
        if let Some(backend) = self.session.backend(BackendEvent::Request) {
            return self
                .session
                .ask_request(&backend, &call, responder, context);
        }
        let mut context = Context::new(&mut self.session);
        self.app.on_call(&mut context, call, responder);
    }
}

fn fail(span: Option<Box<OpenSpan>>, kind: &'static str) {
    if let Some(span) = span {
        span.fail(kind);
    }
}
