//! Subscriptions that the application makes, and that a client asks for again on its next connection.

use crate::common;

use common::topics::{next, open_topics, publish, update};
use common::{Client, connect_v1, start};
use serde_json::{Value, json};
use tidewire_engine::{
    AccessRules, Application, Config, Context, HistoryLimits, Message, Peer, Rules, TopicRule,
};

/// Subscribes each session to `a.x`: at once, or when it says so.
#[derive(Clone)]
struct Granting {
    at_once: bool,
}

impl Application for Granting {
    fn on_connect(&mut self, context: &mut Context<'_>, _: &Peer) {
        if self.at_once {
            context.subscribe("a.x").expect("room");
        }
    }

    fn on_message(&mut self, context: &mut Context<'_>, _: Message<'_>) {
        context.subscribe("a.x").expect("room");
    }
}

/// Clients may publish, and subscribe to nothing but `open.>`.
fn closed() -> Config {
    let mut config = open_topics();
    config.topics.access = AccessRules {
        subscribe: Rules {
            allow: vec!["open.>".into()],
            deny: Vec::new(),
        },
        ..AccessRules::open()
    };
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits {
            publications_max: 100,
            bytes_max: 1 << 20,
            age_max_ms: 0,
        }),
        ..TopicRule::new(">")
    }];
    config
}

fn renew(client: &mut Client, positions: Value) -> Value {
    let topics: Vec<String> = positions
        .as_object()
        .expect("topics")
        .keys()
        .cloned()
        .collect();
    let payload = json!({
        "action": "subscribe", "topics": topics, "renew": true, "recover": true, "recovery": positions,
    });
    let answer = client.ask(&json!({"t": "subscription_update", "p": payload, "cid": "1"}));
    assert_eq!(
        (&answer["t"], &answer["cid"]),
        (&json!("subscription_update"), &json!("1")),
        "{answer}"
    );
    answer["p"].clone()
}

/// What the server says by itself about `a.x`.
#[track_caller]
fn granted(client: &mut Client) -> Value {
    let told = client.next_json();
    assert_eq!(
        (&told["t"], &told["cid"], &told["p"]["success_topics"]),
        (&json!("subscription_update"), &Value::Null, &json!(["a.x"])),
        "{told}"
    );
    told["p"]["recovery"]["a.x"].clone()
}

#[test]
fn a_server_offers_renewals() {
    let server = start(closed(), Granting { at_once: false });
    let mut client = common::connect(&server);
    let ready = client.next_json();
    assert_eq!(
        ready["p"]["details"]["features"]["server_subscriptions"],
        true
    );
    let hello = client.ask(&json!({"t": "client_hello", "p": {}}));
    assert_eq!(hello["p"]["features"]["server_subscriptions"], true);
}

#[test]
fn a_subscription_that_the_server_has_made_again_is_recovered() {
    let server = start(closed(), Granting { at_once: true });
    let (mut publisher, mut client) = (connect_v1(&server), connect_v1(&server));
    granted(&mut publisher);
    let stands = granted(&mut client);
    publish(&mut publisher, "a.x", 1);
    assert_eq!(next(&mut client), ("a.x".into(), 1));
    drop(client);
    for number in 2..=4 {
        publish(&mut publisher, "a.x", number);
    }
    for number in 1..=4 {
        assert_eq!(next(&mut publisher), ("a.x".into(), number));
    }
    let mut client = connect_v1(&server);
    // The server's update alone would leave out what was missed.
    assert_eq!(granted(&mut client)["offset"], 4);
    let seen = json!({"epoch": stands["epoch"], "offset": 1});
    let answer = renew(&mut client, json!({"a.x": seen}));
    assert_eq!(answer["success_topics"], json!(["a.x"]), "{answer}");
    assert_eq!(
        (
            &answer["recovery"]["a.x"]["recovered"],
            &answer["recovery"]["a.x"]["count"]
        ),
        (&json!(true), &json!(3))
    );
    for number in 2..=4 {
        assert_eq!(next(&mut client), ("a.x".into(), number));
    }
    // It goes on, each once, and is the server's as before.
    publish(&mut publisher, "a.x", 5);
    assert_eq!(next(&mut client), ("a.x".into(), 5));
    let again = renew(
        &mut client,
        json!({"a.x": {"epoch": stands["epoch"], "offset": 5}}),
    );
    assert_eq!(again["recovery"]["a.x"]["count"], 0, "{again}");
    publish(&mut publisher, "a.x", 6);
    assert_eq!(next(&mut client), ("a.x".into(), 6));
    // An ordinary request is no renewal: nothing comes again.
    let payload = json!({"action": "subscribe", "topics": ["a.x"], "recover": true,
        "recovery": {"a.x": {"epoch": stands["epoch"], "offset": 1}}});
    let answer = client.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(answer["p"]["recovery"], json!({}), "{answer}");
}

#[test]
fn a_renewal_before_the_server_s_own_is_refused_and_comes_again() {
    let server = start(closed(), Granting { at_once: false });
    let (mut publisher, mut client) = (connect_v1(&server), connect_v1(&server));
    client.send_text(r#"{"t":"join"}"#);
    let stands = granted(&mut client);
    publish(&mut publisher, "a.x", 1);
    assert_eq!(next(&mut client), ("a.x".into(), 1));
    let mut client = connect_v1(&server);
    let seen = json!({"epoch": stands["epoch"], "offset": 0});
    let answer = renew(&mut client, json!({"a.x": seen, "open.b": seen}));
    assert_eq!(
        (&answer["success_topics"], &answer["failed_topics"]),
        (&json!(["open.b"]), &json!(["a.x"]))
    );
    assert_eq!(answer["failures"][0]["code"], "TOPIC_FORBIDDEN");
    // No further error follows: the next message is the server's own subscription.
    client.send_text(r#"{"t":"join"}"#);
    assert_eq!(granted(&mut client)["offset"], 1);
    let answer = renew(&mut client, json!({"a.x": seen}));
    assert_eq!(answer["recovery"]["a.x"]["count"], 1, "{answer}");
    assert_eq!(next(&mut client), ("a.x".into(), 1));
}

#[test]
fn a_name_that_is_no_text_fails_alone() {
    let server = start(open_topics(), Granting { at_once: false });
    let mut client = connect_v1(&server);
    client.send_text(
        r#"{"t":"subscription_update","cid":"1","p":{"action":"subscribe","topics":["a","b\ud83d","\ud83d\ude00"]}}"#,
    );
    let answer = client.next_json();
    assert_eq!(answer["cid"], "1", "{answer}");
    let answer = &answer["p"];
    assert_eq!(answer["success_topics"], json!(["a", "\u{1f600}"]));
    assert_eq!(answer["failed_topics"], json!(["b\u{fffd}"]));
    assert_eq!(answer["failures"][0]["code"], "INVALID_SUBSCRIPTION");
    assert_eq!(client.next_json()["p"]["code"], "INVALID_SUBSCRIPTION");
    // Alone it fails as well, and nothing is subscribed by its replacement.
    client.send_text(
        r#"{"t":"subscription_update","cid":"2","p":{"action":"subscribe","topics":["b\ud83d"]}}"#,
    );
    assert_eq!(
        client.next_json()["p"]["failed_topics"],
        json!(["b\u{fffd}"])
    );
    assert_eq!(client.next_json()["p"]["code"], "INVALID_SUBSCRIPTION");
    client.send_binary(
        b"M:\x83\xa1t\xb3subscription_update\xa3cid\xa13\xa1p\x82\xa6action\xa9subscribe\xa6topics\x92\xa1c\xa4d\xed\xa0\xbd",
    );
    let answer = client.next_json();
    assert_eq!(answer["p"]["success_topics"], json!(["c"]), "{answer}");
    assert_eq!(answer["p"]["failed_topics"], json!(["d\u{fffd}"]));
    assert_eq!(client.next_json()["p"]["code"], "INVALID_SUBSCRIPTION");
    assert_eq!(
        update(&mut client, "unsubscribe", json!(["a"]))["success_topics"],
        json!(["a"])
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in its order")]
fn numbers_and_null_arrive_as_they_were_sent() {
    let server = start(closed(), Granting { at_once: true });
    let (mut publisher, mut client) = (connect_v1(&server), connect_v1(&server));
    granted(&mut publisher);
    granted(&mut client);
    let mut packs = common::Opening::new(server.address())
        .target("/ws?format=msgpack")
        .open();
    let text_of = |bytes: &[u8]| {
        let mut text = Vec::new();
        tidewire_wire::format::msgpack_to_json(&bytes[2..], &mut text).expect("MessagePack");
        String::from_utf8(text).expect("JSON")
    };
    assert_eq!(packs.next_json()["t"], "server_ready");
    assert!(matches!(packs.next(), common::Said::Binary(_)));
    let payloads = [
        "null",
        "1.10",
        "-0.0",
        "1e2",
        "123456789012345678901234567890",
        "18446744073709551615",
        "-9223372036854775808",
        r#"{ "a" : [ 1 ,null] }"#,
    ];
    for payload in payloads {
        publisher.send_text(&format!(
            r#"{{"t":"publish_request","p":{{"topic":"a.x","type":"b","payload":{payload}}}}}"#
        ));
        let message = client.next_text();
        assert!(
            message.ends_with(&format!(",\"p\":{payload}}}")),
            "{payload}: {message}"
        );
        let common::Said::Binary(bytes) = packs.next() else {
            panic!("no publication")
        };
        if !payload.contains(['.', 'e', ' ']) && payload.len() < 21 {
            let text = text_of(&bytes);
            assert!(
                text.ends_with(&format!(",\"p\":{payload}}}")),
                "{payload}: {text}"
            );
        }
    }
    publisher.send_text(r#"{"t":"publish_request","p":{"topic":"a.x","type":"b"}}"#);
    assert!(
        client.next_text().ends_with(",\"p\":{}}"),
        "a missing payload is an empty object"
    );
    // Through the history, too.
    let request = json!({"t": "history_request", "p": {"topic": "a.x"}, "cid": "1"}).to_string();
    let mut reader = connect_v1(&server);
    granted(&mut reader);
    // Its rights do not cover the topic; those of a topic that they cover show it.
    reader.send_text(&request);
    assert_eq!(reader.next_json()["p"]["code"], "TOPIC_FORBIDDEN");
    for payload in payloads {
        publisher.send_text(&format!(
            r#"{{"t":"publish_request","cid":"1","p":{{"topic":"open.y","type":"b","payload":{payload}}}}}"#
        ));
    }
    reader.send_text(&json!({"t": "subscription_update", "p": {"action": "subscribe", "topics": ["open.y"], "replay": 100}}).to_string());
    let mut seen = Vec::new();
    while seen.len() < payloads.len() {
        let text = reader.next_text();
        if let Some((_, payload)) = text
            .split_once(",\"p\":")
            .filter(|_| text.contains("\"tp\":\"open.y\""))
        {
            seen.push(payload.strip_suffix('}').expect("an object").to_owned());
        }
    }
    assert_eq!(seen, payloads);
}
