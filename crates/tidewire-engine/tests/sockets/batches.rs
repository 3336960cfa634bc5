//! Batches of publications: for clients whose hello asks for them, in the order of publication.

use crate::common;

use common::topics::{open_topics, subscribe};
use common::{Client, Opening, Said, start, wait_until};
use serde_json::{Value, json};
use tidewire_engine::{
    Application, Config, Context, HistoryLimits, Message, NewPublication, Priority, Server,
    TopicRule,
};

/// Publishes on topic `a` what a message lists, all in one turn of the loop.
#[derive(Clone)]
struct Burst;

impl Application for Burst {
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        let request: Value = serde_json::from_slice(message.bytes).expect("JSON");
        let sender = context.connection();
        for publication in request["p"].as_array().expect("a list") {
            let filling = "x".repeat(publication["bytes"].as_u64().unwrap_or(0) as usize);
            let payload = json!({ "n": publication["n"], "x": filling }).to_string();
            let mut new = NewPublication::new("count", payload);
            if publication["urgent"] == true {
                new = new.with_priority(Priority::Critical);
            }
            if publication["not_me"] == true {
                new = new.without(sender);
            }
            context.publish("a", &new).expect("it is accepted");
        }
    }
}

fn server(history: bool) -> Server {
    let mut config: Config = open_topics();
    if history {
        let mut rule = TopicRule::new("a");
        rule.history = Some(HistoryLimits {
            publications_max: 100,
            bytes_max: 1 << 20,
            age_max_ms: 0,
        });
        config.topics.rules = vec![rule];
    }
    start(config, Burst)
}

/// A session whose hello asks for batches or does not, with a subscription of `a`.
fn subscriber(server: &Server, format: &str, batching: bool) -> Client {
    let target = format!("/ws?format={format}");
    let mut client = Opening::new(server.address()).target(&target).open();
    let ready = message(&mut client);
    assert_eq!(ready["t"], "server_ready");
    let hello = json!({ "t": "client_hello", "p": { "features": { "batching": batching } } });
    client.send_text(&hello.to_string());
    assert_eq!(message(&mut client)["t"], "server_hello");
    if format == "msgpack" {
        let request = json!({ "action": "subscribe", "topics": ["a"] });
        let request = json!({ "t": "subscription_update", "p": request });
        client.send_text(&request.to_string());
        assert_eq!(message(&mut client)["p"]["success_topics"], json!(["a"]));
    } else {
        subscribe(&mut client, json!(["a"]));
    }
    client
}

/// The next message, in whatever format it comes.
fn message(client: &mut Client) -> Value {
    match client.next() {
        Said::Text(text) => serde_json::from_str(&text).expect("JSON"),
        Said::Binary(bytes) => {
            let packed = bytes.strip_prefix(b"M:").expect("MessagePack");
            let mut json = Vec::new();
            tidewire_wire::format::msgpack_to_json(packed, &mut json).expect("MessagePack");
            serde_json::from_slice(&json).expect("JSON")
        }
        other => panic!("{other:?}"),
    }
}

fn burst(client: &mut Client, publications: &[Value]) {
    client.send_text(&json!({ "t": "burst", "p": publications }).to_string());
}

fn numbered(numbers: std::ops::RangeInclusive<u64>) -> Vec<Value> {
    numbers.map(|n| json!({ "n": n })).collect()
}

fn number(publication: &Value) -> u64 {
    assert_eq!(
        (&publication["t"], &publication["tp"]),
        (&json!("count"), &json!("a"))
    );
    publication["p"]["n"].as_u64().expect("a number")
}

/// The publications of a batch, whose own fields are right.
fn batched(batch: &Value) -> Vec<Value> {
    assert_eq!((&batch["c"], &batch["t"]), (&json!("WSE"), &json!("batch")));
    assert_eq!((&batch["v"], &batch["seq"]), (&json!(1), &Value::Null));
    assert!(
        batch["id"].is_string() && batch["ts"].is_string(),
        "{batch}"
    );
    let messages = batch["p"]["messages"].as_array().expect("messages");
    assert_eq!(batch["p"]["count"], json!(messages.len()));
    messages.clone()
}

#[test]
fn those_who_ask_get_one_batch_and_others_single_messages() {
    let server = server(true);
    let mut alone = subscriber(&server, "json", false);
    let mut in_text = subscriber(&server, "json", true);
    let mut packed = subscriber(&server, "msgpack", true);
    burst(&mut alone, &numbered(1..=10));
    let singles: Vec<Value> = (0..10).map(|_| message(&mut alone)).collect();
    assert_eq!(
        singles.iter().map(number).collect::<Vec<_>>(),
        Vec::from_iter(1..=10)
    );
    for client in [&mut in_text, &mut packed] {
        // The same envelopes, with their positions in the history.
        assert_eq!(batched(&message(client)), singles);
    }
    assert_eq!(singles[9]["o"], 10);
    // A shard counts what it has delivered when it has written it.
    let handle = server.handle();
    wait_until("all deliveries are counted", || {
        handle.counters().deliveries >= 30
    });
    assert_eq!(handle.counters().deliveries, 30);
    // One alone comes alone.
    burst(&mut alone, &numbered(11..=11));
    assert_eq!(number(&message(&mut in_text)), 11);
    assert_eq!(number(&message(&mut packed)), 11);
}

#[test]
fn batches_are_bounded_in_messages_and_bytes() {
    let server = server(false);
    for format in ["json", "msgpack"] {
        let mut client = subscriber(&server, format, true);
        burst(&mut client, &numbered(1..=2_500));
        let mut numbers = Vec::new();
        while numbers.len() < 2_500 {
            let batch = batched(&message(&mut client));
            assert!((2..=1_000).contains(&batch.len()), "{}", batch.len());
            numbers.extend(batch.iter().map(number));
        }
        assert!(numbers.into_iter().eq(1..=2_500));

        let large = |n: u64| json!({ "n": n, "bytes": 30_000 });
        let huge = json!({ "n": 4, "bytes": 100_000 });
        burst(&mut client, &[large(1), large(2), large(3), huge, large(5)]);
        let first = batched(&message(&mut client));
        assert_eq!(first.iter().map(number).collect::<Vec<_>>(), [1, 2]);
        // What has no neighbour that fits comes alone.
        let rest: Vec<u64> = (0..3).map(|_| number(&message(&mut client))).collect();
        assert_eq!(rest, [3, 4, 5]);
    }
}

#[test]
fn what_is_not_for_everybody_stays_out_of_the_others_batches() {
    let server = server(false);
    let mut sender = subscriber(&server, "json", true);
    let mut other = subscriber(&server, "json", true);
    let publications = [
        json!({ "n": 1 }),
        json!({ "n": 2, "not_me": true }),
        json!({ "n": 3 }),
    ];
    burst(&mut sender, &publications);
    assert_eq!(
        batched(&message(&mut other))
            .iter()
            .map(number)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    let mut received = Vec::new();
    while received.len() < 2 {
        let next = message(&mut sender);
        if next["t"] == "batch" {
            received.extend(batched(&next).iter().map(number));
        } else {
            received.push(number(&next));
        }
    }
    assert_eq!(received, [1, 3]);
}

#[test]
fn a_batch_has_one_priority() {
    let server = server(false);
    let mut client = subscriber(&server, "json", true);
    let urgent = |n: u64| json!({ "n": n, "urgent": true });
    burst(
        &mut client,
        &[json!({ "n": 1 }), json!({ "n": 2 }), urgent(3), urgent(4)],
    );
    let batches: Vec<Vec<u64>> = (0..2)
        .map(|_| batched(&message(&mut client)).iter().map(number).collect())
        .collect();
    // The more urgent may overtake, but nothing within a batch does.
    let mut sorted = batches.clone();
    sorted.sort();
    assert_eq!(sorted, [[1, 2], [3, 4]], "{batches:?}");
}
