//! Outbound messages: through the layers of a connection into a frame.

use crate::session::Session;
use crate::topics::publication::Payload;
use tidewire_wire::frame::OpCode;

impl Session<'_> {
    /// Sends a message, unless this side has sent its close frame (RFC 6455, section 5.5.1).
    #[inline]
    pub(crate) fn send(&mut self, payload: Payload<'_>) {
        if !self.state.is_open() {
            return;
        }
        if self.state.layers.is_some() {
            return self.send_layered(payload);
        }
        let Some(buffer) = self.io.buffer_in(self.state.key.id, payload.priority) else {
            return;
        };
        payload.write_frame(buffer);
        self.core.count_sent(payload.len());
    }

    #[inline(never)]
    fn send_layered(&mut self, payload: Payload<'_>) {
        let session = &self.state.session;
        let takes_zlib = !session.is_established() || session.features().compression;
        let Some(layers) = &mut self.state.layers else {
            return;
        };
        let Some(buffer) = self.io.buffer(self.state.key.id) else {
            return;
        };
        let is_long = payload.len() >= self.core.setup.config.compression.threshold_bytes;
        let uses_zlib = is_long && layers.zlib && takes_zlib && payload.opcode == OpCode::Text;
        if let Some(encryption) = &mut layers.encryption {
            let mut write =
                |payload: Payload<'_>| encryption.write_frame(&payload.joined(), buffer);
            let sent = if uses_zlib {
                self.core.with_zlib(payload, write)
            } else {
                write(payload)
            };
            let wants_key_update = encryption.cipher.wants_key_update();
            return match sent {
                Ok(sent_bytes) => {
                    self.core.count_sent(sent_bytes);
                    if wants_key_update {
                        self.renew_sealing_key(self.now());
                    }
                }
                // After more messages than any connection lives to see.
                Err(error) => {
                    tracing::error!(
                        connection = %self.state.key,
                        address = self.state.peer_address(self.io).map(tracing::field::display),
                        %error,
                        "a connection cannot encrypt any more",
                    );
                    self.io.close(self.state.key.id);
                }
            };
        }
        let sent_bytes = match &mut layers.deflate {
            Some(deflate) if is_long => self.core.write_deflated(deflate, payload, buffer),
            _ if uses_zlib => self
                .core
                .with_zlib(payload, |payload| payload.write_frame(buffer)),
            _ => payload.write_frame(buffer),
        };
        self.core.count_sent(sent_bytes);
    }
}
