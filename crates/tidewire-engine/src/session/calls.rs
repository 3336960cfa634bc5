//! Request and reply: what clients ask the application, and what the application asks clients.
//!
//! A call of a client (`call_request`) comes to [`Application::on_call`] with a [`Responder`], which answers it at
//! once or later, from any thread. A call to a client starts with [`Handle::call`], [`Handle::call_wait`] or
//! [`Context::call`]. Either has exactly one outcome: an answer, an error, or the end of its time.
//!
//! [`Application::on_call`]: crate::Application::on_call

use crate::handle::Handle;
use crate::session::application::{ConnectionKey, Context};
use crate::shard::Mail;
use crate::state::calls::Inbox;
use crate::topics::publication::is_payload;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tidewire_net::MailboxError;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{CallError, CallResult, TYPE_BYTES_MAX};

/// What a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// What it is about: 1 to 128 bytes, the application's words.
    pub t: &'a str,
    /// One JSON value, checked; `null` if the client gave none.
    pub payload: &'a str,
    /// How long an answer is waited for, in milliseconds: what the client asked for, and at most
    /// [`call_timeout_ms`](crate::Limits::call_timeout_ms).
    pub timeout_ms: u64,
}

/// Answers one call of a client, once, from any thread. Clones answer the same call. When the last of them is dropped
/// without an answer, the client gets `HANDLER_ERROR`; when the call's time is over, `TIMEOUT`.
#[derive(Debug, Clone)]
pub struct Responder(pub(crate) Arc<Unanswered>);

/// A call to a client.
///
/// ```
/// use std::time::Duration;
/// use tidewire_engine::NewCall;
///
/// let call = NewCall::new("confirm", r#"{"order":17}"#).with_timeout(Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCall {
    pub(crate) t: String,
    pub(crate) payload: String,
    pub(crate) timeout: Duration,
}

/// Why a call to a client has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// There is no such connection, or it ended before the answer came. Whether the client did what was asked is not
    /// known.
    #[error("the connection is gone")]
    Closed,
    /// The client did not answer in time. Whether it did what was asked is not known.
    #[error("the client did not answer in time")]
    TimedOut,
    /// The client answered with an error.
    #[error("the client refused: {}: {}", .0.code, .0.message)]
    Refused(CallError),
    /// The client's hello did not say that it takes calls.
    #[error("the client takes no calls")]
    Unsupported,
    /// The shard has not caught up, or the connection has as many open calls as it may; try again.
    #[error("the server or the connection has no room for another call now")]
    Busy,
    /// The server has stopped.
    #[error("the server has stopped")]
    Stopped,
    /// The caller's fault: nothing was sent.
    #[error("{0}")]
    Invalid(&'static str),
}

/// What a [`Responder`] has to do.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) connection: ConnectionKey,
    pub(crate) number: u64,
    pub(crate) correlation_id: Arc<str>,
    pub(crate) is_answered: AtomicBool,
}

/// Who hears what became of a call to a client: exactly once, also if the call is lost on its way.
pub(crate) struct Outcome {
    done: Option<Done>,
    if_dropped: CallFailure,
}

type Done = Box<dyn FnOnce(Result<String, CallFailure>) + Send>;

/// A call on its way to its shard.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) call: NewCall,
    pub(crate) outcome: Outcome,
}

impl Responder {
    /// Answers with one JSON value or an error; `false` if the call had been answered before. A text that is not
    /// JSON, or is nested deeper than 61 levels, and an error without a code reach the client as `HANDLER_ERROR`. An
    /// answer after the call's time, or to a connection that is gone, is dropped and counted.
    #[expect(clippy::must_use_candidate, reason = "it is called for its effect")]
    pub fn respond(&self, answer: Result<String, CallError>) -> bool {
        let is_first = self.0.take();
        if is_first {
            self.0.send(Some(checked(answer)));
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

impl NewCall {
    /// A call of type `t`, 1 to 128 bytes, whose payload is this JSON text. Both are checked when it is sent. It has
    /// 10 seconds.
    #[must_use]
    pub fn new(t: impl Into<String>, payload: impl Into<String>) -> Self {
        Self {
            t: t.into(),
            payload: payload.into(),
            timeout: TIMEOUT_DEFAULT,
        }
    }

    /// How long the answer is waited for, once the shard has taken the call. At most a day, to which more is lowered.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn check(&self) -> Result<(), CallFailure> {
        if self.t.is_empty() || self.t.len() > TYPE_BYTES_MAX {
            Err(CallFailure::Invalid(
                "the type of a call has 1 to 128 bytes",
            ))
        } else if !is_payload(&self.payload) {
            Err(CallFailure::Invalid(
                "the payload of a call is not JSON, or is nested deeper than 61 levels",
            ))
        } else {
            Ok(())
        }
    }
}

impl Context<'_> {
    /// [`Responder::respond`], and the answer leaves right behind what was sent before, if it is to this connection.
    pub fn respond(&mut self, responder: &Responder, answer: Result<String, CallError>) -> bool {
        let call = &*responder.0;
        let is_here =
            call.connection == self.state.key && Arc::ptr_eq(&call.inbox, self.core.calls.inbox());
        if !is_here {
            return responder.respond(answer);
        }
        let is_first = call.take();
        if is_first {
            let id = &call.correlation_id;
            let answer = checked(answer);
            self.core
                .answer_call(self.io, self.state, (id, call.number), answer);
        }
        is_first
    }

    /// Asks the client of this call something. `done` hears the answer, one JSON value, or why there is none: once,
    /// on the shard's thread, and before this returns if the call cannot be sent. It must not block.
    pub fn call(
        &mut self,
        call: NewCall,
        done: impl FnOnce(Result<String, CallFailure>) + Send + 'static,
    ) {
        let outcome = Outcome::new(done, CallFailure::Closed);
        match call.check() {
            Ok(()) => self.core.start_call(self.io, self.state, call, outcome),
            Err(failure) => outcome.end(Err(failure)),
        }
    }
}

impl Handle {
    /// Asks a client something. `done` hears the answer, one JSON value, or why there is none, exactly once: on the
    /// connection's shard or, before this returns, on the calling thread. It must not block.
    ///
    /// ```no_run
    /// # use tidewire_engine::{ConnectionKey, Handle, NewCall};
    /// # fn ask(handle: &Handle, connection: ConnectionKey) {
    /// handle.call(connection, NewCall::new("confirm", r#"{"order":17}"#), |answer| match answer {
    ///     Ok(json) => println!("the client says {json}"),
    ///     Err(failure) => println!("no answer: {failure}"),
    /// });
    /// # }
    /// ```
    pub fn call(
        &self,
        connection: ConnectionKey,
        call: NewCall,
        done: impl FnOnce(Result<String, CallFailure>) + Send + 'static,
    ) {
        let outcome = Outcome::new(done, CallFailure::Stopped);
        if let Err(failure) = call.check() {
            return outcome.end(Err(failure));
        }
        let Some(mailbox) = self.mailboxes.get(connection.shard as usize) else {
            return outcome.end(Err(CallFailure::Closed));
        };
        let posted = Box::new(Posted { call, outcome });
        if let Err(MailboxError::Full(Mail::Call(_, posted))) =
            mailbox.try_send(Mail::Call(connection.id, posted))
        {
            posted.outcome.end(Err(CallFailure::Busy));
        }
    }

    /// Asks a client something and waits for the answer, one JSON value. Never on a shard's own thread.
    ///
    /// # Errors
    /// [`CallFailure`].
    pub fn call_wait(
        &self,
        connection: ConnectionKey,
        call: NewCall,
    ) -> Result<String, CallFailure> {
        let (answer, answers) = sync_channel(1);
        let wait = call.timeout.min(TIMEOUT_MAX) + SHARD_TIME_MAX;
        self.call(connection, call, move |outcome| {
            // Whoever asked has given up.
            let _ = answer.send(outcome);
        });
        answers
            .recv_timeout(wait)
            .unwrap_or(Err(CallFailure::TimedOut))
    }
}

impl Unanswered {
    /// Whether nobody has answered before.
    fn take(&self) -> bool {
        !self.is_answered.swap(true, Ordering::AcqRel)
    }

    fn send(&self, result: Option<CallResult>) {
        self.inbox.push(crate::state::calls::Answer {
            connection: self.connection.id,
            correlation_id: Arc::clone(&self.correlation_id),
            number: self.number,
            result,
        });
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !*self.is_answered.get_mut() {
            self.send(None);
        }
    }
}

impl Outcome {
    fn new(
        done: impl FnOnce(Result<String, CallFailure>) + Send + 'static,
        if_dropped: CallFailure,
    ) -> Self {
        Self {
            done: Some(Box::new(done)),
            if_dropped,
        }
    }

    pub(crate) fn end(mut self, outcome: Result<String, CallFailure>) {
        if let Some(done) = self.done.take() {
            done(outcome);
        }
    }

    /// The call has reached its shard.
    pub(crate) fn arrive(&mut self) {
        self.if_dropped = CallFailure::Closed;
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(self.if_dropped.clone()));
        }
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Outcome(..)")
    }
}

/// One of the protocol's own errors.
pub(crate) fn call_error(code: ErrorCode, message: impl Into<String>) -> CallError {
    CallError {
        code: code.as_str().to_owned(),
        message: message.into(),
    }
}

/// An answer of the application as it can be sent.
fn checked(answer: Result<String, CallError>) -> CallResult {
    let problem = match answer {
        Ok(json) if is_payload(&json) => return Ok(json.into_bytes()),
        Ok(_) => "the application's answer is not JSON that a client can read",
        Err(error) if error.code.is_empty() => "the application's error has no code",
        Err(error) => return Err(error),
    };
    tracing::error!(problem, "a call was not answered as it should be");
    Err(call_error(ErrorCode::HandlerError, problem))
}

/// What a call to a client has unless it says otherwise.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The longest that any call is kept.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How much later than the end of a call's time its shard may come to it.
const SHARD_TIME_MAX: Duration = Duration::from_secs(2);
