//! The fields of both hellos about encryption, as bytes. The cryptography is in `secure`.

use super::Object;
use super::objection::Objection;
use crate::codes::ErrorCode;
use crate::envelope::EnvelopeError;
use crate::envelope::raw::Raw;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// The version of the encryption of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum EncryptionVersion {
    /// One key for both directions; any IV. Every version 1 peer supports it.
    #[default]
    One,
    /// A key for each direction, bound to the connection; counted IVs, rotation, a server identity.
    Two,
}

impl EncryptionVersion {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// The newest version that this crate and a peer with version `number` both support; `None` for 0.
    pub const fn agreed(number: u64) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::One),
            _ => Some(Self::Two),
        }
    }
}

/// A client's side of a key exchange, from `client_hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOffer {
    /// `encryption_public_key`: an uncompressed P-256 point. Only its length and its first byte have
    /// been checked.
    pub public_key: [u8; PUBLIC_KEY_BYTES],
    /// `encryption_version`: the newest version that both sides support.
    pub version: EncryptionVersion,
}

/// The server's side of a key exchange, from `server_hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloEncryption {
    /// `encryption_public_key`: an uncompressed P-256 point. Only its length and its first byte have
    /// been checked.
    pub public_key: [u8; PUBLIC_KEY_BYTES],
    /// `encryption_version`: the version of the connection.
    pub version: EncryptionVersion,
    /// The identity of the server; only with [`EncryptionVersion::Two`].
    pub identity: Option<HelloIdentity>,
}

/// The proof of a server that it made its side of the key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloIdentity {
    /// `identity_public_key`: an uncompressed P-256 point.
    pub public_key: [u8; PUBLIC_KEY_BYTES],
    /// `identity_signature`: r and s, 32 bytes each.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl KeyOffer {
    /// The offer in the payload of a `client_hello`; `None` if it has no key.
    pub(super) fn read(payload: Raw<'_>) -> Result<Option<Self>, Objection> {
        let refused = |words| (ErrorCode::KeyExchangeFailed, words);
        let [public_key, version] = payload.pick(["encryption_public_key", "encryption_version"]);
        if public_key.is_null() {
            return Ok(None);
        }
        let public_key = public_key.text().and_then(|text| point(&text));
        let public_key = public_key.ok_or(refused(
            "encryption_public_key is not an uncompressed P-256 point in base64",
        ))?;
        let version = if version.is_null() {
            Some(EncryptionVersion::One)
        } else {
            version.unsigned().and_then(EncryptionVersion::agreed)
        };
        let version = version.ok_or(refused("encryption_version is not a number from 1 on"))?;
        Ok(Some(Self {
            public_key,
            version,
        }))
    }

    pub(super) fn write(&self, object: &mut Object<'_>) {
        write_key(object, &self.public_key, self.version);
    }
}

impl HelloEncryption {
    /// The answer in the payload of a `server_hello`; `None` if it has no key.
    pub(super) fn read(payload: &Value) -> Result<Option<Self>, EnvelopeError> {
        let wrong = EnvelopeError::InvalidField;
        let Some(public_key) = present(payload, "encryption_public_key") else {
            return Ok(None);
        };
        let identity = present(payload, "identity_public_key")
            .map(|public_key| {
                Ok::<_, EnvelopeError>(HelloIdentity {
                    public_key: public_key
                        .as_str()
                        .and_then(point)
                        .ok_or(wrong("identity_public_key"))?,
                    signature: payload["identity_signature"]
                        .as_str()
                        .and_then(bytes)
                        .ok_or(wrong("identity_signature"))?,
                })
            })
            .transpose()?;
        Ok(Some(Self {
            public_key: public_key
                .as_str()
                .and_then(point)
                .ok_or(wrong("encryption_public_key"))?,
            version: version(payload).ok_or(wrong("encryption_version"))?,
            identity,
        }))
    }

    pub(super) fn write(&self, object: &mut Object<'_>) {
        write_key(object, &self.public_key, self.version);
        if let Some(identity) = &self.identity {
            write_base64(object, "identity_public_key", &identity.public_key);
            write_base64(object, "identity_signature", &identity.signature);
        }
    }
}

/// Version 1 has no `encryption_version`, so the field is left out.
fn write_key(object: &mut Object<'_>, public_key: &[u8], version: EncryptionVersion) {
    write_base64(object, "encryption_public_key", public_key);
    if version != EncryptionVersion::One {
        object.number("encryption_version", version.number().into());
    }
}

fn write_base64(object: &mut Object<'_>, name: &str, bytes: &[u8]) {
    object.text(name, &BASE64.encode(bytes));
}

fn version(payload: &Value) -> Option<EncryptionVersion> {
    match present(payload, "encryption_version") {
        None => Some(EncryptionVersion::One),
        Some(number) => EncryptionVersion::agreed(number.as_u64()?),
    }
}

fn point(text: &str) -> Option<[u8; PUBLIC_KEY_BYTES]> {
    bytes(text).filter(|point: &[u8; PUBLIC_KEY_BYTES]| point[0] == UNCOMPRESSED)
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // The decoder asks for room in whole groups of three.
    let mut room = [0; PUBLIC_KEY_BYTES + 3];
    let length = BASE64.decode_slice(text, &mut room).ok()?;
    bytes.copy_from_slice(room.get(..length).filter(|read| read.len() == N)?);
    Some(bytes)
}

fn present<'a>(payload: &'a Value, name: &str) -> Option<&'a Value> {
    payload.get(name).filter(|value| !value.is_null())
}

/// Bytes of an uncompressed P-256 point: 4, then x and y.
pub const PUBLIC_KEY_BYTES: usize = 65;

/// Bytes of an ECDSA P-256 signature: r and s.
pub const SIGNATURE_BYTES: usize = 64;

/// The first byte of an uncompressed point (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// Some peers omit the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
