//! Requests that wait for an answer, by the correlation id that they carry.

use crate::command::Reply;
use crate::error::Error;
use crate::request::{
    HistoryPage, PresenceAnswer, Publication, Published, SubscribeOptions, Subscribed,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_wire::session::{CallAnswer, HistoryQuery};

#[derive(Debug, Default)]
pub(crate) struct Pending {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
}

/// A request with the data to make it again on another connection.
#[derive(Debug)]
pub(crate) enum Waiting {
    Subscribe {
        topics: Vec<String>,
        options: Arc<SubscribeOptions>,
        /// `None` if the client subscribes again by itself.
        reply: Option<Reply<Subscribed>>,
    },
    Unsubscribe {
        topics: Vec<String>,
        /// `None` if the client unsubscribes by itself, to subscribe again at once.
        reply: Option<Reply<Subscribed>>,
    },
    /// Subscriptions that the server made on an earlier connection.
    Renew {
        topics: Vec<String>,
    },
    Publish {
        publication: Publication,
        reply: Option<Reply<Published>>,
    },
    Presence {
        topics: Vec<String>,
        counts_only: bool,
        limit: Option<u64>,
        reply: Reply<PresenceAnswer>,
    },
    History {
        query: HistoryQuery,
        reply: Reply<HistoryPage>,
    },
    Call {
        reply: Reply<CallAnswer>,
    },
}

/// The kind of a request, and so of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Subscription,
    Publish,
    Presence,
    History,
    Call,
}

impl Pending {
    /// Adds a request; its number.
    pub(crate) fn insert(&mut self, waiting: Waiting) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, waiting);
        self.next
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Waiting> {
        self.waiting.get(&number)
    }

    /// Whether the application has asked for a change of the topic's subscription that is not answered yet.
    pub(crate) fn changes(&self, topic: &str) -> bool {
        self.waiting.values().any(|waiting| match waiting {
            Waiting::Subscribe {
                topics,
                reply: Some(_),
                ..
            }
            | Waiting::Unsubscribe {
                topics,
                reply: Some(_),
            } => topics.iter().any(|changed| changed == topic),
            _ => false,
        })
    }

    /// Removes and returns the request that an answer of this kind belongs to. A request of another kind keeps
    /// waiting: its answer has not arrived yet.
    pub(crate) fn answer(&mut self, correlation_id: &str, kind: RequestKind) -> Option<Waiting> {
        let number = number(correlation_id)?;
        let waiting = self.waiting.get(&number)?;
        (waiting.kind() == kind).then(|| self.waiting.remove(&number))?
    }

    /// Removes and returns the refused request if it is a call, which is never made again.
    pub(crate) fn refuse_call(&mut self, correlation_id: &str) -> Option<Waiting> {
        let number = number(correlation_id)?;
        match self.waiting.get(&number) {
            Some(Waiting::Call { .. }) => self.waiting.remove(&number),
            _ => None,
        }
    }

    /// Removes and returns the refused request, whatever its kind.
    pub(crate) fn refuse(&mut self, correlation_id: &str) -> Option<Waiting> {
        self.waiting.remove(&number(correlation_id)?)
    }

    /// Removes and returns a request that cannot be sent.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Waiting> {
        self.waiting.remove(&number)
    }

    /// The connection is gone: what cannot be made again fails, and what the client asked for by itself will be asked
    /// anew.
    pub(crate) fn handle_disconnect(&mut self) {
        let is_gone = |waiting: &Waiting| {
            matches!(
                waiting,
                Waiting::Call { .. }
                    | Waiting::Renew { .. }
                    | Waiting::Subscribe { reply: None, .. }
                    | Waiting::Unsubscribe { reply: None, .. }
            )
        };
        for number in self.numbers() {
            if self.waiting.get(&number).is_some_and(is_gone)
                && let Some(waiting) = self.waiting.remove(&number)
            {
                waiting.fail(&Error::ConnectionLost);
            }
        }
    }

    /// The requests to make again, in their order.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.waiting.keys().copied().collect()
    }

    /// Whether somebody waits for an answer.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.values().any(Waiting::is_awaited)
    }

    /// Forgets requests for whose answer nobody waits any more.
    pub(crate) fn purge(&mut self) {
        self.waiting.retain(|_, waiting| !waiting.is_abandoned());
    }

    pub(crate) fn fail_all(&mut self, error: &Error) {
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            waiting.fail(error);
        }
    }
}

impl Waiting {
    fn kind(&self) -> RequestKind {
        match self {
            Self::Subscribe { .. } | Self::Unsubscribe { .. } | Self::Renew { .. } => {
                RequestKind::Subscription
            }
            Self::Publish { .. } => RequestKind::Publish,
            Self::Presence { .. } => RequestKind::Presence,
            Self::History { .. } => RequestKind::History,
            Self::Call { .. } => RequestKind::Call,
        }
    }

    pub(crate) fn fail(self, error: &Error) {
        let error = error.clone();
        match self {
            Self::Renew { .. } => {}
            Self::Subscribe { reply, .. } | Self::Unsubscribe { reply, .. } => {
                let _ = reply.map(|reply| reply.send(Err(error)));
            }
            Self::Publish { reply, .. } => {
                let _ = reply.map(|reply| reply.send(Err(error)));
            }
            Self::Presence { reply, .. } => {
                let _ = reply.send(Err(error));
            }
            Self::History { reply, .. } => {
                let _ = reply.send(Err(error));
            }
            Self::Call { reply } => {
                let _ = reply.send(Err(error));
            }
        }
    }

    fn is_awaited(&self) -> bool {
        match self {
            Self::Subscribe { reply, .. } | Self::Unsubscribe { reply, .. } => {
                reply.as_ref().is_some_and(|reply| !reply.is_closed())
            }
            // Of one that nobody waits for, errors are still reported.
            waiting => !waiting.is_abandoned(),
        }
    }

    fn is_abandoned(&self) -> bool {
        match self {
            // Their result still has to be known.
            Self::Subscribe { .. } | Self::Unsubscribe { .. } | Self::Renew { .. } => false,
            Self::Publish { reply, .. } => reply.as_ref().is_some_and(Reply::is_closed),
            Self::Presence { reply, .. } => reply.is_closed(),
            Self::History { reply, .. } => reply.is_closed(),
            Self::Call { reply } => reply.is_closed(),
        }
    }
}

/// The correlation id of a request.
pub(crate) fn correlation_id(number: u64) -> String {
    format!("{PREFIX}{number}")
}

/// The number of the request that an answer belongs to.
fn number(correlation_id: &str) -> Option<u64> {
    correlation_id.strip_prefix(PREFIX)?.parse().ok()
}

/// The correlation id of a queued publication.
pub(crate) fn queue_correlation_id(row: u64) -> String {
    format!("{QUEUE_PREFIX}{row}")
}

/// The row of the queued publication that an answer belongs to.
pub(crate) fn queue_row(correlation_id: &str) -> Option<u64> {
    correlation_id.strip_prefix(QUEUE_PREFIX)?.parse().ok()
}

const PREFIX: &str = "r";
const QUEUE_PREFIX: &str = "q";
