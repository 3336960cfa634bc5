//! Errors of a client: whose fault they are, and whether a retry helps.

use std::io;
use std::time::Duration;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::{ErrorCode, Fault};

/// An error of a [`Client`](crate::Client).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration or an argument is invalid: the caller's fault.
    #[error("{0}")]
    Invalid(String),
    /// No connection could be established.
    #[error("cannot connect: {reason}")]
    Connect {
        /// The reason in words.
        reason: String,
        /// The HTTP status with which the server rejected the request.
        status: Option<u16>,
        /// The time after which the server allows a retry.
        retry_after: Option<Duration>,
    },
    /// The server rejects the token, and the client has no other: the caller's fault.
    #[error("the server does not accept the token: {0}")]
    Unauthorized(String),
    /// The session ended, and the client does not reconnect: its configuration or the close code forbids it.
    #[error("the session ended: {reason}")]
    Ended {
        /// The close code; `None` without a close frame.
        code: Option<u16>,
        /// The reason in words.
        reason: String,
    },
    /// The client is closed.
    #[error("the client is closed: {0}")]
    Closed(String),
    /// The outbox is full, and the operation had no effect. Nobody's fault: retry later.
    #[error("there is no room for what waits to be sent")]
    Full,
    /// The server rejected the request or, with the code `TIMEOUT`, had no answer in time.
    #[error("{}: {code}: {message}", refused_or_late(code))]
    Refused {
        /// An error code of the protocol or of the application.
        code: String,
        /// The explanation in words.
        message: String,
        /// The time after which a retry may succeed.
        retry_after: Option<Duration>,
    },
    /// No answer arrived in time. The server may have executed the request.
    #[error("no answer came in time; whether it was done is not known")]
    TimedOut,
    /// The connection was lost before the answer arrived. The server may have executed the request.
    #[error("the connection was lost before the answer; whether it was done is not known")]
    ConnectionLost,
    /// The server does not support the requested feature.
    #[error("the server does not offer {0}")]
    Unsupported(&'static str),
    /// The message expired before it could be sent; nobody received it.
    #[error("the message was too old to be sent")]
    Expired,
    /// The queue of unacknowledged messages failed: its file or its disk.
    #[error("the offline queue: {0}")]
    Queue(String),
}

/// An error in words, without the number that the standard library appends: `Connection refused (os error 111)`.
pub(crate) fn io_words(error: &io::Error) -> String {
    let mut words = error.to_string();
    if let Some(number) = error.raw_os_error()
        && let Some(short) = words.strip_suffix(&format!(" (os error {number})"))
    {
        words.truncate(short.len());
    }
    words
}

impl Error {
    /// A stable name: a code of `codes.toml` for errors of the server, otherwise a name of the client.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Invalid(_) => "INVALID_ARGUMENT",
            Self::Connect { .. } => "CONNECT_FAILED",
            Self::Unauthorized(_) => "AUTH_FAILED",
            Self::Ended { .. } => "SESSION_ENDED",
            Self::Closed(_) => "CLOSED",
            Self::Full => "BUSY",
            Self::Refused { code, .. } => code,
            Self::TimedOut => "TIMEOUT",
            Self::ConnectionLost => "CONNECTION_LOST",
            Self::Unsupported(_) => "UNSUPPORTED",
            Self::Expired => "EXPIRED",
            Self::Queue(_) => "QUEUE",
        }
    }

    /// The side that has to act; `None` if a later retry is enough.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Invalid(_) | Self::Unauthorized(_) | Self::Closed(_) | Self::Queue(_) => {
                Some(Fault::Caller)
            }
            Self::Refused { code, .. } => match ErrorCode::parse(code).map(ErrorCode::fault) {
                None => Some(Fault::Peer),
                known => known.map(from_here),
            },
            Self::Ended { code, .. } => {
                let code = code.and_then(CloseCode::from_wire);
                Some(
                    code.and_then(CloseCode::fault)
                        .map_or(Fault::Server, from_here),
                )
            }
            Self::Connect { .. } | Self::Unsupported(_) => Some(Fault::Server),
            Self::Full | Self::TimedOut | Self::ConnectionLost | Self::Expired => None,
        }
    }

    /// The time after which a retry may succeed, if it is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Connect { retry_after, .. } | Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    pub(crate) fn connect(reason: impl Into<String>) -> Self {
        Self::Connect {
            reason: reason.into(),
            status: None,
            retry_after: None,
        }
    }

    /// The reason for which the server would end the connection.
    pub(crate) fn too_large() -> Self {
        Self::Refused {
            code: ErrorCode::MessageTooLarge.as_str().to_owned(),
            message: "it was not sent: the server takes no message as large".to_owned(),
            retry_after: None,
        }
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid(reason.into())
    }

    pub(crate) fn closed_by_application() -> Self {
        Self::Closed("by the application".to_owned())
    }

    /// The error of calls after a client has ended for this reason.
    pub(crate) fn into_closed(self) -> Self {
        match self {
            Self::Closed(_) => self,
            reason => Self::Closed(reason.to_string()),
        }
    }
}

/// The tables of codes speak to who receives the code, which is this side.
fn from_here(fault: Fault) -> Fault {
    match fault {
        Fault::Peer => Fault::Caller,
        _ => Fault::Server,
    }
}

/// A timeout of the other side is no refusal: nobody decided anything.
fn refused_or_late(code: &str) -> &'static str {
    if code == ErrorCode::Timeout.as_str() {
        "the server had no answer in time"
    } else {
        "the server refused"
    }
}

/// The end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) code: Option<CloseCode>,
    pub(crate) reason: String,
    /// Whether the server sent a close frame.
    pub(crate) by_server: bool,
}

impl Ending {
    pub(crate) fn lost(reason: impl Into<String>) -> Self {
        Self {
            code: None,
            reason: reason.into(),
            by_server: false,
        }
    }

    pub(crate) fn ours(code: CloseCode, reason: impl Into<String>) -> Self {
        Self {
            code: Some(code),
            reason: reason.into(),
            by_server: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_no_refusal() {
        let words = |code: &str| {
            let (code, message) = (code.to_owned(), "x".to_owned());
            let retry_after = None;
            Error::Refused {
                code,
                message,
                retry_after,
            }
            .to_string()
        };
        assert_eq!(
            words("TIMEOUT"),
            "the server had no answer in time: TIMEOUT: x"
        );
        assert_eq!(words("BUSY"), "the server refused: BUSY: x");
    }
}
