//! Agreeing on a key (ECDH on P-256, HKDF-SHA256), both sides and both versions.

use super::IdentityKey;
use super::cipher::{KEY_BYTES, SessionCipher, expand};
use super::identity;
use crate::session::{
    EncryptionVersion, HelloEncryption, HelloIdentity, KeyOffer, PUBLIC_KEY_BYTES,
};
use crate::uuid::Uuid;
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::digest;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use std::fmt;
use zeroize::Zeroizing;

/// A key pair for one key exchange on one connection; agreeing consumes it.
pub struct ExchangeKeyPair {
    private: PrivateKey,
    public: [u8; PUBLIC_KEY_BYTES],
}

/// The seed is no private key: one in four billion is not. Nobody's fault; draw another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the random bytes make no private key; draw again")]
pub struct SeedError;

/// Why there is no key. Trying again with the same peer does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The peer's fault: its public key is no point of the curve. A server reports it as `KEY_EXCHANGE_FAILED`.
    #[error("the peer's public key is unusable")]
    PeerKey,
    /// The server's fault: it answered a version that was not offered.
    #[error("the server chose a version that was not offered")]
    Version,
    /// The server's fault, or that of someone in between: it has not proved to be the pinned one, or
    /// its proof is wrong.
    #[error("the server has not proved its identity")]
    Identity,
    /// The server's fault: a connection id that does not have 36 bytes.
    #[error("the connection id is not a UUID")]
    ConnectionId,
    /// Ours: the provider failed.
    #[error("the cryptography failed")]
    Provider,
}

impl ExchangeKeyPair {
    /// The key pair whose private key is `seed`, 32 random bytes, which are the caller's to wipe.
    ///
    /// # Errors
    /// [`SeedError`]: they are zero or past the order of the curve; draw again.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, SeedError> {
        let private = PrivateKey::from_private_key(&ECDH_P256, seed).map_err(|_| SeedError)?;
        let public = private.compute_public_key().map_err(|_| SeedError)?;
        let public = public.as_ref().try_into().map_err(|_| SeedError)?;
        Ok(Self { private, public })
    }

    /// The public half, an uncompressed point.
    pub fn public_key(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.public
    }

    /// A client's offer of `version` and all versions before it, for its hello.
    pub fn offer(&self, version: EncryptionVersion) -> KeyOffer {
        KeyOffer {
            public_key: self.public,
            version,
        }
    }

    /// A server's side: the cipher for everything after the `server_hello`, and the encryption part of that
    /// hello. `identity`, if any, signs the exchange of version 2. `iv_random` are 4 random bytes for version 1.
    ///
    /// # Errors
    /// [`ExchangeError::PeerKey`] or [`ExchangeError::Provider`].
    pub fn accept(
        self,
        offer: &KeyOffer,
        connection_id: Uuid,
        identity: Option<&IdentityKey>,
        iv_random: [u8; 4],
    ) -> Result<(SessionCipher, HelloEncryption), ExchangeError> {
        let mut hello = HelloEncryption {
            public_key: self.public,
            version: offer.version,
            identity: None,
        };
        if offer.version == EncryptionVersion::One {
            return Ok((self.version_one(&offer.public_key, true, iv_random)?, hello));
        }
        let connection_id = connection_id.to_string();
        let transcript = transcript(&offer.public_key, &self.public, connection_id.as_bytes());
        let [to_server, to_client] = self.version_two(&offer.public_key, &transcript)?;
        let cipher = SessionCipher::version_two(to_client, to_server).map_err(provider)?;
        if let Some(identity) = identity {
            let signature = identity.sign(&identity_message(&transcript));
            hello.identity = Some(HelloIdentity {
                public_key: *identity.public_key(),
                signature: signature.map_err(provider)?,
            });
        }
        Ok((cipher, hello))
    }

    /// A client's side: the cipher for everything after the `server_hello`. `offered` is the version
    /// that was offered, `connection_id` what the server called this connection, `pinned` the identity
    /// key that the server must prove to have, if any. Without one an identity may be missing, but not
    /// be wrong. `iv_random` are 4 random bytes for version 1.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn finish(
        self,
        offered: EncryptionVersion,
        hello: &HelloEncryption,
        connection_id: &str,
        pinned: Option<&[u8; PUBLIC_KEY_BYTES]>,
        iv_random: [u8; 4],
    ) -> Result<SessionCipher, ExchangeError> {
        if hello.version.number() > offered.number() {
            return Err(ExchangeError::Version);
        }
        if hello.version == EncryptionVersion::One {
            if pinned.is_some() {
                return Err(ExchangeError::Identity);
            }
            return self.version_one(&hello.public_key, false, iv_random);
        }
        if connection_id.len() != CONNECTION_ID_BYTES {
            return Err(ExchangeError::ConnectionId);
        }
        let transcript = transcript(&self.public, &hello.public_key, connection_id.as_bytes());
        check_identity(hello.identity.as_ref(), pinned, &transcript)?;
        let [to_server, to_client] = self.version_two(&hello.public_key, &transcript)?;
        SessionCipher::version_two(to_server, to_client).map_err(provider)
    }

    fn version_one(
        &self,
        peer: &[u8; PUBLIC_KEY_BYTES],
        is_server: bool,
        iv_random: [u8; 4],
    ) -> Result<SessionCipher, ExchangeError> {
        let prk = self.extract(peer, &Salt::none(HKDF_SHA256))?;
        let key = expand(&prk, KEY_INFO_ONE).map_err(provider)?;
        SessionCipher::version_one(key, is_server, iv_random).map_err(provider)
    }

    /// The keys from client to server and from server to client.
    fn version_two(
        &self,
        peer: &[u8; PUBLIC_KEY_BYTES],
        transcript: &[u8; TRANSCRIPT_BYTES],
    ) -> Result<[Zeroizing<[u8; KEY_BYTES]>; 2], ExchangeError> {
        let prk = self.extract(peer, &Salt::new(HKDF_SHA256, transcript))?;
        Ok([
            expand(&prk, KEY_INFO_TO_SERVER).map_err(provider)?,
            expand(&prk, KEY_INFO_TO_CLIENT).map_err(provider)?,
        ])
    }

    /// The provider checks that the point is on the curve and not at infinity; the first byte is checked here,
    /// because the provider accepts compressed points too.
    fn extract(&self, peer: &[u8; PUBLIC_KEY_BYTES], salt: &Salt) -> Result<Prk, ExchangeError> {
        if peer[0] != UNCOMPRESSED {
            return Err(ExchangeError::PeerKey);
        }
        let peer = UnparsedPublicKey::new(&ECDH_P256, peer);
        agree(&self.private, peer, ExchangeError::PeerKey, |secret| {
            Ok(salt.extract(secret))
        })
    }
}

impl fmt::Debug for ExchangeKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangeKeyPair").finish_non_exhaustive()
    }
}

fn check_identity(
    identity: Option<&HelloIdentity>,
    pinned: Option<&[u8; PUBLIC_KEY_BYTES]>,
    transcript: &[u8; TRANSCRIPT_BYTES],
) -> Result<(), ExchangeError> {
    let Some(identity) = identity else {
        return if pinned.is_none() {
            Ok(())
        } else {
            Err(ExchangeError::Identity)
        };
    };
    let is_pinned = pinned.is_none_or(|pinned| *pinned == identity.public_key);
    let message = identity_message(transcript);
    if is_pinned && identity::verify(&identity.public_key, &message, &identity.signature) {
        Ok(())
    } else {
        Err(ExchangeError::Identity)
    }
}

/// The messages of both sides, so that a key is good for this exchange alone.
fn transcript(client: &[u8], server: &[u8], connection_id: &[u8]) -> [u8; TRANSCRIPT_BYTES] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [TRANSCRIPT_LABEL, client, server, connection_id] {
        context.update(part);
    }
    let mut transcript = [0; TRANSCRIPT_BYTES];
    transcript.copy_from_slice(context.finish().as_ref());
    transcript
}

fn identity_message(transcript: &[u8; TRANSCRIPT_BYTES]) -> Vec<u8> {
    [IDENTITY_LABEL, transcript].concat()
}

fn provider(_: Unspecified) -> ExchangeError {
    ExchangeError::Provider
}

const TRANSCRIPT_LABEL: &[u8] = b"tidewire key exchange 2\0";
const IDENTITY_LABEL: &[u8] = b"tidewire server identity 2\0";
const KEY_INFO_ONE: &[u8] = b"wse-encryption/aes-gcm-key";
const KEY_INFO_TO_SERVER: &[u8] = b"tidewire/2 client to server";
const KEY_INFO_TO_CLIENT: &[u8] = b"tidewire/2 server to client";

/// Bytes of a UUID in its text form.
const CONNECTION_ID_BYTES: usize = 36;

/// Bytes of a SHA-256 digest.
const TRANSCRIPT_BYTES: usize = 32;

/// The first byte of an uncompressed point (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;
