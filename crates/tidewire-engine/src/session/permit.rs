//! Subscriptions that the backend decides, and publications that it or the application decides: the job waits for the
//! answer, and the connection is not read meanwhile, so that its messages keep their order.

use crate::backend::Backend;
use crate::backend::events::{PublishAnswer, SubscribeAnswer};
use crate::backend::failure::Failure;
use crate::config::backend::{BackendAway, BackendEvent};
use crate::limits::work::cost;
use crate::model::call_types::{TIMEOUT_MAX, call_error};
use crate::model::content::Content;
use crate::session::Session;
use crate::session::application::Application;
use crate::session::context::Context;
use crate::session::inbound::Inbound;
use crate::state::open_calls::{
    AnswerWay, NO_ANSWER, OpenCall, PendingAnswer, QUESTION, Responder,
};
use crate::state::pending_questions::{BackendAnswer, Question, Waiting};
use crate::state::unfinished_jobs::{Asked, Job, PublishJob, SubscriptionJob};
use crate::topics::decided::PublicationRequest;
use crate::topics::publication::check_content;
use crate::trace::{OpenSpan, TraceContext};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidewire_net::ConnectionId;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::format::Format;
use tidewire_wire::session::{Action, PublishRequest};

/// The decision about a publication, and the span of the publication.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) ruling: Ruling,
    pub(crate) span: Option<Box<OpenSpan>>,
}

/// The decision of the backend or of the application about a publication.
#[derive(Debug)]
pub(crate) enum Ruling {
    /// Publish it, with another payload if there is one.
    Publish(Option<Content>),
    Refuse(ErrorCode, String),
    /// With a code of the backend's or the application's own.
    RefuseAs(String, String),
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
            let answer = match self.state.take_answer(number) {
                Some(BackendAnswer::Subscribe(answer)) => answer,
                _ => Err(Failure::Stopped),
            };
            permit(job, answer, backend.config.away);
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

    /// `publish_request` from a client that the backend or the application decides about.
    pub(crate) fn ask_publish(&mut self, format: Format, bytes: &[u8]) {
        let job = PublishJob {
            format,
            bytes: bytes.to_vec(),
            asked: Asked::Nobody,
            payload: None,
            span: None,
        };
        self.state.work.jobs.push(Job::Publish(Box::new(job)));
    }

    /// Asks the backend about a publication, if it decides about any.
    fn ask_backend(&mut self, job: &mut PublishJob, request: &PublishRequest<'_>) -> Step {
        let Some(backend) = self.backend(BackendEvent::Publish) else {
            return Step::Next(None);
        };
        let parent = job.span.as_ref().map(|span| span.context());
        let mut body = self.event_body(BackendEvent::Publish);
        body.field("topic", &*request.topic)
            .field("type", &*request.t)
            .payload(&request.payload, request.binary);
        let body = body.finish();
        let asked = self.ask(&backend, (BackendEvent::Publish, parent), body, |outcome| {
            let answer = outcome.and_then(|body| PublishAnswer::read(&body));
            BackendAnswer::Publish(answer)
        });
        match asked {
            Ok(number) => {
                job.asked = Asked::Backend(number);
                Step::Wait
            }
            Err(failure) => decide(Err(failure), backend.config.away),
        }
    }

    /// The decision of the backend, which has answered.
    fn hear_backend(&mut self, number: u64) -> Step {
        let away = match self.backend(BackendEvent::Publish) {
            Some(backend) => backend.config.away,
            None => BackendAway::Allow,
        };
        match self.state.take_answer(number) {
            Some(BackendAnswer::Publish(answer)) => decide(answer, away),
            _ => decide(Err(Failure::Stopped), away),
        }
    }

    /// Checks the type, the size and the topic of a publication. What fails is refused when it is published, without a
    /// question to anybody.
    fn may_publish(&mut self, request: &PublishRequest<'_>) -> bool {
        let bytes_max = self.core.shared.hub.limits.get().payload_bytes_max;
        check_content(&request.t, request.payload.len(), bytes_max).is_ok()
            && self.topic_to_publish(&request.topic).is_ok()
    }

    /// The decision of the application, which has answered.
    fn hear_application(&mut self, number: u64) -> Ruling {
        match self.state.take_answer(number) {
            Some(BackendAnswer::Application(Ok(payload))) => Ruling::Publish(payload),
            Some(BackendAnswer::Application(Err(error))) => {
                Ruling::RefuseAs(error.code, error.message)
            }
            _ => Ruling::Refuse(ErrorCode::HandlerError, NO_ANSWER.into()),
        }
    }

    /// The application has not decided in time: the publication is refused.
    pub(crate) fn time_out_decision(&mut self, number: u64) {
        let words = "the application did not answer in time";
        let error = call_error(ErrorCode::Timeout, words);
        let id = self.state.key.id;
        let answer = BackendAnswer::Application(Err(error));
        self.core.questions.inbox.push((id, number, answer));
    }

    /// Notes a question to the application that the connection waits for: its number, and its time in milliseconds.
    pub(crate) fn start_question(
        &mut self,
        waiting: fn(ConnectionId, u64) -> OpenCall,
        guard: Option<Waiting>,
    ) -> (u64, u64) {
        let limits = &self.core.setup.config.limits;
        let timeout_ms = limits.call_timeout_ms.min(TIMEOUT_MAX.as_millis() as u64);
        let due_ms = self.now().monotonic_ms.saturating_add(timeout_ms);
        let number = self.core.questions.next_number();
        let waiting = waiting(self.state.key.id, number);
        let calls = &mut self.core.calls;
        calls.deadlines.insert((due_ms, number | QUESTION), waiting);
        let question = Question {
            number,
            due_ms: Some(due_ms),
            answer: None,
            _waiting: guard,
        };
        self.state.work.question = Some(Box::new(question));
        (number, timeout_ms)
    }

    /// Forgets the question of a connection that is gone.
    pub(crate) fn end_question(&mut self) {
        let Some(question) = self.state.work.question.take() else {
            return;
        };
        if let Some(due_ms) = question.due_ms {
            let deadlines = &mut self.core.calls.deadlines;
            deadlines.remove(&(due_ms, question.number | QUESTION));
        }
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
        backend.submit(
            event,
            self.state.limits.owner,
            body,
            Some(Box::new(done)),
            span,
        )?;
        let question = Question {
            number,
            due_ms: None,
            answer: None,
            _waiting: None,
        };
        self.state.work.question = Some(Box::new(question));
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

fn decide(answer: Result<PublishAnswer, Failure>, away: BackendAway) -> Step {
    match answer {
        Ok(answer) => match answer.refused {
            Some(refused) => Step::Rule(Ruling::RefuseAs(
                refused.code_or(ErrorCode::TopicForbidden.as_str()),
                refused.reason_or("the backend refuses this publication"),
            )),
            None => Step::Next(answer.payload),
        },
        Err(_) if away == BackendAway::Allow => Step::Next(None),
        Err(failure) => Step::Rule(Ruling::Refuse(
            ErrorCode::BackendUnavailable,
            failure.words().to_owned(),
        )),
    }
}

/// The outcome of a step of the decision about a publication.
enum Step {
    /// Somebody was asked, and answers later.
    Wait,
    /// Nobody has refused it so far; another payload, if there is one.
    Next(Option<Content>),
    Rule(Ruling),
}

impl<A: Application> Inbound<'_, A> {
    /// Asks about a publication, or executes the decision; returns the rest of the job.
    pub(crate) fn step_publish(&mut self, mut job: Box<PublishJob>) -> Option<Box<PublishJob>> {
        if self.session.state.awaits_backend() {
            return Some(job);
        }
        let Some(ruling) = self.rule(&mut job) else {
            return Some(job);
        };
        let decided = Decided {
            ruling,
            span: job.span.take(),
        };
        let session = &mut self.session;
        if session.state.producer.is_some() {
            session.publish_once(job.format, &job.bytes, Some(decided));
        } else {
            session.handle_publish(job.format, &job.bytes, None, Some(decided));
        }
        None
    }

    /// The decision of the backend and then of the application; `None` while one of them is asked.
    fn rule(&mut self, job: &mut PublishJob) -> Option<Ruling> {
        let step = match job.asked {
            Asked::Nobody if self.session.is_repeated(job.format, &job.bytes) => Step::Next(None),
            Asked::Application(number) => match self.session.hear_application(number) {
                Ruling::Publish(payload) => Step::Next(payload.or(job.payload.take())),
                refused => Step::Rule(refused),
            },
            Asked::Nobody | Asked::Backend(_) => {
                let bytes = std::mem::take(&mut job.bytes);
                let step = self.ask(job, &bytes);
                job.bytes = bytes;
                step
            }
        };
        match step {
            Step::Wait => None,
            Step::Rule(ruling) => Some(ruling),
            Step::Next(payload) => Some(Ruling::Publish(payload)),
        }
    }

    /// Asks the backend, or hears it, and then asks the application.
    fn ask(&mut self, job: &mut PublishJob, bytes: &[u8]) -> Step {
        let session = &mut self.session;
        let mut scratch = Vec::new();
        let Ok((request, _)) = PublishRequest::parse(job.format, bytes, &mut scratch) else {
            return Step::Next(None);
        };
        let step = match job.asked {
            Asked::Backend(number) => session.hear_backend(number),
            _ => {
                if session.core.shared.traces.is_some() {
                    job.span = session.publish_span(job.format, bytes, &request);
                }
                match session.may_publish(&request) {
                    true => session.ask_backend(job, &request),
                    false => return Step::Next(None),
                }
            }
        };
        match step {
            Step::Next(payload) => {
                job.payload = payload;
                self.ask_application(job, &request)
            }
            step => step,
        }
    }

    /// Asks the application about a publication, if it decides about its topic.
    fn ask_application(&mut self, job: &mut PublishJob, request: &PublishRequest<'_>) -> Step {
        let Some(place) = self.app.place_of(&request.topic) else {
            return Step::Next(job.payload.take());
        };
        let session = &mut self.session;
        // The rights may have changed while the backend was asked.
        if !session.may_publish(request) {
            return Step::Next(None);
        }
        if !session.state.is_open() {
            let words = "the connection ends".to_owned();
            return Step::Rule(Ruling::Refuse(ErrorCode::ServerError, words));
        }
        let (payload, is_binary) = match &job.payload {
            Some(content) => (content.as_json().as_bytes(), content.is_binary()),
            None => (&*request.payload, request.binary),
        };
        let Ok(payload) = std::str::from_utf8(payload) else {
            let words = "the payload is not UTF-8".to_owned();
            return Step::Rule(Ruling::Refuse(ErrorCode::InvalidMessage, words));
        };
        session.core.turn.meter.spend(cost::ANSWER);
        let (number, timeout_ms) = session.start_question(OpenCall::Publication, None);
        let responder = Responder(Arc::new(PendingAnswer {
            connection: session.state.key,
            way: AnswerWay::Publication {
                inbox: Arc::clone(&session.core.questions.inbox),
                number,
            },
            is_answered: AtomicBool::new(false),
        }));
        job.asked = Asked::Application(number);
        let publication = PublicationRequest {
            topic: &request.topic,
            place,
            t: &request.t,
            payload,
            is_binary,
            timeout_ms,
        };
        let mut context = Context::new(session);
        self.app
            .on_publication(&mut context, publication, responder);
        Step::Wait
    }
}
