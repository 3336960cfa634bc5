//! Demands on an answer.

use serde_json::Value;

/// The first demand that an answer does not meet. A field that is absent counts as 0, false or empty.
pub(super) fn unmet(wanted: &Value, answer: &Value) -> Option<String> {
    unmet_at("", wanted, answer, answer)
}

fn unmet_at(path: &str, wanted: &Value, found: &Value, answer: &Value) -> Option<String> {
    let fault = |what: String| Some(format!("`{path}` must be {what}, and is {found}"));
    let Value::Object(fields) = wanted else {
        return match (wanted, found) {
            (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
                let mut pairs = items.iter().zip(others);
                pairs.find_map(|(item, other)| unmet_at(path, item, other, answer))
            }
            _ if is_same(wanted, found) => None,
            _ => fault(wanted.to_string()),
        };
    };
    if let Some(least) = fields.get("at_least") {
        let is_enough = found.as_f64().unwrap_or(0.0) >= least.as_f64().unwrap_or(0.0);
        return if is_enough {
            None
        } else {
            fault(format!("at least {least}"))
        };
    }
    if let Some(other) = fields.get("as").and_then(Value::as_str) {
        let other_value = at(answer, other);
        return match is_same(other_value, found) {
            true => None,
            false => fault(format!("as `{other}`, {other_value}")),
        };
    }
    if let Some(part) = fields.get("has").and_then(Value::as_str) {
        let has_it = found
            .as_str()
            .is_some_and(|text| text.to_lowercase().contains(part));
        return if has_it {
            None
        } else {
            fault(format!("a text with `{part}`"))
        };
    }
    if let Some(count) = fields.get("counts") {
        let pairs = found.as_array().into_iter().flatten();
        let sum: u64 = pairs.filter_map(|pair| pair[1].as_u64()).sum();
        let is_right = count.as_u64() == Some(sum);
        return if is_right {
            None
        } else {
            fault(format!("a histogram of {count}"))
        };
    }
    fields.iter().find_map(|(name, wanted)| {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        unmet_at(&path, wanted, &found[name], answer)
    })
}

fn is_same(wanted: &Value, found: &Value) -> bool {
    let is_nothing = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(_) | Value::Bool(true) => false,
    };
    let is_number = wanted.is_number() && wanted.as_f64() == found.as_f64();
    wanted == found || is_number || (is_nothing(wanted) && is_nothing(found))
}

/// The field at a path such as `pace.planned`.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, name| &value[name])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_demand_is_met_or_named() {
        let answer = json!({"a": 3, "b": [[2048, 2], [9, 1]], "c": {"d": "No Token"}, "e": [{"kind": "refused", "count": 1}]});
        for met in [
            json!({"a": 3.0, "z": 0, "y": false, "x": []}),
            json!({"b": {"counts": 3}, "c": {"d": {"has": "token"}}}),
            json!({"a": {"at_least": 3}, "e": [{"kind": "refused"}]}),
            json!({"a": {"as": "a"}}),
        ] {
            assert_eq!(unmet(&met, &answer), None, "{met}");
        }
        for (wanted, words) in [
            (json!({"a": 4}), "`a` must be 4, and is 3"),
            (json!({"z": 1}), "`z` must be 1, and is null"),
            (json!({"b": {"counts": 4}}), "a histogram of 4"),
            (
                json!({"c": {"d": {"has": "time"}}}),
                "`c.d` must be a text with `time`",
            ),
            (json!({"a": {"at_least": 4}}), "at least 4"),
            (json!({"a": {"as": "c.d"}}), "as `c.d`"),
            (json!({"e": []}), "`e` must be []"),
            (json!({"e": [{"kind": "reset"}]}), "\"reset\""),
        ] {
            let fault = unmet(&wanted, &answer).expect("it is not met");
            assert!(fault.contains(words), "{fault}");
        }
    }
}
