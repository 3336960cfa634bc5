//! The mapping from Rust errors to JavaScript errors: `lib/errors.js` makes the classes from it.

use napi::{Error, Status};
use std::borrow::Cow;
use tidewire_engine::{
    BrokerUnavailable, CallFailure, ManageError, PublishError, SendError, StartError,
};

/// The party that caused an error, with the names of `lib/errors.js`.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    Caller,
    Peer,
    Nobody,
}

/// An error to be thrown.
#[derive(Debug)]
pub(crate) struct Failure {
    class: &'static str,
    code: Cow<'static, str>,
    fault: &'static str,
    message: String,
    retry_after_ms: Option<u32>,
}

impl Failure {
    pub(crate) fn new(
        class: &'static str,
        code: impl Into<Cow<'static, str>>,
        fault: Fault,
        message: impl ToString,
    ) -> Self {
        Self {
            class,
            code: code.into(),
            fault: match fault {
                Fault::Caller => "caller",
                Fault::Peer => "peer",
                Fault::Nobody => "nobody",
            },
            message: message.to_string(),
            retry_after_ms: None,
        }
    }
}

pub(crate) fn argument(message: impl ToString) -> Failure {
    let code = "INVALID_ARGUMENT";
    Failure::new("InvalidArgumentError", code, Fault::Caller, message)
}

pub(crate) fn configuration(message: impl ToString) -> Failure {
    let code = "CONFIGURATION";
    Failure::new("ConfigurationError", code, Fault::Caller, message)
}

pub(crate) fn stopped(message: impl ToString) -> Failure {
    Failure::new("StoppedError", "STOPPED", Fault::Caller, message)
}

pub(crate) fn invalid_message(message: impl ToString) -> Failure {
    let code = "INVALID_MESSAGE";
    Failure::new("InvalidMessageError", code, Fault::Peer, message)
}

fn busy(message: impl ToString) -> Failure {
    Failure {
        retry_after_ms: Some(BUSY_RETRY_MS),
        ..Failure::new("BusyError", "BUSY", Fault::Nobody, message)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match &error {
            StartError::Listen { .. } => Self::new("AddressError", "ADDRESS", Fault::Caller, error),
            _ => configuration(error),
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Busy => busy(error),
            SendError::Stopped => stopped(error),
        }
    }
}

/// The broker behind several servers does not answer.
fn broker_unavailable(message: impl ToString) -> Failure {
    Failure {
        code: "BROKER_UNAVAILABLE".into(),
        ..busy(message)
    }
}

impl From<BrokerUnavailable> for Failure {
    fn from(error: BrokerUnavailable) -> Self {
        broker_unavailable(error)
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Busy => busy(error),
            PublishError::Unavailable => broker_unavailable(error),
            PublishError::Unknown => {
                Self::new("BusyError", "PUBLISH_UNKNOWN", Fault::Nobody, error)
            }
            PublishError::Stopped => stopped(error),
            _ => argument(error),
        }
    }
}

impl From<ManageError> for Failure {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::Send(error) => error.into(),
            ManageError::Topic(_) | ManageError::Access(_) | ManageError::Limit(_) => {
                argument(error)
            }
        }
    }
}

impl From<CallFailure> for Failure {
    fn from(failure: CallFailure) -> Self {
        let call = |class, code, fault| Self::new(class, code, fault, &failure);
        match &failure {
            CallFailure::Closed => call("ConnectionClosedError", "CONNECTION_CLOSED", Fault::Peer),
            CallFailure::TimedOut => call("CallTimeoutError", "TIMEOUT", Fault::Peer),
            CallFailure::Refused(_) => call("CallError", "REFUSED", Fault::Peer),
            CallFailure::Unsupported => call("CallError", "UNSUPPORTED", Fault::Peer),
            CallFailure::Busy => busy(&failure),
            CallFailure::Stopped => stopped(&failure),
            CallFailure::Invalid(problem) => argument(problem),
        }
    }
}

/// The reason is a JSON object with everything that the class in JavaScript needs.
impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let reason = serde_json::json!({
            "class": failure.class,
            "code": failure.code,
            "fault": failure.fault,
            "message": failure.message,
            "retryAfterMs": failure.retry_after_ms,
        });
        Error::new(Status::GenericFailure, reason.to_string())
    }
}

/// When to try again what found the server busy.
const BUSY_RETRY_MS: u32 = 100;
