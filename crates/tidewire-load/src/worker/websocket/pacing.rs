//! Messages at given times: which are due, when they left, and how the pace was kept.

use tidewire_net::{ConnectionId, Io};

use super::phase::PhaseRun;
use super::{Core, Worker};
use crate::verdict::evidence::PaceKept;
use crate::worker::order::Activity;
use crate::worker::pace::parts;
use crate::worker::websocket::session::{Connection, PhaseProgress, Task};

impl Worker {
    /// Releases paced messages that are due, some each turn, so that answers are read between them. Returns
    /// whether more are due.
    pub(super) fn release_due(&mut self, io: &mut Io, now_ns: u64) -> bool {
        let mut due = std::mem::take(&mut self.core.due);
        let is_behind = self.collect_due(now_ns, &mut due);
        for (id, intended_ns) in &due {
            match self.with(*id) {
                Some((session, core)) if session.connection.progress.task == Task::Active => {
                    core.release(&mut session.connection, *intended_ns, 1);
                }
                _ => {
                    if let Some(phase) = &mut self.core.phase {
                        phase.leave_unsent(*intended_ns, 1);
                    }
                }
            }
        }
        // One write for all that are due on a connection.
        for (id, _) in due.drain(..) {
            if let Some((session, core)) = self.with(id)
                && session.connection.out.place < session.connection.out.goal
            {
                core.pump(io, &mut session.connection);
            }
        }
        self.core.due = due;
        is_behind
    }

    /// The connections and the times of messages that are due; whether there are more.
    fn collect_due(&mut self, now_ns: u64, due: &mut Vec<(ConnectionId, u64)>) -> bool {
        let Some(phase) = &mut self.core.phase else {
            return false;
        };
        let Activity::Paced { pace, .. } = &phase.activity else {
            return false;
        };
        if phase.begun == 0 {
            return false;
        }
        for _ in 0..RELEASES_PER_TURN {
            let intended_ns = phase
                .start_ns
                .saturating_add(pace.intended_ns(phase.released));
            let is_past = phase
                .deadline_ns
                .is_some_and(|deadline_ns| intended_ns >= deadline_ns);
            if intended_ns > now_ns || is_past {
                return false;
            }
            let member = (phase.released % phase.begun as u64) as usize;
            due.push((phase.members[member], intended_ns));
            phase.result.late.record_ns(now_ns - intended_ns);
            phase.released += 1;
            phase.released_ns = now_ns;
        }
        true
    }
}

impl Core {
    /// Notes when paced messages have left, which is later than intended when the generator or the
    /// socket is behind.
    pub(super) fn stamp_written(&self, connection: &mut Connection) {
        let ring = self.phase.as_ref().and_then(|phase| phase.ring());
        let Some(ring) = ring else { return };
        let written = ring.frames_before(connection.out.place);
        let now_ns = self.now_ns();
        let PhaseProgress {
            batches, unwritten, ..
        } = &mut connection.progress;
        // A server that answers messages that were never sent has removed some of the batches.
        *unwritten = (*unwritten).min(batches.len());
        let first = batches.len() - *unwritten;
        for batch in batches.range_mut(first..) {
            if batch.end_frame > written {
                break;
            }
            batch.sent_ns = Some(now_ns);
            *unwritten -= 1;
        }
    }
}

impl PhaseRun {
    /// Messages were due on a connection that has ended: they count among the latencies with the age that they have when
    /// the sending ends, as in a load.
    fn leave_unsent(&mut self, intended_ns: u64, count: u64) {
        if self.expects_replies
            && let Some(end_ns) = self.deadline_ns
        {
            let age_ns = end_ns.saturating_sub(intended_ns);
            self.result.latency.record_many_ns(age_ns, count);
        }
    }

    /// Every connection has ended before the sending should: what would have been due on them counts, too.
    pub(super) fn leave_rest_unsent(&mut self) {
        let (Activity::Paced { pace, .. }, Some(end_ns)) =
            (self.activity.clone(), self.deadline_ns)
        else {
            return;
        };
        let due = pace.due_in(end_ns.saturating_sub(self.start_ns));
        for (part, count) in parts(due.saturating_sub(self.released)) {
            let intended_ns = pace.intended_ns(self.released + part);
            self.leave_unsent(self.start_ns.saturating_add(intended_ns), count);
        }
    }

    /// The sending has ended: as planned, or before.
    pub(super) fn end_sending(&mut self, now_ns: u64) {
        let planned_ns = self.deadline_ns.unwrap_or(now_ns);
        self.result.stopped_ns = Some(planned_ns.min(now_ns));
    }

    /// Notes how a given rate was kept, for its planned time or until the sending was ended before.
    pub(super) fn end_pace(&mut self) {
        let end_ns = self.result.stopped_ns.unwrap_or(self.start_ns);
        if let Some(fan) = &self.fan {
            self.result.pace = fan.pace_kept(end_ns, self.offered_ns);
            return;
        }
        let Activity::Paced { pace, .. } = &self.activity else {
            return;
        };
        let window_ns = end_ns.saturating_sub(self.start_ns);
        let since_start_s = |at_ns: u64| at_ns.saturating_sub(self.start_ns) as f64 / 1e9;
        self.result.pace = Some(PaceKept {
            planned_per_s: pace.per_s(),
            poisson: pace.is_poisson(),
            planned: pace.due_in(window_ns),
            released: self.released,
            offered: self.result.offered,
            window_s: window_ns as f64 / 1e9,
            released_s: since_start_s(self.released_ns),
            offered_s: since_start_s(self.offered_ns),
        });
    }
}

/// Paced messages that leave before what has arrived is read.
const RELEASES_PER_TURN: usize = 256;
