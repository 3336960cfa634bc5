//! The correlation id of a message that is refused, wherever it stands and whatever is wrong with the rest.

use super::strip_category;
use crate::format::{Format, FormatError, Item, Reader};
use crate::json::scan::plain_bytes;
use crate::json::text::{name, text};

/// The `cid` of a message that need not be valid: JSON, which need not be UTF-8, or MessagePack without the prefix `M:`.
///
/// Values before it are skipped by their ends alone: brackets and quotes in JSON, lengths in MessagePack.
/// `None` if there is none, if it is not a text, or if a broken part hides the ends of the values before it.
#[must_use]
pub fn readable_correlation_id(encoding: Format, bytes: &[u8]) -> Option<String> {
    match encoding {
        Format::Json => json_id(bytes),
        Format::MessagePack => msgpack_id(bytes),
    }
}

fn json_id(bytes: &[u8]) -> Option<String> {
    let (_, object) = strip_category(bytes);
    let mut rest = after_separators(object, b"").strip_prefix(b"{")?;
    loop {
        rest = after_separators(rest, b",").strip_prefix(b"\"")?;
        let (raw, behind) = split_string(rest)?;
        rest = after_separators(behind, b"").strip_prefix(b":")?;
        rest = after_separators(rest, b"");
        let behind = after_value(rest)?;
        if name(raw).is_some_and(|name| name == "cid") {
            let value = rest[..rest.len() - behind.len()].trim_ascii_end();
            return text(value).map(|id| id.into_owned());
        }
        rest = behind;
    }
}

/// The rest after white space and the bytes of `others`.
fn after_separators<'a>(rest: &'a [u8], others: &[u8]) -> &'a [u8] {
    let separates = |byte: &u8| byte.is_ascii_whitespace() || others.contains(byte);
    let bytes = rest.iter().take_while(|byte| separates(byte)).count();
    &rest[bytes..]
}

/// The content of a string and the rest after its closing quote.
fn split_string(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        at += plain_bytes::<false>(content.get(at..)?);
        match content.get(at)? {
            b'"' => return Some((&content[..at], &content[at + 1..])),
            _ => at += 2,
        }
    }
}

/// The rest after a value. Brackets are counted, whatever their kind, however deep they are.
fn after_value(value: &[u8]) -> Option<&[u8]> {
    let mut rest = value;
    let mut depth = 0_usize;
    loop {
        let (byte, behind) = rest.split_first()?;
        match byte {
            b'"' => rest = split_string(behind)?.1,
            b'{' | b'[' => {
                depth += 1;
                rest = behind;
            }
            b'}' | b']' | b',' if depth == 0 => return Some(rest),
            b'}' | b']' => {
                depth -= 1;
                rest = behind;
            }
            _ => {
                rest = behind;
                continue;
            }
        }
        if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
            return Some(rest);
        }
    }
}

fn msgpack_id(bytes: &[u8]) -> Option<String> {
    let mut reader = Reader::new(bytes);
    let Ok(Item::Map(pairs)) = reader.item() else {
        return None;
    };
    for _ in 0..pairs {
        let mut value = reader.clone();
        if let Ok(Item::Str(b"cid")) = value.item() {
            return match value.item() {
                Ok(Item::Str(id)) => String::from_utf8(id.to_vec()).ok(),
                _ => None,
            };
        }
        pass(&mut reader)?;
        pass(&mut reader)?;
    }
    None
}

/// Passes a value, however deep it is.
fn pass(reader: &mut Reader<'_>) -> Option<()> {
    let mut values = 1_u64;
    while values > 0 {
        let children = match reader.item() {
            Ok(Item::Array(count)) => u64::from(count),
            Ok(Item::Map(count)) => 2 * u64::from(count),
            // A byte that is no value is as long as one.
            Ok(_) | Err(FormatError::Malformed(_)) => 0,
            Err(_) => return None,
        };
        values = values - 1 + children;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::correlation_id;
    use crate::format::json_to_msgpack;
    use proptest::prelude::*;

    fn of_json(text: &[u8]) -> Option<String> {
        readable_correlation_id(Format::Json, text)
    }

    #[test]
    fn it_is_read_behind_what_is_wrong() {
        let deep = format!(
            r#"{{"t":"a","p":{}{},"cid":"1"}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        for text in [
            r#"{"cid":"1","t":"a","p":"#,
            r#"U{"t":"a","p":{"x":"\ud83d"},"cid":"1"}"#,
            r#"{"t":"a","p":NaN,"cid":"1"}"#,
            r#"{"t":"a","p":[},"cid":"1"}"#,
            r#"{"t":"a","p":"\q","cid":"1"}"#,
            r#"{"t":"a","p":1e999 , "c\u0069d" : "1" , "#,
            r#"{"t":"a",,"p":+1,"cid":"1","cid":"2"}"#,
            r#"{"p":{"cid":"2"},"cid":"\u0031"} and more"#,
            "{\"p\":\"\n\",\"cid\":\"1\"}",
            &deep,
        ] {
            assert_eq!(of_json(text.as_bytes()).as_deref(), Some("1"), "{text:.80}");
        }
        let no_utf8 = b"{\"t\":\"a\",\"p\":\"\xff\",\"\xfe\":1,\"cid\":\"1\"}";
        assert_eq!(of_json(no_utf8).as_deref(), Some("1"));
        for text in [
            "",
            "[]",
            "{",
            r#"{"cid":1}"#,
            r#"{"cid":null}"#,
            r#"{"cid":"\ud800"}"#,
            r#"{"cid":"1"#,
            r#"{"p":"1,"cid":"1"}"#,
            r#"{"p":{"cid":"1"}}"#,
            r#"{"p":[[1],"cid":"1"}"#,
        ] {
            assert_eq!(of_json(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn it_is_read_in_messagepack() {
        let of = |bytes: &[u8]| readable_correlation_id(Format::MessagePack, bytes);
        for payload in [
            &b"\xc1"[..],
            b"\xa1\xff",
            b"\xd4\x05\x00",
            b"\x81\xc0\xc0",
            &[0x91; 1000],
        ] {
            let mut bytes = [b"\x83\xa1t\xa1a\xa1p", payload].concat();
            if payload.len() == 1000 {
                bytes.push(1);
            }
            bytes.extend_from_slice(b"\xa3cid\xa11 and more");
            assert_eq!(of(&bytes).as_deref(), Some("1"), "{payload:x?}");
        }
        assert_eq!(of(b"\x81\xa3cid\x01"), None);
        assert_eq!(of(b"\xdf\xff\xff\xff\xff"), None);
        assert_eq!(of(b"\x82\xa1p\xdd\xff\xff\xff\xff\xa3cid\xa11"), None);
    }

    proptest! {
        /// What the other reader finds in a message without a fault, this one finds too; it ends with any bytes.
        #[test]
        fn both_readers_find_the_same(
            text in "[\\[\\]{}:,\"\\\\ 0-9a-e]{0,24}",
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let message = format!("{{\"t\":\"a\",\"p\":{text},\"cid\":\"1\"}}");
            if let Ok(Some(id)) = correlation_id(Format::Json, message.as_bytes()) {
                prop_assert_eq!(of_json(message.as_bytes()), Some(id.into_owned()), "{}", message);
            }
            let mut packed = Vec::new();
            if json_to_msgpack(message.as_bytes(), &mut packed).is_ok() {
                let found = readable_correlation_id(Format::MessagePack, &packed);
                prop_assert_eq!(found.as_deref(), Some("1"));
            }
            of_json(&bytes);
            let _ = readable_correlation_id(Format::MessagePack, &bytes);
        }
    }
}
