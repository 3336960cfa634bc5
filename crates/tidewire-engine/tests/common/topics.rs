//! Messages of tests about topics.

use super::{Client, config};
use serde_json::{Value, json};
use tidewire_engine::{AccessRules, Config, Topics};

/// Everyone may everything.
pub fn open_topics() -> Config {
    Config {
        topics: Topics {
            access: AccessRules::open(),
            ..Topics::default()
        },
        ..config()
    }
}

pub fn update(client: &mut Client, action: &str, topics: Value) -> Value {
    let request = json!({"t": "subscription_update", "p": {"action": action, "topics": topics}});
    let answer = client.ask(&request);
    assert_eq!(answer["t"], "subscription_update", "{answer}");
    answer["p"].clone()
}

pub fn subscribe(client: &mut Client, topics: Value) {
    let answer = update(client, "subscribe", topics.clone());
    assert_eq!(answer["success_topics"], topics, "{answer}");
}

pub fn publish(client: &mut Client, topic: &str, number: u64) {
    let payload = json!({"topic": topic, "type": "count", "payload": {"n": number}});
    client.send_text(&json!({"t": "publish_request", "p": payload}).to_string());
}

/// The next publication's topic and number.
pub fn next(client: &mut Client) -> (String, u64) {
    let message = client.next_json();
    assert_eq!(message["t"], "count", "{message}");
    let topic = message["tp"].as_str().expect("a topic").to_owned();
    (topic, message["p"]["n"].as_u64().expect("a number"))
}
