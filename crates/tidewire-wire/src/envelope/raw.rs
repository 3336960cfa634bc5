//! A value of a peer's message, read where it stands in JSON text or MessagePack.
//!
//! A peer's value never becomes a tree: 3 KB can hold half a million objects, and each would need hundreds of
//! bytes of memory. A value is skipped at the cost of its bytes, and only what a reader requests is copied.

use crate::format::{Format, Item, Reader, msgpack_to_json_within, write_base64, write_timestamp};
use crate::json;
use crate::json::fields::{Elements, Fields};
use std::borrow::Cow;

/// A value in a message that was checked as a whole: no step through it fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    encoding: Format,
    bytes: &'a [u8],
}

impl<'a> Raw<'a> {
    /// The value that a field has which is missing.
    pub(crate) const NULL: Self = Self::json(b"null");

    /// A value in JSON text without white space around it.
    pub(crate) const fn json(bytes: &'a [u8]) -> Self {
        Self::new(Format::Json, bytes)
    }

    pub(crate) const fn new(encoding: Format, bytes: &'a [u8]) -> Self {
        Self { encoding, bytes }
    }

    pub(crate) fn is_null(self) -> bool {
        match self.encoding {
            Format::Json => self.bytes == b"null",
            Format::MessagePack => match self.item() {
                Some(Item::Nil) | None => true,
                // JSON has no such number; its form there is null.
                Some(Item::Float32(number)) => !number.is_finite(),
                Some(Item::Float64(number)) => !number.is_finite(),
                Some(_) => false,
            },
        }
    }

    pub(crate) fn is_object(self) -> bool {
        match self.encoding {
            Format::Json => self.bytes.starts_with(b"{"),
            Format::MessagePack => matches!(self.item(), Some(Item::Map(_))),
        }
    }

    pub(crate) fn is_text(self) -> bool {
        match self.encoding {
            Format::Json => self.bytes.starts_with(b"\""),
            Format::MessagePack => {
                matches!(
                    self.item(),
                    Some(Item::Str(_) | Item::Bin(_) | Item::Ext(..))
                )
            }
        }
    }

    /// A text; of MessagePack also bytes and a timestamp, as the text that they have in JSON.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        match self.encoding {
            Format::Json => json::text::text(self.bytes),
            Format::MessagePack => match self.item()? {
                Item::Str(text) => std::str::from_utf8(text).ok().map(Cow::Borrowed),
                Item::Bin(bytes) => quoted(|out| write_base64(bytes, out)),
                Item::Ext(kind, bytes) => {
                    quoted(|out| write_timestamp(kind, bytes, out).unwrap_or_default())
                }
                _ => None,
            },
        }
    }

    /// An integer from 0 to 2^64 - 1.
    pub(crate) fn unsigned(self) -> Option<u64> {
        match self.encoding {
            Format::Json => json::digits(self.bytes),
            Format::MessagePack => match self.item()? {
                Item::Unsigned(number) => Some(number),
                Item::Signed(number) => u64::try_from(number).ok(),
                _ => None,
            },
        }
    }

    /// True or false.
    pub(crate) fn flag(self) -> Option<bool> {
        match self.encoding {
            Format::Json => match self.bytes {
                b"true" => Some(true),
                b"false" => Some(false),
                _ => None,
            },
            Format::MessagePack => match self.item()? {
                Item::Bool(flag) => Some(flag),
                _ => None,
            },
        }
    }

    /// The members of an object, in their order, doubles included; of anything else none.
    pub(crate) fn members(self) -> Members<'a> {
        let rest = match self.encoding {
            Format::Json => Fields::open(self.bytes).map_or(Rest::End, Rest::Fields),
            Format::MessagePack => {
                let mut reader = Reader::new(self.bytes);
                match reader.item() {
                    Ok(Item::Map(pairs)) => Rest::Packed(reader, pairs),
                    _ => Rest::End,
                }
            }
        };
        Members(rest)
    }

    /// The elements of an array; `None` if it is none.
    pub(crate) fn elements(self) -> Option<Items<'a>> {
        let rest = match self.encoding {
            Format::Json => Rest::Elements(Elements::open(self.bytes).ok()?),
            Format::MessagePack => {
                let mut reader = Reader::new(self.bytes);
                match reader.item() {
                    Ok(Item::Array(count)) => Rest::Packed(reader, count),
                    _ => return None,
                }
            }
        };
        Some(Items(rest))
    }

    /// The values of the members with these names in one pass, of doubles the last; [`Self::NULL`] for a member that is
    /// missing.
    pub(crate) fn pick<const N: usize>(self, names: [&str; N]) -> [Self; N] {
        let mut found = [Self::NULL; N];
        for (name, value) in self.members() {
            if let Some(at) = names.iter().position(|known| *known == name) {
                found[at] = value;
            }
        }
        found
    }

    /// The value as JSON text without white space; `None` if it would be longer than `bytes_max`.
    pub(crate) fn to_json(self, bytes_max: usize) -> Option<String> {
        let mut text = Vec::new();
        match self.encoding {
            Format::Json => json::strict::write_compact(self.bytes, &mut text, bytes_max)?,
            Format::MessagePack => {
                msgpack_to_json_within(self.bytes, &mut text, bytes_max).ok()?;
            }
        }
        let text = String::from_utf8(text).ok()?;
        (text.len() <= bytes_max).then_some(text)
    }

    fn item(self) -> Option<Item<'a>> {
        Reader::new(self.bytes).item().ok()
    }
}

/// The text that `write` writes with its quotes, which needs no escapes.
fn quoted(write: impl FnOnce(&mut Vec<u8>)) -> Option<Cow<'static, str>> {
    let mut out = Vec::new();
    write(&mut out);
    let text = String::from_utf8(out).ok()?;
    let text = text.strip_prefix('"')?.strip_suffix('"')?;
    Some(Cow::Owned(text.to_owned()))
}

/// The members of an object.
pub(crate) struct Members<'a>(Rest<'a>);

/// The elements of an array.
pub(crate) struct Items<'a>(Rest<'a>);

enum Rest<'a> {
    End,
    Fields(Fields<'a>),
    Elements(Elements<'a>),
    /// The values that are left of an array, or the pairs of a map.
    Packed(Reader<'a>, u32),
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, Raw<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Rest::Fields(fields) => {
                let field = fields.next().ok()??;
                Some((json::text::name(field.name)?, Raw::json(field.value)))
            }
            Rest::Packed(reader, pairs) => {
                *pairs = pairs.checked_sub(1)?;
                let name = match reader.item().ok()? {
                    Item::Str(name) => Cow::Borrowed(std::str::from_utf8(name).ok()?),
                    Item::Unsigned(number) => Cow::Owned(number.to_string()),
                    Item::Signed(number) => Cow::Owned(number.to_string()),
                    _ => return None,
                };
                Some((
                    name,
                    Raw::new(Format::MessagePack, reader.value(LEVELS).ok()?),
                ))
            }
            _ => None,
        }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Raw<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Rest::Elements(elements) => elements.next().ok()?.map(Raw::json),
            Rest::Packed(reader, count) => {
                *count = count.checked_sub(1)?;
                Some(Raw::new(Format::MessagePack, reader.value(LEVELS).ok()?))
            }
            _ => None,
        }
    }
}

/// Levels around a value that are counted again: none, because the check of the whole message has counted them.
const LEVELS: usize = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::json_to_msgpack;

    const TEXT: &str = r#"{"a":"x\u0079","n":18446744073709551615,"no":-1,"yes":true,"nil":null,"o":{"b":[1,"}"],"":{}},"a":["last"," "]}"#;

    fn in_both(text: &str, check: impl Fn(Raw<'_>)) {
        check(Raw::json(text.as_bytes()));
        let mut packed = Vec::new();
        json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
        check(Raw::new(Format::MessagePack, &packed));
    }

    #[test]
    fn values_are_read_in_both_formats() {
        in_both(TEXT, |object| {
            assert!(object.is_object() && !object.is_null() && !object.is_text());
            let [n, no, yes, nil, missing, o] = object.pick(["n", "no", "yes", "nil", "x", "o"]);
            assert_eq!(n.unsigned(), Some(u64::MAX));
            assert_eq!((no.unsigned(), no.flag(), no.text()), (None, None, None));
            assert_eq!((yes.flag(), yes.unsigned()), (Some(true), None));
            assert!(nil.is_null() && missing.is_null());
            let names: Vec<_> = object
                .members()
                .map(|(name, _)| name.into_owned())
                .collect();
            assert_eq!(names, ["a", "n", "no", "yes", "nil", "o", "a"]);
            assert_eq!(object.members().next().unwrap().1.text().unwrap(), "xy");
            let [b, empty] = o.pick(["b", ""]);
            assert!(empty.is_object() && empty.members().next().is_none());
            let elements: Vec<_> = b.elements().unwrap().collect();
            assert_eq!(elements[0].unsigned(), Some(1));
            assert_eq!(elements[1].text().unwrap(), "}");
            assert!(o.elements().is_none() && b.members().next().is_none());
        });
    }

    #[test]
    fn of_doubles_the_last_counts() {
        in_both(TEXT, |object| {
            let [a] = object.pick(["a"]);
            assert_eq!(a.elements().unwrap().count(), 2);
        });
    }

    #[test]
    fn a_value_as_text_has_no_white_space_and_a_limit() {
        let spaced = Raw::json(b"{ \"a b\" : [ 1 , \" \\\" \" ] }");
        let compact = r#"{"a b":[1," \" "]}"#;
        assert_eq!(spaced.to_json(compact.len()).as_deref(), Some(compact));
        assert_eq!(spaced.to_json(compact.len() - 1), None);
        in_both(r#"{"a":[1,2]}"#, |value| {
            assert_eq!(value.to_json(11).as_deref(), Some(r#"{"a":[1,2]}"#));
            assert_eq!(value.to_json(10), None);
        });
    }

    #[test]
    fn what_json_cannot_say() {
        let raw = |bytes| Raw::new(Format::MessagePack, bytes);
        assert_eq!(raw(&[0xc4, 3, 1, 2, 3]).text().unwrap(), "AQID");
        let time = raw(&[0xd6, 0xff, 0, 0, 0, 1]);
        assert_eq!(time.text().unwrap(), "1970-01-01T00:00:01.000Z");
        assert!(raw(&[0xca, 0x7f, 0x80, 0, 0]).is_null());
        let [five] = raw(&[0x81, 5, 0xc3]).pick(["5"]);
        assert_eq!(five.flag(), Some(true));
    }
}
