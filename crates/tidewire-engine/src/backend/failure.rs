//! Failures of events: the reasons for which an event has no usable answer.

use crate::config::backend::BackendEvent;
use tidewire_wire::codes::ErrorCode;

/// Why an event has no usable answer of the backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// Too many events are in flight; nothing was sent.
    #[error("too many events wait for the backend")]
    Full,
    /// The circuit breaker is open; nothing was sent.
    #[error("the backend is not asked for now, after failures: {0}")]
    Open(String),
    /// No connection; nothing was sent.
    #[error("the backend cannot be reached: {0}")]
    NotConnected(String),
    /// The answer did not arrive in time.
    #[error("the backend did not answer in time")]
    TimedOut,
    /// The connection ended before the whole answer.
    #[error("the connection ended before the whole answer: {0}")]
    Cut(String),
    /// Another status than 200 or 204; for an array, than 2xx.
    #[error("the backend answered with status {}", status_words(*.0))]
    Status(u16),
    /// The answer is no HTTP, no JSON, or has the wrong shape.
    #[error("the backend's answer cannot be used: {0}")]
    Invalid(String),
    /// The answer is longer than the limit.
    #[error("the backend's answer is longer than the limit")]
    TooLarge,
    /// The server stops.
    #[error("the server stops")]
    Stopped,
}

impl Failure {
    /// Its number in [`KINDS`].
    pub(crate) fn index(&self) -> usize {
        match self {
            Self::Full => 0,
            Self::Open(_) => 1,
            Self::NotConnected(_) => 2,
            Self::TimedOut => 3,
            Self::Cut(_) => 4,
            Self::Status(_) => 5,
            Self::Invalid(_) => 6,
            Self::TooLarge => 7,
            Self::Stopped => 8,
        }
    }

    /// The fault of an answer, without the words about the backend.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::Invalid(words) => words.clone(),
            other => other.to_string(),
        }
    }

    /// Whether the backend has certainly not seen the event.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(
            self,
            Self::Full | Self::Open(_) | Self::NotConnected(_) | Self::Stopped
        )
    }

    /// The error that the client of an event receives.
    pub(crate) fn code(&self, event: BackendEvent) -> ErrorCode {
        match self {
            _ if event != BackendEvent::Request || self.is_unsent() => {
                ErrorCode::BackendUnavailable
            }
            Self::TimedOut => ErrorCode::Timeout,
            _ => ErrorCode::HandlerError,
        }
    }

    /// The words for a client. They reveal neither the address of the backend nor its answer.
    pub(crate) fn words(&self) -> &'static str {
        match self {
            Self::Full => "too many events wait for the backend; try again later",
            Self::TimedOut => "the backend did not answer in time",
            Self::Cut(_) | Self::Status(_) | Self::Invalid(_) | Self::TooLarge => {
                "the backend failed"
            }
            _ => "the backend cannot be reached",
        }
    }
}

fn status_words(status: u16) -> String {
    match status {
        200..=299 => format!("{status}; an answer has status 200 with a JSON object, or 204"),
        _ => status.to_string(),
    }
}

/// The names of failures in the metrics.
pub(crate) const KINDS: [&str; 9] = [
    "full",
    "open",
    "not_connected",
    "timeout",
    "cut",
    "status",
    "invalid",
    "too_large",
    "stopped",
];
