//! Reading a system message in one pass, with the payload's fields as the bytes that they came in.

use super::request::Objection;
use crate::codes::ErrorCode;
use crate::envelope::peek::json_text;
use crate::envelope::scan::{Short, unescape};
use crate::envelope::strict::Cursor;
use crate::envelope::{EnvelopeError, classify_msgpack, strip_category};
use crate::format::{Format, msgpack_to_json};
use std::borrow::Cow;

/// Why a request is refused: an `error` to be sent, which carries the request's correlation id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub code: ErrorCode,
    /// The same in words.
    pub message: Cow<'static, str>,
    /// `cid` of the request; `None` also if the message was too broken to find it.
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

impl From<Unusable> for Refusal {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Envelope(error) => Self {
                code: ErrorCode::InvalidMessage,
                message: error.to_string().into(),
                correlation_id: None,
            },
            Unusable::Payload((code, message), correlation_id) => Self {
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

/// The message as JSON: itself, or what `scratch` is made to hold.
pub(super) fn as_json<'a>(
    encoding: Format,
    bytes: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], EnvelopeError> {
    match encoding {
        Format::Json => Ok(bytes),
        Format::MessagePack => {
            // A type made of bytes would become a string, and the two ways to read it would differ.
            classify_msgpack(bytes)?;
            scratch.clear();
            msgpack_to_json(bytes, scratch)?;
            Ok(scratch)
        }
    }
}

/// Walks through the whole message, which must be valid, and gives `field` each field of the payload that
/// is not null: its name, and the bytes of its value. The message's correlation id comes back.
///
/// What `field` objects to is told once the correlation id is known.
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
        let Some((bit, shape)) = plain(raw, known) else {
            cursor.value()?;
            continue;
        };
        if seen & bit != 0 {
            cursor.value()?;
            continue;
        }
        seen |= bit;
        if shape == Shape::Payload {
            let result = walk_payload(&mut cursor, &mut field)?;
            objection = objection.or(result.err());
            continue;
        }
        let value = cursor.value()?;
        if value == b"null" {
            continue;
        }
        check_shape(shape, value)?;
        if shape == Shape::CorrelationId {
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
        let value = cursor.value()?;
        if result.is_ok() && value != b"null" {
            result = plain(raw, |name| field(name, value));
        }
    }
    Ok(result)
}

/// What `take` makes of a name without its escapes, which the cursor has found to be right. One that is
/// longer than any of the protocol's is empty.
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

/// What a field of the envelope must be.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Payload,
    CorrelationId,
    Text(&'static str),
    Unsigned(&'static str),
    Flag(&'static str),
}

/// The envelope's fields, each with a bit of its own; the type has been looked at by classification.
fn known(name: &[u8]) -> Option<(u32, Shape)> {
    let (index, shape) = match name {
        b"p" | b"payload" => (0, Shape::Payload),
        b"cid" => (1, Shape::CorrelationId),
        b"c" => (2, Shape::Text("c")),
        b"id" => (3, Shape::Text("id")),
        b"ts" => (4, Shape::Text("ts")),
        b"sig" => (5, Shape::Text("sig")),
        b"tp" => (6, Shape::Text("tp")),
        b"e" => (7, Shape::Text("e")),
        b"seq" => (8, Shape::Unsigned("seq")),
        b"v" => (9, Shape::Unsigned("v")),
        b"pri" => (10, Shape::Unsigned("pri")),
        b"o" => (11, Shape::Unsigned("o")),
        b"d" => (12, Shape::Unsigned("d")),
        b"n" => (13, Shape::Unsigned("n")),
        b"rd" => (14, Shape::Flag("rd")),
        _ => return None,
    };
    Some((1 << index, shape))
}

fn check_shape(shape: Shape, value: &[u8]) -> Result<(), EnvelopeError> {
    let (name, holds) = match shape {
        Shape::Payload => return Ok(()),
        Shape::CorrelationId => ("cid", value.starts_with(b"\"")),
        Shape::Text(name) => (name, value.starts_with(b"\"")),
        Shape::Unsigned(name) => (name, digits(value).is_some()),
        Shape::Flag(name) => (name, matches!(value, b"true" | b"false")),
    };
    if holds {
        Ok(())
    } else {
        Err(EnvelopeError::InvalidField(name))
    }
}

/// The number that decimal digits alone say. The cursor has refused zeros in front.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
