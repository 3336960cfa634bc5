//! One connection of the pool, and one request on it.

use crate::backend::Submission;
use crate::backend::kind::RequestKind;
use crate::backend::shares::Seat;
use crate::config::backend::BackendEvent;
use crate::limits::owner::OwnerId;
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
    /// The first byte of the answer has arrived.
    pub(crate) has_begun: bool,
}

/// A request, as often as it is sent: one event that is answered, or several that are not.
#[derive(Debug)]
pub(crate) struct Post {
    /// At least one.
    pub(crate) events: Vec<Submission>,
    /// The body of an array; of one event its own.
    array: Option<Vec<u8>>,
    /// When its time is over; of an array, once it is sent.
    pub(crate) due_ms: u64,
    pub(crate) started: Instant,
    /// How often it was sent.
    pub(crate) attempts: u32,
    /// It is not sent before.
    pub(crate) not_before_ms: u64,
    /// Its right to a connection, once it has one.
    pub(crate) seat: Option<Seat>,
}

impl Post {
    pub(crate) fn single(event: Submission, started: Instant, due_ms: u64) -> Self {
        Self {
            events: vec![event],
            array: None,
            due_ms,
            started,
            attempts: 0,
            not_before_ms: 0,
            seat: None,
        }
    }

    /// An array of events, of which there is at least one.
    pub(crate) fn array(events: Vec<Submission>, started: Instant) -> Self {
        let mut body = vec![b'['];
        for event in &events {
            if body.len() > 1 {
                body.push(b',');
            }
            body.extend_from_slice(&event.body);
        }
        body.push(b']');
        Self {
            events,
            array: Some(body),
            due_ms: u64::MAX,
            started,
            attempts: 0,
            not_before_ms: 0,
            seat: None,
        }
    }

    pub(crate) fn is_array(&self) -> bool {
        self.array.is_some()
    }

    pub(crate) fn event(&self) -> BackendEvent {
        self.events[0].event
    }

    pub(crate) fn kind(&self) -> RequestKind {
        RequestKind::of(self.event())
    }

    /// The owner of its first event.
    pub(crate) fn owner(&self) -> OwnerId {
        self.events[0].owner()
    }

    /// The owner of all its events, if they have the same.
    pub(crate) fn only_owner(&self) -> Option<OwnerId> {
        let owner = self.owner();
        let mut events = self.events.iter();
        events.all(|event| event.owner() == owner).then_some(owner)
    }

    /// Its kind, its owner and its seat; `None` if it has no seat.
    pub(crate) fn seated(&self) -> Option<(RequestKind, OwnerId, Seat)> {
        Some((self.kind(), self.owner(), self.seat?))
    }

    pub(crate) fn body(&self) -> &[u8] {
        match &self.array {
            Some(array) => array,
            None => &self.events[0].body,
        }
    }

    /// The span of its event; of an array none.
    pub(crate) fn span(&mut self) -> Option<&mut OpenSpan> {
        match self.array {
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
