//! Errors as the packages show them: a class, a stable code, the party that has to act, and the time of another try.

mod client;
mod engine;
mod utilities;

use std::borrow::Cow;
use std::time::Duration;

/// The party that has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The program that uses the package.
    Caller,
    /// The other end of a connection, or whoever made a message or a token.
    Peer,
    /// None of them: another try later may succeed.
    Nobody,
}

impl Fault {
    /// The name in every package.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Peer => "peer",
            Self::Nobody => "nobody",
        }
    }
}

/// An error, before a package makes an exception of its language from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The name of the class, the same in every package.
    pub class: &'static str,
    /// A stable name, such as `BUSY`.
    pub code: Cow<'static, str>,
    /// The party that has to act.
    pub fault: Fault,
    /// The message: what happened, to what, and what to do.
    pub message: String,
    /// When another try makes sense.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// An error without a time of another try.
    pub fn new(
        class: &'static str,
        code: impl Into<Cow<'static, str>>,
        fault: Fault,
        message: impl ToString,
    ) -> Self {
        Self {
            class,
            code: code.into(),
            fault,
            message: message.to_string(),
            retry_after: None,
        }
    }

    /// The same error, with the time of another try.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// An argument has a value that cannot be used.
    pub fn argument(message: impl ToString) -> Self {
        let code = "INVALID_ARGUMENT";
        Self::new("InvalidArgumentError", code, Fault::Caller, message)
    }

    /// An argument has a type that cannot be used.
    pub fn wrong_type(message: impl ToString) -> Self {
        Self::new("WrongTypeError", "WRONG_TYPE", Fault::Caller, message)
    }

    /// An option is unknown, or has a value that cannot be used.
    pub fn configuration(message: impl ToString) -> Self {
        let code = "CONFIGURATION";
        Self::new("ConfigurationError", code, Fault::Caller, message)
    }

    /// The server or the client has stopped, or was not started.
    pub fn stopped(message: impl ToString) -> Self {
        Self::new("StoppedError", "STOPPED", Fault::Caller, message)
    }

    /// A message of a peer is not what it should be.
    pub fn invalid_message(message: impl ToString) -> Self {
        let code = "INVALID_MESSAGE";
        Self::new("InvalidMessageError", code, Fault::Peer, message)
    }

    /// The broker behind several servers does not answer; nothing was done.
    pub fn broker_unavailable(message: impl ToString) -> Self {
        Self {
            code: "BROKER_UNAVAILABLE".into(),
            ..Self::busy(message)
        }
    }

    /// The other side has not caught up; nothing was done.
    pub fn busy(message: impl ToString) -> Self {
        Self::new("BusyError", "BUSY", Fault::Nobody, message).after(BUSY_RETRY)
    }
}

/// When another try makes sense after [`Failure::busy`].
const BUSY_RETRY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_engine::{PublishError, SendError};

    #[test]
    fn a_busy_engine_names_the_time_of_another_try() {
        for failure in [
            Failure::from(SendError::Busy),
            Failure::from(PublishError::Busy),
        ] {
            assert_eq!((failure.class, &*failure.code), ("BusyError", "BUSY"));
            assert_eq!(failure.retry_after, Some(Duration::from_millis(100)));
            assert_eq!(failure.fault.name(), "nobody");
        }
    }

    #[test]
    fn a_stopped_engine_is_the_callers_fault() {
        let failure = Failure::from(SendError::Stopped);
        assert_eq!(
            (failure.class, failure.fault.name()),
            ("StoppedError", "caller")
        );
        assert_eq!(failure.retry_after, None);
    }
}
