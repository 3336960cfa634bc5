//! Encrypted sessions of version 1, for load.
//!
//! The keys are derived from the seed of the run: they load a server and protect no secret.

use rand::Rng;
use rand::rngs::SmallRng;
use tidewire_wire::secure::{ExchangeKeyPair, SEALED_OVERHEAD_BYTES, SessionCipher};
use tidewire_wire::session::{EncryptionVersion, HelloEncryption, PUBLIC_KEY_BYTES};

/// The key pair of this side for a key exchange.
pub(crate) struct KeyPair(ExchangeKeyPair);

/// The encryption of a connection after the key exchange.
#[derive(Debug)]
pub(crate) struct Channel(SessionCipher);

impl KeyPair {
    pub(crate) fn generate(random: &mut SmallRng) -> Self {
        loop {
            // One seed in four billion is no key.
            if let Ok(pair) = ExchangeKeyPair::from_seed(&random.random()) {
                return Self(pair);
            }
        }
    }

    /// The public half, for `client_hello`.
    pub(crate) fn public_key(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        self.0.public_key()
    }

    /// The channel with a server that answered with this key; `None` if the key is invalid.
    pub(crate) fn agree(self, server_key: &[u8], random: &mut SmallRng) -> Option<Channel> {
        let hello = HelloEncryption {
            public_key: server_key.try_into().ok()?,
            version: EncryptionVersion::One,
            identity: None,
        };
        let version = EncryptionVersion::One;
        let cipher = self.0.finish(version, &hello, "", None, random.random());
        cipher.ok().map(Channel)
    }
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPair(…)")
    }
}

impl Channel {
    /// Appends the encrypted message, which is [`SEALED_OVERHEAD_BYTES`] longer.
    pub(crate) fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        if self.0.seal(message, out).is_err() {
            // Only a key that is used up seals nothing. The server refuses this, so the test fails.
            out.resize(start + message.len() + SEALED_OVERHEAD_BYTES, 0);
        }
    }

    /// Appends the decrypted message; false if it is not encrypted with the key of the server.
    pub(crate) fn open(&mut self, message: &[u8], out: &mut Vec<u8>) -> bool {
        self.0.open(message, out).is_ok()
    }
}
