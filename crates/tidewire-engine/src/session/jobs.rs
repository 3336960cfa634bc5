//! Jobs: what a message asks for that may be more than a turn has room for. A job is done step by step; what the
//! connection's budget ([`work`](crate::limits::work)) does not cover waits for the next turn, and the connection is not read
//! until it is done, so that its messages keep their order.

use crate::handle::topics::Recheck;
use crate::limits::work::cost;
use crate::session::Turn;
use crate::session::application::Application;
use crate::session::catch_up::CatchUp;
use crate::session::expiry::Refresh;
use crate::session::history::HistoryJob;
use crate::session::presence::Announcement;
use crate::session::subscribe::SubscriptionJob;
use crate::shard::{EngineShard, FANOUT_BYTES_PER_TURN};
use crate::state::connection::{Phase, State};
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::format::Format;

/// The unfinished jobs of a connection, the one to go on with last.
#[derive(Debug, Default)]
pub(crate) struct Jobs(
    #[expect(
        clippy::box_collection,
        reason = "eight bytes instead of 24 for the many connections that have none"
    )]
    Option<Box<Vec<Job>>>,
);

#[derive(Debug)]
pub(crate) enum Job {
    /// The messages of a `batch`.
    Batch(Batch),
    /// A `subscription_update`.
    Subscription(Box<SubscriptionJob>),
    /// What a new subscriber of a topic has missed.
    CatchUp(Box<CatchUp>),
    /// A `history_request`.
    History(Box<HistoryJob>),
    /// The topics that a session is present on from now on.
    Announcement(Announcement),
    /// The subscriptions of a session whose rights have changed.
    Recheck(Recheck),
    /// An `auth_refresh`.
    Refresh(Box<Refresh>),
}

/// The messages of a batch that have not been handled.
#[derive(Debug)]
pub(crate) struct Batch {
    messages: std::vec::IntoIter<Vec<u8>>,
    format: Format,
    /// The batch was admitted as one message; each further one counts too.
    is_first: bool,
}

/// Why jobs are left, if they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// The connection has had its part of the turn.
    Yield,
    /// The connection has had its part of the second, or more than its rate limit.
    Later,
    /// The peer has to read first.
    Outbox,
    /// The shards have to deliver first.
    Backlog,
    /// The application has to be ready first.
    Application,
}

impl Jobs {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn push(&mut self, job: Job) {
        self.0.get_or_insert_default().push(job);
    }

    fn pop(&mut self) -> Option<Job> {
        let job = self.0.as_mut()?.pop();
        self.0.take_if(|jobs| jobs.is_empty());
        job
    }

    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |jobs| jobs.len())
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Forgets that a topic is to be joined; whether it was.
    pub(crate) fn cancel(&mut self, topic: &str) -> bool {
        let Some(jobs) = &mut self.0 else {
            return false;
        };
        let before = jobs.len();
        jobs.retain(|job| !matches!(job, Job::CatchUp(catch_up) if catch_up.is_of(topic)));
        let is_cancelled = jobs.len() < before;
        self.0.take_if(|jobs| jobs.is_empty());
        is_cancelled
    }
}

impl Batch {
    pub(crate) fn new(messages: Vec<Vec<u8>>, format: Format) -> Self {
        Self {
            messages: messages.into_iter(),
            format,
            is_first: true,
        }
    }
}

impl<A: Application> Turn<'_, A> {
    /// Goes on with the jobs of a connection as far as its budget goes.
    pub(crate) fn work(&mut self, state: &mut State) -> Progress {
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
                state.jobs.0.get_or_insert_default().insert(place, rest);
            }
            if let Some((code, reason)) = state.close.take() {
                self.start_close(state, code, reason);
            }
        }
        Progress::Done
    }

    fn obstacle(&mut self, state: &State) -> Option<Progress> {
        if std::mem::take(&mut self.core.backlog_is_full) {
            return Some(Progress::Backlog);
        }
        if std::mem::take(&mut self.core.work_waits)
            || self.core.meter.waits_for_second(state.owner)
        {
            return Some(Progress::Later);
        }
        if self.core.meter.is_spent()
            || !self.core.meter.may_work(state.owner)
            || self.core.fanout_bytes > FANOUT_BYTES_PER_TURN
        {
            return Some(Progress::Yield);
        }
        let id = state.key.id;
        if self.io.queued_bytes(id) > self.core.shared.config.limits.outbox_pause_bytes {
            // Nothing but what waits: it is reported when the socket has taken it, if it does not now.
            self.io.write_now(id, &[]);
            if self.io.is_blocked(id) {
                return Some(Progress::Outbox);
            }
        }
        (!self.app.is_ready()).then_some(Progress::Application)
    }

    /// Does some of a job; what is left of it.
    fn step(&mut self, state: &mut State, job: Job) -> Option<Job> {
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
    fn step_batch(&mut self, state: &mut State, mut batch: Batch) -> Option<Batch> {
        let message = batch.messages.next()?;
        self.core
            .meter
            .spend(cost::MESSAGE + cost::bytes(message.len()));
        let is_first = std::mem::take(&mut batch.is_first);
        self.handle_inner(state, batch.format, &message, is_first);
        (batch.messages.len() > 0).then_some(batch)
    }
}

impl<A: Application> EngineShard<A> {
    /// Notes why the jobs of a connection wait, and reads it no further until they are done.
    pub(crate) fn suspend(&mut self, io: &mut Io, id: ConnectionId, progress: Progress) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let pauses = &mut connection.state.pauses;
        let pause = match progress {
            Progress::Done => return,
            Progress::Yield | Progress::Later => &mut pauses.turn,
            Progress::Outbox => &mut pauses.outbox,
            Progress::Backlog => &mut pauses.backlog,
            Progress::Application => &mut pauses.application,
        };
        let was_paused = std::mem::replace(pause, true);
        io.pause_reading(id);
        if was_paused {
            return;
        }
        let counters = &self.core.counters;
        counters.jobs_deferred.add(1);
        match progress {
            Progress::Done => {}
            Progress::Yield => {
                self.has_work = true;
                self.working.push(id);
            }
            Progress::Later => self.working.push(id),
            Progress::Outbox => counters.reading_pauses.add(1),
            Progress::Backlog => {
                counters.backlog_pauses.add(1);
                self.backlogged.push(id);
            }
            Progress::Application => {
                counters.queue_full_pauses.add(1);
                self.waiting.push(id);
            }
        }
    }

    /// Goes on with the jobs that waited for this turn, each connection in its turn.
    pub(crate) fn work_on(&mut self, io: &mut Io) {
        self.has_work = false;
        // Those that have waited longest come first; what they leave waits behind the others.
        for id in std::mem::take(&mut self.working) {
            let progress = self
                .contained(io, id, |shard, io| shard.continue_jobs(io, id))
                .unwrap_or(Progress::Done);
            if let Some(connection) = self.connection(id) {
                connection.state.pauses.turn = false;
                if progress == Progress::Done {
                    self.go_on(io, id);
                } else {
                    self.suspend(io, id, progress);
                }
            }
        }
    }

    fn continue_jobs(&mut self, io: &mut Io, id: ConnectionId) -> Progress {
        let mut progress = Progress::Done;
        self.with_turn(io, id, |turn, state| {
            progress = turn.work(state);
            if state.intake.is_some() {
                turn.settle_intake(state);
            }
        });
        progress
    }

    /// A reason not to read a connection is over: its jobs go on or, if it has none, it is read again.
    pub(crate) fn go_on(&mut self, io: &mut Io, id: ConnectionId) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let state = &mut connection.state;
        if !state.pauses.are_over() {
            return;
        }
        if state.jobs.is_empty() {
            io.resume_reading(id);
        } else {
            state.pauses.turn = true;
            self.has_work = true;
            self.working.push(id);
        }
    }
}
