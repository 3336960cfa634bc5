//! The backend that events are sent to by HTTP: where it is, which events it gets, and the limits.

use std::fmt;
use std::path::PathBuf;

pub use crate::model::url::{HttpUrl as BackendUrl, InvalidHttpUrl as InvalidBackendUrl};

/// The backend that decides for this server. Every limit holds for the whole server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendConfig {
    /// Where events are posted to.
    pub url: BackendUrl,
    /// The events that are sent. Default: none.
    pub events: BackendEvents,
    /// The key of the signature of each request; without one requests are not signed. Default: none.
    pub secret: Option<BackendSecret>,
    /// Certificates of authorities, PEM, for `https`; `None` for those of the web.
    pub authorities: Option<PathBuf>,
    /// Connections to the backend, each with one request at a time; at least 1. Default 16.
    pub connections_max: usize,
    /// Events that wait for an answer, in all; messages and ends of sessions may wait in the same number each. One user,
    /// or one address without users, has at most a quarter. Default 1,024.
    pub in_flight_max: usize,
    /// The same in bytes of their bodies. Default 16 MiB.
    pub in_flight_bytes_max: usize,
    /// The time for a connection, with TLS, in milliseconds. Default 1,000.
    pub connect_timeout_ms: u64,
    /// The time from an event to its whole answer, in milliseconds. Default 5,000.
    pub timeout_ms: u64,
    /// A connection without a request for this long is closed, in milliseconds; it should be less than the backend's own
    /// time. Default 4,000.
    pub idle_timeout_ms: u64,
    /// The body of an answer, in bytes. Default 1 MiB.
    pub answer_bytes_max: usize,
    /// The treatment of connections, subscriptions and publications without an answer. Default: they are refused.
    pub away: BackendAway,
}

impl BackendConfig {
    /// The defaults for a backend at this URL.
    #[must_use]
    pub fn new(url: BackendUrl) -> Self {
        Self {
            url,
            events: BackendEvents::default(),
            secret: None,
            authorities: None,
            connections_max: 16,
            in_flight_max: 1_024,
            in_flight_bytes_max: 16 * 1024 * 1024,
            connect_timeout_ms: 1_000,
            timeout_ms: 5_000,
            idle_timeout_ms: 4_000,
            answer_bytes_max: 1024 * 1024,
            away: BackendAway::Refuse,
        }
    }
}

/// The treatment of connections, subscriptions and publications when the backend gives no usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendAway {
    /// They are refused.
    Refuse,
    /// They are handled as if the event were off.
    Allow,
}

/// An event that a backend can get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendEvent {
    /// A client opens a connection.
    Connect,
    /// A client subscribes to topics.
    Subscribe,
    /// A client publishes.
    Publish,
    /// A client asks something (`call_request`).
    Request,
    /// A client has sent a message of the application. Nothing is answered.
    Message,
    /// A session is over. Nothing is answered.
    Disconnect,
}

impl BackendEvent {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Connect,
        Self::Subscribe,
        Self::Publish,
        Self::Request,
        Self::Message,
        Self::Disconnect,
    ];

    /// Its name in options and bodies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Subscribe => "subscribe",
            Self::Publish => "publish",
            Self::Request => "request",
            Self::Message => "message",
            Self::Disconnect => "disconnect",
        }
    }

    /// Whether the reply of the backend decides something.
    #[must_use]
    pub fn is_answered(self) -> bool {
        !matches!(self, Self::Message | Self::Disconnect)
    }
}

/// A set of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackendEvents([bool; 6]);

impl BackendEvents {
    /// Whether an event is in the set.
    #[must_use]
    pub fn has(self, event: BackendEvent) -> bool {
        self.0[event as usize]
    }
}

impl FromIterator<BackendEvent> for BackendEvents {
    fn from_iter<I: IntoIterator<Item = BackendEvent>>(events: I) -> Self {
        let mut set = Self::default();
        for event in events {
            set.0[event as usize] = true;
        }
        set
    }
}

/// The key of signatures. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct BackendSecret(pub Vec<u8>);

impl fmt::Debug for BackendSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BackendSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let events: BackendEvents = [BackendEvent::Request].into_iter().collect();
        assert!(events.has(BackendEvent::Request) && !events.has(BackendEvent::Connect));
    }
}
