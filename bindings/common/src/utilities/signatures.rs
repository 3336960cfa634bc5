//! Signatures of messages (PROTOCOL.md, the field `sig`).

use crate::failure::Failure;
use crate::utilities::exactly;
use crate::utilities::random::random;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidewire_wire::format::{Format, Framing, identify};
use tidewire_wire::secure::{
    IdentityKey, NONCES_DEFAULT_MAX, NonceWindow, SignatureVersion, SigningKey, VerifyingKey,
};
use tidewire_wire::session::PUBLIC_KEY_BYTES;

pub use tidewire_wire::secure::{SignedMessage, hmac_sha256};

/// A key that signs.
pub struct Signer {
    key: SigningKey,
    public_key: Option<[u8; PUBLIC_KEY_BYTES]>,
}

impl Signer {
    /// A signer with a secret of at least 32 bytes, or with the private key of P-256 in PEM text (PKCS#8).
    ///
    /// # Errors
    /// Neither or both are given, or the key cannot be used.
    pub fn new(secret: Option<&[u8]>, private_key: Option<&str>) -> Result<Self, Failure> {
        match (secret, private_key) {
            (Some(secret), None) => Ok(Self {
                key: SigningKey::hmac(secret)?,
                public_key: None,
            }),
            (None, Some(pem)) => {
                let identity = IdentityKey::from_pkcs8_pem(pem)?;
                Ok(Self {
                    public_key: Some(*identity.public_key()),
                    key: SigningKey::ecdsa(identity),
                })
            }
            _ => Err(Failure::argument("give either a secret or a private key")),
        }
    }

    /// A signature, with the time and a nonce in it. Version 1 covers the payload alone. `now_s` is seconds since 1970.
    ///
    /// # Errors
    /// The version is neither 1 nor 2, or the key cannot make it, or a part has a line break.
    pub fn sign(
        &self,
        message: &SignedMessage<'_>,
        version: u64,
        now_s: u64,
    ) -> Result<String, Failure> {
        let version = match version {
            1 => SignatureVersion::One,
            2 => SignatureVersion::Two,
            other => {
                let message = format!("version has to be 1 or 2, not {other}");
                return Err(Failure::argument(message));
            }
        };
        Ok(self.key.sign(version, message, now_s, &*random()?)?)
    }

    /// The public key, as an uncompressed point, for a [`Verifier`]. `None` if the key is a secret.
    #[must_use]
    pub fn public_key(&self) -> Option<&[u8; PUBLIC_KEY_BYTES]> {
        self.public_key.as_ref()
    }
}

/// A key that checks, and the signatures that it has accepted.
pub struct Verifier {
    key: VerifyingKey,
    nonces: Mutex<NonceWindow>,
}

impl Verifier {
    /// A verifier with the secret or the public key of the signer. It remembers at most `nonces_max` signatures.
    ///
    /// # Errors
    /// Neither or both are given, or the key cannot be used.
    pub fn new(
        secret: Option<&[u8]>,
        public_key: Option<&[u8]>,
        nonces_max: usize,
    ) -> Result<Self, Failure> {
        let key = match (secret, public_key) {
            (Some(secret), None) => VerifyingKey::hmac(secret)?,
            (None, Some(point)) => VerifyingKey::ecdsa(&exactly(point, "a public key")?)?,
            _ => return Err(Failure::argument("give either a secret or a public key")),
        };
        Ok(Self {
            key,
            nonces: Mutex::new(NonceWindow::new(nonces_max)),
        })
    }

    /// Checks a signature, but not that it is new. Gives its version. `now_s` is seconds since 1970.
    ///
    /// # Errors
    /// The signature is missing, malformed, wrong or stale.
    pub fn check(&self, message: &SignedMessage<'_>, now_s: u64) -> Result<u8, Failure> {
        Ok(number(self.key.check(message, now_s)?.version()))
    }

    /// Checks a signature, and that it is new. Gives its version. `now_s` is seconds since 1970.
    ///
    /// # Errors
    /// As [`Self::check`], or the signature was accepted before, or there are too many to remember.
    pub fn accept(&self, message: &SignedMessage<'_>, now_s: u64) -> Result<u8, Failure> {
        let checked = self.key.check(message, now_s)?;
        Ok(number(checked.accept(&mut self.window())?))
    }

    /// The number of signatures that are remembered.
    #[must_use]
    pub fn nonces(&self) -> usize {
        self.window().len()
    }

    fn window(&self) -> MutexGuard<'_, NonceWindow> {
        self.nonces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The signed parts of a whole message: JSON, or MessagePack behind its prefix.
///
/// # Errors
/// The message is no envelope, or a signed part occurs twice.
pub fn find_parts(message: &[u8]) -> Result<SignedMessage<'_>, Failure> {
    Ok(match identify(message) {
        framing @ Framing::MessagePack => {
            SignedMessage::find(Format::MessagePack, &message[framing.prefix_bytes()..])?
        }
        _ => SignedMessage::find(Format::Json, message)?,
    })
}

fn number(version: SignatureVersion) -> u8 {
    match version {
        SignatureVersion::One => 1,
        SignatureVersion::Two => 2,
    }
}

/// The signatures that a [`Verifier`] remembers by default.
pub const NONCES_MAX_DEFAULT: u64 = NONCES_DEFAULT_MAX as u64;
