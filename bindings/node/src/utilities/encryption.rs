//! A key agreement, and encryption with its key.

use crate::errors::Failure;
use napi::bindgen_prelude::{Buffer, BufferSlice, ClassInstance};
use napi_derive::napi;
use tidewire_bindings::utilities::encryption::{IdentityKey, KeyPair, SessionCipher};
use tidewire_bindings::utilities::exactly;

/// The keys of one side, for one agreement.
#[napi]
pub struct NativeKeyPair {
    pair: KeyPair,
}

#[napi]
impl NativeKeyPair {
    /// Fresh keys; those of a seed for tests alone.
    #[napi(constructor)]
    pub fn new(seed: Option<BufferSlice<'_>>) -> napi::Result<Self> {
        let pair = match seed {
            Some(seed) => KeyPair::from_seed(&exactly(&seed, "a seed").map_err(Failure::from)?),
            None => KeyPair::generate(),
        };
        Ok(Self {
            pair: pair.map_err(Failure::from)?,
        })
    }

    /// The public key for the other side.
    #[napi(getter)]
    pub fn public_key(&self) -> Buffer {
        self.pair.public_key().as_slice().into()
    }

    /// The agreement on the side that was contacted.
    #[napi]
    pub fn accept(
        &self,
        peer_public_key: BufferSlice<'_>,
        session: String,
        version: u32,
        identity: Option<ClassInstance<'_, NativeIdentityKey>>,
    ) -> napi::Result<NativeSessionCipher> {
        let identity = identity.as_ref().map(|identity| &identity.key);
        let version = version.into();
        let agreed = self
            .pair
            .accept(&peer_public_key, &session, version, identity);
        Ok(NativeSessionCipher {
            cipher: agreed.map_err(Failure::from)?,
        })
    }

    /// The agreement on the side that made contact.
    #[napi]
    pub fn finish(
        &self,
        peer_public_key: BufferSlice<'_>,
        session: String,
        version: u32,
        proof: Option<BufferSlice<'_>>,
        pinned: Option<BufferSlice<'_>>,
    ) -> napi::Result<NativeSessionCipher> {
        let (proof, pinned) = (proof.as_deref(), pinned.as_deref());
        let version = version.into();
        let agreed = self
            .pair
            .finish(&peer_public_key, &session, version, proof, pinned);
        Ok(NativeSessionCipher {
            cipher: agreed.map_err(Failure::from)?,
        })
    }
}

/// A lasting key, by which one side is known.
#[napi]
pub struct NativeIdentityKey {
    key: IdentityKey,
}

#[napi]
impl NativeIdentityKey {
    /// Accepts PEM text.
    #[napi(constructor)]
    pub fn new(private_key: String) -> napi::Result<Self> {
        let key = IdentityKey::from_pkcs8_pem(&private_key).map_err(Failure::from)?;
        Ok(Self { key })
    }

    /// The key that the other side pins.
    #[napi(getter)]
    pub fn public_key(&self) -> Buffer {
        self.key.public_key().as_slice().into()
    }
}

/// The cipher of both sides once they have agreed.
#[napi]
pub struct NativeSessionCipher {
    cipher: SessionCipher,
}

#[napi]
impl NativeSessionCipher {
    /// Some bytes, encrypted.
    #[napi]
    pub fn seal(&self, plain: BufferSlice<'_>) -> napi::Result<Buffer> {
        let sealed = self.cipher.seal(&plain);
        Ok(sealed.map_err(Failure::from)?.into())
    }

    /// The content of a sealed message.
    #[napi]
    pub fn open(&self, message: BufferSlice<'_>) -> napi::Result<Buffer> {
        let opened = self.cipher.open(&message);
        Ok(opened.map_err(Failure::from)?.into())
    }

    /// 1 or 2.
    #[napi(getter)]
    pub fn version(&self) -> u32 {
        self.cipher.version().into()
    }

    /// The proof for `finish`.
    #[napi(getter)]
    pub fn proof(&self) -> Option<Buffer> {
        self.cipher.proof().map(Buffer::from)
    }

    /// Whether it is time for another key.
    #[napi(getter)]
    pub fn wants_key_update(&self) -> bool {
        self.cipher.wants_key_update()
    }

    /// Changes the key of this side.
    #[napi]
    pub fn update_sealing_key(&self) -> napi::Result<()> {
        let updated = self.cipher.update_sealing_key();
        Ok(updated.map_err(Failure::from)?)
    }

    /// Changes the key of the other side.
    #[napi]
    pub fn update_opening_key(&self) -> napi::Result<()> {
        let updated = self.cipher.update_opening_key();
        Ok(updated.map_err(Failure::from)?)
    }
}
