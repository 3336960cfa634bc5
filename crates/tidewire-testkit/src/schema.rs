//! Checking JSON against a JSON Schema (2020-12), as far as the schemas of the vectors go.
//!
//! A keyword that is not known here is a panic and not an omission.

use serde_json::{Map, Value};

/// The rules of `schema` that `value` breaks: where and what, nothing if it is valid.
///
/// # Panics
/// If the schema uses a keyword or a pattern that this check does not know.
#[must_use]
pub fn violations(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Checker { root: schema }.check(schema, value, "", &mut found);
    found
}

struct Checker<'a> {
    root: &'a Value,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
        let Value::Object(keywords) = schema else {
            panic!("{path}: a schema is an object");
        };
        for (keyword, wanted) in keywords {
            let holds = match keyword.as_str() {
                "$schema" | "title" | "description" | "$defs" | "required" => true,
                "$ref" => {
                    self.check(self.target(wanted), value, path, found);
                    true
                }
                "type" => has_type(wanted, value),
                "const" => value == wanted,
                "enum" => list(wanted).contains(value),
                "minimum" => value.as_f64().is_none_or(|number| number >= float(wanted)),
                "maximum" => value.as_f64().is_none_or(|number| number <= float(wanted)),
                "pattern" => value.as_str().is_none_or(|text| matches(wanted, text)),
                "minItems" => value
                    .as_array()
                    .is_none_or(|items| items.len() as f64 >= float(wanted)),
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(wanted, item, &format!("{path}/{index}"), found);
                    }
                    true
                }
                "anyOf" => self.valid_count(wanted, value) >= 1,
                "oneOf" => self.valid_count(wanted, value) == 1,
                "properties" | "additionalProperties" => {
                    // Both are looked at together.
                    if keyword == "properties" || !keywords.contains_key("properties") {
                        self.check_fields(keywords, value, path, found);
                    }
                    true
                }
                other => panic!("{path}: the keyword {other} is not known to this check"),
            };
            if !holds {
                found.push(format!("{path}: {value} breaks {keyword} {wanted}"));
            }
        }
        check_required(keywords, value, path, found);
    }

    fn check_fields(
        &self,
        keywords: &Map<String, Value>,
        value: &Value,
        path: &str,
        found: &mut Vec<String>,
    ) {
        for (name, field) in value.as_object().into_iter().flatten() {
            let path = format!("{path}/{name}");
            let declared = keywords
                .get("properties")
                .and_then(|fields| fields.get(name));
            match declared.or(keywords.get("additionalProperties")) {
                Some(Value::Bool(false)) => found.push(format!("{path} is not declared")),
                None | Some(Value::Bool(true)) => {}
                Some(schema) => self.check(schema, field, &path, found),
            }
        }
    }

    fn valid_count(&self, schemas: &Value, value: &Value) -> usize {
        let is_valid = |schema: &&Value| {
            let mut found = Vec::new();
            self.check(schema, value, "", &mut found);
            found.is_empty()
        };
        list(schemas).iter().filter(is_valid).count()
    }

    fn target(&self, reference: &Value) -> &Value {
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
        pointer
            .and_then(|pointer| self.root.pointer(pointer))
            .unwrap_or_else(|| panic!("{reference} leads nowhere"))
    }
}

fn check_required(
    keywords: &Map<String, Value>,
    value: &Value,
    path: &str,
    found: &mut Vec<String>,
) {
    let (Some(names), Value::Object(fields)) = (keywords.get("required"), value) else {
        return;
    };
    for name in list(names) {
        let name = name.as_str().expect("names are strings");
        if !fields.contains_key(name) {
            found.push(format!("{path} lacks {name}"));
        }
    }
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    match wanted {
        Value::Array(types) => types.iter().any(|wanted| has_type(wanted, value)),
        wanted => match wanted.as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("null") => value.is_null(),
            Some("integer") => value.is_i64() || value.is_u64(),
            other => panic!("the type {other:?} is not known to this check"),
        },
    }
}

fn matches(pattern: &Value, text: &str) -> bool {
    match pattern.as_str() {
        Some("^([0-9a-f]{2})*$") => {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            text.len().is_multiple_of(2) && text.bytes().all(is_digit)
        }
        Some("^[a-z0-9]+(-[a-z0-9]+)*$") => {
            let is_word = |word: &str| {
                !word.is_empty()
                    && word
                        .bytes()
                        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z'))
            };
            text.split('-').all(is_word)
        }
        other => panic!("the pattern {other:?} is not known to this check"),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("the keyword takes a list")
}

fn float(value: &Value) -> f64 {
    value.as_f64().expect("the keyword takes a number")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_keyword_is_checked() {
        let hex = json!({"pattern": "^([0-9a-f]{2})*$"});
        let fields = json!({"properties": {"a": {"type": "null"}}, "additionalProperties": false});
        let others = json!({"additionalProperties": {"type": "boolean"}});
        let cases = [
            (json!({"type": "integer"}), json!(1), json!(1.5)),
            (
                json!({"type": ["string", "null"]}),
                json!(null),
                json!(false),
            ),
            (json!({"const": {"a": 1}}), json!({"a": 1}), json!({"a": 2})),
            (json!({"enum": [1, "x"]}), json!("x"), json!(2)),
            (json!({"minimum": 0, "maximum": 9}), json!(9), json!(10)),
            (json!({"minimum": 0}), json!("any"), json!(-1)),
            (hex.clone(), json!("0a"), json!("0A")),
            (hex, json!(""), json!("0a0")),
            (json!({"minItems": 1}), json!([1]), json!([])),
            (
                json!({"items": {"type": "object"}}),
                json!([{}]),
                json!([{}, 1]),
            ),
            (
                json!({"required": ["a"]}),
                json!({"a": null}),
                json!({"b": 1}),
            ),
            (fields.clone(), json!({"a": null}), json!({"a": 1})),
            (fields, json!({}), json!({"b": null})),
            (others, json!({"x": true}), json!({"x": 1})),
            (
                json!({"anyOf": [{"const": 1}, {"minimum": 1}]}),
                json!(1),
                json!(0),
            ),
            (
                json!({"oneOf": [{"const": 1}, {"minimum": 1}]}),
                json!(2),
                json!(1),
            ),
            (
                json!({"$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}}),
                json!(1),
                json!(2),
            ),
        ];
        for (schema, valid, invalid) in cases {
            assert_eq!(violations(&schema, &valid), [""; 0], "{schema}");
            assert_eq!(violations(&schema, &invalid).len(), 1, "{schema}");
        }
    }

    #[test]
    #[should_panic(expected = "uniqueItems is not known")]
    fn an_unknown_keyword_is_not_passed_over() {
        let _ = violations(&json!({"uniqueItems": true}), &json!([1, 1]));
    }
}
