//! Error codes of version 1: the values of `code` in an `error` message, the side at fault, and whether a
//! retry helps. Generated from `protocol/codes.toml`.

mod generated;

pub use generated::ErrorCode;

/// The side at fault for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The other end of the connection.
    Peer,
    /// The application that embeds the server.
    Caller,
    /// The server itself.
    Server,
}

/// Whether a retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// No: a retry would fail again, or would have its effect twice.
    No,
    /// Yes, soon. Clients reconnect after a random time.
    Yes,
    /// Yes, after a condition is met.
    After(Condition),
}

/// The condition for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The time in `retry_after` has passed, or without it a growing back-off.
    Delay,
    /// The application gives the client another token.
    NewToken,
    /// The next `client_hello` offers a public key.
    KeyExchange,
}

impl ErrorCode {
    /// The code with this spelling; `None` for one that this version does not know.
    pub fn parse(spelling: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == spelling)
    }

    /// Whether a client that gets the code tells its caller of it, and does nothing else: it does not send the message
    /// again, connect again or end. Only such a code may come from an application that refuses a publication.
    #[must_use]
    pub fn is_final_refusal(self) -> bool {
        // By `PUBLISH_UNKNOWN` a client does not know whether there was a publication.
        self.recoverable() && self.retry() == Retry::No && self != Self::PublishUnknown
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
    fn only_codes_without_an_effect_are_final_refusals() {
        let finals = ErrorCode::ALL
            .into_iter()
            .filter(|code| code.is_final_refusal());
        let expected = [
            ErrorCode::MessageTooLarge,
            ErrorCode::InvalidMessage,
            ErrorCode::InvalidSubscription,
            ErrorCode::InvalidAction,
            ErrorCode::TopicForbidden,
            ErrorCode::HandlerError,
            ErrorCode::InvalidPayload,
            ErrorCode::NotFound,
            ErrorCode::LimitExceeded,
            ErrorCode::Timeout,
        ];
        assert_eq!(finals.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn fault_and_recovery() {
        assert_eq!(ErrorCode::AuthFailed.fault(), Fault::Peer);
        assert!(!ErrorCode::AuthFailed.recoverable());
        assert_eq!(ErrorCode::HandlerError.fault(), Fault::Caller);
        assert!(ErrorCode::RateLimited.recoverable());
        assert_eq!(ErrorCode::ServerError.fault(), Fault::Server);
        let after = |condition| Retry::After(condition);
        assert_eq!(ErrorCode::InvalidMessage.retry(), Retry::No);
        assert_eq!(ErrorCode::RateLimited.retry(), after(Condition::Delay));
        assert_eq!(ErrorCode::AuthFailed.retry(), after(Condition::NewToken));
    }
}
