//! Layers between a connection's messages and its frames: compression and encryption.

use crate::config::{Config, Deflate};
use tidewire_wire::deflate::{
    Accepted, Compressor, Decompressor, DeflateParameters, WINDOW_BITS_MAX,
};
use tidewire_wire::frame::{OpCode, ProtocolError, write_header};
use tidewire_wire::secure::{SEALED_OVERHEAD_BYTES, SealError, SessionCipher};
use tidewire_wire::session::HelloEncryption;

/// The layers of one connection.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// permessage-deflate, if it was agreed.
    pub(crate) deflate: Option<DeflateLayer>,
    /// Long JSON leaves as `C:`, if the client's hello does not forbid it.
    pub(crate) zlib: bool,
    /// Everything leaves encrypted, once the keys are agreed.
    pub(crate) encryption: Option<EncryptionLayer>,
}

/// permessage-deflate on one connection.
#[derive(Debug)]
pub(crate) struct DeflateLayer {
    parameters: DeflateParameters,
    /// Its own, made when it is first needed; unused while messages do not refer to those before.
    compressor: Option<Compressor>,
    decompressor: Option<Decompressor>,
}

/// The compressors and the decompressor that a shard's connections share, made when first needed.
#[derive(Debug, Default)]
pub(crate) struct SharedDeflate {
    /// By log 2 of the window, because a client may ask for a smaller one.
    compressors: [Option<Compressor>; WINDOW_BITS_MAX as usize + 1],
    decompressor: Option<Decompressor>,
}

impl Layers {
    /// The parameters of the opening handshake; `None` if nothing was agreed.
    pub(crate) fn new(deflate: Option<Accepted>, takes_zlib: bool) -> Option<Box<Self>> {
        (deflate.is_some() || takes_zlib).then(|| {
            Box::new(Self {
                zlib: takes_zlib && deflate.is_none(),
                deflate: deflate.map(|agreed| DeflateLayer::new(agreed.parameters)),
                encryption: None,
            })
        })
    }
}

impl DeflateLayer {
    fn new(parameters: DeflateParameters) -> Self {
        Self {
            parameters,
            compressor: None,
            decompressor: None,
        }
    }

    /// Log 2 of the window that this client's decompressor has.
    pub(crate) fn window_bits(&self) -> u8 {
        self.parameters.server_max_window_bits
    }

    /// Whether a message must be inflated even if it is refused, or the next one could not be.
    pub(crate) fn remembers_received(&self) -> bool {
        !self.parameters.client_no_context_takeover
    }

    /// Appends the compressed form of one message, which may refer to those before it if that was
    /// agreed.
    pub(crate) fn compress(
        &mut self,
        shared: &mut SharedDeflate,
        level: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) {
        let window_bits = self.window_bits();
        if self.parameters.server_no_context_takeover {
            return shared.compressor(level, window_bits).compress(payload, out);
        }
        self.compressor
            .get_or_insert_with(|| Compressor::new(level, window_bits, true))
            .compress(payload, out);
    }

    /// A message was sent that this connection's compressor has not seen.
    pub(crate) fn skip(&mut self) {
        if let Some(compressor) = &mut self.compressor {
            compressor.forget();
        }
    }

    /// Appends what a compressed message holds.
    pub(crate) fn decompress(
        &mut self,
        shared: &mut SharedDeflate,
        payload: &[u8],
        out: &mut Vec<u8>,
        out_bytes_max: usize,
    ) -> Result<(), ProtocolError> {
        let decompressor = if self.remembers_received() {
            let window_bits = self.parameters.client_max_window_bits;
            self.decompressor
                .get_or_insert_with(|| Decompressor::new(window_bits, true))
        } else {
            shared
                .decompressor
                .get_or_insert_with(|| Decompressor::new(WINDOW_BITS_MAX, false))
        };
        decompressor.decompress(payload, out, out_bytes_max)
    }
}

impl SharedDeflate {
    pub(crate) fn compressor(&mut self, level: u32, window_bits: u8) -> &mut Compressor {
        self.compressors[usize::from(window_bits.min(WINDOW_BITS_MAX))]
            .get_or_insert_with(|| Compressor::new(level, window_bits, false))
    }
}

/// The parameters of permessage-deflate that the server prefers; `None` if it declines the
/// extension. A server that requires encryption declines it: browsers would compress ciphertext
/// (PROTOCOL.md, section 9.2 (7)).
pub(crate) fn wanted(config: &Config) -> Option<DeflateParameters> {
    if config.encryption.is_required() {
        return None;
    }
    let keeps_context = match config.compression.deflate {
        Deflate::Off => return None,
        Deflate::Shared => false,
        Deflate::PerConnection => true,
    };
    let window_bits = config.compression.window_bits;
    Some(DeflateParameters {
        server_no_context_takeover: !keeps_context,
        client_no_context_takeover: !keeps_context,
        server_max_window_bits: window_bits,
        client_max_window_bits: window_bits,
    })
}

/// The encryption of one connection.
#[derive(Debug)]
pub(crate) struct EncryptionLayer {
    pub(crate) cipher: SessionCipher,
    /// The result of the first hello, for those that follow.
    pub(crate) hello: HelloEncryption,
}

impl EncryptionLayer {
    /// Appends the frame of an encrypted message; how many bytes its payload has.
    pub(crate) fn write_frame(
        &mut self,
        plain: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<usize, SealError> {
        let before = buffer.len();
        let sealed_bytes = plain.len() + SEALED_OVERHEAD_BYTES;
        write_header(buffer, true, OpCode::Binary, sealed_bytes, None);
        self.cipher
            .seal(plain, buffer)
            .inspect_err(|_| buffer.truncate(before))?;
        Ok(sealed_bytes)
    }
}
