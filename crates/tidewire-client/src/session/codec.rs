//! The layers between a message and its frames, both ways: signature, zlib, encryption, permessage-deflate.

use crate::config::{Compression, Config};
use crate::error::Ending;
use crate::error::Error;
use rand::rngs::StdRng;
use rand::{RngCore as _, SeedableRng as _};
use tidewire_wire::close::CloseCode;
use tidewire_wire::deflate::{Compressor, Decompressor, DeflateParameters};
use tidewire_wire::format::{Deflater, Format, Framing, Inflater, ZLIB_PREFIX, identify};
use tidewire_wire::frame::{OpCode, write_compressed_frame, write_frame, write_frame_with};
use tidewire_wire::message::Compressed;
use tidewire_wire::secure::SEALED_OVERHEAD_BYTES;
use tidewire_wire::secure::{
    NONCE_BYTES, SealError, SessionCipher, SignatureVersion, SignedMessage, SigningKey,
};
use tidewire_wire::session::EncryptionVersion;

/// The layers of one connection for its messages.
#[derive(Debug)]
pub(crate) struct Codec {
    format: Format,
    message_bytes_max: usize,
    /// The largest message that the server accepts; 0 if it is not known.
    pub(super) server_bytes_max: usize,
    deflate: Option<(Compressor, Decompressor)>,
    zlib: Option<Deflater>,
    inflater: Option<Inflater>,
    cipher: Option<SessionCipher>,
    signer: Option<Signer>,
    /// Masks and nonces.
    random: StdRng,
    plain: Vec<u8>,
    packed: Vec<u8>,
    sealed: Vec<u8>,
}

#[derive(Debug)]
struct Signer {
    key: SigningKeyBox,
    version: SignatureVersion,
}

struct SigningKeyBox(SigningKey);

impl std::fmt::Debug for SigningKeyBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

/// Which messages a signature goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signed {
    Yes,
    /// Pings, hellos and key updates need none.
    No,
}

/// Why a message from the server is not used.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The server receives an error, and the session continues.
    Refused(&'static str),
    /// The session ends.
    Over(Ending),
}

/// Why a message was not written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The cipher cannot be used any more.
    Seal(SealError),
    /// The message would have this number of bytes, more than the server accepts. Nothing of it was written.
    TooLarge(usize),
}

impl From<SealError> for WriteError {
    fn from(error: SealError) -> Self {
        Self::Seal(error)
    }
}

/// The payload of a whole masked frame (RFC 6455, section 5.2).
fn masked_payload_bytes(frame_bytes: usize) -> usize {
    match frame_bytes {
        0..=131 => frame_bytes.saturating_sub(6),
        132..=65_543 => frame_bytes - 8,
        _ => frame_bytes - 14,
    }
}

impl Codec {
    /// The layers that `config` asks for; `deflate` is what the handshake agreed on, `seed` 32 random bytes.
    pub(crate) fn new(
        config: &Config,
        deflate: Option<DeflateParameters>,
        seed: [u8; 32],
    ) -> Result<Self, Error> {
        let signer = match &config.signing {
            None => None,
            Some(signing) => Some(Signer {
                key: SigningKeyBox(
                    SigningKey::hmac(&signing.secret)
                        .map_err(|error| Error::invalid(format!("signing: {error}")))?,
                ),
                version: if signing.version_one {
                    SignatureVersion::One
                } else {
                    SignatureVersion::Two
                },
            }),
        };
        let deflate = deflate.map(|agreed| {
            let keeps = !agreed.client_no_context_takeover;
            (
                Compressor::new(1, agreed.client_max_window_bits, keeps),
                Decompressor::new(
                    agreed.server_max_window_bits,
                    !agreed.server_no_context_takeover,
                ),
            )
        });
        let is_zlib = config.compression == Compression::Zlib;
        Ok(Self {
            format: config.format,
            message_bytes_max: config.message_bytes_max,
            server_bytes_max: 0,
            deflate,
            zlib: is_zlib.then(|| Deflater::new(1)),
            inflater: None,
            cipher: None,
            signer,
            random: StdRng::from_seed(seed),
            plain: Vec::new(),
            packed: Vec::new(),
            sealed: Vec::new(),
        })
    }

    /// Everything after this is encrypted.
    pub(crate) fn encrypt(&mut self, cipher: SessionCipher) {
        self.cipher = Some(cipher);
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.cipher.is_some()
    }

    pub(crate) fn has_deflate(&self) -> bool {
        self.deflate.is_some()
    }

    pub(crate) fn wants_key_update(&self) -> bool {
        self.cipher
            .as_ref()
            .is_some_and(SessionCipher::wants_key_update)
    }

    /// To be called right after a `key_update` of this side was written.
    pub(crate) fn update_sealing_key(&mut self) -> bool {
        self.cipher
            .as_mut()
            .is_some_and(SessionCipher::update_sealing_key)
    }

    /// To be called right after a `key_update` of the server's was read.
    pub(crate) fn update_opening_key(&mut self) -> bool {
        self.cipher
            .as_mut()
            .is_some_and(SessionCipher::update_opening_key)
    }

    /// Appends the frame of a message that `encode` writes, with all layers. On an error `out` is as it was before.
    pub(crate) fn write(
        &mut self,
        signed: Signed,
        unix_ms: u64,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>) -> OpCode,
    ) -> Result<(), WriteError> {
        let signs = signed == Signed::Yes && self.signer.is_some();
        let mask = self.mask();
        let has_layers = self.deflate.is_some() || self.zlib.is_some() || self.cipher.is_some();
        if !signs && !has_layers {
            let before = out.len();
            write_frame_with(out, Some(mask), encode);
            let payload_bytes = masked_payload_bytes(out.len() - before);
            return self
                .check_size(payload_bytes)
                .inspect_err(|_| out.truncate(before));
        }
        self.plain.clear();
        let mut opcode = encode(&mut self.plain);
        if signs {
            self.sign(unix_ms);
        }
        self.check_size(self.plain.len())?;
        let mut payload = &self.plain;
        if let Some(deflater) = &mut self.zlib
            && payload.len() >= COMPRESSED_BYTES_MIN
        {
            self.packed.clear();
            self.packed.extend_from_slice(ZLIB_PREFIX);
            deflater.deflate(payload, &mut self.packed);
            if self.packed.len() < payload.len() {
                (payload, opcode) = (&self.packed, OpCode::Binary);
            }
        }
        let sealed_bytes = payload.len() + SEALED_OVERHEAD_BYTES;
        if self.cipher.is_some() {
            self.check_size(sealed_bytes)?;
        }
        if let Some(cipher) = &mut self.cipher {
            self.sealed.clear();
            cipher.seal(payload, &mut self.sealed)?;
            (payload, opcode) = (&self.sealed, OpCode::Binary);
        } else if let Some((compressor, _)) = &mut self.deflate
            && payload.len() >= COMPRESSED_BYTES_MIN
        {
            self.sealed.clear();
            compressor.compress(payload, &mut self.sealed);
            write_compressed_frame(out, opcode, &self.sealed, Some(mask));
            return Ok(());
        }
        write_frame(out, opcode, payload, Some(mask));
        Ok(())
    }

    fn check_size(&self, bytes: usize) -> Result<(), WriteError> {
        match self.server_bytes_max {
            1.. if bytes > self.server_bytes_max => Err(WriteError::TooLarge(bytes)),
            _ => Ok(()),
        }
    }

    /// Inflates a message of permessage-deflate.
    pub(crate) fn inflate(&mut self, message: Compressed<'_>) -> Result<Vec<u8>, Ending> {
        let over = |error: tidewire_wire::frame::ProtocolError| {
            Ending::ours(error.close_code(), error.to_string())
        };
        let mut inflated = Vec::new();
        let Some((_, decompressor)) = &mut self.deflate else {
            return Err(Ending::ours(
                CloseCode::PROTOCOL_ERROR,
                "a compressed message without an agreement on compression",
            ));
        };
        decompressor
            .decompress(message.bytes, &mut inflated, self.message_bytes_max)
            .map_err(over)?;
        message.event(&inflated).map_err(over)?;
        Ok(inflated)
    }

    /// Removes the layers of a message; returns its encoding and its bytes.
    pub(crate) fn open<'a>(
        &mut self,
        is_text: bool,
        bytes: &'a [u8],
        opened: &'a mut Vec<u8>,
        inflated: &'a mut Vec<u8>,
    ) -> Result<(Format, &'a [u8]), Unreadable> {
        let mut framing = if is_text {
            Framing::Json
        } else {
            identify(bytes)
        };
        let mut bytes = bytes;
        let mut is_checked = is_text;
        if framing == Framing::Encrypted {
            opened.clear();
            self.unseal(bytes, opened)?;
            bytes = opened;
            is_checked = false;
            framing = identify(bytes);
            if framing == Framing::Encrypted {
                return Err(Unreadable::Refused("a message that is encrypted twice"));
            }
        } else if let Some(cipher) = &self.cipher
            && cipher.version() == EncryptionVersion::Two
        {
            let ending = Ending::ours(
                CloseCode::POLICY_VIOLATION,
                "a plain message on an encrypted connection",
            );
            return Err(Unreadable::Over(ending));
        }
        if let Framing::Zlib { prefix_bytes } = framing {
            inflated.clear();
            let inflater = self.inflater.get_or_insert_with(Inflater::new);
            inflater
                .inflate(&bytes[prefix_bytes..], inflated, self.message_bytes_max)
                .map_err(|_| Unreadable::Refused("a compressed message that does not inflate"))?;
            bytes = inflated;
            is_checked = false;
            framing = identify(bytes);
        }
        match framing {
            Framing::MessagePack => Ok((Format::MessagePack, &bytes[2..])),
            Framing::Json if is_checked || std::str::from_utf8(bytes).is_ok() => {
                Ok((Format::Json, bytes))
            }
            _ => Err(Unreadable::Refused("a message in no known form")),
        }
    }

    fn unseal(&mut self, sealed: &[u8], opened: &mut Vec<u8>) -> Result<(), Unreadable> {
        let Some(cipher) = &mut self.cipher else {
            return Err(Unreadable::Refused("an encrypted message without a key"));
        };
        match cipher.open(sealed, opened) {
            Ok(()) => Ok(()),
            Err(_) if cipher.version() == EncryptionVersion::One => Err(Unreadable::Refused(
                "an encrypted message that cannot be opened",
            )),
            Err(error) => Err(Unreadable::Over(Ending::ours(
                CloseCode::POLICY_VIOLATION,
                error.to_string(),
            ))),
        }
    }

    /// Puts a signature behind the message in `plain`. A message that cannot be signed is sent without one, and
    /// a server that requires one reports an error.
    fn sign(&mut self, unix_ms: u64) {
        let Some(signer) = &self.signer else { return };
        let mut nonce = [0; NONCE_BYTES];
        self.random.fill_bytes(&mut nonce);
        let prefix_bytes = match self.format {
            Format::Json => 0,
            Format::MessagePack => 2,
        };
        let Ok(message) = SignedMessage::find(self.format, &self.plain[prefix_bytes..]) else {
            return;
        };
        let Ok(signature) = signer
            .key
            .0
            .sign(signer.version, &message, unix_ms / 1_000, &nonce)
        else {
            return;
        };
        append_signature(self.format, &signature, &mut self.plain);
    }

    /// The mask of the next frame.
    pub(crate) fn mask(&mut self) -> [u8; 4] {
        self.random.next_u32().to_ne_bytes()
    }
}

/// Adds the field `sig` to an envelope that this crate wrote: an object that ends with `}`, or a map of up to 14
/// pairs.
fn append_signature(format: Format, signature: &str, message: &mut Vec<u8>) {
    match format {
        Format::Json => {
            if message.pop() == Some(b'}') {
                message.extend_from_slice(b",\"sig\":\"");
                message.extend_from_slice(signature.as_bytes());
                message.extend_from_slice(b"\"}");
            }
        }
        Format::MessagePack => {
            if let Some(head @ 0x80..=0x8e) = message.get_mut(2)
                && let Ok(length) = u8::try_from(signature.len())
            {
                *head += 1;
                message.extend_from_slice(b"\xa3sig\xd9");
                message.push(length);
                message.extend_from_slice(signature.as_bytes());
            }
        }
    }
}

/// Messages below this are not compressed.
const COMPRESSED_BYTES_MIN: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Signing;
    use tidewire_wire::envelope::{Category, EnvelopeHeader, parse_json, parse_msgpack};
    use tidewire_wire::frame::Role;
    use tidewire_wire::message::{Event, Input, MessageReader};
    use tidewire_wire::secure::{ExchangeKeyPair, NonceWindow, VerifyingKey};
    use tidewire_wire::uuid::Uuid;

    fn envelope(payload_bytes: usize, format: Format, out: &mut Vec<u8>) -> OpCode {
        let header = EnvelopeHeader {
            category: Category::Update,
            t: "a",
            id: Uuid([3; 16]),
            unix_ms: 1,
            seq: 1,
            correlation_id: Some("c"),
            signature: None,
            number: Some(5),
            binary: false,
        };
        let payload = format!("\"{}\"", "x".repeat(payload_bytes));
        header.write(format, payload.as_bytes(), out).unwrap();
        if format == Format::Json {
            OpCode::Text
        } else {
            OpCode::Binary
        }
    }

    /// The content of one message as a server reads it.
    fn received(frame: &mut [u8]) -> (bool, Vec<u8>) {
        let mut reader = MessageReader::new(Role::Server, 1 << 20).with_compression();
        let mut input = Input::new(frame);
        match reader.read(&mut input).unwrap().unwrap() {
            Event::Text(text) => (true, text.as_bytes().to_vec()),
            Event::Binary(bytes) => (false, bytes.to_vec()),
            Event::Compressed(message) => {
                let mut plain = Vec::new();
                Decompressor::new(15, true)
                    .decompress(message.bytes, &mut plain, 1 << 20)
                    .unwrap();
                (message.is_text, plain)
            }
            other => panic!("{other:?}"),
        }
    }

    fn config(format: Format) -> Config {
        Config {
            format,
            ..Config::new("ws://a")
        }
    }

    #[test]
    fn signatures_are_accepted_in_both_formats() {
        let secret = vec![7; 32];
        for (format, version_one) in [
            (Format::Json, false),
            (Format::Json, true),
            (Format::MessagePack, false),
            (Format::MessagePack, true),
        ] {
            let signing = Some(Signing {
                secret: secret.clone(),
                version_one,
            });
            let config = Config {
                signing,
                ..config(format)
            };
            let mut codec = Codec::new(&config, None, [1; 32]).unwrap();
            let mut out = Vec::new();
            codec
                .write(Signed::Yes, 5_000, &mut out, |out| envelope(5, format, out))
                .unwrap();
            let (_, message) = received(&mut out);
            let bytes = if format == Format::Json {
                &message[..]
            } else {
                &message[2..]
            };
            let parsed = if format == Format::Json {
                parse_json(bytes)
            } else {
                parse_msgpack(bytes)
            };
            assert!(parsed.unwrap().signature.is_some());
            let signed = SignedMessage::find(format, bytes).unwrap();
            let key = VerifyingKey::hmac(&secret).unwrap();
            key.verify(&signed, 5, &mut NonceWindow::new(10)).unwrap();
            out.clear();
            codec
                .write(Signed::No, 5_000, &mut out, |out| envelope(5, format, out))
                .unwrap();
            let (_, message) = received(&mut out);
            assert!(!message.windows(3).any(|part| part == b"sig"));
        }
    }

    #[test]
    fn large_messages_are_compressed_and_come_back() {
        for (compression, deflate) in [
            (Compression::Zlib, None),
            (Compression::Deflate, Some(DeflateParameters::default())),
        ] {
            let config = Config {
                compression,
                ..config(Format::Json)
            };
            let mut codec = Codec::new(&config, deflate, [1; 32]).unwrap();
            let mut plain = Vec::new();
            envelope(5_000, Format::Json, &mut plain);
            let mut out = Vec::new();
            codec
                .write(Signed::Yes, 0, &mut out, |out| {
                    envelope(5_000, Format::Json, out)
                })
                .unwrap();
            assert!(out.len() < 1_000, "{}", out.len());
            let (is_text, message) = received(&mut out);
            let (mut opened, mut inflated) = (Vec::new(), Vec::new());
            let read = codec
                .open(is_text, &message, &mut opened, &mut inflated)
                .unwrap();
            assert_eq!(read, (Format::Json, &plain[..]));
        }
    }

    #[test]
    fn encrypted_both_ways_and_plain_is_refused_in_version_two() {
        let (ours, theirs) = ([1; 32], [2; 32]);
        let ours = ExchangeKeyPair::from_seed(&ours).unwrap();
        let theirs = ExchangeKeyPair::from_seed(&theirs).unwrap();
        let connection = Uuid([9; 16]);
        let offer = ours.offer(EncryptionVersion::Two);
        let (mut server, hello) = theirs.accept(&offer, connection, None, [0; 4]).unwrap();
        let cipher = ours
            .finish(
                EncryptionVersion::Two,
                &hello,
                &connection.to_string(),
                None,
                [0; 4],
            )
            .unwrap();
        let mut codec = Codec::new(&config(Format::MessagePack), None, [1; 32]).unwrap();
        codec.encrypt(cipher);
        let mut out = Vec::new();
        codec
            .write(Signed::Yes, 0, &mut out, |out| {
                envelope(9, Format::MessagePack, out)
            })
            .unwrap();
        let (is_text, message) = received(&mut out);
        assert!(!is_text);
        let mut plain = Vec::new();
        server.open(&message, &mut plain).unwrap();
        assert!(plain.starts_with(b"M:"));
        let mut sealed = Vec::new();
        server.seal(b"{\"t\":\"a\"}", &mut sealed).unwrap();
        let (mut opened, mut inflated) = (Vec::new(), Vec::new());
        let read = codec
            .open(false, &sealed, &mut opened, &mut inflated)
            .unwrap();
        assert_eq!(read, (Format::Json, &b"{\"t\":\"a\"}"[..]));
        let again = codec
            .open(false, &sealed, &mut Vec::new(), &mut Vec::new())
            .map(|_| ());
        assert!(matches!(again, Err(Unreadable::Over(_))));
        let plain = codec
            .open(true, b"{}", &mut Vec::new(), &mut Vec::new())
            .map(|_| ());
        assert!(matches!(plain, Err(Unreadable::Over(_))));
    }

    #[test]
    fn unreadable_messages_end_nothing() {
        let mut codec = Codec::new(&config(Format::Json), None, [1; 32]).unwrap();
        for bytes in [&b"E:abc"[..], b"C:x", b"\x78xyz", b"\xff\xfe"] {
            let read = codec
                .open(false, bytes, &mut Vec::new(), &mut Vec::new())
                .map(|_| ());
            assert!(matches!(read, Err(Unreadable::Refused(_))), "{bytes:?}");
        }
    }
}
