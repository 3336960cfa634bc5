//! The exchange with the backend without sockets: a pool of connections, each with one request at a time, retries, and
//! the circuit breakers. Events, bytes and the time in; bytes, connections to open, outcomes and a deadline out.

use crate::backend::arrays::Arrays;
use crate::backend::breakers::Breakers;
use crate::backend::failure::Failure;
use crate::backend::failure_log::FailureLog;
use crate::backend::kind::RequestKind;
use crate::backend::now::Now;
use crate::backend::request::request;
use crate::backend::shares::{Seats, Shares};
use crate::backend::slot::{Busy, Post, Slot};
use crate::backend::waiting::Waiting;
use crate::backend::{Backend, Submission};
use crate::limits::owner::OwnerId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidewire_http::response::{self, Event, Expected, stray_line_end_bytes};
use tidewire_http::{ResponseHeads, ResponseReader};

/// A request of the exchange to the sockets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Open(usize),
    Close(usize),
    Send(usize, Vec<u8>),
}

mod outcomes;

/// Every event between its submission and its outcome.
#[derive(Debug)]
pub(crate) struct Exchange {
    backend: Arc<Backend>,
    host: String,
    slots: Vec<Slot>,
    /// Slots without a request, the one used last at the end.
    idle: Vec<usize>,
    shares: Shares,
    /// Events that wait for a seat.
    waiting: Waiting,
    /// Requests with a seat, which are sent over the next connection that is there.
    ready: VecDeque<Post>,
    arrays: Arrays,
    breakers: Breakers,
    actions: VecDeque<Action>,
    heads: ResponseHeads,
    /// A connection has failed since the last turn.
    is_unsettled: bool,
    /// No connection is opened before.
    open_after_ms: u64,
    /// When the link ends at the latest, once the server stops.
    stop_by_ms: Option<u64>,
    log: FailureLog,
}

impl Exchange {
    pub(crate) fn new(backend: Arc<Backend>) -> Self {
        let limits = response::Limits {
            head_bytes_max: HEAD_BYTES_MAX,
            ..response::Limits::default()
        };
        Self {
            host: backend.config.url.host_value(),
            slots: Vec::new(),
            idle: Vec::new(),
            shares: Shares::new(&backend.config),
            waiting: Waiting::default(),
            ready: VecDeque::new(),
            arrays: Arrays::default(),
            breakers: Breakers::new(&backend.config),
            actions: VecDeque::new(),
            heads: ResponseHeads::new(limits),
            is_unsettled: false,
            open_after_ms: 0,
            stop_by_ms: None,
            log: FailureLog::default(),
            backend,
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.backend.is_stopped()
    }

    /// The server stops: ends what waits for an answer, because nobody can use it any more. Whether all other events
    /// are sent or given up; then the link can end.
    pub(crate) fn wind_up(&mut self, now: Now) -> bool {
        let patience_ms = STOP_MS.min(self.backend.config.timeout_ms);
        let stop_by_ms = *self.stop_by_ms.get_or_insert(now.ms + patience_ms);
        for submission in self.backend.inbox.take(usize::MAX) {
            if !submission.event.is_answered() {
                self.arrays.push(submission);
            }
        }
        drop(self.waiting.take_all());
        self.ready.retain(Post::is_array);
        for slot in 0..self.slots.len() {
            if matches!(&self.slots[slot], Slot::Busy(busy) if !busy.post.is_array()) {
                self.release(slot);
            }
        }
        let is_open = self.breakers.is_open(RequestKind::Array);
        if self.arrays.has_more() && now.ms < stop_by_ms && !is_open {
            return false;
        }
        self.stop();
        true
    }

    /// Ends every event.
    fn stop(&mut self) {
        let posts = self.slots.drain(..).filter_map(|slot| match slot {
            Slot::Busy(busy) => Some(busy.post),
            _ => None,
        });
        let posts = posts.chain(self.ready.drain(..));
        let unsent = posts.flat_map(|post| post.events);
        let mut count = 0;
        for submission in unsent.chain(self.arrays.take_all()) {
            count += 1;
            self.backend
                .counts
                .fail(submission.event, &Failure::Stopped);
        }
        if count > 0 {
            tracing::warn!(
                backend = %self.backend.config.url,
                "the server stops before the backend has got {count} events",
            );
        }
        self.idle.clear();
        self.actions.clear();
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether another turn is due at once.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.is_unsettled || self.backend.inbox.is_filled()
    }

    /// When the next turn is due.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        let slots = self.slots.iter().filter_map(|slot| match slot {
            Slot::Free => None,
            Slot::Opening { due_ms } | Slot::Idle { due_ms } => Some(*due_ms),
            Slot::Busy(busy) => Some(busy.post.due_ms),
        });
        let ready = self.ready.iter().map(|post| post.due_ms);
        let opening = (!self.ready.is_empty()).then_some(self.open_after_ms);
        let opening = opening.filter(|after_ms| *after_ms > 0);
        slots
            .chain(ready)
            .chain(opening)
            .chain(self.waiting.due_ms())
            .chain(self.arrays.due_ms(&self.breakers))
            .chain(self.stop_by_ms)
            .min()
    }

    /// Accepts the submitted events, ends the overdue ones, and sends what may be sent.
    pub(crate) fn turn(&mut self, now: Now) {
        self.is_unsettled = false;
        if self.open_after_ms <= now.ms {
            self.open_after_ms = 0;
        }
        for submission in self.backend.inbox.take(EVENTS_PER_TURN) {
            self.accept(submission, now);
        }
        self.expire(now);
        self.seat(now);
        self.assign(now);
        self.show();
    }

    /// Shows the present state in the metrics.
    fn show(&self) {
        let counts = &self.backend.counts;
        let mut under_way = [0; RequestKind::ALL.len()];
        let mut connections = 0;
        for slot in &self.slots {
            connections += u64::from(matches!(slot, Slot::Idle { .. } | Slot::Busy(_)));
            if let Slot::Busy(busy) = slot {
                under_way[busy.post.kind() as usize] += 1;
            }
        }
        counts.connections.store(connections, Ordering::Relaxed);
        for kind in RequestKind::ALL {
            let place = kind as usize;
            let is_open = u64::from(self.breakers.is_open(kind));
            counts.is_breaker_open[place].store(is_open, Ordering::Relaxed);
            counts.under_way[place].store(under_way[place], Ordering::Relaxed);
        }
    }

    fn accept(&mut self, submission: Submission, now: Now) {
        let (kind, owner) = (RequestKind::of(submission.event), submission.owner());
        self.breakers.note(kind, owner, now.ms);
        if !submission.event.is_answered() {
            return self.arrays.push(submission);
        }
        match self.breakers.admit(kind, owner, now.ms) {
            Ok(()) => {
                let due_ms = now.ms.saturating_add(self.backend.config.timeout_ms);
                let post = Post::single(submission, now.precise, due_ms);
                self.waiting.push(post);
            }
            Err(reason) => self.end(submission, Err(Failure::Open(reason)), now),
        }
    }

    /// Ends what has waited for too long.
    fn expire(&mut self, now: Now) {
        for slot in 0..self.slots.len() {
            match &self.slots[slot] {
                Slot::Opening { due_ms } if *due_ms <= now.ms => {
                    self.actions.push_back(Action::Close(slot));
                    self.closed(slot, "no connection in time", false, now);
                }
                Slot::Idle { due_ms } if *due_ms <= now.ms => self.release(slot),
                Slot::Busy(busy) if busy.post.due_ms <= now.ms => {
                    self.fail(slot, Failure::TimedOut, now);
                }
                _ => {}
            }
        }
        let mut late = self.waiting.take_late(now.ms);
        if self.ready.iter().any(|post| post.due_ms <= now.ms) {
            let ready = std::mem::take(&mut self.ready).into_iter();
            let (overdue, ready): (Vec<_>, _) = ready.partition(|post| post.due_ms <= now.ms);
            self.ready = ready.into();
            late.extend(overdue);
        }
        for post in late {
            let reason = "no connection was free in time".to_owned();
            self.end_post(post, &Failure::NotConnected(reason), now);
        }
    }

    /// Gives seats to what waits, as far as there are some.
    fn seat(&mut self, now: Now) {
        let array = self.arrays.take(&mut self.breakers, now);
        if array.is_none() && self.waiting.is_empty() {
            return;
        }
        let slots = self.slots.iter().filter_map(|slot| match slot {
            Slot::Busy(busy) => Some(&busy.post),
            _ => None,
        });
        let mut seats = Seats::of(
            self.shares,
            slots.chain(&self.ready).filter_map(Post::seated),
        );
        if let Some(mut array) = array {
            // Arrays are everybody's.
            array.seat = seats.take(RequestKind::Array, OwnerId::SERVER, || true, || true);
            match array.seat {
                Some(_) => self.ready.push_back(array),
                None => self.arrays.wait_for_seat(array),
            }
        }
        let breakers = &self.breakers;
        let mut seat = |kind, owner| {
            let is_only = || breakers.is_only(owner, now.ms);
            let is_only_of = || breakers.is_only_of(kind, owner, now.ms);
            seats.take(kind, owner, is_only, is_only_of)
        };
        while let Some(post) = self.waiting.take(&mut seat) {
            self.ready.push_back(post);
        }
    }

    /// Sends what has a seat over the connections that are free, and opens others for the rest.
    fn assign(&mut self, now: Now) {
        while let Some(slot) = self.idle.pop() {
            let Some(mut post) = self.ready.pop_front() else {
                self.idle.push(slot);
                return;
            };
            if post.is_array() {
                post.due_ms = now.ms.saturating_add(self.backend.config.timeout_ms);
            }
            self.send(slot, post, now);
        }
        if self.open_after_ms > now.ms {
            return;
        }
        let count = |is: fn(&Slot) -> bool| self.slots.iter().filter(|slot| is(slot)).count();
        let opening = count(|slot| matches!(slot, Slot::Opening { .. }));
        let used = count(|slot| !matches!(slot, Slot::Free));
        let room = self.backend.config.connections_max.saturating_sub(used);
        let wanted = self.ready.len().saturating_sub(opening);
        for _ in 0..wanted.min(room) {
            self.open(now);
        }
    }

    fn open(&mut self, now: Now) {
        let mut slots = self.slots.iter();
        let free = slots.position(|slot| matches!(slot, Slot::Free));
        let slot = free.unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        });
        let due_ms = now
            .ms
            .saturating_add(self.backend.config.connect_timeout_ms);
        self.slots[slot] = Slot::Opening { due_ms };
        self.actions.push_back(Action::Open(slot));
    }

    fn send(&mut self, slot: usize, mut post: Post, now: Now) {
        post.attempts += 1;
        let attempts = post.attempts;
        let trace = post.span().map(|span| {
            if attempts > 1 {
                span.set("http.request.resend_count", u64::from(attempts - 1));
            }
            span.context()
        });
        let body = (post.body(), trace);
        let bytes = request(&self.backend, &self.host, body, now.unix_ms);
        self.actions.push_back(Action::Send(slot, bytes));
        self.slots[slot] = Slot::Busy(Box::new(Busy {
            post,
            sent: now.precise,
            reader: ResponseReader::new(),
            body: Vec::new(),
            has_begun: false,
        }));
    }

    pub(crate) fn connected(&mut self, slot: usize, now: Now) {
        if self.breakers.reach.succeed() {
            tracing::info!(backend = %self.backend.config.url, "the backend can be reached again");
        }
        self.idle_now(slot, now);
    }

    fn idle_now(&mut self, slot: usize, now: Now) {
        let due_ms = now.ms.saturating_add(self.backend.config.idle_timeout_ms);
        self.slots[slot] = Slot::Idle { due_ms };
        self.idle.push(slot);
    }

    /// Closes a connection that has no request any more.
    fn release(&mut self, slot: usize) {
        self.idle.retain(|idle| *idle != slot);
        self.slots[slot] = Slot::Free;
        self.actions.push_back(Action::Close(slot));
    }

    /// Reads bytes from the backend. Returns how many of them are consumed; the caller passes the others
    /// again.
    pub(crate) fn received(&mut self, slot: usize, data: &[u8], now: Now) -> usize {
        let Some(Slot::Busy(busy)) = self.slots.get_mut(slot) else {
            if stray_line_end_bytes(data) < data.len() {
                self.release(slot);
            }
            return data.len();
        };
        busy.has_begun |= !data.is_empty();
        let answer_bytes_max = self.backend.config.answer_bytes_max;
        let mut used = 0;
        let failure = loop {
            let rest = &data[used..];
            let step = match busy.reader.read(&mut self.heads, rest, Expected::Ordinary) {
                Ok(step) => step,
                Err(error) => break Failure::Invalid(error.to_string()),
            };
            used += step.consumed;
            match step.event {
                Event::More if step.consumed == 0 || used == data.len() => return used,
                Event::More | Event::Interim { .. } | Event::Head(_) => {}
                Event::Body(bytes) if busy.body.len() + bytes.len() > answer_bytes_max => {
                    break Failure::TooLarge;
                }
                Event::Body(bytes) => busy.body.extend_from_slice(bytes),
                Event::Done(response) => {
                    let rest = &data[used..];
                    let is_rest_empty = stray_line_end_bytes(rest) == rest.len();
                    self.complete(slot, &response, is_rest_empty, now);
                    return data.len();
                }
            }
        };
        self.fail(slot, failure, now);
        data.len()
    }

    /// The connection of a slot has ended, or could not be opened.
    pub(crate) fn closed(&mut self, slot: usize, reason: &str, is_clean: bool, now: Now) {
        self.idle.retain(|idle| *idle != slot);
        // After a stop there are none.
        let Some(place) = self.slots.get_mut(slot) else {
            return;
        };
        match std::mem::replace(place, Slot::Free) {
            Slot::Free | Slot::Idle { .. } => {}
            Slot::Opening { .. } => self.not_opened(reason, now),
            Slot::Busy(mut busy) => match busy.reader.finish(is_clean) {
                Ok(Some(response)) => {
                    self.record(&busy, now);
                    note_status(&mut busy.post, response.status);
                    let outcome = outcome_of(busy.post.kind(), response.status, busy.body);
                    self.finish(busy.post, outcome, now);
                }
                _ => {
                    let failure = Failure::Cut(reason.to_owned());
                    self.end_or_repeat(busy.post, busy.has_begun, failure, now);
                }
            },
        }
    }

    /// A whole answer.
    fn complete(&mut self, slot: usize, response: &response::Response, is_all: bool, now: Now) {
        let Slot::Busy(busy) = std::mem::replace(&mut self.slots[slot], Slot::Free) else {
            return;
        };
        if is_all && response.keeps_alive && !response.is_suspect && !response.is_tunnel {
            self.idle_now(slot, now);
        } else {
            self.actions.push_back(Action::Close(slot));
        }
        self.record(&busy, now);
        let mut post = busy.post;
        note_status(&mut post, response.status);
        let outcome = outcome_of(post.kind(), response.status, busy.body);
        self.finish(post, outcome, now);
    }

    /// The request of a connection has failed, and the connection cannot be used any more.
    fn fail(&mut self, slot: usize, failure: Failure, now: Now) {
        self.actions.push_back(Action::Close(slot));
        if let Slot::Busy(busy) = std::mem::replace(&mut self.slots[slot], Slot::Free) {
            self.record(&busy, now);
            self.finish(busy.post, Err(failure), now);
        }
    }
}

fn note_status(post: &mut Post, status: u16) {
    if let Some(span) = post.span() {
        span.set("http.response.status_code", u64::from(status));
    }
}

/// An answer that decides has status 200 and a body, or 204, which stands for an object without fields. Any other status
/// of 2xx is what a program answers that has not decided. An array needs no answer, only one who has accepted it.
fn outcome_of(kind: RequestKind, status: u16, body: Vec<u8>) -> Result<Vec<u8>, Failure> {
    match (kind, status) {
        (RequestKind::Array, 200..=299) | (_, 200) => Ok(body),
        (_, 204) => Ok(b"{}".to_vec()),
        (_, status) => Err(Failure::Status(status)),
    }
}

/// The head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Events accepted in one turn.
const EVENTS_PER_TURN: usize = 4_096;

/// How long a server that stops waits for the last batches, in milliseconds, at most.
const STOP_MS: u64 = 1_000;

#[cfg(test)]
mod tests;
