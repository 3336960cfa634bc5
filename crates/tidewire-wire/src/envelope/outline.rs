//! What an application's message says around its payload, found without parsing it.

use super::peek::json_text;
use super::publication::parse_epoch;
use super::scan::{Fields, string_is};
use super::{EnvelopeError, strip_category};
use crate::format::{Format, Item, Reader};
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
}

impl<'a> Outline<'a> {
    /// Finds the fields of a message: JSON text, or MessagePack without the prefix `M:`. Of fields that come
    /// twice the first counts; an epoch without an offset, and the other way round, counts as missing.
    ///
    /// # Errors
    /// No object, no type, one that is broken on the way, and a field of a wrong type. The payload is not
    /// looked at.
    pub fn find(encoding: Format, bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        let mut found = [None; NAMES.len()];
        match encoding {
            Format::Json => find_json(bytes, &mut found)?,
            Format::MessagePack => find_msgpack(bytes, &mut found)?,
        }
        let [t, payload, id, cid, tp, e, o, pri, d, rd] = found;
        let text = |value: Option<&'a [u8]>, name| match value {
            None => Ok(None),
            Some(value) => text(encoding, value).map_err(|()| EnvelopeError::InvalidField(name)),
        };
        let number = |value: Option<&'a [u8]>, name| match value {
            None => Ok(None),
            Some(value) => number(encoding, value).map_err(|()| EnvelopeError::InvalidField(name)),
        };
        let t = t.ok_or(EnvelopeError::NoType)?;
        let t = self::text(encoding, t).map_err(|()| EnvelopeError::InvalidType)?;
        let epoch = text(e, "e")?.and_then(|epoch| parse_epoch(&epoch));
        Ok(Self {
            t: t.filter(|t| !t.is_empty())
                .ok_or(EnvelopeError::InvalidType)?,
            payload: payload.unwrap_or_default(),
            id: text(id, "id")?,
            correlation_id: text(cid, "cid")?,
            topic: text(tp, "tp")?,
            position: epoch.zip(number(o, "o")?),
            priority: number(pri, "pri")?,
            delivery: number(d, "d")?,
            redelivered: matches!(rd, Some(b"true" | b"\xc3")),
        })
    }
}

fn find_json<'a>(
    text: &'a [u8],
    found: &mut [Option<&'a [u8]>; NAMES.len()],
) -> Result<(), EnvelopeError> {
    let (_, object) = strip_category(text);
    let mut fields = Fields::open(object)?;
    while let Some(field) = fields.next()? {
        let part = if field.name.contains(&b'\\') {
            let mut part = None;
            for (index, names) in NAMES.iter().enumerate() {
                for name in *names {
                    if part.is_none() && string_is(field.name, name)? {
                        part = Some(index);
                    }
                }
            }
            part
        } else {
            part_of(field.name)
        };
        if let Some(part) = part {
            found[part].get_or_insert(field.value);
        }
    }
    Ok(())
}

fn find_msgpack<'a>(
    bytes: &'a [u8],
    found: &mut [Option<&'a [u8]>; NAMES.len()],
) -> Result<(), EnvelopeError> {
    let mut reader = Reader::new(bytes);
    let Item::Map(pairs) = reader.item()? else {
        return Err(EnvelopeError::NotAnObject);
    };
    for _ in 0..pairs {
        let name = reader.item()?;
        let value = reader.value(1)?;
        let Item::Str(name) = name else { continue };
        if let Some(part) = part_of(name) {
            found[part].get_or_insert(value);
        }
    }
    Ok(())
}

fn part_of(name: &[u8]) -> Option<usize> {
    NAMES
        .iter()
        .position(|names| names.iter().any(|known| known.as_bytes() == name))
}

/// A text; `None` for null.
fn text(encoding: Format, value: &[u8]) -> Result<Option<Cow<'_, str>>, ()> {
    match encoding {
        Format::Json if value == b"null" => Ok(None),
        Format::Json => json_text(value).map(Some).ok_or(()),
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

/// The fields with their synonyms, in the order in which [`Outline::find`] takes them.
const NAMES: [&[&str]; 10] = [
    &["t", "type"],
    &["p", "payload"],
    &["id"],
    &["cid"],
    &["tp"],
    &["e"],
    &["o"],
    &["pri"],
    &["d"],
    &["rd"],
];

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
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Outline::find(Format::Json, &bytes);
            let _ = Outline::find(Format::MessagePack, &bytes);
        }
    }
}
