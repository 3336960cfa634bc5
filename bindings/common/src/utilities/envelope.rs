//! The envelope around the payload of a message (PROTOCOL.md, "Envelope"): reading and writing.

use crate::failure::Failure;
use crate::utilities::random::random;
use crate::utilities::unix_ms;
use std::borrow::Cow;
use std::ops::Range;
use tidewire_wire::envelope::{
    Category, Envelope as Head, EnvelopeHeader, Priority, PublicationHeader,
    msgpack_envelope_to_json, pack_payload, parse_json_head, payload_bytes,
};
use tidewire_wire::format::{Format, Framing, identify};
use tidewire_wire::timestamp::parse_rfc3339_ms;
use tidewire_wire::uuid::{Uuid, uuid_v7};

/// A message whose fields were read, but not its payload.
pub struct Envelope<T> {
    head: Head,
    text: Text<T>,
    payload: Option<Range<usize>>,
}

/// The message: as it was given, or as JSON that was made of it.
enum Text<T> {
    Given(T),
    Made(Vec<u8>),
}

impl<T: AsRef<[u8]>> Text<T> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Given(text) => text.as_ref(),
            Self::Made(text) => text,
        }
    }
}

impl<T: AsRef<[u8]>> Envelope<T> {
    /// Reads a message: JSON, or MessagePack behind `M:`.
    ///
    /// # Errors
    /// The message is compressed, encrypted or not an envelope, or a field has a wrong type.
    pub fn parse(message: T) -> Result<Self, Failure> {
        let bytes = message.as_ref();
        let text = match identify(bytes) {
            framing @ Framing::MessagePack => {
                let mut text = Vec::with_capacity(bytes.len() * 2);
                msgpack_envelope_to_json(&bytes[framing.prefix_bytes()..], &mut text)?;
                Text::Made(text)
            }
            Framing::Json => Text::Given(message),
            Framing::Encrypted => return Err(Failure::invalid_message(ENCRYPTED)),
            Framing::Zlib { .. } => return Err(Failure::invalid_message(COMPRESSED)),
        };
        let bytes = text.as_slice();
        let (head, payload) = parse_json_head(bytes)?;
        let payload = payload.map(|payload| {
            let start = payload.as_ptr().addr() - bytes.as_ptr().addr();
            start..start + payload.len()
        });
        Ok(Self {
            head,
            text,
            payload,
        })
    }

    /// The fields; the payload is null.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// `update`, `snapshot` or `system`; `None` if the message does not name its category.
    #[must_use]
    pub fn category(&self) -> Option<&'static str> {
        self.head.category.map(|category| match category {
            Category::System => "system",
            Category::Snapshot => "snapshot",
            Category::Update => "update",
        })
    }

    /// The time at which the message was made, in milliseconds since 1970, if it has one.
    ///
    /// # Errors
    /// The field is not a time.
    pub fn unix_ms(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.head.ts else {
            return Ok(None);
        };
        let problem = || Failure::invalid_message(format!("the message's time is no time: {text}"));
        parse_rfc3339_ms(text).map(Some).ok_or_else(problem)
    }

    /// 1 (background), 3, 5 (normal, also if the message has none), 8 or 10 (critical).
    #[must_use]
    pub fn priority(&self) -> u64 {
        let normal = Priority::Normal.number();
        self.head.priority.unwrap_or(normal.into())
    }

    /// The epoch and the offset of the message in the history of its topic.
    #[must_use]
    pub fn position(&self) -> Option<(&str, u64)> {
        Some((self.head.epoch.as_deref()?, self.head.offset?))
    }

    /// The bytes of a payload that is binary; `None` for any other.
    #[must_use]
    pub fn payload_bytes(&self) -> Option<Cow<'_, [u8]>> {
        let text = self.head.binary.then(|| self.payload_text()).flatten()?;
        payload_bytes(Format::Json, text)
    }

    /// The payload as the JSON text in the message, not checked. Of a binary payload this is base64 text in quotes.
    #[must_use]
    pub fn payload_text(&self) -> Option<&[u8]> {
        Some(&self.text.as_slice()[self.payload.clone()?])
    }
}

/// The fields of a message besides its type and payload. A topic, a position or a priority makes it what a server
/// publishes to many subscribers, which has no time, sequence, signature or number.
#[derive(Clone, Debug, Default)]
pub struct EnvelopeFields<'a> {
    /// `update` (the default), `snapshot` or `system`.
    pub category: Option<Cow<'a, str>>,
    /// A UUID; by default a new one that sorts by the time.
    pub id: Option<Cow<'a, str>>,
    /// Milliseconds since 1970; by default the current time.
    pub unix_ms: Option<u64>,
    /// The sender's count of its messages; 0 by default.
    pub sequence: Option<u64>,
    /// The fields that an answer has in common with its request.
    pub correlation_id: Option<Cow<'a, str>>,
    /// The signature of the sender.
    pub signature: Option<Cow<'a, str>>,
    /// The producer's number of the message.
    pub number: Option<u64>,
    /// The topic that the message is published to.
    pub topic: Option<Cow<'a, str>>,
    /// The epoch and the offset in the history of the topic.
    pub position: Option<(u32, u64)>,
    /// 1, 3, 5 (the default), 8 or 10.
    pub priority: Option<u64>,
    /// The payload is binary: the base64 of the bytes in quotes.
    pub binary: bool,
    /// `json` (the default) or `msgpack`.
    pub format: Option<Cow<'a, str>>,
}

impl EnvelopeFields<'_> {
    /// The bytes of the message of the type `t` with `payload`, JSON text.
    ///
    /// # Errors
    /// The type is empty, a field has a value that cannot be used, or two fields exclude each other.
    pub fn encode(&self, t: &str, payload: &[u8]) -> Result<Vec<u8>, Failure> {
        if t.is_empty() {
            let message = "a type is needed: it is what receivers choose handlers by";
            return Err(Failure::argument(message));
        }
        let mut out = Vec::with_capacity(payload.len() + HEADER_BYTES);
        let format = message_format(self.format.as_deref())?;
        if self.topic.is_some() || self.position.is_some() || self.priority.is_some() {
            self.write_publication(t, format, payload, &mut out)?;
        } else {
            self.write_message(t, format, payload, &mut out)?;
        }
        Ok(out)
    }

    fn write_message(
        &self,
        t: &str,
        format: Format,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let unix_ms = self.unix_ms.unwrap_or_else(unix_ms);
        let id = match &self.id {
            Some(id) => Uuid::parse(id)
                .ok_or_else(|| Failure::argument("id has to be the 36 characters of a UUID"))?,
            None => uuid_v7(unix_ms, *random()?),
        };
        let header = EnvelopeHeader {
            category: category(self.category.as_deref())?,
            t,
            id,
            unix_ms,
            seq: self.sequence.unwrap_or(0),
            correlation_id: self.correlation_id.as_deref(),
            signature: self.signature.as_deref(),
            number: self.number,
            binary: self.binary,
        };
        Ok(header.write(format, payload, out)?)
    }

    fn write_publication(
        &self,
        t: &str,
        format: Format,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if self.unix_ms.is_some()
            || self.sequence.is_some()
            || self.signature.is_some()
            || self.number.is_some()
        {
            return Err(Failure::argument(MIXED));
        }
        let priority = self.priority.map_or(Ok(Priority::Normal), |number| {
            let priority = Priority::from_number(number);
            priority.ok_or_else(|| Failure::argument("priority has to be 1, 3, 5, 8 or 10"))
        })?;
        let header = PublicationHeader {
            category: category(self.category.as_deref())?,
            t,
            topic: self.topic.as_deref(),
            position: self.position,
            id: self.id.as_deref(),
            priority,
            delivery: None,
            correlation_id: self.correlation_id.as_deref(),
            binary: self.binary,
        };
        match format {
            Format::Json => header.write_json(payload, out),
            Format::MessagePack => {
                let mut packed = Vec::with_capacity(payload.len());
                pack_payload(payload, self.binary, &mut packed)?;
                header.write_msgpack(&packed, out);
            }
        }
        Ok(())
    }
}

fn message_format(name: Option<&str>) -> Result<Format, Failure> {
    match name {
        None | Some("json") => Ok(Format::Json),
        Some("msgpack") => Ok(Format::MessagePack),
        Some(other) => {
            let message = format!("format has to be json or msgpack, not {other:?}");
            Err(Failure::argument(message))
        }
    }
}

fn category(name: Option<&str>) -> Result<Category, Failure> {
    match name {
        None | Some("update") => Ok(Category::Update),
        Some("snapshot") => Ok(Category::Snapshot),
        Some("system") => Ok(Category::System),
        Some(other) => {
            let message = format!("category has to be update, snapshot or system, not {other:?}");
            Err(Failure::argument(message))
        }
    }
}

const COMPRESSED: &str = "the message is compressed; give what decompress() makes of it";
const ENCRYPTED: &str = "the message is encrypted; give what SessionCipher.open() makes of it";
const MIXED: &str = "a message with a topic, a position or a priority goes to many, and so has no time, sequence, \
                     signature or number of its own";

/// Room for everything but the payload, if texts are short.
const HEADER_BYTES: usize = 192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_in_both_formats() {
        for format in ["json", "msgpack"] {
            let fields = EnvelopeFields {
                unix_ms: Some(1_700_000_000_123),
                sequence: Some(7),
                format: Some(format.into()),
                ..EnvelopeFields::default()
            };
            let message = fields.encode("order", b"[1]").expect("a message");
            let read = Envelope::parse(message).expect("an envelope");
            assert_eq!(
                (read.category(), &*read.head().t),
                (Some("update"), "order")
            );
            assert_eq!(read.unix_ms().expect("a time"), Some(1_700_000_000_123));
            assert_eq!(read.payload_text(), Some(b"[1]".as_slice()));
            assert_eq!((read.head().seq, read.priority()), (Some(7), 5));
        }
    }

    #[test]
    fn a_publication_has_no_time_of_its_own() {
        let fields = EnvelopeFields {
            topic: Some("orders".into()),
            position: Some((1, 2)),
            ..EnvelopeFields::default()
        };
        let message = fields.encode("order", b"1").expect("a message");
        let read = Envelope::parse(message).expect("an envelope");
        assert_eq!(read.position(), Some(("00000001", 2)));
        let timed = EnvelopeFields {
            unix_ms: Some(0),
            ..fields
        };
        assert!(timed.encode("order", b"1").is_err());
    }
}
