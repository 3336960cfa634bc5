//! Messages on their way out: through the layers of a connection into a frame.

use crate::clock::wire_now;
use crate::state::connection::{ConnectionState, Phase};
use crate::state::core::{Core, emptied};
use crate::state::layers::DeflateLayer;
use crate::topics::publication::Payload;
use tidewire_net::Io;
use tidewire_wire::format::{Deflater, ZLIB_PREFIX};
use tidewire_wire::frame::{self, OpCode};

impl Core {
    /// Sends a message, unless this side has said its last (RFC 6455, section 5.5.1).
    #[inline]
    pub(crate) fn send(&mut self, io: &mut Io, state: &mut ConnectionState, payload: Payload<'_>) {
        if state.phase != Phase::Open {
            return;
        }
        if state.layers.is_some() {
            return self.send_layered(io, state, payload);
        }
        let Some(buffer) = io.buffer_in(state.key.id, payload.priority) else {
            return;
        };
        payload.write_frame(buffer);
        self.count_sent(payload.len());
    }

    #[inline(never)]
    fn send_layered(&mut self, io: &mut Io, state: &mut ConnectionState, payload: Payload<'_>) {
        let session = &state.session;
        let takes_zlib = !session.is_established() || session.features().compression;
        let Some(layers) = &mut state.layers else {
            return;
        };
        let Some(buffer) = io.buffer(state.key.id) else {
            return;
        };
        let is_long = payload.len() >= self.shared.config.compression.threshold_bytes;
        let uses_zlib = is_long && layers.zlib && takes_zlib && payload.opcode == OpCode::Text;
        if let Some(encryption) = &mut layers.encryption {
            let mut write =
                |payload: Payload<'_>| encryption.write_frame(&payload.joined(), buffer);
            let sent = if uses_zlib {
                self.with_zlib(payload, write)
            } else {
                write(payload)
            };
            let wants_key_update = encryption.cipher.wants_key_update();
            return match sent {
                Ok(sent_bytes) => {
                    self.count_sent(sent_bytes);
                    if wants_key_update {
                        self.renew_sealing_key(io, state, wire_now(io));
                    }
                }
                // After more messages than any connection lives to see.
                Err(error) => {
                    tracing::error!(%error, "a connection cannot encrypt any more");
                    io.close(state.key.id);
                }
            };
        }
        let sent_bytes = match &mut layers.deflate {
            Some(deflate) if is_long => self.write_deflated(deflate, payload, buffer),
            _ if uses_zlib => self.with_zlib(payload, |payload| payload.write_frame(buffer)),
            _ => payload.write_frame(buffer),
        };
        self.count_sent(sent_bytes);
    }

    /// Appends a frame with the payload compressed, if that makes it smaller.
    fn write_deflated(
        &mut self,
        layer: &mut DeflateLayer,
        payload: Payload<'_>,
        buffer: &mut Vec<u8>,
    ) -> usize {
        let mut scratch = std::mem::take(&mut self.scratch);
        let deflated: &[u8] = match payload.publication {
            Some(publication) => {
                layer.skip();
                let window_bits = layer.window_bits();
                publication.deflated(payload.opcode, window_bits, |deflated| {
                    self.compress_alone(window_bits, &payload.joined(), deflated);
                })
            }
            None => {
                self.counters.messages_compressed.add(1);
                let level = self.shared.config.compression.level;
                layer.compress(&mut self.deflate, level, &payload.joined(), &mut scratch);
                &scratch
            }
        };
        let sent_bytes = if deflated.len() < payload.len() {
            frame::write_compressed_frame(buffer, payload.opcode, deflated, None);
            deflated.len()
        } else {
            layer.skip();
            payload.write_frame(buffer)
        };
        self.scratch = emptied(scratch);
        sent_bytes
    }

    /// Appends the compressed form that any connection with this window or a larger one understands.
    pub(crate) fn compress_alone(&mut self, window_bits: u8, payload: &[u8], out: &mut Vec<u8>) {
        self.counters.messages_compressed.add(1);
        let level = self.shared.config.compression.level;
        self.deflate
            .compressor(level, window_bits)
            .compress(payload, out);
    }

    /// Calls `write` with `C:` and the payload as a zlib stream or, if that is no smaller, the payload itself.
    fn with_zlib<T>(&mut self, payload: Payload<'_>, write: impl FnOnce(Payload<'_>) -> T) -> T {
        let mut scratch = std::mem::take(&mut self.scratch);
        let zlib: &[u8] = match payload.publication {
            Some(publication) => publication.zlib(|zlib| self.write_zlib_form(payload, zlib)),
            None => {
                self.write_zlib_form(payload, &mut scratch);
                &scratch
            }
        };
        let result = if zlib.len() < payload.len() {
            write(Payload::new(OpCode::Binary, zlib))
        } else {
            write(payload)
        };
        self.scratch = emptied(scratch);
        result
    }

    fn write_zlib_form(&mut self, payload: Payload<'_>, out: &mut Vec<u8>) {
        self.counters.messages_compressed.add(1);
        let level = self.shared.config.compression.level;
        out.extend_from_slice(ZLIB_PREFIX);
        self.deflater
            .get_or_insert_with(|| Deflater::new(level))
            .deflate(&payload.joined(), out);
    }
}
