//! Inflation of inbound messages: permessage-deflate and the zlib form of version 1.

use crate::model::Encoding;
use crate::session::Session;
use crate::state::connection::Phase;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::format::{Format, FormatError, Framing, MESSAGEPACK_PREFIX, identify};
use tidewire_wire::frame::ProtocolError;
use tidewire_wire::message::{Compressed, Event};
use tidewire_wire::session::Reply;

impl Session<'_> {
    /// Inflates a message of permessage-deflate and returns its encoding. `None` for a message that
    /// is neither admitted nor needed for the next one.
    pub(crate) fn inflate_frame(
        &mut self,
        message: &Compressed<'_>,
        is_admitted: bool,
        inflated: &mut Vec<u8>,
    ) -> Result<Option<Encoding>, ProtocolError> {
        let counts_messages = self.state.encryption().is_some();
        let is_over = self.state.phase() == Phase::Over;
        let layers = self.state.layers.as_deref_mut();
        let Some(deflate) = layers.and_then(|layers| layers.deflate.as_mut()) else {
            return Ok(None);
        };
        let is_of_use = is_admitted || deflate.remembers_received() || counts_messages;
        if is_over || !is_of_use {
            return Ok(None);
        }
        let limit = self.core.setup.config.limits.message_bytes_max;
        let result = deflate
            .decompress(&mut self.core.codec.deflate, message.bytes, inflated, limit)
            .and_then(|()| message.event(inflated));
        let encoding = match result {
            Ok(Event::Text(_)) => Encoding::Text,
            Ok(_) => Encoding::Binary,
            Err(error) => {
                self.charge_inflated(limit);
                return Err(error);
            }
        };
        self.core.counters.messages_inflated.add(1);
        self.charge_inflated(inflated.len());
        Ok(Some(encoding))
    }

    /// Inflates a message in the zlib form (`C:`) into `inflated`; any other is returned as it is.
    /// A message that cannot be inflated is refused.
    pub(crate) fn inflate<'b>(
        &mut self,
        bytes: &'b [u8],
        inflated: &'b mut Vec<u8>,
    ) -> Option<&'b [u8]> {
        let Framing::Zlib { prefix_bytes } = identify(bytes) else {
            return Some(bytes);
        };
        let limit = self.core.setup.config.limits.message_bytes_max;
        match self
            .core
            .codec
            .inflater
            .inflate(&bytes[prefix_bytes..], inflated, limit)
        {
            Ok(()) => {
                self.core.counters.messages_inflated.add(1);
                self.charge_inflated(inflated.len());
            }
            Err(error @ FormatError::TooLarge { .. }) => {
                self.charge_inflated(limit);
                self.core.counters.messages_refused_size.add(1);
                self.reply(&Reply::error(ErrorCode::MessageTooLarge, error.to_string()));
                return None;
            }
            Err(error) => {
                // The size inflated so far is not known; a stream can go wrong at its very end.
                self.charge_inflated(limit.min(bytes.len().saturating_mul(INFLATION_MAX)));
                self.refuse_unread(&error.to_string());
                return None;
            }
        }
        match identify(inflated) {
            Framing::Encrypted => {
                self.refuse_unread("a compressed message holds an encrypted one");
                None
            }
            Framing::Zlib { .. } => {
                self.refuse_unread("a compressed message holds a compressed one");
                None
            }
            Framing::Json | Framing::MessagePack => Some(inflated),
        }
    }

    /// The format and the envelope of a message that is neither encrypted nor compressed.
    pub(crate) fn unframe<'b>(
        &mut self,
        framing: Framing,
        bytes: &'b [u8],
    ) -> Option<(Format, &'b [u8])> {
        match framing {
            Framing::MessagePack => Some((Format::MessagePack, &bytes[MESSAGEPACK_PREFIX.len()..])),
            Framing::Json if std::str::from_utf8(bytes).is_ok() => Some((Format::Json, bytes)),
            Framing::Json => {
                self.refuse(Format::Json, bytes, "a binary JSON message is not UTF-8");
                None
            }
            Framing::Encrypted | Framing::Zlib { .. } => None,
        }
    }
}

/// Deflate makes at most this many bytes of one (RFC 1951: 258 bytes for two bits), and a few more.
const INFLATION_MAX: usize = 1032;
