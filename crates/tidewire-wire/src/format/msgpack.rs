//! MessagePack: a reader over borrowed bytes, and the way to JSON.

use super::binary::{Place, write_base64};
use super::time::{timestamp_ms, write_timestamp};
use super::{FormatError, NESTING_MAX};
use crate::json::text::write_string;
use serde_json::Value;

/// Appends the JSON of one MessagePack value to `out`.
///
/// Binary becomes a base64 string, a timestamp (extension -1) an RFC 3339 string, a float that is not
/// finite `null`, an integer key a string. Nothing is allocated for a declared length: each element must
/// be there. On an error `out` is as it was before.
///
/// # Errors
/// [`FormatError::TooDeep`] past [`NESTING_MAX`], [`FormatError::Truncated`],
/// [`FormatError::TrailingBytes`], and [`FormatError::Malformed`] for text that is not UTF-8, keys
/// that are neither text nor integers, and other extensions.
pub fn msgpack_to_json(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    msgpack_to_json_within(bytes, out, usize::MAX)
}

/// The same for a message: a payload that is binary is marked (`PROTOCOL.md`, section 5.5).
pub(crate) fn message_to_json(
    place: Place,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    convert(place, bytes, out, (usize::MAX, false))
}

/// [`message_to_json`] of a message that a server accepts: a value that JSON does not have is rejected.
///
/// # Errors
/// As [`msgpack_to_json`], and [`FormatError::Malformed`] for a float that is not finite.
pub(crate) fn message_to_exact_json(
    place: Place,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    convert(place, bytes, out, (usize::MAX, true))
}

/// The same for a text of about `bytes_max` bytes at most: no value begins beyond.
///
/// # Errors
/// Also [`FormatError::TooLarge`].
pub(crate) fn msgpack_to_json_within(
    bytes: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), FormatError> {
    convert(Place::Other, bytes, out, (bytes_max, false))
}

fn convert(
    place: Place,
    bytes: &[u8],
    out: &mut Vec<u8>,
    (bytes_max, is_exact): (usize, bool),
) -> Result<(), FormatError> {
    let start = out.len();
    let mut converter = Converter {
        reader: Reader::new(bytes),
        bytes_max,
        is_exact,
        end: start.saturating_add(bytes_max),
    };
    let result = converter
        .value(place, 0, out)
        .and_then(|()| converter.reader.finish());
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// One MessagePack value; of an array and a map only the number of elements or pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Item<'a> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float32(f32),
    Float64(f64),
    Str(&'a [u8]),
    Bin(&'a [u8]),
    Ext(i8, &'a [u8]),
    Array(u32),
    Map(u32),
}

/// Reads values one after another from borrowed bytes.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next value, or the head of the next array or map.
    pub(crate) fn item(&mut self) -> Result<Item<'a>, FormatError> {
        let marker = self.take(1)?[0];
        Ok(match marker {
            0x00..=0x7f => Item::Unsigned(marker.into()),
            0x80..=0x8f => Item::Map(u32::from(marker & 0x0f)),
            0x90..=0x9f => Item::Array(u32::from(marker & 0x0f)),
            0xa0..=0xbf => Item::Str(self.take(usize::from(marker & 0x1f))?),
            0xc0 => Item::Nil,
            0xc1 => return Err(FormatError::Malformed("MessagePack has no value 0xc1")),
            0xc2 | 0xc3 => Item::Bool(marker == 0xc3),
            0xc4..=0xc6 => Item::Bin(self.sized(1 << (marker - 0xc4))?),
            0xc7..=0xc9 => {
                let bytes = self.unsigned(1 << (marker - 0xc7))?;
                self.extension(bytes)?
            }
            0xca => Item::Float32(f32::from_bits(self.unsigned(4)? as u32)),
            0xcb => Item::Float64(f64::from_bits(self.unsigned(8)?)),
            0xcc..=0xcf => Item::Unsigned(self.unsigned(1 << (marker - 0xcc))?),
            0xd0 => Item::Signed(i64::from(self.unsigned(1)? as i8)),
            0xd1 => Item::Signed(i64::from(self.unsigned(2)? as i16)),
            0xd2 => Item::Signed(i64::from(self.unsigned(4)? as i32)),
            0xd3 => Item::Signed(self.unsigned(8)? as i64),
            0xd4..=0xd8 => self.extension(1 << (marker - 0xd4))?,
            0xd9..=0xdb => Item::Str(self.sized(1 << (marker - 0xd9))?),
            0xdc | 0xdd => Item::Array(self.unsigned(2 << (marker - 0xdc))? as u32),
            0xde | 0xdf => Item::Map(self.unsigned(2 << (marker - 0xde))? as u32),
            0xe0..=0xff => Item::Signed(i64::from(marker as i8)),
        })
    }

    /// Passes one whole value, of which `depth` levels are open around it.
    pub(crate) fn skip(&mut self, depth: usize) -> Result<(), FormatError> {
        let marker = *self.rest.first().ok_or(FormatError::Truncated)?;
        let bytes = match marker {
            0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => 1,
            0xa0..=0xbf => 1 + usize::from(marker & 0x1f),
            0xcc | 0xd0 => 2,
            0xcd | 0xd1 => 3,
            0xca | 0xce | 0xd2 => 5,
            0xcb | 0xcf | 0xd3 => 9,
            _ => return self.skip_sized(depth),
        };
        self.take(bytes).map(|_| ())
    }

    fn skip_sized(&mut self, depth: usize) -> Result<(), FormatError> {
        let children = match self.item()? {
            Item::Array(count) => u64::from(count),
            Item::Map(count) => u64::from(count) * 2,
            _ => return Ok(()),
        };
        check_depth(depth)?;
        for _ in 0..children {
            self.skip(depth + 1)?;
        }
        Ok(())
    }

    /// The bytes of the next value, of which `depth` levels are open around it.
    pub(crate) fn value(&mut self, depth: usize) -> Result<&'a [u8], FormatError> {
        let all = self.rest;
        self.skip(depth)?;
        Ok(&all[..all.len() - self.rest.len()])
    }

    /// The same for a value that [`message_to_exact_json`] accepts, without the text.
    pub(crate) fn checked_value(&mut self, depth: usize) -> Result<&'a [u8], FormatError> {
        let all = self.rest;
        check_item(self, depth)?;
        Ok(&all[..all.len() - self.rest.len()])
    }

    /// Skips the key of a pair, if [`msgpack_to_json`] accepts it; its text, unless it is a number.
    pub(crate) fn checked_key(&mut self) -> Result<Option<&'a [u8]>, FormatError> {
        match self.item()? {
            Item::Str(text) => {
                utf8(text)?;
                Ok(Some(text))
            }
            Item::Unsigned(_) | Item::Signed(_) => Ok(None),
            _ => Err(WRONG_KEY),
        }
    }

    /// Moves to the value under `name` in a map whose `pairs` pairs follow; false if there is none.
    pub(crate) fn seek(&mut self, pairs: u32, name: &[u8]) -> Result<bool, FormatError> {
        self.seek_any(pairs, &[name])
    }

    /// The same for the first of several names.
    pub(crate) fn seek_any(&mut self, pairs: u32, names: &[&[u8]]) -> Result<bool, FormatError> {
        for _ in 0..pairs {
            let mut key = self.clone();
            if matches!(key.item()?, Item::Str(name) if names.contains(&name)) {
                *self = key;
                return Ok(true);
            }
            self.skip(1)?;
            self.skip(1)?;
        }
        Ok(false)
    }

    /// That nothing is left.
    pub(crate) fn finish(&self) -> Result<(), FormatError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(FormatError::TrailingBytes)
        }
    }

    fn extension(&mut self, bytes: u64) -> Result<Item<'a>, FormatError> {
        let kind = self.take(1)?[0] as i8;
        Ok(Item::Ext(kind, self.take(bytes as usize)?))
    }

    fn sized(&mut self, length_bytes: usize) -> Result<&'a [u8], FormatError> {
        let bytes = self.unsigned(length_bytes)? as usize;
        self.take(bytes)
    }

    fn unsigned(&mut self, bytes: usize) -> Result<u64, FormatError> {
        let fold = |value, byte: &u8| (value << 8) | u64::from(*byte);
        Ok(self.take(bytes)?.iter().fold(0, fold))
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(FormatError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Converts to JSON.
struct Converter<'a> {
    reader: Reader<'a>,
    bytes_max: usize,
    /// A float that is not finite is refused.
    is_exact: bool,
    /// The length of the output at which no value may begin.
    end: usize,
}

impl Converter<'_> {
    fn value(&mut self, place: Place, depth: usize, out: &mut Vec<u8>) -> Result<(), FormatError> {
        if out.len() > self.end {
            return Err(FormatError::TooLarge {
                bytes_max: self.bytes_max,
            });
        }
        match self.reader.item()? {
            Item::Nil => out.extend_from_slice(b"null"),
            Item::Bool(true) => out.extend_from_slice(b"true"),
            Item::Bool(false) => out.extend_from_slice(b"false"),
            Item::Unsigned(number) => push_integer(number, out),
            Item::Signed(number) => push_integer(number, out),
            Item::Float32(number) if self.is_exact && !number.is_finite() => return Err(UNFINITE),
            Item::Float64(number) if self.is_exact && !number.is_finite() => return Err(UNFINITE),
            Item::Float32(number) => push_float(Value::from(number), out),
            Item::Float64(number) => push_float(Value::from(number), out),
            Item::Str(text) => write_string(utf8(text)?, out),
            Item::Bin(bytes) => write_base64(bytes, out),
            Item::Ext(kind, bytes) => write_timestamp(kind, bytes, out)?,
            Item::Array(count) => {
                check_depth(depth)?;
                out.push(b'[');
                for index in 0..count {
                    if index > 0 {
                        out.push(b',');
                    }
                    self.value(place, depth + 1, out)?;
                }
                out.push(b']');
            }
            Item::Map(count) => {
                check_depth(depth)?;
                out.push(b'{');
                if place == Place::Other {
                    self.members(count, depth, out)?;
                } else {
                    self.marked_members(place, count, depth, out)?;
                }
                out.push(b'}');
            }
        }
        Ok(())
    }

    fn members(&mut self, count: u32, depth: usize, out: &mut Vec<u8>) -> Result<(), FormatError> {
        for index in 0..count {
            if index > 0 {
                out.push(b',');
            }
            key_to_json(&mut self.reader, out)?;
            out.push(b':');
            self.value(Place::Other, depth + 1, out)?;
        }
        Ok(())
    }

    /// The members of a part of a message. The mark of a binary payload is written before the payload.
    fn marked_members(
        &mut self,
        place: Place,
        count: u32,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let mark = place.mark();
        let mut is_marked = false;
        let start = out.len();
        for _ in 0..count {
            let key = self.reader.clone().item()?;
            let name = if let Item::Str(name) = key { name } else { b"" };
            let member = place.member(name);
            let mut value = self.reader.clone();
            value.item()?;
            let value = value.item()?;
            if mark.is_some_and(|mark| mark.as_bytes() == name) {
                let is_missing = place == Place::Envelope && value != Item::Bool(true);
                if is_missing || value == Item::Bool(false) {
                    // It would count before the mark that is written.
                    self.reader.skip(depth + 1)?;
                    self.reader.skip(depth + 1)?;
                    continue;
                }
                is_marked |= value == Item::Bool(true);
            }
            let separate = |out: &mut Vec<u8>| {
                if out.len() > start {
                    out.push(b',');
                }
            };
            if let (Some(mark), Place::Payload, Item::Bin(_)) = (mark, member, value)
                && !is_marked
            {
                separate(out);
                write_string(mark, out);
                out.extend_from_slice(b":true");
                is_marked = true;
            }
            separate(out);
            key_to_json(&mut self.reader, out)?;
            out.push(b':');
            self.value(member.inside(), depth + 1, out)?;
        }
        Ok(())
    }
}

fn check_item(reader: &mut Reader<'_>, depth: usize) -> Result<(), FormatError> {
    // What dense values are made of.
    if let [0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff, rest @ ..] = reader.rest {
        reader.rest = rest;
        return Ok(());
    }
    match reader.item()? {
        Item::Str(text) => {
            utf8(text)?;
        }
        Item::Ext(kind, bytes) => {
            timestamp_ms(kind, bytes)?;
        }
        Item::Float32(number) if !number.is_finite() => return Err(UNFINITE),
        Item::Float64(number) if !number.is_finite() => return Err(UNFINITE),
        Item::Array(count) => {
            check_depth(depth)?;
            for _ in 0..count {
                check_item(reader, depth + 1)?;
            }
        }
        Item::Map(count) => {
            check_depth(depth)?;
            for _ in 0..count {
                reader.checked_key()?;
                check_item(reader, depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn key_to_json(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
    match reader.item()? {
        Item::Str(text) => write_string(utf8(text)?, out),
        Item::Unsigned(number) => {
            out.push(b'"');
            push_integer(number, out);
            out.push(b'"');
        }
        Item::Signed(number) => {
            out.push(b'"');
            push_integer(number, out);
            out.push(b'"');
        }
        _ => return Err(WRONG_KEY),
    }
    Ok(())
}

const UNFINITE: FormatError = FormatError::Malformed("a float that is not finite");

const WRONG_KEY: FormatError = FormatError::Malformed("a map key is neither text nor an integer");

pub(super) fn check_depth(depth: usize) -> Result<(), FormatError> {
    if depth >= NESTING_MAX {
        Err(FormatError::TooDeep)
    } else {
        Ok(())
    }
}

pub(super) fn utf8(bytes: &[u8]) -> Result<&str, FormatError> {
    simdutf8::basic::from_utf8(bytes).map_err(|_| FormatError::Malformed("text is not UTF-8"))
}

fn push_integer(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// `Value::from` has already turned a number that is not finite into null.
fn push_float(number: Value, out: &mut Vec<u8>) {
    out.extend_from_slice(number.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::json_to_msgpack;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn json_of(bytes: &[u8]) -> Result<String, FormatError> {
        let mut out = Vec::new();
        msgpack_to_json(bytes, &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn every_kind_of_value() {
        let cases: [(&[u8], &str); 20] = [
            (&[0xc0], "null"),
            (&[0xc3], "true"),
            (&[0x7f], "127"),
            (&[0xff], "-1"),
            (&[0xcc, 200], "200"),
            (&[0xcd, 1, 0], "256"),
            (
                &[0xcf, 255, 255, 255, 255, 255, 255, 255, 255],
                "18446744073709551615",
            ),
            (&[0xd0, 0x80], "-128"),
            (&[0xd1, 0xff, 0], "-256"),
            (&[0xd2, 255, 255, 255, 254], "-2"),
            (&[0xd3, 128, 0, 0, 0, 0, 0, 0, 0], "-9223372036854775808"),
            (&[0xca, 0x3f, 0x80, 0, 0], "1.0"),
            (&[0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0], "null"),
            (&[0xa2, b'"', b'\n'], r#""\"\n""#),
            (&[0xd9, 1, b'a'], r#""a""#),
            (&[0xc4, 3, 1, 2, 3], r#""AQID""#),
            (&[0xd6, 0xff, 0, 0, 0, 1], r#""1970-01-01T00:00:01.000Z""#),
            (&[0x82, 1, 0xc2, 0xa1, b'a', 0x90], r#"{"1":false,"a":[]}"#),
            (&[0xdc, 0, 2, 1, 2], "[1,2]"),
            (&[0xde, 0, 1, 0xa0, 0xc0], r#"{"":null}"#),
        ];
        for (bytes, text) in cases {
            assert_eq!(json_of(bytes).as_deref(), Ok(text));
        }
    }

    #[test]
    fn declared_lengths_without_data() {
        for bytes in [
            &[0xdd, 255, 255, 255, 255][..],
            &[0xdf, 255, 255, 255, 255],
            &[0xdb, 255, 255, 255, 255, b'a'],
            &[0xc6, 255, 255, 255, 255],
            &[0xc9, 255, 255, 255, 255, 1],
            &[0x92, 1],
            &[],
        ] {
            assert_eq!(json_of(bytes), Err(FormatError::Truncated), "{bytes:?}");
            assert_eq!(
                Reader::new(bytes).skip(0),
                Err(FormatError::Truncated),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn nesting_is_limited_both_ways() {
        let mut packed = vec![0x91; NESTING_MAX];
        packed.push(0xc0);
        let text = json_of(&packed).unwrap();
        let mut back = Vec::new();
        json_to_msgpack(text.as_bytes(), &mut back).unwrap();
        assert_eq!(back, packed);

        packed.insert(0, 0x91);
        assert_eq!(json_of(&packed), Err(FormatError::TooDeep));
        assert_eq!(Reader::new(&packed).skip(0), Err(FormatError::TooDeep));
        let deeper = format!("[{text}]");
        back.clear();
        assert_eq!(
            json_to_msgpack(deeper.as_bytes(), &mut back),
            Err(FormatError::TooDeep)
        );
        assert!(back.is_empty());
        assert_eq!(json_of(&[0x91; 1_000_000]), Err(FormatError::TooDeep));
    }

    #[test]
    fn malformed_values() {
        for bytes in [
            &[0xc1][..],
            &[0xa1, 0xff],
            &[0x81, 0xc0, 0xc0],
            &[0xd4, 5, 0],
        ] {
            assert!(
                matches!(json_of(bytes), Err(FormatError::Malformed(_))),
                "{bytes:?}"
            );
        }
        assert_eq!(json_of(&[0xc0, 0xc0]), Err(FormatError::TrailingBytes));
        assert!(json_to_msgpack(b"{\"a\":}", &mut Vec::new()).is_err());
    }

    #[test]
    fn seek_finds_a_key_behind_nested_values() {
        let mut packed = Vec::new();
        let text = json!({"a": {"t": "inner"}, "b": [1, 2], "t": "outer"}).to_string();
        json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
        let mut reader = Reader::new(&packed);
        let Item::Map(pairs) = reader.item().unwrap() else {
            panic!("a map")
        };
        assert!(reader.clone().seek(pairs, b"t").unwrap());
        assert!(!reader.clone().seek(pairs, b"x").unwrap());
        reader.seek(pairs, b"t").unwrap();
        assert_eq!(reader.item(), Ok(Item::Str(b"outer")));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,40}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 20, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
                prop::collection::btree_map("\\PC{0,8}", inner, 0..20)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn round_trip(value in any_json()) {
            let mut packed = Vec::new();
            json_to_msgpack(value.to_string().as_bytes(), &mut packed).unwrap();
            prop_assert_eq!(json_of(&packed).unwrap(), value.to_string());
            let mut reader = Reader::new(&packed);
            reader.skip(0).unwrap();
            prop_assert!(reader.finish().is_ok());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(text) = json_of(&bytes) {
                prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            }
        }
    }
}
