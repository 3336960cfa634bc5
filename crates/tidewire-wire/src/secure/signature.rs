//! Signatures (`sig`) of messages, with protection against replays.

use super::identity::IdentityKey;
use super::{NonceError, NonceWindow, SIGNATURE_AGE_S_MAX, SignedMessage};
use crate::envelope::EnvelopeError;
use crate::session::{PUBLIC_KEY_BYTES, SIGNATURE_BYTES};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;

/// The version of a signature: its covered fields and its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignatureVersion {
    /// Only the payload; HMAC.
    One,
    /// Payload, type, id, topic and correlation id; HMAC or ECDSA.
    Two,
}

/// A key that creates signatures: HMAC-SHA256 (`hs256`, both versions) or ECDSA P-256 with SHA-256 (`es256`,
/// version 2 only). The provider wipes it when it is dropped.
pub struct SigningKey(Signing);

enum Signing {
    Hmac(Box<hmac::Key>),
    Ecdsa(Box<IdentityKey>),
}

/// A key that verifies the signatures of a [`SigningKey`].
pub struct VerifyingKey(Verifying);

enum Verifying {
    Hmac(Box<hmac::Key>),
    Ecdsa(ParsedPublicKey),
}

/// The reason why a key is invalid: the caller's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// An HMAC secret of less than [`HMAC_SECRET_BYTES_MIN`] bytes.
    #[error("the secret has less than {HMAC_SECRET_BYTES_MIN} bytes")]
    TooShort,
    /// Not an uncompressed point of P-256.
    #[error("not a P-256 public key")]
    NotP256,
}

/// The reason why a message was not signed: the caller's fault, except the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// Version 1 has no ECDSA.
    #[error("version 1 has no ECDSA signatures")]
    Version,
    /// A signed text has more than one line.
    #[error("a signed text has a line break")]
    LineBreak,
    /// Ours: the provider failed.
    #[error("the cryptography failed")]
    Provider,
}

/// The reason why a signature is rejected: the peer's fault, except the last. The peer receives `INVALID_MESSAGE`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The message is not an envelope.
    #[error("{0}")]
    Envelope(#[from] EnvelopeError),
    /// A signed field is there twice, or its text has a line break.
    #[error("a signed field comes twice or has a line break")]
    Ambiguous,
    /// The message has no `sig`.
    #[error("the message is not signed")]
    Missing,
    /// `sig` has none of the known forms.
    #[error("the signature is malformed")]
    Malformed,
    /// The message was changed, or signed with another key.
    #[error("the signature is wrong")]
    Wrong,
    /// Signed more than [`SIGNATURE_AGE_S_MAX`] seconds ago, or as far ahead.
    #[error("the signature is stale")]
    Stale,
    /// The message has been accepted before.
    #[error("the signature has been used")]
    Replayed,
    /// Ours: the window of nonces is full; a new signature may succeed later.
    #[error("too many signatures in a short time")]
    Full,
}

/// A valid and recent signature, which may be a replay: see [`Self::accept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct CheckedSignature {
    version: SignatureVersion,
    nonce: [u8; NONCE_BYTES],
    signed_at_unix_s: u64,
    now_unix_s: u64,
}

impl SigningKey {
    /// The HMAC key with this secret of at least [`HMAC_SECRET_BYTES_MIN`] bytes, which the caller has
    /// to wipe.
    ///
    /// # Errors
    /// [`SigningKeyError::TooShort`].
    pub fn hmac(secret: &[u8]) -> Result<Self, SigningKeyError> {
        Ok(Self(Signing::Hmac(hmac_key(secret)?)))
    }

    /// The ECDSA key.
    pub fn ecdsa(key: IdentityKey) -> Self {
        Self(Signing::Ecdsa(Box::new(key)))
    }

    /// The key that verifies the signatures of this key.
    ///
    /// # Errors
    /// [`SigningKeyError::NotP256`]: the provider does not accept the public key that it returned.
    pub fn verifying_key(&self) -> Result<VerifyingKey, SigningKeyError> {
        match &self.0 {
            Signing::Hmac(key) => Ok(VerifyingKey(Verifying::Hmac(key.clone()))),
            Signing::Ecdsa(key) => VerifyingKey::ecdsa(key.public_key()),
        }
    }

    /// The value of `sig` for `message`, whose own signature is ignored. `nonce` is 16 random bytes.
    ///
    /// # Errors
    /// [`SignError`].
    pub fn sign(
        &self,
        version: SignatureVersion,
        message: &SignedMessage<'_>,
        now_unix_s: u64,
        nonce: &[u8; NONCE_BYTES],
    ) -> Result<String, SignError> {
        let nonce = hex(nonce);
        match (version, &self.0) {
            (SignatureVersion::One, Signing::Ecdsa(_)) => Err(SignError::Version),
            (SignatureVersion::One, Signing::Hmac(key)) => {
                let signed = format!("{}:{now_unix_s}:{nonce}", hash(message.payload));
                let mac = hmac::sign(key, signed.as_bytes());
                Ok(format!("{signed}:{}", hex(mac.as_ref())))
            }
            (SignatureVersion::Two, key) => {
                let time = now_unix_s.to_string();
                let signed = signed_lines(message, &time, &nonce).ok_or(SignError::LineBreak)?;
                let (algorithm, signature) = match key {
                    Signing::Hmac(key) => {
                        let mac = hmac::sign(key, &signed);
                        (HS256, URL_SAFE_NO_PAD.encode(mac.as_ref()))
                    }
                    Signing::Ecdsa(key) => {
                        let signature = key.sign(&signed).map_err(|_| SignError::Provider)?;
                        (ES256, URL_SAFE_NO_PAD.encode(signature))
                    }
                };
                Ok(format!("2:{algorithm}:{time}:{nonce}:{signature}"))
            }
        }
    }
}

impl VerifyingKey {
    /// The HMAC key with this secret of at least [`HMAC_SECRET_BYTES_MIN`] bytes, which stays the caller's
    /// to wipe.
    ///
    /// # Errors
    /// [`SigningKeyError::TooShort`].
    pub fn hmac(secret: &[u8]) -> Result<Self, SigningKeyError> {
        Ok(Self(Verifying::Hmac(hmac_key(secret)?)))
    }

    /// The ECDSA key that is this uncompressed point.
    ///
    /// # Errors
    /// [`SigningKeyError::NotP256`].
    pub fn ecdsa(public_key: &[u8; PUBLIC_KEY_BYTES]) -> Result<Self, SigningKeyError> {
        ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public_key)
            .map(|key| Self(Verifying::Ecdsa(key)))
            .map_err(|_| SigningKeyError::NotP256)
    }

    /// Verifies the signature of `message` and that it is new. Returns its version.
    ///
    /// # Errors
    /// [`SignatureError`].
    pub fn verify(
        &self,
        message: &SignedMessage<'_>,
        now_unix_s: u64,
        nonces: &mut NonceWindow,
    ) -> Result<SignatureVersion, SignatureError> {
        self.check(message, now_unix_s)?.accept(nonces)
    }

    /// The first half of [`Self::verify`], for callers that share one window among threads.
    ///
    /// # Errors
    /// [`SignatureError`], but neither `Replayed` nor `Full`.
    pub fn check(
        &self,
        message: &SignedMessage<'_>,
        now_unix_s: u64,
    ) -> Result<CheckedSignature, SignatureError> {
        let text = message.signature.as_deref();
        let text = text.ok_or(SignatureError::Missing)?;
        let (version, time, nonce) = match text.strip_prefix("2:") {
            Some(rest) => {
                let (time, nonce) = self.check_two(message, rest)?;
                (SignatureVersion::Two, time, nonce)
            }
            None => {
                let (time, nonce) = self.check_one(message, text)?;
                (SignatureVersion::One, time, nonce)
            }
        };
        let signed_at_unix_s = unix_s(time)?;
        if now_unix_s.abs_diff(signed_at_unix_s) > SIGNATURE_AGE_S_MAX {
            return Err(SignatureError::Stale);
        }
        Ok(CheckedSignature {
            version,
            nonce: nonce_key(nonce),
            signed_at_unix_s,
            now_unix_s,
        })
    }

    /// Verifies `hash:time:nonce:mac`. Returns the time and the nonce.
    fn check_one<'t>(
        &self,
        message: &SignedMessage<'_>,
        text: &'t str,
    ) -> Result<(&'t str, &'t str), SignatureError> {
        let (signed, mac) = text.rsplit_once(':').ok_or(SignatureError::Malformed)?;
        let [claimed, time, nonce] = parts(signed)?;
        let claimed: [u8; 32] = unhex(claimed).ok_or(SignatureError::Malformed)?;
        let mac: [u8; 32] = unhex(mac).ok_or(SignatureError::Malformed)?;
        check_nonce(nonce)?;
        let Verifying::Hmac(key) = &self.0 else {
            return Err(SignatureError::Wrong);
        };
        hmac::verify(key, signed.as_bytes(), &mac).map_err(|_| SignatureError::Wrong)?;
        let actual = digest::digest(&digest::SHA256, message.payload);
        verify_slices_are_equal(&claimed, actual.as_ref()).map_err(|_| SignatureError::Wrong)?;
        Ok((time, nonce))
    }

    /// Verifies `algorithm:time:nonce:signature`. Returns the time and the nonce.
    fn check_two<'t>(
        &self,
        message: &SignedMessage<'_>,
        text: &'t str,
    ) -> Result<(&'t str, &'t str), SignatureError> {
        let [algorithm, time, nonce, signature] = parts(text)?;
        unix_s(time)?;
        check_nonce(nonce)?;
        let signed = signed_lines(message, time, nonce).ok_or(SignatureError::Ambiguous)?;
        // The decoder asks for room in whole groups of three.
        let mut room = [0; SIGNATURE_BYTES + 2];
        let length = URL_SAFE_NO_PAD
            .decode_slice(signature, &mut room)
            .map_err(|_| SignatureError::Malformed)?;
        let signature = &room[..length];
        let right = match (&self.0, algorithm) {
            (Verifying::Hmac(key), HS256) => hmac::verify(key, &signed, signature).is_ok(),
            (Verifying::Ecdsa(key), ES256) => key.verify_sig(&signed, signature).is_ok(),
            (_, HS256 | ES256) => false,
            _ => return Err(SignatureError::Malformed),
        };
        if right {
            Ok((time, nonce))
        } else {
            Err(SignatureError::Wrong)
        }
    }
}

impl CheckedSignature {
    /// The version of the signature.
    pub fn version(&self) -> SignatureVersion {
        self.version
    }

    /// Accepts the message if its nonce is new. Returns the version of its signature.
    ///
    /// # Errors
    /// [`SignatureError`]: `Replayed`, `Full` or, if the clock went back, `Stale`.
    pub fn accept(self, nonces: &mut NonceWindow) -> Result<SignatureVersion, SignatureError> {
        self.accept_for(0, nonces)
    }

    /// [`accept`](Self::accept) for an owner of nonces: see [`NonceWindow::insert_for`].
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_for(
        self,
        owner: u64,
        nonces: &mut NonceWindow,
    ) -> Result<SignatureVersion, SignatureError> {
        let (signed_at, now) = (self.signed_at_unix_s, self.now_unix_s);
        let inserted = nonces.insert_for(owner, self.nonce, signed_at, now);
        inserted
            .map(|()| self.version)
            .map_err(|error| match error {
                NonceError::Replayed => SignatureError::Replayed,
                NonceError::Stale => SignatureError::Stale,
                NonceError::Full => SignatureError::Full,
            })
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Signing::Hmac(_) => "SigningKey(hs256)",
            Signing::Ecdsa(_) => "SigningKey(es256)",
        })
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Verifying::Hmac(_) => "VerifyingKey(hs256)",
            Verifying::Ecdsa(_) => "VerifyingKey(es256)",
        })
    }
}

/// HMAC-SHA256 (RFC 2104) of `message`. The key may have any length.
#[must_use]
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(mac.as_ref());
    bytes
}

fn hmac_key(secret: &[u8]) -> Result<Box<hmac::Key>, SigningKeyError> {
    if secret.len() < HMAC_SECRET_BYTES_MIN {
        return Err(SigningKeyError::TooShort);
    }
    Ok(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret)))
}

/// The signed text of version 2; `None` if a line would have a line break.
fn signed_lines(message: &SignedMessage<'_>, time: &str, nonce: &str) -> Option<Vec<u8>> {
    let hash = hash(message.payload);
    let lines = [
        SIGNED_LABEL,
        &message.t,
        &message.id,
        &message.topic,
        &message.correlation_id,
        time,
        nonce,
    ];
    let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
    let mut signed = Vec::with_capacity(bytes + hash.len());
    for line in lines {
        if line.contains('\n') {
            return None;
        }
        signed.extend_from_slice(line.as_bytes());
        signed.push(b'\n');
    }
    signed.extend_from_slice(hash.as_bytes());
    Some(signed)
}

fn parts<const N: usize>(text: &str) -> Result<[&str; N], SignatureError> {
    let mut parts = [""; N];
    let mut found = text.split(':');
    for part in &mut parts {
        *part = found.next().ok_or(SignatureError::Malformed)?;
    }
    if found.next().is_some() {
        return Err(SignatureError::Malformed);
    }
    Ok(parts)
}

fn unix_s(text: &str) -> Result<u64, SignatureError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || text.len() > TIME_DIGITS_MAX {
        return Err(SignatureError::Malformed);
    }
    text.parse().map_err(|_| SignatureError::Malformed)
}

/// Nonces of this crate have 32 digits; those of other peers may be longer or shorter.
fn check_nonce(text: &str) -> Result<(), SignatureError> {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hex && NONCE_DIGITS.contains(&text.len()) {
        Ok(())
    } else {
        Err(SignatureError::Malformed)
    }
}

/// The stored form of a nonce: itself if it has the length of ours, otherwise the start of its hash.
fn nonce_key(text: &str) -> [u8; NONCE_BYTES] {
    unhex(text).unwrap_or_else(|| {
        let hash = digest::digest(&digest::SHA256, text.as_bytes());
        let mut key = [0; NONCE_BYTES];
        key.copy_from_slice(&hash.as_ref()[..NONCE_BYTES]);
        key
    })
}

fn hash(payload: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, payload).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    bytes.iter().flat_map(digits).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != N * 2 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(bytes)
}

const HS256: &str = "hs256";
const ES256: &str = "es256";
const SIGNED_LABEL: &str = "tidewire signature 2";

/// The length of the nonces of this crate, in bytes.
pub const NONCE_BYTES: usize = 16;

/// The minimum length of an HMAC secret, in bytes.
pub const HMAC_SECRET_BYTES_MIN: usize = 32;

/// The lengths of accepted nonces, in hex digits.
const NONCE_DIGITS: std::ops::RangeInclusive<usize> = 16..=128;

/// Enough for the year 30,000.
const TIME_DIGITS_MAX: usize = 12;
