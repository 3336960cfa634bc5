//! Encrypted connections: the key exchange, inbound messages and key updates.

use crate::config::Encryption;
use crate::model::Encoding;
use crate::session::Session;
use crate::state::connection::Unannounced;
use crate::state::core::emptied;
use crate::state::layers::EncryptionLayer;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{
    Kind, SystemType, classify_json, classify_msgpack, readable_correlation_id,
};
use tidewire_wire::format::{Format, Framing, MESSAGEPACK_PREFIX, identify};
use tidewire_wire::secure::OpenError;
use tidewire_wire::session::{EncryptionVersion, KeyOffer, Now, ProducerState, Reply, SystemEvent};

impl Session<'_> {
    /// Whether this frame may be read as it is, at a server with encryption. A frame that must be
    /// encrypted and is not is refused, and ends the session.
    pub(crate) fn may_be_plain(&mut self, encoding: Encoding, bytes: &[u8]) -> bool {
        let version = self.state.encryption().map(|layer| layer.cipher.version());
        if is_sealed(encoding, bytes) && version.is_some() {
            return true;
        }
        let must_be_encrypted = match self.core.setup.config.encryption {
            Encryption::Off => false,
            // Version 1 lets a client speak before it has the server's key.
            Encryption::Optional => version == Some(EncryptionVersion::Two),
            Encryption::Required | Encryption::RequiredV2 => {
                version.is_some() || !is_hello(encoding, bytes)
            }
        };
        if must_be_encrypted {
            self.core.counters.messages_refused_invalid.add(1);
            let id = plain_envelope(encoding, bytes)
                .and_then(|(format, envelope)| readable_correlation_id(format, envelope));
            self.require_encryption(NEEDS_KEY, id);
        }
        !must_be_encrypted
    }

    /// Reports that only encrypted messages are accepted, and closes the session.
    pub(crate) fn require_encryption(
        &mut self,
        reason: &'static str,
        correlation_id: Option<String>,
    ) {
        self.reply_error(ErrorCode::EncryptionRequired, reason, correlation_id);
        self.start_close(CloseCode::POLICY_VIOLATION, "encryption is required");
    }

    /// A message that the rate limit refused. One of version 2 is opened all the same, because it
    /// counts for the next one, and because it may change the key.
    #[cold]
    pub(crate) fn pass_over(&mut self, encoding: Encoding, bytes: &[u8]) {
        let Some(layer) = self
            .state
            .encryption()
            .filter(|_| is_sealed(encoding, bytes))
        else {
            return;
        };
        if layer.cipher.version() == EncryptionVersion::One {
            return;
        }
        let mut plain = std::mem::take(&mut self.core.codec.decrypted);
        match layer.cipher.open(bytes, &mut plain) {
            Ok(()) => self.pass_over_update(&plain),
            Err(_) => self.start_close(CloseCode::POLICY_VIOLATION, NOT_AUTHENTIC),
        }
        self.core.codec.decrypted = emptied(plain);
    }

    fn pass_over_update(&mut self, plain: &[u8]) {
        let (format, message) = match identify(plain) {
            Framing::Json => (Format::Json, plain),
            Framing::MessagePack => (Format::MessagePack, &plain[MESSAGEPACK_PREFIX.len()..]),
            // Nobody compresses a key update.
            Framing::Zlib { .. } | Framing::Encrypted => return,
        };
        let kind = match format {
            Format::Json => classify_json(message),
            Format::MessagePack => classify_msgpack(message),
        };
        self.note_refused(format, message);
        let system = SystemType::KeyUpdate;
        if kind == Ok(Kind::System(system))
            && (format != Format::Json || std::str::from_utf8(message).is_ok())
        {
            let profile = &self.core.setup.profile;
            if let SystemEvent::KeyUpdate { request } = self
                .state
                .session
                .handle_system(profile, system, format, message)
            {
                self.update_keys(request, (format, message));
            }
        }
    }

    /// In version 2 nothing after such a message can be trusted to be whole.
    fn refuse_sealed(&mut self, error: OpenError) {
        let version = self.state.encryption().map(|layer| layer.cipher.version());
        self.refuse_unread(&error.to_string());
        if version == Some(EncryptionVersion::Two) {
            self.start_close(CloseCode::POLICY_VIOLATION, NOT_AUTHENTIC);
        }
    }

    /// `key_update`: the client's next message has its next key.
    pub(crate) fn update_keys(&mut self, request: bool, (format, bytes): (Format, &[u8])) {
        let is_updated = self
            .state
            .encryption()
            .is_some_and(|layer| layer.cipher.update_opening_key());
        if !is_updated {
            let words = "key_update needs encryption of version 2";
            let id = readable_correlation_id(format, bytes);
            return self.reply_error(ErrorCode::InvalidMessage, words, id);
        }
        if request {
            self.renew_sealing_key(self.now());
        }
    }

    /// Sends `key_update` under the old key and seals the next messages with the next key.
    pub(crate) fn renew_sealing_key(&mut self, now: Now) {
        if !self.state.is_open() {
            return;
        }
        let id = self.core.new_id(now.unix_ms);
        let mut message = Vec::new();
        let reply = Reply::KeyUpdate { request: false };
        let profile = &self.core.setup.profile;
        self.state
            .session
            .encode(profile, &reply, id, now, &mut message);
        let Some(buffer) = self.io.buffer(self.state.key.id) else {
            return;
        };
        let Some(layer) = self.state.encryption() else {
            return;
        };
        if let Ok(sent_bytes) = layer.write_frame(&message, buffer)
            && layer.cipher.update_sealing_key()
        {
            self.core.count_sent(sent_bytes);
            self.core.counters.key_updates.add(1);
        }
    }

    /// Whether a key is for a version that this server accepts.
    pub(crate) fn is_new_enough(&self, offer: &KeyOffer) -> bool {
        self.core.setup.config.encryption != Encryption::RequiredV2
            || offer.version == EncryptionVersion::Two
    }

    /// Answers the first hello with a key: everything after the answer is encrypted. Returns the
    /// session that waited for that to be announced to the application.
    pub(crate) fn exchange_keys(
        &mut self,
        offer: &KeyOffer,
        correlation_id: Option<String>,
        producer: Option<ProducerState>,
    ) -> Option<Box<Unannounced>> {
        if !self.state.is_open() {
            return None;
        }
        if !self.is_new_enough(offer) {
            self.require_encryption(NEEDS_VERSION_2, correlation_id);
            return None;
        }
        let (cipher, hello) = match self.core.agree(offer, &self.state.session) {
            Ok(agreed) => agreed,
            Err(error) => {
                let code = ErrorCode::KeyExchangeFailed;
                self.reply_error(code, error.to_string(), correlation_id);
                self.start_close(CloseCode::POLICY_VIOLATION, "the key exchange failed");
                return None;
            }
        };
        let reply = Reply::Hello {
            correlation_id,
            encryption: Some(Box::new(hello)),
            producer,
        };
        self.reply(&reply);
        let layers = self.state.layers.get_or_insert_default();
        layers.encryption = Some(EncryptionLayer { cipher, hello });
        if let Some(topics) = &self.state.topics {
            self.core
                .topics
                .deliver_individually(self.state.key.id, &topics.slots);
        }
        self.core.counters.key_exchanges.add(1);
        self.state.unannounced.take()
    }

    /// Decrypts a message in the encrypted form (`E:`) into `decrypted`; any other is returned as
    /// it is. A message that cannot be decrypted is refused.
    pub(crate) fn decrypt<'b>(
        &mut self,
        bytes: &'b [u8],
        decrypted: &'b mut Vec<u8>,
    ) -> Option<&'b [u8]> {
        if identify(bytes) != Framing::Encrypted {
            return Some(bytes);
        }
        let Some(layer) = self.state.encryption() else {
            self.refuse_unread("no encryption was negotiated");
            return None;
        };
        if let Err(error) = layer.cipher.open(bytes, decrypted) {
            self.refuse_sealed(error);
            return None;
        }
        if identify(decrypted) == Framing::Encrypted {
            self.refuse_unread("an encrypted message holds an encrypted one");
            return None;
        }
        Some(decrypted)
    }
}

fn is_sealed(encoding: Encoding, bytes: &[u8]) -> bool {
    encoding == Encoding::Binary && identify(bytes) == Framing::Encrypted
}

/// The envelope of a message that is in no layer.
pub(crate) fn plain_envelope(encoding: Encoding, bytes: &[u8]) -> Option<(Format, &[u8])> {
    match (encoding, identify(bytes)) {
        (Encoding::Text, _) | (_, Framing::Json) => Some((Format::Json, bytes)),
        (_, Framing::MessagePack) => {
            Some((Format::MessagePack, &bytes[MESSAGEPACK_PREFIX.len()..]))
        }
        _ => None,
    }
}

/// True for a hello, the only message that must be unencrypted.
fn is_hello(encoding: Encoding, bytes: &[u8]) -> bool {
    let kind = match plain_envelope(encoding, bytes) {
        Some((Format::Json, text)) => classify_json(text),
        Some((Format::MessagePack, packed)) => classify_msgpack(packed),
        None => return false,
    };
    kind == Ok(Kind::System(SystemType::ClientHello))
}

pub(crate) const NEEDS_KEY: &str = "this connection takes encrypted messages only";

const NEEDS_VERSION_2: &str = "this server takes encryption of version 2 only";

const NOT_AUTHENTIC: &str = "an encrypted message is not authentic";
