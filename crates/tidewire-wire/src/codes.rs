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
        let after = |condition| Retry::After(condition);
        assert_eq!(ErrorCode::InvalidMessage.retry(), Retry::No);
        assert_eq!(ErrorCode::RateLimited.retry(), after(Condition::Delay));
        assert_eq!(ErrorCode::AuthFailed.retry(), after(Condition::NewToken));
    }
}
