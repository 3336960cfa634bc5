//! Errors of the utilities.

use super::{Failure, Fault};
use std::time::Duration;
use tidewire_engine::InvalidFilter;
use tidewire_engine::auth::{AuthConfigError, TokenError};
use tidewire_engine::token::SignError as TokenSignError;
use tidewire_wire::envelope::EnvelopeError;
use tidewire_wire::format::FormatError;
use tidewire_wire::secure::{
    ExchangeError, IdentityKeyError, OpenError, SealError, SignError, SignatureError,
    SigningKeyError,
};

impl From<AuthConfigError> for Failure {
    fn from(error: AuthConfigError) -> Self {
        Self::argument(error)
    }
}

impl From<TokenSignError> for Failure {
    fn from(error: TokenSignError) -> Self {
        match error {
            TokenSignError::NotAnObject => Self::argument(error),
            TokenSignError::Provider => Self::cryptography(error),
        }
    }
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        Self::new("TokenError", error.code(), Fault::Peer, error)
    }
}

impl From<InvalidFilter> for Failure {
    fn from(error: InvalidFilter) -> Self {
        Self::new(
            "InvalidArgumentError",
            "INVALID_FILTER",
            Fault::Caller,
            error,
        )
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::TooLarge { .. } => {
                Self::new("InvalidMessageError", "TOO_LARGE", Fault::Peer, error)
            }
            _ => Self::invalid_message(error),
        }
    }
}

impl From<EnvelopeError> for Failure {
    fn from(error: EnvelopeError) -> Self {
        Self::invalid_message(error)
    }
}

impl From<SigningKeyError> for Failure {
    fn from(error: SigningKeyError) -> Self {
        Self::argument(error)
    }
}

impl From<IdentityKeyError> for Failure {
    fn from(error: IdentityKeyError) -> Self {
        Self::argument(error)
    }
}

impl From<SignError> for Failure {
    fn from(error: SignError) -> Self {
        match error {
            SignError::Version | SignError::LineBreak => Self::argument(error),
            SignError::Provider => Self::cryptography(error),
        }
    }
}

impl From<SignatureError> for Failure {
    fn from(error: SignatureError) -> Self {
        let code = match &error {
            SignatureError::Envelope(_) => return Self::invalid_message(error),
            SignatureError::Full => return Self::busy(error).after(NONCES_FORGOTTEN_AFTER),
            SignatureError::Ambiguous => "SIGNATURE_AMBIGUOUS",
            SignatureError::Missing => "SIGNATURE_MISSING",
            SignatureError::Malformed => "SIGNATURE_MALFORMED",
            SignatureError::Wrong => "SIGNATURE_WRONG",
            SignatureError::Stale => "SIGNATURE_STALE",
            SignatureError::Replayed => "SIGNATURE_REPLAYED",
        };
        security(code, Fault::Peer, error)
    }
}

impl From<SealError> for Failure {
    fn from(error: SealError) -> Self {
        match error {
            SealError::KeyExhausted => security("KEY_EXHAUSTED", Fault::Caller, error),
            SealError::TooLarge => Self::argument(error),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let code = match error {
            OpenError::NotEncrypted => "NOT_ENCRYPTED",
            OpenError::Reflected => "REFLECTED",
            OpenError::OutOfOrder => "OUT_OF_ORDER",
            OpenError::Tampered => "TAMPERED",
        };
        security(code, Fault::Peer, error)
    }
}

impl From<ExchangeError> for Failure {
    fn from(error: ExchangeError) -> Self {
        let code = match error {
            ExchangeError::PeerKey => "PEER_KEY",
            ExchangeError::Version => "VERSION",
            ExchangeError::Identity => "IDENTITY",
            ExchangeError::ConnectionId => return Self::argument(error),
            ExchangeError::Provider => return Self::cryptography(error),
        };
        security(code, Fault::Peer, error)
    }
}

impl Failure {
    /// The provider of the cryptography failed.
    pub(crate) fn cryptography(message: impl ToString) -> Self {
        security("CRYPTOGRAPHY_FAILED", Fault::Nobody, message)
    }

    /// A token lacks a claim that it has to have.
    pub(crate) fn missing_claim(name: &str) -> Self {
        let message = format!("the token has no `{name}`");
        Self::new("TokenError", "MISSING_CLAIM", Fault::Peer, message)
    }

    /// A queue has no room. `displacing` is the name of the method that makes room.
    #[must_use]
    pub fn queue_full(displacing: &str) -> Self {
        let message =
            format!("the queue is full; take something out, or make room with {displacing}()");
        Self::new("BusyError", "QUEUE_FULL", Fault::Nobody, message)
    }
}

fn security(code: &'static str, fault: Fault, message: impl ToString) -> Failure {
    Failure::new("SecurityError", code, fault, message)
}

/// Nonces are forgotten in groups of this many seconds.
const NONCES_FORGOTTEN_AFTER: Duration = Duration::from_secs(100);
