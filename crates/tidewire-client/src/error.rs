//! What can go wrong, whose fault it is and whether to try again.

use std::time::Duration;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::{ErrorCode, Fault};

/// Why something that was asked of a [`Client`](crate::Client) was not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration or an argument cannot be used: the caller's fault.
    #[error("{0}")]
    Invalid(String),
    /// No connection could be established. `retry_after` is what the server asked for.
    #[error("cannot connect: {reason}")]
    Connect {
        /// Why, in words.
        reason: String,
        /// The HTTP status of a server that refused.
        status: Option<u16>,
        /// After how long another try makes sense.
        retry_after: Option<Duration>,
    },
    /// The server does not accept the token, and there is no other: the caller's fault.
    #[error("the server does not accept the token: {0}")]
    Unauthorized(String),
    /// The session ended, and no other follows: the server does not want this client back, or the client does not
    /// reconnect.
    #[error("the session ended: {reason}")]
    Ended {
        /// The close code, if there was one.
        code: Option<u16>,
        /// Why, in words.
        reason: String,
    },
    /// The client is closed: nothing can be sent or received any more.
    #[error("the client is closed: {0}")]
    Closed(String),
    /// There is no room for what waits to be sent: nothing was done. Nobody's fault: try later.
    #[error("there is no room for what waits to be sent")]
    Full,
    /// The server refused what was asked for, or, with the code `TIMEOUT`, had no answer to it in time.
    #[error("{}: {code}: {message}", refused_or_late(code))]
    Refused {
        /// One of the protocol's error codes, or the application's own.
        code: String,
        /// The same in words.
        message: String,
        /// After how long another try makes sense.
        retry_after: Option<Duration>,
    },
    /// No answer came in time. Whether it was done is not known.
    #[error("no answer came in time; whether it was done is not known")]
    TimedOut,
    /// The connection was lost before the answer came. Whether it was done is not known.
    #[error("the connection was lost before the answer; whether it was done is not known")]
    ConnectionLost,
    /// The server does not offer what was asked for.
    #[error("the server does not offer {0}")]
    Unsupported(&'static str),
    /// The message was too old to be sent; nobody has got it.
    #[error("the message was too old to be sent")]
    Expired,
    /// The queue of unacknowledged messages cannot be used: its file, its disk.
    #[error("the offline queue: {0}")]
    Queue(String),
}

impl Error {
    /// A stable name: one of `codes.toml` for what the server refused, and a name of the client's own otherwise.
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

    /// Who has to act; `None` if nobody has to, but time.
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

    /// After how long another try makes sense, if that is known.
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

    /// What the server would say, and end the connection.
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

    /// What calls are told after a client has ended for this reason.
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

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) code: Option<CloseCode>,
    pub(crate) reason: String,
    /// Whether the server said so in a close frame.
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
