//! The published schema of a report, as far as these tests need one.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::path::Path;

use serde_json::Value;

/// The rules of the published schema that a report breaks.
pub(crate) fn violations(report: &Value) -> Vec<String> {
    let schema = published();
    violations_of(&schema, &schema, report, "report")
}

/// The names of all fields that it declares.
pub(crate) fn fields() -> Vec<String> {
    declared(&published())
}

fn published() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/report-1.schema.json");
    serde_json::from_slice(&fs::read(file).expect("the schema is published"))
        .expect("the schema is JSON")
}

/// The rules that `value` breaks, of the part of JSON Schema that the published schema uses. Stricter than the
/// schema in one way: a field that it does not declare is a violation.
fn violations_of(root: &Value, schema: &Value, value: &Value, path: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root
            .pointer(reference.trim_start_matches('#'))
            .expect("the reference exists");
        return violations_of(root, target, value, path);
    }
    let mut found = Vec::new();
    let right_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        other => panic!("{path}: the schema's type {other:?} is unknown to this test"),
    };
    let too_small = schema["minimum"]
        .as_f64()
        .zip(value.as_f64())
        .is_some_and(|(min, v)| v < min);
    let listed = schema["enum"]
        .as_array()
        .is_none_or(|values| values.contains(value));
    let constant = schema.get("const").is_none_or(|wanted| wanted == value);
    if !right_type || too_small || !listed || !constant {
        found.push(format!("{path}: {value}"));
    }
    for (key, field) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(key) {
            Some(declared) => {
                found.extend(violations_of(
                    root,
                    declared,
                    field,
                    &format!("{path}.{key}"),
                ));
            }
            None if schema["additionalProperties"].is_object() => {
                let any = &schema["additionalProperties"];
                found.extend(violations_of(root, any, field, &format!("{path}.{key}")));
            }
            None => found.push(format!("{path}.{key} is not declared")),
        }
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if value
            .get(required.as_str().expect("names are strings"))
            .is_none()
        {
            found.push(format!("{path} lacks {required}"));
        }
    }
    let prefix = schema["prefixItems"].as_array();
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        let declared = prefix.map_or(&schema["items"], |items| &items[index]);
        found.extend(violations_of(
            root,
            declared,
            item,
            &format!("{path}[{index}]"),
        ));
    }
    found
}

fn declared(schema: &Value) -> Vec<String> {
    let mut names = Vec::new();
    if let Some(properties) = schema["properties"].as_object() {
        names.extend(properties.keys().cloned());
        names.extend(properties.values().flat_map(declared));
    }
    for definition in schema["$defs"]
        .as_object()
        .into_iter()
        .flat_map(|defs| defs.values())
    {
        names.extend(declared(definition));
    }
    names
}
