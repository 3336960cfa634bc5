//! The HTTP API over real sockets: what it does.

#![allow(clippy::unwrap_used, reason = "a test may end in a panic")]

use crate::common;
mod connections;
mod excluded;
mod requests;

use common::api::{config_with_api, get, http, open, post, server, with_key};
use common::topics::{next, subscribe};
use common::{Client, Opening, Said, start, token, wait_until};
use serde_json::{Value, json};
use tidewire_engine::Server;
use tidewire_engine::apps::Sink;

/// The key under which a user's only connection is listed.
fn key_of(server: &Server, user: &str) -> String {
    let listed = get(server, &format!("/api/v1/connections?user={user}"));
    let connections = listed["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 1, "{listed}");
    connections[0]["connection"].as_str().unwrap().to_owned()
}

#[test]
fn subscribers_get_what_is_posted() {
    let server = server();
    let mut client = open(&server, "ada");
    subscribe(&mut client, json!(["kept.a", "b"]));
    let body = r#"{"topic":"kept.a","type":"trade","payload":{"price": 1.10, "z":1, "a":2}}"#;
    let answer = with_key(&server, "POST", "/api/v1/publish", body);
    let told = answer.json();
    assert_eq!(
        (answer.status, &told["offset"], &told["duplicate"]),
        (200, &json!(1), &json!(false))
    );
    let text = client.next_text();
    assert!(
        text.contains(r#"{"price": 1.10, "z":1, "a":2}"#),
        "not as it was written: {text}"
    );
    let message: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&message["t"], &message["tp"]),
        (&json!("trade"), &json!("kept.a"))
    );
    assert_eq!(
        (&message["e"], &message["o"]),
        (&told["epoch"], &told["offset"])
    );

    let several = json!({"topics": ["b", "no..topic", "c"], "type": "count", "payload": {"n": 7}});
    let results = post(&server, "/api/v1/publish", &several)["results"].clone();
    assert_eq!(results[0], json!({"topic": "b", "duplicate": false}));
    assert_eq!(results[1]["error"]["code"], "invalid_topic");
    assert_eq!(results[2]["topic"], "c");
    assert_eq!(next(&mut client), ("b".to_owned(), 7));
}

#[test]
fn every_property_of_a_publication_counts() {
    let server = server();
    let (mut ada, mut bob) = (open(&server, "ada"), open(&server, "bob"));
    subscribe(&mut ada, json!(["a"]));
    subscribe(&mut bob, json!(["a"]));
    let mut publication = json!({
        "topic": "a", "type": "x", "payload": null, "category": "S", "priority": 8, "id": "one",
        "key": "k", "ttl_ms": 60_000, "volatile": true, "exclude": key_of(&server, "ada"),
    });
    assert_eq!(
        post(&server, "/api/v1/publish", &publication)["duplicate"],
        false
    );
    assert_eq!(
        post(&server, "/api/v1/publish", &publication)["duplicate"],
        true
    );
    let message = bob.next_json();
    assert_eq!(
        (&message["c"], &message["pri"], &message["id"]),
        (&json!("S"), &json!(8), &json!("one"))
    );
    assert_eq!(message["p"], Value::Null);
    publication["id"] = json!("two");
    publication.as_object_mut().unwrap().remove("exclude");
    post(&server, "/api/v1/publish", &publication);
    // The first one passed ada by.
    assert_eq!(
        (&ada.next_json()["id"], &bob.next_json()["id"]),
        (&json!("two"), &json!("two"))
    );
}

#[test]
fn users_connections_and_everyone_are_reached() {
    let server = server();
    let (mut ada, mut ada2, mut bob) = (
        open(&server, "ada"),
        open(&server, "ada"),
        open(&server, "bob"),
    );
    let to = |target: Value, t: &str| {
        let mut body = json!({"type": t, "payload": 1});
        let fields = target.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        post(&server, "/api/v1/publish", &body)
    };
    to(json!({"user": "ada"}), "for-ada");
    let bob_key = key_of(&server, "bob");
    to(json!({"connection": bob_key}), "for-bob");
    to(json!({"everyone": true}), "for-all");
    for client in [&mut ada, &mut ada2] {
        assert_eq!(client.next_json()["t"], "for-ada");
        assert_eq!(client.next_json()["t"], "for-all");
    }
    assert_eq!(bob.next_json()["t"], "for-bob");
    assert_eq!(bob.next_json()["t"], "for-all");
}

#[test]
fn a_connection_may_be_named_by_the_uuid_that_its_client_knows() {
    let server = server();
    let claims = json!({"sub": "ada", "exp": common::unix_s() + 60});
    let mut ada = Opening::new(server.address())
        .header("Authorization", format!("Bearer {}", token(claims)))
        .open();
    let id = ada.next_json()["p"]["details"]["connection_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let listed = get(&server, "/api/v1/connections");
    assert_eq!(listed["connections"][0]["id"], id.as_str());
    let body = json!({"connection": id, "type": "x", "payload": 1});
    assert_eq!(
        post(&server, "/api/v1/publish", &body)["connection"],
        listed["connections"][0]["connection"]
    );
    assert_eq!(ada.next_json()["t"], "x");
    for unknown in ["01890a5d-ac96-774b-bcce-b302099a8057", "ada"] {
        let body = json!({"connection": unknown, "type": "x", "payload": 1});
        let answer = with_key(&server, "POST", "/api/v1/publish", &body.to_string());
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (404, "unknown_connection")
        );
    }
}

#[test]
fn a_batch_has_a_result_for_each() {
    let server = server();
    let mut client = open(&server, "ada");
    subscribe(&mut client, json!(["a"]));
    let batch = json!([
        {"topic": "a", "type": "count", "payload": {"n": 1}},
        {"topic": "a", "type": "server_ready", "payload": {"n": 2}},
        {"topic": "a", "type": "count", "payload": {"n": 3}, "priority": 4},
        {"topic": "a", "type": "count", "payload": {"n": 4}},
    ]);
    let results = post(&server, "/api/v1/publish/batch", &batch)["results"].clone();
    let codes: Vec<_> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["error"]["code"])
        .collect();
    assert_eq!(
        codes,
        [
            &Value::Null,
            &json!("invalid_type"),
            &json!("invalid_request"),
            &Value::Null
        ]
    );
    assert_eq!((next(&mut client).1, next(&mut client).1), (1, 4));
}

#[test]
fn the_application_subscribes_and_unsubscribes() {
    let server = server();
    let mut ada = open(&server, "ada");
    let whose = json!({"user": "ada", "topics": ["a", "b.*", "c..d"]});
    let results = post(&server, "/api/v1/subscribe", &whose)["results"].clone();
    assert_eq!(
        (&results[0], &results[1]),
        (&json!({"topic": "a"}), &json!({"topic": "b.*"}))
    );
    assert_eq!(results[2]["error"]["code"], "invalid_topic");
    for topic in ["a", "b.*"] {
        let told = ada.next_json();
        assert_eq!(
            (&told["t"], &told["p"]["success_topics"]),
            (&json!("subscription_update"), &json!([topic]))
        );
    }
    let topics = get(&server, "/api/v1/topics");
    assert_eq!(topics["topics"][0]["topic"], "a");
    assert_eq!(
        topics["topics"][1],
        json!({"topic": "b.*", "pattern": true, "subscribers": 1, "publications": 0, "per_s": 0.0})
    );

    let key = key_of(&server, "ada");
    post(
        &server,
        "/api/v1/unsubscribe",
        &json!({"connection": key, "topics": ["a"]}),
    );
    let told = ada.next_json();
    assert_eq!(
        (&told["p"]["action"], &told["p"]["success_topics"]),
        (&json!("unsubscribe"), &json!(["a"]))
    );
    let topics = get(&server, "/api/v1/topics");
    assert_eq!(topics["topics"].as_array().unwrap().len(), 1);
}

#[test]
fn connections_and_users_are_disconnected() {
    let server = server();
    let (mut ada, mut bob) = (open(&server, "ada"), open(&server, "bob"));
    let key = key_of(&server, "bob");
    let end = json!({"connection": key, "code": 4210, "reason": "banned"});
    assert_eq!(
        post(&server, "/api/v1/disconnect", &end),
        json!({"connection": key})
    );
    assert_eq!(bob.next(), Said::Close(Some(4210), "banned".to_owned()));
    post(&server, "/api/v1/disconnect", &json!({"user": "ada"}));
    assert_eq!(ada.next(), Said::Close(Some(1000), String::new()));
    drop((ada, bob));
    wait_until("both are gone", || server.handle().connections() == 0);
    let gone = with_key(&server, "POST", "/api/v1/disconnect", &end.to_string());
    assert_eq!(
        (gone.status, gone.code().as_str()),
        (404, "unknown_connection")
    );
    for (body, words) in [
        (json!({"user": "ada", "code": 1006}), "code"),
        (json!({"user": "ada", "code": 5000}), "code"),
        (json!({"user": "ada", "reason": "r".repeat(124)}), "reason"),
        (json!({}), "connection"),
        (json!({"user": "ada", "connection": "0-1"}), "connection"),
    ] {
        let refused = with_key(&server, "POST", "/api/v1/disconnect", &body.to_string());
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (400, "invalid_request")
        );
        assert!(refused.body.contains(words), "{refused:?}");
    }
}

/// Seven connections of three users, on two shards. Each has a topic of its own and two with the others.
fn server_with_seven() -> (Server, Vec<Client>) {
    let mut config = config_with_api();
    config.shards = 2;
    let server = start(config, Sink);
    let mut clients: Vec<_> = (0..7)
        .map(|index| open(&server, &format!("user-{}", index % 3)))
        .collect();
    for (index, client) in clients.iter_mut().enumerate() {
        subscribe(client, json!([format!("t.{index}"), "t.all", "u"]));
    }
    (server, clients)
}

#[test]
fn connections_come_in_pages() {
    let (server, _clients) = server_with_seven();
    let (mut connections, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(&server, &format!("/api/v1/connections?limit=3{after}"));
        connections.extend(page["connections"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else {
            break;
        };
        after = format!("&after={next}");
    }
    let mut keys: Vec<_> = connections
        .iter()
        .map(|found| found["connection"].to_string())
        .collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((keys.len(), connections.len()), (7, 7));
    for found in &connections {
        assert_eq!(
            (&found["topics"], &found["format"], &found["queued_bytes"]),
            (&json!(3), &json!("json"), &json!(0))
        );
        assert!(found["address"].as_str().unwrap().starts_with("127.0.0.1:"));
        let age_ms =
            common::unix_s() * 1000 - found["connected_unix_ms"].as_u64().unwrap() / 1000 * 1000;
        assert!(age_ms < 60_000);
    }
}

#[test]
fn connections_are_chosen_by_user_and_topic() {
    let (server, _clients) = server_with_seven();
    let count = |query: &str| {
        get(&server, &format!("/api/v1/connections?{query}"))["connections"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(
        (
            count("user=user-0"),
            count("user=user-2"),
            count("user=none")
        ),
        (3, 2, 0)
    );
    assert_eq!(
        (count("topic=t.3"), count("topic=t.all"), count("topic=x")),
        (1, 7, 0)
    );
    assert_eq!(
        (
            count("user=user-0&topic=t.3"),
            count("user=user-0&topic=t.4")
        ),
        (1, 0)
    );
}

#[test]
fn topics_come_in_pages() {
    let (server, _clients) = server_with_seven();
    let names = |query: &str| -> (Vec<String>, Value) {
        let page = get(&server, &format!("/api/v1/topics?{query}"));
        let topics = page["topics"].as_array().unwrap();
        (
            topics
                .iter()
                .map(|topic| topic["topic"].as_str().unwrap().to_owned())
                .collect(),
            page["next"].clone(),
        )
    };
    assert_eq!(
        names("limit=3"),
        (
            vec!["t.0".to_owned(), "t.1".to_owned(), "t.2".to_owned()],
            json!("t.2")
        )
    );
    assert_eq!(
        names("limit=3&after=t.6"),
        (vec!["t.all".to_owned(), "u".to_owned()], Value::Null)
    );
    assert_eq!(names("prefix=t.a").0, ["t.all"]);
    let all = get(&server, "/api/v1/topics?prefix=t.all");
    assert_eq!(all["topics"][0]["subscribers"], 7);
}

#[test]
fn topics_with_history_are_listed_without_subscribers() {
    let server = server();
    let mut client = open(&server, "ada");
    subscribe(&mut client, json!(["kept.b", "quiet"]));
    // More than are looked at in one go.
    let batch = |from: usize| -> Vec<_> {
        let topics = (from..from + 500).map(|number| format!("kept.m{number:04}"));
        topics
            .map(|topic| json!({"topic": topic, "type": "x", "payload": 1}))
            .collect()
    };
    for from in (0..1_500).step_by(500) {
        post(&server, "/api/v1/publish/batch", &json!(batch(from)));
    }
    for topic in ["kept.a", "kept.a", "kept.b", "other"] {
        let publication = json!({"topic": topic, "type": "x", "payload": 1});
        post(&server, "/api/v1/publish", &publication);
    }
    let rows = |query: &str| -> Vec<Value> {
        let page = get(&server, &format!("/api/v1/topics?{query}"));
        let rows = page["topics"].as_array().unwrap().iter();
        rows.map(|topic| json!([topic["topic"], topic["subscribers"], topic["kept"]]))
            .collect()
    };
    let subscribed = [json!(["kept.b", 1, null]), json!(["quiet", 1, null])];
    assert_eq!(rows(""), subscribed);
    assert_eq!(rows("with_history=false"), subscribed);
    let first = [json!(["kept.a", 0, 2]), json!(["kept.b", 1, 1])];
    assert_eq!(rows("with_history=true&limit=2"), first);
    assert_eq!(
        rows("with_history=true&after=kept.m1498"),
        [json!(["kept.m1499", 0, 1]), json!(["quiet", 1, null])]
    );
    assert_eq!(
        rows("with_history=true&prefix=kept.m&limit=1000").len(),
        1_000
    );
    let refused = with_key(&server, "GET", "/api/v1/topics?with_history=x", "");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (400, "invalid_request")
    );
}

#[test]
fn history_is_read_in_both_directions_and_forgotten() {
    let server = server();
    let batch: Vec<_> = (1..=40)
        .map(|n| json!({"topic": "kept.a", "type": "count", "payload": {"n": n}}))
        .collect();
    post(&server, "/api/v1/publish/batch", &json!(batch));
    let offsets = |query: &str| {
        let page = get(&server, &format!("/api/v1/topics/kept.a/history?{query}"));
        let offsets: Vec<_> = page["publications"]
            .as_array()
            .unwrap()
            .iter()
            .map(|kept| {
                assert_eq!((&kept["o"], &kept["e"]), (&kept["p"]["n"], &page["epoch"]));
                kept["o"].as_u64().unwrap()
            })
            .collect();
        assert_eq!((&page["offset"], &page["oldest"]), (&json!(40), &json!(1)));
        (offsets, page["more"] == true)
    };
    assert_eq!(offsets(""), ((1..=40).collect(), false));
    assert_eq!(offsets("since=2&limit=20"), ((3..=22).collect(), true));
    assert_eq!(
        offsets("order=newest&limit=20"),
        ((21..=40).rev().collect(), true)
    );
    assert_eq!(offsets("order=newest&since=3"), (vec![2, 1], false));
    let forgotten = with_key(&server, "DELETE", "/api/v1/topics/kept%2Ea/history", "");
    assert_eq!(
        forgotten.json(),
        json!({"topic": "kept.a", "forgotten": true})
    );
    assert_eq!(
        get(&server, "/api/v1/topics/kept.a/history")["publications"],
        json!([])
    );
    let none = with_key(&server, "GET", "/api/v1/topics/other/history", "");
    assert_eq!((none.status, none.code().as_str()), (404, "no_history"));
    for bad in ["since=x", "order=up", "limit=0", "limit=1001", "sinse=1"] {
        let refused = with_key(
            &server,
            "GET",
            &format!("/api/v1/topics/kept.a/history?{bad}"),
            "",
        );
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (400, "invalid_request"),
            "{bad}"
        );
    }
    let bad = with_key(&server, "GET", "/api/v1/topics/kept.*/history", "");
    assert_eq!((bad.status, bad.code().as_str()), (400, "invalid_topic"));
}

#[test]
fn a_history_of_large_publications_comes_in_parts() {
    let server = server();
    let filling = "x".repeat(500_000);
    for _ in 0..40 {
        post(
            &server,
            "/api/v1/publish",
            &json!({"topic": "kept.a", "type": "big", "payload": filling}),
        );
    }
    let (mut offsets, mut since) = (Vec::new(), 0);
    loop {
        let page = get(
            &server,
            &format!("/api/v1/topics/kept.a/history?limit=1000&since={since}"),
        );
        let part = page["publications"].as_array().unwrap();
        assert!(part.len() < 40, "one answer has it all");
        offsets.extend(part.iter().map(|kept| kept["o"].as_u64().unwrap()));
        since = *offsets.last().unwrap();
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(offsets, Vec::from_iter(1..=40));
}

#[test]
fn presence_is_counted_by_user() {
    let server = server();
    let mut clients: Vec<_> = ["ada", "ada", "bob"].map(|user| open(&server, user)).into();
    for client in &mut clients {
        let payload =
            json!({"action": "subscribe", "topics": ["room.a"], "presence": {"mood": "good"}});
        client.ask(&json!({"t": "subscription_update", "p": payload}));
    }
    let mut presence = get(&server, "/api/v1/topics/room.a/presence");
    let members = presence["members"].as_array_mut().unwrap();
    members.sort_by_key(|member| member["user"].to_string());
    let data = json!({"mood": "good"});
    assert_eq!(
        presence,
        json!({"topic": "room.a", "users": 2, "connections": 3, "members": [
            {"user": "ada", "connections": 2, "data": data}, {"user": "bob", "connections": 1, "data": data},
        ]})
    );
    let counts = get(&server, "/api/v1/topics/room.a/presence?limit=0");
    assert_eq!(
        (&counts["users"], &counts["members"]),
        (&json!(2), &json!([]))
    );
}

#[test]
fn stats_name_the_topics_and_what_they_take() {
    let server = server();
    let mut client = open(&server, "ada");
    subscribe(&mut client, json!(["kept.a", "quiet"]));
    for _ in 0..5 {
        post(
            &server,
            "/api/v1/publish",
            &json!({"topic": "kept.a", "type": "x", "payload": 1}),
        );
        client.next_json();
    }
    // A publication counts as waiting until the end of the turn that delivers it.
    let mut stats = json!(null);
    common::wait_until("all delivered", || {
        stats = get(&server, "/api/v1/stats?slow=10");
        stats["usage"]["publication_backlog_bytes"] == 0 && stats["total"]["deliveries"] == 5
    });
    let busiest = &stats["topics"][0];
    assert_eq!(
        (
            &busiest["topic"],
            &busiest["publications"],
            &busiest["subscribers"]
        ),
        (&json!("kept.a"), &json!(5), &json!(1))
    );
    assert!(busiest["per_s"].as_f64().is_some());
    assert_eq!(stats["slow_connections"], json!([]));
    assert_eq!(stats["usage"]["history_topics"], 1);
    assert!(stats["usage"]["history_bytes"].as_u64().unwrap() > 0);
    if cfg!(target_os = "linux") {
        assert!(stats["resident_bytes"].as_u64().unwrap() > 0);
        assert!(stats["cpu_seconds"].as_f64().is_some());
    }

    // Without a key it is the same, in a page of its own.
    let page = http(&server).ask("GET", "/stats", "", "");
    assert_eq!(
        (page.status, &page.json()["topics"][0]["topic"]),
        (200, &json!("kept.a"))
    );
    let metrics = http(&server).ask("GET", "/metrics", "", "").body;
    for line in [
        "tidewire_history_topics 1\n",
        "tidewire_publication_backlog_bytes 0\n",
        "tidewire_histories_evicted_total 0\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }

    // A topic without subscribers is among the busiest if it keeps its publications.
    let publication = json!({"topic": "kept.alone", "type": "x", "payload": 1});
    post(&server, "/api/v1/publish", &publication);
    common::wait_until("a topic without subscribers", || {
        let stats = get(&server, "/api/v1/stats");
        let topics = stats["topics"].as_array().unwrap();
        let mut topics = topics.iter().filter(|topic| topic["topic"] == "kept.alone");
        topics
            .next()
            .is_some_and(|topic| topic["subscribers"] == 0 && topic["kept"] == 1)
    });
}
