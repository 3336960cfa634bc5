use super::*;
use crate::ops::request::read;
use crate::ops::task::{LIMIT, Parameters};
use serde_json::Value;
use std::collections::BTreeSet;

fn description() -> Value {
    serde_json::from_str(DESCRIPTION).unwrap()
}

/// Method and path of everything that is described.
fn described() -> BTreeSet<(String, String)> {
    let description = description();
    let paths = description["paths"].as_object().unwrap();
    let methods = |item: &Value| -> Vec<String> {
        let keys = item.as_object().unwrap().keys();
        let methods = keys.filter(|key| *key != "parameters");
        methods.map(|method| method.to_uppercase()).collect()
    };
    paths
        .iter()
        .flat_map(|(path, item)| {
            methods(item)
                .into_iter()
                .map(|method| (method, path.clone()))
        })
        .collect()
}

#[test]
fn every_route_is_described_and_everything_described_is_a_route() {
    let mut routes: BTreeSet<_> = ROUTES
        .iter()
        .map(|route| (route.method.to_owned(), route.path.to_owned()))
        .collect();
    routes.insert(("GET".to_owned(), DESCRIPTION_PATH.to_owned()));
    assert_eq!(described(), routes);
}

/// The parts of OpenAPI 3.1 that tools stumble over.
#[test]
fn the_description_has_the_form_of_openapi() {
    let description = description();
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1."));
    for field in ["title", "version"] {
        assert!(description["info"][field].is_string(), "info.{field}");
    }
    let mut names = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        assert!(path.starts_with('/'));
        let shared = parameters_of(item);
        for (method, operation) in item.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            let place = format!("{method} {path}");
            let name = operation["operationId"].as_str().expect(&place);
            assert!(names.insert(name.to_owned()), "{name} twice");
            check_responses(&operation["responses"], &place);
            let mut parameters = shared.clone();
            parameters.extend(parameters_of(operation));
            let in_path = path.matches('{').count();
            let described = parameters.iter().filter(|place| place.0 == "path");
            assert_eq!(described.count(), in_path, "{place}");
            assert_eq!(
                operation.get("requestBody").is_some(),
                method == "post" && path != "/api/v1/reload",
                "{place}"
            );
        }
    }
    check_references(&description, &description);
}

fn parameters_of(item: &Value) -> BTreeSet<(String, String)> {
    let Some(list) = item.get("parameters") else {
        return BTreeSet::new();
    };
    let parameters = list.as_array().unwrap();
    let mut found = BTreeSet::new();
    for parameter in parameters {
        let place = parameter["in"].as_str().unwrap().to_owned();
        assert!(matches!(&*place, "path" | "query"));
        assert_eq!(place == "path", parameter["required"] == true);
        assert!(parameter["schema"].is_object());
        assert!(found.insert((place, parameter["name"].as_str().unwrap().to_owned())));
    }
    found
}

fn check_responses(responses: &Value, place: &str) {
    let responses = responses.as_object().expect(place);
    assert!(responses.contains_key("200"), "{place}");
    for (status, response) in responses {
        assert!(
            status
                .parse::<u16>()
                .is_ok_and(|status| (200..600).contains(&status))
        );
        let is_whole = response["description"].is_string() || response["$ref"].is_string();
        assert!(is_whole, "{place} {status}");
    }
}

/// Every reference leads somewhere, and every required property is a property.
fn check_references(node: &Value, whole: &Value) {
    if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(whole.pointer(pointer).is_some(), "{reference}");
    }
    if let (Some(required), Some(Value::Object(properties))) = (
        node.get("required").and_then(Value::as_array),
        node.get("properties"),
    ) {
        for name in required {
            assert!(properties.contains_key(name.as_str().unwrap()), "{name}");
        }
    }
    match node {
        Value::Object(fields) => fields
            .values()
            .for_each(|field| check_references(field, whole)),
        Value::Array(items) => items.iter().for_each(|item| check_references(item, whole)),
        _ => {}
    }
}

#[test]
fn paths_are_found_with_their_names() {
    let found = |method, path| find(method, path).map(|(route, name)| (route.path, name));
    assert_eq!(
        found("POST", "/api/v1/publish"),
        Ok(("/api/v1/publish", String::new()))
    );
    let history = ("/api/v1/topics/{topic}/history", "a.b/c".to_owned());
    assert_eq!(
        found("GET", "/api/v1/topics/a.b%2Fc/history"),
        Ok(history.clone())
    );
    assert_eq!(
        found("DELETE", "/api/v1/topics/a%2Eb%2fc/history"),
        Ok(history)
    );
    for (path, status) in [
        ("/api/v1/topics//history", 404),
        ("/api/v1/topics/a/b/history", 404),
        ("/api/v1/topics/history", 404),
        ("/api/v1/publish/", 404),
        ("/api/v1/topics/%ff/history", 400),
        ("/api/v1/publish", 405),
    ] {
        assert_eq!(found("GET", path).unwrap_err().status, status, "{path}");
    }
    let refusal = find("PUT", "/api/v1/topics/a/history")
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refusal.allow.as_deref(), Some("GET, DELETE"));
}

#[test]
fn without_an_office_only_the_description_is_given() {
    let planned = |path: &str| {
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: any\r\n\r\n");
        read(&text, |request| plan(&request, None)).map_err(|error| error.status)
    };
    assert!(matches!(planned(DESCRIPTION_PATH), Ok(Plan::Answer(_))));
    assert!(matches!(planned("/api/v1/topics"), Err(403)));
}

#[test]
fn parameters_are_read_strictly() {
    let parsed = |query| Parameters::parse(query, &["limit", "topic"]);
    let parameters = parsed("limit=7&topic=a%2Eb+c").unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(parameters.text("topic"), Some("a.b c"));
    assert_eq!(parameters.limit(), Ok(7));
    assert_eq!(
        parsed("")
            .map(|parameters| parameters.limit())
            .unwrap_or(Ok(0)),
        Ok(LIMIT)
    );
    for bad in ["limit=1&limit=1", "other=1", "topic=%zz"] {
        assert!(parsed(bad).is_err(), "{bad}");
    }
    for bad in ["limit=0", "limit=1001", "limit=-1", "limit=", "limit=x"] {
        assert!(
            parsed(bad).is_ok_and(|parameters| parameters.limit().is_err()),
            "{bad}"
        );
    }
}
