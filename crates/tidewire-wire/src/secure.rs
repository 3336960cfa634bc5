//! Encryption and signatures, from one provider (`aws-lc-rs`); only with the feature `crypto`.
//!
//! - [`ExchangeKeyPair`] agrees on a key with the peer, as both hellos carry it, and gives a
//!   [`SessionCipher`], which seals sent messages and opens received ones (`E:`).
//! - [`IdentityKey`] is a server's lasting key, with which it signs its side of the exchange.
//! - [`SigningKey`] and [`VerifyingKey`] make and check `sig`; [`NonceWindow`] refuses replays.
//!
//! Randomness and time are arguments, with one exception: the provider draws the nonce of each ECDSA
//! signature itself. Secrets are wiped when they are dropped, and compared in constant time.

mod cipher;
mod exchange;
mod identity;
mod message;
mod nonces;
mod signature;

pub use cipher::{
    ENCRYPTION_PREFIX, KEY_BYTES_MAX, KEY_MESSAGES_MAX, OpenError, SEALED_OVERHEAD_BYTES,
    SealError, SessionCipher,
};
pub use exchange::{ExchangeError, ExchangeKeyPair, SeedError};
pub use identity::{IdentityKey, IdentityKeyError};
pub use message::SignedMessage;
pub use nonces::{NONCES_DEFAULT_MAX, NonceError, NonceWindow, SIGNATURE_AGE_S_MAX};
pub use signature::{
    CheckedSignature, HMAC_SECRET_BYTES_MIN, NONCE_BYTES, SignError, SignatureError,
    SignatureVersion, SigningKey, SigningKeyError, VerifyingKey, hmac_sha256,
};
