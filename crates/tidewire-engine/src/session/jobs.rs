//! Jobs: what a message asks for that may be more than a turn has room for. A job is done step by step; what the
//! connection's budget ([`work`](crate::limits::work)) does not cover waits for the next turn, and the connection is not read
//! until it is done, so that its messages keep their order.

use crate::limits::work::{PUBLISH_BYTES_PER_TURN, cost};
use crate::session::Turn;
use crate::session::application::Application;
use crate::state::connection::{ConnectionState, Phase};
use crate::state::jobs::{BatchJob, Job, JobProgress};

impl<A: Application> Turn<'_, A> {
    /// Goes on with the jobs of a connection as far as its budget goes.
    pub(crate) fn work(&mut self, state: &mut ConnectionState) -> JobProgress {
        while !state.jobs.is_empty() {
            if state.phase == Phase::Over || state.is_refused() {
                state.jobs.clear();
                break;
            }
            if let Some(obstacle) = self.obstacle(state) {
                return obstacle;
            }
            let Some(job) = state.jobs.pop() else { break };
            // What a step starts is done before the rest of its own job.
            let place = state.jobs.len();
            if let Some(rest) = self.step(state, job) {
                state.jobs.insert(place, rest);
            }
            if let Some((code, reason)) = state.close.take() {
                self.start_close(state, code, reason);
            }
        }
        JobProgress::Done
    }

    fn obstacle(&mut self, state: &ConnectionState) -> Option<JobProgress> {
        if std::mem::take(&mut self.core.backlog_is_full) {
            return Some(JobProgress::Backlog);
        }
        if std::mem::take(&mut self.core.work_waits)
            || self.core.meter.waits_for_second(state.owner)
        {
            return Some(JobProgress::Later);
        }
        if self.core.meter.is_spent()
            || !self.core.meter.may_work(state.owner)
            || self.core.fanout_bytes > PUBLISH_BYTES_PER_TURN
        {
            return Some(JobProgress::Yield);
        }
        let id = state.key.id;
        if self.io.queued_bytes(id) > self.core.shared.config.limits.outbox_pause_bytes {
            // Nothing but what waits: it is reported when the socket has taken it, if it does not now.
            self.io.write_now(id, &[]);
            if self.io.is_blocked(id) {
                return Some(JobProgress::Outbox);
            }
        }
        (!self.app.is_ready()).then_some(JobProgress::Application)
    }

    /// Does some of a job; what is left of it.
    fn step(&mut self, state: &mut ConnectionState, job: Job) -> Option<Job> {
        if state.phase != Phase::Open && !matches!(job, Job::Batch(_)) {
            // It is on its way out of its topics, and gets no answer.
            return None;
        }
        match job {
            Job::Batch(batch) => self.step_batch(state, batch).map(Job::Batch),
            Job::Subscription(job) => {
                let rest = self.core.step_subscription(self.io, state, job);
                rest.map(Job::Subscription)
            }
            Job::CatchUp(catch_up) => {
                let rest = self.core.step_catch_up(self.io, state, catch_up);
                rest.map(Job::CatchUp)
            }
            Job::History(job) => {
                let rest = self.core.step_history(self.io, state, job);
                rest.map(Job::History)
            }
            Job::Announcement(announcement) => {
                let rest = self.core.step_announcement(self.io, state, announcement);
                rest.map(Job::Announcement)
            }
            Job::Recheck(recheck) => {
                let rest = self.core.step_recheck(self.io, state, recheck);
                rest.map(Job::Recheck)
            }
            Job::Refresh(refresh) => {
                self.refresh(state, *refresh);
                None
            }
        }
    }

    /// Handles one message of a batch.
    fn step_batch(&mut self, state: &mut ConnectionState, mut batch: BatchJob) -> Option<BatchJob> {
        let message = batch.messages.next()?;
        self.core
            .meter
            .spend(cost::MESSAGE + cost::bytes(message.len()));
        let is_first = std::mem::take(&mut batch.is_first);
        self.handle_inner(state, batch.format, &message, is_first);
        (batch.messages.len() > 0).then_some(batch)
    }
}
