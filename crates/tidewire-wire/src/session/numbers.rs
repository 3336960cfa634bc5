//! Numbers in a payload, found without parsing the message: what pings and pongs are made of.

use crate::envelope::{EnvelopeError, strip_category};
use crate::format::{Format, Item, Reader};
use crate::json::fields::Fields;
use crate::json::text::string_is;

/// The payload's numbers called `names`. `None` for one that is missing, negative or no number; decimals
/// are cut off.
pub(super) fn payload_numbers<const N: usize>(
    encoding: Format,
    bytes: &[u8],
    names: [&str; N],
) -> Result<[Option<u64>; N], EnvelopeError> {
    match encoding {
        Format::Json => from_json(bytes, names),
        Format::MessagePack => from_msgpack(bytes, names),
    }
}

fn from_json<const N: usize>(
    text: &[u8],
    names: [&str; N],
) -> Result<[Option<u64>; N], EnvelopeError> {
    let mut numbers = [None; N];
    let (_, object) = strip_category(text);
    let payload = Fields::open(object)?.find(&["p", "payload"])?;
    let Some(payload @ [b'{', ..]) = payload else {
        return Ok(numbers);
    };
    let mut fields = Fields::open(payload)?;
    while let Some(field) = fields.next()? {
        for (name, number) in names.iter().zip(&mut numbers) {
            if string_is(field.name, name)? {
                *number = json_number(field.value);
            }
        }
    }
    Ok(numbers)
}

fn json_number(text: &[u8]) -> Option<u64> {
    if !text.is_empty() && text.iter().all(u8::is_ascii_digit) {
        return text.iter().try_fold(0u64, |number, digit| {
            number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        });
    }
    whole(serde_json::from_slice(text).ok()?)
}

fn from_msgpack<const N: usize>(
    bytes: &[u8],
    names: [&str; N],
) -> Result<[Option<u64>; N], EnvelopeError> {
    let mut numbers = [None; N];
    let mut reader = Reader::new(bytes);
    let Item::Map(pairs) = reader.item()? else {
        return Err(EnvelopeError::NotAnObject);
    };
    let Some(mut payload) = seek_payload(reader, pairs)? else {
        return Ok(numbers);
    };
    let Item::Map(pairs) = payload.item()? else {
        return Ok(numbers);
    };
    for (name, number) in names.iter().zip(&mut numbers) {
        let mut value = payload.clone();
        if value.seek(pairs, name.as_bytes())? {
            *number = match value.item()? {
                Item::Unsigned(number) => Some(number),
                Item::Signed(number) => u64::try_from(number).ok(),
                Item::Float32(number) => whole(number.into()),
                Item::Float64(number) => whole(number),
                _ => None,
            };
        }
    }
    Ok(numbers)
}

/// Moves to the payload, under the first of its two names, in a map whose `pairs` pairs follow.
fn seek_payload(mut reader: Reader<'_>, pairs: u32) -> Result<Option<Reader<'_>>, EnvelopeError> {
    for _ in 0..pairs {
        let mut key = reader.clone();
        if matches!(key.item()?, Item::Str(b"p" | b"payload")) {
            return Ok(Some(key));
        }
        reader.skip(1)?;
        reader.skip(1)?;
    }
    Ok(None)
}

fn whole(number: f64) -> Option<u64> {
    (number >= 0.0 && number < u64::MAX as f64).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::json_to_msgpack;

    #[test]
    fn both_encodings_agree() {
        let cases = [
            (
                r#"{"t":"ping","p":{"timestamp":1732212345678}}"#,
                Some(1_732_212_345_678),
            ),
            (
                r#"{"payload":{"a":[{"timestamp":1}],"timestamp":2},"t":"ping"}"#,
                Some(2),
            ),
            (r#"{"t":"ping","p":{"timestamp":1.75e3}}"#, Some(1750)),
            (r#"{"t":"ping","p":{"time\u0073tamp":7}}"#, Some(7)),
            (
                r#"{"t":"ping","p":{"timestamp":18446744073709551615}}"#,
                Some(u64::MAX),
            ),
            (
                r#"{"t":"ping","p":{"timestamp":18446744073709551616}}"#,
                None,
            ),
            (r#"{"t":"ping","p":{"timestamp":-1}}"#, None),
            (r#"{"t":"ping","p":{"timestamp":"1"}}"#, None),
            (r#"{"t":"ping","p":{"timestamp":1e300}}"#, None),
            (r#"{"t":"ping","p":{}}"#, None),
            (r#"{"t":"ping","p":[1]}"#, None),
            (r#"{"t":"ping","timestamp":1}"#, None),
            (
                r#"{"t":"ping","payload":{"timestamp":1},"p":{"timestamp":2}}"#,
                Some(1),
            ),
        ];
        for (text, expected) in cases {
            let number = payload_numbers(Format::Json, text.as_bytes(), ["timestamp"]);
            assert_eq!(number, Ok([expected]), "{text}");
            let mut packed = Vec::new();
            json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
            let number = payload_numbers(Format::MessagePack, &packed, ["timestamp"]);
            assert_eq!(number, Ok([expected]), "{text}");
        }
    }

    #[test]
    fn broken_messages() {
        for text in [r#"{"t":"ping",]"#, r#"{"p":{"timestamp":1]}"#, "[]"] {
            assert!(
                payload_numbers(Format::Json, text.as_bytes(), ["timestamp"]).is_err(),
                "{text}"
            );
        }
        for bytes in [&[0x81, 0xa1, b'p'][..], &[0x90], &[]] {
            assert!(payload_numbers(Format::MessagePack, bytes, ["timestamp"]).is_err());
        }
    }
}
