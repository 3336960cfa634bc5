//! Classification against a full parse, whatever a message looks like.

use std::fmt;

use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use tidewire_wire::envelope::{
    EnvelopeError, Kind, SystemType, accept_json, accept_msgpack, classify_json, classify_msgpack,
    parse_json,
};
use tidewire_wire::format::json_to_msgpack;

/// The value of the first `t` or `type` of an object.
struct FirstType(Option<Value>);

impl<'de> Deserialize<'de> for FirstType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = FirstType;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<FirstType, A::Error> {
                let mut first = None;
                while let Some((name, value)) = fields.next_entry::<String, Value>()? {
                    if matches!(name.as_str(), "t" | "type") {
                        first.get_or_insert(value);
                    }
                }
                Ok(FirstType(first))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// The result of a full parse.
fn oracle(text: &str) -> Option<Kind> {
    let FirstType(value) = serde_json::from_str(text).ok()?;
    let Value::String(name) = value? else {
        return None;
    };
    if name.is_empty() {
        return None;
    }
    Some(SystemType::parse(&name).map_or(Kind::Application, Kind::System))
}

fn any_type() -> impl Strategy<Value = Value> {
    prop_oneof![
        prop::sample::select(vec![
            "ping",
            "PING",
            "PONG",
            "client_hello",
            "subscription",
            "batch",
            "error",
            "trade",
            "pingx",
            "sync_request",
            "metrics_request",
            "presence_leave",
            "rate_limit_warning",
        ])
        .prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
        any::<u8>().prop_map(Value::from),
    ]
}

fn any_payload() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(|number: f64| Value::from(number)),
        any::<String>().prop_map(Value::from),
        Just(Value::from("\",\"t\":\"ping\"}")),
    ];
    leaf.prop_recursive(4, 20, 4, |inner| {
        let name = prop_oneof![
            Just("t".to_owned()),
            Just("type".to_owned()),
            any::<String>()
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A string as JSON, each character escaped or not as `escape` says.
fn spell(text: &str, escape: &mut impl FnMut() -> bool) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        if escape() {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            let plain = Value::from(character.to_string()).to_string();
            out.push_str(&plain[1..plain.len() - 1]);
        }
    }
    out.push('"');
    out
}

/// An object with its fields in the given order, spaces and escapes strewn in.
fn spelled(fields: &[(String, Value)], dice: &[u8]) -> String {
    let mut dice = dice.iter().copied().cycle();
    let mut roll = move || dice.next().unwrap_or_default();
    let mut text = String::from("{");
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        let mut space = |text: &mut String| {
            text.push_str(["", "", "", " ", "\n\t", "\r "][usize::from(roll() % 6)]);
        };
        space(&mut text);
        let mut before_colon = String::new();
        space(&mut before_colon);
        let mut after_colon = String::new();
        space(&mut after_colon);
        text.push_str(&spell(name, &mut || roll() % 5 == 0));
        text.push_str(&before_colon);
        text.push(':');
        text.push_str(&after_colon);
        match value {
            Value::String(value) => text.push_str(&spell(value, &mut || roll() % 7 == 0)),
            other => text.push_str(&other.to_string()),
        }
    }
    text.push('}');
    text
}

fn any_message() -> impl Strategy<Value = String> {
    // A message with both names has the type of the first one.
    let names = prop_oneof![
        1 => Just(vec![]),
        4 => Just(vec!["t"]),
        4 => Just(vec!["type"]),
        1 => Just(vec!["t", "type"]),
    ];
    let types = prop::collection::vec(any_type(), 2);
    let others = prop::sample::subsequence(vec!["c", "p", "id", "seq", "x", ""], 0..6);
    let payloads = prop::collection::vec(any_payload(), 6);
    let dice = prop::collection::vec(any::<u8>(), 1..50);
    (names, types, others, payloads, dice)
        .prop_flat_map(|(names, types, others, payloads, dice)| {
            let mut fields: Vec<(String, Value)> = others
                .into_iter()
                .map(str::to_owned)
                .zip(payloads)
                .collect();
            fields.extend(names.into_iter().map(str::to_owned).zip(types));
            (Just(fields).prop_shuffle(), Just(dice))
        })
        .prop_map(|(fields, dice)| spelled(&fields, &dice))
}

/// Pieces of JSON, so that most of them together are nearly valid, and all lengths around a machine word occur.
fn any_json_like() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\"a\":", "\"a\":\"b\",", "\"a\":1,", "[]", "{}", "true", "null", " ", "\n",
        ]).prop_map(str::to_owned),
        3 => prop::sample::select(vec![
            "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\ud83d\\u0041", "\\u00e9", "\\n", "\\\"", "\\\\", "\\x", "\\u12",
            "\u{1}", "\t", "\u{7f}", "é", "😀", "\u{2028}",
        ]).prop_map(str::to_owned),
        2 => "-?[0-9]{1,40}(\\.[0-9]{0,20})?([eE][+-]?[0-9]{0,4})?",
        2 => "[a-z ]{0,70}".prop_map(|text| format!("\"{text}\"")),
        1 => "[a-z]{1,40}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// What the server accepts is what `serde_json` accepts, which is what the parsers of other languages accept at least.
fn assert_same_door(text: &str) {
    let accepted = accept_json(text.as_bytes());
    let is_json = serde_json::from_str::<Value>(text).is_ok();
    match accepted {
        Ok(Kind::Application) => assert!(is_json, "{text}"),
        Ok(Kind::System(_)) | Err(EnvelopeError::TooDeep) => {}
        Err(EnvelopeError::Malformed) => assert!(!is_json, "{text}"),
        // It is JSON or not; its type decides.
        Err(_) => assert_eq!(oracle(text), None, "{text}"),
    }
}

/// The number of names in an object; `None` for anything else.
fn fields_of(text: &str) -> Option<usize> {
    let value: Value = serde_json::from_str(text).ok()?;
    Some(value.as_object()?.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The short way of the check and the careful one agree with a parser, whatever a payload is.
    #[test]
    fn the_door_accepts_what_every_reader_can_read(payload in any_json_like(), spaces in "[ \t\n]{0,3}") {
        for text in [
            format!("{{\"t\":\"x\",\"p\":{payload}}}"),
            format!("{{\"c\":\"U\",\"t\":\"x\",\"p\":{payload}}}"),
            format!("{{\"type\":\"x\",\"payload\":[{payload}]}}"),
            format!("{{\"p\":{payload},\"t\":\"x\"}}"),
            format!("{spaces}{{{spaces}\"t\"{spaces}:\"x\",\"p\":{payload}{spaces}}}{spaces}"),
            format!("{{\"t\":\"x\",\"p\":{{\"a\":{payload},\"b\":\"c\"}}}}"),
            format!("{{\"t\":\"x\",\"p\":\"{payload}\"}}"),
        ] {
            assert_same_door(&text);
        }
    }

    #[test]
    fn the_door_agrees_with_classification(
        text in any_message(),
        at: prop::sample::Index,
        byte in prop::sample::select(b"{}[]\",:\\ tp0\n".to_vec()),
    ) {
        // A whole message is the same at the door.
        prop_assert_eq!(accept_json(text.as_bytes()).ok(), oracle(&text), "{}", text);
        let mut packed = Vec::new();
        json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
        prop_assert_eq!(accept_msgpack(&packed).ok(), oracle(&text), "{}", text);
        // A damaged one is refused, or has the same kind.
        let fields = fields_of(&text);
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(text) = std::str::from_utf8(&bytes) {
            // Of a name that comes twice the server looks at both values, and a parser at one.
            if fields_of(text).is_none_or(|left| Some(left) == fields) {
                assert_same_door(text);
            }
            if let Ok(kind) = accept_json(&bytes) {
                prop_assert_eq!(classify_json(&bytes), Ok(kind));
            }
        }
        let packed_at = at % packed.len();
        packed[packed_at] = byte;
        if let Ok(kind) = accept_msgpack(&packed) {
            prop_assert_eq!(classify_msgpack(&packed), Ok(kind));
            if kind == Kind::Application {
                prop_assert!(tidewire_wire::format::msgpack_to_json(&packed, &mut Vec::new()).is_ok());
            }
        }
    }

    #[test]
    fn classification_agrees_with_a_parse(text in any_message()) {
        prop_assert_eq!(classify_json(text.as_bytes()).ok(), oracle(&text), "{}", text);
        let mut packed = Vec::new();
        json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
        prop_assert_eq!(classify_msgpack(&packed).ok(), oracle(&text), "{}", text);
    }

    #[test]
    fn a_whole_parse_finds_the_same_type(text in any_message()) {
        if let Ok(envelope) = parse_json(text.as_bytes()) {
            let kind = SystemType::parse(&envelope.t).map_or(Kind::Application, Kind::System);
            prop_assert_eq!(classify_json(text.as_bytes()), Ok(kind));
        }
    }

    #[test]
    fn a_damaged_message_is_not_read_in_two_ways(
        text in any_message(),
        at: prop::sample::Index,
        byte in prop::sample::select(b"{}[]\",:\\ tp0\n".to_vec()),
    ) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(envelope) = parse_json(&bytes) {
            let kind = SystemType::parse(&envelope.t).map_or(Kind::Application, Kind::System);
            prop_assert_eq!(classify_json(&bytes), Ok(kind));
        }
    }

    #[test]
    fn only_an_object_has_a_kind(first in any::<u8>(), rest in prop::collection::vec(any::<u8>(), 0..100)) {
        let bytes = [&[first][..], &rest].concat();
        let is_map = matches!(first, 0x80..=0x8f | 0xde | 0xdf);
        prop_assert!(is_map || classify_msgpack(&bytes).is_err());
        let is_object = bytes.trim_ascii_start().first() == Some(&b'{');
        prop_assert!(is_object || classify_json(&bytes).is_err());
    }
}
