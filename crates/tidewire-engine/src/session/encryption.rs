//! Encrypted connections: the key exchange, what comes in, and when keys change.

use crate::config::Encryption;
use crate::model::Encoding;
use crate::session::Turn;
use crate::session::application::Application;
use crate::state::connection::{ConnectionState, Phase};
use crate::state::core::{Core, emptied};
use crate::state::layers::EncryptionLayer;
use rand::Rng;
use tidewire_net::Io;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{Kind, SystemType, classify_json, classify_msgpack};
use tidewire_wire::format::{Format, Framing, MESSAGEPACK_PREFIX, identify};
use tidewire_wire::secure::{ExchangeError, ExchangeKeyPair, OpenError, SessionCipher};
use tidewire_wire::session::{
    EncryptionVersion, HelloEncryption, KeyOffer, Now, Reply, ServerSession, SystemEvent,
};
use zeroize::Zeroizing;

impl<A: Application> Turn<'_, A> {
    /// Whether this frame may be read as it is. Those that have to be encrypted and are not are refused, and
    /// end the session.
    #[inline]
    pub(crate) fn may_be_plain(
        &mut self,
        state: &mut ConnectionState,
        encoding: Encoding,
        bytes: &[u8],
    ) -> bool {
        if self.core.shared.config.encryption == Encryption::Off {
            return true;
        }
        self.check_plain(state, encoding, bytes)
    }

    fn check_plain(
        &mut self,
        state: &mut ConnectionState,
        encoding: Encoding,
        bytes: &[u8],
    ) -> bool {
        let version = state.encryption().map(|layer| layer.cipher.version());
        if is_sealed(encoding, bytes) && version.is_some() {
            return true;
        }
        let must_be_encrypted = match self.core.shared.config.encryption {
            Encryption::Off => false,
            // Version 1 lets a client speak before it has the server's key.
            Encryption::Optional => version == Some(EncryptionVersion::Two),
            Encryption::Required => version.is_some() || !is_hello(encoding, bytes),
        };
        if must_be_encrypted {
            self.core.counters.messages_refused_invalid.add(1);
            self.require_encryption(state);
        }
        !must_be_encrypted
    }

    /// Says that only encrypted messages are taken, and closes.
    pub(crate) fn require_encryption(&mut self, state: &mut ConnectionState) {
        let error = Reply::error(
            ErrorCode::EncryptionRequired,
            "this connection takes encrypted messages only",
        );
        self.reply(state, &error);
        self.start_close(state, CloseCode::POLICY_VIOLATION, "encryption is required");
    }

    /// The answer to a hello without a key, or to one after the first.
    pub(crate) fn reply_hello(
        &mut self,
        state: &mut ConnectionState,
        correlation_id: Option<String>,
        producer: Option<String>,
    ) {
        let encryption = state.encryption().map(|layer| Box::new(layer.hello));
        if encryption.is_none() && self.core.shared.config.encryption == Encryption::Required {
            return self.require_encryption(state);
        }
        let producer = match producer {
            Some(id) => self.open_producer(state, id),
            None => self.known_producer(state),
        };
        let hello = Reply::Hello {
            correlation_id,
            encryption,
            producer,
        };
        self.reply(state, &hello);
    }

    /// The first hello, with a key: everything after the answer is encrypted.
    pub(crate) fn exchange_keys(
        &mut self,
        state: &mut ConnectionState,
        offer: &KeyOffer,
        correlation_id: Option<String>,
        producer: Option<String>,
    ) {
        if state.phase != Phase::Open {
            return;
        }
        match self.core.agree(offer, &state.session) {
            Ok((cipher, hello)) => {
                let reply = Reply::Hello {
                    correlation_id,
                    encryption: Some(Box::new(hello)),
                    producer: producer.and_then(|id| self.open_producer(state, id)),
                };
                self.reply(state, &reply);
                let layers = state.layers.get_or_insert_default();
                layers.encryption = Some(EncryptionLayer { cipher, hello });
                if let Some(topics) = &state.topics {
                    self.core.topics.set_apart(state.key.id, &topics.slots);
                }
                self.core.counters.key_exchanges.add(1);
                if let Some(session) = state.unannounced.take() {
                    self.announce(state, &session.peer);
                }
            }
            Err(error) => {
                let error = Reply::error(ErrorCode::KeyExchangeFailed, error.to_string());
                self.reply(state, &error);
                self.start_close(
                    state,
                    CloseCode::POLICY_VIOLATION,
                    "the key exchange failed",
                );
            }
        }
    }

    /// `E:` from the client: what is inside is any other form.
    pub(crate) fn handle_encrypted(&mut self, state: &mut ConnectionState, bytes: &[u8]) {
        let Some(layer) = state.encryption() else {
            return self.refuse(state, "no encryption was negotiated");
        };
        let mut plain = std::mem::take(&mut self.core.decrypted);
        match layer.cipher.open(bytes, &mut plain) {
            Ok(()) => match identify(&plain) {
                Framing::Encrypted => {
                    self.refuse(state, "an encrypted message holds an encrypted one");
                }
                framing => self.handle_form(state, framing, &plain),
            },
            Err(error) => self.refuse_sealed(state, error),
        }
        self.core.decrypted = emptied(plain);
    }

    /// A message that the rate limit refused. One of version 2 is opened all the same, because it counts for the
    /// next one, and because it may change the key.
    #[cold]
    pub(crate) fn pass_over(
        &mut self,
        state: &mut ConnectionState,
        encoding: Encoding,
        bytes: &[u8],
    ) {
        let Some(layer) = state.encryption().filter(|_| is_sealed(encoding, bytes)) else {
            return;
        };
        if layer.cipher.version() == EncryptionVersion::One {
            return;
        }
        let mut plain = std::mem::take(&mut self.core.decrypted);
        match layer.cipher.open(bytes, &mut plain) {
            Ok(()) => self.pass_over_update(state, &plain),
            Err(_) => self.start_close(state, CloseCode::POLICY_VIOLATION, NOT_AUTHENTIC),
        }
        self.core.decrypted = emptied(plain);
    }

    fn pass_over_update(&mut self, state: &mut ConnectionState, plain: &[u8]) {
        let (format, message) = match identify(plain) {
            Framing::Json => (Format::Json, plain),
            Framing::MessagePack => (Format::MessagePack, &plain[MESSAGEPACK_PREFIX.len()..]),
            // Nobody compresses a key update.
            Framing::Zlib { .. } | Framing::Encrypted => return,
        };
        let kind = match format {
            Format::Json if std::str::from_utf8(message).is_err() => return,
            Format::Json => classify_json(message),
            Format::MessagePack => classify_msgpack(message),
        };
        let system = SystemType::KeyUpdate;
        if kind == Ok(Kind::System(system)) {
            let profile = &self.core.shared.profile;
            if let SystemEvent::KeyUpdate { request } = state
                .session
                .handle_system(profile, system, format, message)
            {
                self.update_keys(state, request);
            }
        }
    }

    /// In version 2 nothing after such a message can be trusted to be whole.
    fn refuse_sealed(&mut self, state: &mut ConnectionState, error: OpenError) {
        let version = state.encryption().map(|layer| layer.cipher.version());
        self.refuse(state, &error.to_string());
        if version == Some(EncryptionVersion::Two) {
            self.start_close(state, CloseCode::POLICY_VIOLATION, NOT_AUTHENTIC);
        }
    }

    /// `key_update`: the client's next message has its next key.
    pub(crate) fn update_keys(&mut self, state: &mut ConnectionState, request: bool) {
        let is_updated = state
            .encryption()
            .is_some_and(|layer| layer.cipher.update_opening_key());
        if !is_updated {
            let error = Reply::error(
                ErrorCode::InvalidMessage,
                "key_update needs encryption of version 2",
            );
            return self.reply(state, &error);
        }
        if request {
            self.core.renew_sealing_key(self.io, state, self.now);
        }
    }
}

impl Core {
    fn agree(
        &mut self,
        offer: &KeyOffer,
        session: &ServerSession,
    ) -> Result<(SessionCipher, HelloEncryption), ExchangeError> {
        let pair = loop {
            let seed: Zeroizing<[u8; 32]> = Zeroizing::new(self.rng.random());
            // One in four billion is no key.
            if let Ok(pair) = ExchangeKeyPair::from_seed(&seed) {
                break pair;
            }
        };
        let identity = self.shared.identity.as_ref();
        pair.accept(offer, session.connection_id(), identity, self.rng.random())
    }

    /// Says `key_update` under the old key and seals what follows with the next.
    pub(crate) fn renew_sealing_key(&mut self, io: &mut Io, state: &mut ConnectionState, now: Now) {
        if state.phase != Phase::Open {
            return;
        }
        let id = self.new_id(now.unix_ms);
        let mut message = Vec::new();
        let reply = Reply::KeyUpdate { request: false };
        let profile = &self.shared.profile;
        state.session.encode(profile, &reply, id, now, &mut message);
        let Some(buffer) = io.buffer(state.key.id) else {
            return;
        };
        let Some(layer) = state.encryption() else {
            return;
        };
        if let Ok(sent_bytes) = layer.write_frame(&message, buffer)
            && layer.cipher.update_sealing_key()
        {
            self.count_sent(sent_bytes);
            self.counters.key_updates.add(1);
        }
    }
}

fn is_sealed(encoding: Encoding, bytes: &[u8]) -> bool {
    encoding == Encoding::Binary && identify(bytes) == Framing::Encrypted
}

/// The one message that has to come plain.
fn is_hello(encoding: Encoding, bytes: &[u8]) -> bool {
    let kind = match (encoding, identify(bytes)) {
        (Encoding::Text, _) | (_, Framing::Json) => classify_json(bytes),
        (_, Framing::MessagePack) => classify_msgpack(&bytes[MESSAGEPACK_PREFIX.len()..]),
        _ => return false,
    };
    kind == Ok(Kind::System(SystemType::ClientHello))
}

const NOT_AUTHENTIC: &str = "an encrypted message is not authentic";
