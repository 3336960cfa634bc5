//! Connections that do not get what is posted.

use super::key_of;
use crate::common::api::{open, post, server, with_key};
use crate::common::topics::subscribe;
use serde_json::{Value, json};

#[test]
fn several_connections_are_passed_by() {
    let server = server();
    let mut clients = ["ada", "bob", "eve"].map(|user| open(&server, user));
    for client in &mut clients {
        subscribe(client, json!(["a"]));
    }
    let excluded = ["ada", "bob"].map(|user| key_of(&server, user));
    for target in [json!({"topic": "a"}), json!({"everyone": true})] {
        let mut body = json!({"type": "some", "payload": 1, "exclude": excluded});
        let fields = target.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        post(&server, "/api/v1/publish", &body);
        assert_eq!(clients[2].next_json()["t"], "some");
    }
    let body = json!({"everyone": true, "type": "all", "payload": 1, "exclude": []});
    post(&server, "/api/v1/publish", &body);
    for client in &mut clients {
        assert_eq!(client.next_json()["t"], "all");
    }
    for (exclude, words) in [
        (json!([1]), "a text or a list of texts"),
        (json!({}), "a text or a list of texts"),
        (json!(["0-x"]), "0-x"),
        (json!(vec![&excluded[0]; 1_001]), "at most 1,000"),
        (
            json!(vec!["01890a5d-ac96-774b-bcce-b302099a8057"; 17]),
            "at most 16 ids",
        ),
    ] {
        let body = json!({"topic": "a", "type": "x", "payload": 1, "exclude": exclude});
        let answer = with_key(&server, "POST", "/api/v1/publish", &body.to_string());
        assert!((400..500).contains(&answer.status), "{}", answer.body);
        assert!(answer.body.contains(words), "{}", answer.body);
        let expected = match words {
            "0-x" => "unknown_connection",
            _ => "invalid_request",
        };
        assert_eq!(answer.code(), expected, "{}", answer.body);
    }
    // Those that are gone are left out.
    let gone = json!(["01890a5d-ac96-774b-bcce-b302099a8057", "0-12345"]);
    for exclude in [Value::Null, gone] {
        let body = json!({"topic": "a", "type": "x", "payload": 1, "exclude": exclude});
        post(&server, "/api/v1/publish", &body);
        for client in &mut clients {
            assert_eq!(client.next_json()["t"], "x");
        }
    }
}
