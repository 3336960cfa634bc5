//! Calls: what one side asks the other, and why a call fails.

use crate::model::callback::call_back;
use crate::model::content::Content;
use std::fmt;
use std::time::Duration;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::format::binary_bytes;
use tidewire_wire::session::{CallError, TYPE_BYTES_MAX};

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// The name of the request: 1 to 128 bytes, the application's words.
    pub t: &'a str,
    /// One JSON value, checked; `null` if the client gave none. If it is binary, the base64 of the bytes in quotes.
    pub payload: &'a str,
    /// True if the payload is binary; [`Call::bytes`] then gives the bytes.
    pub is_binary: bool,
    /// How long an answer is waited for, in milliseconds: what the client asked for, and at most
    /// [`call_timeout_ms`](crate::Limits::call_timeout_ms).
    pub timeout_ms: u64,
}

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
    pub(crate) payload: Content,
    pub(crate) timeout: Duration,
}

/// Why a call to a client has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// There is no such connection, or it ended before the answer arrived. It is not known whether the client
    /// carried out the call.
    #[error("the connection is gone")]
    Closed,
    /// The client did not answer in time. It is not known whether it carried out the call.
    #[error("the client did not answer in time")]
    TimedOut,
    /// The client answered with an error.
    #[error("the client refused: {}: {}", .0.code, .0.message)]
    Refused(CallError),
    /// The client's hello did not announce that it accepts calls.
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

impl Call<'_> {
    /// The bytes of a payload that is binary; `None` for a JSON value.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        self.is_binary
            .then(|| binary_bytes(self.payload.as_bytes()))
            .flatten()
    }
}

impl NewCall {
    /// A call of type `t`, 1 to 128 bytes, whose payload is this JSON text, or the bytes of
    /// [`Content::binary`](crate::Content::binary). Both are checked when it is sent. It has 10 seconds.
    #[must_use]
    pub fn new(t: impl Into<String>, payload: impl Into<Content>) -> Self {
        Self {
            t: t.into(),
            payload: payload.into(),
            timeout: TIMEOUT_DEFAULT,
        }
    }

    /// How long to wait for the answer after the shard has accepted the call. At most a day; a longer time is
    /// lowered to that.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn check(&self) -> Result<(), CallFailure> {
        if self.t.is_empty() || self.t.len() > TYPE_BYTES_MAX {
            Err(CallFailure::Invalid(
                "the type of a call has 1 to 128 bytes",
            ))
        } else if !self.payload.is_readable() {
            Err(CallFailure::Invalid(
                "the payload of a call is not JSON, or is nested deeper than 61 levels",
            ))
        } else {
            Ok(())
        }
    }
}

/// The receiver of the outcome of a call to a client: called exactly once, also if the call is lost on its way.
pub(crate) struct CallOutcome {
    done: Option<Done>,
    if_dropped: CallFailure,
}

type Done = Box<dyn FnOnce(Result<Content, CallFailure>) + Send>;

impl CallOutcome {
    pub(crate) fn new(
        done: impl FnOnce(Result<Content, CallFailure>) + Send + 'static,
        if_dropped: CallFailure,
    ) -> Self {
        Self {
            done: Some(Box::new(done)),
            if_dropped,
        }
    }

    pub(crate) fn end(mut self, outcome: Result<Content, CallFailure>) {
        if let Some(done) = self.done.take() {
            call_back(|| done(outcome));
        }
    }

    /// The call has reached its shard.
    pub(crate) fn arrive(&mut self) {
        self.if_dropped = CallFailure::Closed;
    }
}

impl Drop for CallOutcome {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            call_back(|| done(Err(self.if_dropped.clone())));
        }
    }
}

impl fmt::Debug for CallOutcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CallOutcome(..)")
    }
}

/// One of the protocol's own errors.
pub(crate) fn call_error(code: ErrorCode, message: impl Into<String>) -> CallError {
    CallError {
        code: code.as_str().to_owned(),
        message: message.into(),
    }
}

/// The time for a call to a client unless it sets another.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The longest that any call is kept.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
