//! `subscription_update` from a client: one step per topic, then the answer.

use crate::limits::work::cost;
use crate::session::Session;
use crate::state::unfinished_jobs::{Announcement, Job, SubscriptionAnswer, SubscriptionJob};
use crate::topics::filter::Filter;
use crate::topics::name::Kind;
use std::sync::Arc;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{Action, Reply, Subscription};

impl Session<'_> {
    /// `subscription_update` from a client.
    pub(crate) fn handle_subscription(
        &mut self,
        request: Subscription,
        correlation_id: Option<String>,
    ) {
        let job = SubscriptionJob::new(request, correlation_id);
        let data_bytes_max = self.core.setup.config.topics.limits.presence_data_bytes_max;
        let data = job.wanted.presence.as_ref();
        if data.is_some_and(|data| data.len() > data_bytes_max) {
            let words = format!("presence is longer than {data_bytes_max} bytes");
            let error = refusal(words, job.correlation_id);
            return self.reply(&error);
        }
        self.state.work.jobs.push(Job::Subscription(Box::new(job)));
    }

    /// Handles one topic of a request, or answers the request; returns the rest of the job.
    pub(crate) fn step_subscription(
        &mut self,
        mut job: Box<SubscriptionJob>,
    ) -> Option<Box<SubscriptionJob>> {
        if !self.state.can_subscribe() {
            // The session is not open any more: there is nobody to answer.
            return None;
        }
        let Some(topic) = job.topics.next() else {
            if !job.is_permitted {
                if !self.permit_subscription(&mut job) {
                    return Some(job);
                }
                job.is_permitted = true;
                let renewed = std::mem::take(&mut job.renewed);
                job.allowed.extend(renewed);
            }
            if !self.prepare_subscription(&mut job) {
                return Some(job);
            }
            self.finish_subscription(*job);
            return None;
        };
        if job.action == Action::Unsubscribe {
            self.core.turn.meter.spend(cost::UNSUBSCRIBE);
            self.leave_groups(Some(&topic));
            self.leave(&topic);
            job.answer.success_topics.push(topic);
            return Some(job);
        }
        self.core
            .turn
            .meter
            .spend(cost::CHECK + self.state.client.access.cost());
        if let Some(kind) = self.check_subscription(&topic, &mut job) {
            if job.renews && self.state.was_granted(&topic) {
                // The application has decided about it, and nobody else is asked.
                job.renewed.push((topic, kind));
                return Some(job);
            }
            job.allowed.push((topic, kind));
            if let Err(words) = self.compile_filter(&mut job) {
                let error = refusal(words, job.correlation_id);
                self.reply(&error);
                return None;
            }
        }
        Some(job)
    }

    /// Enters the topics of a request that were found to be allowed, and answers it.
    fn finish_subscription(&mut self, mut job: SubscriptionJob) {
        if job.is_outdated && !job.is_granted {
            self.check_again(&mut job);
        }
        self.core
            .turn
            .meter
            .spend(job.allowed.len() as u64 * cost::SUBSCRIBE);
        for (topic, kind) in std::mem::take(&mut job.allowed) {
            self.subscribe_to(topic, kind, &mut job);
        }
        job.answer.presence = job.wanted.presence;
        if job.renews {
            // Its client knows the reasons that the answer has.
            job.answer.error = None;
        }
        self.answer_subscription(job.action, job.answer, job.correlation_id);
    }

    /// Checks the topics against the rights of now, which may be others than those of the request.
    fn check_again(&mut self, job: &mut SubscriptionJob) {
        let cost = cost::CHECK + self.state.client.access.cost();
        self.core.turn.meter.spend(job.allowed.len() as u64 * cost);
        job.by_token.clear();
        for (topic, _) in std::mem::take(&mut job.allowed) {
            if let Some(kind) = self.check_subscription(&topic, job) {
                job.allowed.push((topic, kind));
            }
        }
    }

    /// Compiles the filter of a request, once.
    fn compile_filter(&mut self, job: &mut SubscriptionJob) -> Result<(), String> {
        let Some(document) = job.filter.take() else {
            return Ok(());
        };
        let bytes = document.len() as u64;
        let filter = Filter::compile_text(&document).map_err(|error| {
            let cost = cost::FILTER_REFUSED + bytes * cost::FILTER_SOURCE_BYTE;
            self.core.turn.meter.spend(cost);
            error.to_string()
        })?;
        self.core.turn.meter.spend(filter.compile_cost());
        job.wanted.filter = Some(Arc::new(filter));
        Ok(())
    }

    fn subscribe_to(&mut self, topic: String, kind: Kind, job: &mut SubscriptionJob) {
        let name: Arc<str> = topic.as_str().into();
        if job.renews && self.state.was_granted(&name) {
            let since = job.positions.get(&topic).copied();
            return self.renew(&name, since, &mut job.answer);
        }
        let Some(group) = &job.group else {
            job.wanted.since = job.positions.get(&topic).copied();
            // The answer reports whether it was done.
            let is_in = self.enter_into(&name, &job.wanted, &mut job.answer).is_ok();
            if !is_in {
                return;
            }
            if let Some(ends_ms) = job.by_token.get(&*name) {
                self.note_token(&name, *ends_ms);
            }
            if job.is_granted {
                let topics = self.state.topics.get_or_insert_default();
                topics.granted.insert(name);
            }
            return;
        };
        if kind == Kind::Pattern {
            let words = "a queue group has one topic, not a pattern";
            return job
                .answer
                .fail(topic, ErrorCode::InvalidSubscription, words);
        }
        let how = (group.acknowledges, group.window);
        match self.enter_group(&name, &group.name, how) {
            Ok(()) => job.answer.success_topics.push(topic),
            Err((code, words)) => job.answer.fail(topic, code, words),
        }
    }

    /// Whether a client may have a topic or pattern; if not, the answer contains the reason.
    fn check_subscription(&mut self, topic: &str, job: &mut SubscriptionJob) -> Option<Kind> {
        let answer = &mut job.answer;
        let kind = match self.core.shared.hub.check_new_topic_or_pattern(topic) {
            Ok(kind) => kind,
            Err(error) => {
                answer.fail(topic.to_owned(), ErrorCode::InvalidSubscription, error);
                return None;
            }
        };
        let is_granted = job.renews && self.state.was_granted(topic);
        if is_granted
            || self.state.client.access.may_subscribe(topic)
            || job.by_token.contains_key(topic)
        {
            return Some(kind);
        }
        // A queue group withholds publications from others, which no token of one topic allows.
        let token = job.tokens.get(topic).filter(|_| job.group.is_none());
        let is_denied = self.state.client.access.denies_subscription(topic);
        match token.filter(|_| !is_denied) {
            Some(token) => match self.check_topic_token(topic, token) {
                Ok(ends_ms) => {
                    job.by_token.insert(topic.to_owned(), ends_ms);
                    return Some(kind);
                }
                Err((code, words)) => answer.fail(topic.to_owned(), code, words),
            },
            None => {
                self.core.counters.subscriptions_forbidden.add(1);
                let words = "this topic is not allowed";
                answer.fail(topic.to_owned(), ErrorCode::TopicForbidden, words);
            }
        }
        None
    }

    pub(crate) fn answer_subscription(
        &mut self,
        action: Action,
        answer: SubscriptionAnswer,
        correlation_id: Option<String>,
    ) {
        let id = correlation_id.clone();
        let reply = Reply::SubscriptionUpdate {
            action,
            success_topics: answer.success_topics,
            failed_topics: answer.failed_topics,
            failures: answer.failures,
            recovery: answer.recovery,
            correlation_id,
        };
        self.reply(&reply);
        if let Some((code, words)) = answer.error {
            self.reply(&Reply::error(code, words));
        }
        // The last one pushed is the first one done.
        if !answer.entered.is_empty() {
            let announcement = Announcement::new(answer.entered, answer.presence, id);
            self.state.work.jobs.push(Job::Announcement(announcement));
        }
        for catch_up in answer.catch_ups.into_iter().rev() {
            self.state.work.jobs.push(Job::CatchUp(Box::new(catch_up)));
        }
    }
}

fn refusal(words: String, correlation_id: Option<String>) -> Reply {
    Reply::Error {
        code: ErrorCode::InvalidSubscription,
        message: words.into(),
        retry_after_s: None,
        refused: None,
        correlation_id,
    }
}
