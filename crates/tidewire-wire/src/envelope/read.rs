//! Reading a whole envelope with its payload as a tree: for a client, of its server. A server reads what its peers send
//! in place, with [`Raw`](super::raw::Raw).

use super::field::{Field, Values};
use super::raw::Raw;
use super::{
    Category, EnvelopeError, Kind, SystemType, check_value, classify_msgpack, strip_category,
};
use crate::format::{Format, Item, Place, Reader, check_binary_text, is_base64, message_to_json};
use crate::json::parse_tree;
use serde_json::Value;
use std::borrow::Cow;

/// A message with all its fields.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Envelope {
    /// `c`, or the category of an older prefix; `None` if it is missing or unknown.
    pub category: Option<Category>,
    /// `t` or `type`.
    pub t: String,
    /// `id`.
    pub id: Option<String>,
    /// `ts`, RFC 3339.
    pub ts: Option<String>,
    /// `seq`.
    pub seq: Option<u64>,
    /// `p` or `payload`; null if it is missing.
    pub payload: Value,
    /// `v`, the version of the protocol.
    pub version: Option<u64>,
    /// `pri`, the priority.
    pub priority: Option<u64>,
    /// `cid`.
    pub correlation_id: Option<String>,
    /// `sig`.
    pub signature: Option<String>,
    /// `tp`, the topic of a publication.
    pub topic: Option<String>,
    /// `e`, the epoch of the topic's history.
    pub epoch: Option<String>,
    /// `o`, the offset in the topic's history.
    pub offset: Option<u64>,
    /// `d`, the number under which a member of a queue group acknowledges a publication.
    pub delivery: Option<u64>,
    /// `rd`, whether the publication was delivered before; `None` if the field is missing.
    pub redelivered: Option<bool>,
    /// `n`, the producer's number of the message.
    pub number: Option<u64>,
    /// `b`, whether the payload is binary: it is then the base64 of the bytes.
    pub binary: bool,
}

/// Reads an envelope from JSON, with or without one of the older prefixes. Of repeated fields the first counts;
/// unknown ones are ignored.
///
/// # Errors
/// As [`classify_json`](super::classify_json), a field of a wrong type, and [`EnvelopeError::TooLarge`]. A field that is
/// null counts as missing.
pub fn parse_json(text: &[u8]) -> Result<Envelope, EnvelopeError> {
    let (mut envelope, payload) = parse_json_head(text)?;
    let payload = payload.map(|payload| parse_tree(payload, PAYLOAD_TREE_BYTES_MAX));
    envelope.payload = payload.transpose()?.unwrap_or_default();
    Ok(envelope)
}

/// [`parse_json`] for callers that read the payload themselves, if at all. It is null in the envelope, and its
/// text is returned separately; only the end of that text is checked.
///
/// # Errors
/// As [`parse_json`], except for the content of the payload.
pub fn parse_json_head(text: &[u8]) -> Result<(Envelope, Option<&[u8]>), EnvelopeError> {
    let (category, _) = strip_category(text);
    let values = Values::of_json(text)?;
    let t = values.get(Field::Type).ok_or(EnvelopeError::NoType)?;
    let t = Raw::json(t).text().filter(|t| !t.is_empty());
    let t = t.ok_or(EnvelopeError::InvalidType)?.into_owned();
    let c = text_field(&values, Field::Category)?.and_then(|c| Category::parse(&c));
    let envelope = Envelope {
        category: c.or(category),
        t,
        id: text_field(&values, Field::Id)?,
        ts: text_field(&values, Field::Time)?,
        seq: number_field(&values, Field::Sequence)?,
        payload: Value::Null,
        version: number_field(&values, Field::Version)?,
        priority: number_field(&values, Field::Priority)?,
        correlation_id: text_field(&values, Field::CorrelationId)?,
        signature: text_field(&values, Field::Signature)?,
        topic: text_field(&values, Field::Topic)?,
        epoch: text_field(&values, Field::Epoch)?,
        offset: number_field(&values, Field::Offset)?,
        delivery: number_field(&values, Field::Delivery)?,
        redelivered: flag_field(&values, Field::Redelivered)?,
        number: number_field(&values, Field::Number)?,
        binary: false,
    };
    let payload = values.get(Field::Payload);
    let binary = is_binary(Format::Json, &values, &envelope.t)?;
    Ok((Envelope { binary, ..envelope }, payload))
}

/// Whether the payload of a message is binary (`PROTOCOL.md`, section 5.5). In a system message it never is.
///
/// # Errors
/// It is marked as binary and is neither base64 nor, in MessagePack, binary.
pub(super) fn is_binary(
    encoding: Format,
    values: &Values<'_>,
    t: &str,
) -> Result<bool, EnvelopeError> {
    let payload = values.get(Field::Payload).unwrap_or_default();
    let (is_typed, yes): (bool, &[u8]) = match encoding {
        Format::Json => (false, b"true"),
        Format::MessagePack => (matches!(payload, [0xc4..=0xc6, ..]), b"\xc3"),
    };
    let is_marked = values.get(Field::Binary) == Some(yes);
    if !(is_marked || is_typed) || SystemType::parse(t).is_some() {
        return Ok(false);
    }
    let is_text = || match encoding {
        Format::Json => check_binary_text(payload).is_some(),
        Format::MessagePack => is_base64_item(payload),
    };
    if is_typed || is_text() {
        Ok(true)
    } else {
        Err(EnvelopeError::InvalidField("p"))
    }
}

/// Whether a MessagePack value is a text that is base64.
fn is_base64_item(payload: &[u8]) -> bool {
    match Reader::new(payload).item() {
        Ok(Item::Str(text)) => is_base64(text),
        _ => false,
    }
}

/// [`parse_json`] for MessagePack, without the prefix `M:`.
///
/// # Errors
/// As [`parse_json`].
pub fn parse_msgpack(bytes: &[u8]) -> Result<Envelope, EnvelopeError> {
    let mut text = Vec::with_capacity(bytes.len() * 2);
    msgpack_envelope_to_json(bytes, &mut text)?;
    parse_json(&text)
}

/// Appends the JSON of an envelope in MessagePack, without the prefix `M:`. A payload that is binary has its mark there.
///
/// # Errors
/// It has no type, or no form in JSON.
pub fn msgpack_envelope_to_json(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EnvelopeError> {
    // A type made of bytes would become a string below, and the two ways to read it would differ.
    let place = match classify_msgpack(bytes)? {
        Kind::Application => Place::Envelope,
        Kind::System(system) => Place::of_type(system.as_str().as_bytes()),
    };
    Ok(message_to_json(place, bytes, out)?)
}

/// The payload of an application's message as [`message_payload`](super::message_payload) finds it, and whether it is
/// binary: [`payload_bytes`](super::payload_bytes) then has the bytes. The message is JSON text, or MessagePack without the
/// prefix `M:`; nothing else of it is checked.
///
/// # Errors
/// As `message_payload`; and [`EnvelopeError::InvalidField`] for a payload that is marked as binary and is neither base64
/// nor, in MessagePack, binary.
pub fn message_content(
    encoding: Format,
    bytes: &[u8],
) -> Result<(Option<&[u8]>, bool), EnvelopeError> {
    let values = match encoding {
        Format::Json => Values::of_json(bytes)?,
        Format::MessagePack => Values::of_msgpack(bytes)?,
    };
    let binary = is_binary(encoding, &values, "")?;
    Ok((values.get(Field::Payload), binary))
}

/// The memory that the payload of an envelope may occupy as a tree of values. A message of 1 MiB with nothing
/// but presence occupies half of it.
pub const PAYLOAD_TREE_BYTES_MAX: usize = 64 << 20;

fn text_field(values: &Values<'_>, field: Field) -> Result<Option<String>, EnvelopeError> {
    let text = |value: Raw<'_>| value.text().map(Cow::into_owned);
    read_field(values, field, text)
}

fn number_field(values: &Values<'_>, field: Field) -> Result<Option<u64>, EnvelopeError> {
    read_field(values, field, Raw::unsigned)
}

fn flag_field(values: &Values<'_>, field: Field) -> Result<Option<bool>, EnvelopeError> {
    read_field(values, field, Raw::flag)
}

fn read_field<'a, T>(
    values: &Values<'a>,
    field: Field,
    read: impl FnOnce(Raw<'a>) -> Option<T>,
) -> Result<Option<T>, EnvelopeError> {
    let Some(value) = values.get(field).filter(|value| *value != b"null") else {
        return Ok(None);
    };
    if let Some(known) = read(Raw::json(value)) {
        return Ok(Some(known));
    }
    // This value has not been checked yet: if it is not JSON, the message is malformed, and the type of the
    // field is not the error.
    std::str::from_utf8(value).map_or(Err(EnvelopeError::Malformed), check_value)?;
    Err(EnvelopeError::InvalidField(field.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::json_to_msgpack;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn all_fields() {
        let text = br#"{"c":"U","t":"a","id":"i","ts":"2024-11-21T18:05:45.678Z","seq":7,
            "p":{"x":[1]},"v":1,"pri":10,"cid":"k","sig":"s","tp":"top","e":"0badcafe","o":9,"d":4,"rd":true,"n":2,
            "x":0}"#;
        let envelope = parse_json(text).unwrap();
        let expected = Envelope {
            category: Some(Category::Update),
            t: "a".into(),
            id: Some("i".into()),
            ts: Some("2024-11-21T18:05:45.678Z".into()),
            seq: Some(7),
            payload: json!({"x": [1]}),
            version: Some(1),
            priority: Some(10),
            correlation_id: Some("k".into()),
            signature: Some("s".into()),
            topic: Some("top".into()),
            epoch: Some("0badcafe".into()),
            offset: Some(9),
            delivery: Some(4),
            redelivered: Some(true),
            number: Some(2),
            binary: false,
        };
        assert_eq!(envelope, expected);
        let mut packed = Vec::new();
        json_to_msgpack(text, &mut packed).unwrap();
        assert_eq!(parse_msgpack(&packed), Ok(expected));
    }

    #[test]
    fn the_payload_may_stay_text() {
        let (envelope, payload) = parse_json_head(br#"{"t":"a","p": {"x":nul} }"#).unwrap();
        assert_eq!((envelope.t.as_str(), envelope.payload), ("a", Value::Null));
        assert_eq!(payload, Some(&br#"{"x":nul}"#[..]));
        let (_, none) = parse_json_head(br#"{"t":"a"}"#).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn synonyms_prefixes_and_doubles() {
        let envelope = parse_json(br#"S{"payload":1,"type":"a","t":"b","p":2}"#).unwrap();
        assert_eq!(envelope.category, Some(Category::Snapshot));
        assert_eq!((envelope.t.as_str(), &envelope.payload), ("a", &json!(1)));
    }

    #[test]
    fn a_type_made_of_bytes_is_none_in_either_reading() {
        let packed = b"\x81\xa1t\xc4\x04ping";
        assert_eq!(classify_msgpack(packed), Err(EnvelopeError::InvalidType));
        assert_eq!(parse_msgpack(packed), Err(EnvelopeError::InvalidType));
    }

    #[test]
    fn wrong_fields() {
        let cases: [(&str, EnvelopeError); 7] = [
            (r#"{"t":"a","seq":-1}"#, EnvelopeError::InvalidField("seq")),
            (r#"{"t":"a","id":1}"#, EnvelopeError::InvalidField("id")),
            (r#"{"t":"a","p":{"x":nul}}"#, EnvelopeError::Malformed),
            (r#"{"t":"a"} {}"#, EnvelopeError::Malformed),
            (r#"{"p":1}"#, EnvelopeError::NoType),
            (r#"{"t":[]}"#, EnvelopeError::InvalidType),
            ("[]", EnvelopeError::NotAnObject),
        ];
        for (text, error) in cases {
            assert_eq!(parse_json(text.as_bytes()), Err(error), "{text}");
        }
        let envelope = parse_json(br#"{"t":"a","c":"X","id":null}"#).unwrap();
        assert_eq!((envelope.category, envelope.id), (None, None));
    }

    proptest! {
        /// A text that passes the check can be read and packed, and the other way round.
        #[test]
        fn the_check_agrees_with_the_parser(text in "[\\[\\]{}:,\"\\\\0-9eE.+u truefalsn-]{0,24}") {
            let wrapped = format!("{{\"t\":\"a\",\"p\":{text}}}");
            let parsed = parse_json(wrapped.as_bytes()).is_ok();
            prop_assert!(check_value(&wrapped).is_err() || parsed, "{}", wrapped);
            let packed = json_to_msgpack(text.as_bytes(), &mut Vec::new()).is_ok();
            prop_assert_eq!(check_value(&text).is_ok(), packed, "{}", text);
        }
    }
}
