//! Signatures of messages that come in (`sig`).

use crate::session::Turn;
use crate::session::application::Application;
use crate::state::connection::ConnectionState;
use tidewire_wire::envelope::SystemType;
use tidewire_wire::format::Format;

impl<A: Application> Turn<'_, A> {
    /// Whether the signature of a message is right, or is not asked for. If not, the message is refused.
    #[inline]
    pub(crate) fn may_be_unsigned(
        &mut self,
        state: &mut ConnectionState,
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
        state: &mut ConnectionState,
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
