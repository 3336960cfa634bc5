//! Commands of the application to the driver, except sending messages.

use crate::error::Error;
use crate::request::{
    HistoryPage, PresenceAnswer, Publication, Published, SubscribeOptions, Subscribed,
};
use std::sync::Arc;
use std::time::Duration;
use tidewire_wire::session::{Call, CallAnswer, CallResult, HistoryQuery};
use tokio::sync::oneshot;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

#[derive(Debug)]
pub(crate) enum Command {
    Subscribe {
        topics: Vec<String>,
        options: Arc<SubscribeOptions>,
        reply: Reply<Subscribed>,
    },
    Unsubscribe {
        topics: Vec<String>,
        reply: Reply<Subscribed>,
    },
    Publish {
        publication: Publication,
        /// `None` if only errors are to be reported.
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
        call: Call,
        reply: Reply<CallAnswer>,
    },
    /// The answer to a call of the server's on that session.
    Respond {
        session: u32,
        correlation_id: String,
        result: CallResult,
    },
    /// Deliveries of that session that are done.
    Acknowledge {
        session: u32,
        deliveries: Vec<u64>,
    },
    Sync {
        topics: Vec<String>,
    },
    Ping {
        reply: Reply<Duration>,
    },
    /// A request has timed out: whether the server still hears and answers is found out at once.
    Probe,
}

impl Command {
    /// Its size in the outbox.
    pub(crate) fn bytes(&self) -> usize {
        let texts = |texts: &[String]| texts.iter().map(|text| text.len() + 24).sum::<usize>();
        COMMAND_BYTES
            + match self {
                Self::Subscribe { topics, .. }
                | Self::Unsubscribe { topics, .. }
                | Self::Presence { topics, .. }
                | Self::Sync { topics } => texts(topics),
                Self::Publish { publication, .. } => {
                    publication.payload.as_json().len()
                        + publication.topic.len()
                        + publication.t.len()
                }
                Self::History { query, .. } => query.topic.len(),
                Self::Call { call, .. } => call.payload.len() + call.t.len(),
                Self::Respond { result, .. } => match result {
                    Ok(answer) => answer.payload.len(),
                    Err(error) => error.message.len(),
                },
                Self::Acknowledge { deliveries, .. } => deliveries.len() * 8,
                Self::Ping { .. } | Self::Probe => 0,
            }
    }

    /// Fails the command: its caller gets the error.
    pub(crate) fn fail(self, error: &Error) {
        match self {
            Self::Subscribe { reply, .. } | Self::Unsubscribe { reply, .. } => {
                reply_error(reply, error);
            }
            Self::Publish { reply, .. } => {
                if let Some(reply) = reply {
                    reply_error(reply, error);
                }
            }
            Self::Presence { reply, .. } => reply_error(reply, error),
            Self::History { reply, .. } => reply_error(reply, error),
            Self::Call { reply, .. } => reply_error(reply, error),
            Self::Ping { reply } => reply_error(reply, error),
            Self::Respond { .. } | Self::Acknowledge { .. } | Self::Sync { .. } | Self::Probe => {}
        }
    }

    /// True if its payload is binary.
    pub(crate) fn is_binary(&self) -> bool {
        match self {
            Self::Publish { publication, .. } => publication.payload.is_binary(),
            Self::Call { call, .. } => call.binary,
            Self::Respond { result, .. } => result.as_ref().is_ok_and(|answer| answer.binary),
            _ => false,
        }
    }

    /// Whether somebody waits for its outcome.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Publish { reply, .. } => reply.is_some(),
            Self::Respond { .. } | Self::Acknowledge { .. } | Self::Sync { .. } | Self::Probe => {
                false
            }
            _ => true,
        }
    }

    /// Whether the server answers it, so that it counts as open until then.
    pub(crate) fn is_request(&self) -> bool {
        !matches!(
            self,
            Self::Respond { .. }
                | Self::Acknowledge { .. }
                | Self::Sync { .. }
                | Self::Ping { .. }
                | Self::Probe
        )
    }

    /// Whether nobody waits for it any more, so that it need not be carried out.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Self::Subscribe { reply, .. } | Self::Unsubscribe { reply, .. } => reply.is_closed(),
            Self::Publish { reply, .. } => reply.as_ref().is_some_and(oneshot::Sender::is_closed),
            Self::Presence { reply, .. } => reply.is_closed(),
            Self::History { reply, .. } => reply.is_closed(),
            Self::Call { reply, .. } => reply.is_closed(),
            Self::Ping { reply } => reply.is_closed(),
            Self::Respond { .. } | Self::Acknowledge { .. } | Self::Sync { .. } | Self::Probe => {
                false
            }
        }
    }
}

fn reply_error<T>(reply: Reply<T>, error: &Error) {
    let _ = reply.send(Err(error.clone()));
}

/// A command without its texts.
const COMMAND_BYTES: usize = 256;
