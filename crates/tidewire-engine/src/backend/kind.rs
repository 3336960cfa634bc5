//! Kinds of requests to the backend: what they carry. Each kind has a circuit breaker and connections of its own.

use crate::config::backend::BackendEvent;

/// The content of a request: one event that has an answer, or an array of events that have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RequestKind {
    Connect,
    Subscribe,
    Publish,
    Request,
    /// Messages and ends of sessions.
    Array,
}

impl RequestKind {
    pub(crate) const ALL: [Self; KINDS] = [
        Self::Connect,
        Self::Subscribe,
        Self::Publish,
        Self::Request,
        Self::Array,
    ];

    pub(crate) fn of(event: BackendEvent) -> Self {
        match event {
            BackendEvent::Connect => Self::Connect,
            BackendEvent::Subscribe => Self::Subscribe,
            BackendEvent::Publish => Self::Publish,
            BackendEvent::Request => Self::Request,
            BackendEvent::Message | BackendEvent::Disconnect => Self::Array,
        }
    }

    /// Its name in the metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Subscribe => "subscribe",
            Self::Publish => "publish",
            Self::Request => "request",
            Self::Array => "batch",
        }
    }
}

/// The number of kinds.
pub(crate) const KINDS: usize = 5;
