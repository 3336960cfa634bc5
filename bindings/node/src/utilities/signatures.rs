//! HMAC, and the signatures of messages.

use crate::errors::Failure;
use napi::bindgen_prelude::{Buffer, BufferSlice};
use napi_derive::napi;
use tidewire_bindings::utilities::signatures::{self, SignedMessage, Signer, Verifier, find_parts};

/// The signed parts of a message besides its payload; an empty text is none.
#[napi(object)]
pub struct NativeSignedParts {
    #[napi(js_name = "type")]
    pub name: String,
    pub id: String,
    pub topic: String,
    pub correlation_id: String,
}

/// HMAC-SHA256 of a message.
#[napi]
pub fn hmac_sha256(key: BufferSlice<'_>, message: BufferSlice<'_>) -> Buffer {
    signatures::hmac_sha256(&key, &message).as_slice().into()
}

/// A key that signs.
#[napi]
pub struct NativeSigner {
    signer: Signer,
}

#[napi]
impl NativeSigner {
    #[napi(constructor)]
    pub fn new(secret: Option<BufferSlice<'_>>, private_key: Option<String>) -> napi::Result<Self> {
        let signer = Signer::new(secret.as_deref(), private_key.as_deref());
        Ok(Self {
            signer: signer.map_err(Failure::from)?,
        })
    }

    /// A signature of the parts of a message.
    #[napi]
    pub fn sign(
        &self,
        payload: BufferSlice<'_>,
        parts: NativeSignedParts,
        version: u32,
        now_s: f64,
    ) -> napi::Result<String> {
        let message = joined(&payload, &parts, None);
        let signature = self.signer.sign(&message, version.into(), now_s as u64);
        Ok(signature.map_err(Failure::from)?)
    }

    /// A signature of a whole message.
    #[napi]
    pub fn sign_message(
        &self,
        message: BufferSlice<'_>,
        version: u32,
        now_s: f64,
    ) -> napi::Result<String> {
        let parts = find_parts(&message).map_err(Failure::from)?;
        let signature = self.signer.sign(&parts, version.into(), now_s as u64);
        Ok(signature.map_err(Failure::from)?)
    }

    /// The key for a verifier, if it is not a secret.
    #[napi(getter)]
    pub fn public_key(&self) -> Option<Buffer> {
        self.signer.public_key().map(|key| key.as_slice().into())
    }
}

/// A key that checks, and the signatures that it has accepted.
#[napi]
pub struct NativeVerifier {
    verifier: Verifier,
}

#[napi]
impl NativeVerifier {
    #[napi(constructor)]
    pub fn new(
        secret: Option<BufferSlice<'_>>,
        public_key: Option<BufferSlice<'_>>,
        nonces_max: f64,
    ) -> napi::Result<Self> {
        let (secret, public_key) = (secret.as_deref(), public_key.as_deref());
        let verifier = Verifier::new(secret, public_key, nonces_max as usize);
        Ok(Self {
            verifier: verifier.map_err(Failure::from)?,
        })
    }

    /// Checks the signature of a payload, but not that it is new: its version.
    #[napi]
    pub fn check(
        &self,
        payload: BufferSlice<'_>,
        signature: String,
        now_s: f64,
    ) -> napi::Result<u32> {
        let message = SignedMessage {
            payload: &payload,
            signature: Some(signature.into()),
            ..SignedMessage::default()
        };
        let version = self.verifier.check(&message, now_s as u64);
        Ok(version.map_err(Failure::from)?.into())
    }

    /// Checks the signature of the parts of a message, and that it is new: its version.
    #[napi]
    pub fn verify(
        &self,
        payload: BufferSlice<'_>,
        signature: String,
        parts: NativeSignedParts,
        now_s: f64,
    ) -> napi::Result<u32> {
        let message = joined(&payload, &parts, Some(&signature));
        let version = self.verifier.accept(&message, now_s as u64);
        Ok(version.map_err(Failure::from)?.into())
    }

    /// Checks the signature in a whole message, and that it is new: its version.
    #[napi]
    pub fn verify_message(&self, message: BufferSlice<'_>, now_s: f64) -> napi::Result<u32> {
        let parts = find_parts(&message).map_err(Failure::from)?;
        let version = self.verifier.accept(&parts, now_s as u64);
        Ok(version.map_err(Failure::from)?.into())
    }

    /// The number of signatures that are remembered.
    #[napi(getter)]
    pub fn nonces(&self) -> u32 {
        self.verifier.nonces() as u32
    }
}

fn joined<'a>(
    payload: &'a [u8],
    parts: &'a NativeSignedParts,
    signature: Option<&'a str>,
) -> SignedMessage<'a> {
    SignedMessage {
        t: parts.name.as_str().into(),
        id: parts.id.as_str().into(),
        topic: parts.topic.as_str().into(),
        correlation_id: parts.correlation_id.as_str().into(),
        payload,
        signature: signature.map(Into::into),
    }
}
