//! Requests that come in one read with what they are about.

use crate::common;

use common::topics::{next, open_topics, publish, subscribe};
use common::{Client, Said, connect_v1, start, text_frame};
use serde_json::{Value, json};
use tidewire_engine::apps::Sink;
use tidewire_engine::{ConnectionQuery, HistoryLimits, TopicRule};
use tidewire_wire::close::CloseCode;

fn update(action: &str, topics: Value, further: Value) -> String {
    let mut payload = further;
    payload["action"] = json!(action);
    payload["topics"] = topics;
    json!({"t": "subscription_update", "p": payload}).to_string()
}

fn publication(topic: &str, number: u64) -> String {
    let payload = json!({"topic": topic, "type": "count", "payload": {"n": number}});
    json!({"t": "publish_request", "p": payload}).to_string()
}

/// Sends several messages so that the server reads them at once.
fn send_at_once(client: &mut Client, messages: &[String]) {
    let frames: Vec<u8> = messages.iter().flat_map(|text| text_frame(text)).collect();
    client.send_bytes(&frames);
}

/// The numbers of the publications up to this one, and whatever else comes in between.
fn numbers_until(client: &mut Client, last: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.last() != Some(&last) {
        let message = client.next_json();
        if message["t"] == "count" {
            numbers.push(message["p"]["n"].as_u64().expect("a number"));
        }
    }
    numbers
}

#[test]
fn what_a_pattern_brings_is_not_lost_to_a_narrower_subscription() {
    let server = start(open_topics(), Sink);
    let mut client = connect_v1(&server);
    subscribe(&mut client, json!(["a.*"]));
    let narrow = update("subscribe", json!(["a.x"]), json!({}));
    send_at_once(&mut client, &[publication("a.x", 1), narrow]);
    publish(&mut client, "a.x", 2);
    assert_eq!(numbers_until(&mut client, 2), [1, 2]);
}

#[test]
fn a_subscription_that_is_replaced_goes_on_where_it_was() {
    let server = start(open_topics(), Sink);
    let mut client = connect_v1(&server);
    let mut other = connect_v1(&server);
    subscribe(&mut client, json!(["a"]));
    let filtered = update(
        "subscribe",
        json!(["a"]),
        json!({"filter": {"n": {"$gt": 0}}}),
    );
    let careful = update("subscribe", json!(["a"]), json!({"overload": "conflate"}));
    send_at_once(
        &mut client,
        &[publication("a", 1), filtered, publication("a", 2), careful],
    );
    publish(&mut client, "a", 3);
    assert_eq!(numbers_until(&mut client, 3), [1, 2, 3]);
    // And when others are on the topic.
    subscribe(&mut other, json!(["a"]));
    let again = update("subscribe", json!(["a"]), json!({"filter": {}}));
    send_at_once(
        &mut client,
        &[publication("a", 4), again, publication("a", 5)],
    );
    assert_eq!(numbers_until(&mut client, 5), [4, 5]);
    assert_eq!([next(&mut other).1, next(&mut other).1], [4, 5]);
}

#[test]
fn a_replay_passes_the_filter_of_its_topic_named_twice() {
    let mut config = open_topics();
    let history = Some(HistoryLimits {
        publications_max: 10,
        bytes_max: 1 << 20,
        age_max_ms: 0,
    });
    config.topics.rules = vec![TopicRule {
        history,
        ..TopicRule::new("h")
    }];
    let server = start(config, Sink);
    let mut client = connect_v1(&server);
    client.send_text(&update("subscribe", json!(["h"]), json!({})));
    let answer = client.next_json();
    let epoch = &answer["p"]["recovery"]["h"]["epoch"];
    send_at_once(&mut client, &[publication("h", 1), publication("h", 2)]);
    numbers_until(&mut client, 2);
    let recovery = json!({"h": {"epoch": epoch, "offset": 0}});
    let further = json!({"filter": {"n": 2}, "recover": true, "recovery": recovery});
    let mut late = connect_v1(&server);
    late.send_text(&update("subscribe", json!(["h", "h"]), further));
    assert_eq!(numbers_until(&mut late, 2), [2]);
}

#[test]
fn after_a_close_nobody_subscribes() {
    let server = start(open_topics(), Sink);
    let mut client = connect_v1(&server);
    let mut other = connect_v1(&server);
    let page = server.handle();
    subscribe(&mut client, json!(["a"]));
    let listed = page.list_connections(&ConnectionQuery {
        limit: 10,
        ..ConnectionQuery::default()
    });
    for connection in listed.expect("an answer").items {
        let code = CloseCode::NORMAL;
        page.close(connection.connection, code, "").expect("room");
    }
    assert!(matches!(client.next(), Said::Close(..)));
    client.send_text(&update("subscribe", json!(["a"]), json!({})));
    assert!(matches!(other.next(), Said::Close(..)));
    other.send_text(&publication("a", 1));
    other.send_close(CloseCode::NORMAL);
    assert_eq!(other.next(), Said::End);
    client.send_close(CloseCode::NORMAL);
    assert_eq!(client.next(), Said::End);
    common::wait_until("no topic is left", || page.counters().topics == 0);
}

#[test]
fn a_late_acknowledgement_does_not_reach_another_group() {
    let server = start(open_topics(), Sink);
    let mut client = connect_v1(&server);
    let mut second = connect_v1(&server);
    let join = json!({"queue_group": "w", "acknowledge": true});
    client.send_text(&update("subscribe", json!(["one"]), join.clone()));
    client.next_json();
    publish(&mut client, "one", 1);
    let first = client.next_json();
    client.send_text(&update("unsubscribe", json!(["one"]), json!({})));
    client.next_json();
    client.send_text(&update("subscribe", json!(["two"]), join.clone()));
    client.next_json();
    publish(&mut client, "two", 2);
    let other = client.next_json();
    assert_ne!(first["d"], other["d"]);
    let late = json!({ "deliveries": [first["d"]] });
    client.send_text(&json!({"t": "publication_ack", "p": late}).to_string());
    drop(client);
    second.send_text(&update("subscribe", json!(["two"]), join));
    second.next_json();
    assert_eq!(next(&mut second).1, 2);
}

#[test]
fn work_is_not_lost_to_a_member_that_leaves_nor_to_the_clock() {
    let server = start(open_topics(), Sink);
    let (mut first, mut second) = (connect_v1(&server), connect_v1(&server));
    let join = json!({"queue_group": "w", "acknowledge": true, "window": 1});
    first.send_text(&update("subscribe", json!(["jobs"]), join.clone()));
    first.next_json();
    let leave = update("unsubscribe", json!(["jobs"]), json!({}));
    let brief = json!({"topic": "jobs", "type": "count", "payload": {"n": 1}, "ttl_ms": 1});
    let brief = json!({"t": "publish_request", "p": brief}).to_string();
    send_at_once(&mut first, &[brief, leave]);
    assert_eq!(first.next_json()["p"]["action"], "unsubscribe");
    second.send_text(&update("subscribe", json!(["jobs"]), join));
    second.next_json();
    assert_eq!(next(&mut second).1, 1);
    assert_eq!(
        first.ask(&json!({"t": "health_check"}))["t"],
        "health_check_response"
    );
}
