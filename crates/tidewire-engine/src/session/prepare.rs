//! Topics that a job needs and that the broker makes ready: the job waits for it, and goes on when
//! the broker has answered.

use crate::session::Session;
use crate::state::broker_operations::Operation;
use crate::state::unfinished_jobs::SubscriptionJob;
use crate::topics::broker::{BrokerAnswer, Prepare, Refusal};
use crate::topics::error::PublishError;
use crate::topics::name::Kind;
use std::sync::Arc;

impl Session<'_> {
    /// Whether the topics of a request are ready to be entered, all at this moment. If not, the job
    /// has to wait, and asks again. Those that the broker refuses are failed in the answer.
    pub(crate) fn prepare_subscription(&mut self, job: &mut SubscriptionJob) -> bool {
        if !self.core.shared.hub.has_cluster() {
            return true;
        }
        self.fail_refused(job);
        let mut wanted = Prepare {
            since: None,
            newest: job.wanted.replay,
        };
        let at_most = self.subscriptions_max();
        for (topic, kind) in job.allowed.iter().take(at_most) {
            wanted.since = job.positions.get(topic).copied();
            let name: Arc<str> = topic.as_str().into();
            self.ask_for(&name, wanted);
            if let Some(group) = &job.group
                && *kind == Kind::Exact
                && self.state.client.access.may_join_group(&name)
            {
                self.ask_for_group(&name, &group.name.as_str().into());
            }
        }
        if self.state.awaits_broker() {
            return false;
        }
        self.fail_refused(job);
        true
    }

    /// Removes the topics that the broker has refused from a request.
    fn fail_refused(&mut self, job: &mut SubscriptionJob) {
        for (topic, refusal) in self.take_refused() {
            let before = job.allowed.len();
            job.allowed.retain(|(allowed, _)| **allowed != *topic);
            // Another request that waited for it has gone meanwhile.
            if job.allowed.len() < before {
                let error = PublishError::from(refusal);
                job.answer.fail(topic.to_string(), error.code(), &error);
            }
        }
    }

    /// Whether a topic can be read now; if not, the job has to wait, or ends with the error.
    pub(crate) fn is_ready(&mut self, topic: &Arc<str>, wanted: Prepare) -> Result<bool, Refusal> {
        self.check_refused(topic)?;
        self.ask_for(topic, wanted);
        if self.state.awaits_broker() {
            return Ok(false);
        }
        self.check_refused(topic).map(|()| true)
    }

    fn check_refused(&mut self, topic: &str) -> Result<(), Refusal> {
        let mut refused = self.take_refused().into_iter();
        match refused.find(|(refused, _)| **refused == *topic) {
            Some((_, refusal)) => Err(refusal),
            None => Ok(()),
        }
    }

    /// Asks the broker to make a topic ready. The answer is in the connection's operations.
    pub(crate) fn ask_for(&mut self, topic: &Arc<str>, wanted: Prepare) {
        let operations = &mut self.core.operations;
        let hub = &self.core.shared.hub;
        let answer = hub.prepare(topic, wanted, &mut || operations.ticket());
        self.note_preparation(topic, answer);
    }

    /// Asks the broker to add this server to a queue group. The answer is in the connection's
    /// operations.
    fn ask_for_group(&mut self, topic: &Arc<str>, group: &Arc<str>) {
        let operations = &mut self.core.operations;
        let hub = &self.core.shared.hub;
        let answer = hub.prepare_group(topic, group, &mut || operations.ticket());
        self.note_preparation(topic, answer);
    }

    fn note_preparation(&mut self, topic: &Arc<str>, answer: BrokerAnswer<Result<(), Refusal>>) {
        match answer {
            BrokerAnswer::Now(Ok(())) => {}
            BrokerAnswer::Now(Err(refusal)) => {
                let own = self.state.work.operations.get_or_insert_default();
                own.refused.push((Arc::clone(topic), refusal));
            }
            BrokerAnswer::Later => {
                let own = self.state.work.operations.get_or_insert_default();
                own.preparing += 1;
                let operation = Operation::Preparation(self.state.key.id, Arc::clone(topic));
                self.core.operations.open(operation);
            }
        }
    }

    pub(crate) fn take_refused(&mut self) -> Vec<(Arc<str>, Refusal)> {
        let operations = self.state.work.operations.as_deref_mut();
        operations.map_or_else(Vec::new, |operations| {
            std::mem::take(&mut operations.refused)
        })
    }
}
