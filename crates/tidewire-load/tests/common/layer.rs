//! Compression and encryption of the test servers, honest and not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidewire_load::worker::websocket::layer::Layer;
use tidewire_wire::deflate::{Compressor, Decompressor, DeflateParameters, WINDOW_BITS_MAX};
use tidewire_wire::frame::{OpCode, write_compressed_frame, write_frame};
use tidewire_wire::secure::{ExchangeKeyPair, SessionCipher};
use tidewire_wire::session::{EncryptionVersion, KeyOffer};
use tidewire_wire::uuid::Uuid;

/// The layers of a server, and its answer to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Skill {
    pub(crate) layer: Layer,
    pub(crate) answer: Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The message, as agreed.
    Honest,
    /// The message, uncompressed, as permessage-deflate allows.
    Uncompressed,
    /// Bytes that are marked as compressed or encrypted and are not.
    Garbage,
    /// Another message, compressed or encrypted as agreed.
    Other,
    /// The very bytes that came.
    Reflected,
}

/// The state of one connection.
pub(crate) struct PeerLayer {
    skill: Skill,
    compressor: Option<Compressor>,
    decompressor: Decompressor,
    cipher: Option<SessionCipher>,
}

impl Skill {
    pub(crate) const PLAIN: Self = Self {
        layer: Layer::Plain,
        answer: Answer::Honest,
    };

    /// The value of `Sec-WebSocket-Extensions` in the answer, if there is one.
    pub(crate) fn extensions<'a>(&self, offers: impl Iterator<Item = &'a str>) -> Option<String> {
        let accepted = DeflateParameters::accept(DeflateParameters::default(), offers)?;
        (self.layer == Layer::Deflate).then_some(accepted.header_value)
    }
}

impl PeerLayer {
    pub(crate) fn new(skill: Skill) -> Self {
        let deflates = skill.layer == Layer::Deflate;
        Self {
            skill,
            compressor: deflates.then(|| Compressor::new(1, WINDOW_BITS_MAX, false)),
            decompressor: Decompressor::new(WINDOW_BITS_MAX, false),
            cipher: None,
        }
    }

    /// The content of a message, if that is not the message itself.
    pub(crate) fn take_off(
        &mut self,
        is_compressed: bool,
        opcode: OpCode,
        message: &[u8],
    ) -> Option<Vec<u8>> {
        if is_compressed {
            return Some(self.inflate(message));
        }
        if opcode == OpCode::Binary {
            return Some(self.open(message));
        }
        assert!(!self.is_encrypted(), "the lab sent a message in the open");
        None
    }

    /// The content of a compressed message.
    pub(crate) fn inflate(&mut self, message: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        self.decompressor
            .decompress(message, &mut content, 1 << 20)
            .unwrap();
        content
    }

    /// The content of a binary message: all of them are encrypted once there is a key.
    pub(crate) fn open(&mut self, message: &[u8]) -> Vec<u8> {
        let Some(cipher) = &mut self.cipher else {
            return message.to_vec();
        };
        let mut content = Vec::new();
        cipher.open(message, &mut content).unwrap();
        content
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.cipher.is_some()
    }

    /// Takes the client's key in its hello; this side's, if it agrees.
    pub(crate) fn agree(&mut self, hello: &str) -> Option<String> {
        if self.skill.layer != Layer::Encryption {
            return None;
        }
        let (_, rest) = hello.split_once(r#""encryption_public_key":""#)?;
        let (key, _) = rest.split_once('"')?;
        let offer = KeyOffer {
            public_key: STANDARD.decode(key).unwrap().try_into().unwrap(),
            version: EncryptionVersion::One,
        };
        let pair = ExchangeKeyPair::from_seed(&[7; 32]).unwrap();
        let id = Uuid::parse("0193501e-7c4e-7000-8000-000000000000").unwrap();
        let (cipher, hello) = pair.accept(&offer, id, None, [7; 4]).unwrap();
        self.cipher = Some(cipher);
        Some(STANDARD.encode(hello.public_key))
    }

    /// Appends a message of the server's own.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, opcode: OpCode, message: &[u8]) {
        let mut inner = Vec::new();
        if let Some(cipher) = &mut self.cipher {
            cipher.seal(message, &mut inner).unwrap();
            write_frame(out, OpCode::Binary, &inner, None);
        } else if let Some(compressor) = &mut self.compressor {
            compressor.compress(message, &mut inner);
            write_compressed_frame(out, opcode, &inner, None);
        } else {
            write_frame(out, opcode, message, None);
        }
    }

    /// Appends the reply to a message that arrived as `received`.
    pub(crate) fn reply(
        &mut self,
        out: &mut Vec<u8>,
        opcode: OpCode,
        message: &[u8],
        received: &[u8],
    ) {
        match self.skill.answer {
            Answer::Honest => self.write(out, opcode, message),
            Answer::Uncompressed => write_frame(out, opcode, message, None),
            Answer::Other => {
                let mut other = message.to_vec();
                other.reverse();
                self.write(out, opcode, &other);
            }
            Answer::Garbage if self.cipher.is_some() => {
                let garbage = [b"E:", &vec![7; received.len() - 2][..]].concat();
                write_frame(out, OpCode::Binary, &garbage, None);
            }
            Answer::Garbage => write_compressed_frame(out, opcode, &[0xff; 40], None),
            Answer::Reflected => write_frame(out, OpCode::Binary, received, None),
        }
    }
}
