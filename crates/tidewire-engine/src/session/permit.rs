//! Subscriptions and publications that the backend decides: the job waits for the answer, and the connection is not read
//! meanwhile, so that its messages keep their order.

use crate::backend::Backend;
use crate::backend::events::{PublishAnswer, SubscribeAnswer};
use crate::backend::failure::Failure;
use crate::config::backend::{BackendAway, BackendEvent};
use crate::model::content::Content;
use crate::session::Session;
use crate::state::backend::{BackendAnswer, Question};
use crate::state::jobs::{Job, PublishJob, SubscriptionJob};
use crate::trace::{OpenSpan, TraceContext};
use std::sync::Arc;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::format::Format;
use tidewire_wire::session::{Action, PublishRequest};

/// The decision of the backend about a publication, and the span of the publication.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) ruling: Ruling,
    pub(crate) span: Option<Box<OpenSpan>>,
}

/// The decision of the backend about a publication.
#[derive(Debug)]
pub(crate) enum Ruling {
    /// Publish it, with another payload if there is one.
    Publish(Option<Content>),
    Refuse(ErrorCode, String),
}

impl Session<'_> {
    /// Whether the backend has decided about the topics of a request; if not, the job has to wait, and asks again. Those
    /// that it refuses are failed in the answer.
    pub(crate) fn permit_subscription(&mut self, job: &mut SubscriptionJob) -> bool {
        if job.is_granted || job.action != Action::Subscribe || job.allowed.is_empty() {
            return true;
        }
        let Some(backend) = self.backend(BackendEvent::Subscribe) else {
            return true;
        };
        if let Some(number) = job.question {
            if self.state.awaits_backend() {
                return false;
            }
            if let Some(BackendAnswer::Subscribe(answer)) = self.state.take_answer(number) {
                permit(job, answer, backend.config.away);
            }
            return true;
        }
        let mut body = self.event_body(BackendEvent::Subscribe);
        let topics: Vec<&str> = job
            .allowed
            .iter()
            .map(|(topic, _)| topic.as_str())
            .collect();
        body.field("topics", &topics);
        let body = body.finish();
        let parent = self.connection_trace();
        let asked = self.ask(
            &backend,
            (BackendEvent::Subscribe, parent),
            body,
            |outcome| {
                let answer = outcome.and_then(|body| SubscribeAnswer::read(&body));
                BackendAnswer::Subscribe(answer)
            },
        );
        match asked {
            Ok(number) => {
                job.question = Some(number);
                false
            }
            Err(failure) => {
                permit(job, Err(failure), backend.config.away);
                true
            }
        }
    }

    /// `publish_request` from a client that the backend decides about.
    pub(crate) fn ask_publish(&mut self, format: Format, bytes: &[u8]) {
        let job = PublishJob {
            format,
            bytes: bytes.to_vec(),
            question: None,
            span: None,
        };
        self.state.jobs.push(Job::Publish(Box::new(job)));
    }

    /// Asks about a publication, or executes the decision of the backend; returns the rest of the job.
    pub(crate) fn step_publish(&mut self, mut job: Box<PublishJob>) -> Option<Box<PublishJob>> {
        let away = match self.backend(BackendEvent::Publish) {
            Some(backend) => backend.config.away,
            None => BackendAway::Allow,
        };
        let answer = match job.question {
            Some(_) if self.state.awaits_backend() => return Some(job),
            Some(number) => match self.state.take_answer(number) {
                Some(BackendAnswer::Publish(answer)) => answer,
                _ => Err(Failure::Stopped),
            },
            None => match self.start_publish(&mut job) {
                // What cannot be published anyway is refused without the backend.
                None => Ok(PublishAnswer::default()),
                Some(Ok(number)) => {
                    job.question = Some(number);
                    return Some(job);
                }
                Some(Err(failure)) => Err(failure),
            },
        };
        let decided = Decided {
            ruling: decide(answer, away),
            span: job.span.take(),
        };
        if self.state.producer.is_some() {
            self.publish_once(job.format, &job.bytes, Some(decided));
        } else {
            self.handle_publish(job.format, &job.bytes, None, Some(decided));
        }
        None
    }

    /// Asks the backend about a publication that is possible otherwise.
    fn start_publish(&mut self, job: &mut PublishJob) -> Option<Result<u64, Failure>> {
        let backend = self.backend(BackendEvent::Publish)?;
        let mut scratch = Vec::new();
        let (request, _) = PublishRequest::parse(job.format, &job.bytes, &mut scratch).ok()?;
        job.span = self.publish_span(job.format, &job.bytes, &request);
        let parent = job.span.as_ref().map(|span| span.context());
        self.topic_to_publish(&request.topic).ok()?;
        let mut body = self.event_body(BackendEvent::Publish);
        body.field("topic", &*request.topic)
            .field("type", &*request.t)
            .payload(&request.payload, request.binary);
        let body = body.finish();
        let asked = self.ask(&backend, (BackendEvent::Publish, parent), body, |outcome| {
            let answer = outcome.and_then(|body| PublishAnswer::read(&body));
            BackendAnswer::Publish(answer)
        });
        Some(asked)
    }

    /// Sends an event whose answer the connection waits for; the number of the question.
    fn ask(
        &mut self,
        backend: &Backend,
        (event, parent): (BackendEvent, Option<TraceContext>),
        body: Vec<u8>,
        read: impl FnOnce(Result<Vec<u8>, Failure>) -> BackendAnswer + Send + 'static,
    ) -> Result<u64, Failure> {
        let id = self.state.key.id;
        let number = self.core.questions.next_number();
        let span = self.core.backend_span(backend, event, parent);
        let inbox = Arc::clone(&self.core.questions.inbox);
        let done = move |outcome| {
            let answer = read(outcome);
            let failure = answer.failure().cloned();
            inbox.push((id, number, answer));
            failure
        };
        backend.submit(event, self.state.owner, body, Some(Box::new(done)), span)?;
        let question = Question {
            number,
            answer: None,
        };
        self.state.question = Some(Box::new(question));
        Ok(number)
    }
}

/// Fails the topics that the backend refuses.
fn permit(job: &mut SubscriptionJob, answer: Result<SubscribeAnswer, Failure>, away: BackendAway) {
    let answer = match answer {
        Ok(answer) => answer,
        Err(_) if away == BackendAway::Allow => return,
        Err(failure) => {
            for (topic, _) in std::mem::take(&mut job.allowed) {
                job.answer
                    .fail(topic, ErrorCode::BackendUnavailable, failure.words());
            }
            return;
        }
    };
    for (topic, kind) in std::mem::take(&mut job.allowed) {
        let refused = answer.refused_topics.get(&topic);
        let Some(refused) = refused.or(answer.refused.as_ref()) else {
            job.allowed.push((topic, kind));
            continue;
        };
        let words = refused.reason_or("the backend refuses this topic");
        let code = refused.code_or(ErrorCode::TopicForbidden.as_str());
        job.answer.fail(topic, ErrorCode::TopicForbidden, words);
        if let Some(failure) = job.answer.failures.last_mut() {
            failure.code = code;
        }
    }
}

fn decide(answer: Result<PublishAnswer, Failure>, away: BackendAway) -> Ruling {
    match answer {
        Ok(answer) => match answer.refused {
            Some(refused) => Ruling::Refuse(
                ErrorCode::TopicForbidden,
                refused.reason_or("the backend refuses this publication"),
            ),
            None => Ruling::Publish(answer.payload),
        },
        Err(_) if away == BackendAway::Allow => Ruling::Publish(None),
        Err(failure) => Ruling::Refuse(ErrorCode::BackendUnavailable, failure.words().to_owned()),
    }
}
