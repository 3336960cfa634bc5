//! JSON to MessagePack in one pass, fields kept in their order.

use super::FormatError;
use super::binary::{Place, binary_bytes};
use super::msgpack::{check_depth, utf8};
use crate::json::scan::{skip_space, string_end, value_end};
use serde_json::Value;

/// Appends the MessagePack of one JSON value to `out`, without the prefix `M:`.
///
/// Integers and lengths have their shortest form, other numbers 64 bits; fields keep their order.
///
/// # Errors
/// [`FormatError::Malformed`] if it is not JSON, [`FormatError::TooDeep`] past
/// [`NESTING_MAX`](super::NESTING_MAX); `out` is as it was before.
pub fn json_to_msgpack(text: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    pack(Place::Other, text, out)
}

/// [`json_to_msgpack`] for an envelope: a payload that `b` (or `binary`, in a publication or a call) before it marks
/// is written as binary. A payload with the mark behind it stays a text, which means the same beside the mark.
///
/// # Errors
/// As [`json_to_msgpack`].
pub fn envelope_to_msgpack(text: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    pack(Place::Envelope, text, out)
}

/// The same for any part of a message.
pub(crate) fn pack(place: Place, text: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    let start = out.len();
    let mut packer = Packer {
        text,
        at: skip_space(text, 0),
        out,
    };
    let mut result = packer.value(place, 0);
    if result.is_ok() && skip_space(text, packer.at) != text.len() {
        result = Err(FormatError::TrailingBytes);
    }
    if result.is_err() {
        out.truncate(start);
    }
    result
}

struct Packer<'a> {
    text: &'a [u8],
    at: usize,
    out: &'a mut Vec<u8>,
}

impl Packer<'_> {
    fn value(&mut self, place: Place, depth: usize) -> Result<(), FormatError> {
        match self.text.get(self.at) {
            Some(b'{') if place != Place::Other => self.marked_object(place, depth),
            Some(b'{') => self.container(Place::Other, b'}', depth),
            Some(b'[') => self.container(place, b']', depth),
            Some(b'"') => self.string(),
            _ => self.scalar(),
        }
    }

    fn container(&mut self, place: Place, close: u8, depth: usize) -> Result<(), FormatError> {
        self.elements(close, depth, |packer| {
            if close == b'}' {
                packer.name()?;
            }
            packer.value(place, depth + 1)
        })
    }

    /// An object at a place that may have a binary payload.
    fn marked_object(&mut self, place: Place, depth: usize) -> Result<(), FormatError> {
        let (mut place, mut is_marked) = (place, false);
        self.elements(b'}', depth, |packer| {
            let start = packer.at;
            packer.name()?;
            let text = packer.text;
            let name = text[start..packer.at].trim_ascii_end();
            let name = name.strip_suffix(b":").unwrap_or_default().trim_ascii_end();
            let [b'"', name @ .., b'"'] = name else {
                return Err(NOT_JSON);
            };
            let member = place.member(name);
            if is_marked && member == Place::Payload && packer.binary() {
                return Ok(());
            }
            let start = packer.at;
            packer.value(member.inside(), depth + 1)?;
            let value = &text[start..packer.at];
            if place.mark().is_some_and(|mark| mark.as_bytes() == name) {
                is_marked = value == b"true";
            } else if place == Place::Envelope
                && name == b"t"
                && let [b'"', t @ .., b'"'] = value
            {
                place = Place::of_type(t);
            }
            Ok(())
        })
    }

    /// Writes a string as the bytes whose base64 it is; false, and nothing is written, if it is not one.
    fn binary(&mut self) -> bool {
        let Ok(end) = value_end(self.text, self.at, 0) else {
            return false;
        };
        let bytes = binary_bytes(&self.text[self.at..end]);
        let written = bytes.is_some_and(|bytes| rmp::encode::write_bin(self.out, &bytes).is_ok());
        if written {
            self.at = end;
        }
        written
    }

    /// The elements of an array, or the pairs of an object. The head is one byte until their number is known to need more.
    #[inline]
    fn elements(
        &mut self,
        close: u8,
        depth: usize,
        mut element: impl FnMut(&mut Self) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        check_depth(depth)?;
        let head_at = self.out.len();
        self.out.push(0);
        self.at = skip_space(self.text, self.at + 1);
        let mut count = 0u32;
        while count > 0 || !self.takes(close) {
            element(self)?;
            count = count.checked_add(1).ok_or(NOT_JSON)?;
            self.at = skip_space(self.text, self.at);
            if self.takes(close) {
                break;
            }
            if !self.takes(b',') {
                return Err(NOT_JSON);
            }
            self.at = skip_space(self.text, self.at);
        }
        let mut head = [0; 5];
        let bytes = write_head(close, count, &mut head);
        self.out
            .splice(head_at..=head_at, head[..bytes].iter().copied());
        Ok(())
    }

    fn name(&mut self) -> Result<(), FormatError> {
        if self.text.get(self.at) != Some(&b'"') {
            return Err(NOT_JSON);
        }
        self.string()?;
        self.at = skip_space(self.text, self.at);
        if !self.takes(b':') {
            return Err(NOT_JSON);
        }
        self.at = skip_space(self.text, self.at);
        Ok(())
    }

    fn string(&mut self) -> Result<(), FormatError> {
        let end = string_end(self.text, self.at + 1).map_err(|_| NOT_JSON)?;
        let quoted = &self.text[self.at..end];
        self.at = end;
        let unescaped;
        let plain = if quoted.contains(&b'\\') {
            unescaped = serde_json::from_slice::<String>(quoted).map_err(|_| NOT_JSON)?;
            &unescaped
        } else {
            utf8(&quoted[1..quoted.len() - 1])?
        };
        written(rmp::encode::write_str(self.out, plain).is_ok())
    }

    fn scalar(&mut self) -> Result<(), FormatError> {
        let end = value_end(self.text, self.at, 0).map_err(|_| NOT_JSON)?;
        let token = &self.text[self.at..end];
        self.at = end;
        // What dense payloads are made of needs no parser.
        match token {
            b"true" | b"false" => return self.marker(0xc2 + u8::from(token == b"true")),
            b"null" => return self.marker(0xc0),
            [digit @ b'0'..=b'9'] => return self.marker(digit - b'0'),
            _ => {}
        }
        let value = serde_json::from_slice(token).map_err(|_| NOT_JSON)?;
        written(match value {
            Value::Bool(flag) => rmp::encode::write_bool(self.out, flag).is_ok(),
            Value::Number(number) => {
                if let Some(unsigned) = number.as_u64() {
                    rmp::encode::write_uint(self.out, unsigned).is_ok()
                } else if let Some(signed) = number.as_i64() {
                    rmp::encode::write_sint(self.out, signed).is_ok()
                } else {
                    // The token is parsed again: serde_json is one unit in the last place off at times.
                    let float = utf8(token)?.parse().map_err(|_| NOT_JSON)?;
                    rmp::encode::write_f64(self.out, float).is_ok()
                }
            }
            _ => rmp::encode::write_nil(self.out).is_ok(),
        })
    }

    /// Writes a value of one byte.
    fn marker(&mut self, byte: u8) -> Result<(), FormatError> {
        self.out.push(byte);
        Ok(())
    }

    /// Skips `byte` if it is the next byte, and returns whether it was.
    fn takes(&mut self, byte: u8) -> bool {
        let next = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(next);
        next
    }
}

/// Writes the head of a map (`close` is `}`) or an array of `count` elements and returns its bytes.
fn write_head(close: u8, count: u32, head: &mut [u8; 5]) -> usize {
    let map = close == b'}';
    match count {
        0..=15 => {
            head[0] = if map { 0x80 } else { 0x90 } | count as u8;
            1
        }
        16..=0xffff => {
            head[0] = if map { 0xde } else { 0xdc };
            head[1..3].copy_from_slice(&(count as u16).to_be_bytes());
            3
        }
        _ => {
            head[0] = if map { 0xdf } else { 0xdd };
            head[1..5].copy_from_slice(&count.to_be_bytes());
            5
        }
    }
}

/// A `Vec` accepts every write; refusals of `rmp` are reported all the same.
fn written(written: bool) -> Result<(), FormatError> {
    if written {
        Ok(())
    } else {
        Err(FormatError::Malformed("the value cannot be written"))
    }
}

const NOT_JSON: FormatError = FormatError::Malformed("not JSON");

#[cfg(test)]
mod tests {
    use super::super::msgpack_to_json;
    use super::*;
    use proptest::prelude::*;

    fn pack(text: &str) -> Result<Vec<u8>, FormatError> {
        let mut out = vec![7];
        let result = json_to_msgpack(text.as_bytes(), &mut out);
        assert_eq!(out.remove(0), 7);
        assert!(result.is_ok() || out.is_empty());
        result.map(|()| out)
    }

    #[test]
    fn order_is_kept() {
        let packed = pack(" { \"t\" : \"a\" , \"p\" : [ ] , \"c\\n\" : -1 } ").unwrap();
        assert_eq!(packed, b"\x83\xa1t\xa1a\xa1p\x90\xa2c\n\xff");
    }

    #[test]
    fn heads_of_every_size() {
        for (count, head) in [
            (15usize, &[0x9f][..]),
            (16, &[0xdc, 0, 16]),
            (65_535, &[0xdc, 255, 255]),
            (65_536, &[0xdd, 0, 1, 0, 0]),
        ] {
            let text = format!("[{}]", vec!["1"; count].join(","));
            let packed = pack(&text).unwrap();
            assert!(packed.starts_with(head), "{count}");
            assert_eq!(packed.len(), head.len() + count);
        }
        let fields = (10..30)
            .map(|n| format!("\"{n}\":[]"))
            .collect::<Vec<_>>()
            .join(",");
        assert!(
            pack(&format!("{{{fields}}}"))
                .unwrap()
                .starts_with(&[0xde, 0, 20])
        );
    }

    #[test]
    fn what_is_not_json() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{1:2}",
            "nul",
            "truee",
            "01",
            "1.",
            "-",
            "+1",
            "1e400",
            "\"\\q\"",
            "\"a",
            "[1}",
            "{]",
            "\"\\ud800\"",
            "\"\n\"",
            "NaN",
        ] {
            assert!(
                matches!(pack(text), Err(FormatError::Malformed(_))),
                "{text}"
            );
        }
        assert_eq!(pack("1 2"), Err(FormatError::TrailingBytes));
        assert_eq!(pack("[]]"), Err(FormatError::TrailingBytes));
        assert!(json_to_msgpack(b"\"\xff\"", &mut Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn takes_what_serde_json_takes(text in "[\\[\\]{},:\" 0-9.eE+\\-a\\\\ntrue]{0,24}") {
            let expected = serde_json::from_str::<Value>(&text);
            prop_assert_eq!(pack(&text).is_ok(), expected.is_ok(), "{}", text);
        }

        #[test]
        fn floats_are_exact(number in prop::num::f64::NORMAL) {
            let packed = pack(&format!("{number:e}")).unwrap();
            prop_assert_eq!(&packed[1..], &number.to_be_bytes());
            let mut text = Vec::new();
            msgpack_to_json(&packed, &mut text).unwrap();
            let back: f64 = std::str::from_utf8(&text).unwrap().parse().unwrap();
            prop_assert_eq!(back, number);
        }
    }
}
