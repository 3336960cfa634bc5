//! `publish_request`: a publication of a client, read without a copy, and written.

use super::Object;
use super::objection::Objection;
use super::walk::{Refusal, Unusable, as_json, bounded, flag, unsigned, walk};
use crate::codes::ErrorCode;
use crate::envelope::{Category, Priority, SystemType};
use crate::format::{Format, NOT_BASE64, Place, check_binary_text};
use std::borrow::Cow;

/// A publication in a request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRequest<'a> {
    /// The topic, not empty; it may be an invalid name.
    pub topic: Cow<'a, str>,
    /// `type`, the type of the publication: 1 to [`TYPE_BYTES_MAX`] bytes, and not a type of the protocol.
    pub t: Cow<'a, str>,
    /// The payload: one validated JSON value in UTF-8, as the client wrote it. `{}` if it is missing, null if it is null. If
    /// it is binary, the base64 of the bytes in quotes, without escapes.
    pub payload: Cow<'a, [u8]>,
    /// Whether the payload is binary.
    pub binary: bool,
    /// [`Category::Update`] if it is missing; never [`Category::System`].
    pub category: Category,
    /// The priority, if the request has one.
    pub priority: Option<Priority>,
    /// The idempotency key: 1 to [`KEY_BYTES_MAX`] bytes.
    pub id: Option<Cow<'a, str>>,
    /// The conflation key: 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: Option<Cow<'a, str>>,
    /// The time to live in milliseconds, at least 1.
    pub ttl_ms: Option<u64>,
    /// Whether the publisher's own subscriptions do not receive it.
    pub exclude_self: bool,
}

impl<'a> PublishRequest<'a> {
    /// A publication of `payload`, which is one JSON value, with the default of each other field.
    #[must_use]
    pub fn new(topic: &'a str, t: &'a str, payload: &'a [u8]) -> Self {
        Self {
            topic: topic.into(),
            t: t.into(),
            payload: payload.into(),
            binary: false,
            category: Category::Update,
            priority: None,
            id: None,
            key: None,
            ttl_ms: None,
            exclude_self: false,
        }
    }

    /// Reads a message that classification found to be a `publish_request`: JSON text in UTF-8, or MessagePack
    /// without the prefix `M:`, which is converted to JSON in `scratch`. Also returns the
    /// correlation id; a request without one is not answered.
    ///
    /// # Errors
    /// `INVALID_MESSAGE` for a message that is invalid or nested too deep, and for a field that is missing, of a
    /// wrong type or out of range.
    pub fn parse(
        encoding: Format,
        bytes: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<(Self, Option<Cow<'a, str>>), Refusal> {
        Self::read(encoding, bytes, scratch).map_err(|unusable| unusable.refusal(encoding, bytes))
    }

    fn read(
        encoding: Format,
        bytes: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<(Self, Option<Cow<'a, str>>), Unusable> {
        let text = as_json(encoding, Place::Carrier, bytes, scratch)?;
        let mut request = Self::new("", "", b"{}");
        let correlation_id = walk(text, |name, value| request.set(name, value))?;
        if request.topic.is_empty() {
            return Err(Unusable::payload("topic is missing", correlation_id));
        }
        if request.t.is_empty() {
            return Err(Unusable::payload("type is missing", correlation_id));
        }
        if request.binary {
            request.payload = match binary_payload(request.payload) {
                Some(payload) => payload,
                None => return Err(Unusable::payload(NOT_BASE64, correlation_id)),
            };
        }
        Ok((request, correlation_id))
    }

    fn set(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Objection> {
        let invalid = |words| (ErrorCode::InvalidMessage, words);
        match name {
            b"topic" => self.topic = bounded(value, usize::MAX, "topic is not a name")?,
            b"type" => {
                self.t = bounded(value, TYPE_BYTES_MAX, "type is not 1 to 128 bytes of text")?;
                // Subscribers would mistake it for a message of the server's own.
                if SystemType::parse(&self.t).is_some() {
                    return Err(invalid("type is one of the protocol's"));
                }
            }
            b"payload" => self.payload = value.into(),
            b"binary" => self.binary = flag(value, BINARY_NO_FLAG)?,
            b"category" => {
                self.category = match value {
                    b"\"U\"" => Category::Update,
                    b"\"S\"" => Category::Snapshot,
                    _ => return Err(invalid("category is neither U nor S")),
                }
            }
            b"priority" => {
                let words = "priority is not 1, 3, 5, 8 or 10";
                let priority = Priority::from_number(unsigned(value, words)?);
                self.priority = Some(priority.ok_or(invalid(words))?);
            }
            b"id" => {
                self.id = Some(bounded(
                    value,
                    KEY_BYTES_MAX,
                    "id is not 1 to 128 bytes of text",
                )?);
            }
            b"key" => {
                self.key = Some(bounded(
                    value,
                    KEY_BYTES_MAX,
                    "key is not 1 to 128 bytes of text",
                )?);
            }
            b"ttl_ms" => {
                let words = "ttl_ms is not a number from 1 on";
                let ttl_ms = unsigned(value, words)?;
                self.ttl_ms = Some(ttl_ms);
                if ttl_ms == 0 {
                    return Err(invalid(words));
                }
            }
            b"exclude_self" => {
                self.exclude_self = flag(value, "exclude_self is neither true nor false")?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn write_payload(&self, out: &mut Vec<u8>) {
        let mut object = Object::open(out);
        object.text("topic", &self.topic);
        object.text("type", &self.t);
        if self.category != Category::Update {
            object.text("category", self.category.as_str());
        }
        if let Some(priority) = self.priority {
            object.number("priority", priority.number().into());
        }
        if let Some(id) = &self.id {
            object.text("id", id);
        }
        if let Some(key) = &self.key {
            object.text("key", key);
        }
        if let Some(ttl_ms) = self.ttl_ms {
            object.number("ttl_ms", ttl_ms);
        }
        if self.exclude_self {
            object.boolean("exclude_self", true);
        }
        if self.binary {
            object.boolean("binary", true);
        }
        object.with("payload", |out| out.extend_from_slice(&self.payload));
        object.close();
    }
}

/// The text of a payload that is marked as binary, without escapes; `None` if it is not base64.
pub(super) fn binary_payload(payload: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
    match payload {
        Cow::Borrowed(payload) => check_binary_text(payload),
        Cow::Owned(payload) => Some(Cow::Owned(check_binary_text(&payload)?.into_owned())),
    }
}

pub(super) const BINARY_NO_FLAG: &str = "binary is neither true nor false";

/// The maximum length of the type of a publication or of a call, in bytes.
pub const TYPE_BYTES_MAX: usize = 128;

/// The maximum length of an idempotency key, a conflation key or the correlation id of a call, in bytes.
pub const KEY_BYTES_MAX: usize = 128;
