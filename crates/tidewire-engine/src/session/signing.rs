//! Signatures of messages that come in (`sig`).

use crate::config::{SignatureKey, Signing};
use crate::session::Turn;
use crate::session::application::Application;
use crate::state::connection::State;
use std::sync::{Mutex, PoisonError};
use tidewire_wire::envelope::SystemType;
use tidewire_wire::format::Format;
use tidewire_wire::secure::{
    NonceWindow, SignatureError, SignedMessage, SigningKeyError, VerifyingKey,
};

/// What checks signatures, one for all shards: a message replayed on another connection is a replay too.
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
        Ok(Self {
            key,
            is_required: signing.required,
            nonces: Mutex::new(NonceWindow::new(signing.nonces_max)),
        })
    }

    fn check(&self, encoding: Format, bytes: &[u8], unix_s: u64) -> Result<(), SignatureError> {
        let message = SignedMessage::find(encoding, bytes)?;
        if message.signature.is_none() && !self.is_required {
            return Ok(());
        }
        let checked = self.key.check(&message, unix_s)?;
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        checked.accept(&mut nonces).map(|_| ())
    }
}

impl<A: Application> Turn<'_, A> {
    /// Whether the signature of a message is right, or is not asked for. If not, the message is refused.
    #[inline]
    pub(crate) fn may_be_unsigned(
        &mut self,
        state: &mut State,
        encoding: Format,
        bytes: &[u8],
        system: Option<SystemType>,
    ) -> bool {
        if self.core.shared.signatures.is_none() {
            return true;
        }
        self.check_signature(state, encoding, bytes, system)
    }

    fn check_signature(
        &mut self,
        state: &mut State,
        encoding: Format,
        bytes: &[u8],
        system: Option<SystemType>,
    ) -> bool {
        // What changes nothing, and batches, whose messages are looked at one by one.
        let is_exempt = matches!(
            system,
            Some(
                SystemType::Ping
                    | SystemType::Pong
                    | SystemType::ClientHello
                    | SystemType::KeyUpdate
                    | SystemType::Batch
            )
        );
        let Some(signatures) = self.core.shared.signatures.as_ref().filter(|_| !is_exempt) else {
            return true;
        };
        match signatures.check(encoding, bytes, self.now.unix_ms / 1000) {
            Ok(()) => true,
            Err(error) => {
                let words = error.to_string();
                self.refuse(state, &words);
                false
            }
        }
    }
}
