//! A server's lasting key, and ECDSA on P-256 in general.

use crate::session::{PUBLIC_KEY_BYTES, SIGNATURE_BYTES};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use zeroize::Zeroizing;

/// An ECDSA P-256 key pair. The provider wipes the private half when it is dropped.
pub struct IdentityKey {
    pair: EcdsaKeyPair,
    public: [u8; PUBLIC_KEY_BYTES],
}

/// Why there is no key: the caller's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityKeyError {
    /// Not one block `PRIVATE KEY` in PEM.
    #[error("not a PKCS#8 private key in PEM (-----BEGIN PRIVATE KEY-----)")]
    NotPem,
    /// Not the private key of a P-256 key pair in PKCS#8.
    #[error("not a P-256 private key in PKCS#8")]
    NotP256,
}

impl IdentityKey {
    /// Reads the first block `PRIVATE KEY` of `pem`; what stands around it is passed over.
    ///
    /// # Errors
    /// [`IdentityKeyError`].
    pub fn from_pkcs8_pem(pem: &str) -> Result<Self, IdentityKeyError> {
        let body = pem
            .split_once(PEM_BEGIN)
            .and_then(|(_, rest)| rest.split_once(PEM_END))
            .map(|(body, _)| body)
            .ok_or(IdentityKeyError::NotPem)?;
        let mut text = Zeroizing::new(Vec::with_capacity(body.len()));
        text.extend(body.bytes().filter(|byte| !byte.is_ascii_whitespace()));
        let mut der = Zeroizing::new(vec![0; text.len()]);
        let length = STANDARD
            .decode_slice(text.as_slice(), &mut der)
            .map_err(|_| IdentityKeyError::NotPem)?;
        Self::from_pkcs8_der(&der[..length])
    }

    /// Reads PKCS#8.
    ///
    /// # Errors
    /// [`IdentityKeyError::NotP256`].
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, IdentityKeyError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der)
            .map_err(|_| IdentityKeyError::NotP256)?;
        let public = pair.public_key().as_ref().try_into();
        let public = public.map_err(|_| IdentityKeyError::NotP256)?;
        Ok(Self { pair, public })
    }

    /// The public half, an uncompressed point: what clients pin.
    pub fn public_key(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.public
    }

    /// The signature of `message`: r and s.
    pub(super) fn sign(&self, message: &[u8]) -> Result<[u8; SIGNATURE_BYTES], Unspecified> {
        let signature = self.pair.sign(&SystemRandom::new(), message)?;
        signature.as_ref().try_into().map_err(|_| Unspecified)
    }
}

impl fmt::Debug for IdentityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityKey").finish_non_exhaustive()
    }
}

/// Whether `signature` is that of `message` by the owner of `public_key`.
pub(super) fn verify(public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public_key)
        .verify(message, signature)
        .is_ok()
}

const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
