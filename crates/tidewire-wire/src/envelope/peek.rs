//! Single fields of an envelope, found without parsing the rest.

use super::{EnvelopeError, strip_category};
use crate::format::{Format, Item, Reader, base64_bytes, binary_bytes};
use crate::json::fields::Fields;
use crate::json::text::text as json_text;
use std::borrow::Cow;

/// `n`, a producer's number of a message: JSON text, or MessagePack without the prefix `M:`. `None` if it is
/// missing or null.
///
/// Fields are skipped until the first `n`, so that it is found fast where it stands before the payload; nothing
/// after it is read.
///
/// # Errors
/// No object, one that is broken on the way, and [`EnvelopeError::InvalidField`] for a number that is no
/// integer from 1 on.
pub fn message_number(encoding: Format, bytes: &[u8]) -> Result<Option<u64>, EnvelopeError> {
    let number = match encoding {
        Format::Json => match json_value(bytes, "n")? {
            None | Some(b"null") => return Ok(None),
            Some(text) => serde_json::from_slice(text).ok(),
        },
        Format::MessagePack => match msgpack_value(bytes, "n")? {
            None | Some(Item::Nil) => return Ok(None),
            Some(Item::Unsigned(number)) => Some(number),
            Some(Item::Signed(number)) => u64::try_from(number).ok(),
            Some(_) => None,
        },
    };
    match number {
        Some(number @ 1..) => Ok(Some(number)),
        _ => Err(EnvelopeError::InvalidField("n")),
    }
}

/// `id`, found in the same way as [`message_number`].
///
/// # Errors
/// As [`message_number`]; the field is a text.
pub fn message_id(encoding: Format, bytes: &[u8]) -> Result<Option<Cow<'_, str>>, EnvelopeError> {
    text_field(encoding, bytes, "id")
}

/// `cid`, found in the same way as [`message_number`].
///
/// # Errors
/// As [`message_number`]; the field is a text.
pub fn correlation_id(
    encoding: Format,
    bytes: &[u8],
) -> Result<Option<Cow<'_, str>>, EnvelopeError> {
    text_field(encoding, bytes, "cid")
}

/// `t`, or its synonym `type`, found in the same way as [`message_number`].
///
/// # Errors
/// As [`message_number`]; the field is a text.
pub fn message_type(encoding: Format, bytes: &[u8]) -> Result<Option<Cow<'_, str>>, EnvelopeError> {
    match text_field(encoding, bytes, "t")? {
        None => text_field(encoding, bytes, "type"),
        found => Ok(found),
    }
}

/// `tp`, the topic, found in the same way as [`message_number`].
///
/// # Errors
/// As [`message_number`]; the field is a text.
pub fn message_topic(
    encoding: Format,
    bytes: &[u8],
) -> Result<Option<Cow<'_, str>>, EnvelopeError> {
    text_field(encoding, bytes, "tp")
}

/// `traceparent`, the trace that the message belongs to, found in the same way as [`message_number`]. Whether it is
/// one of W3C Trace Context is not checked.
///
/// # Errors
/// As [`message_number`]; the field is a text.
pub fn message_traceparent(
    encoding: Format,
    bytes: &[u8],
) -> Result<Option<Cow<'_, str>>, EnvelopeError> {
    text_field(encoding, bytes, "traceparent")
}

/// The bytes of `p`, or of its synonym `payload`, whichever stands first; `None` if there is neither.
///
/// # Errors
/// No object, or one whose structure is broken, also behind the payload. The content of the payload is not checked.
pub fn message_payload(encoding: Format, bytes: &[u8]) -> Result<Option<&[u8]>, EnvelopeError> {
    match encoding {
        Format::Json => {
            let (_, object) = strip_category(bytes);
            let mut fields = Fields::open(object)?;
            let payload = fields.find(&["p", "payload"])?;
            while fields.next()?.is_some() {}
            Ok(payload)
        }
        Format::MessagePack => {
            let mut reader = Reader::new(bytes);
            let Item::Map(pairs) = reader.item()? else {
                return Err(EnvelopeError::NotAnObject);
            };
            let mut payload = None;
            for _ in 0..pairs {
                let name = reader.item()?;
                let value = reader.value(1)?;
                if matches!(name, Item::Str(b"p" | b"payload")) {
                    payload.get_or_insert(value);
                }
            }
            Ok(payload)
        }
    }
}

/// The bytes of a payload that is binary, from its value in JSON text or in MessagePack: base64 in quotes, a text that is
/// base64, or bytes. `None` for anything else.
pub fn payload_bytes(encoding: Format, payload: &[u8]) -> Option<Cow<'_, [u8]>> {
    match encoding {
        Format::Json => binary_bytes(payload).map(Cow::Owned),
        Format::MessagePack => match Reader::new(payload).item().ok()? {
            Item::Bin(bytes) => Some(Cow::Borrowed(bytes)),
            Item::Str(text) => base64_bytes(text).map(Cow::Owned),
            _ => None,
        },
    }
}

fn text_field<'a>(
    encoding: Format,
    bytes: &'a [u8],
    name: &'static str,
) -> Result<Option<Cow<'a, str>>, EnvelopeError> {
    let text = match encoding {
        Format::Json => match json_value(bytes, name)? {
            None | Some(b"null") => return Ok(None),
            Some(text) => json_text(text),
        },
        Format::MessagePack => match msgpack_value(bytes, name)? {
            None | Some(Item::Nil) => return Ok(None),
            Some(Item::Str(text)) => simdutf8::basic::from_utf8(text).ok().map(Cow::Borrowed),
            Some(_) => None,
        },
    };
    text.map(Some).ok_or(EnvelopeError::InvalidField(name))
}

fn json_value<'a>(text: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, EnvelopeError> {
    let (_, object) = strip_category(text);
    Ok(Fields::open(object)?.find(&[name])?)
}

fn msgpack_value<'a>(bytes: &'a [u8], name: &str) -> Result<Option<Item<'a>>, EnvelopeError> {
    let mut reader = Reader::new(bytes);
    let Item::Map(pairs) = reader.item()? else {
        return Err(EnvelopeError::NotAnObject);
    };
    if !reader.seek(pairs, name.as_bytes())? {
        return Ok(None);
    }
    Ok(Some(reader.item()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::json_to_msgpack;

    /// The same of both encodings.
    fn in_both<T: PartialEq + std::fmt::Debug>(text: &str, peek: impl Fn(Format, &[u8]) -> T) -> T {
        let mut packed = Vec::new();
        json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
        let found = peek(Format::Json, text.as_bytes());
        assert_eq!(peek(Format::MessagePack, &packed), found, "{text}");
        found
    }

    #[test]
    fn numbers() {
        let wrong = Err(EnvelopeError::InvalidField("n"));
        for (text, expected) in [
            (r#"{"t":"a","n":7,"p":{}}"#, Ok(Some(7))),
            (
                r#"{"t":"a","p":{"n":1},"\u006e":18446744073709551615}"#,
                Ok(Some(u64::MAX)),
            ),
            (r#"{"n":1,"n":2}"#, Ok(Some(1))),
            (r#"{"t":"a","p":{"n":1}}"#, Ok(None)),
            (r#"{"t":"a","n":null}"#, Ok(None)),
            (r#"{"n":0}"#, wrong.clone()),
            (r#"{"n":-1}"#, wrong.clone()),
            (r#"{"n":1.0}"#, wrong.clone()),
            (r#"{"n":"1"}"#, wrong.clone()),
            (r#"{"n":[1]}"#, wrong),
            ("[1]", Err(EnvelopeError::NotAnObject)),
        ] {
            assert_eq!(in_both(text, message_number), expected, "{text}");
        }
        assert_eq!(message_number(Format::Json, b"U{\"n\":3}"), Ok(Some(3)));
        let broken = message_number(Format::Json, b"{\"t\":[},\"n\":3}");
        assert_eq!(broken, Err(EnvelopeError::Malformed));
    }

    #[test]
    fn payloads() {
        let json = |text: &'static str| message_payload(Format::Json, text.as_bytes());
        for (text, expected) in [
            (r#"{"t":"a","p":{"p":1} }"#, Some(r#"{"p":1}"#)),
            (r#"{"payload": [1] ,"p":2}"#, Some("[1]")),
            (r#"{"x":{"p":1},"\u0070":null}"#, Some("null")),
            (r#"{"t":"a"}"#, None),
        ] {
            assert_eq!(json(text), Ok(expected.map(str::as_bytes)), "{text}");
            let mut packed = Vec::new();
            json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
            let value = expected.map(|text| {
                let mut packed = Vec::new();
                json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
                packed
            });
            let found = message_payload(Format::MessagePack, &packed);
            assert_eq!(found, Ok(value.as_deref()), "{text}");
        }
        assert_eq!(json("[1]"), Err(EnvelopeError::NotAnObject));
        for broken in [r#"{"p":[}"#, r#"{"p":1"#, r#"{"p":1,"z"}"#] {
            assert_eq!(json(broken), Err(EnvelopeError::Malformed), "{broken}");
        }
    }

    #[test]
    fn texts() {
        let id =
            |encoding, bytes: &[u8]| message_id(encoding, bytes).map(|id| id.map(Cow::into_owned));
        let cid = |encoding, bytes: &[u8]| {
            correlation_id(encoding, bytes).map(|cid| cid.map(Cow::into_owned))
        };
        let text = r#"{"t":"a","id":"i","cid":"\"é\u00e9","p":{"id":"no"}}"#;
        assert_eq!(in_both(text, id), Ok(Some("i".to_owned())));
        assert_eq!(in_both(text, cid), Ok(Some("\"éé".to_owned())));
        assert_eq!(in_both(r#"{"p":{"id":"no"}}"#, id), Ok(None));
        assert_eq!(in_both(r#"{"id":null}"#, id), Ok(None));
        let trace = |encoding, bytes: &[u8]| {
            message_traceparent(encoding, bytes).map(|trace| trace.map(Cow::into_owned))
        };
        let text = r#"{"t":"a","traceparent":"00-1","p":{"traceparent":"no"}}"#;
        assert_eq!(in_both(text, trace), Ok(Some("00-1".to_owned())));
        assert_eq!(in_both(r#"{"p":{"traceparent":"no"}}"#, trace), Ok(None));
        let wrong = Err(EnvelopeError::InvalidField("cid"));
        assert_eq!(in_both(r#"{"cid":5}"#, cid), wrong);
        let lone = correlation_id(Format::Json, br#"{"cid":"\ud800"}"#);
        assert_eq!(lone, Err(EnvelopeError::InvalidField("cid")));
    }
}
