//! Messages of the server's application, as they were received.

use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use tidewire_wire::envelope::{EnvelopeError, Outline, message_payload};
use tidewire_wire::format::Format;

/// A message as it came. Cheap to clone; it shares its bytes with those that came with it.
#[derive(Clone)]
pub struct Message {
    data: Bytes,
    /// Where the payload is, if that was found on the way; otherwise empty.
    payload: Range<u32>,
    encoding: Format,
    session: u32,
}

impl Message {
    /// The envelope: JSON text, or MessagePack without its prefix.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.data
    }

    /// A message of these bytes, whose payload is at `payload` (empty if that is not known).
    pub(crate) fn new(data: Bytes, payload: Range<u32>, encoding: Format, session: u32) -> Self {
        Self {
            data,
            payload,
            encoding,
            session,
        }
    }

    /// A message that came inside another one, JSON text.
    pub(crate) fn of_json(json: Vec<u8>, session: u32) -> Self {
        Self {
            data: json.into(),
            payload: 0..0,
            encoding: Format::Json,
            session,
        }
    }

    /// How it is encoded.
    #[must_use]
    pub fn encoding(&self) -> Format {
        self.encoding
    }

    /// On which session of the client it came, from 1.
    #[must_use]
    pub fn session(&self) -> u32 {
        self.session
    }

    /// What the envelope says around the payload. Looks through the message each time.
    ///
    /// # Errors
    /// A message whose type was found, but that is broken behind it: the peer's fault.
    pub fn outline(&self) -> Result<Outline<'_>, EnvelopeError> {
        Outline::find(self.encoding, &self.data)
    }

    /// The whole envelope as JSON text.
    ///
    /// # Errors
    /// MessagePack that cannot be JSON: the peer's fault.
    pub fn json(&self) -> Result<Cow<'_, [u8]>, EnvelopeError> {
        Ok(self.encoding.json_of(&self.data)?)
    }

    /// The payload as JSON text; `null` if there is none.
    ///
    /// # Errors
    /// A message that is broken; as [`Self::json`].
    pub fn payload(&self) -> Result<Cow<'_, [u8]>, EnvelopeError> {
        match self.payload_bytes()? {
            None => Ok(Cow::Borrowed(b"null")),
            Some(payload) => Ok(self.encoding.json_of(payload)?),
        }
    }

    /// The bytes of the payload as they stand in the message; `None` if there is none.
    fn payload_bytes(&self) -> Result<Option<&[u8]>, EnvelopeError> {
        if self.payload.is_empty() {
            return message_payload(self.encoding, &self.data);
        }
        let (start, end) = (self.payload.start as usize, self.payload.end as usize);
        Ok(self.data.get(start..end))
    }
}

/// They are equal if they came with the same bytes on the same session.
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
