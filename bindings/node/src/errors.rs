//! The mapping from the failures of the shared crate to JavaScript errors: `lib/errors.js` makes the classes from it.

use napi::{Error, Status};

/// An error to be thrown.
#[derive(Debug)]
pub(crate) struct Failure(tidewire_bindings::Failure);

/// Any error that the shared crate has a class for.
impl<E> From<E> for Failure
where
    tidewire_bindings::Failure: From<E>,
{
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

pub(crate) fn argument(message: impl ToString) -> Failure {
    Failure(tidewire_bindings::Failure::argument(message))
}

pub(crate) fn configuration(message: impl ToString) -> Failure {
    Failure(tidewire_bindings::Failure::configuration(message))
}

pub(crate) fn stopped(message: impl ToString) -> Failure {
    Failure(tidewire_bindings::Failure::stopped(message))
}

pub(crate) fn invalid_message(message: impl ToString) -> Failure {
    Failure(tidewire_bindings::Failure::invalid_message(message))
}

/// The reason is a JSON object with everything that the class in JavaScript needs.
impl From<Failure> for Error {
    fn from(Failure(failure): Failure) -> Self {
        let reason = serde_json::json!({
            "class": failure.class,
            "code": failure.code,
            "fault": failure.fault.name(),
            "message": failure.message,
            "retryAfterMs": failure.retry_after.map(|time| time.as_millis() as u64),
        });
        Error::new(Status::GenericFailure, reason.to_string())
    }
}
