//! Messages without a type, as some clients of version 1 send them.

use crate::format::Format;

/// The envelope with this type before its other fields; `None` if it is no object, or one with as many fields as
/// MessagePack can count.
///
/// `envelope` is an object that was found to have no type, without the prefix of MessagePack.
pub fn with_type(format: Format, envelope: &[u8], t: &str) -> Option<Vec<u8>> {
    match format {
        Format::Json => with_type_in_json(envelope, t),
        Format::MessagePack => with_type_in_msgpack(envelope, t),
    }
}

fn with_type_in_json(envelope: &[u8], t: &str) -> Option<Vec<u8>> {
    let begin = envelope.iter().position(|byte| *byte == b'{')? + 1;
    let (opening, fields) = envelope.split_at(begin);
    let is_empty = fields.trim_ascii_start().starts_with(b"}");
    let mut typed = Vec::with_capacity(envelope.len() + t.len() + 8);
    typed.extend_from_slice(opening);
    typed.extend_from_slice(br#""t":"#);
    typed.extend_from_slice(&serde_json::to_vec(t).ok()?);
    if !is_empty {
        typed.push(b',');
    }
    typed.extend_from_slice(fields);
    Some(typed)
}

fn with_type_in_msgpack(envelope: &[u8], t: &str) -> Option<Vec<u8>> {
    let (count, fields) = match *envelope {
        [short @ 0x80..=0x8f, ref fields @ ..] => (u32::from(short & 0x0f), fields),
        [0xde, a, b, ref fields @ ..] => (u32::from(u16::from_be_bytes([a, b])), fields),
        [0xdf, a, b, c, d, ref fields @ ..] => (u32::from_be_bytes([a, b, c, d]), fields),
        _ => return None,
    };
    let mut typed = Vec::with_capacity(envelope.len() + t.len() + 12);
    // A vector takes every byte.
    rmp::encode::write_map_len(&mut typed, count.checked_add(1)?).ok()?;
    rmp::encode::write_str(&mut typed, "t").ok()?;
    rmp::encode::write_str(&mut typed, t).ok()?;
    typed.extend_from_slice(fields);
    Some(typed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{classify_json, classify_msgpack, message_type};

    #[test]
    fn the_type_comes_first_and_the_fields_stay() {
        let json = |text: &str| {
            let typed = with_type(Format::Json, text.as_bytes(), "a\"b")?;
            Some(String::from_utf8(typed).unwrap())
        };
        assert_eq!(json("{}").as_deref(), Some(r#"{"t":"a\"b"}"#));
        assert_eq!(json("{ }").as_deref(), Some(r#"{"t":"a\"b" }"#));
        let whole = json(r#" {"p":{"x":1}}"#).unwrap();
        assert_eq!(whole, r#" {"t":"a\"b","p":{"x":1}}"#);
        assert!(classify_json(whole.as_bytes()).is_ok());
        assert_eq!(json("[1]"), None);
    }

    #[test]
    fn a_map_of_any_length_has_one_field_more() {
        for count in [0_usize, 1, 14, 15, 16, 300] {
            let mut map = Vec::new();
            rmp::encode::write_map_len(&mut map, u32::try_from(count).unwrap()).unwrap();
            for number in 0..count {
                rmp::encode::write_str(&mut map, &format!("k{number}")).unwrap();
                rmp::encode::write_uint(&mut map, 7).unwrap();
            }
            let typed = with_type(Format::MessagePack, &map, "message").unwrap();
            assert!(classify_msgpack(&typed).is_ok(), "{count}");
            let t = message_type(Format::MessagePack, &typed).unwrap();
            assert_eq!(t.as_deref(), Some("message"));
        }
        assert_eq!(with_type(Format::MessagePack, &[0x91, 1], "a"), None);
        assert_eq!(with_type(Format::MessagePack, &[], "a"), None);
    }
}
