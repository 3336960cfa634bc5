//! A server of a cluster that does not answer the others.

use crate::clocks::{KEY, connect, serve, until};
use crate::program::request;
use serde_json::Value;
use tidewire_testkit::redis::RedisServer;

#[test]
fn a_list_names_the_server_whose_part_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let redis = RedisServer::start("");
    let (here, operations) = serve(&redis, folder.path(), None);
    let (there, _) = serve(&redis, folder.path(), None);
    let list = |path: &str| -> Value {
        let (status, answer) = request(&operations, "GET", path, KEY, "");
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).expect("JSON")
    };
    let count = |page: &Value| page["connections"].as_array().expect("a list").len();
    let (_own, _other) = (connect(&here, "ada"), connect(&there, "bob"));
    let path = "/api/v1/connections";
    until("both are listed", || count(&list(path)) == 2);
    let of_bob = list("/api/v1/connections?user=bob");
    let node = of_bob["connections"][0]["nodes"][0].clone();
    // Its lease in Redis goes on for some seconds.
    there.signal("STOP");
    for path in [path, "/api/v1/topics"] {
        let page = list(path);
        assert_eq!(page["silent"], serde_json::json!([node]), "{page}");
    }
    assert_eq!(count(&list(path)), 1);
    let body = r#"{"user":"bob","type":"ask"}"#;
    let (status, answer) = request(&operations, "POST", "/api/v1/request", KEY, body);
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains(node.as_str().expect("a name")), "{answer}");
    there.signal("CONT");
    until("both are listed again", || {
        let page = list(path);
        count(&page) == 2 && page.get("silent").is_none()
    });
}
