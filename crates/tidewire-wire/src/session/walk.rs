//! The reader of system messages: one pass, and the payload's fields as the bytes in which they arrived.

use super::objection::Objection;
use crate::codes::ErrorCode;
use crate::envelope::field::{Field, Values};
use crate::envelope::raw::Raw;
use crate::envelope::{EnvelopeError, classify_msgpack, readable_correlation_id, strip_category};
use crate::format::{Format, Place, message_to_exact_json};
use crate::json::strict::Cursor;
use crate::json::text::{Short, text as json_text, unescape};
use crate::json::{JsonError, digits};
use std::borrow::Cow;

/// Why a request is refused: an `error` to be sent, which carries the request's correlation id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The fault.
    pub code: ErrorCode,
    /// The same in words.
    pub message: Cow<'static, str>,
    /// `cid` of the request; `None` also if it could not be read.
    pub correlation_id: Option<String>,
}

/// Why a message cannot be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// It is not valid.
    Envelope(EnvelopeError),
    /// Its payload is not what it should be; the message has this correlation id.
    Payload(Objection, Option<String>),
}

impl Unusable {
    /// A field that is missing, wrong, or wrong together with others.
    pub(super) fn payload(words: &'static str, correlation_id: Option<Cow<'_, str>>) -> Self {
        let objection = (ErrorCode::InvalidMessage, words);
        Self::Payload(objection, correlation_id.map(Cow::into_owned))
    }
}

impl From<EnvelopeError> for Unusable {
    fn from(error: EnvelopeError) -> Self {
        Self::Envelope(error)
    }
}

impl From<JsonError> for Unusable {
    fn from(error: JsonError) -> Self {
        Self::Envelope(error.into())
    }
}

impl Refusal {
    /// `INVALID_MESSAGE` for a message that is not valid, with its correlation id if that can be read.
    #[must_use]
    pub fn of(error: &EnvelopeError, encoding: Format, bytes: &[u8]) -> Self {
        Self {
            code: ErrorCode::InvalidMessage,
            message: error.to_string().into(),
            correlation_id: readable_correlation_id(encoding, bytes),
        }
    }
}

impl Unusable {
    /// The refusal of the message.
    pub(super) fn refusal(self, encoding: Format, bytes: &[u8]) -> Refusal {
        match self {
            Self::Envelope(error) => Refusal::of(&error, encoding, bytes),
            Self::Payload((code, message), correlation_id) => Refusal {
                code,
                message: message.into(),
                correlation_id,
            },
        }
    }
}

impl From<Unusable> for EnvelopeError {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Envelope(error) => error,
            Unusable::Payload(..) => Self::InvalidField("p"),
        }
    }
}

/// The message, an envelope at `place`, as JSON: itself, or what `scratch` is made to hold.
pub(super) fn as_json<'a>(
    encoding: Format,
    place: Place,
    bytes: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], EnvelopeError> {
    match encoding {
        Format::Json => Ok(bytes),
        Format::MessagePack => {
            // A type made of bytes would become a string, and the two ways to read it would differ.
            classify_msgpack(bytes)?;
            scratch.clear();
            message_to_exact_json(place, bytes, scratch)?;
            Ok(scratch)
        }
    }
}

/// What a request is answered with, and its payload where it stands in the message.
#[derive(Debug)]
pub(super) struct Head<'a> {
    /// `cid`.
    pub(super) correlation_id: Option<String>,
    /// `p` or `payload`.
    pub(super) payload: Raw<'a>,
}

impl<'a> Head<'a> {
    /// Checks a whole message and finds its payload. Of repeated fields the first counts.
    pub(super) fn read(encoding: Format, bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        let values = match encoding {
            Format::Json => json_values(bytes)?,
            Format::MessagePack => Values::of_checked_msgpack(bytes)?,
        };
        let mut correlation_id = None;
        for field in Field::ALL {
            let Some(value) = values.get(field).map(|value| Raw::new(encoding, value)) else {
                continue;
            };
            if field != Field::Payload && !value.is_null() && !has_shape(field, value) {
                return Err(EnvelopeError::InvalidField(field.name()));
            }
            if field == Field::CorrelationId {
                correlation_id = value.text().map(Cow::into_owned);
            }
        }
        let payload = values.get(Field::Payload);
        Ok(Self {
            correlation_id,
            payload: payload.map_or(Raw::NULL, |payload| Raw::new(encoding, payload)),
        })
    }
}

/// The fields of a message in JSON text, all of which is checked.
fn json_values(text: &[u8]) -> Result<Values<'_>, EnvelopeError> {
    let (_, object) = strip_category(text);
    let mut cursor = Cursor::new(object);
    if !cursor.enter_object()? {
        return Err(EnvelopeError::NotAnObject);
    }
    let mut values = Values::default();
    let mut first = true;
    while let Some(raw) = cursor.name(&mut first)? {
        let known = plain(raw, Field::of);
        let value = cursor.value()?;
        if let Some(field) = known {
            values.keep(field, value);
        }
    }
    cursor.finish()?;
    Ok(values)
}

/// Checks the whole message, which must be valid, and passes each field of the payload that is not null to
/// `field`: its name, and the bytes of its value. The field `payload` is passed even if it is null. Returns the
/// message's correlation id.
///
/// An objection that `field` returns is reported after the whole message is read, with the correlation id.
pub(super) fn walk<'a>(
    text: &'a [u8],
    mut field: impl FnMut(&[u8], &'a [u8]) -> Result<(), Objection>,
) -> Result<Option<Cow<'a, str>>, Unusable> {
    let (_, object) = strip_category(text);
    let mut cursor = Cursor::new(object);
    if !cursor.enter_object()? {
        return Err(EnvelopeError::NotAnObject.into());
    }
    let mut objection = None;
    let mut correlation_id = None;
    let mut seen = 0u32;
    let mut first = true;
    while let Some(raw) = cursor.name(&mut first)? {
        let known = plain(raw, Field::of).filter(|field| *field != Field::Type);
        let Some(known) = known.filter(|field| seen & (1 << *field as u32) == 0) else {
            // Unknown, a double, or the type, which classification has looked at.
            cursor.value()?;
            continue;
        };
        seen |= 1 << known as u32;
        if known == Field::Payload {
            let result = walk_payload(&mut cursor, &mut field)?;
            objection = objection.or(result.err());
            continue;
        }
        let value = cursor.value()?;
        if value == b"null" {
            continue;
        }
        if !has_shape(known, Raw::json(value)) {
            return Err(EnvelopeError::InvalidField(known.name()).into());
        }
        if known == Field::CorrelationId {
            correlation_id = json_text(value);
        }
    }
    cursor.finish()?;
    match objection {
        None => Ok(correlation_id),
        Some(objection) => {
            let correlation_id = correlation_id.map(Cow::into_owned);
            Err(Unusable::Payload(objection, correlation_id))
        }
    }
}

/// A text of 1 to `bytes_max` bytes.
pub(super) fn bounded<'a>(
    value: &'a [u8],
    bytes_max: usize,
    words: &'static str,
) -> Result<Cow<'a, str>, Objection> {
    json_text(value)
        .filter(|text| !text.is_empty() && text.len() <= bytes_max)
        .ok_or((ErrorCode::InvalidMessage, words))
}

/// An integer from 0 to 2^64 - 1.
pub(super) fn unsigned(value: &[u8], words: &'static str) -> Result<u64, Objection> {
    digits(value).ok_or((ErrorCode::InvalidMessage, words))
}

/// True or false.
pub(super) fn flag(value: &[u8], words: &'static str) -> Result<bool, Objection> {
    match value {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err((ErrorCode::InvalidMessage, words)),
    }
}

fn walk_payload<'a>(
    cursor: &mut Cursor<'a>,
    field: &mut impl FnMut(&[u8], &'a [u8]) -> Result<(), Objection>,
) -> Result<Result<(), Objection>, EnvelopeError> {
    if !cursor.enter_object()? {
        let is_missing = cursor.value()? == b"null";
        let objection = (ErrorCode::InvalidMessage, "the payload is not an object");
        return Ok(if is_missing { Ok(()) } else { Err(objection) });
    }
    let mut result = Ok(());
    let mut first = true;
    while let Some(raw) = cursor.name(&mut first)? {
        let is_payload = plain(raw, |name| name == b"payload");
        let value = match is_payload {
            true => cursor.payload()?,
            false => cursor.value()?,
        };
        // Null is a value for an application alone.
        if result.is_ok() && (is_payload || value != b"null") {
            result = plain(raw, |name| field(name, value));
        }
    }
    Ok(result)
}

/// Passes a name to `take` without its escapes, which the cursor has checked, and returns the result of `take`.
/// A name that is longer than any of the protocol's is passed as an empty one.
#[inline]
fn plain<T>(raw: &[u8], take: impl FnOnce(&[u8]) -> T) -> T {
    if !raw.contains(&b'\\') {
        return take(raw);
    }
    let mut short = Short::default();
    match unescape(raw, &mut short) {
        Ok(()) => take(short.as_bytes().unwrap_or_default()),
        Err(_) => take(b""),
    }
}

/// That a field has a value of its type.
fn has_shape(field: Field, value: Raw<'_>) -> bool {
    match field {
        // `b` has no meaning here, and no type but true a meaning anywhere.
        Field::Type | Field::Payload | Field::Binary => true,
        Field::Category
        | Field::Id
        | Field::CorrelationId
        | Field::Topic
        | Field::Epoch
        | Field::Time
        | Field::Signature => value.is_text(),
        Field::Offset
        | Field::Sequence
        | Field::Version
        | Field::Priority
        | Field::Delivery
        | Field::Number => value.unsigned().is_some(),
        Field::Redelivered => value.flag().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{parse_json, parse_msgpack};
    use crate::format::json_to_msgpack;
    use proptest::prelude::*;

    #[test]
    fn a_head_has_the_payload_where_it_stands() {
        let text = br#"WSE{"cid":"c\u0031","p":{"a":[1]},"t":"ping","p":2}"#;
        let head = Head::read(Format::Json, text).unwrap();
        assert_eq!(head.correlation_id.as_deref(), Some("c1"));
        assert_eq!(head.payload.to_json(20).as_deref(), Some(r#"{"a":[1]}"#));
        assert!(
            Head::read(Format::Json, br#"{"t":"a"}"#)
                .unwrap()
                .payload
                .is_null()
        );
        let wrong = Head::read(Format::Json, br#"{"t":"a","seq":-1}"#);
        assert_eq!(wrong.unwrap_err(), EnvelopeError::InvalidField("seq"));
        let keys = Head::read(Format::MessagePack, b"\x82\xa1t\xa1a\xc0\xc0");
        assert_eq!(keys.unwrap_err(), EnvelopeError::Malformed);
        let after = Head::read(Format::MessagePack, b"\x81\xa1t\xa1a\xc0");
        assert_eq!(after.unwrap_err(), EnvelopeError::Malformed);
    }

    proptest! {
        /// What a server reads in place, a client reads as a tree, and the other way round.
        #[test]
        fn both_readings_take_the_same(
            field in "p|cid|seq|id|v|rd|x", value in "[\\[\\]{}:,\"\\\\0-9eE.+u truefalsn-]{0,16}",
        ) {
            let text = format!("{{\"t\":\"a\",\"{field}\":{value}}}");
            let in_place = Head::read(Format::Json, text.as_bytes()).is_ok();
            let as_tree = parse_json(text.as_bytes()).is_ok();
            // A client does not check a value that is no field of the envelope.
            prop_assert!(in_place == as_tree || (field == "x" && as_tree), "{}", text);
            let mut packed = Vec::new();
            if in_place && json_to_msgpack(text.as_bytes(), &mut packed).is_ok() {
                prop_assert!(Head::read(Format::MessagePack, &packed).is_ok(), "{}", text);
                prop_assert!(parse_msgpack(&packed).is_ok(), "{}", text);
            }
        }

        #[test]
        fn both_readings_of_messagepack_take_the_same(
            bytes in prop::collection::vec(
                prop_oneof![any::<u8>(), 0x80u8..0xa3, Just(0xa1), Just(b'a')], 0..24,
            ),
        ) {
            let mut packed = b"\x82\xa1t\xa1a\xa1p".to_vec();
            packed.extend(bytes);
            let in_place = Head::read(Format::MessagePack, &packed).is_ok();
            let as_tree = parse_msgpack(&packed).is_ok();
            // A client reads a float that is not finite as null.
            let may_have_float = packed.iter().any(|byte| matches!(byte, 0xca | 0xcb));
            prop_assert!(in_place == as_tree || (as_tree && may_have_float), "{:x?}", packed);
        }
    }
}
