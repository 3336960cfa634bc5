//! Arrays of events that are not answered. One is on its way at a time, so that events keep their order.

use crate::backend::Submission;
use crate::backend::breakers::Breakers;
use crate::backend::kind::RequestKind;
use crate::backend::now::Now;
use crate::backend::slot::{ATTEMPTS_MAX, Post};
use crate::limits::owner::OwnerId;
use std::collections::{HashMap, VecDeque};

/// Events without an answer, until the backend has accepted them.
#[derive(Debug, Default)]
pub(crate) struct Arrays {
    events: VecDeque<Submission>,
    /// The next array, until it may be sent.
    next: Option<Post>,
    /// The arrays of single owners that an array has been divided into, because the backend did not accept
    /// it. They are sent before all other events.
    parts: VecDeque<Post>,
    /// How many of the parts have failed, without one that was accepted.
    failed_parts: usize,
    is_sent: bool,
    /// The next array waits for nothing but a seat, which it can only get after another request has ended.
    needs_seat: bool,
}

/// What happens to an array that the backend has not accepted.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is sent again, or its parts are.
    Repeated,
    /// These events are given up.
    Dropped(Vec<Submission>),
}

impl Arrays {
    pub(crate) fn push(&mut self, event: Submission) {
        self.events.push_back(event);
    }

    /// Whether an event waits to be sent, or is on its way.
    pub(crate) fn has_more(&self) -> bool {
        let has_arrays = self.next.is_some() || !self.parts.is_empty();
        has_arrays || !self.events.is_empty() || self.is_sent
    }

    /// Everything that is not on its way.
    pub(crate) fn take_all(&mut self) -> Vec<Submission> {
        self.is_sent = false;
        let arrays = self.next.take().into_iter().chain(self.parts.drain(..));
        let events = arrays.flat_map(|array| array.events);
        events.chain(self.events.drain(..)).collect()
    }

    /// When an array may be sent at the earliest, if one waits for that.
    pub(crate) fn due_ms(&self, breakers: &Breakers) -> Option<u64> {
        if self.is_sent || self.needs_seat {
            return None;
        }
        let arrays = self.next.iter().chain(&self.parts);
        let due_ms = |array: &Post| {
            let due_ms = breakers.due_ms(RequestKind::Array, array.owner());
            due_ms.max(array.not_before_ms)
        };
        arrays.map(due_ms).min()
    }

    /// The next array, if it may be sent now. It is on its way then.
    pub(crate) fn take(&mut self, breakers: &mut Breakers, now: Now) -> Option<Post> {
        if self.is_sent {
            return None;
        }
        self.needs_seat = false;
        let is_mixed = !breakers.is_open(RequestKind::Array);
        let mut may_go = |array: &Post| {
            let owner = array.owner();
            array.not_before_ms <= now.ms
                && breakers.admit(RequestKind::Array, owner, now.ms).is_ok()
        };
        let array = match self.parts.iter().position(&mut may_go) {
            Some(place) => self.parts.remove(place),
            None if !self.parts.is_empty() => None,
            None => {
                if self.next.is_none() {
                    self.next = self.form(is_mixed, now);
                }
                self.next.take_if(|array| may_go(array))
            }
        };
        self.is_sent = array.is_some();
        array
    }

    /// The oldest events in an array, of one owner unless it may be mixed.
    fn form(&mut self, is_mixed: bool, now: Now) -> Option<Post> {
        let owner = self.events.front()?.owner();
        let mut bytes = 0;
        let mut events = Vec::new();
        while let Some(next) = self.events.front() {
            let is_full = bytes + next.body.len() > ARRAY_BYTES || events.len() >= ARRAY_EVENTS;
            if !events.is_empty() && (is_full || (!is_mixed && next.owner() != owner)) {
                break;
            }
            bytes += next.body.len() + 1;
            events.extend(self.events.pop_front());
        }
        Some(Post::array(events, now.precise))
    }

    /// There is no seat for an array that was to be sent.
    pub(crate) fn wait_for_seat(&mut self, array: Post) {
        self.put_back(array);
        self.needs_seat = true;
    }

    /// An array that was to be sent has not been sent.
    pub(crate) fn put_back(&mut self, array: Post) {
        self.is_sent = false;
        match self.parts.is_empty() {
            true => self.next = Some(array),
            false => self.parts.push_front(array),
        }
    }

    /// The backend has accepted the array on its way.
    pub(crate) fn accepted(&mut self) {
        self.is_sent = false;
        self.failed_parts = 0;
    }

    /// The backend has not accepted the array on its way. An array with events of several owners is divided, so that the
    /// events of one owner do not make those of others fail. `is_final`: sending the array again would not help.
    pub(crate) fn failed(&mut self, mut array: Post, is_final: bool, now: Now) -> Fate {
        self.is_sent = false;
        let not_before_ms = now.ms + (RETRY_MS << array.attempts);
        if array.only_owner().is_none() {
            self.failed_parts = 0;
            let attempts = array.attempts;
            self.parts = divided(array.events, now);
            for part in &mut self.parts {
                (part.attempts, part.not_before_ms) = (attempts, not_before_ms);
            }
            return Fate::Repeated;
        }
        if !is_final && array.attempts < ATTEMPTS_MAX {
            (array.due_ms, array.not_before_ms) = (u64::MAX, not_before_ms);
            array.seat = None;
            match self.parts.is_empty() {
                true => self.next = Some(array),
                false => self.parts.push_back(array),
            }
            return Fate::Repeated;
        }
        self.failed_parts += 1;
        let mut events = array.events;
        if is_final && self.failed_parts >= REJECTED_PARTS_MAX {
            // It is not about one owner.
            events.extend(self.parts.drain(..).flat_map(|part| part.events));
        }
        Fate::Dropped(events)
    }
}

/// The arrays of single owners; each keeps its order.
fn divided(events: Vec<Submission>, now: Now) -> VecDeque<Post> {
    let mut places: HashMap<OwnerId, usize> = HashMap::new();
    let mut parts: Vec<Vec<Submission>> = Vec::new();
    for event in events {
        let place = *places.entry(event.owner()).or_insert(parts.len());
        match parts.get_mut(place) {
            Some(part) => part.push(event),
            None => parts.push(vec![event]),
        }
    }
    let parts = parts.into_iter();
    parts.map(|part| Post::array(part, now.precise)).collect()
}

/// Bytes and events of one array; a single event may have more bytes.
const ARRAY_BYTES: usize = 256 * 1024;
const ARRAY_EVENTS: usize = 500;

/// Half of the time before an array is sent again, in milliseconds.
const RETRY_MS: u64 = 50;

/// Parts of an array that the backend rejects, with none that it accepts, before the others are given up too.
const REJECTED_PARTS_MAX: usize = 3;
