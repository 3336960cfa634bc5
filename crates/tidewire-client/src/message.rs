//! Messages of the server's application, as they were received.

use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use tidewire_wire::envelope::{EnvelopeError, Outline, message_content, payload_bytes};
use tidewire_wire::format::Format;

/// A received message. Cheap to clone: messages that were received together share one buffer.
#[derive(Clone)]
pub struct Message {
    data: Bytes,
    /// The range of the payload in `data`; empty if it is not known.
    payload: Range<u32>,
    /// Whether that payload is binary.
    is_binary: bool,
    encoding: Format,
    session: u32,
}

impl Message {
    /// The envelope: JSON text, or MessagePack without its prefix.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.data
    }

    /// A message of these bytes, whose payload is at `payload` (empty if that is not known) and binary or not.
    pub(crate) fn new(
        data: Bytes,
        (payload, is_binary): (Range<u32>, bool),
        encoding: Format,
        session: u32,
    ) -> Self {
        Self {
            data,
            payload,
            is_binary,
            encoding,
            session,
        }
    }

    /// A message from inside another one, JSON text.
    pub(crate) fn of_json(json: Vec<u8>, session: u32) -> Self {
        Self {
            data: json.into(),
            payload: 0..0,
            is_binary: false,
            encoding: Format::Json,
            session,
        }
    }

    /// The encoding.
    #[must_use]
    pub fn encoding(&self) -> Format {
        self.encoding
    }

    /// The number of the session on which it was received, counted from 1 for each client.
    #[must_use]
    pub fn session(&self) -> u32 {
        self.session
    }

    /// The fields of the envelope without the payload. Each call reads the message again.
    ///
    /// # Errors
    /// The message is malformed behind its type: the peer's fault.
    pub fn outline(&self) -> Result<Outline<'_>, EnvelopeError> {
        Outline::find(self.encoding, &self.data)
    }

    /// The whole envelope as JSON text.
    ///
    /// # Errors
    /// The MessagePack has no JSON form: the peer's fault.
    pub fn json(&self) -> Result<Cow<'_, [u8]>, EnvelopeError> {
        Ok(self.encoding.json_of(&self.data)?)
    }

    /// The payload as JSON text; `{}` if there is none. Of a payload that is binary its base64.
    ///
    /// # Errors
    /// The message is malformed, or as [`Self::json`].
    pub fn payload(&self) -> Result<Cow<'_, [u8]>, EnvelopeError> {
        match self.content()?.0 {
            None => Ok(Cow::Borrowed(b"{}")),
            Some(payload) => Ok(self.encoding.json_of(payload)?),
        }
    }

    /// The bytes of a payload that is binary; `None` for any other.
    ///
    /// # Errors
    /// The message is malformed, or marked as binary without being so.
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, EnvelopeError> {
        match self.content()? {
            (Some(payload), true) => {
                let bytes = payload_bytes(self.encoding, payload);
                Ok(bytes.map(Cow::into_owned))
            }
            _ => Ok(None),
        }
    }

    /// The encoded payload, `None` if there is none, and whether it is binary.
    fn content(&self) -> Result<(Option<&[u8]>, bool), EnvelopeError> {
        if self.payload.is_empty() {
            return message_content(self.encoding, &self.data);
        }
        let (start, end) = (self.payload.start as usize, self.payload.end as usize);
        Ok((self.data.get(start..end), self.is_binary))
    }
}

/// Equal messages have the same bytes, encoding and session.
impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        let this = (&self.data, self.encoding, self.session);
        this == (&other.data, other.encoding, other.session)
    }
}

impl Eq for Message {}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.json() {
            Ok(json) => write!(f, "Message({})", String::from_utf8_lossy(&json)),
            Err(_) => write!(f, "Message({} bytes)", self.data.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_payload_is_an_empty_object_and_null_is_null() {
        for (json, expected) in [
            (r#"{"t":"x"}"#, "{}"),
            (r#"{"t":"x","p":null}"#, "null"),
            (r#"{"t":"x","payload":[1]}"#, "[1]"),
        ] {
            let message = Message::of_json(json.as_bytes().to_vec(), 1);
            let payload = message.payload().expect("a message");
            assert_eq!(payload, expected.as_bytes(), "{json}");
        }
    }
}
