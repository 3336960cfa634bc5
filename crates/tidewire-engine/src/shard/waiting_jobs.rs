//! Jobs on a shard: which connections wait for what, and when they go on.

use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::unfinished_jobs::JobProgress;
use tidewire_net::{ConnectionId, Io};

impl<A: Application> EngineShard<A> {
    /// Notes why the jobs of a connection wait, and reads it no further until they are done.
    pub(crate) fn suspend(&mut self, io: &mut Io, id: ConnectionId, progress: JobProgress) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let pauses = &mut connection.state.limits.pauses;
        let pause = match progress {
            JobProgress::Done => return,
            JobProgress::Yield | JobProgress::Later => &mut pauses.turn,
            JobProgress::Outbox => &mut pauses.outbox,
            JobProgress::Backlog => &mut pauses.backlog,
            JobProgress::Broker => &mut pauses.broker,
            JobProgress::Application => &mut pauses.application,
        };
        let was_paused = std::mem::replace(pause, true);
        io.pause_reading(id);
        if was_paused {
            return;
        }
        let counters = &self.core.counters;
        counters.jobs_deferred.add(1);
        match progress {
            JobProgress::Done => {}
            JobProgress::Broker => counters.broker_pauses.add(1),
            JobProgress::Yield => {
                self.has_work = true;
                self.working.push(id);
            }
            JobProgress::Later => self.working.push(id),
            JobProgress::Outbox => counters.reading_pauses.add(1),
            JobProgress::Backlog => {
                counters.backlog_pauses.add(1);
                self.backlogged.push(id);
            }
            JobProgress::Application => {
                counters.queue_full_pauses.add(1);
                self.waiting.push(id);
            }
        }
    }

    /// Goes on with the jobs that waited for this turn, each connection in its turn.
    pub(crate) fn work_on(&mut self, io: &mut Io) {
        self.has_work = false;
        // Connections that have waited longest go first; their remaining jobs wait behind the others.
        for id in std::mem::take(&mut self.working) {
            let progress = self
                .contained(io, id, |shard, io| shard.continue_jobs(io, id))
                .unwrap_or(JobProgress::Done);
            if let Some(connection) = self.connection(id) {
                connection.state.limits.pauses.turn = false;
                if connection.state.awaits_broker() {
                    self.suspend(io, id, JobProgress::Broker);
                } else if progress == JobProgress::Done {
                    self.go_on(io, id);
                } else {
                    self.suspend(io, id, progress);
                }
            }
        }
    }

    fn continue_jobs(&mut self, io: &mut Io, id: ConnectionId) -> JobProgress {
        let mut progress = JobProgress::Done;
        self.with_inbound(io, id, |inbound| {
            progress = inbound.work();
            if inbound.session.state.producer.is_some() {
                inbound.session.acknowledge_accepted();
            }
        });
        progress
    }

    /// A reason not to read a connection is over: its jobs go on or, if it has none, it is read
    /// again.
    pub(crate) fn go_on(&mut self, io: &mut Io, id: ConnectionId) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let state = &mut connection.state;
        if !state.limits.pauses.are_over() {
            return;
        }
        if state.work.jobs.is_empty() {
            io.resume_reading(id);
        } else {
            state.limits.pauses.turn = true;
            self.has_work = true;
            self.working.push(id);
        }
    }
}
