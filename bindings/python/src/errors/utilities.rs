//! The errors of what is useful without a server.

use super::{Failure, Fault, argument, busy, invalid_message};
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
        argument(error)
    }
}

impl From<TokenSignError> for Failure {
    fn from(error: TokenSignError) -> Self {
        match error {
            TokenSignError::NotAnObject => argument(error),
            TokenSignError::Provider => cryptography(error),
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
            _ => invalid_message(error),
        }
    }
}

impl From<EnvelopeError> for Failure {
    fn from(error: EnvelopeError) -> Self {
        invalid_message(error)
    }
}

impl From<SigningKeyError> for Failure {
    fn from(error: SigningKeyError) -> Self {
        argument(error)
    }
}

impl From<IdentityKeyError> for Failure {
    fn from(error: IdentityKeyError) -> Self {
        argument(error)
    }
}

impl From<SignError> for Failure {
    fn from(error: SignError) -> Self {
        match error {
            SignError::Version | SignError::LineBreak => argument(error),
            SignError::Provider => cryptography(error),
        }
    }
}

impl From<SignatureError> for Failure {
    fn from(error: SignatureError) -> Self {
        let code = match &error {
            SignatureError::Envelope(_) => return invalid_message(error),
            SignatureError::Full => return busy(error).after(NONCES_FORGOTTEN_AFTER_S),
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
            SealError::TooLarge => argument(error),
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
            ExchangeError::ConnectionId => return argument(error),
            ExchangeError::Provider => return cryptography(error),
        };
        security(code, Fault::Peer, error)
    }
}

/// The provider of the cryptography failed.
pub(crate) fn cryptography(message: impl ToString) -> Failure {
    security("CRYPTOGRAPHY_FAILED", Fault::Nobody, message)
}

pub(crate) fn missing_claim(name: &str) -> Failure {
    let message = format!("the token has no `{name}`");
    Failure::new("TokenError", "MISSING_CLAIM", Fault::Peer, message)
}

/// A queue has no room.
pub(crate) fn queue_full() -> Failure {
    let message = "the queue is full; take something out, or make room with push_displacing()";
    Failure::new("BusyError", "QUEUE_FULL", Fault::Nobody, message)
}

fn security(code: &'static str, fault: Fault, message: impl ToString) -> Failure {
    Failure::new("SecurityError", code, fault, message)
}

/// Nonces are forgotten in groups of so many seconds.
const NONCES_FORGOTTEN_AFTER_S: f64 = 100.0;
