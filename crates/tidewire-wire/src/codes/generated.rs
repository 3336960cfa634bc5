//! Generated from `protocol/codes.toml` by `cargo xtask codes`. Do not edit.

use super::{Condition, Fault, Retry};

/// Every error code of protocol version 1. Its spelling on the wire is [`ErrorCode::as_str`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// `AUTH_FAILED`: the token is missing, expired or not trustworthy.
    AuthFailed,
    /// `TOKEN_EXPIRED`: the token of the session or of a topic has expired, and no other came in time.
    TokenExpired,
    /// `TOKEN_REFUSED`: the token of an `auth_refresh` or of a topic is not accepted; the session continues.
    TokenRefused,
    /// `RATE_LIMITED`: more messages than the connection may send; `retry_after` says when to continue.
    RateLimited,
    /// `MESSAGE_TOO_LARGE`: a message, or its inflated content, exceeds the limit.
    MessageTooLarge,
    /// `INVALID_MESSAGE`: not an envelope, or a field of a wrong type.
    InvalidMessage,
    /// `INVALID_SUBSCRIPTION`: a subscription without usable topics, or with a field of a wrong type.
    InvalidSubscription,
    /// `INVALID_ACTION`: an action that the protocol does not have or this server does not offer.
    InvalidAction,
    /// `TOPIC_FORBIDDEN`: this user has no access to this topic.
    TopicForbidden,
    /// `KEY_EXCHANGE_FAILED`: the peer's public key is unusable.
    KeyExchangeFailed,
    /// `ENCRYPTION_REQUIRED`: the server accepts only encrypted messages.
    EncryptionRequired,
    /// `HANDLER_ERROR`: the application's handler failed; how much of its work is done is not known.
    HandlerError,
    /// `INVALID_PAYLOAD`: a payload of another shape than the handler takes; the handler was not called.
    InvalidPayload,
    /// `CIRCUIT_BREAKER_OPEN`: the connection caused too many errors; it is closed.
    CircuitBreakerOpen,
    /// `SERVER_ERROR`: the server failed.
    ServerError,
    /// `INIT_ERROR`: the session could not be set up.
    InitError,
    /// `NOT_FOUND`: there is no handler for that type, or no object of that name.
    NotFound,
    /// `LIMIT_EXCEEDED`: more subscriptions, subscribers or open calls than the server allows.
    LimitExceeded,
    /// `QUEUE_FULL`: no room for a publication or a call now; nothing was done.
    QueueFull,
    /// `BROKER_UNAVAILABLE`: the broker behind the servers does not answer; nothing was done.
    BrokerUnavailable,
    /// `BACKEND_UNAVAILABLE`: the backend does not answer as it should; nothing was done.
    BackendUnavailable,
    /// `PUBLISH_UNKNOWN`: the broker behind the servers did not say whether it took the publication.
    PublishUnknown,
    /// `TIMEOUT`: a call was not answered in time; how much of its work is done is not known.
    Timeout,
    /// `MESSAGE_GAP`: a number is not the next one: send the numbers after the last acknowledged one.
    MessageGap,
    /// `PRODUCER_SUPERSEDED`: another connection replaces this one as the producer.
    ProducerSuperseded,
}

impl ErrorCode {
    /// All codes, in the order of the table.
    pub const ALL: [Self; 25] = [
        Self::AuthFailed,
        Self::TokenExpired,
        Self::TokenRefused,
        Self::RateLimited,
        Self::MessageTooLarge,
        Self::InvalidMessage,
        Self::InvalidSubscription,
        Self::InvalidAction,
        Self::TopicForbidden,
        Self::KeyExchangeFailed,
        Self::EncryptionRequired,
        Self::HandlerError,
        Self::InvalidPayload,
        Self::CircuitBreakerOpen,
        Self::ServerError,
        Self::InitError,
        Self::NotFound,
        Self::LimitExceeded,
        Self::QueueFull,
        Self::BrokerUnavailable,
        Self::BackendUnavailable,
        Self::PublishUnknown,
        Self::Timeout,
        Self::MessageGap,
        Self::ProducerSuperseded,
    ];

    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AuthFailed => "AUTH_FAILED",
            Self::TokenExpired => "TOKEN_EXPIRED",
            Self::TokenRefused => "TOKEN_REFUSED",
            Self::RateLimited => "RATE_LIMITED",
            Self::MessageTooLarge => "MESSAGE_TOO_LARGE",
            Self::InvalidMessage => "INVALID_MESSAGE",
            Self::InvalidSubscription => "INVALID_SUBSCRIPTION",
            Self::InvalidAction => "INVALID_ACTION",
            Self::TopicForbidden => "TOPIC_FORBIDDEN",
            Self::KeyExchangeFailed => "KEY_EXCHANGE_FAILED",
            Self::EncryptionRequired => "ENCRYPTION_REQUIRED",
            Self::HandlerError => "HANDLER_ERROR",
            Self::InvalidPayload => "INVALID_PAYLOAD",
            Self::CircuitBreakerOpen => "CIRCUIT_BREAKER_OPEN",
            Self::ServerError => "SERVER_ERROR",
            Self::InitError => "INIT_ERROR",
            Self::NotFound => "NOT_FOUND",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::QueueFull => "QUEUE_FULL",
            Self::BrokerUnavailable => "BROKER_UNAVAILABLE",
            Self::BackendUnavailable => "BACKEND_UNAVAILABLE",
            Self::PublishUnknown => "PUBLISH_UNKNOWN",
            Self::Timeout => "TIMEOUT",
            Self::MessageGap => "MESSAGE_GAP",
            Self::ProducerSuperseded => "PRODUCER_SUPERSEDED",
        }
    }

    /// Whose fault it is.
    pub const fn fault(self) -> Fault {
        match self {
            Self::AuthFailed => Fault::Peer,
            Self::TokenExpired => Fault::Peer,
            Self::TokenRefused => Fault::Peer,
            Self::RateLimited => Fault::Peer,
            Self::MessageTooLarge => Fault::Peer,
            Self::InvalidMessage => Fault::Peer,
            Self::InvalidSubscription => Fault::Peer,
            Self::InvalidAction => Fault::Peer,
            Self::TopicForbidden => Fault::Peer,
            Self::KeyExchangeFailed => Fault::Peer,
            Self::EncryptionRequired => Fault::Peer,
            Self::HandlerError => Fault::Caller,
            Self::InvalidPayload => Fault::Peer,
            Self::CircuitBreakerOpen => Fault::Peer,
            Self::ServerError => Fault::Server,
            Self::InitError => Fault::Server,
            Self::NotFound => Fault::Peer,
            Self::LimitExceeded => Fault::Peer,
            Self::QueueFull => Fault::Server,
            Self::BrokerUnavailable => Fault::Server,
            Self::BackendUnavailable => Fault::Server,
            Self::PublishUnknown => Fault::Server,
            Self::Timeout => Fault::Caller,
            Self::MessageGap => Fault::Peer,
            Self::ProducerSuperseded => Fault::Peer,
        }
    }

    /// Whether the session goes on after it, so that a later or a corrected message can succeed.
    pub const fn recoverable(self) -> bool {
        match self {
            Self::AuthFailed => false,
            Self::TokenExpired => false,
            Self::TokenRefused => true,
            Self::RateLimited => true,
            Self::MessageTooLarge => true,
            Self::InvalidMessage => true,
            Self::InvalidSubscription => true,
            Self::InvalidAction => true,
            Self::TopicForbidden => true,
            Self::KeyExchangeFailed => false,
            Self::EncryptionRequired => false,
            Self::HandlerError => true,
            Self::InvalidPayload => true,
            Self::CircuitBreakerOpen => false,
            Self::ServerError => true,
            Self::InitError => false,
            Self::NotFound => true,
            Self::LimitExceeded => true,
            Self::QueueFull => true,
            Self::BrokerUnavailable => true,
            Self::BackendUnavailable => true,
            Self::PublishUnknown => true,
            Self::Timeout => true,
            Self::MessageGap => true,
            Self::ProducerSuperseded => false,
        }
    }

    /// Whether the refused message may be sent again.
    pub const fn retry(self) -> Retry {
        match self {
            Self::AuthFailed => Retry::After(Condition::NewToken),
            Self::TokenExpired => Retry::After(Condition::NewToken),
            Self::TokenRefused => Retry::After(Condition::NewToken),
            Self::RateLimited => Retry::After(Condition::Delay),
            Self::MessageTooLarge => Retry::No,
            Self::InvalidMessage => Retry::No,
            Self::InvalidSubscription => Retry::No,
            Self::InvalidAction => Retry::No,
            Self::TopicForbidden => Retry::No,
            Self::KeyExchangeFailed => Retry::No,
            Self::EncryptionRequired => Retry::After(Condition::KeyExchange),
            Self::HandlerError => Retry::No,
            Self::InvalidPayload => Retry::No,
            Self::CircuitBreakerOpen => Retry::After(Condition::Delay),
            Self::ServerError => Retry::After(Condition::Delay),
            Self::InitError => Retry::After(Condition::Delay),
            Self::NotFound => Retry::No,
            Self::LimitExceeded => Retry::No,
            Self::QueueFull => Retry::After(Condition::Delay),
            Self::BrokerUnavailable => Retry::After(Condition::Delay),
            Self::BackendUnavailable => Retry::After(Condition::Delay),
            Self::PublishUnknown => Retry::No,
            Self::Timeout => Retry::No,
            Self::MessageGap => Retry::Yes,
            Self::ProducerSuperseded => Retry::No,
        }
    }
}
