//! Filters of subscriptions: what they match, and which ones are refused.

#![allow(clippy::unwrap_used, reason = "a test may end in a panic")]

use proptest::prelude::*;
use serde_json::{Value, json};
use tidewire_engine::{Filter, FilterProblem};

mod naive;

fn takes(document: Value, payload: &str) -> bool {
    Filter::compile(&document)
        .expect("a filter")
        .matches(payload.as_bytes())
}

/// Whether filters take [`SAMPLE`].
fn expect_of_sample(cases: impl IntoIterator<Item = (Value, bool)>) {
    for (document, expected) in cases {
        assert_eq!(takes(document.clone(), SAMPLE), expected, "{document}");
    }
}

#[test]
fn values_are_compared() {
    expect_of_sample([
        (json!({}), true),
        (json!({"n": 10}), true),
        (json!({"n": 10.0}), true),
        (json!({"n": "10"}), false),
        (json!({"n": {"$eq": 11}}), false),
        (json!({"n": {"$ne": 11}}), true),
        (json!({"n": {"$ne": 10}}), false),
        (json!({"n": {"$gt": 9, "$lt": 11}}), true),
        (json!({"n": {"$gt": 9, "$lt": 10}}), false),
        (json!({"n": {"$gte": 10, "$lte": 10}}), true),
        (json!({"n": {"$gt": "1"}}), false),
        (json!({"n": {"$lt": "1"}}), false),
        (json!({"f": {"$gt": 1}}), true),
        (json!({"big": u64::MAX}), true),
        (json!({"big": {"$gt": u64::MAX - 1}}), true),
        (json!({"s": {"$gt": "hell"}}), true),
        (json!({"s": {"$lt": "hellp"}}), true),
        (json!({"s": {"$lte": "Hello"}}), false),
        (json!({"s": {"$gte": 1}}), false),
        (json!({"t": true}), true),
        (json!({"t": false}), false),
        (json!({"t": 1}), false),
        (json!({"z": null}), true),
        (json!({"z": {"$ne": null}}), false),
        (json!({"z": {"$exists": true}}), true),
        (json!({"z": {"$in": [null]}}), true),
    ]);
}

#[test]
fn lists_of_values_are_searched() {
    expect_of_sample([
        (json!({"n": {"$in": [1, 10, 100]}}), true),
        (json!({"n": {"$in": [1, "10", 100]}}), false),
        (json!({"s": {"$in": ["zz", "hello", "a"]}}), true),
        (json!({"n": {"$in": [30, 20, 10.0]}}), true),
        (json!({"n": {"$in": []}}), false),
        (json!({"n": {"$nin": []}}), true),
        (json!({"n": {"$nin": [10]}}), false),
        (
            json!({"a": {"$in": [[1], [1, "two", [3], {"k": 4}]]}}),
            true,
        ),
    ]);
}

#[test]
fn texts_and_arrays_are_searched() {
    expect_of_sample([
        (json!({"s": {"$regex": "l+"}}), true),
        (json!({"s": {"$regex": "^l"}}), false),
        (json!({"s": {"$regex": "(?i)HELLO"}}), true),
        (json!({"n": {"$regex": "1"}}), false),
        (json!({"s": {"$contains": "ell"}}), true),
        (json!({"s": {"$contains": ""}}), true),
        (json!({"s": {"$contains": "e.l"}}), false),
        (json!({"s": {"$contains": 1}}), false),
        (json!({"a": {"$contains": "two"}}), true),
        (json!({"a": {"$contains": "tw"}}), false),
        (json!({"a": {"$contains": 1.0}}), true),
        (json!({"a": {"$contains": 3}}), false),
        (json!({"a": {"$contains": [3]}}), true),
        (json!({"a": {"$contains": {"k": 4}}}), true),
        (json!({"o": {"$contains": "x"}}), false),
        (json!({"s": {"$startswith": "he"}}), true),
        (json!({"s": {"$startswith": "hello!"}}), false),
        (json!({"s": {"$endswith": "lo"}}), true),
        (json!({"e": {"$endswith": "", "$startswith": ""}}), true),
        (json!({"a": {"$startswith": "two"}}), false),
    ]);
}

#[test]
fn paths_lead_into_objects_and_arrays() {
    expect_of_sample([
        (json!({"o.y.deep": "val"}), true),
        (json!({"o.y": {"deep": "val"}}), true),
        (json!({"o": {"y": {"deep": "val"}}}), false),
        (json!({"o": {"y": {"deep": "val"}, "x": 1}}), true),
        (json!({"o.y.deep.more": {"$exists": false}}), true),
        (json!({"a.0": 1}), true),
        (json!({"a.1": {"$startswith": "t"}}), true),
        (json!({"a.2.0": 3}), true),
        (json!({"a.3.k": 4}), true),
        (json!({"a.00": {"$exists": true}}), false),
        (json!({"a.4": {"$exists": true}}), false),
        (
            json!({"o": {"$exists": true}, "o.x": 1, "o.y.deep": "val", "n": 10}),
            true,
        ),
    ]);
}

#[test]
fn conditions_are_combined() {
    expect_of_sample([
        (json!({"$and": [{"n": 10}, {"t": true}]}), true),
        (json!({"$and": [{"n": 10}, {"t": false}]}), false),
        (json!({"$or": [{"n": 11}, {"t": true}]}), true),
        (json!({"$or": [{"n": 11}, {"t": false}]}), false),
        (json!({"$not": {"n": 10}}), false),
        (json!({"$not": {"n": 10, "t": false}}), true),
        (json!({"n": {"$not": {"$gt": 9}}}), false),
        (json!({"n": {"$not": {"$gt": 9, "$lt": 10}}}), true),
        (
            json!({"n": 10, "$or": [{"t": false}, {"$and": [{"f": 1.5}, {"e": ""}]}]}),
            true,
        ),
    ]);
}

#[test]
fn of_a_missing_field_only_the_contraries_hold() {
    for (operators, expected) in [
        (json!({"$eq": null}), false),
        (json!({"$in": [null]}), false),
        (json!({"$gt": 0}), false),
        (json!({"$lte": ""}), false),
        (json!({"$regex": ""}), false),
        (json!({"$contains": ""}), false),
        (json!({"$startswith": ""}), false),
        (json!({"$endswith": ""}), false),
        (json!({"$exists": true}), false),
        (json!({"$exists": false}), true),
        (json!({"$ne": 1}), true),
        (json!({"$nin": [1]}), true),
        (json!({"$not": {"$gt": 0}}), true),
    ] {
        for payload in [r#"{"other":1}"#, "{}", "[1]", "1", "\"x\"", "", " "] {
            assert_eq!(
                takes(json!({"x": operators}), payload),
                expected,
                "{operators} {payload}"
            );
        }
    }
}

#[test]
fn strings_are_compared_without_their_escapes() {
    let payload = r#"{"\u0070rice":"a\"\\b\u00e9\ud83d\ude00","lone":"\ud800","\udc00":1,"end":2}"#;
    for (document, expected) in [
        (json!({"price": "a\"\\b\u{e9}\u{1f600}"}), true),
        (json!({"price": {"$contains": "\u{1f600}"}}), true),
        (json!({"price": {"$regex": "b.\u{1f600}$"}}), true),
        (json!({"price": {"$gt": "a\"\\b\u{e9}\u{ffff}"}}), true),
        (json!({"lone": {"$exists": true, "$ne": ""}}), true),
        (json!({"lone": {"$regex": ""}}), false),
        (json!({"lone": {"$gte": ""}}), false),
        (json!({"lone": {"$in": ["\u{fffd}", ""]}}), false),
        (json!({"end": 2}), true),
    ] {
        assert_eq!(takes(document.clone(), payload), expected, "{document}");
    }
}

#[test]
fn the_first_of_several_members_counts() {
    let payload = r#"{"a":1,"a":2,"o":{"x":1,"x":2},"o":{"y":3},"b":5}"#;
    for (document, expected) in [
        (json!({"a": 1, "b": 5}), true),
        (json!({"a": 2}), false),
        (json!({"o.x": 1, "b": 5}), true),
        (json!({"o.x": 2}), false),
        (json!({"o.y": {"$exists": true}}), false),
        (json!({"o": {"x": 1}}), true),
        (json!({"o": {"x": 2}}), false),
    ] {
        assert_eq!(takes(document.clone(), payload), expected, "{document}");
    }
}

#[test]
fn many_fields_are_found_in_one_reading() {
    let names: Vec<String> = (0..128).map(|number| format!("f{number}")).collect();
    let mut document: Value = names
        .iter()
        .enumerate()
        .map(|(number, name)| (name.clone(), json!(number)))
        .collect();
    let payload = document.to_string();
    assert!(takes(document.clone(), &payload));
    document["f127"] = json!(0);
    assert!(!takes(document, &payload));
}

/// Where and why filters are refused.
fn expect_refused<'a>(cases: impl IntoIterator<Item = (Value, &'a str, FilterProblem)>) {
    for (document, path, problem) in cases {
        let error = Filter::compile(&document).expect_err(path);
        assert_eq!(
            (error.path.as_str(), &error.problem),
            (path, &problem),
            "{error}"
        );
        assert!(error.to_string().contains(&problem.to_string()), "{error}");
    }
}

#[test]
fn errors_name_the_place_of_a_wrong_shape() {
    expect_refused([
        (json!([]), "", FilterProblem::NotAnObject),
        (json!({"$or": []}), "$or", FilterProblem::Nothing),
        (json!({"$and": {}}), "$and", FilterProblem::NotAnArray),
        (json!({"$not": [{}]}), "$not", FilterProblem::NotAnObject),
        (
            json!({"$or": [{}, 1]}),
            "$or[1]",
            FilterProblem::NotAnObject,
        ),
    ]);
}

#[test]
fn errors_name_the_operator_that_is_wrong() {
    expect_refused([
        (
            json!({"$where": "1"}),
            "$where",
            FilterProblem::UnknownOperator,
        ),
        (
            json!({"a": {"$gt": 1, "$near": 2}}),
            "a.$near",
            FilterProblem::UnknownOperator,
        ),
        (
            json!({"a": {"$or": [{"a": 1}]}}),
            "a.$or",
            FilterProblem::UnknownOperator,
        ),
        (
            json!({"a": {"$gt": 1, "b": 2}}),
            "a.b",
            FilterProblem::MixedNames,
        ),
        (json!({"a": {"$not": {}}}), "a.$not", FilterProblem::Nothing),
        (
            json!({"a": {"$not": {"b": 1}}}),
            "a.$not.b",
            FilterProblem::MixedNames,
        ),
        (
            json!({"a": {"$not": "x"}}),
            "a.$not",
            FilterProblem::NotAnObject,
        ),
    ]);
}

#[test]
fn errors_name_the_operand_that_is_wrong() {
    expect_refused([
        (
            json!({"$or": [{"a.b": {"$gt": true}}]}),
            "$or[0].a.b.$gt",
            FilterProblem::NoOrder,
        ),
        (
            json!({"a": {"$in": "x"}}),
            "a.$in",
            FilterProblem::NotAnArray,
        ),
        (
            json!({"a": {"$startswith": 1}}),
            "a.$startswith",
            FilterProblem::NotAString,
        ),
        (
            json!({"a": {"$regex": 1}}),
            "a.$regex",
            FilterProblem::NotAString,
        ),
        (
            json!({"a": {"$exists": 1}}),
            "a.$exists",
            FilterProblem::NotABool,
        ),
    ]);
}

#[test]
fn errors_name_the_path_that_is_wrong() {
    expect_refused([
        (json!({"": 1}), "", FilterProblem::BadPath),
        (json!({"a..b": 1}), "a..b", FilterProblem::BadPath),
        (
            json!({(["a"; 17].join(".")): 1}),
            &["a"; 17].join("."),
            FilterProblem::BadPath,
        ),
    ]);
}

#[test]
fn filters_have_limits() {
    let deep = |levels: usize| (0..levels).fold(json!({"a": 1}), |inner, _| json!({"$not": inner}));
    let conditions = |count| json!({"$or": vec![json!({"a": 1}); count]});
    let regex = |count| json!({"$or": vec![json!({"a": {"$regex": "x"}}); count]});
    let contains = |count| json!({"$or": vec![json!({"a": {"$contains": "x"}}); count]});
    let objects = |count| json!({"a": {"$in": vec![json!({"k": 1}); count]}});
    expect_refused([
        (deep(16), "", FilterProblem::TooDeep),
        (
            json!({"a": {"$in": vec![0; 1025]}}),
            "a.$in",
            FilterProblem::TooManyValues,
        ),
        (json!({"a": "x".repeat(65_536)}), "", FilterProblem::TooLong),
        (
            conditions(129),
            "$or[128].a",
            FilterProblem::TooManyConditions,
        ),
        (regex(5), "$or[4].a.$regex", FilterProblem::TooManySearches),
        (
            contains(17),
            "$or[16].a.$contains",
            FilterProblem::TooManySearches,
        ),
        (objects(17), "a.$in", FilterProblem::TooManySearches),
    ]);
    for document in [
        deep(15),
        conditions(128),
        regex(4),
        contains(16),
        objects(16),
    ] {
        assert!(Filter::compile(&document).is_ok(), "{document}");
    }
}

#[test]
fn hostile_regular_expressions_are_refused_or_linear() {
    for text in [
        "(",
        "(?=a)",
        "(a)\\1",
        "[ab]*a[ab]{12}c",
        "(?:a[ab]{10}|b[ab]{12}){2}c",
        "a[ab]{100}c",
        "((a{10}){10}){10}{10}",
        "[é]{400}",
    ] {
        let error = Filter::compile(&json!({"a": {"$regex": text}})).expect_err(text);
        assert!(
            matches!(error.problem, FilterProblem::BadRegex(_)),
            "{text}: {error}"
        );
        assert_eq!(error.path, "a.$regex");
    }
    assert!(Filter::compile(&json!({"a": {"$regex": "x".repeat(513)}})).is_err());
    for text in [
        "\\w+@\\w+\\.com",
        "(?i)^größe: [é-í]+$",
        "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    ] {
        assert!(
            Filter::compile(&json!({"a": {"$regex": text}})).is_ok(),
            "{text}"
        );
    }
    // A backtracking matcher would need far more than 2^1,000 steps for these, and not end.
    for text in [
        "(a+)+$",
        "(a|aa)+$",
        "(a*)*b",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
    ] {
        let filter = Filter::compile(&json!({"a": {"$regex": text}})).unwrap();
        let payload = json!({"a": format!("{}!", "a".repeat(4_000))}).to_string();
        assert!(!filter.matches(payload.as_bytes()), "{text}");
    }
}

#[test]
fn a_regular_expression_is_not_looked_for_in_a_very_long_string() {
    let filter = Filter::compile(&json!({"a": {"$regex": "x$"}})).unwrap();
    for (bytes, expected) in [(4 * 1024, true), (4 * 1024 + 1, false)] {
        let payload = json!({"a": "x".repeat(bytes)}).to_string();
        assert_eq!(filter.matches(payload.as_bytes()), expected, "{bytes}");
    }
}

#[test]
fn deep_payloads_are_passed_over() {
    let deep = format!(
        "{{\"d\":{}{},\"a\":1}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(takes(json!({"a": 1}), &deep));
    assert!(takes(json!({"d": {"$ne": [[[]]]}, "a": 1}), &deep));
    assert!(takes(json!({"d.0.0": {"$exists": true}, "a": 1}), &deep));
}

#[test]
fn equal_documents_have_the_same_source() {
    let parse = |text: &str| Filter::compile(&serde_json::from_str(text).unwrap()).unwrap();
    let one = parse(r#"{ "b": {"$lt": 2, "$gt": 1}, "a": {"z": "\u0065\n", "y": [2, 1]} }"#);
    let other = parse(r#"{"a":{"y":[2,1],"z":"e\n"},"b":{"$gt":1,"$lt":2}}"#);
    assert_eq!(
        one.source(),
        r#"{"a":{"y":[2,1],"z":"e\n"},"b":{"$gt":1,"$lt":2}}"#
    );
    assert_eq!(one.source(), other.source());
    assert_ne!(
        parse(r#"{"a":[1,2]}"#).source(),
        parse(r#"{"a":[2,1]}"#).source()
    );
}

/// A payload with every kind of value.
const SAMPLE: &str = r#"{"n":10,"f":1.5,"s":"hello","t":true,"z":null,"a":[1,"two",[3],{"k":4}],
    "o":{"x":1,"y":{"deep":"val"}},"e":"","big":18446744073709551615}"#;

/// The only limit that the random documents can exceed.
fn has_too_many_searches(document: &Value) -> bool {
    Filter::compile(document).is_err_and(|error| error.problem == FilterProblem::TooManySearches)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn it_agrees_with_a_naive_evaluator(
        document in naive::document(),
        (tree, style) in (naive::tree(), any::<u64>()),
    ) {
        let payload = tree.text(style);
        prop_assume!(!has_too_many_searches(&document));
        prop_assert!(serde_json::from_str::<Value>(&payload).is_ok(), "{}", payload);
        let filter = Filter::compile(&document).expect("within the limits");
        let expected = naive::takes(&document, &tree);
        prop_assert_eq!(filter.matches(payload.as_bytes()), expected, "{} {}", document, payload);
        let again = Filter::compile(&serde_json::from_str(filter.source()).unwrap()).unwrap();
        prop_assert_eq!(again.source(), filter.source());
    }

    #[test]
    fn text_that_is_not_json_does_no_harm(
        document in naive::document(),
        (tree, style) in (naive::tree(), any::<u64>()),
        (cut, at, byte) in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()),
    ) {
        prop_assume!(!has_too_many_searches(&document));
        let filter = Filter::compile(&document).expect("within the limits");
        let mut payload = tree.text(style).into_bytes();
        let index = at.index(payload.len());
        payload[index] = byte;
        filter.matches(&payload);
        filter.matches(&payload[..cut.index(payload.len())]);
    }
}
