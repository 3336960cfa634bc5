//! Outcomes: what failures of connections and answers mean for requests, and for the circuit breakers.

use super::Exchange;
use crate::backend::Submission;
use crate::backend::arrays::Fate;
use crate::backend::failure::{Failure, KINDS};
use crate::backend::kind::RequestKind;
use crate::backend::now::Now;
use crate::backend::slot::{Busy, Post, Slot};
use crate::limits::owner::OwnerId;
use std::sync::atomic::Ordering;

impl Exchange {
    /// A connection could not be opened. If there are others, the backend has enough of them for now; if there is none,
    /// it is away.
    pub(super) fn not_opened(&mut self, reason: &str, now: Now) {
        let counts = &self.backend.counts;
        counts.connections_failed.fetch_add(1, Ordering::Relaxed);
        let is_there = |slot: &Slot| matches!(slot, Slot::Idle { .. } | Slot::Busy(_));
        if self.slots.iter().any(is_there) {
            self.open_after_ms = now.ms + OPEN_AGAIN_MS;
            return;
        }
        self.is_unsettled = true;
        if !self.breakers.reach.fail(reason, now.ms) {
            return;
        }
        let failure = Failure::Open(Failure::NotConnected(reason.to_owned()).to_string());
        for openings in &self.backend.counts.breaker_openings {
            openings.fetch_add(1, Ordering::Relaxed);
        }
        let mut posts = self.waiting.take_all();
        posts.extend(self.ready.drain(..));
        for post in posts {
            match post.is_array() {
                true => self.arrays.put_back(post),
                false => self.end_post(post, &failure, now),
            }
        }
    }

    /// Records the duration of a request. A request whose connection ends without an answer is no measure of
    /// the backend.
    pub(super) fn record(&self, busy: &Busy, now: Now) {
        let duration = now.precise.saturating_duration_since(busy.sent);
        let counts = &self.backend.counts;
        counts.record_request(busy.post.kind(), duration);
    }

    pub(super) fn end_or_repeat(
        &mut self,
        post: Post,
        has_begun: bool,
        failure: Failure,
        now: Now,
    ) {
        let is_single = !post.is_array();
        if is_single && !has_begun && post.is_repeatable() && now.ms < post.due_ms {
            self.backend.counts.retries.fetch_add(1, Ordering::Relaxed);
            self.ready.push_front(post);
            self.is_unsettled = true;
            return;
        }
        self.finish(post, Err(failure), now);
    }

    /// A request has its outcome.
    pub(super) fn finish(&mut self, mut post: Post, outcome: Result<Vec<u8>, Failure>, now: Now) {
        let (kind, owner) = (post.kind(), post.only_owner());
        let is_rejected = matches!(&outcome, Err(Failure::Status(status)) if *status < 500);
        if outcome.is_ok() || is_rejected {
            if self.breakers.succeed(kind) {
                let (backend, event) = (&self.backend.config.url, kind.name());
                tracing::info!(%backend, event, "the backend answers again");
            }
        } else if let (Err(failure), Some(owner)) = (&outcome, owner) {
            self.note_failure(kind, owner, failure, now);
        }
        let counts = &self.backend.counts;
        match outcome {
            Ok(_) if post.is_array() => {
                counts.batches.fetch_add(1, Ordering::Relaxed);
                for submission in post.events {
                    counts.answer(submission.event);
                }
                self.arrays.accepted();
            }
            Ok(body) => {
                let latency = now.precise.saturating_duration_since(post.started);
                let latency_us = latency.as_micros() as u64;
                counts.latency_us.fetch_add(latency_us, Ordering::Relaxed);
                if let Some(submission) = post.events.pop() {
                    self.end(submission, Ok(body), now);
                }
            }
            Err(failure) if post.is_array() => match self.arrays.failed(post, is_rejected, now) {
                Fate::Repeated => _ = counts.retries.fetch_add(1, Ordering::Relaxed),
                Fate::Dropped(events) => self.end_all(events, &failure, now),
            },
            Err(failure) => self.end_post(post, &failure, now),
        }
    }

    /// A request of a kind has failed: its circuit breaker counts it. Once it is open, nothing of this kind waits any
    /// longer.
    fn note_failure(&mut self, kind: RequestKind, owner: OwnerId, failure: &Failure, now: Now) {
        let reason = failure.to_string();
        if !self.breakers.fail(kind, owner, &reason, now.ms) {
            return;
        }
        let openings = &self.backend.counts.breaker_openings[kind as usize];
        openings.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            backend = %self.backend.config.url,
            event = kind.name(),
            "the backend is not asked for a while, after failures: {reason}",
        );
        let ready = std::mem::take(&mut self.ready).into_iter();
        let (ended, ready): (Vec<_>, _) = ready.partition(|post| post.kind() == kind);
        self.ready = ready.into();
        let failure = Failure::Open(reason);
        for post in self.waiting.take_kind(kind).into_iter().chain(ended) {
            self.end_post(post, &failure, now);
        }
    }

    pub(super) fn end_post(&mut self, post: Post, failure: &Failure, now: Now) {
        self.end_all(post.events, failure, now);
    }

    fn end_all(&mut self, events: Vec<Submission>, failure: &Failure, now: Now) {
        for submission in events {
            self.end(submission, Err(failure.clone()), now);
        }
    }

    pub(super) fn end(
        &mut self,
        mut submission: Submission,
        outcome: Result<Vec<u8>, Failure>,
        now: Now,
    ) {
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
                let url = &self.backend.config.url;
                self.log.note(url, event, &failure, now.ms);
            }
        }
    }
}

/// The time before another connection is tried, if the backend refuses one beside others, in milliseconds.
const OPEN_AGAIN_MS: u64 = 250;
