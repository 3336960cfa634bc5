//! Questions to the backend and to the application that connections of a shard wait for.

use crate::backend::events::{ConnectAnswer, PublishAnswer, SubscribeAnswer};
use crate::backend::failure::Failure;
use crate::model::adoption::AdoptionTicket;
use crate::model::content::Content;
use crate::model::inbox::Inbox;
use crate::state::adoption::ConnectDecision;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidewire_net::ConnectionId;
use tidewire_wire::session::CallError;

/// The questions of all connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// The answers: at most one for each question that a connection waits for.
    pub(crate) inbox: Arc<QuestionInbox>,
    /// Of the last question.
    number: u64,
}

/// The answers, each with its connection and the number of its question.
pub(crate) type QuestionInbox = Inbox<(ConnectionId, u64, BackendAnswer)>;

/// The answer of the backend, or the reason why there is none.
#[derive(Debug)]
pub(crate) enum BackendAnswer {
    Connect(Result<Box<ConnectAnswer>, Failure>),
    Subscribe(Result<SubscribeAnswer, Failure>),
    Publish(Result<PublishAnswer, Failure>),
    /// The decision of the application about a publication: it goes on, with another payload if there is one, or is refused.
    Application(Result<Option<Content>, CallError>),
    /// The decision of the application about a new connection; without one its token decides, or the backend.
    Decision(Option<ConnectDecision>, Option<AdoptionTicket>),
}

impl BackendAnswer {
    /// Why it is no answer, if so.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Connect(answer) => answer.as_ref().err(),
            Self::Subscribe(answer) => answer.as_ref().err(),
            Self::Publish(answer) => answer.as_ref().err(),
            Self::Application(_) | Self::Decision(..) => None,
        }
    }
}

/// The question that a connection waits for. It has one at a time, and is not read before it is answered.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) number: u64,
    /// When its time is over, if it is one to the application.
    pub(crate) due_ms: Option<u64>,
    pub(crate) answer: Option<BackendAnswer>,
    /// Of a question about a new connection to the application.
    pub(crate) _waiting: Option<Waiting>,
}

/// A flag that is true as long as a client waits for a decision: the end of this clears it.
#[derive(Debug)]
pub(crate) struct Waiting(pub(crate) Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Questions {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}
