//! The fields of an envelope: one table of their names, for every reader.

use super::{EnvelopeError, strip_category};
use crate::format::{Item, Reader};
use crate::json::fields::Fields;
use crate::json::text::{Short, unescape};

/// A field of the envelope. Some have a synonym from older clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// `t` or `type`.
    Type,
    /// `p` or `payload`.
    Payload,
    /// `c`.
    Category,
    /// `id`.
    Id,
    /// `cid`.
    CorrelationId,
    /// `tp`.
    Topic,
    /// `e`.
    Epoch,
    /// `o`.
    Offset,
    /// `ts`.
    Time,
    /// `seq`.
    Sequence,
    /// `v`.
    Version,
    /// `pri`.
    Priority,
    /// `sig`.
    Signature,
    /// `d`.
    Delivery,
    /// `rd`.
    Redelivered,
    /// `n`.
    Number,
    /// `b`.
    Binary,
}

impl Field {
    /// How many fields there are. Each has a place of its own below it: `field as usize`.
    pub(crate) const COUNT: usize = Self::Binary as usize + 1;

    /// All fields.
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::Type,
        Self::Payload,
        Self::Category,
        Self::Id,
        Self::CorrelationId,
        Self::Topic,
        Self::Epoch,
        Self::Offset,
        Self::Time,
        Self::Sequence,
        Self::Version,
        Self::Priority,
        Self::Signature,
        Self::Delivery,
        Self::Redelivered,
        Self::Number,
        Self::Binary,
    ];

    /// The field with this name, without escapes.
    #[inline]
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        // By length first: most names have one byte or two.
        Some(match name {
            [byte] => match byte {
                b't' => Self::Type,
                b'p' => Self::Payload,
                b'c' => Self::Category,
                b'e' => Self::Epoch,
                b'o' => Self::Offset,
                b'v' => Self::Version,
                b'd' => Self::Delivery,
                b'n' => Self::Number,
                b'b' => Self::Binary,
                _ => return None,
            },
            [first, second] => match [*first, *second] {
                [b'i', b'd'] => Self::Id,
                [b't', b'p'] => Self::Topic,
                [b't', b's'] => Self::Time,
                [b'r', b'd'] => Self::Redelivered,
                _ => return None,
            },
            b"cid" => Self::CorrelationId,
            b"seq" => Self::Sequence,
            b"pri" => Self::Priority,
            b"sig" => Self::Signature,
            b"type" => Self::Type,
            b"payload" => Self::Payload,
            _ => return None,
        })
    }

    /// The same for a name as it stands in JSON text, which may have escapes.
    ///
    /// # Errors
    /// An escape that JSON does not have.
    #[inline]
    pub(crate) fn of_raw(raw: &[u8]) -> Result<Option<Self>, EnvelopeError> {
        if raw.contains(&b'\\') {
            let mut short = Short::default();
            unescape(raw, &mut short)?;
            return Ok(short.as_bytes().and_then(Self::of));
        }
        Ok(Self::of(raw))
    }

    /// Its name as errors give it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Type => "t",
            Self::Payload => "p",
            Self::Category => "c",
            Self::Id => "id",
            Self::CorrelationId => "cid",
            Self::Topic => "tp",
            Self::Epoch => "e",
            Self::Offset => "o",
            Self::Time => "ts",
            Self::Sequence => "seq",
            Self::Version => "v",
            Self::Priority => "pri",
            Self::Signature => "sig",
            Self::Delivery => "d",
            Self::Redelivered => "rd",
            Self::Number => "n",
            Self::Binary => "b",
        }
    }
}

/// Calls `each` with the fields of the envelope in JSON text, in their order, doubles included, and the bytes of
/// their values. Unknown fields are passed over.
///
/// # Errors
/// No object, or one whose structure is broken; and whatever `each` fails with.
#[inline]
pub(crate) fn each_json<'a, E: From<EnvelopeError>>(
    text: &'a [u8],
    mut each: impl FnMut(Field, &'a [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (_, object) = strip_category(text);
    let mut fields = Fields::open(object).map_err(EnvelopeError::from)?;
    while let Some(member) = fields.next().map_err(EnvelopeError::from)? {
        if let Some(field) = Field::of_raw(member.name)? {
            each(field, member.value)?;
        }
    }
    Ok(())
}

/// The bytes of each field's value, the first of doubles, at the place `field as usize`.
#[derive(Default)]
pub(crate) struct Values<'a>([Option<&'a [u8]>; Field::COUNT]);

impl<'a> Values<'a> {
    /// The fields of the envelope in JSON text.
    ///
    /// # Errors
    /// As [`each_json`].
    pub(crate) fn of_json(text: &'a [u8]) -> Result<Self, EnvelopeError> {
        let mut values = Self::default();
        each_json(text, |field, value| {
            values.keep(field, value);
            Ok::<_, EnvelopeError>(())
        })?;
        Ok(values)
    }

    /// The fields of the envelope in MessagePack, without the prefix `M:`.
    ///
    /// # Errors
    /// No map, or one that is broken.
    pub(crate) fn of_msgpack(bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        let mut reader = Reader::new(bytes);
        let Item::Map(pairs) = reader.item()? else {
            return Err(EnvelopeError::NotAnObject);
        };
        let mut values = Self::default();
        for _ in 0..pairs {
            let name = reader.item()?;
            let value = reader.value(1)?;
            let Item::Str(name) = name else { continue };
            if let Some(field) = Field::of(name) {
                values.keep(field, value);
            }
        }
        Ok(values)
    }

    /// [`Self::of_msgpack`] that checks the whole message on the way: it has a meaning in JSON.
    ///
    /// # Errors
    /// No map, or one that has none.
    pub(crate) fn of_checked_msgpack(bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        let mut reader = Reader::new(bytes);
        let Item::Map(pairs) = reader.item()? else {
            return Err(EnvelopeError::NotAnObject);
        };
        let mut values = Self::default();
        for _ in 0..pairs {
            let name = reader.checked_key()?;
            let value = reader.checked_value(1)?;
            if let Some(field) = name.and_then(Field::of) {
                values.keep(field, value);
            }
        }
        reader.finish()?;
        Ok(values)
    }

    /// Keeps a value; returns false if the field has one already.
    #[inline]
    pub(crate) fn keep(&mut self, field: Field, value: &'a [u8]) -> bool {
        let place = &mut self.0[field as usize];
        let is_first = place.is_none();
        if is_first {
            *place = Some(value);
        }
        is_first
    }

    #[inline]
    pub(crate) fn get(&self, field: Field) -> Option<&'a [u8]> {
        self.0[field as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_known_by_its_name_in_every_spelling() {
        for name in [
            "t", "p", "c", "id", "cid", "tp", "e", "o", "ts", "seq", "v", "pri", "sig", "d", "rd",
            "n", "b",
        ] {
            let field = Field::of(name.as_bytes()).expect(name);
            assert_eq!(field.name(), name);
            let escaped: String = name
                .chars()
                .map(|character| format!("\\u{:04x}", u32::from(character)))
                .collect();
            assert_eq!(Field::of_raw(escaped.as_bytes()), Ok(Some(field)), "{name}");
        }
        assert_eq!(Field::of(b"type"), Some(Field::Type));
        assert_eq!(Field::of(b"payload"), Some(Field::Payload));
        for unknown in [
            "",
            "T",
            "tt",
            "payloads",
            "a name of more than thirty-two bytes",
        ] {
            assert_eq!(Field::of_raw(unknown.as_bytes()), Ok(None), "{unknown}");
        }
        assert_eq!(Field::of_raw(b"\\x"), Err(EnvelopeError::Malformed));
    }

    #[test]
    fn doubles_come_in_their_order_and_the_first_is_kept() {
        let text = br#"U{"t":"a","x":{"t":0},"p":1,"type":"b"}"#;
        let mut seen = Vec::new();
        each_json(text, |field, value| {
            seen.push((field, value));
            Ok::<_, EnvelopeError>(())
        })
        .unwrap();
        let expected: [(Field, &[u8]); 3] = [
            (Field::Type, b"\"a\""),
            (Field::Payload, b"1"),
            (Field::Type, b"\"b\""),
        ];
        assert_eq!(seen, expected);
        let values = Values::of_json(text).unwrap();
        assert_eq!(values.get(Field::Type), Some(&b"\"a\""[..]));
        assert_eq!(values.get(Field::Id), None);
    }
}
