//! Errors of publishing and of changes to subscriptions, with the code for the client.

use crate::model::SendError;
use crate::topics::access::InvalidRules;
use crate::topics::name::InvalidTopic;
use tidewire_wire::codes::ErrorCode;

/// Why something was not published; nobody got it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The caller's fault: no topic has this name.
    #[error("{0}")]
    Topic(#[from] InvalidTopic),
    /// The caller's fault: the type is empty, or the protocol's own.
    #[error("a publication needs a type that is not the protocol's")]
    Type,
    /// The caller's fault: the payload is not JSON, or nested too deep.
    #[error("the payload of a publication is not JSON, or is nested deeper than 61 levels")]
    Payload,
    /// The caller's fault: it excludes more than 1,000 connections.
    #[error("a publication excludes at most 1,000 connections")]
    Excluded,
    /// The caller's fault: the topic keeps every publication, and a volatile one is not for everybody.
    #[error("a publication to a topic with history cannot be volatile: the topic keeps it")]
    Volatile,
    /// The caller's fault: the payload is longer than the limit.
    #[error("the payload of a publication is longer than {bytes_max} bytes")]
    TooLarge {
        /// [`TopicLimits::payload_bytes_max`](crate::TopicLimits::payload_bytes_max).
        bytes_max: usize,
    },
    /// A shard has not caught up with the earlier publications; try again.
    #[error("the server has not caught up with what was published before")]
    Busy,
    /// The broker behind the servers does not answer; try again later.
    #[error("the broker behind the servers does not answer")]
    Unavailable,
    /// The broker behind the servers was asked and did not answer in time: the publication may have
    /// reached everybody or nobody. With an id it can be published again without harm.
    #[error("the broker behind the servers did not say whether it took the publication")]
    Unknown,
    /// The server has stopped.
    #[error("the server has stopped")]
    Stopped,
}

/// Why a history could not be read or forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the broker behind the servers does not answer")]
pub struct BrokerUnavailable;

/// Why a subscription was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManageError {
    /// The caller's fault: no topic or pattern has this name.
    #[error("{0}")]
    Topic(#[from] InvalidTopic),
    /// The caller's fault: the rules cannot be used.
    #[error("{0}")]
    Access(#[from] InvalidRules),
    /// The connection or the topic has as many subscriptions as it may.
    #[error("{0}")]
    Limit(&'static str),
    /// The server cannot do it now, or has stopped.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl PublishError {
    /// The code for the client.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Topic(_) | Self::Type | Self::Payload | Self::Excluded | Self::Volatile => {
                ErrorCode::InvalidMessage
            }
            Self::TooLarge { .. } => ErrorCode::MessageTooLarge,
            Self::Busy => ErrorCode::QueueFull,
            Self::Unavailable => ErrorCode::BrokerUnavailable,
            Self::Unknown => ErrorCode::PublishUnknown,
            Self::Stopped => ErrorCode::ServerError,
        }
    }
}
