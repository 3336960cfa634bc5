//! The exchange with the backend without sockets: a pool of connections, each with one request at a time, retries, and
//! the circuit breaker. Events, bytes and the time in; bytes, connections to open, outcomes and a deadline out.

use crate::backend::breaker::Breaker;
use crate::backend::failure::{Failure, KINDS};
use crate::backend::request::request;
use crate::backend::slot::{ATTEMPTS_MAX, Busy, Post, Slot};
use crate::backend::{Backend, Submission};
use crate::config::backend::BackendEvent;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tidewire_http::response::{self, Event, Expected, stray_line_end_bytes};
use tidewire_http::{ResponseHeads, ResponseReader};

/// The time of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// On the monotonic clock.
    pub(crate) ms: u64,
    pub(crate) unix_ms: u64,
    /// For durations that are measured.
    pub(crate) precise: Instant,
}

/// A request of the exchange to the sockets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Open(usize),
    Close(usize),
    Send(usize, Vec<u8>),
}

/// Every event between its submission and its outcome.
#[derive(Debug)]
pub(crate) struct Exchange {
    backend: Arc<Backend>,
    host: String,
    slots: Vec<Slot>,
    /// Slots without a request, the one used last at the end.
    idle: Vec<usize>,
    /// Events that wait for a connection.
    waiting: VecDeque<Post>,
    /// Events without an answer that wait for a batch.
    notices: VecDeque<Submission>,
    /// The next batch, until it is sent. One is on its way at a time, so that events keep their order.
    batch: Option<Post>,
    is_batch_sent: bool,
    breaker: Breaker,
    actions: VecDeque<Action>,
    heads: ResponseHeads,
    /// A connection has failed since the last turn.
    is_unsettled: bool,
    /// When the link ends at the latest, once the server stops.
    stop_by_ms: Option<u64>,
    /// When a failure was logged last, and how many were not since.
    logged_ms: Option<u64>,
    unlogged: u64,
}

impl Exchange {
    pub(crate) fn new(backend: Arc<Backend>) -> Self {
        let limits = response::Limits {
            head_bytes_max: HEAD_BYTES_MAX,
            ..response::Limits::default()
        };
        Self {
            host: backend.config.url.host_value(),
            backend,
            slots: Vec::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            notices: VecDeque::new(),
            batch: None,
            is_batch_sent: false,
            breaker: Breaker::default(),
            actions: VecDeque::new(),
            heads: ResponseHeads::new(limits),
            is_unsettled: false,
            stop_by_ms: None,
            logged_ms: None,
            unlogged: 0,
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
                self.notices.push_back(submission);
            }
        }
        self.waiting.clear();
        for slot in 0..self.slots.len() {
            if matches!(&self.slots[slot], Slot::Busy(busy) if busy.post.batch.is_none()) {
                self.release(slot);
            }
        }
        let has_more = !self.notices.is_empty() || self.batch.is_some() || self.is_batch_sent;
        if has_more && now.ms < stop_by_ms && !self.breaker.is_open() {
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
        let posts = posts.chain(self.batch.take());
        let unsent = posts
            .flat_map(|post| post.events)
            .chain(self.notices.drain(..));
        let mut count = 0;
        for submission in unsent {
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
        self.is_batch_sent = false;
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
        let waiting = self.waiting.front().map(|post| post.due_ms);
        let batch = self.batch.as_ref().filter(|batch| !batch.is_admitted);
        let batch = batch.map(|batch| {
            let probe_ms = self.breaker.probe_at_ms().unwrap_or_default();
            batch.not_before_ms.max(probe_ms)
        });
        slots
            .chain(waiting)
            .chain(batch)
            .chain(self.stop_by_ms)
            .min()
    }

    /// Takes what was submitted, ends what is too late, and sends what can be sent.
    pub(crate) fn turn(&mut self, now: Now) {
        self.is_unsettled = false;
        for submission in self.backend.inbox.take(EVENTS_PER_TURN) {
            self.accept(submission, now);
        }
        self.expire(now);
        self.form_batch(now);
        self.assign(now);
        let counts = &self.backend.counts;
        let is_open = u64::from(self.breaker.is_open());
        counts.is_breaker_open.store(is_open, Ordering::Relaxed);
        let slots = self.slots.iter();
        let open = slots.filter(|slot| matches!(slot, Slot::Idle { .. } | Slot::Busy(_)));
        let open = open.count() as u64;
        counts.connections.store(open, Ordering::Relaxed);
    }

    fn accept(&mut self, submission: Submission, now: Now) {
        if !submission.event.is_answered() {
            return self.notices.push_back(submission);
        }
        match self.breaker.admit(now.ms) {
            Ok(()) => self.waiting.push_back(Post {
                events: vec![submission],
                batch: None,
                due_ms: now.ms.saturating_add(self.backend.config.timeout_ms),
                started: now.precise,
                attempts: 0,
                is_admitted: true,
                not_before_ms: 0,
            }),
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
        while self
            .waiting
            .front()
            .is_some_and(|post| post.due_ms <= now.ms)
        {
            let Some(post) = self.waiting.pop_front() else {
                return;
            };
            let reason = "no connection was free in time".to_owned();
            self.end_post(post, &Failure::NotConnected(reason), now);
        }
    }

    /// Makes the next batch of events without an answer, if there is none.
    fn form_batch(&mut self, now: Now) {
        if self.is_batch_sent {
            return;
        }
        if self.batch.is_none() && !self.notices.is_empty() {
            let mut body = vec![b'['];
            let mut events = Vec::new();
            while let Some(next) = self.notices.front() {
                let is_full = body.len() + next.body.len() > EVENT_BATCH_BYTES
                    || events.len() >= BATCH_EVENTS;
                if is_full && !events.is_empty() {
                    break;
                }
                if !events.is_empty() {
                    body.push(b',');
                }
                body.extend_from_slice(&next.body);
                events.extend(self.notices.pop_front());
            }
            body.push(b']');
            self.batch = Some(Post {
                events,
                batch: Some(body),
                due_ms: u64::MAX,
                started: now.precise,
                attempts: 0,
                is_admitted: false,
                not_before_ms: 0,
            });
        }
        if let Some(batch) = &mut self.batch
            && !batch.is_admitted
            && batch.not_before_ms <= now.ms
        {
            batch.is_admitted = self.breaker.admit(now.ms).is_ok();
        }
    }

    /// Sends what waits over the connections that are free, and opens others for the rest.
    fn assign(&mut self, now: Now) {
        while let Some(slot) = self.idle.pop() {
            let post = match self.batch.take_if(|batch| batch.is_admitted) {
                Some(mut batch) => {
                    self.is_batch_sent = true;
                    batch.due_ms = now.ms.saturating_add(self.backend.config.timeout_ms);
                    Some(batch)
                }
                None => self.waiting.pop_front(),
            };
            let Some(post) = post else {
                self.idle.push(slot);
                return;
            };
            self.send(slot, post, now);
        }
        let has_batch = self.batch.as_ref().is_some_and(|batch| batch.is_admitted);
        let wanted = self.waiting.len() + usize::from(has_batch);
        let count = |is: fn(&Slot) -> bool| self.slots.iter().filter(|slot| is(slot)).count();
        let opening = count(|slot| matches!(slot, Slot::Opening { .. }));
        let used = count(|slot| !matches!(slot, Slot::Free));
        let room = self.backend.config.connections_max.saturating_sub(used);
        for _ in 0..wanted.saturating_sub(opening).min(room) {
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

    /// Bytes of the backend; how many of them are not to come again.
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
            Slot::Opening { .. } => {
                self.is_unsettled = true;
                self.note_failure(&Failure::NotConnected(reason.to_owned()), now);
            }
            Slot::Busy(mut busy) => match busy.reader.finish(is_clean) {
                Ok(Some(response)) => {
                    self.record(&busy, now);
                    note_status(&mut busy.post, response.status);
                    let outcome = outcome_of(response.status, busy.body);
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
        let outcome = outcome_of(response.status, busy.body);
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

    /// Records how long a request took. One whose connection ends without an answer is no measure of the backend.
    fn record(&self, busy: &Busy, now: Now) {
        let event = busy.post.batch.is_none().then(|| busy.post.event());
        let duration = now.precise.saturating_duration_since(busy.sent);
        self.backend.counts.record_request(event, duration);
    }

    fn end_or_repeat(&mut self, mut post: Post, has_begun: bool, failure: Failure, now: Now) {
        let is_single = post.batch.is_none();
        if is_single && !has_begun && post.is_repeatable() && now.ms < post.due_ms {
            self.backend.counts.retries.fetch_add(1, Ordering::Relaxed);
            post.is_admitted = true;
            self.waiting.push_front(post);
            self.is_unsettled = true;
            return;
        }
        self.finish(post, Err(failure), now);
    }

    /// A request has its outcome.
    fn finish(&mut self, mut post: Post, outcome: Result<Vec<u8>, Failure>, now: Now) {
        let is_rejected = matches!(&outcome, Err(Failure::Status(status)) if *status < 500);
        if outcome.is_ok() || is_rejected {
            if self.breaker.succeed() {
                tracing::info!(backend = %self.backend.config.url, "the backend answers again");
            }
        } else if let Err(failure) = &outcome {
            self.note_failure(failure, now);
        }
        let is_batch = post.batch.is_some();
        self.is_batch_sent &= !is_batch;
        match outcome {
            Ok(body) if is_batch => {
                drop(body);
                self.backend.counts.batches.fetch_add(1, Ordering::Relaxed);
                for submission in post.events {
                    self.backend.counts.answer(submission.event);
                }
            }
            Ok(body) => {
                let latency = now.precise.saturating_duration_since(post.started);
                let counts = &self.backend.counts;
                let latency_us = latency.as_micros() as u64;
                counts.latency_us.fetch_add(latency_us, Ordering::Relaxed);
                if let Some(submission) = post.events.pop() {
                    self.end(submission, Ok(body), now);
                }
            }
            Err(_) if is_batch && !is_rejected && post.attempts < ATTEMPTS_MAX => {
                self.backend.counts.retries.fetch_add(1, Ordering::Relaxed);
                post.is_admitted = false;
                post.not_before_ms = now.ms + (RETRY_MS << post.attempts);
                self.batch = Some(post);
            }
            Err(failure) => self.end_post(post, &failure, now),
        }
    }

    /// The backend has failed: the circuit breaker counts it. Once it is open, nothing waits any longer.
    fn note_failure(&mut self, failure: &Failure, now: Now) {
        let reason = failure.to_string();
        if !self.breaker.fail(&reason, now.ms) {
            return;
        }
        let counts = &self.backend.counts;
        counts.breaker_openings.fetch_add(1, Ordering::Relaxed);
        if let Some(batch) = &mut self.batch {
            batch.is_admitted = false;
        }
        for post in std::mem::take(&mut self.waiting) {
            self.end_post(post, &Failure::Open(reason.clone()), now);
        }
    }

    fn end_post(&mut self, post: Post, failure: &Failure, now: Now) {
        for submission in post.events {
            self.end(submission, Err(failure.clone()), now);
        }
    }

    fn end(&mut self, mut submission: Submission, outcome: Result<Vec<u8>, Failure>, now: Now) {
        let event = submission.event;
        let failed = outcome.as_ref().err().cloned();
        submission.span.iter_mut().for_each(|span| span.stop());
        let failure = failed.or(submission.done.tell(outcome));
        if let Some(span) = submission.span {
            match &failure {
                None => span.end(),
                Some(Failure::Status(status)) => span.fail(status.to_string()),
                Some(failure) => span.fail(KINDS[failure.index()]),
            }
        }
        match failure {
            None => self.backend.counts.answer(event),
            Some(failure) => {
                self.backend.counts.fail(event, &failure);
                self.log(event, &failure, now);
            }
        }
    }

    /// Logs a failure, at most once in a second.
    fn log(&mut self, event: BackendEvent, failure: &Failure, now: Now) {
        let last_ms = self
            .logged_ms
            .filter(|last| now.ms < last + LOG_INTERVAL_MS);
        if last_ms.is_some() {
            self.unlogged += 1;
            return;
        }
        self.logged_ms = Some(now.ms);
        let unlogged = std::mem::take(&mut self.unlogged);
        tracing::warn!(
            backend = %self.backend.config.url,
            event = event.name(),
            unlogged,
            "an event has no answer: {failure}",
        );
    }
}

fn note_status(post: &mut Post, status: u16) {
    if let Some(span) = post.span() {
        span.set("http.response.status_code", u64::from(status));
    }
}

fn outcome_of(status: u16, body: Vec<u8>) -> Result<Vec<u8>, Failure> {
    match status {
        200..=299 => Ok(body),
        status => Err(Failure::Status(status)),
    }
}

/// The head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Events taken in one turn.
const EVENTS_PER_TURN: usize = 4_096;

/// Bytes and events of one batch; a single event may have more bytes.
const EVENT_BATCH_BYTES: usize = 256 * 1024;
const BATCH_EVENTS: usize = 500;

/// Half of the time before a batch is sent again, in milliseconds.
const RETRY_MS: u64 = 50;

/// How long a server that stops waits for the last batches, in milliseconds, at most.
const STOP_MS: u64 = 1_000;

/// A failure is logged at most once in this many milliseconds.
const LOG_INTERVAL_MS: u64 = 1_000;

#[cfg(test)]
mod tests;
