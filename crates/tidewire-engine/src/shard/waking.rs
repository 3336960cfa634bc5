//! The next turn of a shard that has nothing to read.

use crate::session::application::Application;
use crate::shard::EngineShard;
use std::time::{Duration, Instant};

impl<A: Application> EngineShard<A> {
    /// When the shard has to have a turn though no socket has anything.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let has_answers =
            self.core.operations.inbox.is_filled() || self.core.questions.inbox.is_filled();
        let is_due = self.core.shared.unfinished.is_due(self.core.index as usize);
        let has_more =
            self.has_deliveries() || self.has_work || has_answers || is_due || self.is_stopping;
        if has_more
            || !self.core.topics.drained.is_empty()
            || !self.core.ended_sessions.is_empty()
            || !self.core.rights_checks.is_empty()
            || !self.changes.is_empty()
        {
            return self.turned;
        }
        // Another shard's backlog does not wake this one.
        let waits = !self.backlogged.is_empty()
            || !self.working.is_empty()
            || !self.core.departures.is_empty()
            || !self.core.topics.skipped.is_empty();
        let retry = self.turned.filter(|_| waits);
        let retry = retry.map(|turned| turned + BACKLOG_RETRY);
        let has_left_out = self.core.shared.lines.has_left_out();
        let summary = self.turned.filter(|_| has_left_out);
        let wakes = [
            self.next_pending(self.turned),
            self.core.calls.wake_at(),
            self.next_drain_close(),
            retry,
            summary.map(|turned| turned + SUMMARY_RETRY),
        ];
        wakes.into_iter().flatten().min()
    }
}

/// How often a shard asks whether the others have delivered what its clients published, and whether
/// the next second of an owner has begun.
const BACKLOG_RETRY: Duration = Duration::from_millis(2);

/// How often a shard asks whether it is time to report log lines that were left out.
const SUMMARY_RETRY: Duration = Duration::from_secs(1);
