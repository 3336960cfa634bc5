//! The application's side of a scenario: an interpreter of its calls.

use super::server::Seen;
use crate::common::{DEADLINE, wait_until};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use tidewire_client::{Client, ClientState, Config, Error, Event, Publication, QueueOptions};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The result of a call: a value for the application, or an error.
type Given = Result<Value, Error>;

pub(super) struct Application {
    config: Config,
    seen: Seen,
    client: Option<Client>,
    /// Events that were received and not looked at.
    events: Arc<Mutex<VecDeque<Event>>>,
    /// Calls that go on.
    calls: BTreeMap<String, JoinHandle<Given>>,
}

impl Application {
    pub(super) fn new(config: Config, seen: Seen) -> Self {
        Self {
            config,
            seen,
            client: None,
            events: Arc::default(),
            calls: BTreeMap::new(),
        }
    }

    pub(super) async fn step(&mut self, step: &Value) {
        if let Some(name) = step["done"].as_str() {
            let call = self.calls.remove(name).expect("a call of this name");
            let given = timeout(DEADLINE, call).await;
            let given = given.unwrap_or_else(|_| panic!("{name} never ends"));
            return check(step, given.expect("a call does not panic"));
        }
        if let Some(name) = step["cancel"].as_str() {
            let call = self.calls.remove(name).expect("a call of this name");
            call.abort();
            let _ = call.await;
            return;
        }
        if self.look(step).await {
            return;
        }
        let call = self.call(step);
        match step["as"].as_str() {
            Some(name) => {
                self.calls.insert(name.to_owned(), tokio::spawn(call));
                // It has begun before the next step does.
                tokio::task::yield_now().await;
            }
            None => {
                let given = timeout(DEADLINE, call).await;
                check(step, given.unwrap_or_else(|_| panic!("{step} never ends")));
            }
        }
    }

    /// Ends the client, and every call with it.
    pub(super) async fn end(mut self) {
        if let Some(client) = &self.client {
            let closed = timeout(DEADLINE, client.close()).await;
            closed.expect("a client can be closed");
        }
        for (name, call) in std::mem::take(&mut self.calls) {
            let ended = timeout(DEADLINE, call).await;
            let ended = ended.unwrap_or_else(|_| panic!("{name} outlives its client"));
            let _ = ended.expect("a call does not panic");
        }
    }

    /// Steps that wait for something to be seen; whether this is one.
    async fn look(&mut self, step: &Value) -> bool {
        if let Some(state) = step["state"].as_str() {
            let client = self.client().clone();
            wait_until(state, || name(&client.state()) == state).await;
        } else if let Some(t) = step["read"].as_str() {
            wait_until(t, || self.seen.has_read(t)).await;
        } else if let Some(t) = step["never_read"].as_str() {
            assert!(!self.seen.has_read(t), "{t} was sent");
        } else if let Some(count) = step["connections"].as_u64() {
            wait_until("connections", || self.seen.connections() as u64 >= count).await;
        } else {
            return false;
        }
        true
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("the client was started")
    }

    /// Starts a call; returns its result.
    fn call(&mut self, step: &Value) -> Pin<Box<dyn Future<Output = Given> + Send>> {
        if step.get("connect").is_none() && step.get("start").is_none() {
            let (client, events) = (self.client().clone(), self.events.clone());
            let step = step.clone();
            return Box::pin(async move { call(&client, &events, &step).await });
        }
        let is_waited_for = step.get("connect").is_some();
        let config = self.config.clone();
        let started = match is_waited_for {
            true => Client::start_once(config),
            false => Client::start(config),
        };
        self.client = started.as_ref().ok().cloned();
        Box::pin(async move {
            let client = started?;
            if is_waited_for {
                client.first_connected().await?;
            }
            Ok(Value::Null)
        })
    }
}

async fn call(client: &Client, events: &Mutex<VecDeque<Event>>, step: &Value) -> Given {
    let (name, value) = operation(step);
    let text = |index: usize| value[index].as_str().expect("a text");
    let payload = |index: usize| value[index].to_string();
    let nothing = Value::Null;
    match name {
        "ready" => client.connected().await.map(|()| nothing),
        "send" => client.send(text(0), &payload(1)).await.map(|()| nothing),
        "request" => {
            let answer = client.request(text(0), &payload(1), None).await?;
            Ok(serde_json::from_str(answer.as_json()).expect("an answer is JSON"))
        }
        "publish" => {
            let publication = Publication::new(text(0), text(1), payload(2));
            client.publish(publication).await.map(|_| nothing)
        }
        "subscribe" => {
            let topics = value.as_array().expect("topics are a list");
            let topics = topics.iter().map(|topic| topic.as_str().expect("a topic"));
            let subscribed = client.subscribe(topics).await?;
            Ok(json!(subscribed.failed))
        }
        "enqueue" => {
            let (payload, options) = (payload(1), QueueOptions::default());
            let stored = client.send_acknowledged(text(0), &payload, options);
            stored.await.map(|_| nothing)
        }
        "send_acknowledged" => {
            let (payload, options) = (payload(1), QueueOptions::default());
            let stored = client.send_acknowledged(text(0), &payload, options);
            stored.await?.wait().await.map(|()| nothing)
        }
        "ping" => client.ping().await.map(|_| nothing),
        "receive" => receive(client, events, |event| match event {
            Event::Message(message) => message
                .outline()
                .is_ok_and(|outline| outline.t == value.as_str().expect("a type")),
            _ => false,
        })
        .await
        .map(|_| nothing),
        "event" => {
            let kind = value.as_str().expect("a kind");
            let event = receive(client, events, |event| event.kind() == kind).await?;
            compare(&fields(&event), &step["has"]);
            Ok(nothing)
        }
        "close" => {
            let code = value[0].as_u64().unwrap_or(1_000);
            let reason = value[1].as_str().unwrap_or_default();
            let code = u16::try_from(code).expect("16 bits");
            client.close_with(code, reason).await;
            Ok(nothing)
        }
        other => panic!("no application does {other}"),
    }
}

/// The action of a step: its field that is no condition.
fn operation(step: &Value) -> (&str, &Value) {
    let fields = step.as_object().expect("a step is an object");
    let is_condition = |name: &str| ["as", "gives", "answer", "failed", "has"].contains(&name);
    let mut operations = fields.iter().filter(|(name, _)| !is_condition(name));
    let (name, value) = operations.next().expect("a step does something");
    assert!(operations.next().is_none(), "one thing at a time: {step}");
    (name, value)
}

/// The next event that is `wanted`; the others are passed over.
async fn receive(
    client: &Client,
    events: &Mutex<VecDeque<Event>>,
    wanted: impl Fn(&Event) -> bool,
) -> Result<Event, Error> {
    let mut events = events.lock().await;
    loop {
        while let Some(event) = events.pop_front() {
            if wanted(&event) {
                return Ok(event);
            }
        }
        match client.next_batch().await {
            Some(batch) => events.extend(batch),
            None => return Err(client.closed().await),
        }
    }
}

/// Holds what a call gave against what it should give.
fn check(step: &Value, given: Given) {
    let expected = match step.get("connect") {
        Some(code) => code,
        None => step.get("gives").unwrap_or(&Value::Null),
    };
    let code = match &given {
        Ok(_) => "ok",
        Err(error) => error.code(),
    };
    let is_right = match expected {
        Value::Null => code == "ok",
        Value::String(one) => code == one,
        several => several
            .as_array()
            .expect("a code or several")
            .contains(&json!(code)),
    };
    assert!(is_right, "{step} gave {given:?}");
    let Ok(value) = given else { return };
    for name in ["answer", "failed"] {
        if let Some(expected) = step.get(name) {
            assert_eq!(value, *expected, "{step}");
        }
    }
}

fn name(state: &ClientState) -> &'static str {
    match state {
        ClientState::Connecting => "connecting",
        ClientState::Connected => "connected",
        ClientState::Waiting => "waiting",
        ClientState::Closed(_) => "closed",
    }
}

/// The fields of an event, as bindings name them.
fn fields(event: &Event) -> Value {
    match event {
        Event::Connected(connected) => json!({
            "user": connected.user,
            "connection_id": connected.connection_id,
            "session": connected.session,
        }),
        Event::Disconnected(ended) => json!({
            "code": ended.code,
            "reason": ended.reason,
            "retry_in": ended.retry_in.map(|after| after.as_secs_f64()),
        }),
        Event::Gap(gap) => json!({"topic": gap.topic, "count": gap.count}),
        Event::Error(error) => json!({
            "code": error.code,
            "message": error.message,
            "recoverable": error.recoverable,
            "refused": error.refused,
        }),
        Event::SubscriptionLost(topics) => json!({"topics": topics}),
        Event::Uncertain(uncertain) => json!({
            "messages": uncertain.messages.len(),
            "resent": uncertain.is_resent,
        }),
        Event::BrokerUpdate { is_away } => json!({"away": is_away}),
        Event::Expired(messages) => json!({"messages": messages}),
        Event::QueueFailed(words) => json!({"message": words}),
        _ => json!({}),
    }
}

/// Whether the fields are what a scenario expects: of a text it is enough to be contained, `[low, high]` is a range.
fn compare(fields: &Value, expected: &Value) {
    for (name, expected) in expected.as_object().into_iter().flatten() {
        let value = &fields[name];
        let is_right = match expected {
            Value::String(part) => value.as_str().is_some_and(|text| text.contains(part)),
            Value::Array(range) if value.is_number() => {
                let number = value.as_f64().unwrap_or_default();
                let bound = |index: usize| range[index].as_f64().expect("a number");
                (bound(0)..=bound(1)).contains(&number)
            }
            Value::Number(number) => value.as_f64() == number.as_f64(),
            other => value == other,
        };
        assert!(is_right, "{name} is {value}, not {expected}: {fields}");
    }
}
