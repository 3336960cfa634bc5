//! The Rust agent of `conformance/values/check.py`: a client that carries out orders. Each order is a line of JSON on standard
//! input; `check.py` explains the lines. A payload in an order, and one that is printed, is the text of its JSON.

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{self, BufRead};
use std::sync::Arc;
use tidewire_client::config::{Config, Encryption, Queue};
use tidewire_client::{
    Client, Error, Event, Format, Message, Payload, Publication, SubscribeOptions,
};
use tokio::sync::{OnceCell, mpsc};

/// Why an order was not carried out.
enum Failure {
    Client(Error),
    Order(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

#[derive(Default)]
struct Agent {
    client: OnceCell<Client>,
}

#[tokio::main]
async fn main() {
    let (lines, mut orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    let agent = Arc::new(Agent::default());
    while let Some(line) = orders.recv().await {
        let order: Value = serde_json::from_str(&line).unwrap_or_default();
        let agent = agent.clone();
        tokio::spawn(async move {
            let mut answer = match agent.carry_out(&order).await {
                Ok(done) => json!({"done": done}),
                Err(Failure::Client(error)) => {
                    json!({"refused": code(&error), "words": error.to_string()})
                }
                Err(Failure::Order(words)) => json!({"refused": "ORDER", "words": words}),
            };
            answer["id"] = order["id"].clone();
            println!("{answer}");
        });
    }
}

impl Agent {
    async fn carry_out(&self, order: &Value) -> Result<Value, Failure> {
        let text = |name: &str| order[name].as_str().unwrap_or_default();
        let (topic, t, value) = (text("topic"), text("type"), payload(order));
        if text("do") == "open" {
            return self.open(order).await;
        }
        let no_client = || Failure::Order("there is no client".to_owned());
        let client = self.client.get().ok_or_else(no_client)?;
        let mut done = Value::Null;
        match text("do") {
            "subscribe" => {
                let topics = order["topics"].as_array().into_iter().flatten();
                let topics = topics.filter_map(Value::as_str);
                client.subscribe(topics).await?;
            }
            "publish" => {
                client.publish(Publication::new(topic, t, value)).await?;
            }
            "enqueue" => {
                let options = Default::default();
                let accepted = client
                    .publish_acknowledged(topic, t, value, options)
                    .await?;
                accepted.wait().await?;
            }
            "send" => client.send(t, value).await?,
            "request" => done = told(&client.request(t, value, None).await?),
            "join" => {
                let presence = serde_json::from_str(value.as_json()).ok();
                let options = SubscribeOptions {
                    presence,
                    ..SubscribeOptions::default()
                };
                client.subscribe_with([topic], options).await?;
            }
            "members" => done = members(client, topic).await?,
            "close" => client.close().await,
            other => return Err(Failure::Order(format!("no order {other:?}"))),
        }
        Ok(done)
    }

    async fn open(&self, order: &Value) -> Result<Value, Failure> {
        let mut config = Config::new(order["url"].as_str().unwrap_or_default());
        if order["format"] == "msgpack" {
            config.format = Format::MessagePack;
        }
        if order["encrypted"] == true {
            config.encryption = Encryption::On;
        }
        config.queue = Some(Queue::default());
        let client = Client::connect(config).await?;
        tokio::spawn(receive(client.clone()));
        self.client
            .set(client)
            .map_err(|_| Failure::Order("it is open".to_owned()))?;
        Ok(Value::Null)
    }
}

/// The payload of an order: the text of its JSON, or bytes of this number.
fn payload(order: &Value) -> Payload<'static> {
    match order["bytes"].as_u64() {
        Some(count) => Payload::binary((0..count).map(|index| index as u8).collect::<Vec<_>>()),
        None => Payload::json(order["value"].as_str().unwrap_or_default().to_owned()),
    }
}

fn told(payload: &Payload<'_>) -> Value {
    match payload.to_bytes() {
        Some(bytes) => json!({"bytes": STANDARD.encode(bytes)}),
        None => json!({"text": payload.as_json()}),
    }
}

async fn members(client: &Client, topic: &str) -> Result<Value, Failure> {
    let answer = client.presence([topic]).await?;
    let members = answer
        .topics
        .into_iter()
        .flat_map(|topic| topic.members)
        .flatten();
    Ok(members.map(|member| json!({"text": member.data})).collect())
}

async fn receive(client: Client) {
    while let Some(batch) = client.next_batch().await {
        for event in batch {
            match event {
                Event::Message(message) => println!("{}", arrived(&message)),
                Event::Error(error) => println!("{}", json!({"reported": error.code})),
                Event::Disconnected(why) => println!("{}", json!({"closed": format!("{why:?}")})),
                _ => {}
            }
        }
    }
}

fn arrived(message: &Message) -> Value {
    let Ok(outline) = message.outline() else {
        return json!({"arrived": "nothing that can be read"});
    };
    let kind = if outline.topic.is_some() {
        "publication"
    } else {
        "message"
    };
    let payload = match (message.bytes(), message.payload()) {
        (Ok(Some(bytes)), _) => json!({"bytes": STANDARD.encode(bytes)}),
        (_, Ok(text)) => json!({"text": String::from_utf8_lossy(&text)}),
        (_, Err(error)) => json!({"text": error.to_string()}),
    };
    json!({"arrived": kind, "type": outline.t, "payload": payload})
}

/// The server's code, or the client's own word for it.
fn code(error: &Error) -> String {
    match error {
        Error::Refused { code, .. } => code.clone(),
        Error::Invalid(_) => "INVALID_ARGUMENT".to_owned(),
        other => format!("{other:?}"),
    }
}
