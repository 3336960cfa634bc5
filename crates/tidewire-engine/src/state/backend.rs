//! Questions to the backend that connections of a shard wait for.

use crate::backend::events::{ConnectAnswer, PublishAnswer, SubscribeAnswer};
use crate::backend::failure::Failure;
use crate::model::inbox::Inbox;
use std::sync::Arc;
use tidewire_net::ConnectionId;

/// The questions of all connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// The answers of the backend: at most one answer for each event in flight.
    pub(crate) inbox: Arc<Inbox<(ConnectionId, u64, BackendAnswer)>>,
    /// Of the last question.
    number: u64,
}

/// The answer of the backend, or the reason why there is none.
#[derive(Debug)]
pub(crate) enum BackendAnswer {
    Connect(Result<Box<ConnectAnswer>, Failure>),
    Subscribe(Result<SubscribeAnswer, Failure>),
    Publish(Result<PublishAnswer, Failure>),
}

impl BackendAnswer {
    /// Why it is no answer, if so.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Connect(answer) => answer.as_ref().err(),
            Self::Subscribe(answer) => answer.as_ref().err(),
            Self::Publish(answer) => answer.as_ref().err(),
        }
    }
}

/// The question that a connection waits for. It has one at a time, and is not read before it is answered.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) number: u64,
    pub(crate) answer: Option<BackendAnswer>,
}

impl Questions {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}
