//! The verification of signatures, one for all shards.

use crate::config::{SignatureKey, Signing};
use crate::limits::owner::OwnerId;
use std::sync::{Mutex, PoisonError};
use tidewire_wire::format::Format;
use tidewire_wire::secure::{
    NonceWindow, SignatureError, SignedMessage, SigningKeyError, VerifyingKey,
};

/// The checker of signatures, one for all shards: a message replayed on another connection is a replay
/// too.
#[derive(Debug)]
pub(crate) struct Signatures {
    key: VerifyingKey,
    is_required: bool,
    nonces: Mutex<NonceWindow>,
}

impl Signatures {
    pub(crate) fn new(signing: &Signing) -> Result<Self, SigningKeyError> {
        let key = match &signing.key {
            SignatureKey::Hmac(secret) => VerifyingKey::hmac(secret)?,
            SignatureKey::Ecdsa(public_key) => VerifyingKey::ecdsa(public_key)?,
        };
        let owner_max = (signing.nonces_max / OWNER_PART).max(1);
        Ok(Self {
            key,
            is_required: signing.required,
            nonces: Mutex::new(NonceWindow::new(signing.nonces_max).with_owner_max(owner_max)),
        })
    }

    pub(crate) fn check(
        &self,
        encoding: Format,
        bytes: &[u8],
        unix_s: u64,
        owner: OwnerId,
    ) -> Result<(), SignatureError> {
        let message = SignedMessage::find(encoding, bytes)?;
        if message.signature.is_none() && !self.is_required {
            return Ok(());
        }
        let checked = self.key.check(&message, unix_s)?;
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        checked.accept_for(owner.0, &mut nonces).map(|_| ())
    }
}

/// One owner has at most this part of the remembered nonces.
const OWNER_PART: usize = 4;
