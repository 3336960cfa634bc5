//! Compression on a shard: the compressors that its connections share.

use crate::state::core::{Core, emptied};
use crate::state::layers::DeflateLayer;
use crate::topics::publication::Payload;
use tidewire_wire::format::{Deflater, ZLIB_PREFIX};
use tidewire_wire::frame;
use tidewire_wire::frame::OpCode;

impl Core {
    /// Appends a frame with the payload compressed, if that makes it smaller.
    pub(crate) fn write_deflated(
        &mut self,
        layer: &mut DeflateLayer,
        payload: Payload<'_>,
        buffer: &mut Vec<u8>,
    ) -> usize {
        let mut scratch = std::mem::take(&mut self.codec.scratch);
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
                let level = self.setup.config.compression.level;
                layer.compress(
                    &mut self.codec.deflate,
                    level,
                    &payload.joined(),
                    &mut scratch,
                );
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
        self.codec.scratch = emptied(scratch);
        sent_bytes
    }

    /// Appends the compressed form that any connection with this window or a larger one
    /// understands.
    pub(crate) fn compress_alone(&mut self, window_bits: u8, payload: &[u8], out: &mut Vec<u8>) {
        self.counters.messages_compressed.add(1);
        let level = self.setup.config.compression.level;
        self.codec
            .deflate
            .compressor(level, window_bits)
            .compress(payload, out);
    }

    /// Calls `write` with `C:` and the payload as a zlib stream or, if that is no smaller, the
    /// payload itself.
    pub(crate) fn with_zlib<T>(
        &mut self,
        payload: Payload<'_>,
        write: impl FnOnce(Payload<'_>) -> T,
    ) -> T {
        let mut scratch = std::mem::take(&mut self.codec.scratch);
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
        self.codec.scratch = emptied(scratch);
        result
    }

    fn write_zlib_form(&mut self, payload: Payload<'_>, out: &mut Vec<u8>) {
        self.counters.messages_compressed.add(1);
        let level = self.setup.config.compression.level;
        out.extend_from_slice(ZLIB_PREFIX);
        self.codec
            .deflater
            .get_or_insert_with(|| Deflater::new(level))
            .deflate(&payload.joined(), out);
    }
}
