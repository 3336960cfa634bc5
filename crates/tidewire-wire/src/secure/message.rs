//! The parts of a message that a signature covers, as they stand.

use super::SignatureError;
use crate::envelope::EnvelopeError;
use crate::envelope::field::{Field, Values, each_json};
use crate::format::{Format, Item, Reader};
use crate::json;
use std::borrow::Cow;
use std::str;

/// The signed parts of a message, and the signature. Texts are decoded, and empty where they are missing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SignedMessage<'a> {
    /// `t` or `type`.
    pub t: Cow<'a, str>,
    /// `id`.
    pub id: Cow<'a, str>,
    /// `tp`.
    pub topic: Cow<'a, str>,
    /// `cid`.
    pub correlation_id: Cow<'a, str>,
    /// The bytes of `p` or `payload`, exactly as they stand in the message; none if it is missing.
    pub payload: &'a [u8],
    /// `sig`.
    pub signature: Option<Cow<'a, str>>,
}

impl<'a> SignedMessage<'a> {
    /// Finds the parts of a message: JSON text, or MessagePack without the prefix `M:`.
    ///
    /// # Errors
    /// [`SignatureError::Envelope`]: no envelope, or one of these fields is no text;
    /// [`SignatureError::Ambiguous`]: one of them is repeated, or stands beside its synonym, so that the code
    /// that checks the message and the code that uses it might see different ones.
    pub fn find(encoding: Format, bytes: &'a [u8]) -> Result<Self, SignatureError> {
        let message = match encoding {
            Format::Json => Self::find_json(bytes)?,
            Format::MessagePack => Self::find_msgpack(bytes)?,
        };
        if message.t.is_empty() {
            return Err(EnvelopeError::NoType.into());
        }
        Ok(message)
    }

    fn find_json(text: &'a [u8]) -> Result<Self, SignatureError> {
        let mut found = Found::default();
        each_json(text, |field, value| found.keep(field, value))?;
        found.message(json_text)
    }

    fn find_msgpack(bytes: &'a [u8]) -> Result<Self, SignatureError> {
        let mut reader = Reader::new(bytes);
        let Item::Map(pairs) = reader.item().map_err(EnvelopeError::from)? else {
            return Err(EnvelopeError::NotAnObject.into());
        };
        let mut found = Found::default();
        for _ in 0..pairs {
            let name = reader.item().map_err(EnvelopeError::from)?;
            let value = reader.value(1).map_err(EnvelopeError::from)?;
            let name = match name {
                Item::Str(name) => name,
                Item::Unsigned(_) | Item::Signed(_) => continue,
                _ => return Err(EnvelopeError::Malformed.into()),
            };
            if let Some(field) = Field::of(name) {
                found.keep(field, value)?;
            }
        }
        reader.finish().map_err(EnvelopeError::from)?;
        found.message(msgpack_text)
    }
}

/// The bytes of the values that a signature covers.
#[derive(Default)]
struct Found<'a>(Values<'a>);

/// Decodes a text; `None` for null.
type Decode<'a> = fn(&'a [u8], &'static str) -> Result<Option<Cow<'a, str>>, EnvelopeError>;

impl<'a> Found<'a> {
    fn keep(&mut self, field: Field, value: &'a [u8]) -> Result<(), SignatureError> {
        if !is_covered(field) || self.0.keep(field, value) {
            return Ok(());
        }
        Err(SignatureError::Ambiguous)
    }

    fn message(&self, decode: Decode<'a>) -> Result<SignedMessage<'a>, SignatureError> {
        let optional = |field: Field| {
            let value = self.0.get(field);
            value.map_or(Ok(None), |value| decode(value, field.name()))
        };
        let text = |field| Ok::<_, EnvelopeError>(optional(field)?.unwrap_or_default());
        Ok(SignedMessage {
            t: text(Field::Type)?,
            id: text(Field::Id)?,
            topic: text(Field::Topic)?,
            correlation_id: text(Field::CorrelationId)?,
            payload: self.0.get(Field::Payload).unwrap_or_default(),
            signature: optional(Field::Signature)?,
        })
    }
}

fn json_text<'a>(
    value: &'a [u8],
    name: &'static str,
) -> Result<Option<Cow<'a, str>>, EnvelopeError> {
    match value {
        b"null" => Ok(None),
        [b'"', ..] => {
            let text = json::text::text(value).ok_or(EnvelopeError::Malformed)?;
            Ok(Some(text))
        }
        _ => Err(EnvelopeError::InvalidField(name)),
    }
}

fn msgpack_text<'a>(
    value: &'a [u8],
    name: &'static str,
) -> Result<Option<Cow<'a, str>>, EnvelopeError> {
    match Reader::new(value).item()? {
        Item::Nil => Ok(None),
        Item::Str(text) => {
            let text = str::from_utf8(text).map_err(|_| EnvelopeError::Malformed)?;
            Ok(Some(text.into()))
        }
        _ => Err(EnvelopeError::InvalidField(name)),
    }
}

/// Whether a signature covers the field, or is it.
fn is_covered(field: Field) -> bool {
    matches!(
        field,
        Field::Type
            | Field::Payload
            | Field::Id
            | Field::Topic
            | Field::CorrelationId
            | Field::Signature
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::json_to_msgpack;

    fn find(text: &str) -> Result<SignedMessage<'_>, SignatureError> {
        SignedMessage::find(Format::Json, text.as_bytes())
    }

    #[test]
    fn parts_as_they_stand() {
        let expected = SignedMessage {
            t: "tr\"ade".into(),
            id: "i".into(),
            topic: "top".into(),
            correlation_id: "".into(),
            payload: b"{ \"x\" : [1.0] }",
            signature: Some("s".into()),
        };
        let text = r#"U{"t":"tr\"ade","\u0069d":"i", "p" : { "x" : [1.0] } ,"tp":"top","sig":"s","cid":null}"#;
        assert_eq!(find(text), Ok(expected.clone()));
        let synonyms = r#"{"payload":{ "x" : [1.0] },"sig":"s","type":"tr\u0022ade","id":"i","x":0,"tp":"top"}"#;
        assert_eq!(find(synonyms), Ok(expected.clone()));

        let mut packed = Vec::new();
        json_to_msgpack(&text.as_bytes()[1..], &mut packed).unwrap();
        let expected = SignedMessage {
            payload: b"\x81\xa1x\x91\xcb\x3f\xf0\0\0\0\0\0\0",
            ..expected
        };
        assert_eq!(
            SignedMessage::find(Format::MessagePack, &packed),
            Ok(expected)
        );
        let bare = find(r#"{"t":"a"}"#).unwrap();
        assert_eq!((bare.payload, bare.signature), (&b""[..], None));
    }

    #[test]
    fn what_two_readers_might_see_differently_is_refused() {
        for text in [
            r#"{"t":"a","t":"b"}"#,
            r#"{"t":"a","type":"a"}"#,
            r#"{"t":"a","p":1,"payload":2}"#,
            r#"{"t":"a","p":1,"\u0070":2}"#,
            r#"{"t":"a","id":"1","id":"2"}"#,
            r#"{"t":"a","sig":"1","sig":"2"}"#,
        ] {
            assert_eq!(find(text), Err(SignatureError::Ambiguous), "{text}");
            let mut packed = Vec::new();
            json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
            let found = SignedMessage::find(Format::MessagePack, &packed);
            assert_eq!(found, Err(SignatureError::Ambiguous), "{text}");
        }
    }

    #[test]
    fn what_is_no_envelope() {
        for (text, error) in [
            ("[]", EnvelopeError::NotAnObject),
            ("{}", EnvelopeError::NoType),
            (r#"{"t":null}"#, EnvelopeError::NoType),
            (r#"{"t":1}"#, EnvelopeError::InvalidField("t")),
            (r#"{"t":"a","sig":1}"#, EnvelopeError::InvalidField("sig")),
        ] {
            assert_eq!(find(text), Err(error.clone().into()), "{text}");
            let mut packed = Vec::new();
            json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
            let found = SignedMessage::find(Format::MessagePack, &packed);
            assert_eq!(found, Err(error.into()), "{text}");
        }
        let malformed = Err(EnvelopeError::Malformed.into());
        for text in [r#"{"t":"a"}x"#, r#"{"t":"\q"}"#, r#"{"t":"a","p":{]}"#] {
            assert_eq!(find(text), malformed, "{text}");
        }
        for bytes in [
            &b"\x81\xa1t\xa1a\x01"[..],
            b"\x81\xa1t\xa1\xff",
            b"\x81\xa1t",
            b"\x82\xa1t\xa1a\xc4\x01p\x01",
        ] {
            assert_eq!(SignedMessage::find(Format::MessagePack, bytes), malformed);
        }
    }
}
