//! Error codes of version 1: the words that an `error` message carries in `code`.

/// Every error code of protocol version 1. Its spelling on the wire is [`ErrorCode::as_str`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// `AUTH_FAILED`: the token is missing, expired or not to be trusted.
    AuthFailed,
    /// `RATE_LIMITED`: more messages than the connection may send; `retry_after` says when to go on.
    RateLimited,
    /// `MESSAGE_TOO_LARGE`: a message, or what it inflates to, is past the limit.
    MessageTooLarge,
    /// `INVALID_MESSAGE`: not an envelope, or a field of a wrong type.
    InvalidMessage,
    /// `INVALID_SUBSCRIPTION`: a subscription without usable topics.
    InvalidSubscription,
    /// `INVALID_ACTION`: an action other than the protocol's.
    InvalidAction,
    /// `TOPIC_FORBIDDEN`: this user may not have this topic.
    TopicForbidden,
    /// `KEY_EXCHANGE_FAILED`: the peer's public key is unusable.
    KeyExchangeFailed,
    /// `ENCRYPTION_REQUIRED`: the server takes only encrypted messages.
    EncryptionRequired,
    /// `HANDLER_ERROR`: the application's handler failed.
    HandlerError,
    /// `CIRCUIT_BREAKER_OPEN`: the server is resting after failures.
    CircuitBreakerOpen,
    /// `SERVER_ERROR`: the server failed.
    ServerError,
    /// `INIT_ERROR`: the session could not be set up.
    InitError,
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The other end of the connection.
    Peer,
    /// The application that embeds the server.
    Caller,
    /// The server itself.
    Server,
}

impl ErrorCode {
    /// All codes, in the order of the protocol document.
    pub const ALL: [Self; 13] = [
        Self::AuthFailed,
        Self::RateLimited,
        Self::MessageTooLarge,
        Self::InvalidMessage,
        Self::InvalidSubscription,
        Self::InvalidAction,
        Self::TopicForbidden,
        Self::KeyExchangeFailed,
        Self::EncryptionRequired,
        Self::HandlerError,
        Self::CircuitBreakerOpen,
        Self::ServerError,
        Self::InitError,
    ];

    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AuthFailed => "AUTH_FAILED",
            Self::RateLimited => "RATE_LIMITED",
            Self::MessageTooLarge => "MESSAGE_TOO_LARGE",
            Self::InvalidMessage => "INVALID_MESSAGE",
            Self::InvalidSubscription => "INVALID_SUBSCRIPTION",
            Self::InvalidAction => "INVALID_ACTION",
            Self::TopicForbidden => "TOPIC_FORBIDDEN",
            Self::KeyExchangeFailed => "KEY_EXCHANGE_FAILED",
            Self::EncryptionRequired => "ENCRYPTION_REQUIRED",
            Self::HandlerError => "HANDLER_ERROR",
            Self::CircuitBreakerOpen => "CIRCUIT_BREAKER_OPEN",
            Self::ServerError => "SERVER_ERROR",
            Self::InitError => "INIT_ERROR",
        }
    }

    /// The code with this spelling; `None` for one that this version does not know.
    pub fn parse(spelling: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == spelling)
    }

    /// Whose fault it is.
    pub const fn fault(self) -> Fault {
        match self {
            Self::HandlerError => Fault::Caller,
            Self::CircuitBreakerOpen | Self::ServerError | Self::InitError => Fault::Server,
            _ => Fault::Peer,
        }
    }

    /// Whether the session goes on after it, so that a later or a corrected message can succeed.
    pub const fn recoverable(self) -> bool {
        !matches!(
            self,
            Self::AuthFailed | Self::KeyExchangeFailed | Self::EncryptionRequired | Self::InitError
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_spelling() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(code));
        }
        assert_eq!(ErrorCode::parse("auth_failed"), None);
    }

    #[test]
    fn fault_and_recovery() {
        assert_eq!(ErrorCode::AuthFailed.fault(), Fault::Peer);
        assert!(!ErrorCode::AuthFailed.recoverable());
        assert_eq!(ErrorCode::HandlerError.fault(), Fault::Caller);
        assert!(ErrorCode::RateLimited.recoverable());
        assert_eq!(ErrorCode::ServerError.fault(), Fault::Server);
    }
}
