//! Verification of the signatures of inbound messages (`sig`).

use crate::session::Session;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{Kind, SystemType};
use tidewire_wire::format::Format;
use tidewire_wire::secure::SignatureError;
use tidewire_wire::session::{Refused, Reply};

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
        let unix_s = self.io.now().unix_ms / 1000;
        let meter = &mut self.core.turn.meter;
        match signatures.check(encoding, bytes, unix_s, self.state.limits.owner, meter) {
            Ok(()) => true,
            // It is no fault of the message, so it does not count against the error budget.
            Err(error @ SignatureError::Full) => {
                self.core.counters.signatures_refused.add(1);
                self.core.counters.messages_refused_rate.add(1);
                let mut refused = Refused::default();
                refused.add(encoding, bytes);
                self.reply(&Reply::Error {
                    code: ErrorCode::RateLimited,
                    message: error.to_string().into(),
                    retry_after_s: Some(FULL_RETRY_S),
                    refused: Some(refused),
                    correlation_id: None,
                });
                false
            }
            Err(error) => {
                let words = error.to_string();
                self.refuse(encoding, bytes, &words);
                false
            }
        }
    }
}

/// When a client may try again after too many signatures, in seconds: nonces are forgotten in groups.
const FULL_RETRY_S: u64 = 10;
