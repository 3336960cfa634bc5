//! Outline of an application's message: the fields around its payload, without parsing it.

use super::EnvelopeError;
use super::field::{Field, Values};
use super::publication::parse_epoch;
use super::read::is_binary;
use crate::format::{Format, Item, Reader};
use crate::json;
use std::borrow::Cow;

/// The fields of an envelope that an application's client looks at; texts are decoded.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outline<'a> {
    /// `t` or `type`.
    pub t: Cow<'a, str>,
    /// The bytes of `p` or `payload` as they stand in the message; none if it is missing.
    pub payload: &'a [u8],
    /// `id`.
    pub id: Option<Cow<'a, str>>,
    /// `cid`.
    pub correlation_id: Option<Cow<'a, str>>,
    /// `tp`, the topic of a publication.
    pub topic: Option<Cow<'a, str>>,
    /// `e` and `o`, the epoch and the offset of a publication with history.
    pub position: Option<(u32, u64)>,
    /// `pri`.
    pub priority: Option<u64>,
    /// `d`, the number under which a member of a queue group acknowledges a publication.
    pub delivery: Option<u64>,
    /// `rd`, whether the publication was delivered before.
    pub redelivered: bool,
    /// Whether the payload is binary: [`payload_bytes`](super::payload_bytes) has the bytes.
    pub binary: bool,
}

impl<'a> Outline<'a> {
    /// Finds the fields of a message: JSON text, or MessagePack without the prefix `M:`. Of repeated fields the
    /// first counts; an epoch without an offset, and the other way round, counts as missing.
    ///
    /// # Errors
    /// No object, no type, one that is broken on the way, a field of a wrong type, and a payload that is marked as
    /// binary and is not. Any other payload is not looked at.
    pub fn find(encoding: Format, bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        let found = match encoding {
            Format::Json => Values::of_json(bytes)?,
            Format::MessagePack => Values::of_msgpack(bytes)?,
        };
        let wrong = |field: Field| EnvelopeError::InvalidField(field.name());
        let text = |field| match found.get(field) {
            None => Ok(None),
            Some(value) => text(encoding, value).map_err(|()| wrong(field)),
        };
        let number = |field| match found.get(field) {
            None => Ok(None),
            Some(value) => number(encoding, value).map_err(|()| wrong(field)),
        };
        let t = found.get(Field::Type).ok_or(EnvelopeError::NoType)?;
        let t = self::text(encoding, t).map_err(|()| EnvelopeError::InvalidType)?;
        let epoch = text(Field::Epoch)?.and_then(|epoch| parse_epoch(&epoch));
        let t = t.filter(|t| !t.is_empty());
        let t = t.ok_or(EnvelopeError::InvalidType)?;
        Ok(Self {
            binary: is_binary(encoding, &found, &t)?,
            t,
            payload: found.get(Field::Payload).unwrap_or_default(),
            id: text(Field::Id)?,
            correlation_id: text(Field::CorrelationId)?,
            topic: text(Field::Topic)?,
            position: epoch.zip(number(Field::Offset)?),
            priority: number(Field::Priority)?,
            delivery: number(Field::Delivery)?,
            redelivered: matches!(found.get(Field::Redelivered), Some(b"true" | b"\xc3")),
        })
    }
}

/// A text; `None` for null.
fn text(encoding: Format, value: &[u8]) -> Result<Option<Cow<'_, str>>, ()> {
    match encoding {
        Format::Json if value == b"null" => Ok(None),
        Format::Json => json::text::text(value).map(Some).ok_or(()),
        Format::MessagePack => match Reader::new(value).item() {
            Ok(Item::Nil) => Ok(None),
            Ok(Item::Str(text)) => match simdutf8::basic::from_utf8(text) {
                Ok(text) => Ok(Some(Cow::Borrowed(text))),
                Err(_) => Err(()),
            },
            _ => Err(()),
        },
    }
}

/// A number that is not negative; `None` for null.
fn number(encoding: Format, value: &[u8]) -> Result<Option<u64>, ()> {
    match encoding {
        Format::Json if value == b"null" => Ok(None),
        Format::Json => serde_json::from_slice(value).map(Some).map_err(|_| ()),
        Format::MessagePack => match Reader::new(value).item() {
            Ok(Item::Nil) => Ok(None),
            Ok(Item::Unsigned(number)) => Ok(Some(number)),
            Ok(Item::Signed(number)) => u64::try_from(number).map(Some).map_err(|_| ()),
            _ => Err(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_json;
    use super::*;
    use crate::format::json_to_msgpack;
    use proptest::prelude::*;

    #[test]
    fn everything_in_both_formats() {
        let text = r#"{"c":"U","t":"tr\u0061de","tp":"orders.eu","e":"0badcafe","o":17,"id":"i","pri":8,"d":300,"rd":true,"cid":"c","p":{"t":1}}"#;
        let outline = Outline::find(Format::Json, text.as_bytes()).unwrap();
        let expected = Outline {
            t: "trade".into(),
            payload: br#"{"t":1}"#,
            id: Some("i".into()),
            correlation_id: Some("c".into()),
            topic: Some("orders.eu".into()),
            position: Some((0x0bad_cafe, 17)),
            priority: Some(8),
            delivery: Some(300),
            redelivered: true,
            binary: false,
        };
        assert_eq!(outline, expected);
        let mut packed = Vec::new();
        json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
        let outline = Outline::find(Format::MessagePack, &packed).unwrap();
        assert_eq!(
            outline,
            Outline {
                payload: b"\x81\xa1t\x01",
                ..expected
            }
        );
    }

    #[test]
    fn what_is_missing_or_wrong() {
        let find = |text: &'static str| Outline::find(Format::Json, text.as_bytes());
        let bare = find(r#"{"type":"a","tp":null,"e":"0badcafe"}"#).unwrap();
        assert_eq!(
            bare,
            Outline {
                t: "a".into(),
                ..Outline::default()
            }
        );
        assert_eq!(find(r#"{"\u0074":"a","t":"b"}"#).unwrap().t, "a");
        assert_eq!(find(r#"U{"t":"a"}"#).unwrap().t, "a");
        assert_eq!(find("{}"), Err(EnvelopeError::NoType));
        assert_eq!(find(r#"{"t":""}"#), Err(EnvelopeError::InvalidType));
        assert_eq!(find(r#"{"t":1}"#), Err(EnvelopeError::InvalidType));
        assert_eq!(
            find(r#"{"t":"a","o":-1}"#),
            Err(EnvelopeError::InvalidField("o"))
        );
        assert_eq!(
            find(r#"{"t":"a","tp":7}"#),
            Err(EnvelopeError::InvalidField("tp"))
        );
        assert_eq!(find("[]"), Err(EnvelopeError::NotAnObject));
        assert_eq!(find(r#"{"t":"a""#), Err(EnvelopeError::Malformed));
    }

    const MESSAGE: &str = r#"{"p":{"b":[1,"x"]},"t":"a","tp":"c","o":3,"e":"00000001"}"#;

    proptest! {
        #[test]
        fn agrees_with_the_whole_parse(
            t in "\\PC{1,9}", tp in prop::option::of("\\PC{0,9}"), o: Option<u64>, p: i64,
        ) {
            let text = serde_json::json!({"p": p, "t": t, "tp": tp, "o": o, "e": "00000001"});
            let text = text.to_string();
            let outline = Outline::find(Format::Json, text.as_bytes()).unwrap();
            let envelope = parse_json(text.as_bytes()).unwrap();
            prop_assert_eq!(outline.t, envelope.t);
            prop_assert_eq!(outline.topic.as_deref(), envelope.topic.as_deref());
            prop_assert_eq!(outline.position, envelope.offset.map(|offset| (1, offset)));
            let payload = p.to_string();
            prop_assert_eq!(outline.payload, payload.as_bytes());
        }

        #[test]
        fn the_payload_is_a_part_of_the_message(at in 0..MESSAGE.len(), byte: u8) {
            let mut bytes = MESSAGE.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(outline) = Outline::find(Format::Json, &bytes) {
                let length = outline.payload.len().max(1);
                let is_part = bytes.windows(length).any(|part| part == outline.payload);
                prop_assert!(outline.payload.is_empty() || is_part);
            }
        }
    }
}
