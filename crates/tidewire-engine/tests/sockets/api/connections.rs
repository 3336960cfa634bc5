//! Searching and describing connections over HTTP.

use super::common::api::{get, open, server, with_key};
use super::common::topics::subscribe;
use super::key_of;
use serde_json::json;

#[test]
fn connections_are_found_by_the_start_of_their_address() {
    let server = server();
    let _ada = open(&server, "ada");
    let _bob = open(&server, "bob");
    let listed = get(&server, "/api/v1/connections?user=ada");
    let address = listed["connections"][0]["address"].as_str().unwrap();
    let users = |query: &str| -> Vec<String> {
        let listed = get(&server, &format!("/api/v1/connections?{query}"));
        let connections = listed["connections"].as_array().unwrap();
        let users = connections.iter().map(|one| one["user"].as_str().unwrap());
        users.map(str::to_owned).collect()
    };
    assert_eq!(users(&format!("address={address}")), ["ada"]);
    assert_eq!(users(&format!("address={address}&user=bob")), [""; 0]);
    assert_eq!(users("address=127.0.0.1:").len(), 2);
    assert_eq!(users("address=127.0.0.1:&limit=1").len(), 1);
    assert_eq!(users("address=203.0.113.").len(), 0);
}

#[test]
fn a_connection_is_described_with_its_topics() {
    let server = server();
    let mut ada = open(&server, "ada");
    subscribe(&mut ada, json!(["b", "a.*", "c"]));
    let key = key_of(&server, "ada");
    let path = format!("/api/v1/connections/{key}");
    let told = get(&server, &path);
    assert_eq!(told["subscriptions"], json!(["a.*", "b", "c"]));
    assert_eq!(
        (&told["connection"]["user"], &told["more"]),
        (&json!("ada"), &json!(false))
    );
    assert_eq!(told["connection"]["connection"], json!(key));
    let id = told["connection"]["id"].as_str().unwrap();
    assert_eq!(
        get(&server, &format!("/api/v1/connections/{id}"))["connection"]["id"],
        *id
    );
    let two = get(&server, &format!("{path}?limit=2"));
    assert_eq!(two["subscriptions"].as_array().unwrap().len(), 2);
    assert_eq!(two["more"], true);
    for unknown in ["0-4294967296000", "7-0", "nothing"] {
        let answer = with_key(
            &server,
            "GET",
            &format!("/api/v1/connections/{unknown}"),
            "",
        );
        assert_eq!(
            (answer.status, &*answer.code()),
            (404, "unknown_connection")
        );
    }
}
