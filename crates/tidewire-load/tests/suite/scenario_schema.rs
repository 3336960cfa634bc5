//! The published schemas of scenarios and of conversations, and whether the parsers take the same files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tidewire_load::options::conversation::{ConversationFile, SHIPPED};
use tidewire_load::options::request::RequestFrame;
use tidewire_load::options::scenario::{Scenario, StepFrame};
use tidewire_load::options::table::OPTIONS;
use tidewire_load::worker::template::Names;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    fs::read_to_string(path.join(name)).unwrap()
}

fn schema() -> Value {
    serde_json::from_str(&file("load-scenario.schema.json")).unwrap()
}

/// Whether a value keeps the part of JSON Schema that the published schema uses.
fn is_valid(root: &Value, schema: &Value, value: &Value) -> bool {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        return is_valid(root, target, value);
    }
    let is_any = schema["anyOf"]
        .as_array()
        .is_none_or(|any| any.iter().any(|one| is_valid(root, one, value)));
    let has_type = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some(other) => panic!("the type {other} is unknown to this test"),
    };
    let bound = |name: &str| schema[name].as_f64().zip(value.as_f64());
    let is_within = bound("minimum").is_none_or(|(least, n)| n >= least)
        && bound("maximum").is_none_or(|(most, n)| n <= most);
    let is_listed = schema["enum"]
        .as_array()
        .is_none_or(|values| values.contains(value));
    let required = schema["required"].as_array().into_iter().flatten();
    let has_required = required
        .map(|name| name.as_str().unwrap())
        .all(|name| value.get(name).is_some());
    let fields = value.as_object().into_iter().flatten();
    let has_right_fields = fields.into_iter().all(|(name, field)| {
        match (
            schema["properties"].get(name),
            &schema["additionalProperties"],
        ) {
            (Some(declared), _) => is_valid(root, declared, field),
            (None, Value::Bool(false)) => false,
            (None, any) => is_valid(root, any, field),
        }
    });
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let has_text = schema["minLength"].as_u64().is_none_or(|least| {
        value
            .as_str()
            .is_some_and(|text| text.len() as u64 >= least)
    });
    let has_enough = schema["minItems"]
        .as_u64()
        .is_none_or(|least| items.len() as u64 >= least);
    let has_right_items = items
        .iter()
        .all(|item| is_valid(root, &schema["items"], item));
    has_type
        && is_any
        && is_within
        && is_listed
        && has_required
        && has_right_fields
        && has_enough
        && has_text
        && has_right_items
}

/// The parser's result for a file with this name, beside which are all files that the examples name.
fn parse(name: &str, text: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    fs::write(folder.path().join("people.csv"), "name,password\na,b\n").unwrap();
    fs::write(folder.path().join("body.bin"), "bytes").unwrap();
    // As many hosts as the examples have.
    let frames = [(); 3].map(|()| {
        StepFrame::Http(RequestFrame {
            host: "h.example",
            path: "/",
            prefix: "",
            keeps_alive: true,
            headers: &[],
            accepts_encoded: false,
        })
    });
    let scenario = Scenario::read(&path);
    let script = scenario.and_then(|scenario| scenario.script(&frames, Names::default()));
    script.map(|_| ()).map_err(|error| error.to_string())
}

/// The parser's opinion of a whole file that has these values; TOML has no null, and neither is there one here.
fn parse_values(values: &Value) -> Result<(), String> {
    parse("a.toml", &toml::to_string(values).unwrap())
}

fn parse_request(field: &str, value: &Value) -> Result<(), String> {
    if field == "host" {
        let hosts = json!({ "login": "http://h.example" });
        return parse_values(&json!({ "hosts": hosts, "request": [{ field: value }] }));
    }
    let request: Value = [(field.to_owned(), value.clone())].into_iter().collect();
    parse("a.jsonl", &request.to_string())
}

/// The names in backquotes behind `expected`.
fn expected_names(error: &str) -> BTreeSet<String> {
    let (_, list) = error.split_once("expected").unwrap();
    let names = list.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

fn names(properties: &Value) -> BTreeSet<String> {
    properties.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn both_know_the_same_fields() {
    let schema = schema();
    let request = &schema["$defs"]["request"];
    let error = parse("a.jsonl", r#"{"nothing":1}"#).unwrap_err();
    assert_eq!(expected_names(&error), names(&request["properties"]));
    let error = parse("a.toml", "nothing = 1").unwrap_err();
    let first = error.split("unknown field").nth(1).unwrap();
    assert_eq!(expected_names(first), names(&schema["properties"]));
    let error = parse("a.toml", "order = \"nothing\"").unwrap_err();
    let orders = schema["properties"]["order"]["enum"].as_array().unwrap();
    let orders: BTreeSet<String> = orders
        .iter()
        .map(|order| order.as_str().unwrap().to_owned())
        .collect();
    let first = error.split("unknown variant").nth(1).unwrap();
    assert_eq!(expected_names(first), orders);
}

#[test]
fn both_take_the_same_types_of_each_field() {
    let schema = schema();
    let others = [
        json!(true),
        json!(-1),
        json!(0),
        json!(99),
        json!(200),
        json!(1000),
        json!(1.5),
        json!({}),
        json!({ "a": 1 }),
        json!([1]),
    ];
    for (field, declared) in schema["$defs"]["request"]["properties"]
        .as_object()
        .unwrap()
    {
        let examples = declared["examples"].as_array().unwrap();
        assert!(!examples.is_empty(), "{field} has no example");
        for example in examples {
            assert!(is_valid(&schema, declared, example), "{field}: {example}");
            assert_eq!(parse_request(field, example), Ok(()), "{field}: {example}");
        }
        for value in &others {
            let is_draw_of_nothing = field == "weight" && *value == json!(0);
            let is_taken = parse_request(field, value).is_ok() || is_draw_of_nothing;
            let is_valid = is_valid(&schema, declared, value);
            assert_eq!(is_taken, is_valid, "{field}: {value}");
        }
    }
}

#[test]
fn both_take_the_same_files() {
    let schema = schema();
    for (field, declared) in schema["properties"].as_object().unwrap() {
        for example in declared["examples"].as_array().unwrap() {
            let mut values = match &**field {
                "user" => json!({}),
                _ => json!({ "request": [{}] }),
            };
            values[field] = example.clone();
            assert!(is_valid(&schema, &schema, &values), "{values}");
            assert_eq!(parse_values(&values), Ok(()), "{values}");
        }
    }
    for values in [
        json!({}),
        json!({ "request": [] }),
        json!({ "request": {} }),
        json!({ "order": "weighted" }),
        json!({ "order": 1, "request": [{}] }),
        json!({ "order": "random", "request": [{}] }),
        json!({ "data": "people.csv", "request": [{}] }),
        json!({ "data": { "people": 1 }, "request": [{}] }),
        json!({ "hosts": { "login": 1 }, "request": [{}] }),
        json!({ "hosts": { "login": { "headers": {} } }, "request": [{}] }),
        json!({ "request": [{ "pth": "/" }] }),
        json!({ "requests": [{}] }),
        json!({ "user": [] }),
        json!({ "user": [{ "request": [{}] }] }),
        json!({ "user": [{ "name": "a", "request": [] }] }),
        json!({ "data": { "people": { "unique": true } }, "request": [{}] }),
        json!({ "request": [{ "multipart": [{ "value": "a" }] }] }),
        json!({ "request": [{ "capture": { "a": { "default": "" } } }] }),
    ] {
        assert!(!is_valid(&schema, &schema, &values), "{values}");
        assert!(parse_values(&values).is_err(), "{values}");
    }
}

#[test]
fn the_examples_of_the_guide_are_valid() {
    let (schema, guide) = (schema(), file("load.md"));
    let blocks = guide.split("```toml\n").skip(1);
    let blocks: Vec<&str> = blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        let values: Value = toml::from_str(block).unwrap();
        assert!(is_valid(&schema, &schema, &values), "{block}");
        assert_eq!(parse("a.toml", block), Ok(()), "{block}");
    }
}

#[test]
fn the_guide_and_the_schema_name_the_same_fields() {
    let (schema, guide) = (schema(), file("load.md"));
    let table = guide.split("| name of a request | value |").nth(1).unwrap();
    let rows = table.split("\n\n").next().unwrap();
    let cells = rows.lines().filter_map(|row| row.split('|').nth(1));
    let in_guide: BTreeSet<String> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    assert_eq!(in_guide, names(&schema["$defs"]["request"]["properties"]));
}

/// The parser's opinion of a conversation.
fn parse_conversation(text: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    fs::write(&path, text).unwrap();
    let file = ConversationFile::read(path.to_str().unwrap());
    file.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn both_know_the_same_conversations() {
    let schema: Value = serde_json::from_str(&file("load-conversation.schema.json")).unwrap();
    let error = parse_conversation("nothing = 1").unwrap_err();
    let first = error.split("unknown field").nth(1).unwrap();
    assert_eq!(expected_names(first), names(&schema["properties"]));
    for (list, definition) in [("rule", "rule"), ("every", "every")] {
        let error = parse_conversation(&format!("[[{list}]]\nnothing = 1")).unwrap_err();
        let first = error.split("unknown field").nth(1).unwrap();
        let declared = &schema["$defs"][definition]["properties"];
        assert_eq!(expected_names(first), names(declared), "{list}");
    }
    let rule = schema["$defs"]["rule"]["properties"].as_object().unwrap();
    let in_a_rule = rule.iter().map(|(name, declared)| (name, declared, true));
    let at_the_top = schema["properties"].as_object().unwrap().iter();
    let at_the_top = at_the_top.map(|(name, declared)| (name, declared, false));
    for (name, declared, is_of_rule) in at_the_top.chain(in_a_rule) {
        let whole = |value: &Value| match is_of_rule {
            true => json!({ "rule": [{ name: value }] }),
            false => json!({ name: value }),
        };
        let mut values = declared["examples"].as_array().unwrap().clone();
        assert!(!values.is_empty(), "{name} has no example");
        values.extend([json!(true), json!(1), json!({ "a": 1 }), json!([1])]);
        for value in &values {
            let mut value = whole(value);
            if name == "send" && value["send"].is_string() {
                value["send"] = json!("a{{message}}b");
            }
            let is_right = is_valid(&schema, &schema, &value);
            let parsed = parse_conversation(&toml::to_string(&value).unwrap());
            // A pointer of JSON is a text with a rule of its own.
            let is_pointer = parsed
                .as_ref()
                .is_err_and(|error| error.contains("pointer"));
            assert_eq!(
                parsed.is_ok(),
                is_right && !is_pointer,
                "{value}: {parsed:?}"
            );
        }
    }
    let guide = file("load-conversations.md");
    let profile = OPTIONS.iter().find(|option| option.name == "profile");
    for (name, _) in SHIPPED {
        assert!(guide.contains(&format!("| `{name}` |")), "{name}");
        assert!(profile.unwrap().help.contains(name), "{name}");
    }
    let blocks = guide.split("```toml\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap().to_owned());
    let shipped = SHIPPED.iter().map(|(_, text)| (*text).to_owned());
    for text in blocks.chain(shipped) {
        let values: Value = toml::from_str(&text).unwrap();
        assert!(is_valid(&schema, &schema, &values), "{text}");
        let known = text.replace("{{env:CHAT_TOKEN}}", "token");
        assert_eq!(parse_conversation(&known), Ok(()), "{text}");
    }
}
