//! A key agreement (ECDH on P-256, HKDF-SHA256), and AES-256-GCM with its key.

use crate::failure::Failure;
use crate::utilities::exactly;
use crate::utilities::random::random;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidewire_wire::secure::{ExchangeKeyPair, SEALED_OVERHEAD_BYTES, SessionCipher as WireCipher};
use tidewire_wire::session::{
    EncryptionVersion, HelloEncryption, HelloIdentity, KeyOffer, PUBLIC_KEY_BYTES, SIGNATURE_BYTES,
};
use tidewire_wire::uuid::Uuid;

pub use tidewire_wire::secure::IdentityKey;

/// The key pair of one side. It agrees once.
pub struct KeyPair {
    public_key: [u8; PUBLIC_KEY_BYTES],
    pair: Mutex<Option<ExchangeKeyPair>>,
}

impl KeyPair {
    /// Generates a key pair.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub fn generate() -> Result<Self, Failure> {
        // One seed in four billion is no key.
        for _ in 0..SEEDS_MAX {
            if let Ok(pair) = Self::from_seed(&*random()?) {
                return Ok(pair);
            }
        }
        Err(Failure::cryptography("no random seed makes a key"))
    }

    /// Makes the key pair with the private key `seed`. For tests only: others call [`generate`](Self::generate).
    ///
    /// # Errors
    /// The seed is not a valid private key.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, Failure> {
        let pair = ExchangeKeyPair::from_seed(seed)
            .map_err(|_| Failure::cryptography("the seed is no private key of P-256"))?;
        Ok(Self {
            public_key: *pair.public_key(),
            pair: Mutex::new(Some(pair)),
        })
    }

    /// The public key, as an uncompressed point of 65 bytes. The other side needs it.
    #[must_use]
    pub fn public_key(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.public_key
    }

    /// The agreement on the side that was contacted. `session` is the UUID of the connection, `identity` signs the
    /// agreement.
    ///
    /// # Errors
    /// The public key, the session or the version is invalid, or this pair has agreed before.
    pub fn accept(
        &self,
        peer_public_key: &[u8],
        session: &str,
        version: u64,
        identity: Option<&IdentityKey>,
    ) -> Result<SessionCipher, Failure> {
        let offer = KeyOffer {
            public_key: exactly(peer_public_key, "a public key")?,
            version: numbered(version)?,
        };
        let session = uuid(session)?;
        let accepted = self.take()?.accept(&offer, session, identity, *random()?);
        let (cipher, hello) = accepted?;
        Ok(SessionCipher::new(cipher, hello.identity))
    }

    /// The agreement on the side that made contact. `proof` is the [proof](SessionCipher::proof) of the other side, and
    /// `pinned` its identity, which it has to prove.
    ///
    /// # Errors
    /// As [`Self::accept`], or the other side has not proved its identity.
    pub fn finish(
        &self,
        peer_public_key: &[u8],
        session: &str,
        version: u64,
        proof: Option<&[u8]>,
        pinned: Option<&[u8]>,
    ) -> Result<SessionCipher, Failure> {
        let version = numbered(version)?;
        let hello = HelloEncryption {
            public_key: exactly(peer_public_key, "a public key")?,
            version,
            identity: proof.map(read_proof).transpose()?,
        };
        let pinned = pinned.map(|key| exactly(key, "a pinned key")).transpose()?;
        let session = uuid(session)?.to_string();
        let pair = self.take()?;
        let cipher = pair.finish(version, &hello, &session, pinned.as_ref(), *random()?)?;
        Ok(SessionCipher::new(cipher, None))
    }

    fn take(&self) -> Result<ExchangeKeyPair, Failure> {
        let mut pair = self.pair.lock().unwrap_or_else(PoisonError::into_inner);
        let message = "a key pair agrees once; make another key pair";
        pair.take().ok_or_else(|| Failure::argument(message))
    }
}

/// The cipher of both sides after the agreement: it encrypts and decrypts messages.
pub struct SessionCipher {
    cipher: Mutex<WireCipher>,
    proof: Option<Vec<u8>>,
}

impl SessionCipher {
    fn new(cipher: WireCipher, identity: Option<HelloIdentity>) -> Self {
        let proof = |identity: HelloIdentity| {
            let parts = [identity.public_key.as_slice(), &identity.signature];
            parts.concat()
        };
        Self {
            cipher: Mutex::new(cipher),
            proof: identity.map(proof),
        }
    }

    /// Encrypts `plain`. The result is 30 bytes longer.
    ///
    /// # Errors
    /// The key has encrypted as many messages as it may.
    pub fn seal(&self, plain: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut out = Vec::with_capacity(plain.len() + SEALED_OVERHEAD_BYTES);
        self.cipher().seal(plain, &mut out)?;
        Ok(out)
    }

    /// Decrypts a message of the other side.
    ///
    /// # Errors
    /// The message was changed, repeated or moved, or is not encrypted with this key.
    pub fn open(&self, message: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut out = Vec::with_capacity(message.len());
        self.cipher().open(message, &mut out)?;
        Ok(out)
    }

    /// The version that both sides agreed on: 1 or 2.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.cipher().version().number()
    }

    /// The proof of this side's identity, for [`KeyPair::finish`]; `None` without an identity.
    #[must_use]
    pub fn proof(&self) -> Option<&[u8]> {
        self.proof.as_deref()
    }

    /// Whether it is time for another key; never in version 1.
    #[must_use]
    pub fn wants_key_update(&self) -> bool {
        self.cipher().wants_key_update()
    }

    /// Changes the key of this side, after the other side was notified.
    ///
    /// # Errors
    /// Version 1 has one key.
    pub fn update_sealing_key(&self) -> Result<(), Failure> {
        updated(self.cipher().update_sealing_key())
    }

    /// Changes the key of the other side, after its notice has arrived.
    ///
    /// # Errors
    /// Version 1 has one key.
    pub fn update_opening_key(&self) -> Result<(), Failure> {
        updated(self.cipher().update_opening_key())
    }

    fn cipher(&self) -> MutexGuard<'_, WireCipher> {
        self.cipher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn updated(is_done: bool) -> Result<(), Failure> {
    let message = "version 1 has one key for as long as it lasts; agree on another with version=2";
    match is_done {
        true => Ok(()),
        false => Err(Failure::argument(message)),
    }
}

fn numbered(version: u64) -> Result<EncryptionVersion, Failure> {
    match version {
        1 => Ok(EncryptionVersion::One),
        2 => Ok(EncryptionVersion::Two),
        other => {
            let message = format!("version has to be 1 or 2, not {other}");
            Err(Failure::argument(message))
        }
    }
}

fn uuid(session: &str) -> Result<Uuid, Failure> {
    let message = "session has to be a UUID, 36 characters, the same on both sides";
    Uuid::parse(session).ok_or_else(|| Failure::argument(message))
}

fn read_proof(proof: &[u8]) -> Result<HelloIdentity, Failure> {
    let proof: [u8; PUBLIC_KEY_BYTES + SIGNATURE_BYTES] = exactly(proof, "a proof")?;
    let (public_key, signature) = proof.split_at(PUBLIC_KEY_BYTES);
    Ok(HelloIdentity {
        public_key: exactly(public_key, "a public key")?,
        signature: exactly(signature, "a signature")?,
    })
}

const SEEDS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "0190a5f0-0000-7000-8000-000000000001";

    #[test]
    fn both_sides_open_what_the_other_sealed() {
        for version in [1, 2] {
            let client = KeyPair::generate().expect("keys");
            let server = KeyPair::generate().expect("keys");
            let at_server = server.accept(client.public_key(), SESSION, version, None);
            let at_server = at_server.expect("they agree");
            let at_client = client.finish(server.public_key(), SESSION, version, None, None);
            let at_client = at_client.expect("they agree");
            let sealed = at_client.seal(b"plain").expect("it is sealed");
            assert_eq!(at_server.open(&sealed).expect("it is opened"), b"plain");
            let again = client.accept(server.public_key(), SESSION, version, None);
            assert_eq!(
                again.err().expect("it agrees once").code,
                "INVALID_ARGUMENT"
            );
        }
    }
}
