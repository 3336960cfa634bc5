//! The verification of signatures, one for all shards.

use crate::config::{SignatureKey, Signing};
use crate::limits::owner::OwnerId;
use crate::limits::work::{Meter, cost};
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
    /// Checking one with this key, in units of [work](crate::limits::work).
    key_work: u64,
    is_required: bool,
    nonces: Mutex<NonceWindow>,
}

impl Signatures {
    pub(crate) fn new(signing: &Signing) -> Result<Self, SigningKeyError> {
        let (key, key_work) = match &signing.key {
            SignatureKey::Hmac(secret) => (VerifyingKey::hmac(secret)?, cost::HMAC),
            SignatureKey::Ecdsa(point) => (VerifyingKey::ecdsa(point)?, cost::ECDSA),
        };
        let owner_max = (signing.nonces_max / OWNER_PART).max(1);
        Ok(Self {
            key,
            key_work,
            is_required: signing.required,
            nonces: Mutex::new(NonceWindow::new(signing.nonces_max).with_owner_max(owner_max)),
        })
    }

    /// Checks a message, and charges the work to whoever it is metered for.
    pub(crate) fn check(
        &self,
        encoding: Format,
        bytes: &[u8],
        unix_s: u64,
        owner: OwnerId,
        meter: &mut Meter,
    ) -> Result<(), SignatureError> {
        let message = SignedMessage::find(encoding, bytes)?;
        if message.signature.is_none() && !self.is_required {
            return Ok(());
        }
        meter.spend(self.key_work + cost::hashed(bytes.len()));
        let checked = self.key.check(&message, unix_s)?;
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        checked.accept_for(owner.0, &mut nonces).map(|_| ())
    }
}

/// One owner has at most this part of the remembered nonces.
const OWNER_PART: usize = 4;
