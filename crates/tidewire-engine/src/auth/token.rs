//! Signing of tokens, for trials, load tests and backends that sign their own.

use crate::auth::claims::{ClaimSet, MissingClaim};
use crate::auth::{AuthConfigError, KeyMaterial, LEEWAY_S_DEFAULT, TOKEN_BYTES_MAX};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::sync::Arc;

/// A key that signs tokens. It is read once, because reading costs more time than signing.
#[derive(Clone)]
pub struct SigningKey {
    algorithm: Algorithm,
    key: Arc<Key>,
}

enum Key {
    Hmac(Box<hmac::Key>),
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// Why a token could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The claims are not a JSON object. The caller's fault.
    #[error("the claims of a token have to be a JSON object")]
    NotAnObject,
    /// Ours: the provider failed.
    #[error("the cryptography failed")]
    Provider,
}

/// Why no server accepts a client's token with these claims. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnusableClaims {
    /// A claim is missing, or empty.
    #[error("the claim {0} is missing; a server accepts no token without it")]
    Missing(&'static str),
    /// The claims are not a JSON object, or one of them has a type of its own.
    #[error(
        "the claims are not those of a token: sub and iss have to be text, exp and nbf numbers of \
         seconds since 1970"
    )]
    WrongType,
    /// `exp` is past.
    #[error("the claim exp is past; a server accepts no token that has expired")]
    Expired,
    /// The token is longer than [`TOKEN_BYTES_MAX`].
    #[error("the token has {bytes} bytes; a server accepts {TOKEN_BYTES_MAX} at most")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// Checks the claims of a client's token, of a session or of a subscription, JSON text, as a
/// [`Verifier`](crate::auth::Verifier) does at the time `now_unix_s`, in seconds since 1970, UTC, with the
/// default leeway. The time of an `nbf` may be in the future.
///
/// # Errors
/// [`UnusableClaims`].
pub fn check_claims(claims: &str, now_unix_s: u64) -> Result<(), UnusableClaims> {
    let claims: ClaimSet = serde_json::from_str(claims).map_err(|_| UnusableClaims::WrongType)?;
    let missing = match claims.is_for_subscription() {
        true => claims.user_and_topic().err(),
        false => claims.user().err(),
    };
    if let Some(MissingClaim(name)) = missing {
        return Err(UnusableClaims::Missing(name));
    }
    match claims.has_expired(now_unix_s, LEEWAY_S_DEFAULT) {
        true => Err(UnusableClaims::Expired),
        false => Ok(()),
    }
}

/// Checks the length of a client's token as a [`Verifier`](crate::auth::Verifier) does.
///
/// # Errors
/// [`UnusableClaims::TooLong`].
pub fn check_length(token: &str) -> Result<(), UnusableClaims> {
    match token.len() {
        0..=TOKEN_BYTES_MAX => Ok(()),
        bytes => Err(UnusableClaims::TooLong { bytes }),
    }
}

impl SigningKey {
    /// Reads a key: the secret or the private key in PEM.
    ///
    /// # Errors
    /// [`AuthConfigError`] for a secret that is too short or a text that is not a private key of
    /// the algorithm's kind.
    pub fn new(material: &KeyMaterial) -> Result<Self, AuthConfigError> {
        let (key, wanted) = match material {
            KeyMaterial::Hs256(secret) => {
                let secret = KeyMaterial::long_enough(secret)?;
                let key = Key::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret)));
                (Some(key), "a secret")
            }
            KeyMaterial::Rs256Pem(pem) => {
                let parsed = EncodingKey::from_rsa_pem(pem).ok();
                let pair = parsed.and_then(|key| RsaKeyPair::from_der(key.inner()).ok());
                (pair.map(Key::Rsa), "a PEM private key of RSA")
            }
            KeyMaterial::Es256Pem(pem) => {
                let wanted = "a PEM private key on the curve P-256 as PKCS#8 \
                              (openssl pkcs8 -topk8 -nocrypt makes that of another)";
                let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
                let parsed = EncodingKey::from_ec_pem(pem).ok();
                let pair =
                    parsed.and_then(|key| EcdsaKeyPair::from_pkcs8(algorithm, key.inner()).ok());
                (pair.map(Key::Ecdsa), wanted)
            }
            KeyMaterial::EdDsaPem(pem) => {
                let wanted = "a PEM private key of Ed25519 as PKCS#8";
                let parsed = EncodingKey::from_ed_pem(pem).ok();
                let pair = parsed.and_then(|key| Ed25519KeyPair::from_pkcs8(key.inner()).ok());
                (pair.map(Key::Ed25519), wanted)
            }
        };
        let is_secret = matches!(material, KeyMaterial::Hs256(_));
        match key {
            Some(key) if is_secret || material.is_private_pem() => Ok(Self {
                algorithm: material.algorithm(),
                key: Arc::new(key),
            }),
            _ => {
                let algorithm = material.algorithm_name();
                Err(AuthConfigError::Unusable { algorithm, wanted })
            }
        }
    }

    fn signature(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        match &*self.key {
            Key::Hmac(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
            Key::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let random = SystemRandom::new();
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)?;
                Ok(signature)
            }
            Key::Ecdsa(pair) => {
                let signature = pair.sign(&SystemRandom::new(), message)?;
                Ok(signature.as_ref().to_vec())
            }
            Key::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

/// Secrets never reach a log.
impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SigningKey({:?}, …)", self.algorithm)
    }
}

/// Signs claims, an object, and names the key in the header if `kid` is given. Nothing is added to
/// the claims; a server wants `sub` and `exp`.
///
/// # Errors
/// [`SignError`].
pub fn sign(claims: &Value, key: &SigningKey, kid: Option<&str>) -> Result<String, SignError> {
    if !claims.is_object() {
        return Err(SignError::NotAnObject);
    }
    signed(&claims.to_string(), key, kid)
}

/// [`sign`] for claims that are JSON text already, which is signed as it stands.
///
/// # Errors
/// [`SignError`].
pub fn sign_text(claims: &str, key: &SigningKey, kid: Option<&str>) -> Result<String, SignError> {
    match serde_json::from_str::<&RawValue>(claims) {
        Ok(claims) if claims.get().starts_with('{') => signed(claims.get(), key, kid),
        _ => Err(SignError::NotAnObject),
    }
}

/// RFC 7515, section 7.1.
fn signed(claims: &str, key: &SigningKey, kid: Option<&str>) -> Result<String, SignError> {
    let mut header = Header::new(key.algorithm);
    header.kid = kid.map(str::to_owned);
    let header = serde_json::to_vec(&header).map_err(|_| SignError::Provider)?;
    let mut token = String::with_capacity((header.len() + claims.len()) * 4 / 3 + SIGNATURE_CHARS);
    URL_SAFE_NO_PAD.encode_string(header, &mut token);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(claims, &mut token);
    let signature = key.signature(token.as_bytes());
    let signature = signature.map_err(|Unspecified| SignError::Provider)?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Ok(token)
}

/// Room for the signature of an RSA key of 2048 bits, the longest of the usual ones.
const SIGNATURE_CHARS: usize = 352;
