//! The key exchange of encrypted connections.

use crate::state::core::Core;
use rand::Rng;
use tidewire_wire::secure::{ExchangeError, ExchangeKeyPair, SessionCipher};
use tidewire_wire::session::{HelloEncryption, KeyOffer, ServerSession};
use zeroize::Zeroizing;

impl Core {
    pub(crate) fn agree(
        &mut self,
        offer: &KeyOffer,
        session: &ServerSession,
    ) -> Result<(SessionCipher, HelloEncryption), ExchangeError> {
        let pair = loop {
            let seed: Zeroizing<[u8; 32]> = Zeroizing::new(self.rng.random());
            // One in four billion is no key.
            if let Ok(pair) = ExchangeKeyPair::from_seed(&seed) {
                break pair;
            }
        };
        let identity = self.shared.identity.as_ref();
        pair.accept(offer, session.connection_id(), identity, self.rng.random())
    }
}
