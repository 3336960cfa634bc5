//! Open calls of a shard, in both directions.

use crate::log::LineBudget;
use crate::model::ConnectionKey;
use crate::model::call_types::{CallOutcome, NewCall, call_error};
use crate::model::content::Content;
use crate::model::inbox::Inbox;
use crate::state::pending_questions::{BackendAnswer, QuestionInbox};
use crate::trace::OpenSpan;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tidewire_net::{ConnectionId, Waker};
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{CallError, CallResult};

/// The open calls of a shard.
#[derive(Debug, Default)]
pub(crate) struct ShardCalls {
    /// The answers of responders on any thread: at most one answer for each responder there has
    /// been, and those are bounded by the calls that a connection may have open.
    pub(crate) inbox: Arc<Inbox<CallAnswer>>,
    /// Of the last call, in either direction.
    number: u64,
    /// Every open call, by when its time is over and its number.
    pub(crate) deadlines: BTreeMap<(u64, u64), OpenCall>,
    /// When the shard has to look again, as of its last turn.
    pub(crate) wake_at: Option<Instant>,
}

/// Where an open call is found.
#[derive(Debug)]
pub(crate) enum OpenCall {
    Received(ConnectionId, Arc<str>),
    Sent(ConnectionId),
    /// The question to the application about a publication.
    Publication(ConnectionId, u64),
    /// The question to the application about a new connection.
    Connect(ConnectionId, u64),
}

/// The open calls of a connection, and the answers to it while the application is called for it.
#[derive(Debug, Default)]
pub(crate) struct SessionCalls {
    pub(crate) received: HashMap<Arc<str>, ReceivedCall>,
    pub(crate) sent: HashMap<u64, SentCall>,
    /// The correlation id of the `sync_request` that the application is called for.
    pub(crate) sync_id: Option<String>,
}

/// A call of the client.
#[derive(Debug)]
pub(crate) struct ReceivedCall {
    pub(crate) number: u64,
    pub(crate) due_ms: u64,
    /// Until it is answered, if it is traced.
    pub(crate) span: Option<Box<OpenSpan>>,
}

/// A call to the client.
#[derive(Debug)]
pub(crate) struct SentCall {
    pub(crate) due_ms: u64,
    pub(crate) outcome: CallOutcome,
}

/// An answer on its way to the connection that asked.
#[derive(Debug)]
pub(crate) struct CallAnswer {
    pub(crate) connection: ConnectionId,
    pub(crate) correlation_id: Arc<str>,
    pub(crate) number: u64,
    /// `None` if the application dropped the call.
    pub(crate) result: Option<CallResult>,
}

impl ShardCalls {
    /// Lets responders wake the shard.
    pub(crate) fn connect(&self, waker: Waker) {
        self.inbox.connect(waker);
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox<CallAnswer>> {
        &self.inbox
    }

    /// When the shard needs a turn for its calls.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A call whose time is over.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<(u64, OpenCall)> {
        let first = self.deadlines.first_entry()?;
        let (due_ms, number) = *first.key();
        (due_ms <= now_ms).then(|| (number, first.remove()))
    }
}

/// Answers one call of a client, or decides about one publication of it, once, from any thread. Clones answer the same
/// one. When the last of them is dropped without an answer, the client gets `HANDLER_ERROR`; when the
/// time is over, `TIMEOUT`.
#[derive(Debug, Clone)]
pub struct Responder(pub(crate) Arc<PendingAnswer>);

/// The duty of a [`Responder`].
#[derive(Debug)]
pub(crate) struct PendingAnswer {
    pub(crate) connection: ConnectionKey,
    pub(crate) way: AnswerWay,
    pub(crate) is_answered: AtomicBool,
}

/// The way of an answer to its shard.
#[derive(Debug)]
pub(crate) enum AnswerWay {
    Call {
        inbox: Arc<Inbox<CallAnswer>>,
        number: u64,
        correlation_id: Arc<str>,
    },
    /// The decision about a publication.
    Publication {
        inbox: Arc<QuestionInbox>,
        number: u64,
    },
}

/// A call on its way to its shard.
#[derive(Debug)]
pub(crate) struct PostedCall {
    pub(crate) call: NewCall,
    pub(crate) outcome: CallOutcome,
}

impl Responder {
    /// Answers with one JSON value or an error; `false` if the call had been answered before. A
    /// text that is not JSON, or is nested deeper than 61 levels, and an error without a code reach
    /// the client as `HANDLER_ERROR`. An answer after the call's time, or to a connection that is
    /// gone, is dropped and counted.
    pub fn respond(&self, answer: Result<String, CallError>) -> bool {
        self.respond_with(answer.map(Content::from))
    }

    /// The same with any payload, also [bytes](Content::binary).
    pub fn respond_with(&self, answer: Result<Content, CallError>) -> bool {
        let is_first = self.0.take();
        if is_first {
            self.0.send(Some(answer.map(Some)));
        }
        is_first
    }

    /// Lets a publication go on as the client asked for it; a call is answered with `null`. `false` if it
    /// had been answered before.
    pub fn accept(&self) -> bool {
        let is_first = self.0.take();
        if is_first {
            self.0.send(Some(Ok(None)));
        }
        is_first
    }

    /// The connection that asks.
    #[must_use]
    pub fn connection(&self) -> ConnectionKey {
        self.0.connection
    }
}

/// Those of the same call are equal.
impl PartialEq for Responder {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Responder {}

impl PendingAnswer {
    /// Whether nobody has answered before.
    pub(crate) fn take(&self) -> bool {
        !self.is_answered.swap(true, Ordering::AcqRel)
    }

    /// Sends an answer, or an accepted publication as it is; `None` if the application dropped what was asked.
    fn send(&self, answer: Option<Result<Option<Content>, CallError>>) {
        let connection = self.connection;
        match &self.way {
            AnswerWay::Call {
                inbox,
                number,
                correlation_id,
            } => inbox.push(CallAnswer {
                connection: connection.id,
                correlation_id: Arc::clone(correlation_id),
                number: *number,
                result: answer.map(|answer| {
                    let answer = answer.map(|content| content.unwrap_or_else(|| "null".into()));
                    call_result(checked(answer, connection))
                }),
            }),
            AnswerWay::Publication { inbox, number } => {
                let answer = match answer {
                    Some(Ok(Some(content))) => checked(Ok(content), connection).map(Some),
                    Some(Ok(None)) => Ok(None),
                    Some(Err(error)) => checked(Err(error), connection).map(Some),
                    None => Err(call_error(ErrorCode::HandlerError, NO_ANSWER)),
                };
                inbox.push((connection.id, *number, BackendAnswer::Application(answer)));
            }
        }
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if !*self.is_answered.get_mut() {
            self.send(None);
        }
    }
}

/// An answer of the application as it can be sent.
pub(crate) fn call_result(answer: Result<Content, CallError>) -> CallResult {
    answer.map(|content| tidewire_wire::session::CallAnswer {
        binary: content.is_binary(),
        payload: content.into_json().into_bytes(),
    })
}

/// An answer of the application; its fault as the error that the client gets.
pub(crate) fn checked(
    answer: Result<Content, CallError>,
    connection: ConnectionKey,
) -> Result<Content, CallError> {
    let problem = match answer {
        Ok(content) if content.is_readable() => return Ok(content),
        Ok(_) => "the application's answer is not JSON that a client can read",
        Err(error) if error.code.is_empty() => "the application's error has no code",
        Err(error) => return Err(error),
    };
    // The thread that answers does not know the address; a line at level `debug` has it, where the session starts.
    static LINES: LineBudget = LineBudget::new();
    if let Some(left_out) = LINES.admit(Instant::now()) {
        tracing::error!(%connection, left_out, problem, "a call was not answered as it should be");
    }
    Err(call_error(ErrorCode::HandlerError, problem))
}

/// Added to the number of a question among the deadlines, where the numbers of calls are without it.
pub(crate) const QUESTION: u64 = 1 << 63;

/// The words of a call that the application dropped.
pub(crate) const NO_ANSWER: &str = "the application did not answer";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_end_in_the_order_of_their_time() {
        let mut calls = ShardCalls::default();
        for due_ms in [30, 10, 20, 10] {
            let number = calls.next_number();
            let waiting = OpenCall::Sent(ConnectionId::from_u64(number));
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
