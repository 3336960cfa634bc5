//! The backend on a shard: the question that an opening connection waits for, and the answers since the last
//! turn.

use crate::backend::BackendOutcome;
use crate::backend::events::{Body, ConnectAnswer};
use crate::config::backend::{BackendAway, BackendEvent};
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::adoption::ConnectDecision;
use crate::state::open_calls::QUESTION;
use crate::state::pending_questions::{BackendAnswer, Question};
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::handshake::server::Request;

impl<A: Application> EngineShard<A> {
    /// Asks the backend whether a connection is accepted. It is not read meanwhile, and its request stays unread: the
    /// answer is there when it is read again.
    pub(crate) fn ask_connect(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        request: &Request<'_>,
        user: Option<&str>,
    ) {
        let Some(backend) = self.core.shared.backend.clone() else {
            return;
        };
        let event_id = self.core.new_id(io.now().unix_ms);
        let number = self.core.questions.next_number();
        let inbox = std::sync::Arc::clone(&self.core.questions.inbox);
        let Some(connection) = self.connection(id) else {
            return;
        };
        let address = connection.state.peer_address(io);
        let address = address.map(|address| address.ip());
        let key = connection.state.key;
        let parent = connection.state.trace.as_ref();
        let parent = parent.map(|trace| trace.context);
        let span = self
            .core
            .backend_span(&backend, BackendEvent::Connect, parent);
        let owner = self.core.shared.charges.owners.of(user, address);
        let mut body = Body::new(BackendEvent::Connect, event_id, key, user);
        body.field("address", &address.map(|address| address.to_string()));
        describe(request, &mut body);
        let done = move |outcome: BackendOutcome| {
            let answer = outcome.and_then(|body| ConnectAnswer::read(&body).map(Box::new));
            let failure = answer.as_ref().err().cloned();
            inbox.push((id, number, BackendAnswer::Connect(answer)));
            failure
        };
        let event = BackendEvent::Connect;
        let submitted = backend.submit(event, owner, body.finish(), Some(Box::new(done)), span);
        let refused = submitted.err();
        let answer = refused.map(|failure| BackendAnswer::Connect(Err(failure)));
        let is_answered = answer.is_some();
        if let Some(connection) = self.connection(id) {
            let question = Question {
                number,
                due_ms: None,
                answer,
                _waiting: None,
            };
            connection.state.work.question = Some(Box::new(question));
        }
        io.pause_reading(id);
        if is_answered {
            io.resume_reading(id);
        }
    }

    /// Hands the answers of the backend and of the application to the connections that wait for them, which go on.
    pub(crate) fn settle_backend(&mut self, io: &mut Io) {
        for (id, number, answer) in self.core.questions.inbox.take(BACKEND_ANSWERS_PER_TURN) {
            let Some(connection) = self.connection(id) else {
                self.note_late(&answer);
                continue;
            };
            let question = connection.state.work.question.as_deref_mut();
            // The first answer counts: a decision may come with the end of its time.
            let question =
                question.filter(|question| question.number == number && question.answer.is_none());
            let Some(question) = question else {
                self.note_late(&answer);
                continue;
            };
            let is_connect = matches!(
                answer,
                BackendAnswer::Connect(_) | BackendAnswer::Decision(..)
            );
            question.answer = Some(answer);
            if let Some(due_ms) = question.due_ms.take() {
                let deadlines = &mut self.core.calls.deadlines;
                deadlines.remove(&(due_ms, number | QUESTION));
            }
            if is_connect {
                io.resume_reading(id);
            } else {
                self.end_broker_pause(io, id);
            }
        }
    }

    /// Counts a decision of the application that nobody waits for any more.
    fn note_late(&self, answer: &BackendAnswer) {
        if matches!(
            answer,
            BackendAnswer::Application(_) | BackendAnswer::Decision(..)
        ) {
            self.core.counters.call_answers_late.add(1);
        }
    }
}

/// The effect of the backend's answer on a new connection.
pub(crate) enum Admission {
    Admit(Box<ConnectAnswer>),
    /// With this reason.
    Refuse(String),
    /// There is no answer, and nobody is admitted without one.
    Away(&'static str),
}

impl Admission {
    /// The effect of a decision of the application.
    pub(crate) fn by_application(ConnectDecision(answer): ConnectDecision) -> Self {
        match answer {
            Some(answer) => Self::answered(answer, "the application refuses the connection"),
            None => Self::Away("the application cannot decide now who may connect"),
        }
    }

    /// The effect of an answer; `words` refuse where it has none of its own.
    fn answered(answer: Box<ConnectAnswer>, words: &str) -> Self {
        match &answer.refused {
            Some(refused) => Self::Refuse(refused.reason_or(words)),
            None => Self::Admit(answer),
        }
    }

    pub(crate) fn of(answer: BackendAnswer, away: BackendAway) -> Self {
        match answer {
            BackendAnswer::Connect(Ok(answer)) => {
                Self::answered(answer, "the backend refuses the connection")
            }
            BackendAnswer::Connect(Err(_)) if away == BackendAway::Allow => {
                Self::Admit(Box::default())
            }
            BackendAnswer::Connect(Err(failure)) => Self::Away(failure.words()),
            _ => Self::Away("the backend failed"),
        }
    }
}

/// The facts of the request that a backend needs to identify the client.
fn describe(request: &Request<'_>, body: &mut Body) {
    let headers = HEADERS
        .iter()
        .filter_map(|name| Some((*name, request.header(name)?)));
    let headers: serde_json::Map<String, serde_json::Value> = headers
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    body.field("path", request.path())
        .field("query", request.query())
        .field("headers", &headers);
}

/// The headers of an upgrade request that a backend gets.
const HEADERS: [&str; 8] = [
    "authorization",
    "cookie",
    "host",
    "origin",
    "user-agent",
    "accept-language",
    "x-request-id",
    "traceparent",
];

/// Answers handled in one turn before the connections are served again.
const BACKEND_ANSWERS_PER_TURN: usize = 1024;
