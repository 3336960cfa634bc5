//! Topics that a job needs and that the broker makes ready: the job waits for it, and goes on when
//! the broker has answered.

use crate::session::Session;
use crate::state::jobs::SubscriptionJob;
use crate::state::operations::Operation;
use crate::topics::broker::{Answer, Prepare, Refusal};
use crate::topics::error::PublishError;
use std::sync::Arc;

impl Session<'_> {
    /// Whether the topics of a request are ready to be entered. If not, the job has to wait. Those
    /// that the broker refuses are failed in the answer.
    pub(crate) fn prepare_subscription(&mut self, job: &mut SubscriptionJob) -> bool {
        if !self.core.shared.hub.has_cluster() {
            return true;
        }
        if !std::mem::replace(&mut job.is_prepared, true) {
            let mut wanted = Prepare {
                since: None,
                newest: job.wanted.replay,
            };
            let at_most = self.core.shared.hub.limits.subscriptions_per_connection_max;
            for (topic, _) in job.allowed.iter().take(at_most) {
                wanted.since = job.positions.get(topic).copied();
                self.ask_for(&topic.as_str().into(), wanted);
            }
        }
        if self.is_waiting_for_topics() {
            return false;
        }
        for (topic, refusal) in self.take_refused() {
            job.allowed.retain(|(allowed, _)| **allowed != *topic);
            let error = PublishError::from(refusal);
            job.answer.fail(topic.to_string(), error.code(), &error);
        }
        true
    }

    /// Whether a topic can be read now; if not, the job has to wait, or ends with the error.
    pub(crate) fn is_ready(&mut self, topic: &Arc<str>, wanted: Prepare) -> Result<bool, Refusal> {
        if let Some((_, refusal)) = self.take_refused().pop() {
            return Err(refusal);
        }
        self.ask_for(topic, wanted);
        if self.is_waiting_for_topics() {
            return Ok(false);
        }
        match self.take_refused().pop() {
            Some((_, refusal)) => Err(refusal),
            None => Ok(true),
        }
    }

    /// Asks the broker to make a topic ready. The answer is in the connection's operations.
    fn ask_for(&mut self, topic: &Arc<str>, wanted: Prepare) {
        let operations = &mut self.core.operations;
        let hub = &self.core.shared.hub;
        match hub.prepare(topic, wanted, &mut || operations.ticket()) {
            Answer::Now(Ok(())) => {}
            Answer::Now(Err(refusal)) => {
                let own = self.state.operations.get_or_insert_default();
                own.refused.push((Arc::clone(topic), refusal));
            }
            Answer::Later => {
                let own = self.state.operations.get_or_insert_default();
                own.preparing += 1;
                let operation = Operation::Preparation(self.state.key.id, Arc::clone(topic));
                self.core.operations.open(operation);
            }
        }
    }

    fn is_waiting_for_topics(&mut self) -> bool {
        let operations = self.state.operations.as_ref();
        let waits = operations.is_some_and(|operations| operations.preparing > 0);
        self.core.awaits_broker |= waits;
        waits
    }

    fn take_refused(&mut self) -> Vec<(Arc<str>, Refusal)> {
        let operations = self.state.operations.as_deref_mut();
        operations.map_or_else(Vec::new, |operations| {
            std::mem::take(&mut operations.refused)
        })
    }
}
