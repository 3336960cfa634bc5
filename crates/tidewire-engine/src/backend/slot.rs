//! One connection of the pool, and one request on it.

use crate::backend::Submission;
use crate::config::backend::BackendEvent;
use crate::trace::OpenSpan;
use std::time::Instant;
use tidewire_http::ResponseReader;

/// A place for a connection.
#[derive(Debug)]
pub(crate) enum Slot {
    Free,
    /// It is being opened, until a time at most.
    Opening {
        due_ms: u64,
    },
    /// It has no request, and is closed at a time.
    Idle {
        due_ms: u64,
    },
    Busy(Box<Busy>),
}

/// A request without a whole answer.
#[derive(Debug)]
pub(crate) struct Busy {
    pub(crate) post: Post,
    pub(crate) sent: Instant,
    pub(crate) reader: ResponseReader,
    /// The body of the answer so far.
    pub(crate) body: Vec<u8>,
    /// A byte of the answer has come.
    pub(crate) has_begun: bool,
}

/// A request, as often as it is sent: one event that is answered, or several that are not.
#[derive(Debug)]
pub(crate) struct Post {
    /// At least one.
    pub(crate) events: Vec<Submission>,
    /// The body of several events; of one event its own.
    pub(crate) batch: Option<Vec<u8>>,
    /// When its time is over; of a batch, once it is sent.
    pub(crate) due_ms: u64,
    pub(crate) started: Instant,
    /// How often it was sent.
    pub(crate) attempts: u32,
    /// The circuit breaker lets it pass.
    pub(crate) is_admitted: bool,
    /// It is not sent before.
    pub(crate) not_before_ms: u64,
}

impl Post {
    pub(crate) fn event(&self) -> BackendEvent {
        self.events[0].event
    }

    pub(crate) fn body(&self) -> &[u8] {
        match &self.batch {
            Some(batch) => batch,
            None => &self.events[0].body,
        }
    }

    /// The span of its event; of a batch none.
    pub(crate) fn span(&mut self) -> Option<&mut OpenSpan> {
        match self.batch {
            Some(_) => None,
            None => self.events.first_mut()?.span.as_deref_mut(),
        }
    }

    /// Whether it may be sent again though the backend may have seen it.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.event() != BackendEvent::Request && self.attempts < ATTEMPTS_MAX
    }
}

/// How often a request is sent at most.
pub(crate) const ATTEMPTS_MAX: u32 = 3;
