//! Jobs of a session: work that a message asks for and that may exceed the budget of a turn. A job
//! runs step by step. What the connection's budget ([`work`](crate::limits::work)) does not cover
//! waits for the next turn, and the connection is not read until its jobs are done, so that its
//! messages keep their order.

use crate::limits::work::cost;
use crate::session::application::Application;
use crate::session::inbound::Inbound;
use crate::state::connection::Phase;
use crate::state::unfinished_jobs::{Asked, BatchJob, Job, JobProgress};

impl<A: Application> Inbound<'_, A> {
    /// Goes on with the jobs of a connection as far as its budget goes.
    pub(crate) fn work(&mut self) -> JobProgress {
        while !self.session.state.work.jobs.is_empty() {
            if self.session.state.phase() == Phase::Over || self.session.state.is_refused() {
                self.session.state.work.jobs.clear();
                break;
            }
            if let Some(obstacle) = self.obstacle() {
                return obstacle;
            }
            let Some(job) = self.session.state.work.jobs.pop() else {
                break;
            };
            // What a step starts is done before the rest of its own job.
            let place = self.session.state.work.jobs.len();
            if let Some(rest) = self.step(job) {
                self.session.state.work.jobs.insert(place, rest);
            }
            if let Some(close) = self.session.state.ending.close.take() {
                let (code, reason) = *close;
                self.session.start_close(code, reason);
            }
        }
        JobProgress::Done
    }

    fn obstacle(&mut self) -> Option<JobProgress> {
        if self.session.state.awaits_broker() {
            return Some(JobProgress::Broker);
        }
        if std::mem::take(&mut self.session.core.turn.backlog_is_full) {
            return Some(JobProgress::Backlog);
        }
        // A message is read as it would have been without the wait, whatever its owner has done in this second.
        let is_read = self.session.state.work.jobs.is_message_next();
        let owner = self.session.state.limits.owner;
        if std::mem::take(&mut self.session.core.turn.work_waits)
            || (!is_read && self.session.core.turn.meter.waits_for_second(owner))
        {
            return Some(JobProgress::Later);
        }
        if self.session.core.turn.meter.is_spent()
            || !self
                .session
                .core
                .turn
                .meter
                .may_work(self.session.state.limits.owner)
            || self.session.core.turn.published.is_spent()
        {
            return Some(JobProgress::Yield);
        }
        let id = self.session.state.key.id;
        if self.session.io.queued_bytes(id)
            > self.session.core.setup.config.limits.outbox_pause_bytes
        {
            // Writes only the bytes that wait. If the socket does not accept them now, it reports later that
            // it has.
            self.session.io.write_now(id, &[]);
            if self.session.io.is_blocked(id) {
                return Some(JobProgress::Outbox);
            }
        }
        (!self.app.is_ready()).then_some(JobProgress::Application)
    }

    /// Does a part of a job; returns the rest of it.
    fn step(&mut self, job: Job) -> Option<Job> {
        let goes_on = match &job {
            Job::Batch(_) | Job::Message(_) => true,
            // The application may have stored it already.
            Job::Publish(job) => job.asked != Asked::Nobody,
            _ => false,
        };
        if !self.session.state.is_open() && !goes_on {
            // It is on its way out of its topics, and gets no answer.
            return None;
        }
        match job {
            Job::Message(message) => {
                self.receive_held(&message);
                None
            }
            Job::Batch(batch) => self.step_batch(batch).map(Job::Batch),
            Job::Subscription(job) => {
                let rest = self.session.step_subscription(job);
                rest.map(Job::Subscription)
            }
            Job::CatchUp(catch_up) => {
                let rest = self.session.step_catch_up(catch_up);
                rest.map(Job::CatchUp)
            }
            Job::History(job) => {
                let rest = self.session.step_history(job);
                rest.map(Job::History)
            }
            Job::Sync(job) => self.step_sync(job).map(Job::Sync),
            Job::Snapshots(job) => {
                let rest = self.session.step_snapshots(job);
                rest.map(Job::Snapshots)
            }
            Job::Presence(job) => {
                let rest = self.session.step_presence(job);
                rest.map(Job::Presence)
            }
            Job::Announcement(announcement) => {
                let rest = self.session.step_announcement(announcement);
                rest.map(Job::Announcement)
            }
            Job::Publish(job) => self.step_publish(job).map(Job::Publish),
            Job::Refresh(refresh) => {
                self.session.refresh(*refresh);
                None
            }
        }
    }

    /// Handles one message of a batch.
    fn step_batch(&mut self, mut batch: BatchJob) -> Option<BatchJob> {
        let message = batch.messages.next()?;
        self.session
            .core
            .turn
            .meter
            .spend(cost::MESSAGE + cost::bytes(message.len()));
        let is_first = std::mem::take(&mut batch.is_first);
        self.receive_inner(batch.format, &message, is_first);
        (batch.messages.len() > 0).then_some(batch)
    }
}
