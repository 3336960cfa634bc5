//! Posted events match docs/backend.openapi.json.

use super::common::topics::update;
use super::common::{Opening, config, start, wait_until};
use super::server::{Behaviour, TestBackend};
use super::{ask, backend_at, publication};
use serde_json::{Map, Value, json};
use tidewire_engine::apps::Sink;
use tidewire_engine::{AccessRules, BackendEvent};

#[test]
fn every_event_and_answer_is_as_described() {
    let backend = TestBackend::start(|body, _| {
        let body = match body["event"].as_str() {
            Some("connect") => json!({"user": "ada", "access": {"subscribe": {"allow": [">"]},
                "publish": {"allow": [">"]}}, "subscriptions": ["a"], "expires_at": 99_999_999_999_u64}),
            Some("subscribe") => json!({"refused_topics": {"b": {"code": "C", "reason": "r"}}}),
            Some("publish") => json!({ "payload": [1] }),
            Some("request") => json!({"error": {"code": "C", "message": "m"}}),
            _ => json!({}),
        };
        Behaviour::Answer(200, body.to_string())
    });
    let mut config = config();
    config.backend = Some(backend_at(backend.address, &BackendEvent::ALL));
    config.topics.access = AccessRules::open();
    let server = start(config, Sink);
    let mut client = Opening::new(server.address())
        .header("User-Agent", "a test")
        .open();
    assert_eq!(client.next_json()["t"], "server_ready");
    assert_eq!(client.next_json()["p"]["success_topics"], json!(["a"]));
    update(&mut client, "subscribe", json!(["b", "c"]));
    assert_eq!(client.next_json()["t"], "error");
    publication(&mut client, "d", &json!({"text": "é"}));
    ask(&mut client, &json!([null, 1.5]));
    client.send_text(&json!({"t": "note", "p": {"n": 1}}).to_string());
    drop(client);
    wait_until("the end is reported", || {
        !backend.events("disconnect").is_empty()
    });
    let description = Description::read();
    let mut seen = Vec::new();
    for received in backend.received() {
        let body = received.json();
        let events = match body {
            Value::Array(events) => events,
            one => vec![one],
        };
        for event in events {
            let name = event["event"].as_str().expect("a name").to_owned();
            let schema = name[..1].to_uppercase() + &name[1..];
            let schema = &description.0["components"]["schemas"][&*schema];
            description.check(schema, &event, &name);
            let properties = schema["properties"].as_object().expect(&name);
            let undescribed = event.as_object().expect(&name).keys();
            let undescribed: Vec<_> = undescribed
                .filter(|field| !properties.contains_key(*field))
                .collect();
            assert!(undescribed.is_empty(), "{name}: {undescribed:?}");
            seen.push(name);
        }
    }
    seen.dedup();
    let all = BackendEvent::ALL.map(BackendEvent::name);
    assert_eq!(seen, all, "in the order of what the client did");
}

/// A document of OpenAPI, and as much of JSON Schema as it uses.
struct Description(Value);

impl Description {
    fn read() -> Self {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/backend.openapi.json"
        );
        let text = std::fs::read_to_string(path).expect("the description");
        let whole: Value = serde_json::from_str(&text).expect("JSON");
        assert!(
            whole["openapi"]
                .as_str()
                .is_some_and(|version| version.starts_with("3.1."))
        );
        let description = Self(whole);
        description.check_references(&description.0);
        description
    }

    /// Every reference leads somewhere, and every required property is described.
    fn check_references(&self, node: &Value) {
        if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
            self.referenced(reference);
        }
        for name in node["required"].as_array().into_iter().flatten() {
            let name = name.as_str().expect("a name");
            assert!(node["properties"].get(name).is_some(), "{name}");
        }
        match node {
            Value::Object(fields) => fields.values().for_each(|field| {
                self.check_references(field);
            }),
            Value::Array(items) => items.iter().for_each(|item| self.check_references(item)),
            _ => {}
        }
    }

    fn referenced(&self, reference: &str) -> &Value {
        let pointer = reference.strip_prefix('#').expect("in this document");
        self.0.pointer(pointer).expect(reference)
    }

    #[track_caller]
    fn check(&self, schema: &Value, value: &Value, place: &str) {
        let none = Map::new();
        for (keyword, rule) in schema.as_object().unwrap_or(&none) {
            let is_kept = match keyword.as_str() {
                "$ref" => {
                    self.check(self.referenced(rule.as_str().expect("text")), value, place);
                    true
                }
                "type" => match rule {
                    Value::Array(types) => types.iter().any(|rule| is_a(rule, value)),
                    one => is_a(one, value),
                },
                "const" => value == rule,
                "enum" => rule.as_array().is_some_and(|values| values.contains(value)),
                "required" => rule
                    .as_array()
                    .into_iter()
                    .flatten()
                    .all(|name| value.get(name.as_str().unwrap_or_default()).is_some()),
                "properties" => {
                    for (name, rule) in rule.as_object().expect("properties") {
                        if let Some(field) = value.get(name) {
                            self.check(rule, field, &format!("{place}.{name}"));
                        }
                    }
                    true
                }
                "additionalProperties" => {
                    for field in value.as_object().into_iter().flat_map(Map::values) {
                        self.check(rule, field, place);
                    }
                    true
                }
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.check(rule, item, place);
                    }
                    true
                }
                "format" => value.as_str().is_some_and(|text| text.len() == 36),
                "description" => true,
                other => panic!("{place}: the test does not know {other}"),
            };
            assert!(is_kept, "{place}: {keyword} {rule}, but it is {value}");
        }
    }
}

fn is_a(kind: &Value, value: &Value) -> bool {
    match kind.as_str() {
        Some("string") => value.is_string(),
        Some("null") => value.is_null(),
        Some("integer") => value.is_u64(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        other => panic!("the test does not know the type {other:?}"),
    }
}
