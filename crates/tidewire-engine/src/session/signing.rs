//! Verification of the signatures of inbound messages (`sig`).

use crate::session::Session;
use tidewire_wire::envelope::{Kind, SystemType};
use tidewire_wire::format::Format;

impl Session<'_> {
    /// Whether the signature of a message is right, or none is required. A message with a wrong one
    /// is refused.
    pub(crate) fn verify(&mut self, encoding: Format, bytes: &[u8], kind: Kind) -> bool {
        // What changes nothing, and batches, whose messages are looked at one by one.
        let is_exempt = matches!(
            kind,
            Kind::System(
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
        match signatures.check(encoding, bytes, self.now().unix_ms / 1000) {
            Ok(()) => true,
            Err(error) => {
                let words = error.to_string();
                self.refuse(&words);
                false
            }
        }
    }
}
