//! `publish_request`: what is read from it, without a copy where that can be.

use super::{NOW, content, fresh, id};
use proptest::prelude::*;
use std::borrow::Cow;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{Category, Priority, SystemType, message_number, parse_json};
use tidewire_wire::format::{Format, json_to_msgpack};
use tidewire_wire::session::*;

/// Gives the message in both formats to `check`.
fn in_both(
    text: &str,
    check: impl Fn(Result<(PublishRequest<'_>, Option<Cow<'_, str>>), Refusal>),
) {
    check(PublishRequest::parse(
        Format::Json,
        text.as_bytes(),
        &mut Vec::new(),
    ));
    let mut packed = Vec::new();
    if json_to_msgpack(text.as_bytes(), &mut packed).is_ok() {
        // What is left of another message does no harm.
        let mut scratch = b"left over".to_vec();
        check(PublishRequest::parse(
            Format::MessagePack,
            &packed,
            &mut scratch,
        ));
    }
}

fn refused(text: &str) -> Refusal {
    let mut scratch = Vec::new();
    let json = PublishRequest::parse(Format::Json, text.as_bytes(), &mut scratch);
    let refusal = json.expect_err(text);
    in_both(text, |result| {
        assert_eq!(result.as_ref(), Err(&refusal), "{text}");
    });
    refusal
}

#[test]
fn all_fields() {
    let text = r#"{"c":"WSE","t":"publish_request","cid":"k","n":3,"p":{"topic":"orders.eu","type":"trade",
        "payload":{"x":[1,{}]},"priority":8,"id":"i1","key":"EUR","ttl_ms":500,"exclude_self":true,
        "category":"S","later":[null]},"v":1}"#;
    in_both(text, |result| {
        let (request, correlation_id) = result.expect("a good request");
        let expected = PublishRequest {
            topic: "orders.eu".into(),
            t: "trade".into(),
            payload: (&br#"{"x":[1,{}]}"#[..]).into(),
            binary: false,
            category: Category::Snapshot,
            priority: Some(Priority::High),
            id: Some("i1".into()),
            key: Some("EUR".into()),
            ttl_ms: Some(500),
            exclude_self: true,
        };
        assert_eq!(request, expected);
        assert_eq!(correlation_id.as_deref(), Some("k"));
        assert!(matches!(request.payload, Cow::Borrowed(_)));
        assert!(matches!(request.topic, Cow::Borrowed(_)));
    });
    assert_eq!(message_number(Format::Json, text.as_bytes()), Ok(Some(3)));
}

#[test]
fn what_is_missing_has_a_default() {
    for text in [
        r#"{"t":"publish_request","p":{"topic":"a","type":"b"}}"#,
        r#"{"type":"publish_request","payload":{"topic":"a","type":"b","priority":null,
            "id":null,"key":null,"ttl_ms":null,"exclude_self":null,"category":null}}"#,
        r#"{"t":"publish_request","cid":null,"p":{"topic":"a","type":"b"},"p":{"topic":"z"}}"#,
    ] {
        in_both(text, |result| {
            let (request, correlation_id) = result.expect(text);
            assert_eq!(request, PublishRequest::new("a", "b", b"{}"), "{text}");
            assert_eq!(correlation_id, None, "{text}");
        });
    }
}

#[test]
fn a_null_payload_is_null() {
    let text = r#"{"t":"publish_request","p":{"topic":"a","type":"b","payload":null}}"#;
    in_both(text, |result| {
        assert_eq!(&*result.expect(text).0.payload, b"null");
    });
}

#[test]
fn texts_lose_their_escapes_and_the_payload_keeps_its_own() {
    let text = r#"{"t":"publish_request","p":{"t\u006fpic":"\u00e9","type":"b\"","payload": [ "\u00e9" ] }}"#;
    let mut scratch = Vec::new();
    let (request, _) = PublishRequest::parse(Format::Json, text.as_bytes(), &mut scratch).unwrap();
    assert_eq!((&*request.topic, &*request.t), ("é", "b\""));
    assert_eq!(&*request.payload, br#"[ "\u00e9" ]"#);
}

#[test]
fn wrong_fields_are_refused_with_the_correlation_id() {
    for fields in [
        r#""type":"b""#,
        r#""topic":"a""#,
        r#""topic":"","type":"b""#,
        r#""topic":5,"type":"b""#,
        r#""topic":"a","type":"""#,
        r#""topic":"a","type":["b"]"#,
        r#""topic":"a","type":"server_hello""#,
        r#""topic":"a","type":"PING""#,
        r#""topic":"a","type":"b","priority":2"#,
        r#""topic":"a","type":"b","priority":"8""#,
        r#""topic":"a","type":"b","id":"""#,
        r#""topic":"a","type":"b","id":7"#,
        r#""topic":"a","type":"b","key":"""#,
        r#""topic":"a","type":"b","ttl_ms":0"#,
        r#""topic":"a","type":"b","ttl_ms":-1"#,
        r#""topic":"a","type":"b","ttl_ms":1.5"#,
        r#""topic":"a","type":"b","exclude_self":1"#,
        r#""topic":"a","type":"b","category":"WSE""#,
        r#""topic":"a","type":"b","category":"X""#,
    ] {
        // The correlation id comes behind what is wrong, and is found all the same.
        let refusal = refused(&format!(
            r#"{{"t":"publish_request","p":{{{fields}}},"cid":"k"}}"#
        ));
        assert_eq!(refusal.code, ErrorCode::InvalidMessage, "{fields}");
        assert_eq!(refusal.correlation_id.as_deref(), Some("k"), "{fields}");
    }
    let long = "x".repeat(129);
    for field in ["id", "key"] {
        refused(&format!(
            r#"{{"t":"publish_request","p":{{"topic":"a","type":"b","{field}":"{long}"}}}}"#
        ));
    }
    refused(&format!(
        r#"{{"t":"publish_request","p":{{"topic":"a","type":"{long}"}}}}"#
    ));
    assert_eq!(
        refused(r#"{"t":"publish_request","cid":"k","p":[1]}"#).message,
        "the payload is not an object"
    );
}

#[test]
fn broken_messages_are_refused() {
    for text in [
        "[]",
        r#"{"t":"publish_request","p":{"topic":"a","type":"b"}"#,
        r#"{"t":"publish_request","p":{"topic":"a","type":"b","payload":{"x" 1}}}"#,
        r#"{"t":"publish_request","p":{"topic":"a","type":"b","payload":[01]}}"#,
        r#"{"t":"publish_request","p":{"topic":"a","type":"b","payload":"\ud800"}}"#,
        r#"{"t":"publish_request","p":{"topic":"a","type":"b","payload":1e999}}"#,
        r#"{"t":"publish_request","p":{"topic":"a","type":"b"},"x":tru}"#,
        r#"{"t":"publish_request","p":{"topic":"a","type":"b"}} {}"#,
        r#"{"t":"publish_request","p":{"topic":"a","type":"b"},"seq":"x"}"#,
        r#"{"t":"publish_request","p":{"topic":"a","type":"b"},"n":-1}"#,
        r#"{"t":"publish_request","p":{"topic":"a","type":"b"},"ts":1}"#,
    ] {
        assert_eq!(refused(text).code, ErrorCode::InvalidMessage, "{text}");
    }
    let type_of_bytes = b"\x82\xa1t\xc4\x0fpublish_request\xa1p\x80";
    let mut scratch = Vec::new();
    let found = PublishRequest::parse(Format::MessagePack, type_of_bytes, &mut scratch);
    assert!(found.is_err());
}

#[test]
fn a_payload_has_levels_of_its_own() {
    let nested = |levels: usize| {
        let payload = "[".repeat(levels) + &"]".repeat(levels);
        format!(r#"{{"t":"publish_request","p":{{"topic":"a","type":"b","payload":{payload}}}}}"#)
    };
    in_both(&nested(60), |result| assert!(result.is_ok()));
    assert_eq!(
        refused(&nested(61)).message,
        "the message is nested too deep"
    );
}

#[test]
fn what_is_written_is_read() {
    for format in super::BOTH {
        let mut client = ClientSession::new(format, NOW);
        let request = PublishRequest {
            category: Category::Snapshot,
            priority: Some(Priority::Background),
            id: Some("i".into()),
            key: Some("k\"".into()),
            ttl_ms: Some(1),
            exclude_self: true,
            ..PublishRequest::new("a.b", "c", br#"{"x":1}"#)
        };
        let binary = PublishRequest {
            binary: true,
            ..PublishRequest::new("a", "b", br#""AAH/""#)
        };
        let text = PublishRequest::new("a", "b", br#""AAH/""#);
        let array = PublishRequest::new("a", "b", b"[]");
        for request in [request, binary, text, array] {
            let mut out = Vec::new();
            let op_code = client
                .write_publish(&request, Some("7"), Some(5), id(), NOW, &mut out)
                .unwrap();
            let message = content(format, op_code, &out);
            assert_eq!(message_number(format, message), Ok(Some(5)));
            let mut scratch = Vec::new();
            let read = PublishRequest::parse(format, message, &mut scratch).unwrap();
            assert_eq!(read, (request, Some("7".into())));
            let profile = ServerProfile::default();
            let system = SystemType::PublishRequest;
            let event = fresh(format).handle_system(&profile, system, format, message);
            assert_eq!(event, SystemEvent::Publish);
        }
    }
    let mut client = ClientSession::new(Format::MessagePack, NOW);
    let broken = PublishRequest::new("a", "b", b"{");
    let mut out = b"x".to_vec();
    assert!(
        client
            .write_publish(&broken, None, None, id(), NOW, &mut out)
            .is_err()
    );
    assert_eq!(out, b"x");
}

proptest! {
    /// The pass over a request takes what the ordinary reader takes, and finds the same.
    #[test]
    fn agrees_with_the_ordinary_reader(
        payload in "[\\[\\]{}:,\"\\\\0-9e. tn-]{0,16}",
        topic in "\\PC{0,8}",
    ) {
        let topic = serde_json::to_string(&topic).unwrap();
        let text = format!(
            r#"{{"t":"publish_request","p":{{"topic":{topic},"type":"b","payload":{payload}}}}}"#
        );
        let ordinary = parse_json(text.as_bytes());
        let found = PublishRequest::parse(Format::Json, text.as_bytes(), &mut Vec::new())
            .map(|(request, _)| (request.topic.into_owned(), request.payload.into_owned()));
        match (ordinary, found) {
            (Err(_), Err(_)) => {}
            (Ok(envelope), Ok((topic, payload))) => {
                prop_assert_eq!(envelope.payload["topic"].as_str(), Some(&*topic));
                let read: serde_json::Value = serde_json::from_slice(&payload).unwrap();
                if !envelope.payload["payload"].is_null() {
                    prop_assert_eq!(&envelope.payload["payload"], &read);
                }
            }
            (Ok(envelope), Err(_)) => {
                prop_assert_eq!(envelope.payload["topic"].as_str(), Some(""));
            }
            (ordinary, found) => prop_assert!(false, "{:?} {:?} {}", ordinary, found, text),
        }
    }
}
