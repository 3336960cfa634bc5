//! The thread of a store.
//!
//! A report of the server or the application about messages stays valid if the disk fails: the worker owes it to
//! the store, keeps the order of the reports, and retries until the store has it.

#[cfg(test)]
mod tests;

use super::job::{Job, SharedDepth, StoreEvent};
use super::receipts::{Receipt, Receipts};
use super::{Durable, MessageLimits, Store, StoreError};
use crate::clock::steady_unix_ms;
use crate::config::Uncertain;
use crate::error::Error;
use crate::event;
use crate::payload::BINARY;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// A message on its way into the store, and who waits for what.
type Push = (Durable, Receipt, Receipt);

/// Owns a store, on a thread of its own.
pub(super) struct Worker {
    store: Box<dyn Store>,
    events: UnboundedSender<StoreEvent>,
    /// For the application's answers to events.
    jobs: mpsc::Sender<Job>,
    uncertain: Uncertain,
    /// An event about uncertain messages is on its way to the application; no further one is sent meanwhile.
    is_reporting: bool,
    receipts: Receipts,
    /// The jobs that the store does not know yet, in order.
    owed: VecDeque<Job>,
    retry_at: Instant,
    is_failing: bool,
    depth: Arc<SharedDepth>,
    pushing: Arc<AtomicUsize>,
}

impl Worker {
    /// `jobs` leads back to this worker.
    pub(super) fn new(
        store: Box<dyn Store>,
        uncertain: Uncertain,
        events: UnboundedSender<StoreEvent>,
        jobs: mpsc::Sender<Job>,
    ) -> Self {
        let worker = Self {
            store,
            events,
            jobs,
            uncertain,
            is_reporting: false,
            receipts: Receipts::default(),
            owed: VecDeque::new(),
            retry_at: Instant::now(),
            is_failing: false,
            depth: Arc::default(),
            pushing: Arc::default(),
        };
        worker.publish_depth();
        worker
    }

    pub(super) fn depth(&self) -> Arc<SharedDepth> {
        self.depth.clone()
    }

    /// How many messages are on their way to the store.
    pub(super) fn pushing(&self) -> Arc<AtomicUsize> {
        self.pushing.clone()
    }

    /// Runs until the store is closed; returns who waits for that.
    pub(super) fn run(&mut self, jobs: &mpsc::Receiver<Job>) -> Option<oneshot::Sender<()>> {
        self.report_uncertain();
        loop {
            let job = if self.owed.is_empty() {
                Some(jobs.recv().ok()?)
            } else {
                let wait = self.retry_at.saturating_duration_since(Instant::now());
                match jobs.recv_timeout(wait) {
                    Ok(job) => Some(job),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return None,
                }
            };
            if let Some(job) = job.and_then(|job| self.take_pushes(job, jobs)) {
                match job {
                    Job::Close(closed) => return Some(closed),
                    job => self.owe(job),
                }
            }
            self.pay();
            self.publish_depth();
        }
    }

    /// Stores this message and what waits behind it; the first job that is another.
    fn take_pushes(&mut self, mut job: Job, jobs: &mpsc::Receiver<Job>) -> Option<Job> {
        let mut pushes = Vec::new();
        let next = loop {
            match job {
                Job::Push {
                    message,
                    stored,
                    receipt,
                } => pushes.push((message, stored, receipt)),
                other => break Some(other),
            }
            if pushes.len() >= PUSHES_MAX {
                break None;
            }
            match jobs.try_recv() {
                Ok(next) => job = next,
                Err(_) => break None,
            }
        };
        self.pushing.fetch_sub(pushes.len(), Ordering::Relaxed);
        // A caller that stopped waiting got no promise, so its messages are not stored.
        pushes.retain(|(_, stored, _)| !stored.is_closed());
        if !pushes.is_empty() {
            self.push(pushes);
        }
        next
    }

    /// Puts a job behind those that are owed, so that there are few of them however long the store does not work.
    fn owe(&mut self, job: Job) {
        match &job {
            Job::Acknowledge { last } => {
                self.receipts.acknowledge(*last);
                if let Some(Job::Acknowledge { last: owed }) = self.owed.back_mut() {
                    *owed = (*owed).max(*last);
                    return;
                }
            }
            Job::Resume { .. } => self.forgo_resumes(),
            Job::Refused { row, error } => {
                self.receipts.settle(&[*row], &Err(error.clone()));
                return;
            }
            _ => {}
        }
        self.owed.push_back(job);
        self.retry_at = Instant::now();
    }

    /// Requests of an earlier connection after its resumption are of no use to the next one.
    fn forgo_resumes(&mut self) {
        let mut is_behind = false;
        let mut forgone = 0;
        self.owed.retain(|job| match job {
            Job::Resume { .. } => {
                is_behind = true;
                forgone += 1;
                false
            }
            Job::Rewind { .. } => {
                forgone += 1;
                false
            }
            Job::Acknowledge { .. } => !is_behind,
            Job::Take { .. } => false,
            _ => true,
        });
        for _ in 0..forgone {
            self.send_event(StoreEvent::NotResumed);
        }
    }

    /// Does the owed jobs, as far as the store works.
    fn pay(&mut self) {
        if Instant::now() < self.retry_at {
            return;
        }
        while let Some(job) = self.owed.pop_front() {
            let Err(error) = self.work(&job) else {
                self.is_failing = false;
                continue;
            };
            let words = match error {
                StoreError::Full => Error::Full.to_string(),
                StoreError::Failed(words) => words,
            };
            if !self.is_failing {
                tracing::error!(%words, "the queue of unacknowledged messages failed");
                self.is_failing = true;
                self.send_event(StoreEvent::Failed(words));
            }
            self.retry_at = Instant::now() + RETRY;
            if matches!(job, Job::Take { .. }) {
                // Others may be asked for by then.
                self.send_event(StoreEvent::NotTaken);
            } else {
                self.owed.push_front(job);
            }
            return;
        }
    }

    /// Stores what waits in one commit or, if not all of it fits, one by one.
    fn push(&mut self, pushes: Vec<Push>) {
        let now_unix_ms = steady_unix_ms();
        let (mut messages, mut waiters) = (Vec::new(), Vec::new());
        for (message, stored, receipt) in pushes {
            messages.push(message);
            waiters.push((stored, receipt));
        }
        let mut results: Vec<Result<u64, StoreError>> =
            match self.store.push(&messages, now_unix_ms) {
                Ok(rows) => rows.into_iter().map(Ok).collect(),
                Err(failed) if messages.len() == 1 => vec![Err(failed)],
                Err(_) => messages
                    .chunks(1)
                    .map(|message| {
                        let rows = self.store.push(message, now_unix_ms)?;
                        Ok(rows.first().copied().unwrap_or_default())
                    })
                    .collect(),
            };
        let is_any = results.iter().any(Result::is_ok);
        self.publish_depth();
        for ((stored, receipt), result) in waiters.into_iter().zip(results.drain(..)) {
            let told = match result {
                Ok(row) => {
                    self.receipts.insert(row, receipt);
                    Ok(())
                }
                Err(failed) => Err(failed.into()),
            };
            let _ = stored.send(told);
        }
        if is_any {
            self.send_event(StoreEvent::Stored);
        }
    }

    fn work(&mut self, job: &Job) -> Result<(), StoreError> {
        match job {
            // They never are owed.
            Job::Push { .. } | Job::Close(_) | Job::Refused { .. } => {}
            Job::Resume {
                epoch,
                last,
                limits,
            } => self.resume(*epoch, *last, *limits)?,
            Job::Take {
                count_max,
                bytes_max,
            } => self.take(*count_max, *bytes_max)?,
            Job::Acknowledge { last } => {
                let rows = self.store.acknowledge(*last)?;
                self.settle(&rows, &Ok(()));
            }
            Job::Rewind { last } => {
                self.store.rewind(*last);
                self.send_event(StoreEvent::Resumed);
            }
            Job::Forget { rows } => {
                self.store.forget(rows)?;
                self.is_reporting = false;
                self.report_uncertain();
            }
        }
        Ok(())
    }

    fn resume(&mut self, epoch: u32, last: u64, limits: MessageLimits) -> Result<(), StoreError> {
        self.store.limit_messages(limits);
        let resumed = self.store.resume(epoch, last, self.uncertain)?;
        self.receipts.forget_numbers();
        self.settle(&resumed.acknowledged, &Ok(()));
        match self.uncertain {
            Uncertain::Drop => {
                self.settle(&resumed.uncertain, &Err(Error::ConnectionLost));
                self.report_uncertain();
            }
            Uncertain::Resend => self.report_resent(resumed.resent),
        }
        self.send_event(StoreEvent::Resumed);
        Ok(())
    }

    fn take(&mut self, count_max: usize, bytes_max: usize) -> Result<(), StoreError> {
        let taken = self.store.take(count_max, bytes_max, steady_unix_ms())?;
        for message in &taken.messages {
            self.receipts.number(message.row, message.number);
        }
        if !taken.expired.is_empty() {
            self.settle(&taken.expired, &Err(Error::Expired));
            self.send_event(StoreEvent::Expired(taken.expired.len()));
        }
        self.send_event(StoreEvent::Taken(taken.messages));
        if !taken.too_large.is_empty() {
            self.settle(&taken.too_large, &Err(Error::too_large()));
            self.send_event(StoreEvent::TooLarge(taken.too_large.len()));
        }
        if !taken.unsupported.is_empty() {
            self.settle(&taken.unsupported, &Err(Error::Unsupported(BINARY)));
            self.send_event(StoreEvent::Unsupported(taken.unsupported.len()));
        }
        Ok(())
    }

    /// Reports uncertain messages to the application, some at a time; they are kept until it has received the event.
    fn report_uncertain(&mut self) {
        if self.is_reporting {
            return;
        }
        let page = match self.store.uncertain(PAGE_BYTES_MAX) {
            Ok(page) if page.is_empty() => return,
            Ok(page) => page,
            Err(error) => {
                tracing::error!(?error, "uncertain messages cannot be read; they are kept");
                return;
            }
        };
        self.is_reporting = true;
        let (rows, messages): (Vec<_>, Vec<_>) = page
            .into_iter()
            .map(|(row, message)| (row, message.into()))
            .unzip();
        let jobs = self.jobs.clone();
        let when_taken = move || {
            // Without a worker the file is closed, and the event is repeated when it is next opened.
            let _ = jobs.send(Job::Forget { rows });
        };
        let uncertain = event::Uncertain::new(messages, Some(Box::new(when_taken)));
        self.send_event(StoreEvent::Uncertain(Box::new(uncertain)));
    }

    /// Reports to the application which messages are sent again.
    fn report_resent(&self, resent: Vec<event::QueuedMessage>) {
        let mut messages = Vec::new();
        let mut bytes = 0;
        for message in resent {
            if bytes > 0 && bytes + message.payload.len() > PAGE_BYTES_MAX {
                let page = event::Uncertain::new(std::mem::take(&mut messages), None);
                self.send_event(StoreEvent::Uncertain(Box::new(page)));
                bytes = 0;
            }
            bytes += message.payload.len();
            messages.push(message);
        }
        if !messages.is_empty() {
            let page = event::Uncertain::new(messages, None);
            self.send_event(StoreEvent::Uncertain(Box::new(page)));
        }
    }

    fn settle(&mut self, rows: &[u64], result: &Result<(), Error>) {
        self.publish_depth();
        self.receipts.settle(rows, result);
    }

    /// A client that is gone needs to know nothing.
    fn send_event(&self, event: StoreEvent) {
        let _ = self.events.send(event);
    }

    fn publish_depth(&self) {
        self.depth.set(self.store.depth());
    }
}

/// Messages that are committed together.
const PUSHES_MAX: usize = 1_024;

/// Bytes of payloads in one event for the application.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// How long a store that did not work is left alone.
const RETRY: Duration = Duration::from_secs(1);
