//! `encryption.json` and `signatures.json`.

use super::Hex;
use super::frames::Side;
use serde::Deserialize;

/// A key exchange and the messages sealed after it, or a public key alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EncryptionCase {
    /// Two sides with fixed keys.
    Session(Box<Session>),
    /// A peer's public key.
    PublicKey {
        /// The title of the case.
        name: String,
        /// Its bytes.
        public_key: Hex,
        /// Whether it is a point to agree with.
        usable: bool,
    },
}

/// Two sides with fixed keys, and their messages.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the schema says what each field is")]
pub struct Session {
    pub name: String,
    pub version: u8,
    pub client_private_key: Hex,
    pub server_private_key: Hex,
    pub client_public_key: Hex,
    pub server_public_key: Hex,
    pub shared_secret: Hex,
    pub client_iv_random: Option<Hex>,
    pub server_iv_random: Option<Hex>,
    pub key: Option<Hex>,
    pub connection_id: Option<String>,
    pub transcript: Option<Hex>,
    pub key_to_server: Option<Hex>,
    pub key_to_client: Option<Hex>,
    pub identity_pkcs8: Option<Hex>,
    pub identity_public_key: Option<Hex>,
    pub identity_signature: Option<Hex>,
    pub messages: Vec<Sealed>,
    pub opened: Vec<Opened>,
    pub refused: Vec<Refused>,
}

/// A message of one side's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sealed {
    /// Whose.
    pub from: Side,
    /// The plain message.
    pub plain: Hex,
    /// The sealed message.
    pub sealed: Hex,
    /// The sender's next key, which is used from the next message on.
    pub then_key: Option<Hex>,
}

/// A message that another implementation sealed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// The side that opens it.
    pub by: Side,
    /// The plain message.
    pub plain: Hex,
    /// The sealed message.
    pub sealed: Hex,
}

/// A message that is not opened.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// The side that refuses it.
    pub by: Side,
    /// The sealed message.
    pub sealed: Hex,
    /// Why.
    pub error: String,
}

/// A signed message and its receiver's result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the schema says what each field is")]
pub struct SignatureCase {
    pub name: String,
    pub format: String,
    pub algorithm: String,
    pub secret: Option<Hex>,
    pub public_key: Option<Hex>,
    pub message: Hex,
    pub now_unix_s: u64,
    pub version: Option<u8>,
    pub time_unix_s: Option<u64>,
    pub nonce: Option<Hex>,
    pub signed_bytes: Option<Hex>,
    pub signature: Option<String>,
    pub expected: String,
}
