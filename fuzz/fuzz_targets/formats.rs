//! Envelopes and their encodings: a quick look and a full parse agree, JSON is read as another parser
//! reads it, MessagePack and JSON turn into each other and back, and nothing inflates past its limit.
//!
//! Input: one byte that chooses the limit of inflation, then a message.

#![no_main]

use flate2::read::ZlibDecoder;
use libfuzzer_sys::fuzz_target;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::cell::RefCell;
use std::io::Read;
use tidewire_wire::envelope::{
    Category, Envelope, Kind, SystemType, classify_json, classify_msgpack, parse_json,
    parse_msgpack,
};
use tidewire_wire::format::{
    Deflater, FormatError, Framing, Inflater, NESTING_MAX, check_binary_text, identify, inflate,
    json_to_msgpack, msgpack_to_json,
};

fuzz_target!(|input: &[u8]| {
    let [limit, message @ ..] = input else {
        return;
    };
    let framing = identify(message);
    let content = &message[framing.prefix_bytes()..];
    match framing {
        Framing::MessagePack => msgpack(content),
        Framing::Zlib { .. } => zlib(content, usize::from(*limit) * 64),
        Framing::Json => {
            zlib_there_and_back(content);
            if let Ok(text) = std::str::from_utf8(content) {
                json(text);
            } else {
                let _ = (classify_json(content), parse_json(content));
                assert!(json_to_msgpack(content, &mut Vec::new()).is_err());
            }
        }
        _ => {}
    }
});

fn json(text: &str) {
    let bytes = text.as_bytes();
    let parsed = parse_json(bytes);
    if let Ok(envelope) = &parsed {
        assert_eq!(classify_json(bytes), Ok(kind(envelope)), "{text}");
    }
    let (category, object) = without_prefix(text);
    if let Ok(Fields(fields)) = serde_json::from_str(object) {
        let depth = 1 + fields
            .iter()
            .map(|(_, value)| depth(value))
            .max()
            .unwrap_or(0);
        let expected = (depth <= NESTING_MAX)
            .then(|| envelope(category, &fields))
            .flatten();
        assert_eq!(parsed.ok(), expected, "{text}");
    }

    let mut packed = Vec::new();
    let is_packed = json_to_msgpack(bytes, &mut packed).is_ok();
    let value = serde_json::from_str::<Value>(text);
    let is_json = value.is_ok_and(|value| depth(&value) <= NESTING_MAX);
    assert_eq!(is_packed, is_json, "{text}");
    if is_packed {
        let mut back = Vec::new();
        msgpack_to_json(&packed, &mut back).expect("our own MessagePack");
        let mut again = Vec::new();
        json_to_msgpack(&back, &mut again).expect("our own JSON");
        assert_eq!(packed, again, "{text}");
        assert_eq!(
            parse_msgpack(&packed).ok(),
            parse_json(&back).ok(),
            "{text}"
        );
    } else {
        assert!(packed.is_empty());
    }
}

fn msgpack(bytes: &[u8]) {
    let classified = classify_msgpack(bytes);
    if let Ok(envelope) = parse_msgpack(bytes) {
        assert_eq!(classified, Ok(kind(&envelope)));
    }
    let mut text = Vec::new();
    if msgpack_to_json(bytes, &mut text).is_err() {
        assert!(text.is_empty());
        return;
    }
    serde_json::from_slice::<Value>(&text).expect("JSON of our own");
    let mut packed = Vec::new();
    json_to_msgpack(&text, &mut packed).expect("JSON of our own");
    let mut again = Vec::new();
    msgpack_to_json(&packed, &mut again).expect("MessagePack of our own");
    assert_eq!(text, again);
}

fn zlib(stream: &[u8], bytes_max: usize) {
    let mut out = b"before".to_vec();
    let result = inflate(stream, &mut out, bytes_max);
    assert!(out.starts_with(b"before") && out.len() - 6 <= bytes_max);
    assert!(
        out.capacity() <= 2 * bytes_max + 1024,
        "{} bytes held",
        out.capacity()
    );
    let mut decoder = ZlibDecoder::new(stream);
    let mut oracle = Vec::new();
    let read = decoder
        .by_ref()
        .take(bytes_max as u64 + 1)
        .read_to_end(&mut oracle);
    match result {
        Ok(()) => {
            assert!(read.is_ok());
            assert_eq!(&out[6..], oracle);
            assert_eq!(decoder.total_in(), stream.len() as u64);
        }
        Err(error) => {
            assert_eq!(out.len(), 6, "{error:?}");
            if error == (FormatError::TooLarge { bytes_max }) {
                assert!(oracle.len() > bytes_max);
            }
        }
    }
}

/// With states that have seen all the inputs before, as those of a connection have.
fn zlib_there_and_back(plain: &[u8]) {
    thread_local! {
        static STATES: RefCell<(Deflater, Inflater)> =
            RefCell::new((Deflater::new(1), Inflater::new()));
    }
    STATES.with_borrow_mut(|(deflater, inflater)| {
        let mut stream = Vec::new();
        deflater.deflate(plain, &mut stream);
        let mut back = Vec::new();
        if let Some(less) = plain.len().checked_sub(1) {
            let refused = inflater.inflate(&stream, &mut back, less);
            assert_eq!(refused, Err(FormatError::TooLarge { bytes_max: less }));
        }
        let result = inflater.inflate(&stream, &mut back, plain.len());
        result.expect("a stream of our own");
        assert_eq!(back, plain);
    });
}

fn kind(envelope: &Envelope) -> Kind {
    SystemType::parse(&envelope.t).map_or(Kind::Application, Kind::System)
}

fn without_prefix(text: &str) -> (Option<Category>, &str) {
    [Category::System, Category::Snapshot, Category::Update]
        .into_iter()
        .find_map(|category| {
            let object = text.strip_prefix(category.as_str())?;
            object.starts_with('{').then_some((Some(category), object))
        })
        .unwrap_or((None, text))
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The envelope that the fields of an object make, or `None` if they make none.
fn envelope(category: Option<Category>, fields: &[(String, Value)]) -> Option<Envelope> {
    let first = |names: &[&str]| {
        let found = fields
            .iter()
            .find(|(name, _)| names.contains(&name.as_str()));
        found.map_or(&Value::Null, |(_, value)| value)
    };
    let text = |name| match first(&[name]) {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(text.clone())),
        _ => None,
    };
    let number = |name| match first(&[name]) {
        Value::Null => Some(None),
        value => value.as_u64().map(Some),
    };
    let t = first(&["t", "type"]).as_str().filter(|t| !t.is_empty())?;
    let payload = first(&["p", "payload"]);
    let binary = first(&["b"]) == &Value::Bool(true) && SystemType::parse(t).is_none();
    if binary {
        check_binary_text(
            payload
                .as_str()
                .map(|text| format!("\"{text}\""))?
                .as_bytes(),
        )?;
    }
    Some(Envelope {
        category: text("c")?.and_then(|c| Category::parse(&c)).or(category),
        t: t.to_owned(),
        id: text("id")?,
        ts: text("ts")?,
        seq: number("seq")?,
        payload: first(&["p", "payload"]).clone(),
        version: number("v")?,
        priority: number("pri")?,
        correlation_id: text("cid")?,
        signature: text("sig")?,
        topic: text("tp")?,
        epoch: text("e")?,
        offset: number("o")?,
        delivery: number("d")?,
        redelivered: match first(&["rd"]) {
            Value::Null => None,
            value => Some(value.as_bool()?),
        },
        number: number("n")?,
        binary,
    })
}

/// The fields of an object in their order, doubles included.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields, M::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}
