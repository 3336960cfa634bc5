//! The way of a message from the socket to the application: admit, decrypt, inflate, classify,
//! verify, dispatch.
//!
//! Each step returns a value, and only this page determines which step follows. A message without version 1
//! is dispatched as soon as it is admitted.

use crate::config::backend::BackendEvent;
use crate::config::{Encryption, Protocol};
use crate::limits::work::LONG_MESSAGE_BYTES;
use crate::model::{Encoding, Message};
use crate::session::application::Application;
use crate::session::inbound::Inbound;
use crate::state::core::emptied;
use crate::state::unfinished_jobs::{HeldForm, HeldMessage};
use tidewire_wire::envelope::{
    EnvelopeError, Kind, accept_json, accept_msgpack, classify_json, classify_msgpack, with_type,
};
use tidewire_wire::format::{Format, Framing, identify};
use tidewire_wire::frame::ProtocolError;
use tidewire_wire::message::{Compressed, Event};

impl<A: Application> Inbound<'_, A> {
    /// Receives a message or a control frame.
    #[inline]
    pub(crate) fn receive(&mut self, event: Event<'_>) {
        let (encoding, bytes) = match event {
            Event::Text(text) => (Encoding::Text, text.as_bytes()),
            Event::Binary(bytes) => (Encoding::Binary, bytes),
            Event::Compressed(message) => return self.receive_deflated(message),
            control => return self.session.receive_control(&control),
        };
        self.tally.received += 1;
        self.tally.received_bytes += bytes.len() as u64;
        if self.session.admit() {
            if needs_much(encoding, bytes) {
                self.receive_heavy(encoding, bytes);
            } else {
                self.receive_admitted(encoding, bytes);
            }
        } else {
            self.session.refuse_for_rate(encoding, bytes);
        }
    }

    /// Receives a message that may need much work: now, if its owner has work left in this turn, or else as a job.
    #[cold]
    fn receive_heavy(&mut self, encoding: Encoding, bytes: &[u8]) {
        if self.session.has_work_left() {
            self.receive_admitted(encoding, bytes);
        } else {
            self.session.hold(HeldForm::Plain(encoding), bytes);
        }
    }

    /// Receives a message that was held back before.
    pub(crate) fn receive_held(&mut self, message: &HeldMessage) {
        match message.form {
            HeldForm::Plain(encoding) => self.receive_admitted(encoding, &message.bytes),
            HeldForm::Deflated { is_text } => {
                let bytes = &message.bytes;
                self.receive_compressed(Compressed { is_text, bytes }, true);
            }
        }
    }

    #[inline(never)]
    fn receive_deflated(&mut self, message: Compressed<'_>) {
        self.tally.received += 1;
        self.tally.received_bytes += message.bytes.len() as u64;
        let is_admitted = self.session.admit();
        if is_admitted && !self.session.has_work_left() {
            let is_text = message.is_text;
            return self
                .session
                .hold(HeldForm::Deflated { is_text }, message.bytes);
        }
        self.receive_compressed(message, is_admitted);
        if !is_admitted {
            self.session.tell_refusals();
        }
    }

    /// Inflates a message of permessage-deflate. A refused one is inflated too if the next one may
    /// refer to it.
    fn receive_compressed(&mut self, message: Compressed<'_>, is_admitted: bool) {
        let mut inflated = std::mem::take(&mut self.session.core.codec.inflated);
        match self
            .session
            .inflate_frame(&message, is_admitted, &mut inflated)
        {
            Ok(Some(encoding)) if is_admitted => self.receive_inflated(encoding, &inflated),
            Ok(Some(encoding)) => self.session.refuse_for_rate(encoding, &inflated),
            Ok(None) => {}
            Err(error) => {
                // A message that violates RFC 6455 is not counted as one; a refused one has been
                // counted.
                let is_counted = is_admitted && error != ProtocolError::MessageTooLarge;
                self.tally.received -= u64::from(is_counted);
                self.session.end_for(error, is_admitted);
            }
        }
        self.session.core.codec.inflated = emptied(inflated);
    }

    /// [`Self::receive_admitted`] for inflated messages, so that the fast path keeps its own copy.
    #[inline(never)]
    fn receive_inflated(&mut self, encoding: Encoding, bytes: &[u8]) {
        self.receive_admitted(encoding, bytes);
    }

    #[inline(always)]
    fn receive_admitted(&mut self, encoding: Encoding, bytes: &[u8]) {
        let config = &self.session.core.setup.config;
        if config.protocol == Protocol::Raw {
            self.dispatch_message(Message { encoding, bytes });
        } else if config.encryption == Encryption::Off || self.session.may_be_plain(encoding, bytes)
        {
            match encoding {
                Encoding::Text => self.receive_envelope(Format::Json, bytes),
                _ => self.receive_binary(bytes),
            }
        }
    }

    /// Receives a binary message of version 1, whose first bytes identify its form.
    fn receive_binary(&mut self, bytes: &[u8]) {
        match identify(bytes) {
            Framing::Encrypted | Framing::Zlib { .. } => self.receive_layered(bytes),
            framing => self.receive_framed(framing, bytes),
        }
    }

    /// Decrypts and inflates a message as far as it is encrypted and compressed.
    fn receive_layered(&mut self, bytes: &[u8]) {
        let mut decrypted = std::mem::take(&mut self.session.core.codec.decrypted);
        let mut inflated = std::mem::take(&mut self.session.core.codec.inflated);
        if let Some(plain) = self.session.decrypt(bytes, &mut decrypted)
            && let Some(plain) = self.session.inflate(plain, &mut inflated)
        {
            self.receive_framed(identify(plain), plain);
        }
        self.session.core.codec.inflated = emptied(inflated);
        self.session.core.codec.decrypted = emptied(decrypted);
    }

    fn receive_framed(&mut self, framing: Framing, bytes: &[u8]) {
        if let Some((format, envelope)) = self.session.unframe(framing, bytes) {
            self.receive_envelope(format, envelope);
        }
    }

    /// Receives one message of a batch. The batch was admitted as one message; each further message
    /// counts too.
    pub(crate) fn receive_inner(&mut self, format: Format, message: &[u8], is_first: bool) {
        self.tally.received += 1;
        if is_first || self.session.admit() {
            self.receive_envelope(format, message);
        } else {
            self.session.note_refused(format, message);
            self.session.tell_refusals();
        }
    }

    /// Classifies and verifies a message in plain text, and dispatches it. One of the application is checked to its end
    /// here, and nowhere else, unless nobody reads it.
    #[inline(always)]
    fn receive_envelope(&mut self, format: Format, bytes: &[u8]) {
        let is_read =
            self.app.reads_messages() || self.session.backend(BackendEvent::Message).is_some();
        let kind = match (format, is_read) {
            (Format::Json, true) => accept_json(bytes),
            (Format::Json, false) => classify_json(bytes),
            (Format::MessagePack, true) => accept_msgpack(bytes),
            (Format::MessagePack, false) => classify_msgpack(bytes),
        };
        let kind = match kind {
            Ok(kind) => kind,
            Err(EnvelopeError::NoType) => return self.receive_untyped(format, bytes),
            Err(error) => return self.session.refuse(format, bytes, &error.to_string()),
        };
        if bytes.len() >= LONG_MESSAGE_BYTES && kind == Kind::Application {
            self.session.charge_message(format, bytes, is_read);
        }
        let is_signed = self.session.core.shared.signatures.is_some();
        if is_signed && !self.session.verify(format, bytes, kind) {
            return;
        }
        match kind {
            Kind::Application if is_read && !self.session.accepts_mark(format, bytes) => {}
            Kind::Application => self.dispatch(format, bytes),
            Kind::System(system) => self.dispatch_system(system, format, bytes),
        }
    }

    /// Gives a message without a type the one that the server has for it, or refuses it.
    #[cold]
    #[inline(never)]
    fn receive_untyped(&mut self, format: Format, bytes: &[u8]) {
        let t = self.session.core.setup.config.default_type.as_deref();
        let typed = t.and_then(|t| with_type(format, bytes, t));
        match typed.filter(|typed| has_type(format, typed)) {
            Some(typed) => self.receive_envelope(format, &typed),
            None => {
                let reason = EnvelopeError::NoType.to_string();
                self.session.refuse(format, bytes, &reason);
            }
        }
    }

    /// Dispatches a message to the application, unless it repeats one that was dispatched before.
    #[inline(always)]
    fn dispatch(&mut self, format: Format, bytes: &[u8]) {
        let encoding = match format {
            Format::Json => Encoding::Text,
            Format::MessagePack => Encoding::MessagePack,
        };
        if self.session.state.producer.is_none() || self.session.accept_once(format, bytes) {
            self.dispatch_message(Message { encoding, bytes });
        }
    }
}

fn has_type(format: Format, bytes: &[u8]) -> bool {
    let kind = match format {
        Format::Json => classify_json(bytes),
        Format::MessagePack => classify_msgpack(bytes),
    };
    kind != Err(EnvelopeError::NoType)
}

/// True if a message may need much work: it is long, or compressed, encrypted or signed.
#[inline]
fn needs_much(encoding: Encoding, bytes: &[u8]) -> bool {
    let is_layered = || {
        let framing = identify(bytes);
        matches!(framing, Framing::Encrypted | Framing::Zlib { .. })
    };
    bytes.len() >= LONG_MESSAGE_BYTES || (encoding == Encoding::Binary && is_layered())
}
