//! Names of topics that are no Unicode text, in a request that is otherwise valid: each of them fails alone, and the other
//! topics of the request do not fail with it.

use crate::envelope::strip_category;
use crate::format::{Format, Item, Reader};
use crate::json::fields::{Elements, Fields};
use crate::json::text::{string_is, text};
use std::collections::BTreeSet;

/// A `subscription_update` in which each name of a topic that is no text is one: what cannot be read in it is U+FFFD, or
/// `?` for a byte that is no part of a character. The message is as long as before.
pub(super) struct Repaired {
    pub(super) bytes: Vec<u8>,
    /// The places of these names among the topics.
    pub(super) places: BTreeSet<usize>,
}

/// `None` if no name of a topic is at fault, or the message is so broken that the names cannot be found.
pub(super) fn repair_topics(encoding: Format, bytes: &[u8]) -> Option<Repaired> {
    let names = match encoding {
        Format::Json => json_topics(bytes)?,
        Format::MessagePack => msgpack_topics(bytes)?,
    };
    let mut repaired = Repaired {
        bytes: bytes.to_vec(),
        places: BTreeSet::new(),
    };
    for (place, name) in names.into_iter().enumerate() {
        let start = name.as_ptr().addr() - bytes.as_ptr().addr();
        let name = repaired.bytes.get_mut(start..start + name.len())?;
        let is_changed = match encoding {
            Format::Json => replace_halves(name),
            Format::MessagePack => replace_bytes(name),
        };
        if is_changed {
            repaired.places.insert(place);
        }
    }
    (!repaired.places.is_empty()).then_some(repaired)
}

/// The elements of `topics`, with their quotes.
fn json_topics(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let (_, object) = strip_category(bytes);
    let payload = find(object, &["p", "payload"])?;
    let mut elements = Elements::open(find(payload, &["topics"])?).ok()?;
    let mut names = Vec::new();
    while let Some(name) = elements.next().ok()? {
        names.push(name);
    }
    Some(names)
}

fn find<'a>(object: &'a [u8], names: &[&str]) -> Option<&'a [u8]> {
    let mut fields = Fields::open(object).ok()?;
    while let Some(field) = fields.next().ok()? {
        if names
            .iter()
            .any(|name| string_is(field.name, name) == Ok(true))
        {
            return Some(field.value);
        }
    }
    None
}

fn msgpack_topics(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut reader = Reader::new(bytes);
    for names in [&[&b"p"[..], b"payload"][..], &[b"topics"]] {
        let Item::Map(pairs) = reader.item().ok()? else {
            return None;
        };
        if !reader.seek_any(pairs, names).ok()? {
            return None;
        }
    }
    let Item::Array(count) = reader.item().ok()? else {
        return None;
    };
    let mut names = Vec::new();
    for _ in 0..count {
        let mut name = reader.clone();
        names.push(match name.item().ok()? {
            Item::Str(name) => name,
            _ => &bytes[..0],
        });
        reader.skip(LEVELS).ok()?;
    }
    Some(names)
}

/// Replaces each escape of half a surrogate pair in a JSON string; true if there was one.
fn replace_halves(quoted: &mut [u8]) -> bool {
    if text(quoted).is_some() {
        return false;
    }
    let mut is_changed = false;
    let mut at = 0;
    while let Some(&byte) = quoted.get(at) {
        if byte != b'\\' {
            at += 1;
        } else if let Some(code) = escape(quoted, at) {
            let is_pair = (0xd800..0xdc00).contains(&code)
                && matches!(escape(quoted, at + ESCAPE), Some(0xdc00..=0xdfff));
            if is_pair {
                at += ESCAPE;
            } else if (0xd800..0xe000).contains(&code) {
                quoted[at..at + ESCAPE].copy_from_slice(b"\\ufffd");
                is_changed = true;
            }
            at += ESCAPE;
        } else {
            at += 2;
        }
    }
    is_changed
}

/// The code of the `\u` escape that begins at a place, if one does.
fn escape(quoted: &[u8], at: usize) -> Option<u32> {
    let digits = quoted.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    let mut digits = digits.iter().map(|digit| char::from(*digit).to_digit(16));
    digits.try_fold(0, |code, digit| Some(code * 16 + digit?))
}

/// Replaces bytes that are not UTF-8; true if there were some.
fn replace_bytes(name: &mut [u8]) -> bool {
    let mut is_changed = false;
    let mut at = 0;
    while let Err(error) = std::str::from_utf8(&name[at..]) {
        is_changed = true;
        at += error.valid_up_to();
        // Half a surrogate pair, as a writer of UTF-16 packs it.
        if let Some(half @ [0xed, 0xa0..=0xbf, 0x80..=0xbf]) = name.get_mut(at..at + 3) {
            half.copy_from_slice("\u{fffd}".as_bytes());
            at += 3;
        } else {
            name[at] = b'?';
            at += 1;
        }
    }
    is_changed
}

/// Bytes of a `\u` escape.
const ESCAPE: usize = 6;

/// The levels around a topic: the message, its payload, the array.
const LEVELS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_of_topics_are_repaired() {
        let text = br#"{"t":"subscription_update","p":{"presence":{"a":"\ud83d"},"topics":["a\ud83d.b","\ud83d\ude00","\\ud83d","\ude00\ud83d"]}}"#;
        let repaired = repair_topics(Format::Json, text).unwrap();
        let expected = r#"{"t":"subscription_update","p":{"presence":{"a":"\ud83d"},"topics":["a\ufffd.b","\ud83d\ude00","\\ud83d","\ufffd\ufffd"]}}"#;
        assert_eq!(String::from_utf8(repaired.bytes).unwrap(), expected);
        assert_eq!(repaired.places, BTreeSet::from([0, 3]));
        for none in [
            &br#"{"t":"a","p":{"topics":["a","\ud83d\ude00"]}}"#[..],
            br#"{"t":"a","p":{"topics":["\q"]}}"#,
            br#"{"t":"a","p":{"topics":["\ud83d]}}"#,
            br#"{"t":"a","p":{"topics":7}}"#,
            br#"{"t":"a"}"#,
        ] {
            assert!(repair_topics(Format::Json, none).is_none());
        }
    }

    #[test]
    fn names_in_messagepack_are_repaired() {
        let packed = b"\x81\xa1p\x81\xa6topics\x94\xa2ok\xa4a\xed\xa0\xbd\x07\xa2b\xff";
        let repaired = repair_topics(Format::MessagePack, packed).unwrap();
        let expected = b"\x81\xa1p\x81\xa6topics\x94\xa2ok\xa4a\xef\xbf\xbd\x07\xa2b?";
        assert_eq!(repaired.bytes, expected);
        assert_eq!(repaired.places, BTreeSet::from([1, 3]));
    }
}
